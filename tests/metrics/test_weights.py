"""Metrics of rows with sampling weights: values of repeated rows, design-based errors."""

import numpy as np
import pytest
from lifelines import KaplanMeierFitter

from xcal import evaluate
from xcal.data.surv import Outcome
from xcal.metrics import (
    calibration_slope,
    concordance_index,
    integrated_calibration_index,
    kaplan_meier,
    mean_nll,
    observed_expected,
)
from xcal.metrics.pseudo_values import jackknife

GRID = np.array([0.2, 0.4, 0.6, 0.8, 1.0])
UNWEIGHTED = {"one_calibration_p", "cox_slope", "cox_intercept", "ici_cox", "e50_cox", "e90_cox", "emax_cox"}


def rows(n, seed, *, ties=False):
    rng = np.random.default_rng(seed)
    rate = np.exp(0.8 * rng.normal(size=n))
    happens, censors = rng.exponential(1 / rate), rng.exponential(1.5, n)
    time = np.minimum(happens, censors)
    return rate, np.ceil(20 * time) / 20 if ties else time, happens <= censors


def case_cohort(n, seed, *, rate=0.1, share=0.1):
    """Sample all events of a cohort, and this share of the others; rates, times, events and weights."""
    rng = np.random.default_rng(seed)
    own = rate * np.exp(0.7 * rng.normal(size=n))
    happens, censors = rng.exponential(1 / own), rng.uniform(0.5, 2.0, n)
    time, event = np.minimum(happens, censors), happens <= censors
    kept = event | (rng.random(n) < share)
    return own[kept], time[kept], event[kept], np.where(event, 1.0, 1 / share)[kept]


@pytest.mark.parametrize("ties", [False, True])
def test_kaplan_meier_is_that_of_lifelines(ties):
    _, time, event = rows(300, 0, ties=ties)
    weights = np.random.default_rng(1).integers(1, 6, 300)
    for of, happened in (("event", event), ("censoring", None)):
        if happened is None and ties:  # lifelines has no rule by which events come before censorings of their time
            continue
        curve = kaplan_meier(time=time, event=event, weights=weights, of=of)
        other = KaplanMeierFitter().fit(time, event if happened is not None else ~event, weights=weights)
        expected = other.survival_function_at_times(curve.times).to_numpy()
        np.testing.assert_allclose(curve.survival, expected, atol=1e-12)


@pytest.mark.parametrize("of", ["event", "censoring"])
@pytest.mark.parametrize("ties", [False, True])
def test_variance_of_a_weighted_curve_is_the_sum_of_squared_influences(of, ties):
    _, time, event = rows(80, 2, ties=ties)
    weights, at = np.random.default_rng(3).uniform(0.2, 3, 80), np.array([0.1, 0.4, 0.9])
    curve = kaplan_meier(time=time, event=event, weights=weights, of=of)
    squares = np.zeros(3)
    for i in range(80):
        curves = []
        for side in (1, -1):
            moved = weights.copy()
            moved[i] *= 1 + side * 1e-4
            curves.append(kaplan_meier(time=time, event=event, weights=moved, of=of).at(at))
        squares += np.square((curves[0] - curves[1]) / 2e-4)
    np.testing.assert_allclose(curve.variance(at), squares, rtol=1e-5)


@pytest.mark.parametrize("seen", [1.0, 0.5])
@pytest.mark.parametrize("ties", [False, True])
def test_pseudo_values_are_the_derivative_of_the_risk_in_the_weights(seen, ties):
    _, time, event = rows(60, 4, ties=ties)
    weights = np.random.default_rng(5).uniform(0.2, 3, 60)

    def risk(w):
        """One minus the product over times, half of the censored rows gone before where they are seen for half."""
        left = 1.0
        for t in np.unique(time[event & (time <= 0.7)]):
            lost = (1 - seen) * w[(time == t) & ~event].sum()
            left *= 1 - w[(time == t) & event].sum() / (w[time >= t].sum() - lost)
        return 1 - left

    values = jackknife(Outcome(time, event), 0.7, seen=seen, weights=weights)
    for i in range(60):
        high, low = weights.copy(), weights.copy()
        high[i] += 1e-4
        low[i] -= 1e-4
        expected = risk(weights) + weights.sum() * (risk(high) - risk(low)) / 2e-4
        assert values[i] == pytest.approx(expected, abs=1e-6)
    assert np.average(values, weights=weights) == pytest.approx(risk(weights))


