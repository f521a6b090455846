"""Maps of F: laws that all of them obey, and each against something outside."""

import warnings

import numpy as np
import pytest
from scipy import optimize, stats
from sklearn.isotonic import IsotonicRegression

from xcal import d_calibration
from xcal.data.survival import folds_by_event
from xcal.recalibration import (
    AveragedRecalibration,
    BetaRecalibration,
    CiPOTRecalibration,
    ConformalQuantiles,
    GroupedRecalibration,
    IsotonicRecalibration,
    KaplanMeierRecalibration,
    KSPRecalibration,
)
from xcal.recalibration.published import CensoredLikelihood, ks_distance

SMOOTH = [BetaRecalibration, KSPRecalibration]
MAPS = [KaplanMeierRecalibration, IsotonicRecalibration, CiPOTRecalibration, AveragedRecalibration, *SMOOTH]


def simulate(n, seed, *, faster=1.7, censored=True):
    """F of a model whose hazards are `faster` times too high, under exponential censoring."""
    rng = np.random.default_rng(seed)
    happens, leaves = rng.exponential(size=n), rng.exponential(scale=1.0 if censored else np.inf, size=n)
    return -np.expm1(-faster * np.minimum(happens, leaves)), happens <= leaves


ROWS = {
    "censored": simulate(500, 0),
    "no censoring": simulate(500, 1, censored=False),
    "ties": (np.round(simulate(500, 2)[0], 1).clip(0.1, 0.9), simulate(500, 2)[1]),
    "five rows": (np.array([0.1, 0.3, 0.5, 0.7, 0.9]), np.array([1, 0, 1, 0, 0])),
    "one event": (np.array([0.1, 0.3, 0.5]), np.array([0, 1, 0])),
    "all at one F": (np.full(20, 0.4), np.arange(20) % 2),
    "all at one F but for rounding": (0.4 + 1e-16 * np.arange(60), np.arange(60) % 3 > 0),
    "all at 1 but for rounding": (1 - 2.0 ** -np.arange(40, 54), np.ones(14)),
    "ends": (np.array([0.0, 0.0, 0.2, 0.6, 1.0, 1.0]), np.array([1, 0, 1, 1, 1, 0])),
    "only ends": (np.array([0.0, 1.0, 1.0]), np.array([1, 1, 0])),
    "censored late": (np.r_[simulate(300, 3)[0] / 3, np.full(300, 0.5)], np.r_[simulate(300, 3)[1], np.zeros(300)]),
}


def u_is_one(rows):
    return bool((np.asarray(rows[0]) > 1 - 1e-9).all())


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
@pytest.mark.parametrize("kind", MAPS)
def test_every_map_increases_from_0_to_1_and_has_an_inverse(kind, rows):
    own = kind.fit(*rows)
    u = np.linspace(0, 1, 1001)
    g = own.cdf(u)
    assert g[0] == 0
    assert g[-1] == 1
    assert (np.diff(g) > 0).all() or (
        kind in (*SMOOTH, AveragedRecalibration) and (np.diff(g) >= 0).all()
    )  # beyond float64
    inside = (g > 1e-9) & (g < 1 - 1e-9)
    np.testing.assert_allclose(own.quantile(g[inside]), u[inside], atol=1e-6)
    np.testing.assert_allclose(own.quantile([0, 1]), [0, 1])
    assert np.isfinite(own.log_density(u[1:-1])).all()
    np.testing.assert_allclose(np.exp(own.log_survival(u)), 1 - g, atol=1e-12)
    # The rounding of F, and of the model's quantiles, does not show.
    p = np.linspace(0.05, 0.95, 19)
    # Smooth maps have no knots: near 1 they may rise without bound, and F = 1 - 1e-13 has three digits left.
    atol = 1e-4 if kind in SMOOTH else 1e-6
    if kind is KSPRecalibration and u_is_one(rows):
        return  # no prior holds the parameters: G rises between 1 - 1e-16 and 1
    for nearby in (-4e-16, 4e-16):
        np.testing.assert_allclose(own.cdf(np.clip(own.quantile(p) + nearby, 0, 1)), p, atol=atol)


@pytest.mark.parametrize("kind", MAPS)
def test_the_density_integrates_to_the_map(kind):
    own = kind.fit(*ROWS["censored"])
    knots = np.concatenate([part.knots for part in (own, *vars(own).values()) if hasattr(part, "knots")] or [[]])
    corners = knots[(knots > 0.01) & (knots < 0.99)]
    edges = np.union1d(np.linspace(0.01, 0.99, 10_001), corners)
    middle = (edges[1:] + edges[:-1]) / 2
    mass = (np.exp(own.log_density(middle)) * np.diff(edges)).sum()
    assert mass == pytest.approx(float(own.cdf(0.99) - own.cdf(0.01)), abs=1e-6)


