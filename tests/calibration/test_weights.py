"""D-calibration of rows with sampling weights: values of repeated rows, design-based floor and test."""

import numpy as np
import pytest

from tests.calibration.test_clusters import arguments, shares
from xcal import DCalibration, conditional_calibration, d_calibration
from xcal._checks import effective_units
from xcal.calibration.significance import chi_squared_mixture

METHODS = ("uniform", "km", "ipcw", "own G")
EDGES = np.arange(11) / 10


def rows(n, seed, *, too_fast=1.0):
    """F and events of a model, a quarter of the rows censored, the last row an event: nothing is left over."""
    rng = np.random.default_rng(seed)
    happens, censors = rng.random(n), 4 * rng.random(n)
    u, event = np.minimum(happens, censors), happens <= censors
    event[np.argmax(u)] = True
    return 1 - (1 - u) ** too_fast, event


def case_cohort(n, seed, *, rate=0.1, share=0.1, too_fast=1.0):
    """Sample all events of a cohort, and this share of the others at random with the inverse of it as their weight."""
    rng = np.random.default_rng(seed)
    hazard = rate * np.exp(0.7 * rng.normal(size=n))
    happens, censors = rng.exponential(1 / hazard), rng.uniform(0.5, 1.0, n)
    time, event = np.minimum(happens, censors), happens <= censors
    kept = event | (rng.random(n) < share)
    weight = np.where(event, 1.0, 1 / share)
    return -np.expm1(-too_fast * hazard * time)[kept], event[kept], weight[kept]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("weight", [1, 1.0, 0.3])
def test_equal_weights_change_nothing(method, weight):
    u, event = rows(300, 0)
    given = arguments(method, u, event)
    plain, same = d_calibration(u, event, **given), d_calibration(u, event, weights=np.full(300, weight), **given)
    for name in ("value", "floor", "p_value", "statistic", "df"):
        assert getattr(plain, name) == getattr(same, name)
    np.testing.assert_array_equal(plain.histogram, same.histogram)
    assert same.n_effective == 300
    assert same.weight == pytest.approx(300 * weight)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ties", [False, True])
def test_values_are_those_of_repeated_rows(method, ties):
    u, event = rows(400, 1)
    if ties:
        u = np.ceil(u * 40) / 41
    weights = np.random.default_rng(2).integers(1, 5, 400)
    weighted = d_calibration(u, event, weights=weights, **arguments(method, u, event))
    again = np.repeat(np.arange(400), weights)
    repeated = d_calibration(u[again], event[again], **arguments(method, u[again], event[again]))
    np.testing.assert_allclose(weighted.histogram, repeated.histogram, rtol=1e-10)
    # A row of weight 3 is one observation and not three.
    assert weighted.floor > 1.5 * repeated.floor
    assert weighted.n_effective == pytest.approx(weights.sum() ** 2 / np.square(weights).sum())


@pytest.mark.parametrize("method", METHODS)
def test_only_ratios_of_weights_matter(method):
    u, event = rows(200, 3)
    weights, given = np.random.default_rng(4).uniform(0.1, 2, 200), arguments(method, u, event)
    one, other = (d_calibration(u, event, weights=factor * weights, **given) for factor in (1.0, 1e90))
    assert one.value == pytest.approx(other.value, rel=1e-9)
    assert one.floor == pytest.approx(other.floor, rel=1e-9)
    assert one.p_value == pytest.approx(other.p_value, rel=1e-9)


def test_floor_of_uniform_is_the_sum_of_squares_of_rows():
    u, event = rows(150, 5)
    weights = np.random.default_rng(6).uniform(0.1, 3, 150)
    terms = weights[:, None] * (shares(u, event, EDGES) - 0.1) / weights.sum()
    result = d_calibration(u, event, weights=weights)
    np.testing.assert_allclose(result.histogram, terms.sum(axis=0) + 0.1, rtol=1e-9)
    assert result.floor == pytest.approx(float(np.square(terms).sum()), rel=1e-9)


@pytest.mark.parametrize("method", ["km", "ipcw"])
def test_floor_of_redistribution_is_the_infinitesimal_jackknife(method):
    """Move one weight a little: what the masses change by, per weight, is the influence of the row."""
    rng = np.random.default_rng(7)
    u, event = rows(500, 7)
    time = rng.permutation(u) if method == "ipcw" else None  # another order than that of F
    weights = rng.uniform(0.5, 2, 500)

    def masses(w):
        return d_calibration(u, event, weights=w, method=method, time=time, p_value=None).histogram

    own, squares = masses(weights), 0.0
    for i in range(500):
        moved = weights.copy()
        moved[i] *= 1.001
        influence = (masses(moved) - own) / 0.001 + (own - 0.1) * weights[i] / weights.sum()
        squares += np.square(influence).sum()
    floor = d_calibration(u, event, weights=weights, method=method, time=time, p_value=None).floor
    assert floor == pytest.approx(squares, rel=0.01)


