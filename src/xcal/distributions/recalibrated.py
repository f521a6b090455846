"""A distribution whose F went through an increasing map."""

from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from xcal._checks import as_numpy, fail
from xcal.distributions._bins import Bins
from xcal.distributions._pieces import integral
from xcal.distributions.base import SurvivalDistribution, as_level


@final
class RecalibratedDistribution(SurvivalDistribution):
    """``F'(t) = G(F(t))`` with G made of straight lines, as `xcal.recalibration.KaplanMeierRecalibration` gives it.

    For predictions: the middle part of the integrals of the survival CRPS and of the mean is found by quadrature.

    Parameters
    ----------
    base
        The distribution before.
    knots, levels
        F and G(F) at the ends of the straight lines, both increasing from 0 to 1.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> base = Weibull(torch.tensor([1.0]), torch.tensor([1.0]))
    >>> RecalibratedDistribution(base, [0.0, 0.5, 1.0], [0.0, 0.2, 1.0]).cdf(base.median)
    tensor([0.2000])
    """

    def __init__(self, base: SurvivalDistribution, knots: Any, levels: Any) -> None:
        if not isinstance(base, SurvivalDistribution):
            fail("base", "a SurvivalDistribution", type(base).__name__)
        given = {"knots": knots, "levels": levels}
        # As float64: torch takes no array of another byte order.
        found = {name: as_numpy(name, values).astype(np.float64) for name, values in given.items()}
        for name, values in found.items():
            rises = values.ndim == 1 and values.size > 1 and (values[1:] > values[:-1]).all()
            if not rises or values[0] != 0 or values[-1] != 1:
                fail(name, "numbers that increase from 0 to 1", values.tolist())
        if found["knots"].size != found["levels"].size:
            fail("levels", f"{found['knots'].size} numbers, one for each knot", found["levels"].size)
        self.base = base
        like = base.example
        self.knots, self.levels = (torch.as_tensor(v, dtype=like.dtype, device=like.device) for v in found.values())

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the distribution inside."""
        return self.base.batch_shape

    @property
    def example(self) -> Tensor:
        """The knots, which were made so."""
        return self.knots

    def _piece(self, u: Tensor) -> Tensor:
        """Straight line that holds each F; on a knot the one to its right, at 1 the last."""
        return torch.clamp(torch.bucketize(u.detach().contiguous(), self.knots, right=True) - 1, 0, self._last)

    @property
    def _last(self) -> int:
        return self.knots.shape[0] - 2

    @property
    def _slopes(self) -> Tensor:
        return self.levels.diff() / self.knots.diff()

    def _map(self, u: Tensor) -> Tensor:
        piece = self._piece(u)
        return torch.clamp(self.levels[piece] + self._slopes[piece] * (u - self.knots[piece]), 0.0, 1.0)

    def log_prob(self, time: Tensor) -> Tensor:
        """Log-density, or for bins the log-mass of the bin that holds `time` after the map."""
        if self.base.bins is None:
            return self.log_density(time)
        bins = self.base.bins
        mass = self._map(bins.cdf_at_end()) - self._map(bins.cdf_at_start())
        return torch.where(torch.isnan(time), torch.nan, torch.log(bins.take(mass, bins.index(time))))

    def log_density(self, time: Tensor) -> Tensor:
        """Log-density of the base plus the log-slope of the map; read in steps, mass over width of the bin."""
        if self.base.read_in_steps and self.base.bins is not None:
            bins = self.base.bins
            return self.log_prob(time) - torch.log(bins.width)[bins.index(time)]
        slope = torch.log(self._slopes)[self._piece(self.base.cdf(time))]
        return self.base.log_density(time) + slope

    def log_survival(self, time: Tensor) -> Tensor:
        """``log(1 - G(F))``; on the last straight line a multiple of S, exact where F rounds to 1."""
        u = self.base.cdf(time)
        own = torch.log(self._slopes[-1]) + self.base.log_survival(time)
        inside = self._piece(u) < self._last
        return torch.where(inside, torch.log(torch.where(inside, 1 - self._map(u), 1.0)), own)

    def log_censored(self, time: Tensor) -> Tensor:
        """``log_survival``, or where the base has none left the log-mass of its last bin."""
        if self.base.bins is None:
            return self.log_survival(time)
        left = torch.log(1 - self._map(self.base.bins.cdf_at_start()[..., -1]))
        gone = self.base.exhausted(time)
        return torch.where(gone, left, self.log_survival(time))

    def cdf(self, time: Tensor) -> Tensor:
        """``G(F(time))``."""
        return self._map(self.base.cdf(time))

    def hazard(self, time: Tensor) -> Tensor:
        """Density over survival; read in steps, the chance of the bin for those who reach it."""
        if self.base.read_in_steps and self.base.bins is not None:
            bins = self.base.bins
            before = bins.take(self._map(bins.cdf_at_start()), bins.index(time))
            return torch.exp(self.log_prob(time)) / (1 - before)
        return torch.exp(self.log_density(time) - self.log_survival(time))

    def quantile(self, p: float | Tensor) -> Tensor:
        """Quantile of the base at the F that the map sends to `p`."""
        level = as_level(p, self.knots)
        piece = torch.clamp(torch.bucketize(level.detach().contiguous(), self.levels, right=True) - 1, 0, self._last)
        u = self.knots[piece] + (level - self.levels[piece]) / self._slopes[piece]
        return self.base.quantile(torch.clamp(u, 0.0, 1.0))

    @property
    def mean(self) -> Tensor:
        """Integral of S: by quadrature to the last knot, from there on in proportion to that of the base."""
        base = self.base.mean
        points, last = self._points(), self._last_time()
        zero = torch.zeros_like(last)
        here = integral(self.survival, zero, last, points)
        before = integral(self.base.survival, zero, last, points)
        return torch.where(torch.isinf(base), base, here + self._slopes[-1] * torch.clamp(base - before, min=0))

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw by inversion, shape ``shape + batch_shape``."""
        size = torch.Size(shape) + self.batch_shape
        uniform = torch.rand(size, generator=generator, dtype=self.knots.dtype, device=self.knots.device)
        return self.quantile(1.0 - uniform)

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, by quadrature between quantiles of the base."""
        end = torch.clamp(time, min=0)
        return integral(lambda z: self.cdf(z).square(), torch.zeros_like(end), end, self._points())

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` on: by quadrature to the last knot, then in proportion to that of the base."""
        start, last = torch.clamp(time, min=0), self._last_time()
        here = integral(lambda z: self.survival(z).square(), start, last, self._points())
        tail = self.base.squared_survival_above(torch.maximum(start, last), needed)
        return here + self._slopes[-1].square() * tail

    @property
    def bins(self) -> Bins | None:
        """Bins of the base with their masses after the map; None for a continuous one."""
        bins = self.base.bins
        if bins is None:
            return None
        mass = self._map(bins.cdf_at_end()) - self._map(bins.cdf_at_start())
        return Bins(torch.log(mass), bins.grid)

    @property
    def read_in_steps(self) -> bool:
        """As the base says."""
        return self.base.read_in_steps

    def exhausted(self, time: Tensor) -> Tensor:
        """As the base says: the map leaves something wherever the base does."""
        return self.base.exhausted(time)

    def _last_time(self) -> Tensor:
        """Time from which on S is a multiple of that of the base."""
        return self.base.quantile(self.knots[-2]) if self._last > 0 else torch.zeros_like(self.base.median)

    def _points(self) -> Tensor:
        """Find times between which F is smooth: quantiles of the base at the knots and in its tails, and its edges."""
        with torch.no_grad():
            tails = torch.tensor([10.0**k for k in range(-12, 0)], dtype=self.knots.dtype, device=self.knots.device)
            shares = torch.cat([tails, self.knots[1:-1], 1 - tails])
            found = [self.base.quantile(share) for share in shares]
            if self.base.bins is not None:
                found += [edge.expand(found[0].shape) for edge in self.base.bins.edges]
            return torch.stack(torch.broadcast_tensors(*found)).sort(dim=0).values
