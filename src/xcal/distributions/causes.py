"""Events with one of several causes: time bins shared among them, and a hazard for each of them.

Both laws are a law of the time of any event, and beside it say how it divides among the causes: of the events at a time
a share (`log_share`), and of F a part for each (`cumulative_incidence`). Causes are 1, 2, ...; 0 is a censored row.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import Floats, as_causes, as_count, as_numpy, as_time, fail
from xcal.distributions._bins import Rows, likelihood_and_cdf
from xcal.distributions.base import Family, SurvivalDistribution, as_level, can_broadcast, split_zero
from xcal.distributions.discrete import DiscreteDistribution, DiscreteFamily, as_logits


class _ByCause(SurvivalDistribution):
    """The survival CRPS by cause: what both laws have in common."""

    @abstractmethod
    def _squares(self, time: Tensor) -> tuple[Tensor, Tensor]:
        """Integrals from 0 to `time` of F_k and of F_k^2 for every cause, ``(..., n, causes)`` each."""

    @property
    @abstractmethod
    def _crps_end(self) -> Tensor:
        """Last time of the integral behind the survival CRPS."""

    def survival_crps(self, time: Tensor, event: Tensor) -> Tensor:
        r"""Survival CRPS by cause, up to a last time: each F_k against what is known of its cause, squared.

        ``sum_k int_0^y F_k^2``, and for an event of cause c also ``int_y^end (1 - F_c)^2 + sum_{k != c} F_k^2``. Until
        its time nothing has happened to a row, of no cause; after it, its cause has and the others never will. With
        causes the integral has to end: unlike F, which comes to 1, F_k comes to the share of its cause.
        """
        if event.dtype == torch.bool:
            return super().survival_crps(time, event)
        until = torch.minimum(time, self._crps_end)
        below = self._squares(torch.maximum(time, until))[1].sum(-1)
        last_mean, last_square = self._squares(self._crps_end.expand(time.shape).clone())
        here_mean, here_square = self._squares(until)
        own = (event.clamp(min=1) - 1).unsqueeze(-1)

        def of_cause(values: Tensor) -> Tensor:
            shape = torch.broadcast_shapes(values.shape[:-1], own.shape[:-1])
            index = own.expand(*shape, 1)
            return values.expand(*shape, values.shape[-1]).gather(-1, index).squeeze(-1)

        rest = self._crps_end - until
        above = (last_square - here_square).sum(-1) + rest - 2 * (of_cause(last_mean) - of_cause(here_mean))
        return torch.where(event > 0, below + above, below)


# --- Time bins that are shared among the causes.


@final
class CauseBins(DiscreteDistribution, _ByCause):
    """Masses on time bins times causes: ``softmax`` over all of them, the head of DeepHit (Lee et al. 2018).

    Of the time of any event it is the `Categorical` whose bins have the sums over causes. Within a bin the causes keep
    their shares.

    Parameters
    ----------
    logits
        Shape ``(..., n, causes, K)``.
    edges, interpolation
        As for `Categorical`.

    Examples
    --------
    >>> logits = torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])
    >>> dist = CauseBins(logits, [0.0, 1.0, 2.0])
    >>> dist.cdf(torch.tensor([1.0])), dist.cumulative_incidence(torch.tensor([1.5]))
    (tensor([0.5000]), tensor([[0.3750, 0.3750]]))
    """

    def __init__(self, logits: Tensor, edges: Any, interpolation: str = "linear") -> None:
        self.cause_logits = as_logits("logits", logits)
        if self.cause_logits.ndim < 2:
            fail("logits", "shape (..., n, causes, bins)", tuple(logits.shape))
        super().__init__(torch.logsumexp(self.cause_logits, dim=-2), edges, interpolation)

    @property
    def n_causes(self) -> int:
        """How many causes an event may have."""
        return int(self.cause_logits.shape[-2])

    @property
    def cause_log_mass(self) -> Tensor:
        """Log-probability of each bin and cause, ``(..., n, causes, K)``."""
        return torch.log_softmax(self.cause_logits.flatten(-2), dim=-1).view(self.cause_logits.shape)

    def log_share(self, time: Tensor, cause: Tensor) -> Tensor:
        """Log of the share of a cause in the mass of the bin that holds `time`."""
        shares = torch.log_softmax(self.cause_logits, dim=-2)
        index = self._grid.index(time)
        shape = torch.broadcast_shapes(shares.shape[:-2], index.shape, cause.shape)
        place = (cause.clamp(min=1) - 1) * shares.shape[-1] + index
        cells = shares.flatten(-2).expand(*shape, -1)
        value = cells.gather(-1, place.expand(shape).unsqueeze(-1)).squeeze(-1)
        return torch.where(torch.isnan(time), torch.nan, value)

    def cumulative_incidence(self, time: Tensor) -> Tensor:
        """Mass of each cause up to `time`, as the reading counts the bin that holds it."""
        before, mass, done = self._at(time)
        value = before + mass * done.unsqueeze(-1)
        return torch.where(torch.isnan(time).unsqueeze(-1), torch.nan, value)

    def incidence_steps(self) -> Tensor:
        """Return the masses."""
        return torch.exp(self.cause_log_mass)

    def log_likelihood_and_cdf(self, time: Tensor, event: Tensor, *, floor: float = 0.0) -> tuple[Tensor, Tensor]:
        """Both from one array of masses: the cells are bins of a longer categorical law."""
        if event.dtype == torch.bool:
            return super().log_likelihood_and_cdf(time, event, floor=floor)
        grid, (causes, bins) = self._grid, self.cause_logits.shape[-2:]
        own = (event.clamp(min=1) - 1) * bins + grid.index(time)
        exhausted = self._reading.exhausted(grid, time)
        after = self._reading.share_after(grid, time)
        # As in `log_censored`: a row that has outlived the grid tells that it reached the last bin, of any cause.
        last = torch.arange(bins, device=after.device) == bins - 1
        told = after if floor else torch.where(exhausted.unsqueeze(-1), last.to(after.dtype), after)
        shape = (*told.shape[:-1], causes, bins)
        told = told.unsqueeze(-2).expand(shape).flatten(-2)
        log_likelihood, cdf = likelihood_and_cdf(
            *Rows(self.cause_logits.flatten(-2), told, own, (event > 0).expand(own.shape), floor)
        )
        return log_likelihood, torch.where(exhausted, 1.0, cdf)

    def likelihood_by_formula(self, time: Tensor, event: Tensor, *, floor: float = 0.0) -> None:
        """Return nothing: the penalty of causes needs the masses with their graph."""
        return

    def _at(self, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mass of each cause before and in the bin of `time`, ``(..., n, causes)``, and how much of the bin is over."""
        steps = self.incidence_steps()
        before = torch.cumsum(steps, dim=-1) - steps
        index = self._grid.index(time)
        done = 1.0 - self._reading.share_after(self._grid, time).gather(-1, index.unsqueeze(-1)).squeeze(-1)
        if not self.read_in_steps:
            # From the start of the bin, so that what is small keeps its digits.
            start, width = self.edges[:-1][index], self._grid.width[index]
            done = torch.clamp((time.to(start.dtype) - start) / width, 0.0, 1.0)
        return self._pick(before, index), self._pick(steps, index), done

    def _pick(self, values: Tensor, index: Tensor) -> Tensor:
        """Entry of each row's bin, of every cause."""
        shape = torch.broadcast_shapes(values.shape[:-2], index.shape)
        causes, bins = values.shape[-2:]
        chosen = index.expand(shape)[..., None, None].expand(*shape, causes, 1)
        return values.expand(*shape, causes, bins).gather(-1, chosen).squeeze(-1)

    @property
    def _crps_end(self) -> Tensor:
        return self.edges[-1]

    def _squares(self, time: Tensor) -> tuple[Tensor, Tensor]:
        """Rectangles of steps, which start at zero; squares of straight lines otherwise."""
        steps, edges = self.incidence_steps(), self.edges
        high = torch.cumsum(steps, dim=-1)
        low, start = high - steps, edges[:-1]
        if self.read_in_steps:
            low, start = high, torch.cat([torch.zeros_like(edges[:1]), edges[1:-1]])
        width = edges[1:] - start
        index = self._grid.index(time)
        # After the last edge F_k keeps its value.
        length = torch.clamp(time - start[index], min=0.0).to(width.dtype)
        inside = torch.minimum(length, width[index]).unsqueeze(-1)
        first, last = self._pick(low, index), self._pick(high, index)
        here = first + (last - first) * inside / width[index].unsqueeze(-1)
        further = (length.unsqueeze(-1) - inside) * last
        mean = self._pick(_before(width * (low + high) / 2), index) + inside * (first + here) / 2 + further
        square = (low * low + low * high + high * high) / 3 * width
        part = inside * (first * first + first * here + here * here) / 3
        return mean, self._pick(_before(square), index) + part + further * last


