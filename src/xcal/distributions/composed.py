"""Distributions that are made of others: equal mixtures, F behind an increasing map, and the law of survivors."""

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import torch
from torch import Tensor

from xcal._checks import as_numpy, fail
from xcal.distributions._bins import Bins
from xcal.distributions.base import LEVELS, TAILS, SurvivalDistribution, as_level, integral
from xcal.distributions.causes import CauseBins
from xcal.distributions.discrete import Categorical, DiscreteDistribution

# Halvings of the interval in which a quantile lies.
_HALVINGS = 48


def mixture(components: Sequence[SurvivalDistribution]) -> SurvivalDistribution:
    """Mix distributions of the same rows in equal parts: the mean of their F, of their S and of their densities.

    Discrete components on the same edges, read in the same way, make a `Categorical` with the mean of the masses.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> one, other = (Weibull(torch.tensor([scale]), torch.tensor([1.0])) for scale in (1.0, 4.0))
    >>> mixture([one, other]).survival(torch.tensor([2.0])), (one.survival(torch.tensor([2.0])) + 0.6065) / 2
    (tensor([0.3709]), tensor([0.3709]))
    """
    if not isinstance(components, Sequence) or not all(isinstance(one, SurvivalDistribution) for one in components):
        fail("components", "a list of distributions", repr(components))
    if len(components) == 0:
        fail("components", "at least one distribution", "none")
    first = components[0]
    if len(components) == 1:
        return first
    if isinstance(first, DiscreteDistribution):
        return _mixed_bins(components)
    return Mixture(components)


def _mixed_bins(components: Sequence[SurvivalDistribution]) -> DiscreteDistribution:
    first = components[0]
    assert isinstance(first, DiscreteDistribution)
    masses = []
    for place, other in enumerate(components):
        same = isinstance(other, DiscreteDistribution) and other.interpolation == first.interpolation
        if not isinstance(other, DiscreteDistribution) or not (same and torch.equal(other.edges, first.edges)):
            fail(f"components[{place}]", "the time bins of the first, read in the same way", repr(other))
        if isinstance(other, CauseBins) != isinstance(first, CauseBins) or other.n_causes != first.n_causes:
            fail(f"components[{place}]", f"the {first.n_causes} causes of the first", repr(other))
        masses.append(other.cause_log_mass if isinstance(other, CauseBins) else other.log_mass)
    together = torch.logsumexp(torch.stack(torch.broadcast_tensors(*masses)), dim=0) - math.log(len(masses))
    kind = CauseBins if isinstance(first, CauseBins) else Categorical
    return kind(together, first.edges, first.interpolation)


