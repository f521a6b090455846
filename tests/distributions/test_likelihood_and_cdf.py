"""Likelihood and F together: the same numbers and gradients as each alone."""

import pytest
import torch

from xcal.distributions import family
from xcal.objectives import nll, with_cdf
from xcal_paper.published import published_nll

EDGES = [0.0, 0.5, 1.0, 2.0, 4.0]
FAMILIES = {
    "lognormal": family("lognormal"),
    "weibull": family("weibull"),
    "loglogistic": family("loglogistic"),
    "categorical, step": family("categorical", edges=EDGES, interpolation="step"),
    "categorical, linear": family("categorical", edges=EDGES),
    "mtlr, step": family("mtlr", edges=EDGES, interpolation="step"),
    "mtlr, linear": family("mtlr", edges=EDGES),
}
# Inside bins, on edges, at zero, on the last edge and after it: each once as an event and once censored.
TIMES = torch.tensor([0.2, 0.5, 1.7, 2.0, 3.9, 4.0, 9.0], dtype=torch.float64).repeat(2)
EVENT = torch.arange(14) < 7
ZERO = torch.tensor([0.0], dtype=torch.float64)


def apart(distribution, time, event, as_published=False):
    return -nll(distribution, time, event, as_published=as_published), distribution.cdf(time)


def together(distribution, time, event, as_published=False):
    values, cdf = with_cdf(published_nll if as_published else nll)(distribution, time, event)
    return -values, cdf


def outputs(name, n, scale=1.0, models=(3,), seed=0):
    generator = torch.Generator().manual_seed(seed)
    shape = (*models, n, FAMILIES[name].n_outputs)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()


@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("name", FAMILIES)
def test_values_and_gradients_equal_those_apart(name, as_published):
    raw = outputs(name, 14)
    weights = torch.randn(2, 3, 14, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    results = []
    for ask in (apart, together):
        rows, cdf = ask(FAMILIES[name].distribution(raw), TIMES, EVENT, as_published)
        (gradient,) = torch.autograd.grad((weights[0] * rows + weights[1] * cdf).sum(), raw)
        results.append((rows, cdf, gradient))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ["categorical, step", "categorical, linear", "mtlr, linear"])
@pytest.mark.parametrize("event", [True, False])
def test_at_time_zero(name, event):
    raw, happened = outputs(name, 1), torch.tensor([event])
    rows, cdf = together(FAMILIES[name].distribution(raw), ZERO, happened)
    expected, expected_cdf = apart(FAMILIES[name].distribution(raw), ZERO, happened)
    torch.testing.assert_close(rows, expected)
    torch.testing.assert_close(cdf, expected_cdf)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_masses_that_underflow_keep_value_and_gradient(dtype, interpolation):
    """A tail of e^-3000 is zero in any float; its logarithm is not, and training has to get out of there."""
    categorical = family("categorical", edges=EDGES, interpolation=interpolation)
    raw = torch.tensor([[3000.0, 0.0, 1.0, 2.0]] * 2, dtype=dtype, requires_grad=True)
    time, event = torch.tensor([1.5, 1.5], dtype=dtype), torch.tensor([True, False])
    results = []
    for ask in (apart, together):
        rows, _ = ask(categorical.distribution(raw), time, event)
        results.append((rows, *torch.autograd.grad(rows.sum(), raw)))
    assert torch.isfinite(results[0][0]).all()
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_second_derivatives():
    raw = outputs("categorical, linear", 14, models=())

    def loss(values):
        rows, cdf = together(FAMILIES["categorical, linear"].distribution(values), TIMES, EVENT)
        return (rows + cdf.square()).sum()

    assert torch.autograd.gradgradcheck(loss, (raw,))


def test_under_vmap():
    raw = outputs("categorical, linear", 14, models=(4,)).detach()

    def one(values):
        rows, cdf = together(FAMILIES["categorical, linear"].distribution(values), TIMES, EVENT)
        return (rows + cdf).sum()

    stacked = torch.func.vmap(torch.func.grad(one))(raw)
    alone = torch.stack([torch.func.grad(one)(values) for values in raw])
    torch.testing.assert_close(stacked, alone)


def test_only_one_of_the_two_is_used():
    raw = outputs("categorical, linear", 14)
    for which in (0, 1):
        gradients = [
            torch.autograd.grad(ask(FAMILIES["categorical, linear"].distribution(raw), TIMES, EVENT)[which].sum(), raw)
            for ask in (apart, together)
        ]
        torch.testing.assert_close(*[gradient for (gradient,) in gradients])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("models", [(), (3,), (3, 4)])
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("bins", [2, 50, 300])
@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_kernels_agree_with_torch_in_float64(models, as_published, bins, interpolation):
    n = 257
    generator = torch.Generator().manual_seed(0)
    edges = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    raw = 5 * torch.randn(*models, n, bins, generator=generator, dtype=torch.float64)
    # Times of each start shared by its models, as in training: (S, 1, n) beside (S, L, n).
    shape = (n,) if len(models) < 2 else (models[0], 1, n)
    time = 1.1 * torch.rand(shape, generator=generator, dtype=torch.float64)
    event = torch.rand(shape, generator=generator) < 0.5
    results = []
    for device, dtype in (("cpu", torch.float64), ("cuda", torch.float32)):
        x = raw.to(device, dtype).requires_grad_()
        categorical = family("categorical", edges=edges.to(device, dtype), interpolation=interpolation)
        happened = event.to(device)
        rows, cdf = together(categorical.distribution(x), time.to(device, dtype), happened, as_published)
        (gradient,) = torch.autograd.grad((rows - 2 * cdf).sum(), x)
        results.append([value.detach().cpu().double() for value in (rows, cdf, gradient)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_kernels_keep_masses_that_underflow():
    categorical = family("categorical", edges=torch.tensor(EDGES, device="cuda"))
    raw = torch.tensor([[3000.0, 0.0, 1.0, 2.0]] * 2, device="cuda", requires_grad=True)
    time, event = torch.tensor([1.5, 1.5], device="cuda"), torch.tensor([True, False], device="cuda")
    results = []
    for ask in (apart, together):
        rows, _ = ask(categorical.distribution(raw), time, event)
        results.append((rows, *torch.autograd.grad(rows.sum(), raw)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