@pytest.mark.parametrize("kind", MAPS)
def test_the_far_tail_is_exact_with_the_models_own_log_survival(kind):
    own = kind.fit(*ROWS["censored"])
    log_survival = np.array([-20.0, -50.0, -800.0])  # F rounds to 1 from the second on
    found = own.log_survival(-np.expm1(log_survival), log_survival)
    assert np.isfinite(found).all()
    # Near 1, log(1 - G) is a constant plus a power of 1 - F: 1 for straight lines, b for the beta map, a for KSP.
    powers = {BetaRecalibration: "b", KSPRecalibration: "a"}
    power = getattr(own, powers[kind]) if kind in powers else 1.0
    np.testing.assert_allclose(np.diff(found), power * np.diff(log_survival), rtol=1e-6)
    # So is the slope of G, of which the derivative of 1 - G in 1 - F is the power law of one less.
    slope = own.log_density(-np.expm1(log_survival), log_survival)
    np.testing.assert_allclose(slope, found - log_survival + np.log(power), rtol=1e-6)


@pytest.mark.parametrize("kind", MAPS)
def test_rows_without_events_are_refused(kind):
    message = "event: expected at least one event, got none: every row is censored"
    with pytest.raises(ValueError, match=message):
        kind.fit([0.1, 0.2, 0.3], [0, 0, 0])
    with pytest.raises(ValueError, match=message):
        ConformalQuantiles.fit(np.ones((3, 9)), [1, 2, 3], [0, 0, 0])


@pytest.mark.parametrize("kind", MAPS)
@pytest.mark.parametrize("censored", [False, True])
def test_new_rows_are_better_calibrated(kind, censored):
    own = kind.fit(*simulate(5000, 4, censored=censored))
    new, event = simulate(5000, 5, censored=censored)
    before, after = (d_calibration(u, event, p_value=None) for u in (new, own.cdf(new)))
    # CiPOT spreads censored rows as the wrong model does, which leaves a part of the error.
    left = 20 if kind is CiPOTRecalibration and censored else 4
    assert before.value > 2 * left * before.floor
    assert after.value < left * after.floor


def test_a_map_is_made_again_of_its_content_and_of_nothing_else():
    u = np.linspace(0, 1, 50)
    for kind in MAPS:
        own = kind.fit(*ROWS["censored"])
        again = kind.of_content(own.content())
        assert (again.cdf(u) == own.cdf(u)).all()
        assert repr(again) == repr(own)
        with pytest.raises(ValueError, match="map: expected"):
            kind.of_content({"knots": [0, 1]})
    with pytest.raises(ValueError, match="knots: expected numbers that increase from 0 to 1"):
        CiPOTRecalibration(np.array([0, 0.5, 0.4, 1]), np.array([0, 0.4, 0.5, 1]), 5, 5)
    with pytest.raises(ValueError, match="levels: expected numbers that increase from 0 to 1"):  # a flat piece
        CiPOTRecalibration(np.array([0, 0.4, 0.5, 1]), np.array([0, 0.5, 0.5, 1]), 5, 5)


# isotonic


@pytest.mark.parametrize("digits", [1, 2, 8])
def test_without_censoring_isotonic_is_scikit_learns_regression_of_ranks(digits):
    u = np.round(simulate(300, 6, censored=False)[0], digits).clip(0.01, 0.99)
    order = np.sort(u)
    ranks = (np.arange(u.size) + 0.5) / u.size
    theirs = IsotonicRegression().fit(order, ranks)  # averages over tied values
    between = np.linspace(order[0], order[-1], 500)
    np.testing.assert_allclose(IsotonicRecalibration.fit(u, np.ones(u.size)).cdf(between), theirs.predict(between))


# beta


def test_beta_finds_the_parameters_that_made_the_data():
    truth = BetaRecalibration(0.6, 1.5, -0.4, 1, 1)
    rng = np.random.default_rng(7)
    latent, leaves = rng.uniform(size=(2, 40_000))
    seen = np.minimum(latent, leaves)
    found = BetaRecalibration.fit(truth.quantile(seen), latent <= leaves)
    # Standard errors of about 0.01 to 0.02 at this size.
    assert found.a == pytest.approx(truth.a, abs=0.06)
    assert found.b == pytest.approx(truth.b, abs=0.06)
    assert found.c == pytest.approx(truth.c, abs=0.06)


