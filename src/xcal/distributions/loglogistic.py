"""The log-logistic distribution."""

import math
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from xcal.distributions._quadrature import CUT, StandardLaw, squared_cdf_below, squared_sf_above
from xcal.distributions.base import SurvivalDistribution, as_level, as_parameters, split_zero


def _log_sf(u: Tensor) -> Tensor:
    return logsigmoid(-u)


def _reach_below(end: Tensor, scale: Tensor) -> Tensor:
    rate = scale + 2.0 * torch.sigmoid(-end)
    return torch.minimum(CUT / rate, torch.clamp(end, min=0.0) + CUT / (2.0 + scale))


def _window_above(start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    # Both tails are plain exponentials: below -23 S is 1 and above 23 it is exp(-u), each integrated exactly.
    bound = torch.full_like(start + scale, CUT)
    return -bound, bound


_LAW = StandardLaw(logsigmoid, _log_sf, -CUT, CUT, _reach_below, _window_above)


@final
class LogLogistic(SurvivalDistribution):
    """``S(t) = 1 / (1 + (t / scale)^concentration)``.

    At time zero: F = 0 and S = 1. The density there is 0 for a concentration above 1 (``log_prob`` is -inf),
    1 / scale for a concentration of 1, and infinite below (``log_prob`` is +inf); the hazard likewise.

    The tails are heavy: the mean is infinite for a concentration of 1 or less, and the survival CRPS of an event is
    infinite for a concentration of 1/2 or less, because S^2 then falls no faster than 1 / t. Both are returned as
    inf; the survival CRPS of a censored row is finite for every concentration.

    Parameters
    ----------
    scale, concentration
        Positive tensors of shape ``(..., n)``. The scale is the median.

    Examples
    --------
    >>> dist = LogLogistic(torch.tensor([3.0, 3.0]), torch.tensor([2.0, 1.0]))
    >>> dist.survival(torch.tensor([3.0, 3.0]))
    tensor([0.5000, 0.5000])
    >>> dist.mean
    tensor([4.7124,    inf])
    """

    def __init__(self, scale: Tensor, concentration: Tensor) -> None:
        self.scale, self.concentration = as_parameters(("scale", scale), ("concentration", concentration))
        self._log_scale = torch.log(self.scale)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of `scale` and `concentration`."""
        return self.scale.shape

    def _log_odds(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-time, the log-odds ``log(F / S)``, and the rows at zero."""
        safe, at_zero = split_zero(time, self.scale)
        log_time = torch.log(safe)
        return log_time, self.concentration * (log_time - self._log_scale), at_zero

    def _log_hazard(self, time: Tensor) -> Tensor:
        log_time, u, at_zero = self._log_odds(time)
        k = self.concentration
        limit = torch.where(k > 1, -math.inf, torch.where(k < 1, math.inf, -self._log_scale))
        return torch.where(at_zero, limit, torch.log(k) + logsigmoid(u) - log_time)

    def log_prob(self, time: Tensor) -> Tensor:
        """Log-hazard plus log-survival."""
        return self._log_hazard(time) + self.log_survival(time)

    def log_survival(self, time: Tensor) -> Tensor:
        """``-log(1 + (t / scale)^concentration)``, by log-sigmoid."""
        _, u, at_zero = self._log_odds(time)
        return torch.where(at_zero, 0.0, logsigmoid(-u))

    def cdf(self, time: Tensor) -> Tensor:
        """Sigmoid of ``concentration log(t / scale)``."""
        _, u, at_zero = self._log_odds(time)
        return torch.where(at_zero, 0.0, torch.sigmoid(u))

    def hazard(self, time: Tensor) -> Tensor:
        """``(concentration / t) F(t)``."""
        return torch.exp(self._log_hazard(time))

    def quantile(self, p: float | Tensor) -> Tensor:
        """``scale (p / (1 - p))^(1 / concentration)``."""
        return self.scale * torch.exp(torch.logit(as_level(p, self.scale)) / self.concentration)

    @property
    def mean(self) -> Tensor:
        """``scale (pi / k) / sin(pi / k)`` for a concentration k above 1, else infinite."""
        finite = self.concentration > 1
        inverse = 1.0 / torch.where(finite, self.concentration, 2.0)
        # sinc(x) = sin(pi x) / (pi x)
        return torch.where(finite, self.scale / torch.sinc(inverse), math.inf)

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw times of shape ``shape + batch_shape``."""
        # The ratio of two unit exponentials is log-logistic, and never hits the end points 0 and infinity.
        size = (2, *shape, *self.batch_shape)
        empty = torch.empty(size, dtype=self.scale.dtype, device=self.scale.device)
        top, bottom = empty.exponential_(generator=generator)
        return self.scale * torch.pow(top / bottom, 1.0 / self.concentration)

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, by quadrature."""
        _, u, _ = self._log_odds(time)
        return squared_cdf_below(_LAW, torch.clamp(time, min=0), u, 1.0 / self.concentration)

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` to infinity, by quadrature; infinite for a concentration of 1/2 or less."""
        _, u, at_zero = self._log_odds(time)
        spread, log_scale = 1.0 / self.concentration, self._log_scale
        if needed is not None:
            spread, log_scale = torch.where(needed, spread, 1.0), torch.where(needed, log_scale, 0.0)
        finite = spread < 2
        spread = torch.where(finite, spread, 1.0)
        decay = 2.0 - spread
        # Above CUT the integrand is spread * exp(loc + (spread - 2) u), to 2 exp(-CUT).
        start = torch.clamp(torch.where(at_zero, -CUT, u), min=CUT)
        tail = spread / decay * torch.exp(log_scale - decay * start)
        middle = squared_sf_above(_LAW, at_zero, u, log_scale, spread)
        return torch.where(finite, middle + tail, math.inf)
