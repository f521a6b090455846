"""Two ways to read a cdf off bin masses: in steps (the paper's NI) or along straight lines (its I).

Each reading is a set of pure functions of `Bins`. A time outside the edges is read as the nearest edge, with one
exception: no event has happened at time zero, so F(0) = 0 in both readings.
"""

import math
from abc import ABC, abstractmethod
from typing import final

import torch
from torch import Tensor

from xcal.distributions._bins import Bins, Grid, after, before


class Reading(ABC):
    """How F, S and what follows from them are read between the edges."""

    @abstractmethod
    def cdf(self, bins: Bins, time: Tensor) -> Tensor:
        """``F(time)``."""

    @abstractmethod
    def log_survival(self, bins: Bins, time: Tensor) -> Tensor:
        """``log S(time)``; -inf where S is 0 by construction."""

    @abstractmethod
    def survival(self, bins: Bins, time: Tensor) -> Tensor:
        """``S(time)``, summed and not through the logarithm: cheap for whole curves."""

    @abstractmethod
    def exhausted(self, grid: Grid, time: Tensor) -> Tensor:
        """Rows at whose time S is 0 by construction, whatever the masses are."""

    @abstractmethod
    def share_after(self, grid: Grid, time: Tensor) -> Tensor:
        """Share of every bin after `time`, ``(..., n, K)``: S is their sum over the masses."""

    @abstractmethod
    def hazard(self, bins: Bins, time: Tensor) -> Tensor:
        """Hazard at `time`."""

    @abstractmethod
    def quantile(self, bins: Bins, p: Tensor) -> Tensor:
        """Time by which a share `p` has had the event."""

    @abstractmethod
    def mean(self, bins: Bins) -> Tensor:
        """Mean of the times that `quantile` draws."""

    @abstractmethod
    def squared_cdf_below(self, bins: Bins, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`."""

    @abstractmethod
    def squared_survival_above(self, bins: Bins, time: Tensor) -> Tensor:
        """Integral of S^2 from `time` on."""


@final
class StepReading(Reading):
    """F(t) is the mass of all bins up to and including the bin of t: a time counts as the end of its bin.

    So F is p_0 in the first bin, from just after zero on, and 1 in the whole last bin.
    """

    def cdf(self, bins: Bins, time: Tensor) -> Tensor:
        """Mass up to and including the bin."""
        value = bins.take(bins.cdf_at_end(), bins.index(time))
        return torch.where(time <= 0, 0.0, value)

    def log_survival(self, bins: Bins, time: Tensor) -> Tensor:
        """Log-mass of the later bins."""
        return torch.where(time <= 0, 0.0, bins.log_mass_after(bins.index(time)))

    def survival(self, bins: Bins, time: Tensor) -> Tensor:
        """Mass of the later bins."""
        value = bins.take(bins.survival_at_end(), bins.index(time))
        return torch.where(time <= 0, 1.0, value)

    def exhausted(self, grid: Grid, time: Tensor) -> Tensor:
        """Every time in the last bin."""
        return grid.index(time) == grid.width.shape[0] - 1

    def share_after(self, grid: Grid, time: Tensor) -> Tensor:
        """Whole bins: those after the one that holds `time`."""
        number = torch.arange(grid.width.shape[0], device=grid.edges.device)
        index = torch.where(time > 0, grid.index(time), -1)
        return (number > index.unsqueeze(-1)).to(grid.edges.dtype)

    def hazard(self, bins: Bins, time: Tensor) -> Tensor:
        """Probability of an event in the bin for those who reached it; 1 in the last bin."""
        index = bins.index(time)
        own = bins.take(bins.log_mass, index)
        return torch.sigmoid(own - bins.log_mass_after(index))

    def quantile(self, bins: Bins, p: Tensor) -> Tensor:
        """End of the first bin with F >= p."""
        return bins.edges[1:][bins.index_of_level(p)]

    def mean(self, bins: Bins) -> Tensor:
        """Sum of mass times the end of the bin."""
        return (bins.mass * bins.edges[1:]).sum(dim=-1)

    def squared_cdf_below(self, bins: Bins, time: Tensor) -> Tensor:
        """Rectangles; the first bin starts at zero, the last never ends."""
        index = bins.index(time)
        starts = torch.cat([torch.zeros_like(bins.edges[:1]), bins.edges[1:-1]])
        height = bins.cdf_at_end().square()
        whole = bins.take(before(height * (bins.edges[1:] - starts)), index)
        return whole + bins.take(height, index) * torch.clamp(time - starts[index], min=0.0)

    def squared_survival_above(self, bins: Bins, time: Tensor) -> Tensor:
        """Rectangles; nothing in the last bin, where S is 0."""
        index = bins.index(time)
        height = bins.survival_at_end().square()
        whole = bins.take(after(height * bins.width), index)
        return whole + bins.take(height, index) * (bins.edges[1:][index] - torch.clamp(time, min=0))


@final
class LinearReading(Reading):
    """F rises in a straight line through each bin: 0 up to the first edge, 1 from the last edge on."""

    def _share(self, bins: Bins, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bin, and the shares of it before and after `time`; each from its own edge, so that neither cancels."""
        index = bins.index(time)
        width = bins.width[index]
        done = torch.clamp((time - bins.edges[:-1][index]) / width, 0.0, 1.0)
        left = torch.clamp((bins.edges[1:][index] - time) / width, 0.0, 1.0)
        return index, done, left

    def cdf(self, bins: Bins, time: Tensor) -> Tensor:
        """Mass of the earlier bins plus the share of this one; the clamp only removes rounding above 1."""
        index, done, _ = self._share(bins, time)
        value = bins.take(bins.cdf_at_start(), index) + bins.take(bins.mass, index) * done
        return torch.clamp(value, max=1.0)

    def log_survival(self, bins: Bins, time: Tensor) -> Tensor:
        """Log of the mass of the later bins plus what is left of this one."""
        index, _, left = self._share(bins, time)
        later, own = bins.log_mass_after(index), bins.take(bins.log_mass, index)
        at_end = left <= 0
        own = torch.where(at_end, -math.inf, own + torch.log(torch.where(at_end, 1.0, left)))
        # Two -inf terms would give a NaN gradient: they are replaced before they are added.
        empty = torch.isneginf(later) & at_end
        total = torch.logaddexp(torch.where(empty, 0.0, later), torch.where(empty, 0.0, own))
        total = torch.where(empty, -math.inf, torch.clamp(total, max=0.0))
        return torch.where(time <= bins.edges[0], 0.0, total)

    def survival(self, bins: Bins, time: Tensor) -> Tensor:
        """Mass of the later bins plus what is left of this one; the clamp only removes rounding above 1."""
        index, _, left = self._share(bins, time)
        value = bins.take(bins.survival_at_end(), index) + bins.take(bins.mass, index) * left
        return torch.clamp(value, max=1.0)

    def exhausted(self, grid: Grid, time: Tensor) -> Tensor:
        """Every time at or after the last edge."""
        return time.to(grid.edges.dtype) >= grid.edges[-1]

    def share_after(self, grid: Grid, time: Tensor) -> Tensor:
        """Straight lines through each bin, measured from its end."""
        left = grid.ends - time.to(grid.edges.dtype).unsqueeze(-1)
        return left.mul_(grid.per_width).clamp_(0.0, 1.0)

    def hazard(self, bins: Bins, time: Tensor) -> Tensor:
        """Density of the bin over survival; infinite from the last edge on."""
        index = bins.index(time)
        log_density = bins.take(bins.log_mass, index) - torch.log(bins.width)[index]
        return torch.exp(log_density - self.log_survival(bins, time))

    def quantile(self, bins: Bins, p: Tensor) -> Tensor:
        """Inverse of the straight line through the bin."""
        index = bins.index_of_level(p)
        mass = bins.take(bins.mass, index)
        share = (p - bins.take(bins.cdf_at_start(), index)) / torch.where(mass > 0, mass, 1.0)
        return bins.edges[:-1][index] + bins.width[index] * torch.clamp(share, 0.0, 1.0)

    def mean(self, bins: Bins) -> Tensor:
        """Sum of mass times the middle of the bin."""
        return bins.midpoint_mean

    def squared_cdf_below(self, bins: Bins, time: Tensor) -> Tensor:
        """Integrals of squared straight lines: length (a^2 + a b + b^2) / 3 between heights a and b."""
        index, done, _ = self._share(bins, time)
        start, end = bins.cdf_at_start(), bins.cdf_at_end()
        whole = bins.take(before(bins.width * _mean_square(start, end)), index)
        first = bins.take(start, index)
        here = first + bins.take(bins.mass, index) * done
        part = bins.width[index] * done * _mean_square(first, here)
        return whole + part + torch.clamp(time - bins.edges[-1], min=0.0)

    def squared_survival_above(self, bins: Bins, time: Tensor) -> Tensor:
        """Integrals of squared straight lines, from the other side; before the first edge S is 1."""
        index, _, left = self._share(bins, time)
        start, end = bins.survival_at_start(), bins.survival_at_end()
        whole = bins.take(after(bins.width * _mean_square(start, end)), index)
        last = bins.take(end, index)
        here = last + bins.take(bins.mass, index) * left
        part = bins.width[index] * left * _mean_square(last, here)
        return whole + part + torch.clamp(bins.edges[0] - torch.clamp(time, min=0), min=0.0)


def _mean_square(a: Tensor, b: Tensor) -> Tensor:
    """Mean of the square of a straight line from height a to height b."""
    return (a * a + a * b + b * b) / 3.0


READINGS: dict[str, Reading] = {"step": StepReading(), "linear": LinearReading()}
