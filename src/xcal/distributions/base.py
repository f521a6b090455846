"""The interfaces of a survival distribution and of a family of them, and what several distributions share."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import BoolArray, as_event, as_time, fail
from xcal._kaplan_meier import fit_kaplan_meier, fit_turnbull, product_limit
from xcal.distributions._bins import Bins, LikelihoodByFormula

# --- Integrals over time, piece by piece between quantiles: for distributions that are made of others.

_roots, _weights = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = (_roots + 1.0) / 2.0, _weights / 2.0


# Levels between whose quantiles F is smooth and not steep.
TAILS = tuple(10.0**k for k in range(-12, 0))
LEVELS = (*TAILS, 0.25, 0.5, 0.75, *(1 - share for share in TAILS[::-1]))


def integral(
    function: Callable[[Tensor], Tensor], start: Tensor, stop: Tensor, points: Tensor, *, straight: bool = False
) -> Tensor:
    """Integrate a function of times ``(..., n)`` from `start` to `stop`, zero where they are in the other order.

    `points` ``(k, ..., n)`` ascend along the first dimension. Between neighbours the function is smooth, and sixteen
    nodes each are enough, or one where it is a `straight` line; outside of `start` and `stop` they do not count.
    """
    nodes = torch.as_tensor([0.5] if straight else _NODES, dtype=points.dtype, device=points.device)
    weights = torch.as_tensor([1.0] if straight else _WEIGHTS, dtype=points.dtype, device=points.device)
    upper = torch.maximum(start, stop)
    shape = torch.broadcast_tensors(upper, points.new_empty(points.shape[1:]))[0].shape
    inner = torch.minimum(torch.maximum(points.expand(-1, *shape), start), upper)
    ends = torch.cat([start.expand(shape).unsqueeze(0), inner, upper.expand(shape).unsqueeze(0)])
    total = torch.zeros(shape, dtype=points.dtype, device=points.device)
    for left, right in pairwise(ends):
        width = right - left
        for node, weight in zip(nodes, weights, strict=True):
            total = total + weight * width * function(left + node * width)
    return total


# --- Initial values from training times: a probability plot for the continuous families, bin shares for the discrete.
# Both go through the Kaplan-Meier curve, so that censored rows count for what they are.

_Floats = npt.NDArray[np.float64]


def checked(time: object, event: object) -> tuple[_Floats, BoolArray]:
    """Check the training times of a public function; at least one event is needed to place anything."""
    times = as_time(time).astype(np.float64)
    events = as_event(event, times.shape[0], reference="time")
    if not events.any():
        fail("event", "at least one event, for a first guess", "none: every row is censored")
    return times, events


# Steps towards Turnbull's estimate: a start need not be at its end.
_STEPS = 200


def _event_curve(time: _Floats, event: BoolArray, entry: Any, lower: Any) -> tuple[_Floats, _Floats]:
    """Distinct event times, and the Kaplan-Meier curve just after each; of intervals, their middles and Turnbull's."""
    if lower is not None:
        known = np.where(event, np.asarray(lower, dtype=np.float64), time)
        ends = np.where(event, time, np.inf)
        starts, ends, mass, _ = fit_turnbull(known, ends, np.full(time.size, 1 / time.size), steps=_STEPS)
        some = (time.size * mass > 1e-3) & np.isfinite(ends)
        return (starts[some] + ends[some]) / 2, np.clip(1.0 - np.cumsum(mass)[some], 0.0, 1.0)
    if entry is None:
        curve = fit_kaplan_meier(time, event)
        drops = curve.counts > 0
        return curve.times[drops], curve.survival[drops]
    curve = fit_kaplan_meier(time, event, entry=np.asarray(entry, dtype=np.float64))
    drops = curve.counts > 0
    # One more at risk: where the first row that entered is alone and has the event, nothing would be left.
    return curve.times[drops], product_limit(curve.counts[drops], curve.at_risk[drops] + 1)


