"""Fully connected networks."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from xcal.networks._arguments import check_dropout, check_size, check_sizes


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
