"""Independent networks side by side."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from xcal._checks import fail


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
        return torch.cat([self.first(x), self.second(x)], dim=-1)
