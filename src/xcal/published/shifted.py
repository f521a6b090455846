"""The published code's time offset, as a distribution."""

from typing import final

import torch
from torch import Tensor

from xcal.distributions.base import SurvivalDistribution


@final
class Shifted(SurvivalDistribution):
    """Another distribution read at ``time + shift``: density, cdf and survival of `base`, all a little later.

    The published code added 1e-4 to the time in the density and the cdf of its continuous models; this is that
    offset, and it exists for nothing else. F at time zero is ``base.cdf(shift)``, not exactly 0, and times are
    quantiles and draws of `base` minus the shift.

    Parameters
    ----------
    base
        The distribution to read.
    shift
        Offset added to every time, in the unit of the times.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> base = Weibull(torch.tensor([1.0]), torch.tensor([1.0]))
    >>> Shifted(base, 1e-4).log_survival(torch.tensor([0.5]))
    tensor([-0.5001])
    """

    def __init__(self, base: SurvivalDistribution, shift: float) -> None:
        self.base = base
        self.shift = shift

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the distribution inside."""
        return self.base.batch_shape

    def _later(self, time: Tensor) -> Tensor:
        """``time + shift``; whole numbers become numbers of the type of `base` first."""
        if not time.is_floating_point():
            time = time.to(self.base.example.dtype)
        return time + self.shift

    def log_prob(self, time: Tensor) -> Tensor:
        """``base.log_prob(time + shift)``."""
        return self.base.log_prob(self._later(time))

    def log_density(self, time: Tensor) -> Tensor:
        """``base.log_density(time + shift)``."""
        return self.base.log_density(self._later(time))

    def log_survival(self, time: Tensor) -> Tensor:
        """``base.log_survival(time + shift)``."""
        return self.base.log_survival(self._later(time))

    def log_censored(self, time: Tensor) -> Tensor:
        """``base.log_censored(time + shift)``."""
        return self.base.log_censored(self._later(time))

    def cdf(self, time: Tensor) -> Tensor:
        """``base.cdf(time + shift)``."""
        return self.base.cdf(self._later(time))

    def hazard(self, time: Tensor) -> Tensor:
        """``base.hazard(time + shift)``."""
        return self.base.hazard(self._later(time))

    def quantile(self, p: float | Tensor) -> Tensor:
        """``base.quantile(p) - shift``."""
        return self.base.quantile(p) - self.shift

    @property
    def mean(self) -> Tensor:
        """``base.mean - shift``."""
        return self.base.mean - self.shift

    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draws of `base`, minus the shift."""
        return self.base.sample(generator, shape) - self.shift

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of ``base.cdf(z + shift)^2`` for z from 0 to `time`."""
        later = self._later(torch.clamp(time, min=0))
        return self.base.squared_cdf_below(later) - self.base.squared_cdf_below(torch.full_like(later, self.shift))

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of ``base.survival(z + shift)^2`` for z from `time` to infinity."""
        return self.base.squared_survival_above(self._later(time), needed)

    @property
    def read_in_steps(self) -> bool:
        """As `base` says."""
        return self.base.read_in_steps

    def exhausted(self, time: Tensor) -> Tensor:
        """``base.exhausted(time + shift)``."""
        return self.base.exhausted(self._later(time))


def unshifted(dist: SurvivalDistribution) -> SurvivalDistribution:
    """Return the distribution inside a `Shifted` one, and any other as it is."""
    return dist.base if isinstance(dist, Shifted) else dist
