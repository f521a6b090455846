"""Conditional calibration: the formula by brute force, its size and power, and the subgroup it names."""

from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.stats import norm, rankdata

from xcal import conditional_calibration, d_calibration
from xcal.calibration import ConditionalCalibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.conditional import BLOCKS, parts_of
from xcal.calibration.histogram import residuals
from xcal.calibration.membership import conditional_value, feature_sums
from xcal.calibration.subgroups import (
    KernelFeatures,
    as_columns,
    contrasts,
    departure_in_words,
    expected_squares,
    find_subgroup,
    random_features,
)


def censored_uniform(n, rng, censored=0.5):
    """F of a right model: the smaller of a uniform and an independent censoring on the scale of F."""
    u, c = rng.uniform(size=n), rng.uniform(size=n) if censored else np.ones(n)
    return np.minimum(u, c), u <= c


def test_residuals_are_the_exact_shares_less_the_widths():
    edges = np.array([0, 0.25, 0.5, 1.0])
    found = residuals(np.array([0.3, 0.3, 1.0, 0.0]), np.array([True, False, False, False]), edges)
    f = Fraction(3, 10)
    shares = [
        [0, 1, 0],
        [0, (Fraction(1, 2) - f) / (1 - f), Fraction(1, 2) / (1 - f)],
        [0, 0, 1],
        [Fraction(1, 4), Fraction(1, 4), Fraction(1, 2)],
    ]
    expected = np.array([[float(s) for s in row] for row in shares]) - np.diff(edges)
    np.testing.assert_allclose(found, expected, atol=1e-15)


def test_residuals_average_to_d_calibration():
    u, event = censored_uniform(500, np.random.default_rng(0))
    r = residuals(u, event, bin_edges(10))
    assert np.square(r.mean(axis=0)).sum() == pytest.approx(d_calibration(u, event).value, rel=1e-12)


def test_residuals_have_mean_zero_given_the_censoring_point():
    """The tower property, by numerical integration over the event for a fixed censoring point."""
    grid = (np.arange(200_000) + 0.5) / 200_000
    for c in (0.03, 0.5, 0.97):
        event = grid <= c
        r = residuals(np.minimum(grid, c), event, bin_edges(20))
        np.testing.assert_allclose(r.mean(axis=0), 0, atol=1e-5)


def test_value_is_the_sum_over_pairs_of_rows():
    rng = np.random.default_rng(1)
    u, event = censored_uniform(120, rng)
    h = rng.normal(size=(120, 7))
    found = conditional_calibration(u, event, h, features=h, n_draws=0, where=False)
    r = residuals(u, event, bin_edges(20))
    pairs = [(h[i] @ h[k]) * (r[i] @ r[k]) for i in range(120) for k in range(120) if i != k]
    assert found.value == pytest.approx(np.sum(pairs) / (120 * 119), rel=1e-9)
    assert found.noise == pytest.approx(np.sqrt(2 * np.square(pairs).sum()) / (120 * 119), rel=1e-9)
    assert found.p_value is None
    assert found.where is None


def test_a_constant_feature_is_d_calibration_less_its_noise():
    u, event = censored_uniform(400, np.random.default_rng(2))
    found = conditional_calibration(u, event, np.zeros((400, 1)), features=np.ones((400, 1)), n_draws=0, where=False)
    measured = d_calibration(u, event, n_bins=20)
    diagonal = np.square(residuals(u, event, bin_edges(20))).sum() / 400**2
    assert found.floor == pytest.approx(diagonal, rel=1e-12)
    assert found.value == pytest.approx((measured.value - diagonal) * 400 / 399, rel=1e-9)


