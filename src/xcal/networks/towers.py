"""Independent networks side by side."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from xcal._checks import fail
from xcal.networks._layers import has_convolutions


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
        """Whether the towers can run as one: dense and of the same shape. Convolutions are faster apart."""
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
