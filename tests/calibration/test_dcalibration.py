import dataclasses
import math
import re
from fractions import Fraction
from functools import cache
from itertools import combinations, islice, pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tests.calibration.simulate import survival_data, true_d_calibration
from xcal import d_calibration
from xcal.calibration import significance as measured_rows
from xcal.calibration.bins import bin_edges

METHODS = [("uniform", False), ("km", False), ("ipcw", True)]
method_table = pytest.mark.parametrize(("method", "needs_time"), METHODS)


def measure(u, event, time, method, needs_time, **options):
    return d_calibration(u, event, method=method, time=time if needs_time else None, **options)


def brute_force_uniform(u, event, edges):
    """Haider's masses a row and a bin at a time."""
    mass = np.zeros(len(edges) - 1)
    for x, happened in zip(u, event, strict=True):
        for j, (a, b) in enumerate(pairwise(edges)):
            inside = a <= x < b or (x == 1 and b == 1)
            if happened or x == 1:
                mass[j] += inside
            elif inside:
                mass[j] += (b - x) / (1 - x)
            elif x < a:
                mass[j] += (b - a) / (1 - x)
    return mass / len(u)


# ------------------------------------------------------------ the estimators


@given(st.integers(0, 2**31), st.integers(2, 30), st.sampled_from([np.float32, np.float64]))
@settings(max_examples=40, deadline=None)
def test_uniform_masses_equal_the_definition(seed, n_bins, dtype):
    rng = np.random.default_rng(seed)
    edges = bin_edges(n_bins)
    u = np.concatenate([rng.random(40), edges, rng.random(5) * 1e-7, 1 - rng.random(5) * 1e-7]).astype(dtype)
    event = rng.random(u.size) < 0.5
    result = d_calibration(u, event, n_bins=n_bins)
    own = edges.astype(dtype).astype(np.float64)
    expected = brute_force_uniform(u.astype(np.float64), event, own)
    np.testing.assert_allclose(result.histogram, expected, rtol=0, atol=1e-12 if dtype == np.float64 else 1e-6)
    assert result.value == pytest.approx(
        np.square(expected - np.diff(edges)).sum(), abs=1e-6 if dtype == np.float32 else 1e-12
    )


def test_uneven_edges():
    rng = np.random.default_rng(0)
    u, event = rng.random(300), rng.random(300) < 0.6
    edges = np.array([0, 0.05, 0.3, 0.31, 0.9, 1.0])
    np.testing.assert_allclose(d_calibration(u, event, edges=edges).histogram, brute_force_uniform(u, event, edges))