def test_features_have_length_one_and_their_products_are_the_kernel():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"a": rng.normal(size=300), "b": rng.choice(["x", "y", "z"], size=300)})
    columns = as_columns(frame, 300)
    features = random_features(columns, 20_000, None, rng)
    h = features(columns)
    np.testing.assert_allclose(np.square(h).sum(axis=1), 1, rtol=1e-12)
    rank = frame["a"].rank()
    score = norm.ppf(rank / 301)
    score = score / score.std()
    apart = np.square(score[:50, None] - score[None, :50]) + 2.0 * (
        frame["b"].to_numpy()[:50, None] != frame["b"].to_numpy()[None, :50]
    )
    np.testing.assert_allclose(h[:50] @ h[:50].T, np.exp(-apart / 2 / features.bandwidth**2), atol=0.05)


def test_the_default_bandwidth_is_a_share_of_the_median_distance():
    x = np.random.default_rng(13).normal(size=(2000, 1))
    # Two normal numbers are 0.9539 apart in the median: the root of two times the quartile 0.6745.
    assert KernelFeatures().draw(as_columns(x, 2000)).bandwidth == pytest.approx(0.7 * 0.9539, rel=0.05)


def test_the_parts_of_the_test_are_the_average_and_the_features_less_their_means():
    rng = np.random.default_rng(14)
    h, r = rng.normal(size=(40, 3)) + 1, rng.normal(size=(40, 5))
    sums = np.einsum("nm,nb->nmb", h, r)
    mean = h.mean(axis=0)

    def products(features):
        found = (features @ features.T) * (r @ r.T)
        np.fill_diagonal(found, 0.0)
        return found

    along = np.einsum("m,nmb->nb", mean, sums)
    average, beyond = parts_of(products(h), r, along, float(mean @ mean))
    np.testing.assert_allclose(average, products(np.ones((40, 1))), rtol=1e-9)
    np.testing.assert_allclose(beyond, products(h - mean), rtol=1e-6, atol=1e-9)


def test_the_average_does_not_hide_what_differs_nor_the_other_way_round():
    """Twenty columns, of which five matter together: in K itself the noise of the average hides them."""
    rng = np.random.default_rng(15)
    x = rng.normal(size=(800, 20))
    mixed = 0.5 * x[:, :5].sum(axis=1) / np.sqrt(5)
    ones = np.ones(800)
    found, of_value, on_average = [], [], []
    for _ in range(3):
        # Uniform over all rows, by ranks, with another scale for every row.
        u = rankdata(np.exp(mixed) * rng.standard_normal(800)) / 801
        found.append(conditional_calibration(u, ones, x, n_draws=199, where=False).p_value)
        h = KernelFeatures().of(x)
        of_value.append(conditional_calibration(u, ones, x, features=h, n_draws=199, where=False).p_value)
        too_low = rng.uniform(size=800) ** 1.3
        on_average.append(conditional_calibration(too_low, ones, x, n_draws=199, where=False).p_value)
    assert np.median(found) <= 0.02
    assert np.median(on_average) <= 0.02
    assert np.median(of_value) > 0.05


def test_columns_without_any_difference_leave_the_test_of_the_average():
    rng = np.random.default_rng(16)
    u, x = rng.uniform(size=300) ** 2, np.zeros((300, 2))
    assert conditional_calibration(u, np.ones(300), x, n_draws=99, where=False).p_value == 0.01
    right = conditional_calibration(np.sqrt(u), np.ones(300), x, n_draws=99, where=False)
    assert right.p_value > 0.05


def test_a_column_and_its_logarithm_give_the_same_result():
    rng = np.random.default_rng(4)
    u, event = censored_uniform(300, rng)
    x = rng.lognormal(sigma=2, size=(300, 2))
    one, other = (conditional_calibration(u, event, z, where=False) for z in (x, np.log(x)))
    assert one.value == pytest.approx(other.value, rel=1e-9)
    assert one.p_value == other.p_value


