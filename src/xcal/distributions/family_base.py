"""The interface of a family: from raw network outputs to a distribution."""

from abc import ABC, abstractmethod
from typing import Any, final

import torch
from torch import Tensor

from xcal._checks import fail
from xcal.distributions.base import SurvivalDistribution, as_parameter


class Family(ABC):
    """Interface of a family."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of raw outputs per row."""

    @abstractmethod
    def _make(self, raw: Tensor) -> SurvivalDistribution:
        """Turn checked raw outputs into a distribution."""

    @abstractmethod
    def initial(self, time: Any, event: Any) -> Tensor:
        """Raw outputs to start from, ``(n_outputs,)`` in float64, given training times and events.

        As the bias of a network's last layer they start training from the distribution of the times as a whole.
        """

    def to(self, device: torch.device | str) -> "Family":
        """Return the family with its tensors on a device; by default it has none.

        Otherwise every step would copy them there and wait for it.
        """
        return self

    def scaled(self, raw: Tensor, factor: float) -> SurvivalDistribution:
        """Turn raw outputs into the distribution of `factor` times the time.

        Trained on times in years, a model is read in days with a factor of 365.25. A family has to know how; the
        published ones do not, as they have constants in units of time.
        """
        fail("family", "one that can be read in another unit of time", type(self).__name__)

    @final
    def distribution(self, raw: Tensor) -> SurvivalDistribution:
        """Turn raw outputs ``(..., n, n_outputs)`` into a distribution of shape ``(..., n)``."""
        raw = as_parameter("raw", raw)
        if raw.ndim == 0 or raw.shape[-1] != self.n_outputs:
            fail("raw", f"shape (..., n, {self.n_outputs})", tuple(raw.shape))
        return self._make(raw)
