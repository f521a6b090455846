"""Laws of events with one of several causes: against numerical integration, pycox's DeepHit and laws of their own."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from xcal.distributions import Categorical, LogLogistic, LogNormal, RecalibratedDistribution, Weibull, family, mixture
from xcal.distributions.causes import CauseBins, CauseHazards
from xcal.distributions.composed import SurvivorDistribution
from xcal.metrics import aalen_johansen
from xcal.objectives import nll, survival_crps

EDGES = torch.tensor([0.0, 0.5, 1.0, 1.75, 3.0, 4.5], dtype=torch.float64)
# Inside bins and on edges; of cause 1, of cause 2, and censored.
TIME = torch.tensor([0.2, 0.5, 1.7, 2.0, 3.9, 0.9, 4.4, 1.2, 0.05], dtype=torch.float64)
CAUSE = torch.tensor([1, 2, 0, 2, 0, 1, 1, 0, 2])
N = TIME.shape[0]


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def cells(interpolation="linear", causes=3, seed=0):
    logits = torch.randn(N, causes, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return CauseBins(logits, EDGES, interpolation)


# Hazards that cross: early events are of one cause, late ones of the other.
PAIRS = {
    "weibull": (
        lambda: [Weibull(rows(1.0, 2.5, 0.7), rows(0.6, 1.7, 5.0)), Weibull(rows(2.0, 1.5, 0.9), rows(3.0, 0.8, 0.5))],
        [
            (stats.weibull_min(c=0.6, scale=1.0), stats.weibull_min(c=3.0, scale=2.0)),
            (stats.weibull_min(c=1.7, scale=2.5), stats.weibull_min(c=0.8, scale=1.5)),
            (stats.weibull_min(c=5.0, scale=0.7), stats.weibull_min(c=0.5, scale=0.9)),
        ],
    ),
    "loglogistic": (
        lambda: [LogLogistic(rows(1.0, 2.5), rows(0.6, 5.0)), LogLogistic(rows(2.0, 1.5), rows(3.0, 0.8))],
        [
            (stats.fisk(c=0.6, scale=1.0), stats.fisk(c=3.0, scale=2.0)),
            (stats.fisk(c=5.0, scale=2.5), stats.fisk(c=0.8, scale=1.5)),
        ],
    ),
    "lognormal": (
        lambda: [LogNormal(rows(0.0, 0.5), rows(0.1, -0.4)), LogNormal(rows(0.5, 0.1), rows(-1.0, 0.8))],
        [
            (stats.lognorm(s=np.exp(0.1), scale=1.0), stats.lognorm(s=np.exp(-1.0), scale=np.exp(0.5))),
            (stats.lognorm(s=np.exp(-0.4), scale=np.exp(0.5)), stats.lognorm(s=np.exp(0.8), scale=np.exp(0.1))),
        ],
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_incidences_of_hazards_are_the_integrals_of_scipys_densities(name):
    """F_k is the integral of the density of cause k's latent time, times the survival of the other's."""
    make, twins = PAIRS[name]
    dist = CauseHazards(make())
    for at in (0.1, 0.9, 3.7, 20.0):
        found = dist.cumulative_incidence(torch.full((len(twins),), at, dtype=torch.float64))
        for row, laws in enumerate(twins):
            for k, (own, other) in enumerate((laws, laws[::-1])):
                # By the level of the own latent time, which leaves no singularity at time zero.
                levels = np.linspace(0, own.cdf(at), 12)
                pieces = pairwise(levels)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", integrate.IntegrationWarning)
                    value = sum(
                        integrate.quad(lambda v, a=own, b=other: b.sf(a.ppf(v)), *ends, epsabs=1e-9)[0]
                        for ends in pieces
                    )
                assert found[row, k].item() == pytest.approx(value, abs=2e-6)


@pytest.mark.parametrize("name", PAIRS)
def test_incidences_of_hazards_add_up_to_the_cdf_and_rise(name):
    make, twins = PAIRS[name]
    dist = CauseHazards(make())
    time = torch.logspace(-6, 4, 120, dtype=torch.float64).unsqueeze(-1).expand(-1, len(twins))
    found = dist.cumulative_incidence(time)
    torch.testing.assert_close(found.sum(-1), dist.cdf(time), rtol=0, atol=1e-13)
    assert (found.diff(dim=0) >= -1e-9).all()
    steps = dist.incidence_steps()
    torch.testing.assert_close(steps.sum((-1, -2)), torch.ones(len(twins)).double(), rtol=0, atol=1e-13)
    assert (steps >= 0).all()
    # In the end every cause has its whole share, but for shares that are those in the middle of each step.
    torch.testing.assert_close(steps.sum(-1), found[-1], rtol=0, atol=4e-3)


def test_likelihood_of_hazards_is_that_of_latent_times():
    make, twins = PAIRS["weibull"]
    dist, time = CauseHazards(make()), rows(0.3, 1.2, 2.5)
    for cause in (0, 1, 2):
        told = -nll(dist, time, torch.full((3,), cause))
        for row, laws in enumerate(twins):
            at = float(time[row])
            parts = [law.logpdf(at) if k + 1 == cause else law.logsf(at) for k, law in enumerate(laws)]
            assert told[row].item() == pytest.approx(sum(parts), rel=1e-12)


@pytest.mark.parametrize("interpolation", ["linear", "step"])
def test_bins_times_causes_are_counted_by_hand(interpolation):
    dist = cells(interpolation)
    mass = torch.softmax(dist.cause_logits.flatten(1), -1).view(N, 3, 5).numpy()
    edges, time = EDGES.numpy(), TIME.numpy()
    place = np.searchsorted(edges[1:-1], time, side="left")
    found = dist.cumulative_incidence(TIME).numpy()
    done = (time - edges[place]) / np.diff(edges)[place] if interpolation == "linear" else np.ones(N)
    for i, b in enumerate(place):
        expected = mass[i, :, :b].sum(-1) + mass[i, :, b] * done[i]
        np.testing.assert_allclose(found[i], expected, rtol=1e-12)
        told = -nll(dist, TIME, CAUSE)[i].item()
        cause = int(CAUSE[i])
        left = 1 - expected.sum()
        if interpolation == "step" and b == 4 and not cause:  # S is 0: the row tells that it reached the last bin
            left = mass[i, :, b].sum()
        assert told == pytest.approx(np.log(mass[i, cause - 1, b] if cause else left), rel=1e-10)
    torch.testing.assert_close(dist.cumulative_incidence(TIME).sum(-1), dist.cdf(TIME))


@pytest.mark.parametrize("interpolation", ["linear", "step"])
def test_likelihood_and_cdf_together_are_those_apart(interpolation):
    dist = cells(interpolation)
    time = torch.cat([TIME[:-1], rows(9.0)])  # after the last edge
    log_likelihood, cdf = dist.log_likelihood_and_cdf(time, CAUSE)
    torch.testing.assert_close(log_likelihood, -nll(dist, time, CAUSE))
    torch.testing.assert_close(cdf, dist.cdf(time))
    any_cause = CAUSE > 0
    torch.testing.assert_close(dist.log_likelihood_and_cdf(time, any_cause)[0], -nll(dist, time, any_cause))


def test_likelihood_is_that_of_pycox_deephit():
    """Its head pads one more outcome, that nothing happened by the last time: here the last bin of a cause alone."""
    pycox = pytest.importorskip("pycox.models.loss")
    logits = torch.randn(N, 2, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    late = torch.full((N, 2, 1), -torch.inf, dtype=torch.float64)
    late[:, 0] = 0.0
    dist = CauseBins(torch.cat([logits, late], dim=-1), EDGES, "step")
    index = torch.bucketize(TIME, EDGES[1:-1]).clamp(max=3)
    time = EDGES[1:][index]
    theirs = pycox.nll_pmf_cr(logits, index, CAUSE, reduction="none")
    # pycox adds 1e-7 to every probability before its logarithm.
    torch.testing.assert_close(nll(dist, time, CAUSE), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["categorical", "mtlr", "logistic-hazard", "weibull", "loglogistic", "lognormal"])
def test_gradients_of_everything_that_training_asks(name):
    discrete = name in ("categorical", "mtlr", "logistic-hazard")
    kind = family(name, causes=2, **({"edges": EDGES} if discrete else {"end": 4.0}))
    raw = 0.3 * torch.randn(N, kind.n_outputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    raw.requires_grad_()

    def asked(outputs):
        dist = kind.distribution(outputs)
        log_likelihood, cdf = dist.log_likelihood_and_cdf(TIME, CAUSE)
        return log_likelihood, cdf, survival_crps(dist, TIME, CAUSE)

    def incidences(outputs):
        dist = kind.distribution(outputs)
        return dist.cumulative_incidence(TIME), dist.incidence_steps()

    # Points between which hazards are integrated move with the law and are no part of its gradient: nothing depends on
    # where they are, up to the error of the quadrature.
    # In a random direction, as the integrals of hazards take seconds for each number alone.
    assert torch.autograd.gradcheck(asked, raw, atol=1e-5 if discrete else 2e-3, fast_mode=not discrete)
    assert torch.autograd.gradcheck(lambda out: incidences(out)[0], raw, atol=1e-5, fast_mode=not discrete)
    if discrete:
        assert torch.autograd.gradcheck(lambda out: incidences(out)[1], raw)


def crps_by_quadrature(dist, time, cause, end):
    """Squared distance of each incidence from what is known of its cause, on a fine grid."""
    grid = torch.linspace(0, end, 40_001, dtype=torch.float64)
    incidence = dist.cumulative_incidence(grid.unsqueeze(-1).expand(-1, N))  # (m, n, K)
    values = []
    for i in range(N):
        own = torch.zeros_like(incidence[:, i])
        if cause[i]:
            own[:, cause[i] - 1] = (grid >= time[i]).double()
        counted = grid <= (end if cause[i] else time[i])
        distance = (own - incidence[:, i]).square().sum(-1)
        values.append(float((distance * counted).mean() * end))
    return np.array(values)


@pytest.mark.parametrize("name", ["linear", "step", "weibull"])
def test_survival_crps_by_cause_is_its_integral(name):
    if name == "weibull":
        scale, shape = torch.linspace(0.7, 3.0, N).double(), torch.linspace(0.7, 2.0, N).double()
        dist = CauseHazards([Weibull(scale, shape), Weibull(scale.flip(0), shape.flip(0) + 0.3)], end=4.5)
    else:
        dist = cells(name)
    found = survival_crps(dist, TIME, CAUSE)
    np.testing.assert_allclose(found, crps_by_quadrature(dist, TIME, CAUSE, 4.5), atol=6e-4)


def test_the_survival_crps_of_hazards_needs_an_end():
    dist = family("weibull", causes=2).distribution(torch.zeros(N, 4).double())
    with pytest.raises(ValueError, match=r"^end: expected a last time for the survival CRPS of several causes"):
        survival_crps(dist, TIME, CAUSE)


@pytest.mark.parametrize("interpolation", ["linear", "step"])
def test_a_single_cause_has_the_values_of_the_law_without(interpolation):
    logits = torch.randn(N, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    one, plain = CauseBins(logits.unsqueeze(1), EDGES, interpolation), Categorical(logits, EDGES, interpolation)
    event = CAUSE > 0
    torch.testing.assert_close(nll(one, TIME, event), nll(plain, TIME, event))
    torch.testing.assert_close(one.survival_crps(TIME, event.long()), plain.survival_crps(TIME, event))
    torch.testing.assert_close(one.cumulative_incidence(TIME)[:, 0], plain.cdf(TIME))
    assert type(family("categorical", edges=EDGES, causes=1)) is type(family("categorical", edges=EDGES))


@pytest.mark.parametrize("name", ["categorical", "mtlr", "logistic-hazard", "weibull", "loglogistic", "lognormal"])
def test_initial_outputs_have_the_incidences_of_the_data(name):
    rng = np.random.default_rng(0)
    first, second, left = rng.weibull(1.5, 4000), 1.5 * rng.weibull(0.8, 4000), rng.exponential(3.0, 4000)
    time = np.minimum(np.minimum(first, second), left)
    cause = np.where(time == first, 1, np.where(time == second, 2, 0))
    edges = np.append(np.quantile(time, np.linspace(0, 1, 21)), 2 * time.max())
    edges[0] = 0.0
    discrete = name in ("categorical", "mtlr", "logistic-hazard")
    kind = family(name, causes=2, edges=edges if discrete else None)
    start = kind.initial(time, cause)
    assert start.shape == (kind.n_outputs,)
    curves = aalen_johansen(time=time, cause=cause)
    for at in np.quantile(time, [0.25, 0.5, 0.75]):
        found = kind.distribution(start.unsqueeze(0)).cumulative_incidence(torch.tensor([at]))[0]
        expected = [float(curves.at(at, of=k)) for k in (1, 2)]
        # A probability plot need not follow data of another law closely.
        np.testing.assert_allclose(found, expected, atol=0.012 if discrete else 0.06)


def test_hazards_of_bins_and_causes_by_hand():
    """Reach a bin, and have the event of a cause in it: one of the causes, or none, by odds against none."""
    kind = family("logistic-hazard", edges=EDGES, causes=2)
    raw = torch.randn(N, kind.n_outputs, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    bins = EDGES.numel() - 1
    odds = np.exp(np.insert(raw.numpy(), bins - 1, 0.0, axis=1)).reshape(N, 2, bins)
    reached, wanted = np.ones(N), np.empty((N, 2, bins))
    for k in range(bins - 1):
        wanted[:, :, k] = reached[:, None] * odds[:, :, k] / (1 + odds[:, :, k].sum(axis=1, keepdims=True))
        reached = reached - wanted[:, :, k].sum(axis=1)
    wanted[:, :, -1] = reached[:, None] * odds[:, :, -1] / odds[:, :, -1].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(kind.distribution(raw).incidence_steps(), wanted, rtol=1e-12)


def test_scaled_outputs_are_read_in_another_unit():
    for kind in (family("weibull", causes=2), family("mtlr", edges=EDGES, causes=2)):
        raw = torch.randn(N, kind.n_outputs, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
        there = kind.scaled(raw, 12.0).cumulative_incidence(12.0 * TIME)
        torch.testing.assert_close(there, kind.distribution(raw).cumulative_incidence(TIME))


@pytest.mark.parametrize("kind", ["bins", "hazards"])
def test_mixtures_have_the_mean_of_the_incidences(kind):
    if kind == "bins":
        parts = [cells(seed=1), cells(seed=2)]
    else:
        raw = torch.randn(2, N, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        parts = [family("weibull", causes=2).distribution(own) for own in raw]
    mixed = mixture(parts)
    mean = (parts[0].cumulative_incidence(TIME) + parts[1].cumulative_incidence(TIME)) / 2
    torch.testing.assert_close(mixed.cumulative_incidence(TIME), mean)
    densities = [torch.exp(-nll(part, TIME, CAUSE)) for part in parts]
    torch.testing.assert_close(torch.exp(-nll(mixed, TIME, CAUSE)), (densities[0] + densities[1]) / 2)


KNOTS, LEVELS = [0.0, 0.1, 0.35, 0.8, 1.0], [0.0, 0.25, 0.4, 0.7, 1.0]


@pytest.mark.parametrize("base", ["bins", "hazards"])
def test_a_map_of_f_divides_what_it_adds_among_the_causes(base):
    dist = cells(causes=2) if base == "bins" else family("weibull", causes=2).distribution(torch.zeros(N, 4).double())
    plain = RecalibratedDistribution(dist, KNOTS, LEVELS)
    time = torch.linspace(0, 5, 60, dtype=torch.float64).unsqueeze(-1).expand(-1, N)
    found = plain.cumulative_incidence(time)
    torch.testing.assert_close(found.sum(-1), plain.cdf(time), rtol=0, atol=1e-9)
    assert (found.diff(dim=0) >= -1e-12).all()
    # Without a change, where no map acts either, the incidences are those of before.
    same = RecalibratedDistribution(dist, [0.0, 1.0], [0.0, 1.0])
    torch.testing.assert_close(same.cumulative_incidence(TIME), dist.cumulative_incidence(TIME), rtol=0, atol=2e-3)
    if base == "bins":
        torch.testing.assert_close(same.cumulative_incidence(TIME), dist.cumulative_incidence(TIME))
    # A share is a density over that of all: the slope of the incidence over that of F.
    split = RecalibratedDistribution(dist, KNOTS, LEVELS, [[0.7, 0.0], [-0.4, 0.0]], [0.0, 0.3, 1.0])
    h = 1e-4
    high, low = (split.cumulative_incidence(TIME + side * h) for side in (1, -1))
    slope = (high - low) / (split.cdf(TIME + h) - split.cdf(TIME - h)).unsqueeze(-1)
    for k in (1, 2):
        share = torch.exp(split.log_share(TIME, torch.full_like(CAUSE, k)))
        inside = ~torch.isin(TIME, EDGES) if base == "bins" else TIME > 0.3
        torch.testing.assert_close(slope[inside, k - 1], share[inside], rtol=0, atol=1e-7 if base == "bins" else 0.05)


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"^name: expected .*'categorical'.*got 'weibull-published'"):
        family("weibull-published", causes=2)
    with pytest.raises(ValueError, match=r"^causes: expected .* 1 or more"):
        family("weibull", causes=0)
    with pytest.raises(ValueError, match=r"^parts: expected two or more distributions, one for each cause"):
        CauseHazards([Weibull(rows(1.0), rows(1.0))])
    with pytest.raises(ValueError, match=r"^parts\[1\]: expected a continuous distribution"):
        CauseHazards([Weibull(rows(1.0), rows(1.0)), Categorical(torch.zeros(1, 5), EDGES)])
    with pytest.raises(ValueError, match=r"^event: expected a boolean tensor.*or causes of type int64, from 0"):
        nll(cells(), TIME, CAUSE.double())
    with pytest.raises(ValueError, match=r"^event: expected a boolean tensor, True meaning that the event happened, "):
        nll(Categorical(torch.zeros(N, 5).double(), EDGES), TIME, CAUSE)
    with pytest.raises(ValueError, match=r"^cause: expected at least one event of each cause, got none of cause 2"):
        family("weibull", causes=2).initial([1.0, 2.0], [1, 1])


@pytest.mark.parametrize("base", ["bins", "hazards"])
def test_those_who_have_come_this_far_have_what_is_left_of_each_cause(base):
    dist = cells(causes=2) if base == "bins" else family("weibull", causes=2).distribution(torch.zeros(N, 4).double())
    after, time = torch.full((N,), 0.4).double(), torch.maximum(TIME, rows(0.6))
    found = SurvivorDistribution(dist, after)
    expected = (dist.cumulative_incidence(time) - dist.cumulative_incidence(after)) / dist.survival(after).unsqueeze(-1)
    torch.testing.assert_close(found.cumulative_incidence(time), expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.cumulative_incidence(time).sum(-1), found.cdf(time), rtol=0, atol=1e-9)
    told = nll(dist, time, CAUSE) + dist.log_survival(after)
    torch.testing.assert_close(nll(found, time, CAUSE), told)


@pytest.mark.parametrize("base", ["bins", "hazards"])
def test_steps_of_laws_made_of_others_are_their_incidences(base):
    """They add up to one, and to the incidence at each point: of a mixture, and of a law after a map of F."""
    if base == "bins":
        parts = [cells(seed=1), cells(seed=2)]
    else:
        raw = torch.randn(2, N, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64) / 2
        parts = [family("weibull", causes=2).distribution(own) for own in raw]
    for dist in (mixture(parts), RecalibratedDistribution(mixture(parts), [0.0, 0.4, 1.0], [0.0, 0.6, 1.0])):
        steps = dist.incidence_steps()
        torch.testing.assert_close(steps.sum((-2, -1)), torch.ones(N, dtype=torch.float64))
        assert steps.min() >= 0
        # What F has come to at a time, and each cause with it, read along straight lines.
        level, own = steps.sum(-2).cumsum(-1), steps.cumsum(-1)
        time = torch.full((N,), 0.7, dtype=torch.float64)
        wanted = dist.cumulative_incidence(time)
        for row in range(N):
            at = float(dist.cdf(time)[row])
            found = [np.interp(at, np.append(0, level[row]), np.append(0, own[row, k])) for k in range(dist.n_causes)]
            np.testing.assert_allclose(found, wanted[row], atol=1e-9 if base == "bins" else 0.004)