def test_signs_drawn_a_few_at_a_time_give_the_same_p_value(monkeypatch):
    rng = np.random.default_rng(10)
    u, event = censored_uniform(60, rng)
    x = rng.normal(size=(60, 2))
    at_once = conditional_calibration(u, event, x, n_draws=199, where=False)
    monkeypatch.setattr("xcal.calibration.conditional._DRAWN", 7 * 60)
    few = conditional_calibration(u, event, x, n_draws=199, where=False)
    assert few.p_value == at_once.p_value
    assert 0.005 < at_once.p_value < 1  # neither the smallest nor the largest: the draws decide it


def test_chunks_and_merging_give_what_all_rows_at_once_give():
    """Beyond the number of blocks, too: a shard of whole blocks puts every row where all rows at once would."""
    rng = np.random.default_rng(5)
    n = 3 * BLOCKS + 100
    u, event = censored_uniform(n, rng)
    columns = as_columns(rng.normal(size=(n, 3)), n)
    features = random_features(columns, 16, None, rng)

    def meter(*pieces):
        total = ConditionalCalibration(features, bin_edges(20))
        for start, stop in pieces:
            rows = slice(start, stop)
            total.update(u[rows], event[rows], [column.take(rows) for column in columns])
        return total

    whole = meter((0, n)).compute(99, np.random.default_rng(0))
    chunked = meter((0, 7), (7, 1500), (1500, n)).compute(99, np.random.default_rng(0))
    merged = meter((0, 2 * BLOCKS)).merge(meter((2 * BLOCKS, n))).compute(99, np.random.default_rng(0))
    np.testing.assert_allclose(chunked, whole, rtol=1e-9)
    np.testing.assert_allclose(merged, whole, rtol=1e-9)


@pytest.mark.parametrize("n", [300, 3000])
@pytest.mark.ci
def test_a_right_model_is_rejected_at_about_the_level(n):
    """A coarse guard: `python -m studies.conditional` measures the size with 2,000 data sets per cell."""
    rng = np.random.default_rng(6)
    p = []
    for seed in range(100):
        x = rng.normal(size=(n, 5))
        time, censoring = rng.exponential(np.exp(-x[:, 0])), rng.exponential(np.exp(-x[:, 1]))
        event = time <= censoring
        u = 1 - np.exp(-np.minimum(time, censoring) * np.exp(x[:, 0]))
        p.append(conditional_calibration(u, event, x, n_features=32, n_draws=99, where=False, seed=seed).p_value)
    # Binomial: more than 14 or none of 100 at the level .05 happens once in a thousand, or in 170.
    assert 0 < np.count_nonzero(np.array(p) <= 0.05) <= 14
    assert 0.35 < np.mean(p) < 0.65


def test_what_d_calibration_cannot_see_is_found_and_named():
    """Right on average by construction: half of the rows have F too high, half too low, as mirror images."""
    rng = np.random.default_rng(7)
    n = 4000
    frame = pd.DataFrame({"age": rng.uniform(40, 90, size=n), "stage": rng.choice(["I", "II", "III"], size=n)})
    u = rng.uniform(size=n)
    old = frame["age"].to_numpy() > 65
    shifted = np.where(old, np.sqrt(u), 1 - np.sqrt(1 - u))
    average = np.where(rng.uniform(size=n) < 0.5, np.sqrt(u), 1 - np.sqrt(1 - u))
    assert d_calibration(shifted, np.ones(n)).value < 0.01
    found = conditional_calibration(shifted, np.ones(n), frame, n_draws=199)
    assert found.p_value == pytest.approx(1 / 200)
    assert found.where.rule.startswith("age")
    assert found.where.p_value < 1e-6
    later = "later" in found.where.finding
    assert later == (">" in found.where.rule)
    # The same distribution of F, unrelated to the covariates: right on average for everybody.
    assert conditional_calibration(average, np.ones(n), frame, n_draws=199).value < found.value / 4


