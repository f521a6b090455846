"""Observed over expected: Kaplan-Meier by lifelines, the interval by its formula."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from tests.metrics.simulate import survival_data
from xcal.metrics import observed_expected


def test_the_parts_and_the_interval():
    data = survival_data(400, rng=np.random.default_rng(0), grid=0.125)
    p = data.probability(0.5, too_fast=1.3)
    result = observed_expected(p, at=0.5, time=data.time, event=data.event, level=0.9, interval="poisson")
    curve = KaplanMeierFitter().fit(data.time, data.event)
    observed = 1 - curve.predict(0.5)
    events = np.sum(data.event & (data.time <= 0.5))
    assert result.value == pytest.approx(observed / p.mean(), rel=1e-12)
    assert result.n_events == events
    reach = np.exp(1.6448536269514722 / np.sqrt(events))  # the 95th percentile of a normal distribution
    assert (result.lower, result.upper) == pytest.approx((result.value / reach, result.value * reach), rel=1e-12)


def test_the_interval_by_greenwoods_variance():
    """The published form, exp(log O/E +- z SE / O), with the error of lifelines' curve."""
    data = survival_data(300, rng=np.random.default_rng(2))
    p = data.probability(0.5)
    result = observed_expected(p, at=0.5, time=data.time, event=data.event, interval="greenwood")
    low, high = KaplanMeierFitter().fit(data.time, data.event).confidence_interval_.loc[:0.5].iloc[-1]
    survival = 1 - result.observed
    # lifelines' interval is on the log(-log) scale: from its width the error of the curve.
    error = (np.log(-np.log(low)) - np.log(-np.log(high))) / 2 / 1.959964 * survival * abs(np.log(survival))
    reach = np.exp(1.959964 * error / result.observed)
    assert (result.lower, result.upper) == pytest.approx((result.value / reach, result.value * reach), rel=1e-4)


def test_the_robust_interval_covers_as_often_as_it_says_and_the_published_one_too_often():
    covered = dict.fromkeys(("robust", "greenwood", "poisson"), 0)
    for seed in range(300):
        data = survival_data(150, rng=np.random.default_rng([seed, 3]))
        p = data.probability(0.7)
        for interval in covered:
            found = observed_expected(p, at=0.7, time=data.time, event=data.event, interval=interval)
            covered[interval] += found.lower <= 1 <= found.upper
    # 95 % of 300 are 285, with a standard error of 3.8.
    assert abs(covered["robust"] - 285) <= 12
    assert covered["greenwood"] >= covered["robust"]
    assert covered["poisson"] >= 296


def test_hazards_too_high_give_less_than_one():
    data = survival_data(20_000, rng=np.random.default_rng(1))
    truth = data.probability(0.5).mean() / data.probability(0.5, 1.5).mean()
    result = observed_expected(data.probability(0.5, 1.5), at=0.5, time=data.time, event=data.event)
    assert result.lower < truth < result.upper < 1


def test_past_the_follow_up():
    given = {"at": 5.0, "time": [1.0, 2.0], "event": [1, 0]}
    assert np.isnan(observed_expected([0.5, 0.5], **given).value)
    assert observed_expected([0.5, 0.5], **given, outside="clip").value == 1.0
    with pytest.raises(ValueError, match=r"^at: expected a time within the follow-up, at most 2\.0, got 5\.0$"):
        observed_expected([0.5, 0.5], **given, outside="raise")
