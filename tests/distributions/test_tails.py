"""Log-survival far out: right in float64, finite with finite gradients in float32. mpmath is the oracle."""

import math

import mpmath
import pytest
import torch

from xcal.distributions import MTLR, Categorical, LogLogistic, LogNormal, Weibull, family


def log_tail(z: float) -> float:
    """log(1 - Phi(z)) to 50 digits."""
    with mpmath.workdps(50):
        return float(mpmath.log(mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2))


@pytest.mark.parametrize("z", [-40.0, -8.0, -1.0, -1e-3, 0.0, 1e-3, 1.0, 8.0, 40.0, 1e3, 1e5])
def test_log_normal_log_survival(z: float) -> None:
    # A location of -z and a time of 1 make z exact.
    loc = torch.tensor([-z], dtype=torch.float64, requires_grad=True)
    value = LogNormal(loc, torch.zeros(1, dtype=torch.float64)).log_survival(torch.ones(1, dtype=torch.float64))
    assert value.item() == pytest.approx(log_tail(z), rel=1e-12)
    (slope,) = torch.autograd.grad(value.sum(), loc)
    with mpmath.workdps(50):
        hazard = mpmath.npdf(z) / (mpmath.erfc(mpmath.mpf(z) / mpmath.sqrt(2)) / 2)
    assert slope.item() == pytest.approx(float(hazard), rel=1e-12)


@pytest.mark.parametrize("z", [40.0, 1e4, 1e5, 1e8])
def test_log_normal_in_single_precision_far_out(z: float) -> None:
    loc = torch.tensor([-z], requires_grad=True)
    dist = LogNormal(loc, torch.zeros(1))
    value = dist.log_survival(torch.ones(1))
    assert value.item() == pytest.approx(-z * z / 2 - math.log(z) - 0.5 * math.log(2 * math.pi), rel=1e-6)
    (slope,) = torch.autograd.grad(value.sum(), loc)
    assert slope.item() == pytest.approx(z, rel=1e-3)  # Mills' ratio: z + 1 / z
    assert dist.hazard(torch.ones(1)).item() == pytest.approx(z, rel=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("concentration", [0.5, 1.0, 4.0])
def test_weibull_log_survival_at_1e_minus_300(concentration: float, dtype: torch.dtype) -> None:
    target = 300 * math.log(10)
    scale = torch.ones(1, dtype=dtype, requires_grad=True)
    k = torch.tensor([concentration], dtype=dtype, requires_grad=True)
    time = torch.tensor([target ** (1 / concentration)], dtype=dtype)
    value = Weibull(scale, k).log_survival(time)
    assert value.item() == pytest.approx(-target, rel=1e-12 if dtype == torch.float64 else 1e-5)
    grads = torch.autograd.grad(value.sum(), (scale, k))
    assert grads[0].item() == pytest.approx(concentration * target, rel=1e-5)
    assert grads[1].item() == pytest.approx(-target * math.log(target) / concentration, rel=1e-5)


def test_log_logistic_log_survival_far_out() -> None:
    k = torch.tensor([3.0], dtype=torch.float64, requires_grad=True)
    value = LogLogistic(torch.ones(1, dtype=torch.float64), k).log_survival(torch.tensor([1e100], dtype=torch.float64))
    assert value.item() == pytest.approx(-300 * math.log(10), rel=1e-14)
    assert torch.autograd.grad(value.sum(), k)[0].item() == pytest.approx(-100 * math.log(10), rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_the_last_bins_of_a_categorical(interpolation: str, dtype: torch.dtype) -> None:
    """Masses of exp(-700) and less at the end: 1 - F is 0 there, the log-sum-exp of the tail is not."""
    logits = torch.tensor([[0.0, 0.0, -700.0, -720.0]], dtype=dtype, requires_grad=True)
    dist = Categorical(logits, [0.0, 1.0, 2.0, 3.0, 4.0], interpolation)
    assert dist.cdf(torch.tensor([2.5], dtype=dtype)).item() == pytest.approx(1.0)
    time = torch.tensor([2.5, 3.5], dtype=dtype).unsqueeze(-1)
    with mpmath.workdps(50):
        total = 2 + mpmath.exp(-700) + mpmath.exp(-720)
        third, fourth = mpmath.exp(-700) / total, mpmath.exp(-720) / total
        exact = {"step": (fourth, fourth), "linear": (third / 2 + fourth, fourth / 2)}[interpolation]
        expected = [float(mpmath.log(x)) for x in exact]
    value = dist.log_censored(time)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-6
    assert value.flatten().tolist() == pytest.approx(expected, rel=tolerance)
    (slope,) = torch.autograd.grad(value.sum(), logits)
    # d log S / d logit_j = P(j | alive) - p_j, summed over the two times.
    assert slope.sum().item() == pytest.approx(0.0, abs=1e-5)
    assert slope[0, :2].tolist() == pytest.approx([-1.0, -1.0], rel=1e-5)


def test_mtlr_with_large_scores_in_single_precision() -> None:
    scores = torch.full((1, 20), 40.0, requires_grad=True)
    dist = MTLR(scores, torch.arange(22.0), "step")
    value = dist.log_survival(torch.tensor([19.5]))
    assert value.item() == pytest.approx(-800.0, rel=1e-6)
    assert torch.autograd.grad(value.sum(), scores)[0].tolist()[0] == pytest.approx([-1.0] * 20, rel=1e-6)


@pytest.mark.parametrize("name", ["weibull", "loglogistic", "lognormal"])
def test_a_fit_on_sharp_data_survives_a_row_censored_at_zero(name: str) -> None:
    """Times within a few percent of each other; the row at zero tells nothing and must not spoil the rest."""
    generator = torch.Generator().manual_seed(0)
    time = torch.cat([torch.zeros(1), 1e-3 * (1 + 0.03 * torch.randn(200, generator=generator))])
    event = time > 0
    chosen = family(name)
    raw = chosen.initial(time[1:], event[1:]).float().requires_grad_()
    optimiser = torch.optim.Adam([raw], lr=0.01)
    for _ in range(50):
        optimiser.zero_grad()
        loglik, _ = chosen.distribution(raw.expand(201, 2)).log_likelihood_and_cdf(time, event)
        (-loglik.mean()).backward()
        optimiser.step()
        assert raw.isfinite().all()
    assert float(chosen.distribution(raw.detach().unsqueeze(0)).median) == pytest.approx(1e-3, rel=0.02)