def test_a_planted_category_is_named_in_words():
    rng = np.random.default_rng(8)
    n = 6000
    frame = pl.DataFrame(
        {"age": rng.normal(size=n), "stage": rng.choice(["I", "II", "III"], size=n, p=[0.5, 0.4, 0.1])}
    )
    hidden = (frame["stage"] == "III").to_numpy()
    time = rng.exponential(np.where(hidden, 1 / 1.8, 1.0))
    censoring = rng.exponential(size=n)
    event = time <= censoring
    found = conditional_calibration(1 - np.exp(-np.minimum(time, censoring)), event, frame, n_draws=0)
    assert found.where.rule.startswith("stage = III")
    assert "earlier" in found.where.description
    assert found.where.p_value < 0.01
    assert "stage = III" in repr(found)


def test_too_narrow_distributions_are_called_over_confident():
    rng = np.random.default_rng(9)
    n = 4000
    x = rng.uniform(size=(n, 2))
    from scipy.stats import norm

    z = rng.normal(size=n)
    u = norm.cdf(np.where(x[:, 0] > 0.5, 2 * z, z))
    found = conditional_calibration(u, np.ones(n), x, n_draws=0)
    assert found.where.rule.startswith("x0 >")
    assert "narrow" in found.where.finding


def test_a_subgroup_by_yes_or_no_says_which():
    rng = np.random.default_rng(11)
    X = pd.DataFrame({"treated": rng.integers(0, 2, 2000), "dose": rng.choice([0.0, 0.5, 1.0], 2000)})
    later = conditional_calibration(rng.uniform(size=2000) ** np.where(X["treated"] == 1, 0.5, 1.0), np.ones(2000), X)
    assert later.where.rule == "treated = 1"
    assert later.where.holds(as_columns(X, 2000)).sum() == X["treated"].sum()
    dose = conditional_calibration(rng.uniform(size=2000) ** np.where(X["dose"] > 0, 0.5, 1.0), np.ones(2000), X)
    assert dose.where.rule.startswith("dose > 0")


def test_a_subgroup_of_one_column_is_described_by_that_column_alone():
    """A second cut, which leaves out a few rows, would describe it better by chance in 6 of these 20 data sets."""
    rules = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = np.column_stack([rng.integers(0, 2, 600), rng.normal(size=600)])
        u = rng.uniform(size=600) ** np.where(x[:, 0] == 1, 0.5, 1.0)
        rules.append(conditional_calibration(u, np.ones(600), x, n_features=2, n_draws=0, seed=seed).where.rule)
    assert sum(" and " in rule for rule in rules) <= 1


@pytest.mark.parametrize(
    ("heights", "words"),
    [
        (np.linspace(0.5, 1.5, 10), "later than predicted"),
        (np.linspace(1.5, 0.5, 10), "earlier than predicted"),
        ([1.6, 1.2, 1.0, 0.7, 0.5, 0.5, 0.7, 1.0, 1.2, 1.6], "too narrow"),
        ([0.4, 0.8, 1.0, 1.3, 1.5, 1.5, 1.3, 1.0, 0.8, 0.4], "too wide"),
        # Censored rows are spread over the bins above them: few early events lift all later bins.
        ([0.5, 0.6, 0.9, 1.1, 1.1, 0.9, 1.2, 1.2, 1.25, 1.25], "later than predicted"),
    ],
)
def test_the_words_of_a_subgroup_are_those_of_its_histogram(heights, words):
    assert words in departure_in_words(np.array(heights) / 10, bin_edges(10))


def test_one_bin_has_no_shape_and_two_have_no_spread():
    assert departure_in_words(np.ones(1), np.array([0.0, 1.0])) == ""
    assert departure_in_words(np.array([0.2, 0.8]), np.array([0.0, 0.5, 1.0])) == "events come later than predicted"


@pytest.mark.ci
def test_the_second_half_keeps_the_p_value_of_the_subgroup_honest():
    rng = np.random.default_rng(10)
    p = []
    for seed in range(200):
        u, event = censored_uniform(400, rng)
        x = rng.normal(size=(400, 10))
        p.append(conditional_calibration(u, event, x, n_features=2, n_draws=0, seed=seed).where.p_value)
    # Of 200 p-values at level .05, more than 21 happen once in a thousand.
    assert np.count_nonzero(np.array(p) <= 0.05) <= 21


