"""Networks: plain torch modules from covariates to the raw outputs of a family, ``(n, ...)`` to ``(n, n_outputs)``."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from xcal._checks import as_count, as_number, fail

__all__ = ["MLP", "Linear", "TwoTower", "start_near"]


def check_size(name: str, value: object) -> int:
    """Check a number of inputs, outputs or units."""
    return as_count(name, value, at_least=1)


def check_sizes(name: str, values: Sequence[int]) -> tuple[int, ...]:
    """Check the sizes of hidden layers; none at all is a linear model."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        fail(name, "a sequence of layer sizes", repr(values))
    return tuple(check_size(name, value) for value in values)


def check_dropout(value: float) -> float:
    """Check a dropout probability."""
    return as_number("dropout", value, at_least=0, below=1)


_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def has_convolutions(network: nn.Module) -> bool:
    """Return whether any part of a network is a convolution, on which stacking does not pay and compiling does."""
    return any(isinstance(module, _CONVOLUTIONS) for module in network.modules())


class MLP(nn.Module):
    """Fully connected layers with ReLU, and dropout after each ReLU.

    Parameters
    ----------
    n_inputs, n_outputs
        Covariates of a row, and raw outputs that the family asks for (``family.n_outputs``).
    hidden
        Units of the hidden layers; the default is the network of the paper's gamma experiment.
    dropout
        Probability that a hidden unit is left out in training. At 0 there is no dropout layer at all.
    dtype
        Of the weights; by default torch's default type.

    Examples
    --------
    >>> import torch
    >>> MLP(10, 50)(torch.zeros(7, 10)).shape
    torch.Size([7, 50])
    """

    def __init__(
        self,
        n_inputs: int,
        n_outputs: int,
        hidden: Sequence[int] = (128, 64, 64),
        dropout: float = 0.0,
        *,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_dropout(dropout)
        sizes = [check_size("n_inputs", n_inputs), *check_sizes("hidden", hidden)]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after, dtype=dtype), nn.ReLU()]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
        self.body = nn.Sequential(*layers)
        self.output = nn.Linear(sizes[-1], check_size("n_outputs", n_outputs), dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., n_inputs)`` to ``(..., n_outputs)``."""
        result: Tensor = self.output(self.body(x))
        return result


class Linear(nn.Module):
    """One linear layer: the paper's MTLR, and regression for a location or a scale.

    Parameters
    ----------
    n_inputs, n_outputs
        As in `MLP`.
    intercept
        Whether there is a bias.

    Examples
    --------
    >>> import torch
    >>> Linear(10, 49)(torch.zeros(7, 10)).shape
    torch.Size([7, 49])
    """

    def __init__(self, n_inputs: int, n_outputs: int, *, intercept: bool = True) -> None:
        super().__init__()
        self.output = nn.Linear(check_size("n_inputs", n_inputs), check_size("n_outputs", n_outputs), bias=intercept)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., n_inputs)`` to ``(..., n_outputs)``."""
        result: Tensor = self.output(x)
        return result


@torch.no_grad()
def start_near(layer: nn.Linear, outputs: Tensor, *, spread: float = 0.1) -> None:
    """Set a network's last layer so that its first predictions are near given raw outputs, for every row.

    With ``family.initial(time, event)`` they are near the Kaplan-Meier curve of the training rows. From there a large
    weight of the calibration penalty finds its way; from random predictions it may settle on ones that are calibrated
    and tell no rows apart.

    Parameters
    ----------
    layer
        The last layer, with a bias.
    outputs
        Raw outputs, one for each of the layer's.
    spread
        Factor on the layer's weights: how much rows differ at first.

    Examples
    --------
    >>> from xcal.distributions import family
    >>> made = family("logistic-hazard", edges=[0.0, 1.0, 2.0, 4.0])
    >>> network = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, made.n_outputs))
    >>> start_near(network[-1], made.initial(time=[0.5, 1.5, 1.7, 3.0], event=[1, 1, 0, 1]))
    >>> made.distribution(network(torch.zeros(1, 3))).cdf(torch.tensor([1.0])).item() < 0.5
    True
    """
    if not isinstance(layer, nn.Linear) or layer.bias is None:
        fail("layer", "a linear layer with a bias", repr(layer))
    if tuple(outputs.shape) != (layer.out_features,):
        fail("outputs", f"{layer.out_features} numbers, one for each output of the layer", tuple(outputs.shape))
    layer.bias.copy_(outputs)
    layer.weight.mul_(as_number("spread", spread, at_least=0))


class TwoTower(nn.Module):
    """Two independent copies of a network, their outputs one after the other.

    The paper's log-normal model: one network for the location, another one of the same form for the log-scale.

    Parameters
    ----------
    make_tower
        Makes one network; called twice, so that the two start from different weights.

    Examples
    --------
    >>> from xcal.networks import MLP
    >>> TwoTower(lambda: MLP(10, 1))(torch.zeros(7, 10)).shape
    torch.Size([7, 2])
    """

    def __init__(self, make_tower: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first, self.second = make_tower(), make_tower()
        if self.first is self.second:
            fail("make_tower", "a function that makes a new network at each call", "the same network twice")

    def forward(self, x: Tensor) -> Tensor:
        """Map one row of covariates to the outputs of both towers, ``(..., n_outputs of one + of the other)``."""
        if x.is_cuda and self._alike():
            return self._together(x)
        return torch.cat([self.first(x), self.second(x)], dim=-1)

    def _alike(self) -> bool:
        """Return whether the towers can run as one: dense and of the same shape. Convolutions are faster apart."""
        if has_convolutions(self) or any(True for _ in self.buffers()):
            return False
        return [p.shape for p in self.first.parameters()] == [p.shape for p in self.second.parameters()]

    def _together(self, x: Tensor) -> Tensor:
        """Run both towers at once: a GPU is bound by the number of small operations, and this halves it."""
        second = dict(self.second.named_parameters())
        both = {name: torch.stack([p, second[name]]) for name, p in self.first.named_parameters()}

        def one(parameters: dict[str, Tensor]) -> Any:
            return functional_call(self.first, parameters, (x,))

        raw: Tensor = vmap(one, randomness="different")(both)
        return torch.cat([raw[0], raw[1]], dim=-1)