@final
class Mixture(SurvivalDistribution):
    """Equal mixture of continuous distributions of the same rows. Make it with `mixture`.

    For predictions: quantiles are found by halving, and the integrals of the survival CRPS by quadrature between
    quantiles of the components, to about nine digits.
    """

    def __init__(self, components: Sequence[SurvivalDistribution]) -> None:
        for place, component in enumerate(components):
            if component.bins is not None:
                fail(f"components[{place}]", "a continuous distribution (mixture() mixes bins)", repr(component))
            if component.n_causes != components[0].n_causes:
                fail(f"components[{place}]", f"the {components[0].n_causes} causes of the first", repr(component))
        self.components = tuple(components)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the components."""
        empty = (torch.empty(component.batch_shape, device="meta") for component in self.components)
        shape: torch.Size = torch.broadcast_tensors(*empty)[0].shape
        return shape

    @property
    def example(self) -> Tensor:
        """That of a component: the median of a mixture is a search."""
        return self.components[0].example

    def _each(self, value: Callable[[SurvivalDistribution], Tensor]) -> Tensor:
        """Something of every component, along a first dimension."""
        return torch.stack(torch.broadcast_tensors(*map(value, self.components)))

    def _log_mean(self, logs: Tensor) -> Tensor:
        return torch.logsumexp(logs, dim=0) - math.log(len(self.components))

    def log_prob(self, time: Tensor) -> Tensor:
        """Log of the mean density."""
        return self._log_mean(self._each(lambda c: c.log_prob(time)))

    def log_survival(self, time: Tensor) -> Tensor:
        """Log of the mean survival, from the logarithms."""
        return self._log_mean(self._each(lambda c: c.log_survival(time)))

    def cdf(self, time: Tensor) -> Tensor:
        """Mean of F."""
        return self._each(lambda c: c.cdf(time)).mean(0)

    @property
    def n_causes(self) -> int:
        """That of the components."""
        return self.components[0].n_causes

    def cumulative_incidence(self, time: Tensor) -> Tensor:
        """Mean of the incidences."""
        return self._each(lambda c: c.cumulative_incidence(time)).mean(0)

    def log_share(self, time: Tensor, cause: Tensor) -> Tensor:
        """Log of the mean density of a cause over that of all."""
        return self._log_mean(self._each(lambda c: c.log_prob(time) + c.log_share(time, cause))) - self.log_prob(time)

    def survival(self, time: Tensor) -> Tensor:
        """Mean of S."""
        return self._each(lambda c: c.survival(time)).mean(0)

    def hazard(self, time: Tensor) -> Tensor:
        """Mean of the hazards, each weighted by the survival of its component."""
        logs = self._each(lambda c: c.log_survival(time))
        gone = torch.isneginf(logs).all(0)
        share = torch.softmax(torch.where(gone, 0.0, logs), dim=0)
        hazards = self._each(lambda c: c.hazard(time))
        return (share * torch.where(share > 0, hazards, 0.0)).sum(0)

    def quantile(self, p: float | Tensor) -> Tensor:
        """Time at which F is `p`, between the quantiles of the components."""
        level = as_level(p, self.components[0].mean)
        ends = self._each(lambda c: c.quantile(level)).detach()
        return self._quantile_between(ends.amin(0), ends.amax(0), level, _HALVINGS)

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """Time at which log S is this, between those of the components."""
        ends = self._each(lambda c: c.quantile_left(log_left)).detach()
        return self._quantile_left_between(ends.amin(0), ends.amax(0), log_left, _HALVINGS)

    @property
    def mean(self) -> Tensor:
        """Mean of the means."""
        return self._each(lambda c: c.mean).mean(0)

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw a component for each time, and from it the time."""
        draws = torch.stack([component.sample(generator, shape) for component in self.components])
        chosen = torch.randint(len(self.components), draws.shape[1:], generator=generator, device=draws.device)
        return torch.gather(draws, 0, chosen.unsqueeze(0)).squeeze(0)

    def step_points(self) -> Tensor:
        """Those of all components, in order."""
        return torch.cat([component.step_points() for component in self.components]).sort(dim=0).values

    def breaks(self) -> Tensor:
        """Quantiles of all components, in order."""
        with torch.no_grad():
            levels = self.example.new_tensor(LEVELS)
            return torch.cat([_quantiles(component, levels) for component in self.components]).sort(dim=0).values


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
    splits : array-like, shape (stretches, causes), optional
        Of a base with causes: what is added to the log of each cause's share of the events, by stretches of F. The
        shares are then made to add up to 1 again. Without it each cause keeps its share of what F rises by.
    split_knots : array-like, shape (stretches + 1,), optional
        Ends of the stretches, from 0 to 1.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> base = Weibull(torch.tensor([1.0]), torch.tensor([1.0]))
    >>> RecalibratedDistribution(base, [0.0, 0.5, 1.0], [0.0, 0.2, 1.0]).cdf(base.median)
    tensor([0.2000])
    """

    def __init__(
        self, base: SurvivalDistribution, knots: Any, levels: Any, splits: Any = None, split_knots: Any = None
    ) -> None:
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
        ends = [0.0, 1.0] if split_knots is None else as_numpy("split_knots", split_knots).tolist()
        added = np.zeros((1, base.n_causes)) if splits is None else as_numpy("splits", splits)
        if added.shape != (len(ends) - 1, base.n_causes):
            fail("splits", f"shape ({len(ends) - 1}, {base.n_causes}): stretches and causes", f"shape {added.shape}")
        self._split_ends, self._splits = like.new_tensor(ends), like.new_tensor(added.tolist())

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the distribution inside."""
        return self.base.batch_shape

    @property
    def example(self) -> Tensor:
        """The knots, which were made so."""
        return self.knots

    # --- By cause.

    @property
    def n_causes(self) -> int:
        """As the base says."""
        return self.base.n_causes

    def _split(self, u: Tensor, log_shares: Tensor) -> Tensor:
        """Change the log-shares of the causes, ``(..., n, causes)``, of events at these F."""
        stretch = torch.bucketize(u.detach().contiguous(), self._split_ends[1:-1], right=True)
        return torch.log_softmax(log_shares + self._splits[stretch], dim=-1)

    def log_share(self, time: Tensor, cause: Tensor) -> Tensor:
        """Log-share of the base after the change of its stretch."""
        known = [self.base.log_share(time, torch.full_like(cause, k + 1)) for k in range(self.n_causes)]
        shares = self._split(self.base.cdf(time), torch.stack(known, dim=-1))
        index = (cause.clamp(min=1) - 1).expand(shares.shape[:-1])
        return shares.gather(-1, index.unsqueeze(-1)).squeeze(-1)

    def cumulative_incidence(self, time: Tensor) -> Tensor:
        """Divide what the map of F rises by, piece by piece, by the shares of the base after their change."""
        end, points = torch.clamp(time, min=0), self.breaks()
        shape = torch.broadcast_shapes(end.shape, points.shape[1:])
        # All whole pieces once for each row, then the one that holds the time.
        u, known = (_after_zero(values) for values in (self.base.cdf(points), self.base.cumulative_incidence(points)))
        whole = torch.cumsum(_after_zero(self._risen(u[:-1], u[1:], known[1:] - known[:-1])), dim=0)
        starts = points.view(-1, *[1] * (len(shape) - points.ndim + 1), *points.shape[1:])
        last = (starts <= end).sum(dim=0).expand(shape).unsqueeze(0)

        def there(values: Tensor, index: Tensor) -> Tensor:
            fill = [1] * (index.ndim - values.ndim)
            values = values.view(-1, *fill, *values.shape[1:]).expand(-1, *index.shape[1:])
            return values.gather(0, index).squeeze(0)

        by_cause = last.unsqueeze(-1).expand(*last.shape, self.n_causes)
        rise = self.base.cumulative_incidence(end.expand(shape)) - there(known, by_cause)
        return there(whole, by_cause) + self._risen(there(u, last), self.base.cdf(end.expand(shape)), rise)

    def _risen(self, start: Tensor, end: Tensor, steps: Tensor) -> Tensor:
        """Divide the rise of the map between two F of one stretch, given what each cause adds to F there."""
        smallest = torch.finfo(steps.dtype).tiny
        shares = torch.exp(self._split((start + end) / 2, torch.log(torch.clamp(steps, min=smallest))))
        return torch.clamp(self._map(end) - self._map(start), min=0).unsqueeze(-1) * shares

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
        return torch.where(torch.isnan(time), torch.nan, torch.log(bins.take(self._mass(bins), bins.index(time))))

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

    def share_after_entry(self, time: Tensor, entry: Tensor) -> Tensor:
        """Return the share of a bin after the map."""
        bins = self.base.bins
        if bins is None or self.base.read_in_steps:
            return self.base.share_after_entry(time, entry)
        index = bins.index(time)
        start, end = (bins.take(one, index) for one in (bins.cdf_at_start(), bins.cdf_at_end()))
        left = self._map(end) - self._map(torch.minimum(torch.maximum(self.base.cdf(entry), start), end))
        return torch.where(bins.index(entry) < index, 1.0, left / (self._map(end) - self._map(start)))

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

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """On the last straight line 1 - G is a multiple of S, and S has all its digits."""
        inside = log_left > torch.log(1 - self.levels[-2])
        own = self.base.quantile_left(torch.where(inside, 0.0, log_left - torch.log(self._slopes[-1])))
        return torch.where(inside, self.quantile(-torch.expm1(log_left)), own)

    @property
    def mean(self) -> Tensor:
        """Integral of S: by quadrature to the last knot, from there on in proportion to that of the base."""
        base = self.base.mean
        points, last = self.breaks(), self._last_time()
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

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` on: by quadrature to the last knot, then in proportion to that of the base."""
        start, last = torch.clamp(time, min=0), self._last_time()
        here = integral(lambda z: self.survival(z).square(), start, last, self.breaks())
        tail = self.base.squared_survival_above(torch.maximum(start, last), needed)
        return here + self._slopes[-1].square() * tail

    @property
    def bins(self) -> Bins | None:
        """Bins of the base with their masses after the map; None for a continuous one."""
        bins = self.base.bins
        return None if bins is None else Bins(torch.log(self._mass(bins)), bins.grid)

    def _mass(self, bins: Bins) -> Tensor:
        return self._map(bins.cdf_at_end()) - self._map(bins.cdf_at_start())

    @property
    def read_in_steps(self) -> bool:
        """As the base says."""
        return self.base.read_in_steps

    def exhausted(self, time: Tensor) -> Tensor:
        """As the base says: the map leaves something wherever the base does."""
        return self.base.exhausted(time)

    def step_points(self) -> Tensor:
        """Those of the base."""
        return self.base.step_points()

    def _last_time(self) -> Tensor:
        """Time from which on S is a multiple of that of the base."""
        return self.base.quantile(self.knots[-2]) if self._last > 0 else torch.zeros_like(self.base.median)

    def breaks(self) -> Tensor:
        """Find times between which F is smooth: quantiles of the base at the knots and in its tails, and its edges."""
        with torch.no_grad():
            tails = torch.tensor(TAILS, dtype=self.knots.dtype, device=self.knots.device)
            shares = torch.cat([tails, self.knots[1:-1], self._split_ends[1:-1], 1 - tails])
            found = _quantiles(self.base, shares)
            if self.base.bins is not None:
                edges = self.base.bins.edges
                found = torch.cat([found, edges.view(-1, *[1] * (found.ndim - 1)).expand(-1, *found.shape[1:])])
            return found.sort(dim=0).values


# What is left without the event at the ends of the pieces by which the mean of a heavy tail is integrated.
_FAR = (*TAILS[::-1], 1e-16, 1e-23, 1e-35, 1e-60, 1e-110, 1e-200, 1e-300)


@final
class SurvivorDistribution(SurvivalDistribution):
    """The law of rows that have come as far as `after` without the event: ``S(t) / S(after)`` later, 1 until then.

    Times are counted from the start, as those of the base: the median of somebody who has survived two years is more
    than two years. For predictions: means and the integrals of the survival CRPS are found by quadrature.

    Parameters
    ----------
    base
        The distribution from the start, of shape ``(..., n)``.
    after
        Time that was reached, zero or larger; broadcasts to ``(..., n)``. Where the base has S = 0 there, everything
        is NaN.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> base = Weibull(torch.tensor([1.0]), torch.tensor([1.0]))  # an exponential law does not age
    >>> survivor = SurvivorDistribution(base, torch.tensor(2.0))
    >>> survivor.survival(torch.tensor([3.0])), survivor.median - 2
    (tensor([0.3679]), tensor([0.6931]))
    """

    def __init__(self, base: SurvivalDistribution, after: Any) -> None:
        if not isinstance(base, SurvivalDistribution):
            fail("base", "a SurvivalDistribution", type(base).__name__)
        like = base.example
        self.base = base
        self.after = torch.as_tensor(after, dtype=like.dtype, device=like.device).expand(base.batch_shape)
        reached = base.log_survival(self.after)
        # Nobody is there, and nothing can be said of nobody.
        self._reached = torch.where(torch.isneginf(reached), torch.nan, reached)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the distribution from the start."""
        return self.base.batch_shape

    @property
    def example(self) -> Tensor:
        """The times that were reached, which were made so."""
        return self.after

    @property
    def n_causes(self) -> int:
        """As the base says."""
        return self.base.n_causes

    def log_share(self, time: Tensor, cause: Tensor) -> Tensor:
        """As the base says: who came this far does not change the hazards."""
        return self.base.log_share(time, cause)

    def cumulative_incidence(self, time: Tensor) -> Tensor:
        """Incidence of each cause after `after` and by `time`."""
        since = self.base.cumulative_incidence(torch.maximum(time, self.after))
        rise = torch.clamp(since - self.base.cumulative_incidence(self.after), min=0.0)
        return rise * torch.exp(-self._reached).unsqueeze(-1)

    def log_survival(self, time: Tensor) -> Tensor:
        """``log S(time) - log S(after)``, 0 until `after`."""
        return torch.clamp(self.base.log_survival(torch.maximum(time, self.after)) - self._reached, max=0.0)

    def cdf(self, time: Tensor) -> Tensor:
        """Probability of an event after `after` and by `time`."""
        return 0.0 - torch.expm1(self.log_survival(time))

    def log_prob(self, time: Tensor) -> Tensor:
        """Log-density, or for bins the log of what the bin that holds `time` has after `after`."""
        bins = self.bins
        if bins is None:
            return self.log_density(time)
        return torch.where(torch.isnan(time), torch.nan, bins.take(bins.log_mass, bins.index(time)))

    def log_density(self, time: Tensor) -> Tensor:
        """Log-density of the base less ``log S(after)``; -inf until `after`."""
        return torch.where(self._none_at(time), -math.inf, self.base.log_density(time) - self._reached)

    def log_censored(self, time: Tensor) -> Tensor:
        """As the base says, less ``log S(after)``."""
        return torch.clamp(self.base.log_censored(torch.maximum(time, self.after)) - self._reached, max=0.0)

    def share_after_entry(self, time: Tensor, entry: Tensor) -> Tensor:
        """Of what a bin has after `after`, the share that lies after `entry`."""
        own = self.base.share_after_entry(time, self.after)
        later = self.base.share_after_entry(time, torch.maximum(entry, self.after))
        return torch.where(own > 0, later / torch.where(own > 0, own, 1.0), 0.0)

    def hazard(self, time: Tensor) -> Tensor:
        """Hazard of the base; 0 until `after`."""
        return torch.where(self._none_at(time), 0.0, self.base.hazard(time))

    def _none_at(self, time: Tensor) -> Tensor:
        """Whether nothing can happen at a time: until `after`, and in steps to the end of its bin."""
        none = time <= self.after
        return none | (self.cdf(time) == 0) if self.read_in_steps else none

    def quantile(self, p: float | Tensor) -> Tensor:
        """Time by which a share `p` of those who have come this far has had the event."""
        return self.quantile_left(torch.log1p(-as_level(p, self.after)))

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """Time at which the base has fallen to ``log S(after)`` plus this."""
        found = torch.maximum(self.base.quantile_left(self._reached + log_left), self.after)
        return torch.where(torch.isnan(self._reached), torch.nan, found)

    @property
    def mean(self) -> Tensor:
        """Mean time of the event, `after` included."""
        bins = self.bins
        if bins is not None and self.read_in_steps:
            return (bins.mass * bins.edges[1:]).sum(-1)
        if bins is not None:
            return self.restricted_mean(bins.edges[-1].expand(self.batch_shape))
        with torch.no_grad():
            levels = self.after.new_tensor([*(math.log1p(-share) for share in (*TAILS, 0.5)), *map(math.log, _FAR)])
            points = torch.stack([self.quantile_left(level.expand(self.batch_shape)) for level in levels])
            limits = torch.finfo(points.dtype)
            points = torch.clamp(points, limits.tiny, limits.max / 4)
            inner = torch.minimum(torch.maximum(self.breaks(), points[0]), points[-1])
            points = torch.cat([points, inner]).sort(dim=0).values
        # Until the first point S is 1; from there on in log-time, in which no tail is long.
        ends = torch.log(points)
        bent = integral(lambda v: self.survival(torch.exp(v)) * torch.exp(v), ends[0], ends[-1], ends)
        # Beyond the last point as a power of time, which any other tail outruns by far.
        power = points[-1] * self.hazard(points[-1]) - 1
        tail = torch.where(power > 0, points[-1] * self.survival(points[-1]) / torch.where(power > 0, power, 1.0), 0.0)
        return torch.where(torch.isinf(self.base.mean), math.inf, points[0] + bent + tail)

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw by inversion, shape ``shape + batch_shape``."""
        size = torch.Size(shape) + self.batch_shape
        uniform = torch.rand(size, generator=generator, dtype=self.after.dtype, device=self.after.device)
        return self.quantile_left(torch.log1p(-uniform))

    @property
    def bins(self) -> Bins | None:
        """Bins of the base with what each has after `after`; None for a continuous one."""
        bins = self.base.bins
        if bins is None:
            return None
        # The first bin also holds what lies before its edge, and the last what lies after.
        inner = bins.edges[1:-1].view(-1, *[1] * len(self.batch_shape)).expand(-1, *self.batch_shape)
        ones = torch.ones_like(self._reached).unsqueeze(0)
        left = torch.cat([ones, self.survival(inner), 0 * ones])
        return Bins(torch.log(torch.clamp(-left.diff(dim=0), min=0).movedim(0, -1)), bins.grid)

    @property
    def read_in_steps(self) -> bool:
        """As the base says."""
        return self.base.read_in_steps

    def exhausted(self, time: Tensor) -> Tensor:
        """As the base says."""
        return self.base.exhausted(time)

    def breaks(self) -> Tensor:
        """Return times of the base, from `after` on, and own quantiles where S is smooth."""
        with torch.no_grad():
            found = [torch.maximum(self.base.breaks(), self.after), self.after.unsqueeze(0)]
            if self.base.bins is None:
                found += [self.quantile(level).unsqueeze(0) for level in LEVELS]
            return torch.nan_to_num(torch.cat(found), posinf=torch.finfo(self.after.dtype).max).sort(dim=0).values


def _quantiles(law: SurvivalDistribution, levels: Tensor) -> Tensor:
    """Quantiles at several levels, (levels, ..., n), by one search."""
    shape = law.batch_shape
    return law.quantile(levels.view(-1, *[1] * len(shape)).expand(-1, *shape))


def _after_zero(values: Tensor) -> Tensor:
    """Put a zero before the first dimension."""
    return torch.cat([torch.zeros_like(values[:1]), values])