def test_deterministic_by_seed():
    rng = np.random.default_rng(11)
    u, event = censored_uniform(300, rng)
    x = rng.normal(size=(300, 2))
    one, again, other = (conditional_calibration(u, event, x, seed=s) for s in (1, 1, 2))
    assert (one.value, one.p_value, one.where) == (again.value, again.p_value, again.where)
    assert one.value != other.value


ONES = np.ones(4)
F = np.array([0.1, 0.4, 0.6, 0.9])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"X": np.zeros((3, 2))}, r"X: expected 4 rows"),
        ({"X": np.zeros((4, 0))}, r"X: expected at least one column"),
        ({"X": np.array([[1.0], [np.nan], [2], [3]])}, r"X: expected finite numbers in column 'x0'.* at row 1"),
        ({"X": pd.DataFrame({"s": ["a", None, "b", "c"]})}, r"X: expected a label in every row of column 's'.*row 1"),
        ({"X": pd.DataFrame({"d": pd.to_datetime(["2020"] * 4)})}, r"X: expected numbers or categories in column 'd'"),
        (
            {"X": pd.DataFrame({"c": [1j, 2j, 3j, 4j]})},
            r"X: expected numbers or categories in column 'c', got type comp",
        ),
        (
            {"X": pd.DataFrame(np.zeros((4, 2)), columns=["a", "a"])},
            r"X: expected columns with different names, got 'a'",
        ),
        ({"X": np.zeros((2, 2, 1))}, r"X: expected one row per prediction"),
        (
            {"cdf": np.full(5001, 0.5), "event": np.ones(5001), "X": pd.DataFrame({"id": np.arange(5001).astype(str)})},
            r"X: expected at most 5,000 categories in column 'id' .*, got 5,001",
        ),
        ({"n_features": 7}, r"n_features: expected an even number"),
        ({"bandwidth": 0.0}, r"bandwidth: expected"),
        ({"n_draws": -1}, r"n_draws: expected"),
        ({"features": np.zeros((3, 2))}, r"features: expected numbers of shape \(4, m\)"),
        ({"features": np.full((4, 1), np.inf)}, r"features: expected finite numbers, got inf at row 0"),
        ({"cdf": np.array([0.5, 2, 0.1, 0.1])}, r"cdf: expected values in"),
    ],
)
def test_bad_input_names_the_argument_and_the_row(change, message):
    given = {"cdf": F, "event": ONES, "X": np.zeros((4, 1))} | change
    with pytest.raises(ValueError, match=message):
        conditional_calibration(**given)


def test_few_rows_give_a_value_and_no_subgroup():
    found = conditional_calibration(F, ONES, np.arange(4.0))
    assert found.where is None
    assert 0 < found.p_value <= 1


def test_the_state_can_be_written_and_read():
    rng = np.random.default_rng(3)
    u, event = censored_uniform(300, rng)
    h = rng.normal(size=(300, 4))
    meter = ConditionalCalibration(lambda columns: columns, bin_edges(10)).update(u, event, h)
    other = ConditionalCalibration(lambda columns: columns, bin_edges(10)).load_state_dict(meter.state_dict())
    # No sum of floats lies between the two.
    assert other.compute(9, np.random.default_rng(0)) == meter.compute(9, np.random.default_rng(0))
    assert (other.n, other.n_censored) == (meter.n, meter.n_censored)
    empty = ConditionalCalibration(lambda columns: columns, bin_edges(10))
    assert other.load_state_dict(empty.state_dict()).n == 0
    with pytest.raises(ValueError, match="state, sums: expected shape"):
        ConditionalCalibration(lambda columns: columns, bin_edges(5)).load_state_dict(meter.state_dict())
    with pytest.raises(ValueError, match="state: expected the entries"):
        meter.load_state_dict({})


