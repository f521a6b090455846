"""The survival CRPS against adaptive quadrature, a closed form, and the published rule."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats
from torch import Tensor

from xcal.distributions import Categorical, LogLogistic, LogNormal, SurvivalDistribution, Weibull, family
from xcal.objectives import survival_crps

# In log-time u = (log z - loc) / scale the three families are one: a log-cdf, a log-survival, and how to make one.
NORMAL = (special.log_ndtr, lambda u: special.log_ndtr(-u), lambda loc, scale: LogNormal(loc, scale.log()))
GUMBEL = (
    lambda u: np.log(-np.expm1(-np.exp(u))),
    lambda u: -np.exp(u),
    lambda loc, scale: Weibull(loc.exp(), 1 / scale),
)
LOGISTIC = (special.log_expit, lambda u: special.log_expit(-u), lambda loc, scale: LogLogistic(loc.exp(), 1 / scale))
FAMILIES = {"lognormal": NORMAL, "weibull": GUMBEL, "loglogistic": LOGISTIC}
LOC = 0.7


def quadrature(log_integrand: Callable[[float], float], knots: np.ndarray) -> float:
    """Adaptive quadrature of exp(log_integrand), piece by piece, relative to its largest value at a knot."""
    values = [log_integrand(u) for u in knots]
    top = max(values)
    pieces = [
        integrate.quad(lambda u: math.exp(log_integrand(u) - top), a, b, epsabs=1e-16, epsrel=1e-11, limit=400)[0]
        for a, b in pairwise(knots)
    ]
    return math.exp(top) * sum(pieces)


def exact(log_cdf: Callable, log_sf: Callable, scale: float, w: float) -> tuple[float, float]:
    """Both integrals of the definition, in log-time, over a range that holds all of them."""
    far = 60.0 / scale
    below_knots = w - np.concatenate([[0], np.geomspace(0.05, min(60.0 + abs(w), far) + 60.0, 30)])[::-1]
    below = scale * quadrature(lambda u: 2 * log_cdf(u) + LOC + scale * u, below_knots)
    above_knots = w + np.concatenate([[0], np.geomspace(0.05, 60.0 + abs(w) + 4 * scale, 40)])
    above = scale * quadrature(lambda u: 2 * log_sf(u) + LOC + scale * u, above_knots)
    return below, above


GRID = [
    (name, scale, w)
    for name in FAMILIES
    for scale in (0.01, 0.1, 0.5, 1.0, 1.5)
    for w in (-12.0, -3.0, -1.0, 0.0, 0.8, 2.0)
]


@pytest.mark.parametrize(("name", "scale", "w"), GRID)
def test_equals_adaptive_quadrature(name: str, scale: float, w: float) -> None:
    log_cdf, log_sf, make = FAMILIES[name]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        below, above = exact(log_cdf, log_sf, scale, w)
    if name == "loglogistic":
        # The tail is a power law: what lies beyond the range is exp((scale - 2) u) to all digits.
        end = w + 60.0 + abs(w) + 4 * scale
        above += scale / (2 - scale) * math.exp(LOC + (scale - 2) * end)
    dist = make(torch.tensor([LOC] * 2, dtype=torch.float64), torch.tensor([scale] * 2, dtype=torch.float64))
    time = torch.full((2,), math.exp(LOC + scale * w), dtype=torch.float64)
    value = survival_crps(dist, time, torch.tensor([False, True]))
    assert value.tolist() == pytest.approx([below, below + above], rel=1e-7)


@pytest.mark.parametrize(
    ("name", "w"), [("lognormal", 9.0), ("lognormal", 40.0), ("weibull", 5.0), ("loglogistic", 40.0)]
)
@pytest.mark.parametrize("scale", [0.01, 0.3, 1.5])
def test_a_row_censored_long_after_nearly_all_events(name: str, w: float, scale: float) -> None:
    log_cdf, _, make = FAMILIES[name]
    # Down to u = -79: F is below 1e-34 there, whichever the family.
    knots = np.concatenate([[w], np.arange(math.ceil(w) - 1, -80, -1.0)])[::-1]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        below = scale * quadrature(lambda u: 2 * log_cdf(u) + LOC + scale * u, knots)
    dist = make(torch.tensor([LOC], dtype=torch.float64), torch.tensor([scale], dtype=torch.float64))
    time = torch.full((1,), math.exp(LOC + scale * w), dtype=torch.float64)
    assert survival_crps(dist, time, torch.tensor([False])).item() == pytest.approx(below, rel=1e-7)


@pytest.mark.parametrize("scale", [3.0, 6.0])
@pytest.mark.parametrize("w", [-3.0, 0.0, 1.5])
@pytest.mark.parametrize("name", ["lognormal", "weibull"])
def test_equals_adaptive_quadrature_for_heavy_tails(name: str, scale: float, w: float) -> None:
    log_cdf, log_sf, make = FAMILIES[name]
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        below, above = exact(log_cdf, log_sf, scale, w)
    dist = make(torch.tensor([LOC] * 2, dtype=torch.float64), torch.tensor([scale] * 2, dtype=torch.float64))
    time = torch.full((2,), math.exp(LOC + scale * w), dtype=torch.float64)
    value = survival_crps(dist, time, torch.tensor([False, True]))
    assert value.tolist() == pytest.approx([below, below + above], rel=1e-7)


def closed_form(loc: Tensor, scale: Tensor, y: Tensor) -> Tensor:
    """CRPS of a log-normal for an event (Baran and Lerch 2015); Owen's T cancels when both integrals are added."""
    z = (y.log() - loc) / scale
    phi = torch.special.ndtr
    inner = phi(z - scale) + phi(scale / math.sqrt(2)) - 1
    return y * (2 * phi(z) - 1) - 2 * torch.exp(loc + scale**2 / 2) * inner


