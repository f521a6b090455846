"""Recalibration through the Kaplan-Meier curve of F: against lifelines, by its laws, and at the edges."""

import numpy as np
import pytest
import torch
from lifelines import KaplanMeierFitter
from scipy import stats
from scipy.special import expit

from tests.calibration.test_partly_seen import drawn
from xcal import d_calibration
from xcal.metrics import aalen_johansen
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


class TestSeenInPart:
    """Rows that entered late, and events between two values of F, of a model whose hazards are twice too high."""

    def rows(self, kind, n=4000, seed=0, factor=2.0):
        seen = {"late": 0.6} if kind == "entry" else {"late": 0.0, "width": 0.5}
        cdf, entry, event, lower = drawn(n, np.random.default_rng(seed), **seen)
        faster = [None if one is None else 1 - (1 - one) ** factor for one in (cdf, entry, lower)]
        return faster[0], event, {"cdf_entry": faster[1]} if kind == "entry" else {"cdf_lower": faster[2]}

    @pytest.mark.parametrize("kind", ["entry", "intervals"])
    def test_the_map_is_the_one_that_corrects(self, kind):
        cdf, event, known = self.rows(kind)
        recalibration = KaplanMeierRecalibration.fit(cdf, event, **known)
        levels = np.linspace(0.05, 0.95, 19)
        np.testing.assert_allclose(recalibration.cdf(levels), 1 - np.sqrt(1 - levels), atol=0.045)
        new, happened, beside = self.rows(kind, seed=1)
        mapped = {name: recalibration.cdf(values) for name, values in beside.items()}
        before = d_calibration(new, happened, **beside, p_value=None).value
        assert d_calibration(recalibration.cdf(new), happened, **mapped, p_value=None).value < before / 10
        ignored = KaplanMeierRecalibration.fit(cdf, event)
        assert np.abs(ignored.cdf(levels) - recalibration.cdf(levels)).max() > 0.04

    def test_a_true_model_stays(self):
        cdf, event, known = self.rows("entry", factor=1.0)
        levels = np.linspace(0.05, 0.95, 19)
        np.testing.assert_allclose(KaplanMeierRecalibration.fit(cdf, event, **known).cdf(levels), levels, atol=0.03)

    def test_few_at_risk_early_do_not_empty_the_curve(self):
        """The first of rows that entered is alone, and has the event at once."""
        u, entry = np.array([0.02, 0.5, 0.6, 0.8, 0.9]), np.array([0.0, 0.1, 0.1, 0.2, 0.3])
        found = KaplanMeierRecalibration.fit(u, np.ones(5), cdf_entry=entry)
        assert found.cdf(0.3) < 0.7

    def test_known_times_are_counted(self):
        """An uncensored event in each of so many equal pieces, and one row beside."""
        cdf = self.rows("entry", n=500)[0]
        found = KaplanMeierRecalibration.fit(cdf, np.ones(500), cdf_lower=cdf, n_pieces=10)
        counts = np.histogram(cdf, np.linspace(0, 1, 11))[0]
        np.testing.assert_allclose(found.levels, np.append(0, np.cumsum((counts + 1) / 510)), atol=1e-9)

    def test_not_with_weights(self):
        cdf, event, known = self.rows("entry", n=50)
        with pytest.raises(ValueError, match="cdf_entry: expected none beside cdf_lower or weights"):
            KaplanMeierRecalibration.fit(cdf, event, weights=np.ones(50), **known)


class TestCauses:
    def rows(self, n=3000, seed=0):
        """F of any event, true; causes whose odds are not those that the model says, more so where F is large."""
        rng = np.random.default_rng(seed)
        u = rng.uniform(size=n)
        event = rng.uniform(size=n) < 0.7
        u = np.where(event, u, u * rng.uniform(size=n))
        said = expit(rng.normal(size=n))
        odds = said / (1 - said) * np.exp(1.5 * u - 0.2)
        cause = np.where(event, np.where(rng.uniform(size=n) < odds / (1 + odds), 1, 2), 0)
        return u, event, cause, np.column_stack([said, 1 - said])

    def test_shares_are_those_of_aalen_and_johansen_on_the_scale_of_f(self):
        u, event, cause, shares = self.rows()
        found = KaplanMeierRecalibration.fit(u, event, cause=cause, shares=shares)
        table = found.splits.reshape(-1, 2)
        assert len(table) == found.split_knots.size - 1 >= 5
        curve = aalen_johansen(time=u, cause=cause)
        ends = found.split_knots
        rises = np.column_stack([np.diff(np.append(0.0, curve.at(ends[1:], of=k))) for k in (1, 2)])
        for j, own in enumerate(table):
            inside = event & (u > ends[j]) & (u <= ends[j + 1])
            moved = shares[inside] * np.exp(own)
            moved /= moved.sum(axis=1, keepdims=True)
            # Each event has the mass of the curve; one event of the model's own is among them.
            weight = 1 / (1 - np.array([np.mean(u < at) for at in u[inside]]))
            np.testing.assert_allclose(weight @ moved / weight.sum(), rises[j] / rises[j].sum(), atol=0.02)
        # Where F is small the second cause is more likely than said, where it is large less.
        np.testing.assert_allclose(table[:, 1], -(1.5 * (ends[1:] + ends[:-1]) / 2 - 0.2), atol=0.5)

    def test_a_stretch_without_a_cause_stays_finite(self):
        u, event, cause, shares = self.rows(300)
        cause = np.where((u > 0.5) & (cause > 0), 1, cause)
        found = KaplanMeierRecalibration.fit(u, event, cause=cause, shares=shares)
        assert np.isfinite(found.splits).all()
        assert np.abs(found.splits).max() < 12

    def test_bad_causes(self):
        u, event, cause, shares = self.rows(20)
        for given, message in (
            ({"cause": np.ones(20, int)}, "cause: expected a cause where event is True, and there alone"),
            ({"shares": shares[:5]}, r"shares: expected shape \(20, causes\)"),
            ({"shares": -shares}, "shares: expected shares of 0 or more, got .* at row 0"),
            ({"cause": np.where(cause > 0, 3, 0)}, "cause: expected .* 1 to 2, got 3"),
        ):
            with pytest.raises(ValueError, match=message):
                KaplanMeierRecalibration.fit(u, event, **{"cause": cause, "shares": shares, **given})