def test_a_table_that_is_sorted_by_its_outcomes_gives_the_same_noise():
    """Neighbours of such a table have the same residuals; blocks of rows in its order would be more alike than chance.

    Eight rows for each block. In the order of the table the floor was 0.63 of this.
    """
    u = np.sort(np.random.default_rng(0).uniform(size=8 * BLOCKS))
    ones = np.ones((u.size, 1))
    found = conditional_calibration(u, ones[:, 0], ones, features=ones, n_draws=0, where=False)
    r = residuals(u, np.ones(u.size, dtype=bool), bin_edges(20))
    # Sums of squares of independent block sums average to the sum of squares of the rows.
    assert found.floor == pytest.approx(np.square(r).sum() / u.size**2, rel=0.05)


def test_columns_that_were_read_before_are_taken_as_they_are():
    rng = np.random.default_rng(4)
    u, event = censored_uniform(300, rng)
    frame = pd.DataFrame({"a": rng.normal(size=300), "b": rng.choice(["x", "y"], size=300)})
    one, other = (conditional_calibration(u, event, X) for X in (frame, as_columns(frame, 300)))
    assert (one.value, one.p_value, one.where) == (other.value, other.p_value, other.where)


def test_the_histogram_of_the_subgroup_is_of_rows_that_were_not_searched():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(2000, 2))
    u = rng.uniform(size=2000) ** np.where(x[:, 0] > 0.5, 2.0, 1.0)
    where = conditional_calibration(u, np.ones(2000), x, n_bins=10).where
    assert where.rule.startswith("x0 >")
    assert 0.3 < where.n_tested / where.n < 0.7
    assert where.mass.sum() == pytest.approx(1)
    # F is the square of a uniform number: 0.1 is not exceeded with probability sqrt(0.1).
    assert where.mass[0] == pytest.approx(0.1**0.5, abs=5 * where.mass_error[0])
    assert where.mass_error[0] == pytest.approx(np.sqrt(where.mass[0] * (1 - where.mass[0]) / where.n_tested), rel=1e-9)


@pytest.mark.parametrize("at", [0.0, 0.03, 0.1, 0.4, 0.79, 0.9])
def test_the_expected_variance_of_a_score_is_the_integral_over_the_time_it_is_watched(at):
    edges = np.array([0.0, 0.1, 0.25, 0.5, 0.8, 1.0])
    shapes = np.concatenate([contrasts(edges), np.eye(edges.size - 1)], axis=1)
    for of_bins, found in zip(shapes.T, expected_squares(np.array([at]), edges, shapes)[0], strict=True):
        # Midpoints of cells that lie within one bin each; beyond 0.8 a score does not change.
        v = (np.arange(800_000) + 0.5) / 1_000_000
        score = of_bins[np.searchsorted(edges, v, side="right") - 1]
        left = (np.sum(np.diff(edges) * of_bins) - np.cumsum(score) / 1e6 + score / 2e6) / (1 - v)
        wanted = np.sum((np.square(score - left) / (1 - v))[v < at]) / 1e6
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-12)


def test_a_subgroup_without_events_is_no_finding_where_hardly_any_were_expected():
    """Fifty rows censored at F = 0.01 expect half an event: none is no surprise."""
    rng = np.random.default_rng(7)
    early = np.arange(600) % 6 == 0
    u, event = censored_uniform(600, rng)
    u, event = np.where(early, 0.01, u), event & ~early
    columns = as_columns(np.where(early, 1.0, 0.0), 600)
    found = find_subgroup(columns, u, residuals(u, event, bin_edges(20)), bin_edges(20))
    assert found.p_value > 0.3


