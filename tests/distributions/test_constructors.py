"""The shape-level checks of the constructors."""

from collections.abc import Callable

import pytest
import torch

from xcal.distributions import MTLR, Categorical, LogLogistic, LogNormal, SurvivalDistribution, Weibull

TWO = torch.ones(2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogNormal([1.0, 2.0], TWO), "loc: expected a torch tensor, got list"),
        (lambda: LogNormal(TWO, torch.tensor([1, 2])), "log_scale: expected a floating-point tensor, got dtype"),
        (lambda: LogNormal(TWO, torch.ones(3)), r"log_scale: expected a shape .* with loc \(2,\), got \(3,\)"),
        (lambda: Weibull(TWO, torch.ones(3)), "concentration: expected a shape"),
        (lambda: LogLogistic(TWO, torch.ones(3)), "concentration: expected a shape"),
        (lambda: Categorical(torch.zeros(2, 3), [0.0, 1.0]), r"edges: expected 4 edges around 3 bins, got \(2,\)"),
        (lambda: Categorical(torch.zeros(2, 3), torch.zeros(2, 4)), "edges: expected 4 edges around 3 bins"),
        (lambda: Categorical(torch.zeros(2, 1), [1.0, 0.5]), "edges: expected a value larger"),
        (lambda: Categorical(torch.zeros(2, 0), [0.0]), "logits: expected shape"),
        (lambda: Categorical(torch.tensor(0.0), [0.0, 1.0]), "logits: expected shape"),
        (lambda: Categorical(torch.zeros(2, 1), [0.0, 1.0], "cubic"), "one of 'step', 'linear', got 'cubic'"),
        (lambda: MTLR(torch.zeros(2, 3), [0.0, 1.0, 2.0, 3.0]), "edges: expected 5 edges around 4 bins"),
    ],
)
def test_bad_parameters(make: Callable[[], SurvivalDistribution], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_parameters_broadcast() -> None:
    assert LogNormal(torch.zeros(4, 1), torch.zeros(3)).batch_shape == (4, 3)
    assert Weibull(torch.ones(5), torch.tensor(2.0)).mean.shape == (5,)


def test_double_precision_times_keep_their_digits_under_single_precision_parameters() -> None:
    value = LogNormal(torch.zeros(1), torch.zeros(1)).cdf(torch.tensor([1.0 + 1e-10], dtype=torch.float64))
    assert value.item() - 0.5 == pytest.approx(1e-10 / (2 * torch.pi) ** 0.5, rel=1e-5)


def test_the_interface_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="abstract"):
        SurvivalDistribution()


def test_the_mode_of_a_log_normal_has_the_highest_density() -> None:
    dist = LogNormal(torch.tensor([0.4]).double(), torch.tensor([-0.3]).double())
    around = dist.mode * torch.tensor([[0.99], [1.0], [1.01]], dtype=torch.float64)
    assert dist.log_prob(around).argmax(dim=0).item() == 1