def test_pseudo_values_where_nobody_is_left():
    values = jackknife(
        Outcome(np.array([1.0, 2.0, 3.0]), np.array([True, True, True])), 3.0, weights=np.array([1.0, 2.0, 3.0])
    )
    np.testing.assert_allclose(values, 1.0, rtol=1e-12)


def measured(rate, time, event, **options):
    curves = np.exp(-rate[:, None] * GRID)
    return evaluate(time=time, event=event, survival=curves, times=GRID, at=0.6, **options)


def test_equal_weights_change_nothing():
    given = rows(200, 6)
    plain, same = measured(*given), measured(*given, weights=np.full(200, 3))
    assert [score.name for score in plain.scores] == [score.name for score in same.scores]
    for one, other in zip(plain.scores, same.scores, strict=True):
        np.testing.assert_array_equal([one.value, one.lower, one.upper], [other.value, other.lower, other.upper])


@pytest.mark.filterwarnings("ignore:the .* events have 18 distinct times")
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("interpolation", ["linear", "previous"])
def test_values_are_those_of_repeated_rows(ties, interpolation):
    rate, time, event = rows(150, 7, ties=ties)
    rate[100:] = rate[:50]  # equal predictions
    weights = np.random.default_rng(8).integers(1, 4, 150)
    again = np.repeat(np.arange(150), weights)
    found = measured(rate, time, event, weights=weights, interpolation=interpolation)
    repeated = measured(rate[again], time[again], event[again], interpolation=interpolation)
    for score in found.scores:
        if score.name.endswith(("_p", "_floor")):
            continue
        # Places and neighbours of the ICI are quantiles of rows; the jackknife of repeated rows is not infinitesimal.
        close = {"ici": 0.1, "e50": 0.2, "e90": 0.2, "emax": 0.2, "slope": 0.01, "intercept": 0.03}
        assert score.value == pytest.approx(repeated[score.name].value, rel=close.get(score.name, 1e-9)), score.name
    assert {name for name, lacks in found.skipped.items() if lacks.endswith("these rows have weights")} == {
        "one_calibration_p",
        "cox_slope",
        "ici_cox",
    }
    assert not UNWEIGHTED & {score.name for score in found.scores}


def test_what_takes_no_weights_is_refused_by_name():
    with pytest.raises(ValueError, match="metrics: expected metrics that take weights, got 'one_calibration_p'"):
        measured(*rows(50, 9), weights=np.arange(1, 51), metrics=["one_calibration_p"])


def test_bad_weights_are_refused_with_the_row():
    weights = np.ones(50)
    weights[3] = -1
    with pytest.raises(ValueError, match=r"weights: expected finite weights above zero.*-1.0 at row 3"):
        measured(*rows(50, 9), weights=weights)
    with pytest.raises(ValueError, match="weights: expected 50 rows, as many as time has, got 49"):
        measured(*rows(50, 9), weights=weights[:-1])


@pytest.mark.parametrize("method", ["harrell", "uno"])
def test_concordance_counts_pairs_by_the_product_of_two_weights(method):
    rate, time, event = rows(60, 10, ties=True)
    rate = np.round(rate, 1)
    weights = np.random.default_rng(11).uniform(0.1, 5, 60)
    g = kaplan_meier(time=time, event=event, weights=weights, of="censoring").before(time)
    agreed = comparable = 0.0
    for i in np.flatnonzero(event):
        for j in range(60):
            if time[j] > time[i] or (time[j] == time[i] and not event[j]):
                pair = weights[i] * weights[j] / (g[i] ** 2 if method == "uno" else 1)
                comparable += pair
                agreed += pair * ((rate[i] > rate[j]) + (rate[i] == rate[j]) / 2)
    found = concordance_index(time=time, event=event, risk=rate, weights=weights, method=method)
    assert found.value == pytest.approx(agreed / comparable, rel=1e-12)