@pytest.mark.parametrize("name", ["censored", "ties", "five rows", "one event"])
def test_beta_maximises_a_likelihood_written_another_way(name):
    u, event = (np.asarray(values) for values in ROWS[name])
    happened = event.astype(bool)

    def loss(parameters):
        a, b = np.exp(parameters[:2])

        def log_odds(v):
            return parameters[2] + a * np.log(v) - b * np.log(1 - v)

        # The slope of G is the logistic density at the log-odds, times their derivative by a difference.
        step = 1e-6
        rate = (log_odds(u[happened] + step) - log_odds(u[happened] - step)) / (2 * step)
        events = stats.logistic.logpdf(log_odds(u[happened])) + np.log(rate)
        prior = stats.norm.logpdf(parameters).sum()
        return -(events.sum() + stats.logistic.logsf(log_odds(u[~happened])).sum() + prior)

    best = optimize.minimize(loss, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-7, "fatol": 1e-9})
    found = BetaRecalibration.fit(u, event)
    np.testing.assert_allclose([np.log(found.a), np.log(found.b), found.c], best.x, atol=1e-3)


@pytest.mark.parametrize("name", ["censored", "ends"])
def test_the_gradient_of_beta(name):
    u, event = ROWS[name]
    rows = CensoredLikelihood.of(np.asarray(u), np.asarray(event).astype(bool))
    at = np.array([0.3, -0.2, 0.5])
    numeric = optimize.approx_fprime(at, lambda p: rows.loss_and_gradient(p)[0], 1e-7)
    np.testing.assert_allclose(rows.loss_and_gradient(at)[1], numeric, rtol=1e-3, atol=1e-3)


def test_the_slope_of_beta_at_the_ends():
    straight = BetaRecalibration(1.0, 1.0, 0.7, 1, 1)  # the odds are multiplied by exp(0.7)
    np.testing.assert_allclose(straight.log_density([0.0, 1.0]), [0.7, -0.7])
    near = np.array([1e-9, 1 - 1e-9])
    np.testing.assert_allclose(straight.log_density(near), [0.7, -0.7], atol=1e-6)
    # A power below 1 rises without bound at its end, one above 1 not at all.
    # An infinite slope and one of 0 are those at the next numbers: F that rounds to 0 or 1 is not quite there.
    ends = BetaRecalibration(0.5, 2.0, 0.7, 1, 1).log_density([0.0, 1.0])
    np.testing.assert_allclose(ends, [0.7 + np.log(0.5) + 0.5 * 1022 * np.log(2), -0.7 + np.log(2) - 53 * np.log(2)])


# conformal


@pytest.mark.parametrize("name", ["censored", "no censoring", "ties", "five rows", "all at one F"])
def test_cipot_is_the_quantile_of_many_repetitions(name):
    u, event = (np.asarray(values) for values in ROWS[name])
    repeats = 4001
    spread = u[:, None] + (1 - u)[:, None] * (np.arange(repeats) + 0.5) / repeats
    scores = np.sort(np.where(event.astype(bool)[:, None], u[:, None], spread).ravel())
    from xcal.recalibration.published import _quantiles

    levels = np.arange(1, 20) / 20
    found = _quantiles(u.astype(float), event.astype(bool), levels)
    brute = scores[np.ceil(levels * scores.size - 1e-6).astype(int) - 1]
    # Where a level is met exactly by whole rows, the next grid point of the spread may come first.
    np.testing.assert_allclose(found, brute, atol=2 / repeats)


@pytest.mark.parametrize("n_levels", [4, 9])
def test_csd_leaves_the_right_share_below_each_quantile(n_levels):
    rng = np.random.default_rng(8)
    time, quantiles = rng.exponential(10, 500), np.sort(rng.exponential(7, (500, n_levels)), axis=1)
    csd = ConformalQuantiles.fit(quantiles, time, np.ones(500))
    moved = quantiles + csd.shifts
    below = (time[:, None] <= moved).mean(axis=0)
    np.testing.assert_allclose(below, np.arange(1, n_levels + 1) / (n_levels + 1), atol=2 / 500)