def test_bars_of_a_subgroup_without_events_are_not_too_short():
    """All its rows are alike, so that they have no spread of their own."""
    early = np.arange(600) % 6 == 0
    u, event = censored_uniform(600, np.random.default_rng(7))
    u, event = np.where(early, 0.2, u), event & ~early  # of a hundred rows twenty should have had an event
    found = find_subgroup(as_columns(np.where(early, 1.0, 0.0)), u, residuals(u, event, bin_edges(20)), bin_edges(20))
    assert found.rule == "x0 = 1"
    # A row reaches each of the first four bins with probability 1/20.
    np.testing.assert_allclose(found.mass_error[:4], np.sqrt(0.05 / found.n_tested), rtol=0.2)


def test_the_p_value_of_the_subgroup_is_honest_where_nearly_all_rows_are_censored():
    """With the variance that was seen alone 72 of these 200 right models are rejected."""
    rng = np.random.default_rng(8)
    rejected = 0
    for seed in range(200):
        x = rng.normal(size=(300, 3))
        time, end = rng.exponential(np.exp(-x[:, 0])), rng.uniform(0, 0.03, size=300)
        u = -np.expm1(-np.minimum(time, end) * np.exp(x[:, 0]))
        where = conditional_calibration(u, time <= end, x, n_features=2, n_draws=0, seed=seed).where
        rejected += where is not None and where.p_value < 0.05
    assert rejected <= 20  # more happens once in a thousand at the level .05


def test_rows_of_which_nothing_is_known_say_nothing():
    x = np.random.default_rng(9).normal(size=(500, 2))
    found = conditional_calibration(np.zeros(500), np.zeros(500), x)
    assert (found.value, found.p_value, found.where) == (0.0, 1.0, None)


def as_given(columns):
    return columns


@pytest.mark.parametrize("size", [1, 7, 400])
def test_accumulators_of_few_rows_each_give_what_one_gives(size):
    """One row per process is merged as well; in any order, as long as every row has a block of its own."""
    rng = np.random.default_rng(11)
    (u, event), h = censored_uniform(900, rng), rng.normal(size=(900, 4))
    starts = np.arange(0, 900, size)

    def merged(order):
        total = ConditionalCalibration(as_given, bin_edges(10), average_apart=True)
        for start in order:
            rows = slice(start, start + size)
            total.merge(ConditionalCalibration(as_given, bin_edges(10)).update(u[rows], event[rows], h[rows]))
        return total.compute(99, np.random.default_rng(0))

    whole = ConditionalCalibration(as_given, bin_edges(10), average_apart=True).update(u, event, h)
    np.testing.assert_allclose(merged(starts), whole.compute(99, np.random.default_rng(0)), rtol=1e-9)
    # The signs of the test meet other rows in another order.
    np.testing.assert_allclose(merged(rng.permutation(starts))[:3], whole.compute(0, rng)[:3], rtol=1e-9)


def test_a_merge_that_is_refused_changes_nothing():
    rng = np.random.default_rng(12)
    (u, event), h = censored_uniform(50, rng), rng.normal(size=(50, 4))
    meter = ConditionalCalibration(as_given, [0, 0.5, 1])
    with pytest.raises(ValueError, match="other: expected an accumulator with the same features and bins"):
        meter.merge(ConditionalCalibration(as_given, bin_edges(10)).update(u, event, h))
    assert meter.update(u, event, h[:, :2]).n == 50


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.ones((5, 3)), r"features: expected shape \(4, 3\), one row per row of cdf, got shape \(5, 3\)"),
        (np.ones((1, 3)), r"got shape \(1, 3\)"),
        (np.ones((4, 2)), r"got shape \(4, 2\)"),
        (np.ones(4), r"got shape \(4,\)"),
        (np.array([[1.0, 1, 1], [1, np.nan, 1], [1, 1, 1], [1, 1, 1]]), "features: expected finite numbers.*row 1"),
    ],
)
def test_an_accumulator_refuses_features_of_other_rows(features, message):
    meter = ConditionalCalibration(as_given, bin_edges(10)).update([0.5], [True], np.ones((1, 3)))
    with pytest.raises(ValueError, match=message):
        meter.update([0.1, 0.2, 0.3, 0.4], [True] * 4, features)
    assert meter.n == 1


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (pd.Series(pd.Categorical([1, 2, 10, 1])), ("1", "10", "2")),
        (pd.Series([1, 2.5, 3, 1], dtype=object), None),
        (pl.Series([1, 2, 3, 1]).cast(pl.Decimal(10, 2)), None),
        (pd.Series([True, False, True, True], dtype=object), ("False", "True")),
        (pd.Series([1, "two", 3, 1], dtype=object), ("1", "3", "two")),
    ],
)
def test_what_a_category_is_and_what_a_number(values, labels):
    frame = pl.DataFrame({"a": values}) if isinstance(values, pl.Series) else pd.DataFrame({"a": values})
    (column,) = as_columns(frame)
    assert column.labels == labels
    assert labels is not None or list(column.values) == [float(value) for value in values]


