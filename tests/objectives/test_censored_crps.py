"""The CRPS that is proper under censoring: against a slow formula, the CRPS, and simulated truths."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from lifelines import KaplanMeierFitter

from xcal.distributions import LogNormal, Weibull, family
from xcal.distributions.causes import CauseBins
from xcal.objectives import CensoredCRPS, survival_crps

N_NODES = 7


def rows(n, rng, censoring=1.0):
    happens, leaves = rng.weibull(1.5, n), rng.exponential(censoring, n) if censoring else np.full(n, np.inf)
    return np.minimum(happens, leaves), happens <= leaves


def slow(cdf, nodes, ends, time, event, own_time, own_event):
    """Score of one row, threshold by threshold; G from lifelines, where censorings come after the events of a time."""
    curve = KaplanMeierFitter().fit(time + 1e-7 * ~event, ~event)

    def before(t):
        return float(curve.predict(t))

    total = 0.0
    for z, low, high in zip(nodes, ends[:-1], ends[1:], strict=True):
        if own_event and own_time <= z:
            total += (high - low) * before(z) / before(own_time) * (1 - cdf(z)) ** 2
        elif own_time >= z:
            total += (high - low) * cdf(z) ** 2
    return total


def test_equals_a_sum_over_thresholds_row_by_row():
    rng = np.random.default_rng(0)
    time, event = rows(60, rng)
    time, nodes = time.round(2) + 0.005, []
    for level in (np.arange(N_NODES) + 0.5) / N_NODES:
        nodes.append(np.sort(time)[int(np.ceil(level * 60)) - 1])
    nodes = sorted(set(nodes))
    ends = [0.0, *((a + b) / 2 for a, b in pairwise(nodes)), time.max()]
    scale = rng.uniform(0.5, 2.0, 60)
    dist = Weibull(torch.from_numpy(scale), torch.full((60,), 1.3, dtype=torch.float64))
    objective = CensoredCRPS.of(time, event, n_nodes=N_NODES)
    found = objective(dist, torch.from_numpy(time), torch.from_numpy(event))
    for row in range(60):
        expected = slow(
            lambda z, row=row: -np.expm1(-((z / scale[row]) ** 1.3)), nodes, ends, time, event, time[row], event[row]
        )
        assert found[row].item() == pytest.approx(expected, rel=1e-6, abs=1e-12)
    # Models in leading dimensions, each with every row.
    several = Weibull(torch.from_numpy(np.stack([scale, scale + 1])), torch.full((2, 60), 1.3, dtype=torch.float64))
    both = objective(several, torch.from_numpy(time), torch.from_numpy(event))
    torch.testing.assert_close(both[0], found)
    assert (both[1] != found).any()


def test_without_censoring_it_tends_to_the_crps():
    time, event = rows(2000, np.random.default_rng(1), censoring=None)
    dist = LogNormal(torch.full((2000,), 0.1).double(), torch.full((2000,), -0.4).double())
    pair = torch.from_numpy(time), torch.from_numpy(event)
    # What lies after the last time counts in the CRPS only: the same for all rows.
    end = torch.full((2000,), time.max(), dtype=torch.float64)
    beyond = dist.squared_survival_above(end, torch.ones(2000, dtype=torch.bool))
    found = CensoredCRPS.of(time, event, n_nodes=2000)(dist, *pair)
    assert found.mean().item() == pytest.approx((survival_crps(dist, *pair) - beyond).mean().item(), rel=2e-3)


@pytest.mark.parametrize("censoring", [None, 1.2, 0.35])
@pytest.mark.parametrize("kind", ["weibull", "lognormal", "months"])
def test_the_true_law_is_where_the_mean_is_least(kind, censoring):
    """Its gradient at the truth is zero but for noise; that of the published score is not, with censored rows."""
    rng, n = np.random.default_rng(7), 20_000
    happens = np.exp(0.5 * rng.standard_normal(n) - 0.2) if kind == "lognormal" else rng.weibull(1.5, n)
    leaves = rng.exponential(censoring, n) if censoring else np.full(n, np.inf)
    if kind == "months":  # the event comes first where both fall in one month
        happens, leaves = np.ceil(10 * happens) / 10, np.ceil(10 * leaves) / 10
    time, event = np.minimum(happens, leaves), happens <= leaves
    truth, make = ((-0.2, np.log(0.5)), LogNormal), ((0.0, np.log(1.5)), lambda a, b: Weibull(a.exp(), b.exp()))
    values, family_of = truth if kind == "lognormal" else make

    def largest_z(objective):
        a, b = (torch.full((n,), float(value), dtype=torch.float64, requires_grad=True) for value in values)
        total = objective(family_of(a, b), torch.from_numpy(time), torch.from_numpy(event)).sum()
        slopes = np.stack([slope.numpy() for slope in torch.autograd.grad(total, (a, b))])
        return float(np.abs(slopes.mean(axis=1) / (slopes.std(axis=1) / np.sqrt(n))).max())

    assert largest_z(CensoredCRPS.of(time, event)) < 4
    if censoring and kind != "months":
        assert largest_z(survival_crps) > 15


def test_causes_add_up_and_any_event_is_one_cause():
    rng, edges = np.random.default_rng(3), [0.0, 0.5, 1.0, 4.0]
    time, event = rows(50, rng)
    cause = np.where(event, rng.integers(1, 3, 50), 0)
    objective = CensoredCRPS.of(time, cause, n_nodes=5)
    dist = CauseBins(torch.from_numpy(rng.normal(size=(50, 2, 3))), edges)
    seen, kinds = torch.from_numpy(time), torch.from_numpy(cause)
    expected = np.zeros(50)
    alone = CensoredCRPS.of(time, event, n_nodes=5)
    for z, width, left in zip(objective.nodes, objective.widths, objective.observed, strict=True):
        share = dist.cumulative_incidence(z.expand(50))
        for row in range(50):
            passed = int(np.searchsorted(objective.censorings.numpy(), time[row], side="left"))
            told = np.array([cause[row] == 1, cause[row] == 2]) * (time[row] <= z.item())
            weight = left / objective.uncensored[passed] if told.any() else float(time[row] >= z.item())
            expected[row] += float(width * weight) * float(((told - share[row].numpy()) ** 2).sum())
    np.testing.assert_allclose(objective(dist, seen, kinds).numpy(), expected, rtol=1e-9)
    any_cause = alone(dist, seen, torch.from_numpy(event))
    single = alone(family("categorical", edges=edges).distribution(torch.zeros(50, 3)), seen.float(), kinds > 0)
    assert any_cause.shape == single.shape == (50,)
    assert (any_cause <= objective(dist, seen, kinds) * 2 + 1e-12).all()  # (a + b)^2 <= 2 (a^2 + b^2)


def test_bad_rows():
    with pytest.raises(ValueError, match="event: expected"):
        CensoredCRPS.of([1.0, 2.0], [0.5, 1.0])
    with pytest.raises(ValueError, match="time: expected"):
        CensoredCRPS.of([1.0, np.nan], [True, True])
    found = CensoredCRPS.of([1.0, 2.0], [False, True])
    dist = LogNormal(torch.zeros(2), torch.zeros(2))
    assert found(dist, torch.tensor([float("nan"), 1.0]), torch.tensor([True, True])).isnan().tolist() == [True, False]
