"""What is special to the discrete distributions: their bins, what lies outside the edges, and MTLR's equations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from torch import Tensor

from tests.distributions.table import mtlr_mass
from xcal.distributions import MTLR, Categorical

EDGES = [1.0, 2.0, 4.0, 8.0]
MASS = (0.2, 0.5, 0.3)
LOGITS = torch.tensor([MASS], dtype=torch.float64).log()


def made(interpolation: str) -> Categorical:
    return Categorical(LOGITS, EDGES, interpolation)


def at(*times: float) -> Tensor:
    return torch.tensor(times, dtype=torch.float64).unsqueeze(-1)


# By hand. Bins (1, 2], (2, 4], (4, 8] with masses .2, .5, .3; the edge 1 itself belongs to the first.
TIMES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 7.0, 8.0, 9.0, 1e6)
STEP_CDF = (0.0, 0.2, 0.2, 0.2, 0.2, 0.7, 0.7, 1.0, 1.0, 1.0, 1.0)
LINEAR_CDF = (0.0, 0.0, 0.0, 0.1, 0.2, 0.45, 0.7, 0.925, 1.0, 1.0, 1.0)
BIN_MASS = (0.2, 0.2, 0.2, 0.2, 0.2, 0.5, 0.5, 0.3, 0.3, 0.3, 0.3)
BIN_WIDTH = (1, 1, 1, 1, 1, 2, 2, 4, 4, 4, 4)
# S, or the mass of the last bin where the grid leaves none.
STEP_CENSORED = (1.0, 0.8, 0.8, 0.8, 0.8, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3)
LINEAR_CENSORED = (1.0, 1.0, 1.0, 0.9, 0.8, 0.55, 0.3, 0.075, 0.3, 0.3, 0.3)


@pytest.mark.parametrize(("interpolation", "expected"), [("step", STEP_CDF), ("linear", LINEAR_CDF)])
def test_cdf_inside_and_outside_the_edges(interpolation: str, expected: tuple[float, ...]) -> None:
    dist = made(interpolation)
    assert dist.cdf(at(*TIMES)).flatten().tolist() == pytest.approx(expected, abs=1e-14)
    survival = [1.0 - f for f in expected]
    assert dist.survival(at(*TIMES)).flatten().tolist() == pytest.approx(survival, abs=1e-14)
    log_survival = [math.log(s) if s > 0 else -math.inf for s in survival]
    assert dist.log_survival(at(*TIMES)).flatten().tolist() == pytest.approx(log_survival, abs=1e-14)


@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_an_event_outside_the_edges_counts_in_the_nearest_bin(interpolation: str) -> None:
    dist = made(interpolation)
    assert dist.log_prob(at(*TIMES)).exp().flatten().tolist() == pytest.approx(BIN_MASS)
    density = np.array(BIN_MASS) / np.array(BIN_WIDTH)
    assert dist.log_density(at(*TIMES)).exp().flatten().tolist() == pytest.approx(density.tolist())


@pytest.mark.parametrize(("interpolation", "expected"), [("step", STEP_CENSORED), ("linear", LINEAR_CENSORED)])
def test_a_censored_row_always_has_a_finite_likelihood(interpolation: str, expected: tuple[float, ...]) -> None:
    assert made(interpolation).log_censored(at(*TIMES)).exp().flatten().tolist() == pytest.approx(expected)


def test_before_the_first_edge_nothing_has_happened_exactly() -> None:
    # Fifty rows: the masses of some do not add up to 1 to the last digit.
    logits = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    value = Categorical(logits, EDGES, "linear").log_survival(at(0.0, 0.5, 1.0))
    assert torch.equal(value, torch.zeros(3, 50, dtype=torch.float64))
    assert not torch.autograd.grad(value.sum(), logits)[0].any()


def test_mean_is_the_mean_of_the_draws_and_the_midpoint_mean_that_of_the_middles() -> None:
    step, linear = made("step"), made("linear")
    assert step.mean.item() == pytest.approx(0.2 * 2 + 0.5 * 4 + 0.3 * 8)
    mid = 0.2 * 1.5 + 0.5 * 3 + 0.3 * 6
    assert linear.mean.item() == pytest.approx(mid)
    assert step.midpoint_mean.item() == linear.midpoint_mean.item() == pytest.approx(mid)
    for dist in (step, linear):
        draws = dist.sample(torch.Generator().manual_seed(3), (100_000,))
        assert draws.mean().item() == pytest.approx(dist.mean.item(), abs=4 * draws.std().item() / 100_000**0.5)


@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_a_draw_falls_into_the_bin_drawn(interpolation: str) -> None:
    dist = made(interpolation)
    draws = dist.sample(torch.Generator().manual_seed(0), (50_000,))
    index = torch.bucketize(draws.flatten(), torch.tensor(EDGES[1:-1]).double())
    share = torch.bincount(index, minlength=3) / 50_000
    assert share.tolist() == pytest.approx(MASS, abs=0.01)
    assert draws.min() >= EDGES[0]
    assert draws.max() <= EDGES[-1]


def test_one_bin() -> None:
    dist = Categorical(torch.zeros(1, 1, dtype=torch.float64), [1.0, 3.0], "linear")
    assert dist.cdf(at(2.0)).item() == 0.5
    assert dist.log_mass.item() == 0.0
    step = Categorical(torch.zeros(1, 1, dtype=torch.float64), [1.0, 3.0], "step")
    assert step.log_censored(at(0.0, 2.0)).flatten().tolist() == [0.0, 0.0]


def test_single_precision_places_an_edge_into_the_bin_it_ends() -> None:
    # 0.1 is not the same number in float32 and float64; times and edges must be rounded alike.
    edges = [0.0, 0.1, 0.2, 0.30000001]
    dist = Categorical(torch.tensor([MASS]).log(), edges, "step")
    time = torch.tensor([0.1, 0.2, 0.30000001], dtype=torch.float64).unsqueeze(-1)
    expected = [0.2, 0.7, 1.0]
    assert dist.cdf(time).flatten().tolist() == pytest.approx(expected)
    assert dist.cdf(time.float()).flatten().tolist() == pytest.approx(expected)


def test_mtlr_equations() -> None:
    """x-cal, appendix on models: with K = 4 bins the weights are exp(a + b + c), exp(b + c), exp(c), 1."""
    a, b, c = 0.3, -1.2, 0.8
    weights = np.array([math.exp(a + b + c), math.exp(b + c), math.exp(c), 1.0])
    scores = torch.tensor([[a, b, c]], dtype=torch.float64)
    dist = MTLR(scores, [0.0, 1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(dist.log_mass.exp().numpy()[0], weights / weights.sum(), rtol=1e-14)
    np.testing.assert_allclose(dist.log_mass.exp().numpy(), mtlr_mass(scores.numpy()), rtol=1e-14)


@settings(deadline=None, max_examples=60)
@given(
    scores=hnp.arrays(np.float64, (2, 6), elements=st.floats(-8, 8)),
    times=hnp.arrays(np.float64, (9, 1), elements=st.floats(0, 10)),
    interpolation=st.sampled_from(["step", "linear"]),
)
def test_laws_of_any_mtlr(scores: np.ndarray, times: np.ndarray, interpolation: str) -> None:
    edges = [0.5, 1.0, 1.5, 3.0, 3.5, 6.0, 8.0, 8.5]
    dist = MTLR(torch.from_numpy(scores), edges, interpolation)
    np.testing.assert_allclose(dist.log_mass.exp().sum(-1).numpy(), 1.0, rtol=1e-12)
    np.testing.assert_allclose(dist.log_mass.exp().numpy(), mtlr_mass(scores), rtol=1e-10)
    time = torch.from_numpy(np.sort(times, axis=0))
    cdf = dist.cdf(time)
    assert (cdf.diff(dim=0) >= -1e-15).all()  # equal times may differ in the last digit, by their place in the vector
    # A step reads a time as the end of its bin, so it never lies below the straight line.
    other = MTLR(torch.from_numpy(scores), edges, "linear").cdf(time)
    assert (cdf[(time > 0).expand_as(cdf)] >= other[(time > 0).expand_as(cdf)] - 1e-12).all()
    # Until the grid runs out a censored row contributes log S and nothing else.
    inside = (time < edges[-2]).expand_as(cdf)
    np.testing.assert_allclose(dist.log_censored(time)[inside], dist.log_survival(time)[inside], rtol=1e-12)