@settings(deadline=None, max_examples=200)
@given(st.floats(-3, 3), st.floats(0.05, 2.5), st.floats(-4, 4))
def test_log_normal_event_equals_the_closed_form(loc: float, scale: float, z: float) -> None:
    parameters = [torch.tensor([v], dtype=torch.float64, requires_grad=True) for v in (loc, scale)]
    y = torch.tensor([math.exp(loc + scale * z)], dtype=torch.float64)
    expected = closed_form(*parameters, y)
    got = survival_crps(LogNormal(parameters[0], parameters[1].log()), y, torch.tensor([True]))
    assert got.item() == pytest.approx(expected.item(), rel=1e-7)
    slopes = torch.autograd.grad(got.sum(), parameters)
    for slope, other in zip(slopes, torch.autograd.grad(expected.sum(), parameters), strict=True):
        assert slope.item() == pytest.approx(other.item(), rel=1e-6, abs=1e-7 * expected.item())


def test_the_value_of_the_issue() -> None:
    dist = LogNormal(torch.tensor([1.0], dtype=torch.float64), torch.tensor([0.5], dtype=torch.float64).log())
    time, event = torch.tensor([2.0], dtype=torch.float64), torch.tensor([True])
    twin = stats.lognorm(s=0.5, scale=math.e)
    expected = integrate.quad(lambda z: twin.cdf(z) ** 2, 0, 2)[0] + integrate.quad(lambda z: twin.sf(z) ** 2, 2, 50)[0]
    assert survival_crps(dist, time, event).item() == pytest.approx(expected, rel=1e-8)
    assert expected == pytest.approx(0.490, abs=5e-4)
    assert survival_crps(dist, time, event, as_published=True).item() == pytest.approx(0.199, abs=5e-4)


@pytest.mark.parametrize("observed", [True, False])
def test_published_trapezoid(observed: bool) -> None:
    """32 points from 1e-4 to 1 times the end; the right tail over w = 1 / z with a weight of 1 / w, not 1 / w^2."""
    loc, scale, y = 0.3, 0.8, 1.7
    grid = np.linspace(1e-4, 1, 32)

    def trapezoid(centre: float, end: float, weight: Callable[[np.ndarray], np.ndarray]) -> float:
        z = end * grid
        value = stats.norm.cdf(np.log(z), centre, scale) ** 2 * weight(z)
        return float(np.sum((value[1:] + value[:-1]) / 2 * np.diff(z)))

    expected = trapezoid(loc, y, np.ones_like)
    if observed:
        expected += trapezoid(-loc, 1 / (y + 1e-4), lambda z: 1 / (z + 1e-4))
    dist = LogNormal(torch.tensor([loc], dtype=torch.float64), torch.tensor([scale], dtype=torch.float64).log())
    time, event = torch.tensor([y], dtype=torch.float64), torch.tensor([observed])
    assert survival_crps(dist, time, event, as_published=True).item() == pytest.approx(expected, rel=1e-12)


def test_published_family_has_the_published_crps_of_the_log_normal_inside() -> None:
    raw = torch.tensor([[0.3, 0.2]], dtype=torch.float64)
    dist = family("lognormal-published").distribution(raw)
    scale = torch.exp(torch.nn.functional.softplus(raw[:, 1]) - 0.5) + 1e-4
    time, event = torch.tensor([1.7], dtype=torch.float64), torch.tensor([True])
    expected = survival_crps(LogNormal(raw[:, 0], scale.log()), time, event, as_published=True)
    torch.testing.assert_close(survival_crps(dist, time, event, as_published=True), expected)


def test_published_rule_exists_for_the_log_normal_only() -> None:
    with pytest.raises(ValueError, match=r"as_published: expected a log-normal distribution, .* got Weibull"):
        survival_crps(Weibull(torch.ones(1), torch.ones(1)), torch.ones(1), torch.tensor([True]), as_published=True)


