"""The kernels of the conditional penalty give what plain torch gives."""

import sys

import pytest
import torch

import xcal.calibration
from tests.triton_on_cpu import emulated, on_cpu  # noqa: F401  (a fixture)
from xcal.calibration import SoftBins
from xcal.calibration import penalties as conditional_fused
from xcal.calibration.penalties import conditional_penalty_and_slope, unchecked_conditional_penalty

SHAPES = [
    ((), (), 37, 7, 10),  # models, those with features of their own, rows, features, bins
    ((3,), (), 200, 128, 20),
    ((2, 3), (2, 1), 130, 5, 2),
    ((2, 3), (2, 3), 33, 150, 40),
    ((1, 2), (1, 1), 64, 1, 3),
    ((2,), (), 1, 3, 10),
]
every_shape = pytest.mark.parametrize(("models", "own", "n", "m", "bins"), SHAPES)
# A temperature in memory is read by the kernels when they run.
both_temperatures = pytest.mark.parametrize("temperature", [None, 0.2])


def rows(models, own, n, m):
    generator = torch.Generator().manual_seed(1)
    u, event = torch.rand(*models, n, generator=generator), torch.rand(n, generator=generator) < 0.5
    u.view(-1)[0], u.view(-1)[-1] = 0.0, 1.0
    return u, event, torch.randn(*own, n, m, generator=generator) / m**0.5


def rounded_edges(bins):
    """In single precision, as the kernels have them: the reference has the same."""
    return torch.linspace(0, 1, bins + 1).double()


def found(u, event, h, bins, temperature, device, dtype):
    held = None if temperature is None else torch.tensor(temperature, dtype=torch.float64, device=device)
    spec = SoftBins(estimator="unbiased", temperature=held)
    given = (h.to(device, dtype), rounded_edges(bins).to(device), spec)
    return conditional_penalty_and_slope(u.to(device, dtype), event.to(device), *given)


def assert_near(got, wanted, u, event, h, bins, value_within, slope_within):
    """In units of what the penalty is a difference of, and of the largest slope."""
    bound = unchecked_conditional_penalty(u.double(), event, h.double(), rounded_edges(bins), SoftBins())
    for value, expected, unit, within in zip(
        got, wanted, (bound.max(), wanted[1].abs().max()), (value_within, slope_within), strict=True
    ):
        torch.testing.assert_close(value.double().cpu(), expected, rtol=0, atol=within * float(unit) + 1e-14)


# Of single precision: plain torch in it is up to 7e-6 of the largest slope away from double precision on these rows.
SINGLE = (1e-6, 1e-5)


KERNELS = "xcal._kernels"


@pytest.fixture
def kernels_on_cpu(on_cpu, monkeypatch):  # noqa: F811
    on_cpu(KERNELS)
    monkeypatch.setattr(conditional_fused, "kernels_usable", lambda u: True)


@every_shape
@both_temperatures
def test_the_kernels_run_one_by_one_give_what_plain_torch_gives(
    models, own, n, m, bins, temperature, kernels_on_cpu, nothing_compared, monkeypatch, recwarn
):  # fmt: skip
    u, event, h = rows(models, own, n, m)
    got = found(u, event, h, bins, temperature, "cpu", torch.float64)
    monkeypatch.setattr(conditional_fused, "kernels_usable", lambda u: False)
    wanted = found(u, event, h, bins, temperature, "cpu", torch.float64)
    assert_near(got, wanted, u, event, h, bins, 1e-12, 1e-10)
    assert not recwarn.list


@pytest.fixture
def nothing_compared(monkeypatch):
    monkeypatch.setattr(conditional_fused, "_agreed", {})


@pytest.mark.parametrize("off", [0.0, 0.01])
def test_the_first_batch_of_a_shape_is_compared_with_plain_torch(
    off, kernels_on_cpu, nothing_compared, monkeypatch, recwarn
):  # fmt: skip
    u, event, h = rows((3,), (), 200, 128)
    right = conditional_fused.value_and_gradient
    called = []

    def kernels(*given):
        called.append(1)
        value, gradient = right(*given)
        return value, gradient * (1 + off)

    monkeypatch.setattr(conditional_fused, "value_and_gradient", kernels)
    first, second = (found(u, event, h, 20, None, "cpu", torch.float64) for _ in range(2))
    assert len(called) == (1 if off else 2)
    assert [str(one.message)[:11] for one in recwarn] == (["the kernels"] if off else [])
    monkeypatch.setattr(conditional_fused, "kernels_usable", lambda u: False)
    wanted = found(u, event, h, 20, None, "cpu", torch.float64)
    for got in (first, second):
        assert_near(got, wanted, u, event, h, 20, 1e-12, 1e-10)
    assert len(conditional_fused._agreed) == 1


def test_values_that_are_not_finite_are_no_comparison(kernels_on_cpu, nothing_compared):
    u, event, h = rows((), (), 37, 7)
    found(u, event, h * torch.nan, 10, None, "cpu", torch.float64)
    assert conditional_fused._agreed == {}


def test_the_kernels_on_a_cpu_leave_nothing_behind():
    before = {name: sys.modules.get(name) for name in ("triton", "triton.language", KERNELS)}
    kernels = emulated(KERNELS)[KERNELS]
    assert {name: sys.modules.get(name) for name in before} == before
    assert getattr(xcal.calibration, "kernels", None) is not kernels


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@every_shape
@both_temperatures
def test_on_a_gpu_they_give_the_same(models, own, n, m, bins, temperature, nothing_compared, recwarn):
    u, event, h = rows(models, own, n, m)
    got = found(u, event, h, bins, temperature, "cuda", torch.float32)
    assert not recwarn.list
    assert_near(got, found(u, event, h, bins, temperature, "cpu", torch.float64), u, event, h, bins, *SINGLE)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_they_are_what_is_run(monkeypatch, nothing_compared):
    u, event, h = rows((2,), (), 1000, 128)
    called = []
    kept = conditional_fused.value_and_gradient
    monkeypatch.setattr(conditional_fused, "value_and_gradient", lambda *given: called.append(1) or kept(*given))
    x = u.cuda().requires_grad_()
    edges = rounded_edges(20).cuda()
    value = unchecked_conditional_penalty(x, event.cuda(), h.cuda(), edges, SoftBins(estimator="unbiased"))
    value.sum().backward()
    assert called == [1]
    wanted = found(u, event, h, 20, None, "cpu", torch.float64)
    assert_near((value.detach(), x.grad), wanted, u, event, h, 20, *SINGLE)
