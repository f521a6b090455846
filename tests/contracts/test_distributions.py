"""What every survival distribution must do, over the table of all of them."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, stats
from torch import Tensor

from tests.distributions.table import CASES, EDGES, SMOOTH, STEP, Case
from xcal.distributions import SurvivalDistribution
from xcal.objectives import with_cdf
from xcal_paper.published import published_nll

METHODS = ("log_prob", "log_density", "log_survival", "survival", "cdf", "hazard", "log_censored")
INTEGRALS = ("squared_cdf_below", "squared_survival_above")

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
smooth = pytest.mark.parametrize("case", SMOOTH, ids=lambda case: case.name)
step = pytest.mark.parametrize("case", STEP, ids=lambda case: case.name)


def grid(case: Case) -> Tensor:
    """The case's times, one copy for each row: shape (q, n)."""
    times = torch.tensor(case.times, dtype=torch.float64)
    return times.unsqueeze(-1).expand(-1, case.n)


def by_row(case: Case, method: str, values: Tensor) -> Tensor:
    """A method of each row's scipy twin at that row's column of values."""
    columns = [np.asarray(getattr(twin, method)(values[..., i].numpy())) for i, twin in enumerate(case.twins)]
    return torch.from_numpy(np.stack(columns, axis=-1))


# --- against scipy ---


@every
def test_cdf_and_survival_equal_scipy(case: Case) -> None:
    time = grid(case)
    torch.testing.assert_close(case.dist.cdf(time), by_row(case, "cdf", time), rtol=1e-10, atol=0)
    torch.testing.assert_close(case.dist.survival(time), by_row(case, "sf", time), rtol=1e-10, atol=1e-14)


