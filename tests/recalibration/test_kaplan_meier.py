"""Recalibration through the Kaplan-Meier curve of F: against lifelines, by its laws, and at the edges."""

import numpy as np
import pytest
import torch
from lifelines import KaplanMeierFitter
from scipy import stats

from xcal import d_calibration
from xcal.recalibration import KaplanMeierRecalibration


def simulate(n, seed, *, faster=1.7, censored=True):
    """F of a model whose hazards are `faster` times too high, under exponential censoring."""
    rng = np.random.default_rng(seed)
    happens, leaves = rng.exponential(size=n), rng.exponential(scale=1.0 if censored else np.inf, size=n)
    time = np.minimum(happens, leaves)
    return -np.expm1(-faster * time), happens <= leaves


@pytest.mark.parametrize("censored", [False, True])
def test_the_map_is_the_middle_of_the_kaplan_meier_steps(censored):
    cdf, event = simulate(400, 0, censored=censored)
    cdf = np.round(cdf, 2).clip(0.01, 0.99)  # ties, also of events with censored rows
    recalibration = KaplanMeierRecalibration.fit(cdf, event, n_pieces=20_000)
    curve = KaplanMeierFitter().fit(cdf, event)
    at = np.unique(cdf[event])
    after = 1 - curve.survival_function_at_times(at).to_numpy()
    before = 1 - curve.survival_function_at_times(at - 1e-9).to_numpy()
    # Knots stand at every 1/20000 of the curve, and between two of them both curves rise.
    np.testing.assert_allclose(recalibration.cdf(at), (before + after) / 2, atol=1 / 20_000)


@pytest.mark.parametrize("n_pieces", [None, 1, 7, 500])
def test_the_density_integrates_to_the_map(n_pieces):
    cdf, event = simulate(3000, 1)
    recalibration = KaplanMeierRecalibration.fit(cdf, event, n_pieces=n_pieces)
    edges = np.linspace(0, 1, 200_001)
    middle = (edges[1:] + edges[:-1]) / 2
    integral = np.append(0, np.cumsum(np.exp(recalibration.log_density(middle)) * np.diff(edges)))
    assert integral[-1] == pytest.approx(1, abs=1e-3)
    np.testing.assert_allclose(integral[::1000], recalibration.cdf(edges[::1000]), atol=1e-3)


def test_likelihood_by_the_chain_rule_is_the_derivative_of_the_recalibrated_cdf():
    cdf, event = simulate(2000, 2)
    recalibration = KaplanMeierRecalibration.fit(cdf, event)
    law = stats.weibull_min(1.3, scale=2.0)
    time, step = np.linspace(0.05, 6, 301), 1e-6
    inside = np.abs(law.cdf(time)[:, None] - recalibration.knots).min(axis=1) > 1e-4  # away from the corners
    by_rule = law.logpdf(time) + recalibration.log_density(law.cdf(time))
    slope = (recalibration.cdf(law.cdf(time + step)) - recalibration.cdf(law.cdf(time - step))) / (2 * step)
    np.testing.assert_allclose(by_rule[inside], np.log(slope)[inside], atol=1e-5)
    assert inside.mean() > 0.9


@pytest.mark.parametrize("censored", [False, True])
def test_new_rows_are_calibrated_and_likelier(censored):
    seen, event = simulate(20_000, 3, censored=censored)
    new, new_event = simulate(20_000, 4, censored=censored)
    recalibration = KaplanMeierRecalibration.fit(seen, event)
    before = d_calibration(new, new_event, n_bins=20, p_value=None)
    after = d_calibration(recalibration.cdf(new), new_event, n_bins=20, p_value=None)
    assert before.value > 30 * before.floor
    # A map that is itself estimated doubles the noise of a perfect model, on average.
    assert after.value < 4 * after.floor
    # The model's own density is that of an exponential with rate 1.7, so what counts is what the map adds.
    added = np.where(new_event, recalibration.log_density(new), recalibration.log_survival(new) - np.log1p(-new))
    assert added.mean() > 0.02


def test_few_pieces_cost_a_calibrated_model_next_to_nothing_and_a_piece_an_event_costs_much():
    rng = np.random.default_rng(5)
    seen, new = rng.uniform(size=(2, 20_000))
    few = KaplanMeierRecalibration.fit(seen, np.ones(20_000))
    many = KaplanMeierRecalibration.fit(seen, np.ones(20_000), n_pieces=40_000)  # a knot at every event
    pieces = few.knots.size - 1
    assert -few.log_density(new).mean() < 2 * pieces / (2 * 20_000)
    # digamma(2) = 0.42: the mean log of a gap that is found by throwing a row at it.
    assert -many.log_density(new).mean() == pytest.approx(0.42, abs=0.1)


