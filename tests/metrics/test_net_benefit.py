"""Net benefit: plain counts without censoring, lifelines' Kaplan-Meier with it."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from tests.metrics.simulate import survival_data
from xcal.metrics import decision_curve, net_benefit

THRESHOLDS = np.array([0.05, 0.2, 0.35, 0.5, 0.9])


def test_uncensored_it_is_a_count_of_true_and_false_positives():
    data = survival_data(200, rng=np.random.default_rng(0), censoring_scale=np.inf)
    p, sick = data.probability(0.5), data.time <= 0.5
    curve = decision_curve(p, THRESHOLDS, at=0.5, time=data.time, event=data.event)
    for k, t in enumerate(THRESHOLDS):
        true_positives, false_positives = np.sum(sick & (p >= t)), np.sum(~sick & (p >= t))
        assert curve.model[k] == pytest.approx((true_positives - false_positives * t / (1 - t)) / 200, abs=1e-12)
        assert curve.treat_all[k] == pytest.approx((sick.sum() - (~sick).sum() * t / (1 - t)) / 200, abs=1e-12)


@pytest.mark.parametrize("grid", [None, 0.125])
def test_censored_it_is_vickers_formula(grid):
    data = survival_data(300, rng=np.random.default_rng(1), grid=grid)
    p = data.probability(0.5, 1.2)
    curve = decision_curve(p, THRESHOLDS, at=0.5, time=data.time, event=data.event)
    for k, t in enumerate(THRESHOLDS):
        above, expected = p >= t, 0.0
        if above.any():
            s = KaplanMeierFitter().fit(data.time[above], data.event[above]).predict(0.5)
            expected = (1 - s) * above.mean() - s * above.mean() * t / (1 - t)
        assert curve.model[k] == pytest.approx(expected, abs=1e-12)
        assert net_benefit(p, t, at=0.5, time=data.time, event=data.event).value == pytest.approx(expected, abs=1e-12)


def test_nobody_above_the_threshold_gives_nothing():
    result = net_benefit([0.1, 0.2], 0.5, at=1, time=[1, 2], event=[1, 1])
    assert result.value == 0.0
    assert result.share == 0.0


def test_the_band_holds_the_curve_and_needs_a_generator():
    data = survival_data(200, rng=np.random.default_rng(2))
    given = {"at": 0.5, "time": data.time, "event": data.event, "n_bootstrap": 50}
    p = data.probability(0.5)
    curve = decision_curve(p, THRESHOLDS[:3], **given, generator=np.random.default_rng(0))
    assert ((curve.lower < curve.model) & (curve.model < curve.upper)).all()
    with pytest.raises(ValueError, match=r"^generator: expected a numpy.random.Generator"):
        decision_curve(p, THRESHOLDS, **given)


def test_the_band_is_that_of_a_mean_where_nobody_is_censored():
    """Net benefit is then the mean of what each patient adds: 1 for a true alarm, -t / (1 - t) for a false one."""
    rng = np.random.default_rng(3)
    p = rng.uniform(0.1, 0.9, 400)
    happened = rng.uniform(size=400) < p
    limits = np.array([0.3, 0.6])
    rows = {"at": 1.0, "time": np.where(happened, 0.5, 2.0), "event": np.ones(400)}
    curve = decision_curve(p, limits, **rows, n_bootstrap=3000, generator=rng)
    for k, t in enumerate(limits):
        added = (p >= t) * np.where(happened, 1.0, -t / (1 - t))
        reach = 1.959964 * added.std() / 20
        assert curve.model[k] == pytest.approx(added.mean())
        assert (curve.lower[k], curve.upper[k]) == pytest.approx(
            (added.mean() - reach, added.mean() + reach), abs=0.05 * reach
        )


@pytest.mark.parametrize(("value", "message"), [([0.0, 0.5], "above 0 and below 1"), ([0.5, 0.4], "strictly increas")])
def test_impossible_thresholds_are_refused(value, message):
    with pytest.raises(ValueError, match=rf"^thresholds: expected .*{message}"):
        decision_curve([0.1, 0.2], value, at=1, time=[1, 2], event=[1, 1])
