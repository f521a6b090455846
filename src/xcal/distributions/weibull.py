"""The Weibull distribution."""

import math
from typing import final

import torch
from torch import Tensor

from xcal.distributions._quadrature import CUT, StandardLaw, squared_cdf_below, squared_sf_above
from xcal.distributions.base import SurvivalDistribution, as_level, as_parameters, split_zero

# exp(-exp(7)) is zero in float64: S is zero there, later starts add nothing to an integral of S^2, and exp(u) itself
# would soon overflow.
_LATEST = 7.0
# Below it 1 - exp(-x) = x (1 - x / 2) to all digits of float64.
_SMALL = -15.0


def _log_cdf(u: Tensor) -> Tensor:
    """``log(1 - exp(-exp(u)))``; for small u from the series, because exp(u) underflows long before u does."""
    x = torch.exp(u)
    small = u < _SMALL
    return torch.where(small, u - 0.5 * x, torch.log(-torch.expm1(-torch.where(small, 1.0, x))))


def _log_sf(u: Tensor) -> Tensor:
    return -torch.exp(u)


def _reach_below(end: Tensor, scale: Tensor) -> Tensor:
    x = torch.exp(end)
    rate = scale + torch.where(end < _SMALL, 2.0, 2.0 * x / torch.expm1(x))
    return torch.minimum(CUT / rate, torch.clamp(end, min=0.0) + CUT / (2.0 + scale))


def _window_above(start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    # The integrand exp(scale u - 2 exp(u)) peaks at log(scale / 2). Left of the peak it falls at least like
    # exp(scale s) once s < -1; right of m = max(start, peak), with X = 2 exp(m), the bound exp(s) - 1 - s >= CUT / X
    # holds from s = log1p(x + sqrt(2 x)), x = CUT / X, on.
    peak = torch.log(scale / 2.0)
    lower = torch.clamp(peak - CUT / scale - 1.0, min=_LAW_LOW)
    m = torch.maximum(torch.maximum(start, lower), peak)
    x = CUT / (2.0 * torch.exp(m))
    return lower, m + torch.log1p(x + torch.sqrt(2.0 * x))


_LAW_LOW = -24.0
_LAW = StandardLaw(_log_cdf, _log_sf, _LAW_LOW, 3.3, _reach_below, _window_above)


@final
class Weibull(SurvivalDistribution):
    """``S(t) = exp(-(t / scale)^concentration)``.

    At time zero: F = 0 and S = 1. The density there is 0 for a concentration above 1 (``log_prob`` is -inf),
    1 / scale for a concentration of 1, and infinite below (``log_prob`` is +inf); the hazard likewise.

    Parameters
    ----------
    scale, concentration
        Positive tensors of shape ``(..., n)``.

    Examples
    --------
    >>> dist = Weibull(torch.tensor([2.0]), torch.tensor([1.5]))
    >>> dist.log_survival(torch.tensor([2.0]))
    tensor([-1.])
    >>> dist.cdf(dist.median)
    tensor([0.5000])
    """

    def __init__(self, scale: Tensor, concentration: Tensor) -> None:
        self.scale, self.concentration = as_parameters(("scale", scale), ("concentration", concentration))
        self._log_scale = torch.log(self.scale)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of `scale` and `concentration`."""
        return self.scale.shape

    def _log_cumulative(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-time, the log of the cumulative hazard ``(t / scale)^concentration``, and the rows at zero.

        Rows at zero hold 0: the hazard at the time 1 that stands in for theirs can overflow, with a NaN gradient.
        """
        safe, at_zero = split_zero(time, self.scale)
        log_time = torch.log(safe)
        return log_time, torch.where(at_zero, 0.0, self.concentration * (log_time - self._log_scale)), at_zero

    def _log_hazard(self, time: Tensor) -> Tensor:
        log_time, u, at_zero = self._log_cumulative(time)
        k = self.concentration
        limit = torch.where(k > 1, -math.inf, torch.where(k < 1, math.inf, -self._log_scale))
        return torch.where(at_zero, limit, torch.log(k) + u - log_time)

    def log_prob(self, time: Tensor) -> Tensor:
        """Log-hazard plus log-survival."""
        return self._log_hazard(time) + self.log_survival(time)

    def log_survival(self, time: Tensor) -> Tensor:
        """``-(t / scale)^concentration``; -inf, without a gradient, where that overflows."""
        _, u, at_zero = self._log_cumulative(time)
        # Zero times an infinite slope would be NaN for a row whose log-survival nobody asked for.
        largest = math.log(torch.finfo(u.dtype).max)
        finite = torch.where(at_zero, 0.0, -torch.exp(torch.clamp(u, max=largest)))
        return torch.where(u > largest, -math.inf, finite)

    def _bounded_log_survival(self, time: Tensor) -> Tensor:
        """``log_survival``, held where S is zero to the last digit: an infinite one has a NaN gradient behind exp."""
        _, u, at_zero = self._log_cumulative(time)
        return torch.where(at_zero, 0.0, -torch.exp(torch.clamp(u, max=_LATEST)))

    def survival(self, time: Tensor) -> Tensor:
        """``exp(log_survival)``."""
        return torch.exp(self._bounded_log_survival(time))

    def cdf(self, time: Tensor) -> Tensor:
        """``-expm1(log_survival)``."""
        return -torch.expm1(self._bounded_log_survival(time))

    def hazard(self, time: Tensor) -> Tensor:
        """``(concentration / t) (t / scale)^concentration``."""
        return torch.exp(self._log_hazard(time))

    def quantile(self, p: float | Tensor) -> Tensor:
        """``scale (-log(1 - p))^(1 / concentration)``."""
        exponential = -torch.log1p(-as_level(p, self.scale))
        return self.scale * exponential ** (1.0 / self.concentration)

    @property
    def mean(self) -> Tensor:
        """``scale Gamma(1 + 1 / concentration)``, the whole mean."""
        return self.scale * torch.exp(torch.lgamma(1.0 + 1.0 / self.concentration))

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw times of shape ``shape + batch_shape``."""
        # A unit exponential to the power 1 / k; unlike a uniform it never hits the end points 0 and infinity.
        empty = torch.empty(torch.Size(shape) + self.batch_shape, dtype=self.scale.dtype, device=self.scale.device)
        return self.scale * empty.exponential_(generator=generator) ** (1.0 / self.concentration)

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, by quadrature (incomplete gamma functions have no gradient in k)."""
        _, u, _ = self._log_cumulative(time)
        return squared_cdf_below(_LAW, torch.clamp(time, min=0), u, 1.0 / self.concentration)

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` to infinity, by quadrature."""
        _, u, at_zero = self._log_cumulative(time)
        start = torch.clamp(u, max=_LATEST)
        return squared_sf_above(_LAW, at_zero, start, self._log_scale, 1.0 / self.concentration, needed)