def test_heavy_censoring_leaves_a_straight_line_after_the_last_event():
    cdf = np.concatenate([np.linspace(0.01, 0.3, 30), np.full(70, 0.6)])
    event = np.arange(100) < 30
    recalibration = KaplanMeierRecalibration.fit(cdf, event)
    last = 0.3 - 0.005  # thirty events of 100 rows, the last half counted
    assert recalibration.cdf(0.3) == pytest.approx(last)
    assert recalibration.cdf(0.65) == pytest.approx((last + 1) / 2)
    assert np.isfinite(recalibration.log_density([0.0, 0.005, 0.31, 0.999, 1.0])).all()


@pytest.mark.parametrize(("n_events", "knot"), [(85, True), (95, False)])
def test_a_curve_that_ends_early_has_a_knot_at_its_last_event(n_events, knot):
    """85 events make nine pieces: the 15.5 % that are left are more than a piece, 5.5 % are less."""
    cdf = np.concatenate([np.linspace(0.01, 0.6, n_events), np.full(100 - n_events, 0.9)])
    recalibration = KaplanMeierRecalibration.fit(cdf, np.arange(100) < n_events)
    assert (recalibration.knots[-2] == 0.6) == knot
    if knot:
        assert recalibration.levels[-2] == pytest.approx((n_events - 0.5) / 100)


@pytest.mark.parametrize(
    ("cdf", "event"),
    [
        ([0.3], [1]),
        ([0.0, 1.0, 1.0], [1, 1, 1]),
        ([0.5] * 20, [1] * 20),
        ([0.2, 0.5, 1.0, 1.0], [1, 0, 1, 0]),
        (np.full(50, 1 - 2**-53), np.ones(50)),
        (np.full(50, 5e-324), np.ones(50)),
    ],
)
def test_degenerate_rows_still_give_an_increasing_map_with_a_density(cdf, event):
    recalibration = KaplanMeierRecalibration.fit(cdf, event)
    assert (np.diff(recalibration.knots) > 0).all()
    assert (np.diff(recalibration.levels) > 0).all()
    assert recalibration.cdf([0.0, 1.0]).tolist() == [0.0, 1.0]
    assert np.isfinite(recalibration.log_density(np.linspace(0, 1, 11))).all()


def test_quantile_undoes_the_map():
    recalibration = KaplanMeierRecalibration.fit(*simulate(500, 6))
    level = np.linspace(0, 1, 101)
    np.testing.assert_allclose(recalibration.cdf(recalibration.quantile(level)), level, atol=1e-12)


def test_survival_stays_exact_where_f_rounds_to_one():
    recalibration = KaplanMeierRecalibration.fit(*simulate(500, 7))
    exponent = torch.tensor([0.5, 5.0, 40.0, 200.0])
    cdf = -torch.expm1(-exponent)  # the last two are 1 in float32
    assert recalibration.log_survival(cdf)[-1] == -np.inf
    found = recalibration.log_survival(cdf, -exponent)
    np.testing.assert_allclose(found[:2], np.log1p(-recalibration.cdf(cdf[:2])), atol=1e-4)
    ratio = (1 - recalibration.levels[-2]) / (1 - recalibration.knots[-2])
    np.testing.assert_allclose(found[2:], np.log(ratio) - exponent[2:].numpy(), rtol=1e-6)


def test_any_shape():
    recalibration = KaplanMeierRecalibration.fit(*simulate(500, 8))
    values = np.linspace(0, 1, 6).reshape(2, 3)
    assert recalibration.cdf(values).shape == recalibration.log_density(values).shape == (2, 3)
    assert recalibration.cdf(0.5).shape == ()


@pytest.mark.parametrize(
    ("cdf", "event", "options", "message"),
    [
        ([0.2, 0.4], [0, 0], {}, "event: expected at least one event"),
        ([0.2, 1.4], [0, 1], {}, r"cdf: expected values in \[0, 1\], got 1.4 at row 1"),
        ([0.2, np.nan], [0, 1], {}, "cdf: expected values in"),
        ([0.2, 0.4], [1], {}, "event: expected 2 rows"),
        ([0.2, 0.4], [1, 1], {"n_pieces": 0}, "n_pieces: expected an integer of 1 or more, got 0"),
        ([0.2, 0.4], [1, 1], {"n_pieces": 2.5}, "n_pieces: expected an integer"),
    ],
)
def test_bad_input(cdf, event, options, message):
    with pytest.raises(ValueError, match=message):
        KaplanMeierRecalibration.fit(cdf, event, **options)


def test_bad_values_of_the_map():
    recalibration = KaplanMeierRecalibration.fit(*simulate(500, 9))
    with pytest.raises(ValueError, match=r"u: expected values in \[0, 1\], got -0.1 at row 1"):
        recalibration.cdf([0.0, -0.1])
    with pytest.raises(ValueError, match=r"p: expected values in \[0, 1\], got nan"):
        recalibration.quantile(np.nan)
    with pytest.raises(ValueError, match="log_survival: expected shape"):
        recalibration.log_survival([0.1, 0.2], [0.0])