@pytest.mark.parametrize("method", ["uniform", "km"])
def test_floor_is_what_a_perfect_model_scores_on_average(method):
    drawn = [case_cohort(3000, seed, rate=0.5, share=0.25) for seed in range(400)]
    found = [d_calibration(u, e, weights=w, method=method, p_value=None) for u, e, w in drawn]
    value, floor = np.array([(one.value, one.floor) for one in found]).T
    error = 4 * (value - floor).std() / np.sqrt(value.size)
    assert abs(value.mean() - floor.mean()) < error + (0.0 if method == "uniform" else 0.1 * floor.mean())
    # Without the weights a perfect model scores many times that: sampling all events fills the first bins.
    plain = np.mean([d_calibration(u, e, method=method, p_value=None).value for u, e, _ in drawn[:50]])
    assert plain > 5 * floor.mean()


@pytest.mark.parametrize(
    ("n", "rate", "share", "n_bins"),
    [(20_000, 0.03, 0.1, 20), (4000, 0.1, 0.1, 10), (2000, 0.5, 0.3, 10)],
)
@pytest.mark.ci
def test_the_test_holds_its_size_in_case_cohort_samples(n, rate, share, n_bins):
    drawn = (case_cohort(n, seed, rate=rate, share=share) for seed in range(1000))
    found = np.array([d_calibration(u, e, weights=w, n_bins=n_bins).p_value for u, e, w in drawn])
    assert 0.03 <= np.mean(found < 0.05) <= 0.07


def test_the_test_holds_its_size_with_weights_that_have_nothing_to_do_with_the_rows():
    rejected = []
    for seed in range(1000):
        u, event = rows(800, seed)
        weights = np.exp(0.8 * np.random.default_rng(10_000 + seed).normal(size=800))
        rejected.append(d_calibration(u, event, weights=weights).p_value < 0.05)
    # Heavy weights make it cautious, never bold.
    assert 0.02 <= np.mean(rejected) <= 0.07


def test_a_wrong_model_is_found():
    drawn = (case_cohort(4000, seed, too_fast=1.5) for seed in range(50))
    found = [d_calibration(u, event, weights=w).p_value for u, event, w in drawn]
    assert np.mean(np.array(found) < 0.05) > 0.9


@pytest.mark.parametrize("method", METHODS)
def test_clusters_of_one_row_have_the_weighted_floor_of_rows(method):
    u, event = rows(200, 8)
    weights, given = np.random.default_rng(9).uniform(0.2, 2, 200), arguments(method, u, event)
    alone = d_calibration(u, event, weights=weights, p_value=None, **given)
    result = d_calibration(u, event, weights=weights, clusters=np.arange(200), p_value=None, **given)
    assert result.floor == pytest.approx(alone.floor, rel=1e-9)
    assert result.value == alone.value


def test_the_test_of_clusters_holds_its_size_with_weights():
    rejected = []
    for seed in range(400):
        u, event, weights = case_cohort(2000, seed, rate=0.5, share=0.3)
        clusters = np.random.default_rng(seed).integers(0, 80, u.size)
        given = {"clusters": clusters, "weights": weights, "n_simulations": 199}
        rejected.append(d_calibration(u, event, **given).p_value <= 0.05)
    assert 0.02 <= np.mean(rejected) <= 0.08


def test_groups_have_their_own_weights():
    u, event, weights = case_cohort(3000, 10)
    labels = np.random.default_rng(11).choice(["a", "b"], u.size)
    found = d_calibration(u, event, weights=weights, groups=labels)
    for label, own in found.groups.items():
        alone = d_calibration(u[labels == label], event[labels == label], weights=weights[labels == label])
        assert own.value == pytest.approx(alone.value, rel=1e-12)
        assert own.p_value == pytest.approx(alone.p_value, rel=1e-9)
    weight = np.array([weights[labels == label].sum() for label in found.groups])
    expected = np.average([own.value for own in found.groups.values()], weights=weight)
    assert found.value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p_value", ["simulated", "pearson"])
def test_tests_without_meaning_are_refused(p_value):
    u, event, weights = case_cohort(500, 12)
    with pytest.raises(ValueError, match="p_value: expected 'akritas' or None with weights"):
        d_calibration(u, event, weights=weights, p_value=p_value)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_bad_weights_are_refused_with_the_row(bad):
    u, event = rows(20, 13)
    weights = np.ones(20)
    weights[7] = bad
    with pytest.raises(ValueError, match=r"weights: expected finite weights above zero.*at row 7"):
        d_calibration(u, event, weights=weights)
    with pytest.raises(ValueError, match=r"weights: expected finite weights above zero.*at row 7"):
        DCalibration().update(u, event, weights=weights)
    weights[7] = 1e-13
    with pytest.raises(ValueError, match=r"within a factor of 1e\+12 of each other, got 1e-13 at row 7"):
        d_calibration(u, event, weights=weights)
    with pytest.raises(ValueError, match="weights: expected 20 rows"):
        d_calibration(u, event, weights=weights[:19])


