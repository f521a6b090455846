"""The Kaplan-Meier curve of events or of censorings: the one place that holds the rule, and the sort behind it."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.special import ndtri

from xcal._checks import BoolArray, FloatArray
from xcal._devices import one_thread

# --- Sorting floats by their bits: stable, and several times faster than a comparison sort.

Indices = npt.NDArray[np.int64]
Keys = npt.NDArray[Any]


def sortable(values: FloatArray) -> Keys:
    """Integers in the order of the floats; torch sorts integers by radix.

    Read as an integer, an IEEE 754 number with a clear sign bit is already in order, and one with the sign bit set
    is in reverse order. Adding zero turns -0.0 into 0.0, the two being equal.

    Examples
    --------
    >>> import numpy as np
    >>> np.argsort(sortable(np.array([2.0, -np.inf, -3.0, 0.0])))
    array([1, 2, 3, 0])
    """
    signed = np.int32 if values.dtype == np.float32 else np.int64
    bits: Keys = (values + values.dtype.type(0)).view(signed)
    flip = bits >> (8 * bits.itemsize - 1)
    flip &= np.iinfo(signed).max
    bits ^= flip
    return bits


def sortable_time(time: FloatArray, event: BoolArray) -> Keys:
    """Integers in the order of the times; at one time the events come before the censored rows.

    A row censored at t was still event-free at t, so its own event comes after those seen at t. The censoring bit is
    the lowest one. The bits of a time, which is not negative, fill 63 bits; with the censoring bit they fill all 64,
    and flipping the highest one makes the order of unsigned integers that of signed ones.
    """
    key: Keys = np.add(time, 0.0, dtype=np.float64).view(np.int64)
    key <<= 1
    key |= ~event
    key ^= np.int64(np.iinfo(np.int64).min)
    return key


def is_event_key(keys: Keys) -> BoolArray:
    """Which keys of `sortable_time` stand for events."""
    return np.asarray((keys & 1) == 0)


@one_thread()
def stable_sort(keys: Keys) -> tuple[Keys, Indices]:
    """Sorted keys and the order that sorts them; equal keys keep their order."""
    values, order = torch.sort(torch.from_numpy(keys), stable=True)
    return values.numpy(), order.numpy()


def starts_run(values: Keys) -> BoolArray:
    """Mark, among sorted values, the first of each run of equal ones."""
    starts = np.empty(values.size, dtype=np.bool_)
    starts[0] = True
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


# --- The Kaplan-Meier curve of the events or of the censorings: the one place that holds the rule.
# Metrics, recalibration and the initial values of distributions read their curves here. `xcal.calibration` needs the
# curve of single rows or of cells of a grid, and writes the product again in ``histogram.redistributed``,
# ``significance._censoring_curve`` and ``streaming._uncensored``; ``tests/contracts/test_kaplan_meier.py`` holds
# those three to this one.

Vector = npt.NDArray[np.float64]
Of = Literal["event", "censoring"]


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """A Kaplan-Meier curve: right-continuous, constant between the observed times.

    Attributes
    ----------
    times : array, shape (m,)
        The distinct observed times, ascending.
    survival : array, shape (m,)
        Probability of lasting beyond each of them.
    at_risk, counts : arrays, shape (m,)
        Rows at risk at each time, and how many of them had the event (`of` "event") or were censored ("censoring"); of
        weighted rows, their weights.
    of : str
        Whether the curve is that of the event times or that of the censoring times.
    log_variance : array, shape (m,), or None
        Of weighted rows, the design-based variance of the log of the curve at each time; None for Greenwood's.
    """

    times: Vector = field(repr=False)
    survival: Vector = field(repr=False)
    at_risk: Vector = field(repr=False)
    counts: Vector = field(repr=False)
    of: Of
    log_variance: Vector | None = field(default=None, repr=False)

    def at(self, t: FloatArray | float) -> Vector:
        """Probability of lasting beyond t; beyond the last observed time, the last value."""
        return self._step(t, "right")

    def before(self, t: FloatArray | float) -> Vector:
        """Probability of lasting until t or longer, the limit from the left."""
        return self._step(t, "left")

    def variance(self, t: FloatArray | float) -> Vector:
        """Greenwood's variance of the curve at t, of weighted rows the design-based one; zero where the curve is."""
        if self.log_variance is None:
            total = np.concatenate([[0.0], np.cumsum(greenwood_terms(self.counts, self.at_risk))])
        else:
            total = np.concatenate([[0.0], self.log_variance])
        index = np.searchsorted(self.times, np.asarray(t, dtype=np.float64), side="right")
        return np.asarray(self.at(t) ** 2 * total[index])

    def interval(self, t: FloatArray | float, level: float) -> tuple[Vector, Vector]:
        """Interval of the curve at t by its variance, on the log(-log) scale; NaN where the curve is 0 or 1."""
        value = self.at(t)
        inside = (value > 0) & (value < 1)
        log = np.log(np.where(inside, value, 0.5))
        error = np.sqrt(self.variance(t)) / (np.where(inside, value, 0.5) * np.abs(log))
        reach = float(ndtri((1 + level) / 2)) * error
        low, high = (np.where(inside, np.exp(log * np.exp(side * reach)), np.nan) for side in (1, -1))
        return low, high

    def _step(self, t: Any, side: Literal["left", "right"]) -> Vector:
        passed = np.searchsorted(self.times, np.asarray(t, dtype=np.float64), side=side)
        return np.asarray(np.where(passed > 0, self.survival[passed - 1], 1.0))