def test_log_logistic_with_a_heavy_tail_is_infinite_for_an_event_only() -> None:
    k = torch.tensor([0.1, 0.5, 0.5, 0.6], requires_grad=True)
    event = torch.tensor([False, False, True, True])
    value = survival_crps(LogLogistic(torch.ones(4), k), torch.full((4,), 2.0), event)
    assert value.isfinite().tolist() == [True, True, False, True]
    (slope,) = torch.autograd.grad(value[value.isfinite()].sum(), k)
    assert slope.isfinite().all()


@pytest.mark.parametrize("name", ["lognormal", "weibull", "loglogistic"])
def test_gradients_in_all_parameters(name: str) -> None:
    _, _, make = FAMILIES[name]
    loc = torch.tensor([-0.5, 0.0, 0.4, 1.0, 1.0, 0.2], dtype=torch.float64, requires_grad=True)
    scale = torch.tensor([0.3, 1.0, 0.05, 0.7, 1.4, 1.7], dtype=torch.float64, requires_grad=True)
    time = torch.tensor([0.0, 0.01, 1.5, 2.0, 30.0, 1e4], dtype=torch.float64)
    for event in (torch.ones(6, dtype=torch.bool), torch.zeros(6, dtype=torch.bool)):
        assert torch.autograd.gradcheck(lambda *ps, e=event: survival_crps(make(*ps), time, e), (loc, scale), atol=1e-6)


@pytest.mark.parametrize("distribution", [LogNormal, Weibull, LogLogistic])
@pytest.mark.parametrize("log_spread", [3.0, 5.0, 20.0])
@pytest.mark.parametrize("at", [0.0, 0.5, 100.0])
def test_a_censored_row_has_a_finite_gradient_where_the_right_integral_overflows(
    distribution: type, log_spread: float, at: float
) -> None:
    first = torch.tensor([0.0 if distribution is LogNormal else 1.0], requires_grad=True)
    spread = torch.tensor([log_spread])
    second = (spread if distribution is LogNormal else torch.exp(-spread)).requires_grad_()
    value = survival_crps(distribution(first, second), torch.tensor([at]), torch.tensor([False]))
    value.sum().backward()
    assert value.isfinite().all()
    assert first.grad is not None
    assert second.grad is not None
    assert first.grad.isfinite().all()
    assert second.grad.isfinite().all()


@pytest.mark.parametrize("name", FAMILIES)
def test_single_precision_is_close_and_finite_far_out(name: str) -> None:
    _, _, make = FAMILIES[name]
    loc = torch.tensor([0.0, 1.0, 0.0, 2.0, 0.0, 0.0])
    scale = torch.tensor([0.5, 0.1, 1.5, 0.02, 0.01, 0.01])
    time = torch.tensor([1e-6, 1.0, 1e6, 50.0, 1e3, 1e-6])
    event = torch.tensor([True, True, False, True, True, True])
    double = survival_crps(make(loc.double(), scale.double()), time.double(), event)
    loc.requires_grad_()
    scale.requires_grad_()
    single = survival_crps(make(loc, scale), time, event)
    torch.testing.assert_close(single, double.float(), rtol=1e-4, atol=0)
    assert all(g.isfinite().all() for g in torch.autograd.grad(single.sum(), (loc, scale)))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.floats(0.0, 12.0), st.booleans())
def test_discrete_equals_its_continuous_limit(seed: int, at: float, observed: bool) -> None:
    """The step reading on ever finer bins of the same straight lines tends to the linear reading."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate([[0.0], np.cumsum(rng.uniform(0.5, 2.0, size=5))])
    mass = rng.dirichlet(np.ones(5))
    split = 400
    fine = np.concatenate([np.linspace(a, b, split, endpoint=False) for a, b in pairwise(edges)])
    time, event = torch.tensor([at], dtype=torch.float64), torch.tensor([observed])

    def crps(mass: np.ndarray, edges: np.ndarray, interpolation: str) -> float:
        logits = torch.from_numpy(np.log(mass)).unsqueeze(0)
        return survival_crps(Categorical(logits, edges, interpolation), time, event).item()

    coarse = crps(mass, edges, "linear")
    fine_steps = crps(np.repeat(mass / split, split), np.append(fine, edges[-1]), "step")
    assert fine_steps == pytest.approx(coarse, abs=0.02)


def test_a_calibrated_forecast_beats_others_on_average() -> None:
    """The survival CRPS of uncensored data is proper: no other scale or location does better than the true one."""
    generator = torch.Generator().manual_seed(9)
    truth: SurvivalDistribution = LogNormal(torch.zeros(1).double(), torch.tensor([-0.5]).double())
    time = truth.sample(generator, (20_000,)).squeeze(-1)
    event = torch.ones(20_000, dtype=torch.bool)

    def score(loc: float, log_scale: float) -> float:
        dist = LogNormal(torch.full_like(time, loc), torch.full_like(time, log_scale))
        return survival_crps(dist, time, event).mean().item()

    best = score(0.0, -0.5)
    assert all(score(*other) > best for other in [(0.1, -0.5), (-0.1, -0.5), (0.0, -0.2), (0.0, -0.8)])