@smooth
def test_density_and_log_survival_equal_scipy(case: Case) -> None:
    time = grid(case)
    torch.testing.assert_close(case.dist.log_density(time), by_row(case, "logpdf", time), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(case.dist.log_survival(time), by_row(case, "logsf", time), rtol=1e-10, atol=1e-12)
    hazard = by_row(case, "pdf", time) / by_row(case, "sf", time)
    torch.testing.assert_close(case.dist.hazard(time), hazard, rtol=1e-10, atol=0)


@step
def test_mass_and_log_survival_of_steps_equal_scipy(case: Case) -> None:
    time = grid(case)[:-1]  # the last bin has survival zero
    torch.testing.assert_close(case.dist.log_survival(time), by_row(case, "logsf", time), rtol=1e-10, atol=1e-12)
    for i, twin in enumerate(case.twins):
        pmf = twin.law.pmf(twin.bin(time[:, i].numpy()))
        reached = twin.law.sf(twin.bin(time[:, i].numpy()) - 1)
        np.testing.assert_allclose(case.dist.log_prob(time)[:, i].exp().numpy(), pmf, rtol=1e-10)
        np.testing.assert_allclose(case.dist.hazard(time)[:, i].numpy(), pmf / reached, rtol=1e-10)


@every
def test_quantiles_equal_scipy(case: Case) -> None:
    p = torch.tensor([0.03, 0.2, 0.5, 0.77, 0.99], dtype=torch.float64).unsqueeze(-1).expand(-1, case.n)
    torch.testing.assert_close(case.dist.quantile(p), by_row(case, "ppf", p), rtol=1e-10, atol=0)
    torch.testing.assert_close(case.dist.median, case.dist.quantile(p)[2], rtol=1e-12, atol=0)


@every
def test_mean_equals_scipy(case: Case) -> None:
    # scipy gives inf or nan where a log-logistic mean diverges; the integral of S is then infinite.
    expected = torch.tensor([float(twin.mean()) for twin in case.twins], dtype=torch.float64)
    diverges = ~torch.isfinite(expected)
    torch.testing.assert_close(case.dist.mean[~diverges], expected[~diverges], rtol=1e-10, atol=0)
    assert torch.isinf(case.dist.mean[diverges]).all()


@every
@pytest.mark.parametrize("at", [0.0, 0.1, 0.9, 2.2, 6.0])
def test_survival_crps_is_the_integral_of_scipys_cdf(case: Case, at: float) -> None:
    time = torch.full((case.n,), at, dtype=torch.float64)
    knots = sorted({0.0, *EDGES.tolist(), at})
    for i, twin in enumerate(case.twins):
        below = _square_integral(twin.cdf, [k for k in knots if k <= at])
        assert case.dist.squared_cdf_below(time)[i].item() == pytest.approx(below, rel=1e-7, abs=1e-14)
        above = _square_integral(twin.sf, [*(k for k in knots if k >= at), math.inf])
        assert case.dist.squared_survival_above(time)[i].item() == pytest.approx(above, rel=1e-7, abs=1e-14)


def _square_integral(function: Callable[[float], float], knots: list[float]) -> float:
    """Adaptive quadrature of the square, piece by piece: a step between two knots would mislead it."""
    pieces = (
        integrate.quad(lambda z: function(z) ** 2, start, stop, epsabs=1e-14, epsrel=1e-9, limit=200)[0]
        for start, stop in pairwise(knots)
    )
    return sum(pieces)


# --- laws ---


@smooth
def test_density_is_the_slope_of_the_cdf(case: Case) -> None:
    time, h = grid(case), 1e-5
    slope = (case.dist.cdf(time + h) - case.dist.cdf(time - h)) / (2 * h)
    torch.testing.assert_close(case.dist.log_density(time).exp(), slope, rtol=1e-7, atol=1e-9)


@step
def test_mass_is_the_jump_of_the_cdf_at_the_start_of_its_bin(case: Case) -> None:
    start = EDGES[1:-1].unsqueeze(-1).expand(-1, case.n)
    jump = case.dist.cdf(start + 1e-9) - case.dist.cdf(start)
    torch.testing.assert_close(case.dist.log_prob(start + 1e-9).exp(), jump, rtol=1e-9, atol=1e-12)


@every
def test_cdf_rises_from_zero_to_one_and_adds_up_with_survival(case: Case) -> None:
    time = torch.cat([torch.zeros(1), torch.logspace(-8, 30, 400), torch.tensor([1e300])]).double()
    time = time.unsqueeze(-1).expand(-1, case.n)
    cdf, survival = case.dist.cdf(time), case.dist.survival(time)
    # Neighbours of a vector may be computed by different instructions, and differ in their last digit.
    assert (cdf.diff(dim=0) >= -1e-15).all()
    assert (survival.diff(dim=0) <= 1e-15).all()
    assert ((cdf >= 0) & (cdf <= 1) & (survival >= 0) & (survival <= 1)).all()
    torch.testing.assert_close(cdf[0], torch.zeros_like(cdf[0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(cdf[-1], torch.ones_like(cdf[0]), rtol=0, atol=1e-12)
    torch.testing.assert_close(cdf + survival, torch.ones_like(cdf), rtol=0, atol=1e-14)
    torch.testing.assert_close(case.dist.log_survival(time).exp(), survival, rtol=1e-12, atol=1e-300)


@smooth
def test_quantile_inverts_the_cdf(case: Case) -> None:
    time = grid(case)
    torch.testing.assert_close(case.dist.quantile(case.dist.cdf(time)), time, rtol=1e-10, atol=0)


@step
def test_quantile_of_steps_is_the_end_of_the_bin(case: Case) -> None:
    time = grid(case)
    # A cdf one rounding error lower stays clear of ties between the two sums.
    end = EDGES[1:][torch.bucketize(time.contiguous(), EDGES[1:-1])]
    torch.testing.assert_close(case.dist.quantile(case.dist.cdf(time) * (1 - 1e-12)), end, rtol=0, atol=0)
    p = torch.linspace(0.01, 1.0, 50, dtype=torch.float64).unsqueeze(-1)
    assert (case.dist.cdf(case.dist.quantile(p)) >= p - 1e-12).all()


@smooth
def test_samples_pass_a_kolmogorov_test(case: Case) -> None:
    draws = case.dist.sample(torch.Generator().manual_seed(0), (20_000,))
    assert draws.shape == (20_000, case.n)
    for i, twin in enumerate(case.twins):
        assert stats.kstest(draws[:, i].numpy(), twin.cdf).pvalue > 1e-3


@step
def test_samples_of_steps_pass_a_chi_square_test(case: Case) -> None:
    draws = case.dist.sample(torch.Generator().manual_seed(0), (20_000,))
    for i, twin in enumerate(case.twins):
        counts = np.bincount(twin.bin(draws[:, i].numpy()), minlength=EDGES.numel() - 1)
        assert stats.chisquare(counts, 20_000 * twin.law.pmf(np.arange(counts.size))).pvalue > 1e-3


@every
def test_samples_follow_their_generator_and_carry_no_gradient(case: Case) -> None:
    dist = case.make(*(p.clone().requires_grad_() for p in case.parameters))
    first, again, other = (dist.sample(torch.Generator().manual_seed(s), (4,)) for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not first.requires_grad


@every
@pytest.mark.parametrize("observed", [True, False])
def test_slope_of_the_survival_crps_in_time(case: Case, observed: bool) -> None:
    """By the fundamental theorem its slope is F(y)^2, less S(y)^2 for an event."""
    time = grid(case).clone().requires_grad_()
    event = torch.full(time.shape, observed)
    (slope,) = torch.autograd.grad(case.dist.survival_crps(time, event).sum(), time)
    expected = case.dist.cdf(time).square() - observed * case.dist.survival(time).square()
    torch.testing.assert_close(slope, expected.detach(), rtol=1e-7, atol=1e-9)


@every
@pytest.mark.parametrize("method", [*METHODS, *INTEGRALS])
def test_gradients(case: Case, method: str) -> None:
    # The log-survival of steps is -inf in the last bin.
    time = grid(case)[:-1] if method == "log_survival" and not case.smooth else grid(case)
    parameters = tuple(p.clone().requires_grad_() for p in case.parameters)
    assert torch.autograd.gradcheck(lambda *ps: getattr(case.make(*ps), method)(time), parameters, atol=1e-6, rtol=1e-5)


@smooth
def test_gradients_of_quantile_and_mean(case: Case) -> None:
    parameters = tuple(p.clone().requires_grad_() for p in case.parameters)
    assert torch.autograd.gradcheck(lambda *ps: case.make(*ps).quantile(0.7), parameters)
    finite = torch.isfinite(case.dist.mean)
    assert torch.autograd.gradcheck(lambda *ps: case.make(*ps).mean[finite], parameters)


# --- shapes and transformations ---


def stacked(case: Case) -> tuple[Tensor, ...]:
    return tuple(torch.stack([p, p + 0.1, p * 0.9]) for p in case.parameters)


@every
@pytest.mark.parametrize("method", [*METHODS, *INTEGRALS])
def test_leading_dimensions_are_models(case: Case, method: str) -> None:
    parameters, time = stacked(case), grid(case)[2]
    together = getattr(case.make(*parameters), method)(time)
    assert together.shape == (3, case.n)
    for i in range(3):
        alone = getattr(case.make(*(p[i] for p in parameters)), method)(time)
        torch.testing.assert_close(together[i], alone, rtol=1e-12, atol=0)
    deeper = getattr(case.make(*(p.unsqueeze(0) for p in parameters)), method)(time)
    torch.testing.assert_close(deeper[0], together, rtol=1e-12, atol=0)
    many = getattr(case.make(*parameters), method)(grid(case).unsqueeze(1))
    assert many.shape == (len(case.times), 3, case.n)
    torch.testing.assert_close(many[2], together, rtol=1e-12, atol=0)


@every
@pytest.mark.parametrize("method", [*METHODS, *INTEGRALS])
def test_vmap_over_models(case: Case, method: str) -> None:
    parameters, time = stacked(case), grid(case)[2]
    mapped = torch.func.vmap(lambda *ps: getattr(case.make(*ps), method)(time))(*parameters)
    torch.testing.assert_close(mapped, getattr(case.make(*parameters), method)(time), rtol=1e-12, atol=0)
    slope = torch.func.vmap(torch.func.grad(lambda *ps: getattr(case.make(*ps), method)(time).sum()))(*parameters)
    first = parameters[0].clone().requires_grad_()
    loss = getattr(case.make(first, *parameters[1:]), method)(time).sum()
    torch.testing.assert_close(slope, torch.autograd.grad(loss, first)[0], rtol=1e-10, atol=1e-12)


@pytest.mark.ci
@every
def test_compiles_without_a_break(case: Case) -> None:
    time = grid(case)[2]
    event = torch.arange(case.n) % 2 == 0

    def everything(*parameters: Tensor) -> tuple[Tensor, ...]:
        dist = case.make(*parameters)
        values = [getattr(dist, method)(time) for method in METHODS]
        return (*values, dist.survival_crps(time, event), dist.quantile(0.3), dist.mean)

    torch.compiler.reset()
    compiled = torch.compile(everything, backend="aot_eager", fullgraph=True)
    for got, expected in zip(compiled(*case.parameters), everything(*case.parameters), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=0)


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_parameters_are_computed_in_single(case: Case, dtype: torch.dtype) -> None:
    half = tuple(p.to(dtype) for p in case.parameters)
    time = grid(case)[2].float()
    for method in (*METHODS, *INTEGRALS):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            got = getattr(case.make(*half), method)(time)
        assert got.dtype == torch.float32
        expected = getattr(case.make(*(p.float() for p in half)), method)(time)
        torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every
def test_cuda_equals_cpu(case: Case) -> None:
    dist = case.make(*(p.cuda() for p in case.parameters))
    time, event = grid(case), torch.arange(case.n) % 2 == 0
    for method in (*METHODS, *INTEGRALS):
        expected = getattr(case.dist, method)(time)
        torch.testing.assert_close(getattr(dist, method)(time.cuda()).cpu(), expected, rtol=1e-11, atol=1e-14)
    crps = dist.survival_crps(time.cuda(), event.cuda())
    torch.testing.assert_close(crps.cpu(), case.dist.survival_crps(time, event), rtol=1e-11, atol=1e-14)
    torch.testing.assert_close(dist.median.cpu(), case.dist.median, rtol=1e-11, atol=0)
    draws = dist.sample(torch.Generator("cuda").manual_seed(0), (20_000,)).cpu()
    other = case.dist.sample(torch.Generator().manual_seed(0), (20_000,))
    assert (case.dist.cdf(draws).mean(dim=0) - case.dist.cdf(other).mean(dim=0)).abs().max() < 0.02


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every
def test_compiled_on_cuda_equals_cpu(case: Case) -> None:
    """The default compiler of a GPU fuses what ``aot_eager`` only traces, and has been wrong where that was right."""
    time, event = grid(case)[2], torch.arange(case.n) % 2 == 0

    def total(*parameters: Tensor) -> Tensor:
        dist = case.make(*parameters)
        at, seen = time.to(parameters[0].device), event.to(parameters[0].device)
        return dist.log_prob(at) + dist.log_censored(at) + dist.cdf(at) + dist.survival_crps(at, seen)

    torch.compiler.reset()
    got = torch.compile(total, fullgraph=True)(*(p.cuda() for p in case.parameters))
    torch.testing.assert_close(got.cpu(), total(*case.parameters), rtol=1e-11, atol=1e-13)


@every
def test_single_precision_is_close_to_double(case: Case) -> None:
    single = case.make(*case.float32())
    for method in (*METHODS, *INTEGRALS):
        got, expected = (getattr(d, method)(grid(case).to(t)) for d, t in ((single, torch.float32), (case.dist, None)))
        torch.testing.assert_close(got, expected.float(), rtol=3e-5, atol=1e-6)


# --- the ends ---


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", [*METHODS, *INTEGRALS])
def test_values_are_defined_and_gradients_finite_where_values_are(case: Case, method: str, dtype: torch.dtype) -> None:
    for at in (0.0, 1e-15, 1e-6, 0.25, 4.5, 4.6, 1e4, 1e15):
        parameters = tuple(p.to(dtype, copy=True).requires_grad_() for p in case.parameters)
        time = torch.full((case.n,), at, dtype=dtype, requires_grad=True)
        value = getattr(case.make(*parameters), method)(time)
        assert not value.isnan().any(), at
        finite = value.isfinite()
        if method in ("cdf", "survival", "log_censored", *INTEGRALS):
            assert finite.all(), at
        # Rows with an infinite value are left out of the sum, but stay in the graph.
        total = torch.where(finite, value, 0.0).sum()
        # Where all are finite no step of the backward pass may give NaN, not even one that a later mask would hide.
        with torch.autograd.set_detect_anomaly(bool(finite.all())):
            grads = torch.autograd.grad(total, (*parameters, time), allow_unused=True)
        assert all(grad[finite].isfinite().all() for grad in grads if grad is not None), at


def likelihood(dist: SurvivalDistribution, time: Tensor, event: bool) -> Tensor:
    return dist.log_likelihood_and_cdf(time, torch.full(time.shape, event))[0]


def likelihood_as_published(dist: SurvivalDistribution, time: Tensor, event: bool) -> Tensor:
    return -with_cdf(published_nll)(dist, time, torch.full(time.shape, event))[0]


def survival_crps(dist: SurvivalDistribution, time: Tensor, event: bool) -> Tensor:
    return dist.survival_crps(time, torch.full(time.shape, event))


QUESTIONS = {
    **{method: lambda dist, time, event, method=method: getattr(dist, method)(time) for method in METHODS},
    "likelihood": likelihood,
    "likelihood_as_published": likelihood_as_published,
    "survival_crps": survival_crps,
}


@every
@pytest.mark.parametrize("event", [True, False], ids=["event", "censored"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("question", QUESTIONS)
def test_sharp_parameters_have_values_and_gradients(case: Case, question: str, dtype: torch.dtype, event: bool) -> None:
    """Training on sharp data gets here. What overflows behind a `where` is seen by the gradient alone."""
    for at in (0.0, 1e-30, 1e-15, 1e-3, 0.25, 1.0, 4.5, 1e3, 1e15, 1e30):
        parameters = tuple(p.to(dtype, copy=True).requires_grad_() for p in case.sharp)
        time = torch.full((case.sharp[0].shape[0],), at, dtype=dtype)
        value = QUESTIONS[question](case.make(*parameters), time, event)
        assert not value.isnan().any(), at
        if question in ("cdf", "survival"):
            assert ((value >= 0) & (value <= 1)).all(), at
        # A value near the largest number of its type may have a slope beyond it.
        usual = value.abs() < torch.finfo(dtype).max ** 0.5
        grads = torch.autograd.grad(torch.where(usual, value, 0.0).sum(), parameters, allow_unused=True)
        assert all(grad[usual].isfinite().all() for grad in grads if grad is not None), at


@every
def test_exhausted_marks_the_times_at_which_nothing_is_left(case: Case) -> None:
    """By construction: on these times no S of a continuous distribution is so small that it rounds to 0."""
    time = torch.tensor([0.0, 0.3, 1.0, 3.2, 4.5, 6.0], dtype=torch.float64).unsqueeze(-1).expand(-1, case.n)
    assert torch.equal(case.dist.exhausted(time).expand(time.shape), case.dist.survival(time) == 0)


@every
def test_what_a_distribution_says_of_its_bins(case: Case) -> None:
    assert case.dist.read_in_steps == (case in STEP)
    if case.dist.bins is None:
        # A continuous distribution: two times next to each other differ in F.
        assert (case.dist.cdf(torch.tensor([1.1]).double()) > case.dist.cdf(torch.tensor([1.05]).double())).all()
        return
    torch.testing.assert_close(case.dist.bins.mass.sum(-1), torch.ones(case.n, dtype=torch.float64))
    assert torch.equal(case.dist.bins.edges, EDGES)


@every
def test_time_zero_and_below(case: Case) -> None:
    for at in (0.0, -1.0):
        time = torch.full((case.n,), at, dtype=torch.float64)
        shift_cdf = case.dist.cdf(time) if case.name.startswith("shifted") else torch.zeros(case.n).double()
        assert shift_cdf.max() < 1e-12
        assert torch.equal(case.dist.cdf(time), shift_cdf)
        assert torch.allclose(case.dist.log_survival(time), torch.zeros(case.n).double(), atol=1e-12)
        assert torch.equal(case.dist.squared_cdf_below(time), torch.zeros(case.n).double())


@every
@pytest.mark.parametrize("method", [*METHODS, *INTEGRALS])
def test_a_nan_time_gives_nan_for_its_own_row_only(case: Case, method: str) -> None:
    time = grid(case)[2].clone()
    clean = getattr(case.dist, method)(time)
    time[1] = torch.nan
    value = getattr(case.dist, method)(time)
    assert value[1].isnan()
    assert torch.equal(value[0], clean[0])


@every
def test_repr_names_class_and_shape(case: Case) -> None:
    assert f"batch_shape=({case.n},)" in repr(case.dist)