@pytest.mark.parametrize("n", [1, 2, 5, 10, 11])
def test_csd_of_few_rows_moves_each_level_by_the_score_that_more_than_the_rest_reach(n):
    rng = np.random.default_rng(n)
    time, quantiles = rng.exponential(10, n), np.sort(rng.exponential(7, (n, 9)), axis=1)
    csd = ConformalQuantiles.fit(quantiles, time, np.ones(n))
    for k in range(9):
        scores = np.sort(quantiles[:, k] - time)
        # Whole numbers: tenths of n rows, so that rounding decides nothing.
        expected = next(score for j, score in enumerate(scores) if 10 * (j + 1) > (9 - k) * n)
        assert csd.shifts[k] == pytest.approx(-expected)


def test_csd_under_censoring_finds_the_shift_that_made_the_data():
    rng = np.random.default_rng(9)
    happens, leaves = 5 + rng.gamma(4, 2, 6000), 5 + rng.gamma(4, 3, 6000)
    own = np.tile(stats.gamma(4, scale=2).ppf(np.arange(1, 10) / 10), (6000, 1))  # 5 too early
    csd = ConformalQuantiles.fit(own, np.minimum(happens, leaves), happens <= leaves)
    # The standard error of a decile of 6,000 rows is about 0.05 to 0.2 here.
    np.testing.assert_allclose(csd.shifts, 5, atol=0.6)


def test_quantiles_that_cross_or_fall_below_zero_are_put_in_order():
    csd = ConformalQuantiles(np.array([0.25, 0.5, 0.75]), np.array([-5.0, 2.0, -3.0]), 9, 9)
    # 1 - 5 is before time 0: a straight line leads to the next quantile, 5 at a level of 0.5.
    np.testing.assert_array_equal(csd.quantiles(np.array([[1.0, 4.0, 8.0]])), [[2.5, 5.0, 6.0]])
    np.testing.assert_array_equal(csd.quantiles(np.array([[8.0, 9.0, 9.0]])), [[3.0, 6.0, 11.0]])
    np.testing.assert_array_equal(csd.quantiles(np.array([[5.0, 4.0, 8.0]])), [[2.5, 5.0, 6.0]])  # at time 0
    # A curve that would lie before time 0 as a whole: its last quantile stands where its first one was.
    early = ConformalQuantiles(np.array([0.25, 0.5, 0.75]), np.array([-9.0, -9.0, -9.0]), 9, 9)
    np.testing.assert_array_equal(early.quantiles(np.array([[1.5, 4.0, 8.0]])), [[0.5, 1.0, 1.5]])
    # A model that has everything happen at time 0 stays there.
    np.testing.assert_array_equal(early.quantiles(np.array([[0.0, 0.0, 0.0]])), [[0.0, 0.0, 0.0]])


def test_infinite_quantiles_are_refused():
    with pytest.raises(ValueError, match="quantiles: expected finite times, got inf at row 1"):
        ConformalQuantiles.fit([[1.0], [np.inf]], [1, 2], [1, 1])


# ksp


def slow_ks(u, event, points=20_001):
    """The distance on a grid, each censored row as many events spread evenly from its F to 1."""
    spread = u[:, None] + (1 - u)[:, None] * (np.arange(2000) + 0.5) / 2000
    scores = np.where(event[:, None], u[:, None], spread)
    at = np.linspace(0, 1, points)
    return np.abs(np.searchsorted(np.sort(scores.ravel()), at, side="right") / scores.size - at).max()


@pytest.mark.parametrize("name", ["censored", "no censoring", "ties", "five rows", "ends"])
def test_the_distance_of_ksp_is_that_of_a_sample_spread_out(name):
    u, event = np.asarray(ROWS[name][0]), np.asarray(ROWS[name][1]).astype(bool)
    if event.all():
        assert ks_distance(u, event) == pytest.approx(stats.kstest(u, "uniform").statistic)
    else:
        assert ks_distance(u, event) == pytest.approx(slow_ks(u, event), abs=1e-3)


def test_ksp_comes_nearest_of_the_maps_of_its_form():
    u, event = ROWS["censored"]
    found = KSPRecalibration.fit(u, event)
    least = ks_distance(found.cdf(u), event)
    rng = np.random.default_rng(16)
    for log_a, b, log_c in rng.normal([np.log(found.a), found.b, np.log(found.c)], 0.7, (400, 3)):
        other = KSPRecalibration(float(np.exp(log_a)), float(b), float(np.exp(log_c)), 1, 1)
        assert ks_distance(other.cdf(u), event) >= least - 1e-3


# auto