def location_and_scale(
    time: object, event: object, entry: Any, lower: Any, quantile: Callable[[_Floats], _Floats]
) -> tuple[float, float]:
    """Location and scale of log-time by a probability plot.

    Log event times are regressed on the standard law's quantiles at the Kaplan-Meier estimate of F, taken half-way
    up each step so that it stays inside (0, 1). One distinct event time says nothing about the scale: it is then 1.
    """
    times, events = checked(time, event)
    zero = events & (times <= 0)
    if zero.any():
        fail(
            "time",
            "event times larger than zero (a continuous family has no likelihood for an event at time zero; move such "
            "rows to a small positive time or use a discrete family)",
            times[zero][0],
            int(np.argmax(zero)),
        )
    distinct, survival = _event_curve(times, events, entry, lower)
    middle = 1.0 - (np.concatenate([[1.0], survival[:-1]]) + survival) / 2.0
    z, log_time = quantile(middle), np.log(distinct)
    spread = np.sum((z - z.mean()) ** 2)
    scale = float(np.sum((z - z.mean()) * log_time) / spread) if distinct.size > 1 else 1.0
    return float(log_time.mean() - scale * z.mean()), scale


def bin_logits(time: object, event: object, entry: Any, lower: Any, edges: _Floats) -> _Floats:
    """Log-shares of the bins under the Kaplan-Meier curve.

    Half a row is added to every bin (Jeffreys' prior), so that an empty one starts small and not at minus infinity.
    What the curve leaves after its last event goes to the last bin.
    """
    times, events = checked(time, event)
    distinct, survival = _event_curve(times, events, entry, lower)
    drops = -np.diff(np.concatenate([[1.0], survival]))
    n_bins = edges.size - 1
    index = np.searchsorted(edges[1:-1], distinct, side="left")
    share = np.bincount(index, weights=drops, minlength=n_bins)
    share[-1] += survival[-1]
    logits: _Floats = np.log((times.size * share + 0.5) / (times.size + 0.5 * n_bins))
    return logits


# --- The interface of every survival distribution, and the shape checks of its methods.
# A distribution is a bundle of parameter tensors of shape ``(..., n)``: ``n`` rows, any leading dimensions counting
# models. Its numeric methods take times of shape ``(n,)`` or ``(..., n)``, are pure torch without a data-dependent
# branch (so that they run under ``torch.func.vmap``, ``torch.compile`` and autocast), and check no values: a NaN time
# gives NaN, a time at or below zero gives the value at zero.