def test_a_few_masks_at_a_time_find_the_same_subgroup(monkeypatch):
    rng = np.random.default_rng(14)
    x = pd.DataFrame(rng.normal(size=(600, 3))).assign(place=rng.integers(200, size=600).astype(str))
    u = rng.uniform(size=600) ** np.where(x[1] > 0, 2.0, 1.0)
    at_once = conditional_calibration(u, np.ones(600), x, n_draws=0).where
    monkeypatch.setattr("xcal.calibration.subgroups._NUMBERS", 1000)
    few = conditional_calibration(u, np.ones(600), x, n_draws=0).where
    assert (few.rule, few.n) == (at_once.rule, at_once.n)
    assert few.z == pytest.approx(at_once.z, rel=1e-9)


def test_an_accumulator_counts_rows_by_their_weights():
    rng = np.random.default_rng(15)
    (u, event), h, w = censored_uniform(80, rng), rng.normal(size=(80, 3)), rng.uniform(0, 3, size=80)
    value, _, floor, _ = ConditionalCalibration(as_given, bin_edges(10)).update(u, event, h, w).compute(0, rng)
    r = residuals(u, event, bin_edges(10))
    products = (w[:, None] * w) * (h @ h.T) * (r @ r.T)
    own = np.trace(products)
    assert value == pytest.approx((products.sum() - own) / (w.sum() ** 2 - np.square(w).sum()), rel=1e-9)
    assert floor == pytest.approx(own / w.sum() ** 2, rel=1e-9)
    for weights, message in ((w[:-1], "weights: expected 80 numbers"), (-w, "weights: expected finite numbers of 0")):
        with pytest.raises(ValueError, match=message):
            ConditionalCalibration(as_given, bin_edges(10)).update(u, event, h, weights)
    one = ConditionalCalibration(as_given, bin_edges(10)).update(u, event, h, np.arange(80) == 3)
    with pytest.raises(ValueError, match="at least two rows of positive weight"):
        one.compute(0, rng)


def test_the_value_in_torch_does_not_depend_on_the_unit_of_the_weights():
    rng = np.random.default_rng(16)
    (u, event), h, w = censored_uniform(40, rng), torch.tensor(rng.normal(size=(40, 3))), torch.tensor(rng.random(40))
    given = torch.tensor(np.asarray(u))[None], torch.tensor(np.asarray(event) == 1), h, torch.tensor(bin_edges(10))

    def value(weights):
        pairs = weights.sum() ** 2 - weights.square().sum()
        return conditional_value(*feature_sums(*given, weights), pairs).item()

    # The weight of all pairs is below one, and far below.
    for unit in (1e-2, 1e-6):
        assert value(unit * w) == pytest.approx(value(w), rel=1e-9)
    assert value(w) != 0
    assert value(torch.eye(40, dtype=torch.float64)[3]) == 0  # one row makes no pair