def test_the_weights_of_auto_are_those_of_the_stated_rule():
    u, event = (values[:120] for values in ROWS["censored"])
    event = event.astype(bool)
    fold, gains = folds_by_event(event, 5, np.random.default_rng(0)), []
    for kind in (BetaRecalibration, CiPOTRecalibration, KaplanMeierRecalibration):
        gain = 0.0
        for k in range(5):
            own = kind.fit(u[fold != k], event[fold != k])
            for v, happened in zip(u[fold == k], event[fold == k], strict=True):
                slope = (own.cdf(v + 1e-7) - own.cdf(v - 1e-7)) / 2e-7
                gain += np.log(slope) if happened else np.log((1 - own.cdf(v)) / (1 - v))
        gains.append(gain)
    weights = np.exp(np.array([1.0, *(0.5 * np.array(gains))]))
    np.testing.assert_allclose(AveragedRecalibration.fit(u, event).weights, weights / weights.sum(), atol=2e-3)


def test_auto_is_the_weighted_mean_of_its_maps():
    u, event = ROWS["censored"]
    own, at = AveragedRecalibration.fit(u, event), np.linspace(0.001, 0.999, 301)
    maps = [kind.fit(u, event) for kind in (BetaRecalibration, CiPOTRecalibration, KaplanMeierRecalibration)]
    levels = own.weights[0] * at + sum(w * one.cdf(at) for w, one in zip(own.weights[1:], maps, strict=True))
    np.testing.assert_allclose(own.cdf(at), levels, atol=1.5e-4)
    slopes = own.weights[0] + sum(w * np.exp(one.log_density(at)) for w, one in zip(own.weights[1:], maps, strict=True))
    assert np.quantile(np.abs(np.exp(own.log_density(at)) / slopes - 1), 0.95) < 0.02


@pytest.mark.parametrize("kind", [BetaRecalibration, CiPOTRecalibration, AveragedRecalibration])
def test_weighted_rows_count_as_often_as_their_weight_says(kind):
    u, event = (np.asarray(values)[:150] for values in ROWS["censored"])
    rng, at = np.random.default_rng(18), np.linspace(0, 1, 101)
    plain = kind.fit(u, event).cdf(at)
    np.testing.assert_allclose(kind.fit(u, event, weights=np.full(150, 7.0)).cdf(at), plain, atol=1e-9)
    # Rows that were kept with a known probability, by their weights: nearer to the whole than without.
    many, happened = simulate(20_000, 19)
    kept = rng.uniform(size=many.size) < 0.05 + 0.5 * (many > 0.7)
    weights = 1 / (0.05 + 0.5 * (many[kept] > 0.7))
    whole = kind.fit(many, happened).cdf(at)
    weighted, naive = (kind.fit(many[kept], happened[kept], weights=w).cdf(at) for w in (weights, None))
    assert np.abs(weighted - whole).max() < 0.3 * np.abs(naive - whole).max()
    with pytest.raises(ValueError, match="weights: expected finite weights above zero"):
        kind.fit(u, event, weights=np.zeros(150))


def test_weights_of_whole_numbers_are_rows_written_several_times():
    u, event = (np.asarray(values)[:80] for values in ROWS["censored"])
    times = np.random.default_rng(20).integers(1, 4, 80)
    often = CiPOTRecalibration.fit(np.repeat(u, times), np.repeat(event, times))
    found, at = CiPOTRecalibration.fit(u, event, weights=times), np.linspace(0, 1, 101)
    np.testing.assert_allclose(found.cdf(at), often.cdf(at), atol=1e-7)


def test_auto_leaves_a_true_model_of_many_rows_alone_and_follows_a_clear_error():
    rng = np.random.default_rng(17)
    right = [AveragedRecalibration.fit(rng.uniform(size=400), np.ones(400)).weights[0] for _ in range(10)]
    assert np.median(right) > 0.6
    two_humps = stats.norm.cdf(np.where(rng.uniform(size=2000) < 0.5, -1.5, 1.5) + rng.normal(0, 0.5, 2000), 0, 1.58)
    assert AveragedRecalibration.fit(two_humps, np.ones(2000)).weights[3] > 0.95
    # Ties have no density: that of all rows at one F is no reason to act.
    assert AveragedRecalibration.fit(*ROWS["all at one F"]).weights[0] > 0.5


# groups


def two_groups(n, seed, powers):
    rng = np.random.default_rng(seed)
    groups = np.array(["a", "b"], dtype=object)[np.arange(n) % 2]
    return rng.uniform(size=n) ** np.where(groups == "a", *powers), np.ones(n), groups


