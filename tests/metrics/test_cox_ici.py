"""Integrated calibration index against SurvivalEVAL, its Cox model against lifelines, both against a known truth."""

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter
from SurvivalEVAL.evaluations.calibration.single_time.integrated_calibration_index import (
    integrated_calibration_index as survivaleval,
)

from tests.metrics.simulate import survival_data
from xcal.data.surv import Outcome
from xcal.metrics import cox_ici
from xcal.metrics.cox import fit_cox, newton


@pytest.mark.parametrize("grid", [None, 0.125])
@pytest.mark.parametrize("n_knots", [3, 4, 5, 7])
def test_equals_survivaleval(grid, n_knots):
    data = survival_data(800, rng=np.random.default_rng(0), grid=grid)
    p = data.probability(1.0, too_fast=1.4)
    theirs = survivaleval(p, data.time, data.event, 1.0, knots=n_knots)
    ours = cox_ici(p, at=1.0, time=data.time, event=data.event, n_knots=n_knots)
    # Their optimiser stops at a gradient of 1e-7, ours a few Newton steps closer to the maximum.
    expected = [theirs[key] for key in ("ICI", "E50", "E90", "E_max")]
    np.testing.assert_allclose([ours.value, ours.e50, ours.e90, ours.emax], expected, rtol=0, atol=2e-6)
    np.testing.assert_allclose(ours.predicted, theirs["curve"]["grid"], rtol=1e-12)
    np.testing.assert_allclose(ours.observed, theirs["curve"]["cal_pred"], rtol=0, atol=2e-6)
    assert ours.smoother == "spline"


@pytest.mark.parametrize("grid", [None, 0.25])
def test_cox_equals_lifelines(grid):
    rng = np.random.default_rng(1)
    data = survival_data(300, rng=rng, grid=grid)
    x = np.column_stack([data.rate, rng.normal(size=300)])
    frame = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "time": data.time, "event": data.event})
    # By default lifelines stops at a gradient of 1e-5.
    fitted = CoxPHFitter().fit(frame, "time", "event", fit_options={"precision": 1e-12, "r_precision": 1e-14})
    ours = fit_cox(x, Outcome(data.time, data.event), at=1.0)
    assert ours.converged
    np.testing.assert_allclose(ours.coefficients, fitted.params_, rtol=0, atol=1e-10)


def test_finds_the_true_distance():
    # Hazards 1.5 times too high: the model says 1 - exp(-1.5 r) where the truth is 1 - exp(-r).
    data = survival_data(20_000, rng=np.random.default_rng(2), censoring_scale=1.0)
    p, truth = data.probability(1.0, 1.5), data.probability(1.0)
    distance = np.abs(p - truth)
    result = cox_ici(p, at=1.0, time=data.time, event=data.event)
    # The smoothed curve has a standard error of about 0.005 at 20,000 rows.
    assert result.value == pytest.approx(distance.mean(), abs=0.01)
    assert result.e50 == pytest.approx(np.median(distance), abs=0.01)
    assert result.emax == pytest.approx(distance.max(), abs=0.03)
    np.testing.assert_allclose(result.observed, 1 - (1 - result.predicted) ** (1 / 1.5), atol=0.02)


def test_the_order_e50_e90_emax_and_the_mean_between():
    data = survival_data(500, rng=np.random.default_rng(3))
    result = cox_ici(data.probability(1.0, 2.0), at=1.0, time=data.time, event=data.event)
    assert 0 <= result.e50 <= result.e90 <= result.emax <= 1
    assert result.value <= result.emax


def test_equal_predictions_are_compared_with_kaplan_meier():
    data = survival_data(200, rng=np.random.default_rng(4))
    result = cox_ici(np.full(200, 0.3), at=1.0, time=data.time, event=data.event)
    expected = abs(0.3 - (1 - KaplanMeierFitter().fit(data.time, data.event).predict(1.0)))
    assert (result.value, result.emax) == pytest.approx((expected, expected), abs=1e-12)
    assert result.smoother == "constant"


def test_two_distinct_predictions_get_a_line():
    data = survival_data(400, rng=np.random.default_rng(5), censoring_scale=np.inf)
    high = data.rate > 1
    p = np.where(high, 0.7, 0.4)
    result = cox_ici(p, at=1.0, time=data.time, event=data.event)
    assert result.smoother == "line"
    assert result.converged
    # With proportional hazards between two groups, the fit lies near the two observed shares.
    happened = data.time <= 1.0
    distances = sorted([abs(0.7 - happened[high].mean()), abs(0.4 - happened[~high].mean())])
    assert result.emax == pytest.approx(distances[1], abs=0.05)


def test_predictions_of_exactly_zero_and_one_are_finite():
    data = survival_data(300, rng=np.random.default_rng(6))
    p = data.probability(1.0)
    p[:5], p[5:10] = 0.0, 1.0
    result = cox_ici(p, at=1.0, time=data.time, event=data.event)
    assert np.isfinite([result.value, result.emax]).all()


def test_no_event_by_the_time_means_an_observed_probability_of_zero():
    p = np.array([0.1, 0.2, 0.3, 0.4])
    result = cox_ici(p, at=0.5, time=[1, 2, 3, 4], event=[1, 1, 1, 0])
    assert result.value == pytest.approx(p.mean())


def test_what_the_data_do_not_determine_is_nan_and_says_so():
    result = cox_ici([0.1, 0.9], at=3, time=[1, 3], event=[0, 1])
    assert not result.converged
    assert np.isnan([result.value, result.e50, result.e90, result.emax]).all()


def test_a_time_beyond_the_follow_up_is_a_choice():
    data = survival_data(100, rng=np.random.default_rng(7))
    rows = {"time": data.time, "event": data.event}
    p = data.probability(1.0)
    late = data.time.max() + 1
    assert np.isnan(cox_ici(p, at=late, **rows).value)
    with pytest.raises(ValueError, match="at: expected a time within the follow-up"):
        cox_ici(p, at=late, **rows, outside="raise")
    clipped = cox_ici(p, at=late, **rows, outside="clip")
    last = cox_ici(p, at=data.time.max(), **rows)
    assert clipped.value == pytest.approx(last.value, rel=1e-10)


def test_the_rounding_of_a_large_likelihood_does_not_stop_newton():
    """The log-likelihood of a million rows is about -1e7, whose last digits are noise of 1e-7."""
    rng = np.random.default_rng(0)

    def likelihood(beta):
        value = -1e7 - 5e5 * float((beta[0] - 1.5) ** 2 + 0.1 * (beta[0] - 1.5) ** 4) + 1e-7 * rng.uniform(-1, 1)
        away = beta - 1.5
        return value, -1e6 * away - 2e5 * away**3, np.array([[1e6 + 6e5 * float(away[0]) ** 2]]), np.ones(1)

    for _ in range(20):
        beta, _, converged = newton(likelihood, np.zeros(1))
        assert converged
        assert beta[0] == pytest.approx(1.5, abs=1e-8)