class SurvivalDistribution(ABC):
    """A distribution of positive times, one for each row.

    The abstract methods are the contract; the others follow from them. ``log_prob`` is a log-density for a continuous
    distribution and the log-mass of a bin for a discrete one; ``log_density`` is a log-density for both.

    Types and shapes of the parameters are checked, their values are not, nor is what the methods are given: both come
    from every step of training. Parameters of no distribution (a scale of zero, infinity, NaN) give NaN, and training
    reports the loss that was no number.
    """

    @property
    @abstractmethod
    def batch_shape(self) -> torch.Size:
        """Shape ``(..., n)`` of the parameters: models, then rows."""

    @abstractmethod
    def log_prob(self, time: Tensor) -> Tensor:
        """Log-density at `time`; for a discrete distribution the log-mass of the bin that holds `time`."""

    @abstractmethod
    def log_survival(self, time: Tensor) -> Tensor:
        """``log S(time)`` from its own stable formula, never as ``log(1 - F)``."""

    @abstractmethod
    def cdf(self, time: Tensor) -> Tensor:
        """``F(time)``, the probability of an event by `time`."""

    @abstractmethod
    def hazard(self, time: Tensor) -> Tensor:
        """Density over survival at `time` (a conditional bin probability where the distribution says so)."""

    @abstractmethod
    def quantile(self, p: float | Tensor) -> Tensor:
        """Time by which a share `p` has had the event; `p` broadcasts against ``(..., n)``."""

    @property
    @abstractmethod
    def mean(self) -> Tensor:
        """The whole mean, not a restricted one; infinite where the integral diverges."""

    @abstractmethod
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw times of shape ``shape + batch_shape``, without gradient, from `generator` (on the same device)."""

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of ``F(z)^2`` for z from 0 to `time`: what a censored row adds to the survival CRPS."""
        end = torch.clamp(time, min=0)
        return integral(lambda z: self.cdf(z).square(), torch.zeros_like(end), end, self.breaks())

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of ``S(z)^2`` for z from `time` to infinity: what an event adds to that.

        Here by quadrature as far as there is a chance of 1e-12 to reach. Rows that are not `needed` may hold any finite
        number. It can overflow where S falls slowly; the gradient of an infinite number that nobody asked for would be
        NaN.
        """
        points, start = self.breaks(), torch.clamp(time, min=0)
        return integral(lambda z: self.survival(z).square(), start, points[-1].expand(start.shape), points)

    def log_hazard(self, time: Tensor) -> Tensor:
        """Log of ``hazard`` of a continuous distribution."""
        return self.log_prob(time) - self.log_survival(time)

    def log_density(self, time: Tensor) -> Tensor:
        """Log-density at `time`: ``log_prob`` for a continuous distribution, log(mass / width) for a discrete one."""
        return self.log_prob(time)

    def log_censored(self, time: Tensor) -> Tensor:
        """Log-probability of what a row censored at `time` tells: ``log_survival``, unless that cannot be finite."""
        return self.log_survival(time)

    def log_likelihood_and_cdf(self, time: Tensor, event: Tensor, *, floor: float = 0.0) -> tuple[Tensor, Tensor]:
        """Both things that a training step asks of each row: its log-likelihood and its ``cdf``.

        The log-likelihood is ``log_prob`` of an event and ``log_censored`` of a censored row. With a `floor` above zero
        a censored row contributes ``log(S + floor)`` instead. Where they share work a class computes them together.
        Times are finite here, and constants to the gradient.
        """
        censored = torch.log(self.survival(time) + floor) if floor else self.log_censored(time)
        return torch.where(event > 0, self.log_event(time, event), censored), self.cdf(time)

    def likelihood_by_formula(self, time: Tensor, event: Tensor, *, floor: float = 0.0) -> LikelihoodByFormula | None:
        """`log_likelihood_and_cdf` with their gradient by formula, for a caller without autograd; None if unknown."""
        return None

    # --- Rows that are seen in part: from an entry on, or between two times.

    def share_after_entry(self, time: Tensor, entry: Tensor) -> Tensor:
        """Share of what `log_prob` gives an event at `time` that lies after `entry`: 1, unless both are in one bin."""
        return torch.ones_like(time)

    def log_between(self, start: Tensor, stop: Tensor) -> Tensor:
        """``log(F(stop) - F(start))``, with all digits in both tails; in a bin without parts its `log_prob`."""
        first = self.log_survival(start)
        none = torch.isneginf(first)
        fall = torch.where(none, 0.0, first - self.log_survival(stop))
        value = torch.where(none, -math.inf, first + log_one_less_exp(fall))
        return value if self.bins is None else torch.where(torch.isneginf(value), self.log_prob(stop), value)

    # --- By cause. Where an event has one of several causes, `event` may be the cause, a whole number: 1, 2, ..., or 0
    # for a censored row. A boolean one asks for an event of any cause.

    @property
    def n_causes(self) -> int:
        """How many causes an event may have; 1 where they are not told apart."""
        return 1

    def cumulative_incidence(self, time: Tensor) -> Tensor:
        """Probability of an event of each cause by `time`, ``(..., n, causes)``; together they are ``cdf``."""
        return self.cdf(time).unsqueeze(-1)

    def log_share(self, time: Tensor, cause: Tensor) -> Tensor:
        """Log of the share of a cause, 1, 2, ..., in the events at `time`; of cause 0 any finite number."""
        return torch.zeros_like(self.log_prob(time))

    def incidence_steps(self) -> Tensor:
        """Return what each cause adds to F from point to point of time, up to its end, ``(..., n, causes, points)``.

        Between two points all causes rise in proportion to F. All steps of a row add up to 1.
        """
        if self.n_causes == 1:
            return torch.ones_like(self.example).expand(self.batch_shape)[..., None, None]
        points = self.step_points()
        known = self.cumulative_incidence(points)
        steps = torch.clamp(known.diff(dim=0, prepend=torch.zeros_like(known[:1])), min=0.0)
        # After the last point each cause has its share of the rest.
        last = points[-1]
        causes = [torch.full(last.shape, k, dtype=torch.int64, device=last.device) for k in range(1, self.n_causes + 1)]
        shares = torch.softmax(torch.stack([self.log_share(last, k) for k in causes], dim=-1), dim=-1)
        rest = shares * torch.clamp(1 - steps.sum((0, -1)), min=0.0).unsqueeze(-1)
        return torch.cat([steps, rest.unsqueeze(0)]).movedim(0, -1)

    def step_points(self) -> Tensor:
        """Return the points of time of `incidence_steps`, ``(k, ..., n)``, ascending."""
        return self.breaks()

    def log_event(self, time: Tensor, cause: Tensor, *, density: bool = False) -> Tensor:
        """``log_prob``, or the log-`density`, of an event of a cause; of any cause, if `cause` is boolean."""
        value = self.log_density(time) if density else self.log_prob(time)
        return value if cause.dtype == torch.bool else value + self.log_share(time, cause)

    @property
    def bins(self) -> Bins | None:
        """Masses and edges of a distribution on time bins; None for a continuous one."""
        return None

    @property
    def read_in_steps(self) -> bool:
        """Whether F rises in steps, as it does on bins that are not interpolated."""
        return False

    def exhausted(self, time: Tensor) -> Tensor:
        """Mark rows at whose time S is 0 by construction, whatever the parameters are; none, if it never is."""
        return torch.zeros_like(time, dtype=torch.bool)

    def survival(self, time: Tensor) -> Tensor:
        """``S(time)``, the probability of no event by `time`."""
        return torch.exp(self.log_survival(time))

    def quantile_left(self, log_left: Tensor) -> Tensor:
        """Time at which ``log S`` has fallen to `log_left`: a quantile with all digits where S is small, too."""
        return self.quantile(-torch.expm1(log_left))

    def breaks(self) -> Tensor:
        """Return times ``(k, ..., n)``, ascending, between which S is smooth, or a straight line if there are bins."""
        with torch.no_grad():
            found = torch.stack(torch.broadcast_tensors(*(self.quantile(level) for level in LEVELS)))
            return torch.nan_to_num(found, posinf=torch.finfo(found.dtype).max)

    def restricted_mean(self, time: Tensor) -> Tensor:
        """Mean of the time until the event or until `time`, whichever is first: the integral of S from 0 to `time`."""
        end = torch.clamp(time, min=0)
        return integral(self.survival, torch.zeros_like(end), end, self.breaks(), straight=self.bins is not None)

    @property
    @final
    def median(self) -> Tensor:
        """Time by which half have had the event."""
        return self.quantile(0.5)

    @property
    def example(self) -> Tensor:
        """A tensor of the type, and on the device, of all that the distribution returns."""
        return self.median

    def survival_crps(self, time: Tensor, event: Tensor) -> Tensor:
        """Survival CRPS, one value per row: ``int_0^y F^2 + event * int_y^inf S^2`` (x-cal, appendix on survival CRPS).

        A ``where`` and not a product: the right integral of an event may be infinite, and infinity times zero is NaN.
        """
        below = self.squared_cdf_below(time)
        return torch.where(event, below + self.squared_survival_above(time, event), below)

    def _quantile_between(self, low: Tensor, high: Tensor, level: Tensor, halvings: int) -> Tensor:
        """Quantile of a law without a formula for it, between two times."""
        return _search(
            lambda time: self.cdf(time) - level, lambda time: torch.exp(self.log_prob(time)), low, high, halvings
        )

    def _quantile_left_between(self, low: Tensor, high: Tensor, log_left: Tensor, halvings: int) -> Tensor:
        """`quantile_left` of a law without a formula for it, between two times."""
        return _search(lambda time: log_left - self.log_survival(time), self.hazard, low, high, halvings)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={tuple(self.batch_shape)})"


def log_one_less_exp(fall: Tensor) -> Tensor:
    """``log(1 - exp(-fall))`` of numbers that are zero or larger; -inf at zero, without a gradient."""
    some = fall > 0
    safe = torch.where(some, fall, 1.0)
    small = safe < math.log(2.0)
    value = torch.where(small, torch.log(-torch.expm1(-torch.where(small, safe, 0.5))), torch.log1p(-torch.exp(-safe)))
    return torch.where(some, value, -math.inf)


def _search(
    value: Callable[[Tensor], Tensor], slope: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, halvings: int
) -> Tensor:
    """Find where a rising function is 0: by halving, and a step of Newton's method, which also carries the gradient."""
    with torch.no_grad():
        for _ in range(halvings):
            middle = low + (high - low) / 2
            below = value(middle) < 0
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    rate = slope(high)
    # Where there is nothing to divide by, no step.
    usable = (rate > 0) & torch.isfinite(rate) & torch.isfinite(high)
    step = value(torch.where(usable, high, 1.0)) / torch.where(usable, rate, 1.0)
    return torch.where(usable, high - step, high)