@pytest.mark.parametrize("n_bins", [3, 7, 10, 20, 49, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_row_on_an_edge_counts_once_in_the_bin_on_its_right(n_bins, dtype):
    edges = bin_edges(n_bins).astype(dtype)
    for j in range(n_bins):
        for value, bin_ in ((edges[j], j), (np.nextafter(edges[j + 1], dtype(0)), j)):
            histogram = d_calibration(np.array([value]), [1], n_bins=n_bins).histogram
            assert histogram[bin_] == 1
            assert histogram.sum() == 1
    assert d_calibration(np.array([1.0], dtype), [1], n_bins=n_bins).histogram[-1] == 1


@given(st.integers(0, 2**31), st.integers(1, 400), st.floats(0.05, 5))
@settings(max_examples=60, deadline=None)
def test_masses_sum_to_one_whatever_the_censoring(seed, n, scale):
    u, event, time = survival_data(n, scale, rng=np.random.default_rng(seed))
    for method, needs_time in METHODS:
        if needs_time and not event.any():
            continue
        histogram = measure(u, event, time, method, needs_time).histogram
        assert histogram.sum() == pytest.approx(1, abs=1e-12)
        assert (histogram >= -1e-15).all()


@pytest.mark.parametrize("n", [1, 2, 10, 49, 51, 1000])
def test_without_censoring_the_three_methods_are_the_histogram(n):
    u, event, time = survival_data(n, rng=np.random.default_rng(n))
    expected = np.histogram(u, bin_edges(10))[0] / n
    for method, needs_time in METHODS:
        result = measure(u, event, time, method, needs_time)
        np.testing.assert_allclose(result.histogram, expected, atol=1e-12)
        assert result.floor == pytest.approx(0.9 / n)


@pytest.mark.parametrize(("scale", "share"), [(1.0, 0.5), (0.25, 0.79)])
def test_only_the_paper_s_estimator_is_fooled_by_censoring(scale, share):
    rng = np.random.default_rng(0)
    u, event, time = survival_data(200_000, scale, too_fast=1.5, rng=rng)
    assert 1 - event.mean() == pytest.approx(share, abs=0.03)
    truth = true_d_calibration(bin_edges(10), 1.5)
    for method, needs_time in METHODS:
        result = measure(u, event, time, method, needs_time, p_value=None)
        if method == "uniform":
            assert result.value < 0.45 * truth
        else:
            # The root of the value is the length of (masses - widths); the floor is the mean squared length of noise.
            assert abs(result.value**0.5 - truth**0.5) < 3 * result.floor**0.5
            assert result.floor < 0.04 * truth


def test_a_study_that_stops_early_does_not_look_miscalibrated():
    """Everybody is censored at the same time, with most events still to come."""
    u, event, time = survival_data(20_000, horizon=0.4, rng=np.random.default_rng(0))
    assert event.mean() < 0.4
    for method, needs_time in METHODS:
        result = measure(u, event, time, method, needs_time)
        assert result.value < 4 * result.floor
        assert result.p_value > 0.01


def test_the_user_s_own_g():
    rng = np.random.default_rng(0)
    u, event, time = survival_data(100_000, 4.0, too_fast=1.5, rng=rng)
    known = d_calibration(u, event, method="ipcw", censoring_survival=np.exp(-time / 4))
    truth = true_d_calibration(bin_edges(10), 1.5)
    assert abs(known.value**0.5 - truth**0.5) < 3 * known.floor**0.5
    weight = event / np.exp(-time / 4)
    expected = np.histogram(u, bin_edges(10), weights=weight)[0] / weight.sum()
    np.testing.assert_allclose(known.histogram, expected, atol=1e-12)


@pytest.mark.parametrize("method", ["ipcw", "uniform", "km"])
def test_float32_values_on_an_edge_fall_alike_by_every_method(method):
    given = {"censoring_survival": np.ones(10)} if method == "ipcw" else {}
    histogram = d_calibration(np.full(10, 0.7, np.float32), np.ones(10), method=method, **given).histogram
    assert histogram[7] == 1


def test_own_g_keeps_the_mass_past_the_end_of_follow_up():
    """Follow-up ends for everybody while most events are still to come; with times the rest is not lost."""
    rng = np.random.default_rng(0)
    rate = rng.uniform(0.5, 2.0, 5000)
    happens, censors = rng.exponential(1 / rate), np.minimum(rng.exponential(3.0, 5000), 0.7)
    time, event = np.minimum(happens, censors), happens <= censors
    u, g = -np.expm1(-rate * time), np.exp(-time / 3)
    with pytest.warns(UserWarning, match=r"stand for \d+% of the rows only: follow-up ended"):
        lost = d_calibration(u, event, method="ipcw", censoring_survival=g)
    kept = d_calibration(u, event, method="ipcw", censoring_survival=g, time=time)
    assert lost.value > 20 * lost.floor
    assert kept.value < 4 * kept.floor
    assert kept.histogram.sum() == pytest.approx(1)


# ------------------------------------------------------------ the floor


@method_table
@pytest.mark.parametrize("scale", [np.inf, 2.0, 0.7, 0.25])
def test_a_correct_model_scores_its_floor_on_average(method, needs_time, scale):
    rng = np.random.default_rng(5)
    results = [measure(*survival_data(300, scale, rng=rng), method, needs_time, p_value=None) for _ in range(600)]
    values, floors = np.array([r.value for r in results]), np.array([r.floor for r in results])
    # Exact for "uniform"; for the other two the floor is a variance to first order in 1 / n.
    slack = 0 if method == "uniform" else 0.08 * floors.mean()
    assert abs(values.mean() - floors.mean()) < 4 * (values - floors).std() / 600**0.5 + slack


@given(st.integers(0, 2**31), st.integers(1, 60), st.lists(st.floats(0.01, 0.99), min_size=1, max_size=5, unique=True))
@settings(max_examples=200, deadline=None)
def test_the_floor_of_uniform_is_never_negative_and_that_of_the_definition(seed, n, inner):
    """Mean squared distance of a row's shares from the widths, over n, a row at a time."""
    rng = np.random.default_rng(seed)
    edges = np.array([0.0, *sorted(inner), 1.0])
    u, event = rng.random(n) * rng.choice([1.0, 0.5, 0.01]), rng.random(n) < rng.choice([0.0, 0.5, 1.0])
    shares = np.array([brute_force_uniform([x], [e], edges) for x, e in zip(u, event, strict=True)])
    expected = np.square(shares - np.diff(edges)).sum(axis=1).mean() / n
    floor = d_calibration(u, event, edges=edges).floor
    assert floor >= 0
    assert floor == pytest.approx(expected, rel=1e-7, abs=1e-14)


@pytest.mark.parametrize("edges", [[0, 0.9, 1], [0, 0.01, 0.05, 1]])
@pytest.mark.parametrize("scale", [np.inf, 0.7])
def test_a_correct_model_scores_the_floor_of_uneven_bins_on_average(edges, scale):
    rng = np.random.default_rng(5)
    results = [d_calibration(*survival_data(100, scale, rng=rng)[:2], edges=edges) for _ in range(1500)]
    values, floors = np.array([r.value for r in results]), np.array([r.floor for r in results])
    assert abs(values.mean() - floors.mean()) < 4 * (values - floors).std() / 1500**0.5


def test_floor_with_a_known_g():
    rng = np.random.default_rng(6)
    results = []
    for _ in range(600):
        u, event, time = survival_data(300, 2.0, rng=rng)
        results.append(d_calibration(u, event, method="ipcw", censoring_survival=np.exp(-time / 2), p_value=None))
    values, floors = np.array([r.value for r in results]), np.array([r.floor for r in results])
    assert abs(values.mean() - floors.mean()) < 4 * values.std() / 600**0.5 + 0.08 * floors.mean()


# ------------------------------------------------------------ the p-values


def test_pearson_is_scipy_s_chi_squared_test():
    rng = np.random.default_rng(0)
    u = rng.random(500) ** 1.1
    result = d_calibration(u, np.ones(500), p_value="pearson")
    expected = stats.chisquare(np.histogram(u, bin_edges(10))[0])
    assert result.statistic == pytest.approx(expected.statistic, rel=1e-9)
    assert result.p_value == pytest.approx(expected.pvalue, rel=1e-9)
    assert result.df == 9


def test_akritas_statistic_by_numerical_integration_of_the_hazard():
    """Expected events of a bin: the hazard 1 / (1 - u) integrated over the rows still at risk."""
    u, event, _ = survival_data(400, 1.0, rng=np.random.default_rng(0))
    edges = bin_edges(4)
    expected, step = [], 1e-5
    for a, b in zip(edges[:-1], np.append(edges[1:-1], 1 - 1e-9), strict=True):
        points = np.arange(a + step / 2, b, step)
        at_risk = u.size - np.searchsorted(np.sort(u), points)
        expected.append((at_risk / (1 - points)).sum() * step)
    observed = np.histogram(u[event], edges)[0]
    statistic = (np.square(observed - np.array(expected)) / expected).sum()
    result = d_calibration(u, event, n_bins=4)
    assert result.statistic == pytest.approx(statistic, rel=1e-3)
    assert result.df == 4
    assert result.p_value == pytest.approx(stats.chi2.sf(result.statistic, 4), rel=1e-9)


def test_akritas_joins_cells_that_expect_too_few_events():
    u, event, _ = survival_data(60, 0.3, rng=np.random.default_rng(0))
    result = d_calibration(u, event, n_bins=20)
    assert 1 <= result.df < 20
    assert 0 <= result.p_value <= 1


def test_a_model_that_expects_nothing_is_refuted_by_one_event():
    assert d_calibration([0.0, 0.0], [0, 1]).p_value == 0
    assert d_calibration([0.0, 0.0], [0, 0]).p_value == 1


def test_a_certain_f_of_one_stays_finite():
    for dtype in (np.float32, np.float64):
        result = d_calibration(np.array([0.1, 0.5, 1.0, 1.0], dtype), [1, 0, 1, 0])
        assert np.isfinite(result.statistic)
        assert np.isfinite(result.value)


@pytest.mark.parametrize("p_value", ["akritas", "simulated"])
@pytest.mark.parametrize("scale", [np.inf, 0.6])
def test_p_values_of_a_correct_model_are_uniform_and_those_of_a_wrong_one_small(p_value, scale):
    rng = np.random.default_rng(1)
    p = []
    for _ in range(120):
        u, event, _ = survival_data(300, scale, rng=rng)
        p.append(d_calibration(u, event, p_value=p_value, n_simulations=99).p_value)
    assert stats.kstest(p, "uniform").pvalue > 1e-3
    u, event, _ = survival_data(3000, scale, too_fast=1.5, rng=rng)
    assert d_calibration(u, event, p_value=p_value, n_simulations=99).p_value <= 0.01


@pytest.mark.parametrize(("method", "rows"), [("uniform", 5_000), ("km", 7_000)])
def test_draws_of_the_null_are_as_large_as_its_statistic_needs(method, rows, monkeypatch):
    """How far redistribution goes depends on n, so its null has to be drawn with n rows."""
    seen = []
    estimate = measured_rows._estimator

    def recording(*args):
        inner = estimate(*args)
        return lambda u, event: seen.append(u.shape) or inner(u, event)

    monkeypatch.setattr(measured_rows, "_estimator", recording)
    u, event, _ = survival_data(7_000, 0.5, rng=np.random.default_rng(0))
    d_calibration(u, event, method=method, p_value="simulated", n_simulations=3)
    assert seen == [(3, rows)]


def test_simulated_p_value_is_seeded():
    u, event, _ = survival_data(200, 1.0, rng=np.random.default_rng(0))
    first, again, other = (
        d_calibration(u, event, method="km", p_value="simulated", n_simulations=50, seed=seed).p_value
        for seed in (1, 1, 2)
    )
    assert first == again
    assert abs(first - other) < 0.4


@cache
def exact_p_value(counts):
    """Probability that a fair multinomial has a sum of squares as large, over all outcomes, in whole numbers."""
    n, n_bins = sum(counts), len(counts)
    squares, as_large = sum(c * c for c in counts), 0
    for cuts in combinations(range(n + n_bins - 1), n_bins - 1):
        outcome = [b - a - 1 for a, b in pairwise((-1, *cuts, n + n_bins - 1))]
        if sum(c * c for c in outcome) >= squares:
            as_large += math.factorial(n) // math.prod(map(math.factorial, outcome))
    return float(Fraction(as_large, n_bins**n))


@pytest.mark.parametrize("counts", [(1, 2, 3), (2, 2, 2), (0, 6, 0), (5, 1, 4, 2, 3), (3, 4, 4, 4, 5), (7, 7, 6)])
@pytest.mark.parametrize("method", ["uniform", "km"])
def test_exact_ties_count_as_ties_in_the_simulated_p_value(counts, method):
    """Draws as uneven as the data are many where rows are few; rounding must not decide which side they fall on."""
    n_bins, n_simulations = len(counts), 999
    found = set()
    for order in set(islice(permutations(counts), 8)):
        u = np.repeat((np.arange(n_bins) + 0.5) / n_bins, order)
        result = d_calibration(
            u, np.ones(u.size), n_bins=n_bins, method=method, p_value="simulated", n_simulations=n_simulations
        )
        found.add(result.p_value)
    assert len(found) == 1
    exact = exact_p_value(counts)
    assert abs(found.pop() - exact) < 4 * (exact * (1 - exact) / n_simulations) ** 0.5 + 1 / n_simulations


def test_pearson_warns_where_most_rows_are_censored():
    u, event, _ = survival_data(200, 0.2, rng=np.random.default_rng(0))
    with pytest.warns(UserWarning, match="% of the rows are censored: Pearson's p-value is far too large"):
        d_calibration(u, event, p_value="pearson")


# ------------------------------------------------------------ the result


def test_the_result_is_frozen_complete_and_readable():
    u, event, _ = survival_data(200, 1.0, rng=np.random.default_rng(0))
    result = d_calibration(u, event)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.value = 0
    assert (result.n, result.n_censored, result.method, result.test) == (200, int((~event).sum()), "uniform", "akritas")
    text = repr(result)
    for part in ("D-calibration", "perfect model", "200 rows", "censored", "p = "):
        assert part in text
    assert d_calibration(u, event, p_value=None).p_value is None


def test_groups_give_one_result_each_and_the_whole():
    rng = np.random.default_rng(0)
    u, event, time = survival_data(900, 1.0, rng=rng)
    labels = np.array(["a", "b", "c"])[rng.integers(0, 3, 900)]
    grouped = d_calibration(u, event, groups=labels, method="ipcw", time=time)
    assert list(grouped.groups) == ["a", "b", "c"]
    assert grouped.whole.value == pytest.approx(d_calibration(u, event, method="ipcw", time=time).value, rel=1e-12)
    for label, result in grouped.groups.items():
        own = labels == label
        alone = d_calibration(u[own], event[own], method="ipcw", time=time[own])
        assert result.value == pytest.approx(alone.value, rel=1e-12)
    shares = [r.n / 900 * r.value for r in grouped.groups.values()]
    assert grouped.value == pytest.approx(sum(shares))
    assert "whole" in repr(grouped)


def closed_bonferroni(p):
    """Holm's p-values by the principle behind them: an hypothesis falls if every set of them that holds it does."""
    sets = [s for size in range(1, len(p) + 1) for s in combinations(range(len(p)), size)]
    return [min(1.0, max(len(s) * min(p[k] for k in s) for s in sets if i in s)) for i in range(len(p))]


@pytest.mark.parametrize("seed", range(5))
def test_p_values_of_groups_are_corrected_by_holm_s_method(seed):
    rng = np.random.default_rng(seed)
    u, event, _ = survival_data(900, 1.0, rng=rng)
    u[:100] **= 1.5
    labels = np.where(np.arange(900) < 100, 7, rng.integers(0, 6, 900))
    grouped = d_calibration(u, event, groups=labels)
    expected = closed_bonferroni([r.p_value for r in grouped.groups.values()])
    assert list(grouped.adjusted_p_values) == list(grouped.groups)
    np.testing.assert_allclose(list(grouped.adjusted_p_values.values()), expected, rtol=1e-12)
    # Each group keeps its own p-value.
    assert grouped.groups[7].p_value == d_calibration(u[:100], event[:100]).p_value
    shown = repr(grouped).splitlines()
    assert shown[0].endswith("p (Holm)")
    assert shown[-1] == f"p (Holm): corrected for looking at {len(grouped.groups)} groups"
    assert f"{grouped.adjusted_p_values[7]:.3g}" in shown[-2]


def test_groups_of_few_rows_are_not_printed():
    """Whoever knows the one patient of a ward would read his outcome off its line."""
    u, event, _ = survival_data(200, 1.0, rng=np.random.default_rng(1))
    labels = np.array(["a", "b"] * 100, dtype=object)
    labels[:4], labels[4:9], labels[9] = "four", "five", "one"
    grouped = d_calibration(u, event, groups=labels)
    shown = repr(grouped)
    assert {"four", "one"} <= set(grouped.groups)
    assert [line.split()[0] for line in shown.splitlines()[2:-2]] == ["a", "b", "five"]
    assert shown.splitlines()[-1] == "not shown: 2 groups of fewer than 5 rows (.groups has them)"


def test_a_notebook_shows_values_and_bins():
    u, event, _ = survival_data(200, 1.0, rng=np.random.default_rng(1))
    result = d_calibration(u, event, n_bins=4)
    shown = result._repr_html_()
    assert shown.startswith(f"<p>{repr(result).splitlines()[0]}</p>")
    masses = [float(cell) for cell in re.findall(r"<td>(0\.\d{3})</td><td>0\.250</td>", shown)]
    np.testing.assert_allclose(masses, result.histogram, atol=5e-4)
    assert "<td>0.25 to 0.5</td>" in shown


def test_groups_without_p_values_have_none_to_correct():
    u, event, _ = survival_data(60, rng=np.random.default_rng(0))
    grouped = d_calibration(u, event, groups=[1, 2] * 30, p_value=None)
    assert grouped.adjusted_p_values is None
    assert "corrected" not in repr(grouped)


@pytest.mark.ci
def test_few_perfect_models_have_a_group_that_looks_off():
    """Twenty groups of 50 rows, 400 data sets: without the correction some group is below 5 % in most of them."""
    rng = np.random.default_rng(0)
    plain = corrected = 0
    for _ in range(400):
        u, event, _ = survival_data(1000, 1.0, rng=rng)
        grouped = d_calibration(u, event, groups=np.arange(1000) % 20)
        plain += min(r.p_value for r in grouped.groups.values()) <= 0.05
        corrected += min(grouped.adjusted_p_values.values()) <= 0.05
    assert plain > 200
    # Not 5 %: the chi-squared limit makes p-values near 1/400 up to twice too small at 50 rows.
    assert corrected < 60


def test_labels_of_a_data_frame_column():
    u, event, _ = survival_data(60, rng=np.random.default_rng(0))
    labels = np.array(["a", "b", "a"] * 20, dtype=object)
    assert list(d_calibration(u, event, groups=labels).groups) == ["a", "b"]


def test_the_warning_points_at_the_caller():
    with pytest.warns(UserWarning, match="Pearson") as seen:
        d_calibration([0.1, 0.2, 0.3], [0, 0, 1], p_value="pearson")
    assert seen[0].filename == __file__


def test_numpy_torch_and_lists_give_the_same():
    u, event, _ = survival_data(100, 1.0, rng=np.random.default_rng(0))
    value = d_calibration(u, event).value
    approx = pytest.approx(value, rel=1e-12)
    assert d_calibration(torch.from_numpy(u).requires_grad_(), torch.from_numpy(event)).value == approx
    assert d_calibration(list(u), event.astype(int).tolist()).value == approx
    assert d_calibration(u.astype(np.float32), event.astype(np.float32)).value == pytest.approx(value, rel=1e-3)


def test_memory_mapped_arrays_are_read_in_place(tmp_path):
    u, event, _ = survival_data(50_000, 1.0, rng=np.random.default_rng(0))
    np.save(tmp_path / "u.npy", u)
    mapped = np.load(tmp_path / "u.npy", mmap_mode="r")
    assert d_calibration(mapped, event).value == pytest.approx(d_calibration(u, event).value, rel=1e-12)


def redistributed_in_fractions(u, event, edges):
    """Kaplan-Meier masses of distinct F in rational numbers, by handing each censored row's mass on, row by row."""
    n = len(u)
    mass, result = [Fraction(1, n)] * n, [Fraction(0)] * (len(edges) - 1)
    last = max((i for i in range(n) if event[i]), default=-1)
    stop = next((i for i in range(last + 1) if mass[i] > max(Fraction(1, 50), Fraction(3, 2 * n))), last + 1)
    for i in range(n):
        if i < stop and not event[i]:
            for k in range(i + 1, n):
                mass[k] += mass[i] / (n - 1 - i)
            stop = next((k for k in range(i + 1, stop) if mass[k] > max(Fraction(1, 50), Fraction(3, 2 * n))), stop)
        elif event[i]:
            result[sum(u[i] >= b for b in edges[1:-1])] += mass[i]
        else:
            for j, (a, b) in enumerate(pairwise(edges)):
                result[j] += mass[i] * max(Fraction(0), b - max(a, u[i])) / (1 - u[i])
    return [float(m) for m in result]


@pytest.mark.parametrize("n", range(3, 73, 3))
def test_rounding_does_not_decide_where_redistribution_stops(n):
    """A third of the rows censored first: the others weigh exactly as much as one may, and go on."""
    u = [Fraction(2 * i + 1, 2 * n) for i in range(n)]
    event = [i >= n // 3 and i % 4 != 1 for i in range(n)]
    edges = [Fraction(j, 4) for j in range(5)]
    expected = redistributed_in_fractions(u, event, edges)
    result = d_calibration([float(x) for x in u], event, n_bins=4, method="km")
    np.testing.assert_allclose(result.histogram, expected, rtol=0, atol=1e-12)


def test_value_and_test_that_disagree_say_why():
    calibrated = d_calibration((np.arange(100) + 0.5) / 100, np.ones(100))
    assert calibrated.disagreement is None
    assert "disagree" not in repr(calibrated)
    off = dataclasses.replace(calibrated, value=0.00578, floor=0.00595, p_value=0.0003)
    assert "value and test disagree" in repr(off)
    assert "method='km'" in repr(off)
    assert dataclasses.replace(off, test="simulated").disagreement is None


@pytest.mark.parametrize("edge", [0.4, 0.5])
def test_an_edge_that_does_not_rise_is_named_with_its_row_and_the_one_before(edge):
    with pytest.raises(ValueError, match=rf"^edges: .* edges, above 0\.5, got {edge} at row 2$"):
        bin_edges(edges=[0, 0.5, edge, 1])