def fit_kaplan_meier(
    time: FloatArray,
    event: BoolArray,
    of: Of = "event",
    weights: Vector | None = None,
    *,
    entry: FloatArray | None = None,
) -> KaplanMeier:
    """Kaplan-Meier curve of checked data: times zero or larger, without NaN.

    With times of `entry` a row is at risk after its entry only: those who had the event before they would have entered
    are not among the rows.

    At one time the events come first: rows censored at t are at risk of the events at t, and rows with an event at t
    are no longer at risk of being censored there. With F in place of the time, the curve is on the scale of F.

    With `weights` a row counts as often as its weight says in the curve, and as one observation in its variance.
    """
    keys, order = stable_sort(sortable_time(time, event))
    sorted_time = time[order].astype(np.float64, copy=False)
    starts = np.flatnonzero(starts_run(sorted_time))
    happened = is_event_key(keys)
    if weights is None:
        events = np.add.reduceat(happened.astype(np.float64), starts)
        censored = np.diff(np.append(starts, time.size)) - events
        later = None if entry is None else later_entries(sorted_time[starts], entry)
        return curve_of_counts(sorted_time[starts], events, censored, of, later=later)
    assert entry is None, "no weights beside times of entry"
    own = weights[order]
    events, censored = (np.add.reduceat(np.where(kind, own, 0.0), starts) for kind in (happened, ~happened))
    curve = curve_of_counts(sorted_time[starts], events, censored, of)
    return replace(curve, log_variance=_design_variance(curve, happened, own, starts))


def later_entries(times: Vector, entry: FloatArray) -> Vector:
    """Return how many rows have not entered before each time: who enters at t is at risk after t."""
    return np.asarray(entry.size - np.searchsorted(np.sort(entry), times, side="left"), dtype=np.float64)


def greenwood_terms(counts: Vector, at_risk: Vector) -> Vector:
    """Terms d / (r (r - d)) of Greenwood's sum; zero where nobody is left."""
    left = at_risk - counts
    return np.divide(counts, at_risk * left, out=np.zeros_like(left), where=left > 0)


def _design_variance(curve: KaplanMeier, happened: BoolArray, weights: Vector, starts: npt.NDArray[np.int64]) -> Vector:
    """Variance of the log of a weighted curve after each time: the sum of squares of the rows' influences.

    A row of weight w changes the log of the curve by w times the sum, over the times up to its own, of d / (r (r - d)),
    less w / (r - d) at the time of its event. What it does until t is settled at its observed time or at t.
    """
    counted = happened if curve.of == "event" else ~happened
    place = np.repeat(np.arange(curve.times.size), np.diff(np.append(starts, weights.size)))
    passed = np.cumsum(greenwood_terms(curve.counts, curve.at_risk))
    left = curve.at_risk - curve.counts
    step = np.divide(1.0, left, out=np.zeros_like(left), where=left > 0)
    # With an event at t a row is no longer at risk of being censored at t.
    known = passed if curve.of == "event" else np.append(0.0, passed[:-1])
    settled = np.where(counted, passed[place] - step[place], known[place])
    squares = np.add.reduceat(np.square(weights * settled), starts)
    later = np.add.reduceat(np.square(weights), starts)[::-1].cumsum()[::-1]
    return np.asarray(np.cumsum(squares) + np.square(passed) * (np.append(later[1:], 0.0)))


def curve_of_counts(
    times: Vector,
    events: Vector,
    censored: Vector,
    of: Of = "event",
    *,
    mixed: BoolArray | None = None,
    later: Vector | None = None,
) -> KaplanMeier:
    """Kaplan-Meier curve of counts at increasing times.

    `later` are rows that have not entered before each time, and are not at risk there.

    `mixed` marks counts that stand for rows at several times which nobody knows. There half of the rows that leave for
    the other reason count as gone before (the actuarial rule).
    """
    rows = events + censored
    counts, others = (events, censored) if of == "event" else (censored, events)
    gone = np.full(times.size, 0.0 if of == "event" else 1.0)
    if mixed is not None:
        gone[mixed] = 0.5
    at_risk = np.cumsum(rows[::-1])[::-1] - gone * others
    if later is not None:
        at_risk = at_risk - later
    return KaplanMeier(times, product_limit(counts, at_risk), at_risk, counts, of)


