"""Calibration curve, risk distribution, P-P curve, follow-up and mean likelihood against outside references."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from scipy import stats

from tests.metrics.simulate import survival_data
from xcal.metrics import (
    calibration_curve,
    follow_up,
    integrated_calibration_index,
    kaplan_meier,
    mean_nll,
    pp_curve,
    risk_distribution,
)


def test_smooth_curve_is_that_of_the_calibration_index_and_the_points_are_lifelines():
    data = survival_data(400, rng=np.random.default_rng(0))
    p = data.probability(0.5, 1.3)
    curve = calibration_curve(p, at=0.5, time=data.time, event=data.event, n_risk_groups=4)
    index = integrated_calibration_index(p, at=0.5, time=data.time, event=data.event)
    np.testing.assert_allclose(curve.observed, np.interp(curve.predicted, index.predicted, index.observed), rtol=1e-3)
    assert (curve.predicted[0], curve.predicted[-1]) == pytest.approx(tuple(np.quantile(p, [0.01, 0.99])))
    order = np.argsort(p)
    for k, rows in enumerate(np.split(order, 4)):
        fitted = KaplanMeierFitter().fit(data.time[rows], data.event[rows])
        low, high = fitted.confidence_interval_.loc[:0.5].iloc[-1]
        assert curve.point_predicted[k] == pytest.approx(p[rows].mean(), rel=1e-12)
        expected = (1 - fitted.predict(0.5), 1 - high, 1 - low)
        ours = (curve.point_observed[k], curve.point_lower[k], curve.point_upper[k])
        assert ours == pytest.approx(expected, rel=1e-9)
    assert curve.risk_counts.sum() == 400
    error = np.interp(curve.predicted, index.predicted, index.error)
    np.testing.assert_allclose(curve.upper - curve.observed, 1.959964 * error, rtol=1e-6)


def test_the_band_narrows_with_the_rows():
    widths = []
    for n in (100, 1600):
        data = survival_data(n, rng=np.random.default_rng(1))
        curve = calibration_curve(data.probability(0.5), at=0.5, time=data.time, event=data.event)
        widths.append(np.median(curve.upper - curve.lower))
    assert 2 < widths[0] / widths[1] < 8  # sixteen times the rows: a quarter of the width, up to chance


def test_interval_of_a_curve_is_not_known_where_it_is_flat_at_one_or_zero():
    low, high = kaplan_meier(time=[1, 2], event=[1, 1]).interval(np.array([0.5, 1.0, 2.0]), 0.95)
    np.testing.assert_array_equal(np.isnan(low), [True, False, True])
    np.testing.assert_array_equal(np.isnan(high), [True, False, True])


def test_risks_are_split_by_what_is_known():
    data = survival_data(500, rng=np.random.default_rng(2))
    p = data.probability(0.5)
    result = risk_distribution(p, at=0.5, time=data.time, event=data.event, n_bins=10)
    case, lost = data.event & (data.time <= 0.5), ~data.event & (data.time < 0.5)
    assert (result.n_with_event, result.n_censored) == (case.sum(), lost.sum())
    assert result.n_without_event == 500 - case.sum() - lost.sum()
    for shares, rows in ((result.with_event, case), (result.censored, lost), (result.without_event, ~case & ~lost)):
        np.testing.assert_allclose(shares, np.histogram(p[rows], np.linspace(0, 1, 11))[0] / rows.sum(), rtol=1e-12)


def test_uncensored_band_is_kolmogorovs():
    u = np.random.default_rng(3).uniform(size=200)
    curve = pp_curve(u, event=np.ones(200))
    np.testing.assert_allclose(curve.observed, [np.mean(u <= x) for x in curve.predicted], atol=1e-12)
    width = stats.kstwobign.ppf(0.95) / np.sqrt(200)
    np.testing.assert_allclose(curve.upper, np.minimum(curve.observed + width, 1), rtol=1e-9)
    np.testing.assert_allclose(curve.lower, np.maximum(curve.observed - width, 0), rtol=1e-9, atol=1e-12)
    assert np.count_nonzero((curve.lower > 0) & (curve.upper < 1)) > 50  # of 101 points, most are not cut off


def test_censored_band_is_hall_and_wellners():
    rng = np.random.default_rng(6)
    happens, censors = rng.uniform(size=150), rng.uniform(0.1, 1.4, size=150)
    cdf, event = np.minimum(happens, censors), happens <= censors
    curve = pp_curve(cdf, event=event)
    fitted = KaplanMeierFitter().fit(cdf, event)
    survival = fitted.predict(curve.predicted).to_numpy()
    # Greenwood's sum, from the numbers of events and of rows at risk that lifelines counts.
    counts = fitted.event_table.query("observed > 0")
    terms = counts["observed"] / (counts["at_risk"] * (counts["at_risk"] - counts["observed"]))
    variance = np.array([terms[terms.index <= u].sum() for u in curve.predicted])
    width = stats.kstwobign.ppf(0.95) / np.sqrt(150) * survival * (1 + 150 * variance)
    kept = np.isfinite(curve.observed) & (survival > 0)
    np.testing.assert_allclose(curve.upper[kept], np.minimum(1 - survival + width, 1)[kept], rtol=1e-9)
    np.testing.assert_allclose(curve.lower[kept], np.maximum(1 - survival - width, 0)[kept], rtol=1e-9, atol=1e-12)
    assert np.count_nonzero((curve.lower > 0) & (curve.upper < 1)) > 50


def test_the_band_holds_the_diagonal_of_a_perfect_model_as_often_as_it_says():
    rng = np.random.default_rng(4)
    held = []
    for _ in range(300):
        happens, censors = rng.uniform(size=150), rng.uniform(0.1, 1.4, size=150)
        curve = pp_curve(np.minimum(happens, censors), event=happens <= censors)
        seen = np.isfinite(curve.observed)
        held.append(((curve.lower <= curve.predicted) & (curve.predicted <= curve.upper))[seen].all())
    # 0.95 or more; four standard errors of 300 draws are 0.05.
    assert np.mean(held) > 0.90


def test_beyond_the_largest_f_the_curve_is_not_known():
    curve = pp_curve([0.1, 0.3, 0.5], event=[1, 1, 0])
    np.testing.assert_array_equal(np.isnan(curve.observed), curve.predicted > 0.5)


def test_follow_up_is_lifelines_with_the_events_turned_round():
    data = survival_data(300, rng=np.random.default_rng(5))
    result = follow_up(time=data.time, event=data.event)
    fitted = KaplanMeierFitter().fit(data.time, ~data.event)
    assert result.median == fitted.median_survival_time_
    curve = fitted.survival_function_["KM_estimate"]
    assert result.lower_quartile == curve.index[curve <= 0.75][0]
    assert result.upper_quartile == curve.index[curve <= 0.25][0]
    assert np.isnan(follow_up(time=[1, 2, 3], event=[1, 1, 1]).median)


def test_mean_likelihood_is_scipys():
    rng = np.random.default_rng(6)
    t = rng.exponential(size=50)
    result = mean_nll(-stats.expon.logpdf(t))
    assert result.value == pytest.approx(t.mean(), rel=1e-12)
    assert result.standard_error == pytest.approx(stats.sem(t), rel=1e-12)
    assert mean_nll([1.0, np.inf]).value == np.inf
    with pytest.raises(ValueError, match=r"^nll: expected numbers, .* got nan at row 1$"):
        mean_nll([1.0, np.nan])
