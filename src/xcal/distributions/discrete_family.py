"""What the families of the discrete distributions share: the edges, and how they are read."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import as_choice, as_numpy, fail
from xcal.distributions._bins import Grid
from xcal.distributions._initial import bin_logits
from xcal.distributions._readings import READINGS
from xcal.distributions.base import SurvivalDistribution
from xcal.distributions.edges import as_edges
from xcal.distributions.family_base import Family


@dataclass(frozen=True, eq=False)
class DiscreteFamily(Family):
    """Base of the families on a grid of time edges; the number of raw outputs says what they need of it."""

    edges: Tensor
    interpolation: str = "linear"

    def __post_init__(self) -> None:
        as_choice("interpolation", self.interpolation, READINGS)
        self._hold(as_edges(self.edges))
        if self.n_outputs < 1:
            fail("edges", "three or more edges: the family needs two bins", f"{self.edges.shape[0]}")

    def _hold(self, edges: Tensor) -> None:
        """Keep checked edges, and their grids in the types that networks have: every step of training needs one."""
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "_grids", {kind: Grid(edges.to(kind)) for kind in (torch.float32, torch.float64)})

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the grids, which follow from the edges."""
        return {"edges": self.edges, "interpolation": self.interpolation}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the settings, and make the grids again."""
        object.__setattr__(self, "interpolation", state["interpolation"])
        self._hold(state["edges"])

    def grid(self, raw: Tensor) -> Grid:
        """Return the grid for a distribution of raw outputs."""
        grids: dict[torch.dtype, Grid] = self.__dict__["_grids"]
        return grids.get(raw.dtype) or Grid(self.edges)

    def log_shares(self, time: Any, event: Any) -> npt.NDArray[np.float64]:
        """Log of the Kaplan-Meier share of each bin."""
        return bin_logits(time, event, as_numpy("edges", self.edges))

    def to(self, device: torch.device | str) -> Self:
        """Put the edges on a device."""
        moved = type(self).__new__(type(self))
        # They were checked before; reading them again would wait for a GPU.
        moved.__setstate__({"edges": self.edges.to(device), "interpolation": self.interpolation})
        return moved

    def scaled(self, raw: Tensor, factor: float) -> SurvivalDistribution:
        """Return the distribution of `factor` times the time: the same masses between other edges."""
        return replace(self, edges=self.edges * factor).distribution(raw)
