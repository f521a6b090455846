"""The log-normal distribution."""

import math
from typing import final

import torch
from torch import Tensor

from xcal.distributions import _normal
from xcal.distributions._quadrature import CUT, StandardLaw, squared_cdf_below, squared_sf_above
from xcal.distributions.base import SurvivalDistribution, as_level, as_parameters, split_zero

# Above zero the normal log-tail, squared, falls at least as fast as its tangent minus 0.63 x^2.
_CURVATURE = 0.63


def _fall(rate: Tensor) -> Tensor:
    """Distance x at which ``rate x + 0.63 x^2`` reaches the cut."""
    return 2.0 * CUT / (rate + torch.sqrt(rate * rate + 4.0 * _CURVATURE * CUT))


def _reach_below(end: Tensor, scale: Tensor) -> Tensor:
    rate = scale + 2.0 * _normal.hazard(-torch.clamp(end, max=0.0))
    tangent = CUT / (scale + 2.0 * _normal.hazard(-end))
    return torch.minimum(tangent, torch.clamp(end, min=0.0) + _fall(rate))


def _window_above(start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    # The integrand peaks where the hazard is scale / 2; h(u) = (u + sqrt(u^2 + 8 / pi)) / 2 is close enough to find it.
    peak = scale / 2.0 - 4.0 / (math.pi * scale)
    lower = torch.clamp(peak - 7.0, min=_LAW_LOW)
    top = torch.clamp(torch.maximum(torch.maximum(start, lower), peak), min=0.0)
    rate = torch.clamp(2.0 * _normal.hazard(top) - scale, min=0.0)
    return lower, top + _fall(rate)


_LAW_LOW = -6.5
_LAW = StandardLaw(_normal.log_cdf, _normal.log_sf, _LAW_LOW, -_LAW_LOW, _reach_below, _window_above)


@final
class LogNormal(SurvivalDistribution):
    """``log T`` is normal with mean `loc` and standard deviation ``exp(log_scale)``.

    At time zero: F = 0, S = 1, the density and the hazard are 0 (``log_prob`` is -inf).

    Parameters
    ----------
    loc, log_scale
        Tensors of shape ``(..., n)``.

    Examples
    --------
    >>> dist = LogNormal(torch.tensor([0.0, 1.0]), torch.tensor([0.0, -1.0]))
    >>> dist.median
    tensor([1.0000, 2.7183])
    >>> dist.log_survival(torch.tensor([0.0, 1e6]))
    tensor([   0.0000, -611.2498])
    """

    def __init__(self, loc: Tensor, log_scale: Tensor) -> None:
        self.loc, self.log_scale = as_parameters(("loc", loc), ("log_scale", log_scale))
        self.scale = torch.exp(self.log_scale)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of `loc` and `log_scale`."""
        return self.loc.shape

    def _standardise(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        safe, at_zero = split_zero(time, self.loc)
        log_time = torch.log(safe)
        return log_time, (log_time - self.loc) / self.scale, at_zero

    def log_prob(self, time: Tensor) -> Tensor:
        """``-z^2 / 2 - log_scale - log t - log(2 pi) / 2`` with ``z = (log t - loc) / scale``."""
        log_time, z, at_zero = self._standardise(time)
        value = -0.5 * z * z - self.log_scale - log_time - _normal.HALF_LOG_2PI
        return torch.where(at_zero, -math.inf, value)

    def log_survival(self, time: Tensor) -> Tensor:
        """``log(1 - Phi(z))``, accurate at any z."""
        _, z, at_zero = self._standardise(time)
        return torch.where(at_zero, 0.0, _normal.log_sf(z))

    def cdf(self, time: Tensor) -> Tensor:
        """``Phi(z)``."""
        _, z, at_zero = self._standardise(time)
        return torch.where(at_zero, 0.0, _normal.ndtr(z))

    def hazard(self, time: Tensor) -> Tensor:
        """``phi(z) / (scale t (1 - Phi(z)))``."""
        log_time, z, at_zero = self._standardise(time)
        # One exponential of the sum: each factor alone may underflow or overflow.
        return torch.where(at_zero, 0.0, torch.exp(_normal.log_hazard(z) - self.log_scale - log_time))

    def quantile(self, p: float | Tensor) -> Tensor:
        """``exp(loc + scale Phi^-1(p))``."""
        return torch.exp(self.loc + self.scale * torch.special.ndtri(as_level(p, self.loc)))

    @property
    def mean(self) -> Tensor:
        """``exp(loc + scale^2 / 2)``, the whole mean."""
        return torch.exp(self.loc + 0.5 * self.scale * self.scale)

    @property
    def mode(self) -> Tensor:
        """Time of the highest density."""
        return torch.exp(self.loc - self.scale * self.scale)

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw ``exp(loc + scale * noise)``, shape ``shape + batch_shape``."""
        size = torch.Size(shape) + self.batch_shape
        noise = torch.randn(size, generator=generator, dtype=self.loc.dtype, device=self.loc.device)
        return torch.exp(self.loc + self.scale * noise)

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, by quadrature (its closed form needs Owen's T and cancels)."""
        _, z, _ = self._standardise(time)
        return squared_cdf_below(_LAW, torch.clamp(time, min=0), z, self.scale)

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` to infinity, by quadrature."""
        _, z, at_zero = self._standardise(time)
        return squared_sf_above(_LAW, at_zero, z, self.loc, self.scale, needed)