def _before(values: Tensor) -> Tensor:
    return torch.cumsum(values, dim=-1) - values


# --- A hazard for each cause.

_nodes, _weights = np.polynomial.legendre.leggauss(4)
_NODES: list[float] = ((_nodes + 1.0) / 2.0).tolist()
_LOG_WEIGHTS: list[float] = np.log(_weights / 2.0).tolist()
_nodes, _weights = np.polynomial.legendre.leggauss(12)
_RULE: list[tuple[float, float]] = list(zip(((_nodes + 1.0) / 2.0).tolist(), (_weights / 2.0).tolist(), strict=True))
# Points of time between which the share of each cause is averaged: where each cause alone would have come to levels
# that are even on the logistic scale, as many for each. For the penalty fewer, as far as one row in thousands.
_POINTS, _STEPS = 36, 12
_REACH = {torch.float32: 14.0, torch.float64: 25.0}
_STEPS_REACH = 9.0
_HALVINGS = 60


@final
class CauseHazards(_ByCause):
    """A hazard for each cause, that of a continuous law; the hazard of any event is their sum.

    S is the product of the S of the laws, and the likelihood has a closed form. Incidences are integrals: between
    points of time what F rises by, which is known exactly, is divided by the mean shares of the causes there (four
    nodes of Gauss and Legendre in log-time). They add up to F exactly, and each is right to about six digits.

    Parameters
    ----------
    parts
        One continuous law for each cause, of the same rows: `Weibull`, `LogNormal`, `LogLogistic`.
    end
        Last time of the integral behind the survival CRPS, which needs one.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> one, other = (Weibull(torch.tensor([scale]), torch.tensor([1.0])) for scale in (1.0, 2.0))
    >>> dist = CauseHazards([one, other])
    >>> dist.survival(torch.tensor([2.0])), torch.exp(torch.tensor([-3.0]))
    (tensor([0.0498]), tensor([0.0498]))
    >>> dist.cumulative_incidence(torch.tensor([1e6]))
    tensor([[0.6667, 0.3333]])
    """

    def __init__(self, parts: Sequence[SurvivalDistribution], end: float | None = None) -> None:
        listed = isinstance(parts, Sequence) and all(isinstance(part, SurvivalDistribution) for part in parts)
        if not listed or len(parts) < 2:
            fail("parts", "two or more distributions, one for each cause", repr(parts))
        for place, part in enumerate(parts):
            if part.bins is not None or not can_broadcast(part.batch_shape, parts[0].batch_shape):
                fail(f"parts[{place}]", "a continuous distribution of the rows of the first", repr(part))
        self.parts, self.end = tuple(parts), end

    @property
    def n_causes(self) -> int:
        """How many causes an event may have."""
        return len(self.parts)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the parts."""
        shape: torch.Size = torch.broadcast_shapes(*(part.batch_shape for part in self.parts))
        return shape

    @property
    def example(self) -> Tensor:
        """That of a part: the median is a search."""
        return self.parts[0].example

    def _each(self, value: Callable[[SurvivalDistribution], Tensor]) -> Tensor:
        """Something of every part, along a first dimension."""
        return torch.stack(torch.broadcast_tensors(*map(value, self.parts)))

    def _log_hazards(self, time: Tensor) -> Tensor:
        """Log-hazard of each cause along a first dimension, at times above zero."""
        return self._each(lambda part: part.log_hazard(time))

    def log_hazard(self, time: Tensor) -> Tensor:
        """Log of the sum of the hazards."""
        safe, at_zero = split_zero(time, self.example)
        value = torch.logsumexp(self._log_hazards(safe), dim=0)
        with torch.no_grad():
            start = torch.logsumexp(self._log_hazards(torch.zeros_like(safe)), dim=0)
        return torch.where(at_zero, start, value)

    def hazard(self, time: Tensor) -> Tensor:
        """Sum of the hazards."""
        return torch.exp(self.log_hazard(time))

    def log_prob(self, time: Tensor) -> Tensor:
        """Log-hazard plus log-survival."""
        return self.log_hazard(time) + self.log_survival(time)

    def log_survival(self, time: Tensor) -> Tensor:
        """Sum of the log-survivals."""
        return self._each(lambda part: part.log_survival(time)).sum(0)

    def survival(self, time: Tensor) -> Tensor:
        """Product of the survivals."""
        return self._each(lambda part: part.survival(time)).prod(0)

    def cdf(self, time: Tensor) -> Tensor:
        """``1 - S``: what the first cause leaves is what the next may take."""
        total = self.parts[0].cdf(time)
        for part in self.parts[1:]:
            total = total + part.cdf(time) * (1 - total)
        return total

    def log_share(self, time: Tensor, cause: Tensor) -> Tensor:
        """Log of the hazard of a cause over that of all."""
        safe, _ = split_zero(time, self.example)
        shares = torch.log_softmax(self._log_hazards(safe), dim=0)
        index = (cause.clamp(min=1) - 1).expand(shares.shape[1:]).unsqueeze(0)
        return shares.gather(0, index).squeeze(0)

    def quantile(self, p: float | Tensor) -> Tensor:
        """Time at which F is `p`: not after the quantile of any part, and not before all of those of ``p / causes``."""
        level = as_level(p, self.example)
        high = self._each(lambda part: part.quantile(level)).amin(0).detach()
        low = self._each(lambda part: part.quantile(level / self.n_causes)).amin(0).detach()
        return self._quantile_between(low, high, level, _HALVINGS)

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """Time at which log S is this, found between those of the parts that have this, or their share of it, left."""
        high = self._each(lambda part: part.quantile_left(log_left)).amin(0).detach()
        low = self._each(lambda part: part.quantile_left(log_left / self.n_causes)).amin(0).detach()
        return self._quantile_left_between(low, high, log_left, _HALVINGS)

    def breaks(self) -> Tensor:
        """Return the points of the incidences."""
        return self._points()

    @property
    def mean(self) -> Tensor:
        """Integral of S by quadrature, and of its tail as that of a power law; infinite where that diverges."""
        falls, last = self._fall(), self._points()[-1]
        here = self._integral(self.survival, torch.zeros_like(last), last)
        finite = falls > 1
        tail = last * self.survival(last) / torch.where(finite, falls - 1, 1.0)
        return torch.where(finite, here + tail, math.inf)

    def _integral(self, function: Callable[[Tensor], Tensor], start: Tensor, stop: Tensor) -> Tensor:
        """Integrate a function that follows the law, between times; zero where they are in the other order."""
        shape = torch.broadcast_shapes(start.shape, stop.shape, self.batch_shape)
        inner = torch.minimum(torch.maximum(self._spread(self._points(), shape), start), torch.maximum(start, stop))
        ends = torch.cat([start.expand(1, *shape), inner, torch.maximum(start, stop).expand(1, *shape)])
        left, width = ends[:-1], ends.diff(dim=0)
        values = (weight * function(left + node * width) for node, weight in _RULE)
        return (width * torch.stack(list(values)).sum(0)).sum(0)

    def _spread(self, points: Tensor, shape: torch.Size) -> Tensor:
        """Put points of the rows beside times of a shape ``(..., n)`` with more leading dimensions."""
        return points.view(-1, *[1] * (len(shape) - len(self.batch_shape)), *self.batch_shape).expand(-1, *shape)

    def _fall(self) -> Tensor:
        """``t h(t)`` at the last point: the power of 1 / t by which S falls there."""
        last = self._points()[-1]
        return last * self.hazard(last)

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw a time for each cause; the first of them comes."""
        draws = [part.sample(generator, shape) for part in self.parts]
        return torch.stack(torch.broadcast_tensors(*draws)).amin(0)

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, by quadrature."""
        end, last = torch.clamp(time, min=0), self._points()[-1]
        before = torch.minimum(end, last)
        return self._integral(lambda z: self.cdf(z).square(), torch.zeros_like(before), before) + (end - before)

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` on: by quadrature, and of its tail as that of a power law."""
        start, end, falls = torch.clamp(time, min=0), self._points()[-1], 2 * self._fall()
        here = self._integral(lambda z: self.survival(z).square(), start, end)
        last = torch.maximum(start, end)
        tail = last * self.survival(last).square() / torch.where(falls > 1, falls - 1, 1.0)
        return torch.where(falls > 1, here + tail, math.inf)

    # --- Incidences: what F rises by between points of time, divided among the causes.

    def _points(self, count: int = _POINTS, reach: float | None = None) -> Tensor:
        """Find points of time that follow the law of each row, ``(causes * count, ..., n)``."""
        like = self.example
        reach = _REACH[like.dtype] if reach is None else reach
        levels = torch.sigmoid(torch.linspace(-reach, reach, count, dtype=like.dtype, device=like.device))
        levels = levels.view(-1, *[1] * len(self.batch_shape))
        with torch.no_grad():
            found = self._each(lambda part: part.quantile(levels))
            # After the first cause that is all but certain nothing is left.
            return torch.minimum(found, found[:, -1].amin(0)).flatten(0, 1).sort(dim=0).values

    def _shares(self, start: Tensor, stop: Tensor, *, roughly: bool = False) -> Tensor:
        """Mean share of each cause in the events between times above zero, along a first dimension.

        Between near times that in their middle is as good, at a fifth of the work.
        """
        log_start, log_stop = torch.log(start), torch.log(stop)
        if roughly:
            return torch.softmax(self._log_hazards(torch.exp((log_start + log_stop) / 2)), dim=0)
        density, shares = [], []
        for node, log_weight in zip(_NODES, _LOG_WEIGHTS, strict=True):
            log_time = log_start + node * (log_stop - log_start)
            time = torch.exp(log_time)
            hazards = self._log_hazards(time)
            together = torch.logsumexp(hazards, dim=0)
            density.append(together + self.log_survival(time) + log_time + log_weight)
            shares.append(torch.exp(hazards - together))
        part = torch.softmax(torch.clamp(torch.stack(density), min=-1e4), dim=0)
        return (part.unsqueeze(1) * torch.stack(shares)).sum(0)

    def _incidence_at(self, points: Tensor, *, roughly: bool = False) -> tuple[Tensor, Tensor]:
        """Return what each cause adds from point to point, ``(causes, points, ..., n)``, and F at the points."""
        smallest = torch.finfo(points.dtype).tiny
        points = points.clamp(min=smallest, max=torch.finfo(points.dtype).max / 4)
        start = torch.cat([points[:1] / 2, points[:-1]])
        level = self.cdf(points)
        # The digits of what is left are those of S.
        survival = self.survival(points)
        rises = torch.where(level[1:] < 0.5, level.diff(dim=0), -survival.diff(dim=0))
        rise = torch.clamp(torch.cat([level[:1], rises]), min=0.0)
        return self._shares(start, points, roughly=roughly) * rise, level

    def step_points(self) -> Tensor:
        """Return points that follow the law of each row."""
        return self._points(_STEPS, _STEPS_REACH)

    def incidence_steps(self) -> Tensor:
        """Return what each cause adds from point to point of time; after the last one it has its share of the rest."""
        points = self.step_points()
        steps, level = self._incidence_at(points, roughly=True)
        rest = torch.softmax(self._log_hazards(points[-1]), dim=0) * (1 - level[-1])
        return torch.cat([steps, rest.unsqueeze(1)], dim=1).movedim((0, 1), (-2, -1))

    def cumulative_incidence(self, time: Tensor) -> Tensor:
        """Sum of the steps up to the last point before `time`, and a part of its own from there on."""
        safe, at_zero = split_zero(time, self.example)
        points = self._points()
        steps, level = self._incidence_at(points)
        shape = torch.broadcast_shapes(safe.shape, self.batch_shape)
        points, level = (self._spread(one, shape) for one in (points, level))
        index = (points <= safe).sum(0)
        known = torch.cat([torch.zeros_like(steps[:, :1]), torch.cumsum(steps, dim=1)], dim=1)
        before = torch.stack([self._spread(own, shape).gather(0, index.unsqueeze(0)).squeeze(0) for own in known])
        place = (index - 1).clamp(min=0).unsqueeze(0)
        start, reached = (one.gather(0, place).squeeze(0) for one in (points, level))
        started = index > 0
        start = torch.where(started, torch.minimum(start, safe), safe / 2).clamp(min=torch.finfo(safe.dtype).tiny)
        rise = torch.clamp(self.cdf(safe) - torch.where(started, reached, 0.0), min=0.0)
        value = before + self._shares(start, safe) * rise
        value = torch.where(torch.isnan(time), torch.nan, torch.where(at_zero, 0.0, value))
        return value.movedim(0, -1)

    @property
    def _crps_end(self) -> Tensor:
        if self.end is None:
            fail("end", "a last time for the survival CRPS of several causes: family(..., causes=2, end=...)", None)
        return self.example.new_tensor(self.end)

    def _squares(self, time: Tensor) -> tuple[Tensor, Tensor]:
        """Integrals of F_k and its square up to a time, piece by piece between the points."""
        stop = torch.clamp(time, min=0.0)
        shape = torch.broadcast_shapes(stop.shape, self.batch_shape)
        points = torch.minimum(self._spread(self._points(), shape), stop)
        ends = torch.cat([points, stop.expand(1, *shape)])
        steps, level = self._incidence_at(ends)
        known = torch.cumsum(steps, dim=1) - steps
        below = torch.cat([torch.zeros_like(level[:1]), level[:-1]])
        starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
        smallest = torch.finfo(ends.dtype).tiny
        mean = square = torch.zeros_like(known[:, 0])
        for node, log_weight in zip(_NODES, _LOG_WEIGHTS, strict=True):
            at = starts + node * (ends - starts)
            begin = torch.cat([at[:1] / 2, starts[1:]])
            shares = self._shares(begin.clamp(min=smallest), at.clamp(min=smallest))
            here = known + shares * torch.clamp(self.cdf(at) - below, min=0.0)
            width = math.exp(log_weight) * (ends - starts)
            mean = mean + (here * width).sum(1)
            square = square + (here * here * width).sum(1)
        return mean.movedim(0, -1), square.movedim(0, -1)


