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


@pytest.mark.parametrize(("value", "message"), [([0.0, 0.5], "above 0 and below 1"), ([0.5, 0.4], "strictly increas")])
def test_impossible_thresholds_are_refused(value, message):
    with pytest.raises(ValueError, match=rf"^thresholds: expected .*{message}"):
        decision_curve([0.1, 0.2], value, at=1, time=[1, 2], event=[1, 1])
