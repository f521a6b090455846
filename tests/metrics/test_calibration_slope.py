"""Slope and intercept of pseudo-values: against the published figures, scipy's least squares and known truths."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares

from tests.metrics.simulate import survival_data
from xcal.calibration.bins import as_clusters
from xcal.data.surv import Outcome
from xcal.metrics import calibration_slope, cox_calibration
from xcal.metrics.observed_expected import slope_of
from xcal.metrics.pseudo_values import jackknife


def test_published_slope_and_intercept(real_data):
    """BMJ 2022;377:e069249, cause 1 at five years: R's pseudo-values, geepack's estimates and errors."""
    table = pd.read_csv(real_data("competing_risks") / "competing_risks" / "pseudo_cause1_t5.csv")
    found = slope_of(table["risk"].to_numpy(), table["pseudo"].to_numpy(), 5.0, 103, 0.95)
    assert found.slope == pytest.approx(1.218, abs=5e-4)
    assert found.intercept == pytest.approx(-0.1509, abs=5e-5)
    assert (found.slope_upper - found.slope_lower) / 2 / 1.959964 == pytest.approx(0.194, abs=5e-4)
    assert (found.intercept_upper - found.intercept_lower) / 2 / 1.959964 == pytest.approx(0.105, abs=5e-4)


@pytest.mark.parametrize("too_fast", [0.6, 1.0, 1.7])
def test_least_squares_of_scipy(too_fast):
    data = survival_data(300, rng=np.random.default_rng(1))
    p, at = data.probability(0.8, too_fast), 0.8
    values, x = jackknife(Outcome(data.time, data.event), at), np.log(-np.log1p(-p))
    both = least_squares(lambda b: values - 1 + np.exp(-np.exp(b[0] + b[1] * x)), [0.0, 1.0], xtol=1e-14, ftol=1e-14)
    alone = least_squares(lambda b: values - 1 + np.exp(-np.exp(b[0] + x)), [0.0], xtol=1e-14, ftol=1e-14)
    found = calibration_slope(p, at=at, time=data.time, event=data.event)
    assert found.slope == pytest.approx(both.x[1], abs=1e-6)
    assert found.intercept == pytest.approx(alone.x[0], abs=1e-6)


def test_the_error_is_that_of_repeated_data():
    slopes, errors, intercepts = [], [], []
    for seed in range(150):
        data = survival_data(300, rng=np.random.default_rng([seed, 2]))
        found = calibration_slope(data.probability(0.7, 1.2), at=0.7, time=data.time, event=data.event)
        slopes.append(found.slope)
        errors.append((found.slope_upper - found.slope_lower) / 2 / 1.959964)
        intercepts.append(found.intercept)
    # A standard deviation of 150 numbers is known to 6 %.
    assert np.mean(errors) == pytest.approx(np.std(slopes), rel=0.18)
    assert np.mean(intercepts) == pytest.approx(-np.log(1.2), abs=0.03)  # hazards 1.2 times too high


def test_crossing_hazards_have_slope_one_here_and_not_by_a_cox_model():
    rng = np.random.default_rng(3)
    x = rng.normal(size=6000)
    shape = np.exp(0.7 * x)
    happens, leaves = rng.exponential(size=6000) ** (1 / shape), rng.exponential(1.5, 6000)
    given = {"at": 0.5, "time": np.minimum(happens, leaves), "event": happens <= leaves}
    risk = 1 - np.exp(-(0.5**shape))
    found = calibration_slope(risk, **given)
    assert found.slope_lower < 1 < found.slope_upper
    cox = cox_calibration(risk, **given)
    assert not cox.slope_lower < 1 < cox.slope_upper


def test_what_is_not_determined():
    time, event = [1, 2, 3, 4], [1, 0, 1, 1]
    equal = calibration_slope([0.3] * 4, at=2.5, time=time, event=event)
    assert np.isnan(equal.slope)
    assert np.isfinite(equal.intercept)
    before = calibration_slope([0.1, 0.2, 0.3, 0.4], at=0.5, time=time, event=event)
    assert np.isnan([before.slope, before.intercept]).all()
    assert before.n_events == 0
    late = calibration_slope([0.1, 0.2, 0.3, 0.4], at=9, time=time, event=event)
    assert np.isnan(late.slope)
    with pytest.raises(ValueError, match="at: expected a time within the follow-up"):
        calibration_slope([0.1, 0.2, 0.3, 0.4], at=9, time=time, event=event, outside="raise")


def test_clusters_widen_the_interval_of_copied_rows():
    data = survival_data(150, rng=np.random.default_rng(4))
    p, values = data.probability(0.7), jackknife(Outcome(data.time, data.event), 0.7)
    once = slope_of(p, values, 0.7, 1, 0.95)
    twice = [np.repeat(a, 2) for a in (p, values)]
    naive = slope_of(*twice, 0.7, 1, 0.95)
    together = slope_of(*twice, 0.7, 1, 0.95, as_clusters(np.repeat(np.arange(150), 2), 300))
    assert together.slope == pytest.approx(once.slope, abs=1e-6)
    assert together.slope_upper - together.slope == pytest.approx(once.slope_upper - once.slope, rel=1e-5)
    assert naive.slope_upper - naive.slope == pytest.approx((once.slope_upper - once.slope) / 2**0.5, rel=1e-5)
