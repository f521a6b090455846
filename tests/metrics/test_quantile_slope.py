"""Curve over the quantiles of F and its slope: by counting without censoring, by lifelines' Kaplan-Meier with it."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from tests.metrics.simulate import survival_data
from xcal.metrics import quantile_slope


def own_cdf(data, too_fast=1.0):
    return -np.expm1(-too_fast * data.rate * data.time)


@pytest.mark.parametrize("decimals", [1, 12])
def test_without_censoring_it_counts(decimals):
    u = own_cdf(survival_data(300, rng=np.random.default_rng(0), censoring_scale=np.inf), 1.4).round(decimals)
    result = quantile_slope(u, event=np.ones(300))
    counted = [np.mean(u <= rho) for rho in result.levels]
    np.testing.assert_allclose(result.observed, counted, rtol=0, atol=1e-12)
    slope, intercept = np.polyfit(result.levels, counted, 1)
    assert (result.slope, result.intercept) == pytest.approx((slope, intercept), abs=1e-10)
    origin = np.linalg.lstsq(result.levels[:, None], np.array(counted), rcond=None)[0][0]
    assert result.slope_through_origin == pytest.approx(origin, abs=1e-10)


@pytest.mark.parametrize("decimals", [1, 12])
def test_with_censoring_it_is_kaplan_meier_on_the_scale_of_f(decimals):
    data = survival_data(300, rng=np.random.default_rng(1))
    u = own_cdf(data).round(decimals)
    levels = np.linspace(0.05, 0.8, 16)
    curve = KaplanMeierFitter().fit(u, data.event)
    result = quantile_slope(u, event=data.event, levels=levels)
    np.testing.assert_allclose(result.observed, 1 - curve.survival_function_at_times(levels), rtol=0, atol=1e-12)


def test_the_true_model_has_slope_one_under_heavy_censoring():
    data = survival_data(40_000, rng=np.random.default_rng(2), censoring_scale=0.7)
    assert data.event.mean() < 0.5
    result = quantile_slope(own_cdf(data), event=data.event)
    # The curve has a standard error of about 0.005 at its worst level.
    assert (result.slope, result.intercept) == pytest.approx((1, 0), abs=0.02)
    # Counting events only, as if a censored row had never lived, is far off.
    assert np.mean(own_cdf(data)[data.event] <= 0.5) > 0.6


def test_hazards_too_high_give_a_curve_below_the_diagonal():
    data = survival_data(5000, rng=np.random.default_rng(3))
    result = quantile_slope(own_cdf(data, 2.0), event=data.event)
    # F of the model is 1 - (1 - u)^2 for uniform u: P(F <= rho) = 1 - sqrt(1 - rho).
    np.testing.assert_allclose(result.observed, 1 - np.sqrt(1 - result.levels), atol=0.03)


def test_slope_one_and_intercept_zero_do_not_prove_calibration():
    # The paper's warning: a curve that bends symmetrically around the diagonal has the best-fit line y = x.
    levels = np.arange(1, 10) / 10
    bent = levels + 0.05 * np.sin(6 * np.pi * levels)
    bent -= np.polyval(np.polyfit(levels, bent - levels, 1), levels)
    u = np.interp((np.arange(200_000) + 0.5) / 200_000, [0, *bent, 1], [0, *levels, 1])
    result = quantile_slope(u, event=np.ones(200_000))
    assert (result.slope, result.intercept) == pytest.approx((1, 0), abs=1e-3)
    assert np.abs(result.observed - levels).max() > 0.03


def test_levels_that_nobody_reached_are_left_out():
    result = quantile_slope([0.1, 0.2, 0.55], event=[1, 1, 0])
    np.testing.assert_array_equal(np.isnan(result.observed), result.levels > 0.55)
    slope, _ = np.polyfit(result.levels[:5], result.observed[:5], 1)
    assert result.slope == pytest.approx(slope, abs=1e-12)


def test_too_few_levels_give_nan():
    result = quantile_slope([0.05], event=[0])
    assert np.isnan([result.slope, result.intercept, result.slope_through_origin]).all()


def test_levels_must_increase():
    with pytest.raises(
        ValueError, match=r"levels: expected strictly increasing probabilities, got 0.2 after 0.3 at row 1"
    ):
        quantile_slope([0.5], event=[1], levels=[0.3, 0.2])