def as_parameter(name: str, value: Tensor) -> Tensor:
    """Check that `value` is a floating-point tensor; half precision becomes single.

    Networks under autocast return bfloat16, whose 8 bits cannot hold a time or a probability near 1.
    """
    if not isinstance(value, Tensor):
        fail(name, "a torch tensor", type(value).__name__)
    if not value.is_floating_point() or value.layout != torch.strided:
        fail(name, "a floating-point tensor", f"dtype {value.dtype} of layout {value.layout}")
    return value.float() if value.element_size() < 4 else value


def as_parameters(first: tuple[str, Tensor], second: tuple[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Check two named parameters and broadcast them to one shape ``(..., n)``."""
    a, b = as_parameter(*first), as_parameter(*second)
    if not can_broadcast(a.shape, b.shape):
        fail(second[0], f"a shape that broadcasts with {first[0]} {tuple(a.shape)}", tuple(b.shape))
    if a.device != b.device:
        fail(second[0], f"the device of {first[0]}, {a.device}", b.device)
    a, b = torch.broadcast_tensors(a, b)
    return a, b


def can_broadcast(*shapes: torch.Size) -> bool:
    """Return whether tensors of these shapes can be combined row by row."""
    longest = max(len(shape) for shape in shapes)
    sizes = ({shape[-axis] for shape in shapes if len(shape) >= axis} for axis in range(1, longest + 1))
    return all(len(different - {1}) <= 1 for different in sizes)


def split_zero(time: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """Make times safe for a logarithm: those at or below zero become 1, and are marked.

    The replacement happens before the logarithm: a ``where`` after it would still send NaN gradients back. A NaN time
    is not at or below zero and stays NaN. Whole numbers become numbers of the type of the parameters, `like`.
    """
    at_zero = time <= 0
    if not time.is_floating_point():
        time = time.to(like.dtype)
    return torch.where(at_zero, 1.0, time.float() if time.element_size() < 4 else time), at_zero


def as_level(p: float | Tensor, like: Tensor) -> Tensor:
    """Bring a probability to the dtype and device of the parameters."""
    return torch.as_tensor(p, dtype=like.dtype, device=like.device)


class Family(ABC):
    """Interface of a family: from raw network outputs to a distribution."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """Number of raw outputs per row."""

    @abstractmethod
    def _make(self, raw: Tensor) -> SurvivalDistribution:
        """Turn checked raw outputs into a distribution."""

    @abstractmethod
    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Raw outputs to start from, ``(n_outputs,)`` in float64, given training times and events, or their causes.

        As the bias of a network's last layer they start training from the distribution of the times as a whole:
        Kaplan-Meier's curve, with times of `entry` where there are some, or Turnbull's of events between two times.
        """

    @property
    def n_causes(self) -> int:
        """How many causes an event may have; 1 where they are not told apart."""
        return 1

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