def test_error_of_a_weighted_mean():
    values, weights = np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 2.0])
    found = mean_nll(values, weights=weights)
    assert found.value == pytest.approx(11 / 4)
    assert found.standard_error == pytest.approx(np.sqrt(1.75**2 + 0.75**2 + 2.5**2) / 4)


def test_poisson_interval_is_refused():
    rate, time, event, weights = case_cohort(1000, 12)
    with pytest.raises(ValueError, match="interval: expected 'robust' or 'greenwood' with weights"):
        observed_expected(-np.expm1(-rate), at=1.0, time=time, event=event, weights=weights, interval="poisson")


@pytest.mark.ci
def test_coverage_in_case_cohort_samples():
    """A true model: the intervals of O/E, slope and intercept hold 1, 1 and 0, and O/E without weights is far off."""
    held = np.zeros((600, 4))
    for seed in range(600):
        rate, time, event, weights = case_cohort(6000, seed)
        given = {"at": 1.0, "time": time, "event": event, "weights": weights}
        p = -np.expm1(-rate)
        robust, plain = (observed_expected(p, interval=kind, **given) for kind in ("robust", "greenwood"))
        slope = calibration_slope(p, **given)
        held[seed] = (
            robust.lower < 1 < robust.upper,
            plain.lower < 1 < plain.upper,
            slope.slope_lower < 1 < slope.slope_upper,
            slope.intercept_lower < 0 < slope.intercept_upper,
        )
    coverage = held.mean(axis=0)
    assert 0.92 <= coverage[0] <= 0.98
    # The expected risk is taken as known, and it has the noise of the sampled rows too.
    assert coverage[1] > 0.9
    assert (np.abs(coverage[2:] - 0.95) < 0.035).all()
    rate, time, event, _ = case_cohort(6000, 0)
    assert observed_expected(-np.expm1(-rate), at=1.0, time=time, event=event).lower > 2


@pytest.mark.ci
def test_index_of_a_true_model_is_at_its_floor_in_case_cohort_samples():
    found = []
    for seed in range(150):
        rate, time, event, weights = case_cohort(6000, seed, rate=0.3)
        one = integrated_calibration_index(-np.expm1(-rate), at=1.0, time=time, event=event, weights=weights)
        found.append((one.value, one.floor, one.lower == 0))
    value, floor, reaches_zero = np.array(found).T
    assert value.mean() == pytest.approx(floor.mean(), rel=0.1)
    assert reaches_zero.mean() > 0.93


@pytest.mark.ci
def test_resamples_draw_rows_with_their_weights():
    """Of the Brier score and Harrell's concordance, whose intervals are by resampling."""
    wanted = {"metrics": ["brier", "harrell"]}
    everybody = case_cohort(100_000, 13, rate=0.3, share=1.0)[:3]
    truth = {score.name: score.value for score in measured(*everybody, **wanted).scores}
    held = []
    for seed in range(60):
        *own, weights = case_cohort(1500, seed, rate=0.3, share=0.2)
        generator = np.random.default_rng(seed)
        found = measured(*own, weights=weights, n_bootstrap=60, generator=generator, **wanted)
        held.append([score.lower < truth[score.name] < score.upper for score in found.scores])
    assert (np.mean(held, axis=0) > 0.85).all()


def test_groups_have_their_own_weights():
    rate, time, event, weights = case_cohort(3000, 14, rate=0.3)
    labels = np.where(rate > np.median(rate), "high", "low")
    found = measured(rate, time, event, weights=weights, groups=labels)
    own = labels == "high"
    alone = measured(rate[own], time[own], event[own], weights=weights[own])
    assert found.groups["high"]["oe"].value == pytest.approx(alone["oe"].value, rel=1e-12)
    assert "with weights (effectively" in repr(found)