@pytest.mark.filterwarnings("ignore:the events, weighted")
@pytest.mark.parametrize("method", ["uniform", "ipcw"])
@pytest.mark.parametrize("equal", [False, True])
def test_chunks_add_up(method, equal):
    u, event, weights = case_cohort(4000, 14, rate=0.5)
    g = {"censoring_survival": np.full(u.size, 0.9)} if method == "ipcw" else {}
    weights = np.full(u.size, 2.5) if equal else weights
    whole = d_calibration(u, event, weights=weights, method=method, **g)
    meters = [DCalibration(method=method) for _ in range(2)]
    for k, part in enumerate(np.array_split(np.random.default_rng(15).permutation(u.size), 7)):
        own = {name: values[part] for name, values in g.items()}
        meters[k % 2].update(u[part], event[part], weights=weights[part], **own)
    merged = DCalibration(method=method).merge(meters[0]).merge(meters[1])
    loaded = DCalibration(method=method).load_state_dict(merged.state_dict())
    for result in (merged.compute(), loaded.compute()):
        np.testing.assert_allclose(result.histogram, whole.histogram, rtol=1e-9)
        assert result.floor == pytest.approx(whole.floor, rel=1e-9)
        assert result.p_value == pytest.approx(whole.p_value, rel=1e-6)
        assert result.n_effective == pytest.approx(whole.n_effective)
        assert result.weight == pytest.approx(whole.weight)
        assert (result.n, result.n_censored) == (whole.n, whole.n_censored)


def test_an_accumulator_refuses_what_it_cannot_add_up():
    u, event, weights = case_cohort(500, 16)
    with pytest.raises(ValueError, match="weights: expected None with method='km'"):
        DCalibration(method="km").update(u, event, weights=weights)
    with pytest.raises(ValueError, match="weights: expected weights in every chunk"):
        DCalibration().update(u, event, weights=weights).update(u, event)
    with pytest.raises(ValueError, match="weights: expected weights in every chunk"):
        DCalibration().update(u, event).merge(DCalibration().update(u, event, weights=weights))


def test_conditional_calibration_is_the_weighted_mean_of_features_times_residuals():
    u, event, weights = case_cohort(400, 18, rate=0.5)
    h = np.random.default_rng(19).normal(size=(u.size, 3))
    found = conditional_calibration(u, event, h, features=h, n_bins=10, weights=weights, n_draws=0)
    terms = weights[:, None, None] * h[:, :, None] * (shares(u, event, EDGES) - 0.1)[:, None, :]
    pairs = weights.sum() ** 2 - np.square(weights).sum()
    expected = (np.square(terms.sum(axis=0)).sum() - np.square(terms).sum()) / pairs
    assert found.value == pytest.approx(expected, rel=1e-9)
    assert found.where is None
    plain, same = (conditional_calibration(u, event, h, n_draws=19, weights=w) for w in (None, np.full(u.size, 2)))
    assert (plain.value, plain.p_value) == (same.value, same.p_value)


@pytest.mark.ci
def test_the_test_given_covariates_holds_its_size_in_case_cohort_samples():
    weighted, plain = [], []
    for seed in range(100):
        u, event, weights = case_cohort(2000, seed, rate=0.3)
        x = np.random.default_rng(seed).normal(size=(u.size, 2))
        given = {"n_bins": 10, "n_features": 16, "n_draws": 99, "where": False}
        weighted.append(conditional_calibration(u, event, x, weights=weights, **given).p_value <= 0.05)
        plain.append(conditional_calibration(u, event, x, **given).p_value <= 0.05)
    assert np.mean(weighted) <= 0.11
    assert np.mean(plain) > 0.9


def test_units_of_weights():
    weights = np.array([1.0, 2.0, 5.0])
    units = effective_units(weights)
    assert units.sum() == pytest.approx(np.square(units).sum())
    np.testing.assert_allclose(units / units[0], weights)


@pytest.mark.parametrize("eigenvalues", [[1.0, 1.0, 1.0], [3.0, 1.0, 0.2], [5.0, 0.1]])
@pytest.mark.parametrize("p", [0.1, 0.05, 0.01])
def test_tail_of_a_mixture_of_chi_squared_numbers(eigenvalues, p):
    drawn = np.random.default_rng(17).chisquare(1, size=(400_000, len(eigenvalues))) @ np.array(eigenvalues)
    found = chi_squared_mixture(np.array(eigenvalues), float(np.quantile(drawn, 1 - p)))
    assert found == pytest.approx(p, rel=0.06)
