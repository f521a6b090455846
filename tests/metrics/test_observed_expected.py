"""Observed over expected: Kaplan-Meier by lifelines, the interval by its formula."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from tests.metrics.simulate import survival_data
from xcal.metrics import observed_expected


def test_the_parts_and_the_interval():
    data = survival_data(400, rng=np.random.default_rng(0), grid=0.125)
    p = data.probability(0.5, too_fast=1.3)
    result = observed_expected(p, at=0.5, time=data.time, event=data.event, level=0.9)
    curve = KaplanMeierFitter().fit(data.time, data.event)
    observed = 1 - curve.predict(0.5)
    events = np.sum(data.event & (data.time <= 0.5))
    assert result.value == pytest.approx(observed / p.mean(), rel=1e-12)
    assert result.n_events == events
    reach = np.exp(1.6448536269514722 / np.sqrt(events))  # the 95th percentile of a normal distribution
    assert (result.lower, result.upper) == pytest.approx((result.value / reach, result.value * reach), rel=1e-12)


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