def product_limit(counts: npt.NDArray[Any], at_risk: npt.NDArray[Any]) -> Vector:
    """Return the curve after each time: the product of the shares that are left there and before."""
    return np.cumprod(share_left(counts, at_risk), dtype=np.float64)


def share_left(counts: npt.NDArray[Any], at_risk: npt.NDArray[Any]) -> Vector:
    """Return the share of those at risk that is left after the counts.

    It is 1 where nobody is at risk: a time at which all rows had an event leaves nobody to be censored there.
    """
    return np.asarray(1.0 - np.divide(counts, at_risk, out=np.zeros(at_risk.shape), where=at_risk > 0))


# --- Turnbull's estimate: the curve of events that are only known to lie between two times.

GAP = 1e-7  # log-likelihood per row by which the estimate may lie below the largest one


def fit_turnbull(lower: Vector, upper: Vector, share: Vector, *, steps: int) -> tuple[Vector, Vector, Vector, float]:
    """Return the intervals that can hold mass, their masses, and the bound of what the log-likelihood may gain.

    `xcal.metrics.turnbull` says more. `share` are the weights of the rows, of sum 1.
    """
    starts, ends = innermost(lower, upper)
    first, last = covered(lower, upper, starts, ends)
    # Rows that cover the same intervals say the same.
    codes, place = np.unique(first * (ends.size + 1) + last, return_inverse=True)
    together = np.bincount(place, share).astype(np.float64)
    mass, gap = _self_consistent(codes // (ends.size + 1), codes % (ends.size + 1), together, ends.size, steps)
    return starts, ends, mass, gap


def innermost(lower: Vector, upper: Vector) -> tuple[Vector, Vector]:
    """Return the ends of the intervals that can hold mass: from a lower end to the next upper end."""
    exact = lower == upper
    # At one time: times known exactly begin there, then intervals end with it, then others begin after it.
    points = np.concatenate([lower, upper])
    kind = np.concatenate([np.where(exact, 0, 2), np.full(upper.size, 1)])
    order = np.lexsort((kind, points))
    points, kind = points[order], kind[order]
    here = np.flatnonzero((kind[:-1] != 1) & (kind[1:] == 1))
    return points[here], points[here + 1]


def covered(lower: Vector, upper: Vector, starts: Vector, ends: Vector) -> tuple[Indices, Indices]:
    """Return the first of the innermost intervals that each row's interval holds, and the one after the last."""
    # An innermost interval that starts where the row does is inside; a time exactly there is not, unless the row's own.
    first = np.searchsorted(starts, lower, side="left")
    at_start = (first < starts.size) & (lower < upper)
    at_start[at_start] = (starts[first[at_start]] == lower[at_start]) & (ends[first[at_start]] == lower[at_start])
    return first + at_start, np.searchsorted(ends, upper, side="right")


def _self_consistent(first: Indices, last: Indices, share: Vector, size: int, steps: int) -> tuple[Vector, float]:
    """Return the masses, and the bound of what the log-likelihood per row may still gain."""

    def slope(mass: Vector) -> Vector:
        """Return the derivative of the log-likelihood per row in each mass; at most 1 everywhere at the maximum."""
        total = np.append(0.0, np.cumsum(mass))
        said = share / (total[last] - total[first])
        steps = np.bincount(first, said, size + 1) - np.bincount(last, said, size + 1)
        return np.asarray(np.cumsum(steps)[:-1])

    mass, gap = np.full(size, 1 / size), np.inf
    for _ in range(steps):
        up = slope(mass)
        gap = float(up.max() - 1)
        if gap <= GAP:
            break
        once = mass * up
        twice = once * slope(once)
        step, curve = once - mass, twice - 2 * once + mass
        length = max(1.0, float(np.linalg.norm(step) / max(np.linalg.norm(curve), np.finfo(float).tiny)))
        far = mass + 2 * length * step + length**2 * curve
        # A step too far leaves the simplex, or makes a row impossible: then two plain steps.
        far = np.where(mass > 0, np.maximum(far, mass * 1e-3), 0.0)
        far /= far.sum()
        mass = far if _log_likelihood(far, first, last, share) >= _log_likelihood(twice, first, last, share) else twice
    return mass, max(0.0, gap)


def _log_likelihood(mass: Vector, first: Indices, last: Indices, share: Vector) -> float:
    total = np.append(0.0, np.cumsum(mass))
    return float(share @ np.log(total[last] - total[first]))