# --- Families.


def _from_hazards(logits: Tensor) -> Tensor:
    """Log-masses of bins and causes, ``(..., n, causes, K)``, from the log-odds of each cause against none.

    The last bin has what is left, divided among the causes by their numbers there.
    """
    inner = logits[..., :-1]
    # Of those who reach a bin: none, or one of the causes.
    rates = torch.log_softmax(torch.cat([torch.zeros_like(inner[..., :1, :]), inner], dim=-2), dim=-2)
    passed = torch.cumsum(rates[..., 0, :], dim=-1)
    reached = torch.cat([torch.zeros_like(passed[..., :1]), passed], dim=-1).unsqueeze(-2)
    last = torch.log_softmax(logits[..., -1:], dim=-2)
    return reached + torch.cat([rates[..., 1:, :], last], dim=-1)


def cause_counts(time: Any, cause: Any, n_causes: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Check training times and causes; each cause needs an event to begin with."""
    times = as_time(time).astype(np.float64)
    causes = as_causes(cause, times.size, n_causes=n_causes)
    for k in range(1, n_causes + 1):
        if not (causes == k).any():
            fail("cause", "at least one event of each cause", f"none of cause {k}")
    return times, causes


@dataclass(frozen=True, eq=False)
class CauseFamily(Family):
    """A family for events with several causes, made of one that does not tell them apart.

    Of a family of time bins the bins times causes have masses: the logits of a categorical family, the scores of an
    MTLR family, or the hazards of a logistic-hazard family, in whose last bin each cause but the first has one number
    for its share. Of a continuous family each cause has a law of its own, whose hazard is that of the cause.

    Parameters
    ----------
    base : Family
    causes : int
        Two or more.
    end : float, optional
        Of continuous laws: the last time of the survival CRPS.

    Examples
    --------
    >>> from xcal.distributions import family
    >>> family("weibull", causes=2).n_outputs, family("categorical", edges=[0.0, 1.0, 2.0], causes=3).n_outputs
    (4, 6)
    """

    base: Family
    causes: int
    end: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "causes", as_count("causes", self.causes, at_least=2, at_most=1000))

    @property
    def n_causes(self) -> int:
        """How many causes an event may have."""
        return self.causes

    @property
    def _bins(self) -> int:
        return self.base.edges.shape[0] - 1 if isinstance(self.base, DiscreteFamily) else 0

    @property
    def _lacking(self) -> int:
        """Raw outputs that the base has fewer than bins."""
        return self._bins - self.base.n_outputs if self._bins else 0

    @property
    def n_outputs(self) -> int:
        """Those of the base for each cause; of time bins, one for every bin and cause, less what the base can spare."""
        return self.causes * self._bins - self._lacking if self._bins else self.causes * self.base.n_outputs

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        base = self.base
        if not isinstance(base, DiscreteFamily):
            parts = raw.unflatten(-1, (self.causes, base.n_outputs)).unbind(-2)
            return CauseHazards([base.distribution(part) for part in parts], self.end)
        if self._lacking:
            first, others = raw[..., : self._bins - 1], raw[..., self._bins - 1 :]
            raw = torch.cat([first, torch.zeros_like(raw[..., :1]), others], dim=-1)
        logits = raw.unflatten(-1, (self.causes, self._bins))
        if base.by_hazards:
            logits = _from_hazards(logits)
        elif self._lacking:
            logits = torch.cumsum(logits.flip(-1), dim=-1).flip(-1)
        return CauseBins(logits, base.grid(raw), base.interpolation)

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Return the start of the base for each cause: its own events for a hazard, its part of each bin for bins."""
        if lower is not None:
            fail("lower", "None beside causes", "times")
        times, causes = cause_counts(time, event, self.causes)
        base = self.base
        if not isinstance(base, DiscreteFamily):
            return torch.cat([base.initial(times, causes == k, entry=entry) for k in range(1, self.causes + 1)])
        edges = as_numpy("edges", base.edges)
        place = np.searchsorted(edges[1:-1], times, side="left")
        counts = np.stack([np.bincount(place[causes == k], minlength=self._bins) for k in range(1, self.causes + 1)])
        # A bin without events has the shares of all events: so do bins after the last of them.
        shares = counts + counts.sum(axis=1, keepdims=True) / counts.sum()
        logits = base.log_shares(times, causes > 0, entry) + np.log(shares / shares.sum(axis=0))
        if not self._lacking:
            return torch.from_numpy(logits.reshape(-1))
        if base.by_hazards:
            later = np.exp(logits).sum(axis=0)[::-1].cumsum()[::-1]
            scores = logits - np.append(np.log(later[1:]), logits[0, -1])
        else:
            logits = logits - logits[0, -1]
            scores = logits - np.append(logits[:, 1:], np.zeros((self.causes, 1)), axis=1)
        return torch.from_numpy(np.delete(scores.reshape(-1), self._bins - 1))

    def to(self, device: torch.device | str) -> "CauseFamily":
        """Put the base on a device."""
        return replace(self, base=self.base.to(device))

    def scaled(self, raw: Tensor, factor: float) -> SurvivalDistribution:
        """Return the distribution of `factor` times the time."""
        end = None if self.end is None else self.end * factor
        if isinstance(self.base, DiscreteFamily):
            return replace(self, base=replace(self.base, edges=self.base.edges * factor)).distribution(raw)
        parts = raw.unflatten(-1, (self.causes, self.base.n_outputs)).unbind(-2)
        return CauseHazards([self.base.scaled(part, factor) for part in parts], end)
