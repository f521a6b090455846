"""The families of the published code, with its constants."""

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from xcal.distributions.base import SurvivalDistribution
from xcal.distributions.families import LOG_SCALE_LIMIT
from xcal.distributions.family_base import Family
from xcal.distributions.lognormal import LogNormal
from xcal.distributions.weibull import Weibull
from xcal.published.shifted import Shifted

# Time offset, and the log-normal scale's shift, ceiling and floor.
_TIME_SHIFT = 1e-4
_SOFTPLUS_SHIFT = 0.5
_LOG_SCALE_MAX = 10.0
_SCALE_FLOOR = 1e-4


@final
@dataclass(frozen=True)
class PublishedLogNormalFamily(Family):
    """As published: scale ``exp(min(softplus(raw) - 0.5, 10)) + 1e-4``, so never below 0.607, and times 1e-4 later."""

    n_outputs: ClassVar[int] = 2

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        log_scale = torch.clamp(softplus(raw[..., 1]) - _SOFTPLUS_SHIFT, max=_LOG_SCALE_MAX)
        scale = torch.exp(log_scale) + _SCALE_FLOOR
        return Shifted(LogNormal(raw[..., 0], torch.log(scale)), _TIME_SHIFT)

    def initial(self, time: Any, event: Any) -> Tensor:
        """Zeros: the published code had no initial values of its own."""
        return torch.zeros(self.n_outputs, dtype=torch.float64)


@final
@dataclass(frozen=True)
class PublishedWeibullFamily(Family):
    """As published: scale ``1 + exp(raw)``, concentration ``1 + sigmoid(raw)`` in (1, 2), and times 1e-4 later.

    The published network had no intercept in the scale; here that is for the network to decide.
    """

    n_outputs: ClassVar[int] = 2

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        scale = 1.0 + torch.exp(torch.clamp(raw[..., 0], max=LOG_SCALE_LIMIT))
        return Shifted(Weibull(scale, 1.0 + torch.sigmoid(raw[..., 1])), _TIME_SHIFT)

    def initial(self, time: Any, event: Any) -> Tensor:
        """Zeros: the published code had no initial values of its own."""
        return torch.zeros(self.n_outputs, dtype=torch.float64)