def test_groups_that_differ_are_calibrated_each():
    cdf, event, groups = two_groups(4000, 10, (2.0, 0.7))
    new, happened, labels = two_groups(4000, 11, (2.0, 0.7))
    grouped = GroupedRecalibration.fit(cdf, event, groups)
    for label in "ab":
        rows = labels == label
        one_map = d_calibration(grouped.common.cdf(new)[rows], happened[rows], p_value=None)
        own = d_calibration(grouped.cdf(new, labels)[rows], happened[rows], p_value=None)
        assert one_map.value > 20 * one_map.floor
        assert own.value < 4 * own.floor


def test_groups_that_do_not_differ_keep_the_common_map():
    weights = []
    for seed in range(20):
        grouped = GroupedRecalibration.fit(*two_groups(400, 100 + seed, (1.5, 1.5)))
        weights += [own.weight for own in grouped.groups.values()]
    # Chance alone moves the weight up now and then.
    assert np.mean(weights) < 0.35
    assert np.median(weights) == 0


def test_the_weight_follows_the_stated_rule():
    cdf, event, groups = two_groups(2000, 12, (1.3, 0.9))
    cdf, event, groups = cdf[:1500], event[:1500], np.where(np.arange(1500) < 60, "small", groups[:1500])
    grouped = GroupedRecalibration.fit(cdf, event, groups)
    noise = {label: (1 - own.n_events / 1500) / (6 * own.n_events) for label, own in grouped.groups.items()}
    for label, own in grouped.groups.items():
        assert own.weight == pytest.approx(grouped.between / (grouped.between + noise[label]))
    assert grouped.groups["small"].weight < min(grouped.groups["a"].weight, grouped.groups["b"].weight)


def test_the_noise_of_a_group_is_that_of_cramer_and_von_mises():
    # The mean squared distance of an empirical distribution function from the truth is 1 / (6 m).
    rng = np.random.default_rng(13)
    points = (np.arange(200) + 0.5) / 200
    squared = [
        ((IsotonicRecalibration.fit(rng.uniform(size=50), np.ones(50)).cdf(points) - points) ** 2).mean()
        for _ in range(400)
    ]
    assert np.mean(squared) == pytest.approx(1 / 300, rel=0.15)


def test_an_unseen_group_and_one_without_events_have_the_common_map():
    cdf, event, groups = two_groups(600, 14, (2.0, 0.7))
    groups[:20], event[:20] = "none", 0
    grouped = GroupedRecalibration.fit(cdf, event, groups)
    u = np.linspace(0, 1, 11)
    np.testing.assert_allclose(grouped.cdf(u, ["none"] * 11), grouped.common.cdf(u))
    with pytest.warns(UserWarning, match="groups: 'new' was not among the groups .*'a', 'b', 'none'"):
        np.testing.assert_allclose(grouped.cdf(u, ["new"] * 11), grouped.common.cdf(u))


def test_group_maps_are_inverted_and_have_a_density():
    grouped = GroupedRecalibration.fit(*two_groups(1000, 15, (2.0, 0.7)))
    u = np.linspace(0.001, 0.999, 999)
    labels = np.array(["a", "b"])[np.arange(999) % 2]
    np.testing.assert_allclose(grouped.quantile(grouped.cdf(u, labels), labels), u, atol=1e-9)
    step = 1e-7
    slope = (grouped.cdf(u + step, labels) - grouped.cdf(u - step, labels)) / (2 * step)
    same = np.isclose(np.log(slope), grouped.log_density(u, labels), atol=1e-5)
    assert same.mean() > 0.98  # but for points beside a corner
    np.testing.assert_allclose(np.exp(grouped.log_survival(u, labels)), 1 - grouped.cdf(u, labels), atol=1e-12)
    again = GroupedRecalibration.of_content(grouped.content())
    np.testing.assert_array_equal(again.cdf(u, labels), grouped.cdf(u, labels))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"], "groups: expected one label for each of the 2 rows, got shape"),
        ([1.0, np.nan], "groups: expected numbers or text, got nan at row 1"),
        ([None, "a"], "groups: expected numbers or text, got None at row 0"),
    ],
)
def test_labels_that_are_none(groups, message):
    with pytest.raises(ValueError, match=message):
        GroupedRecalibration.fit([0.1, 0.2], [1, 1], groups)


def test_nothing_warns_on_few_rows():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in MAPS:
            kind.fit([0.3], [1])
