"""Curves given on a grid of times: read between its points and past its end, and their average beside Kaplan-Meier."""

import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import FloatArray, as_choice, as_floats, as_row, fail, first_row
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.inputs import Integers, Vector, as_curves, as_row_weights
from xcal.metrics.observed import observed_risk

# --- What is said of times after the last one seen: nothing, unless extrapolation is asked for.
# One rule for the estimators and for `Recalibrated`: a probability at such a time is NaN, and a quantile that would
# lie there is infinite ("later than anybody was seen"), both with a warning.

_HOW = "extrapolate=True, or --extrapolate, for what the model says there"


def unseen_as_nan(
    values: Vector, times: Vector, last: float, *, stacklevel: int, seen: str = "seen in training"
) -> Vector:
    """Return probabilities ``(..., times)`` with NaN after the last time seen; `seen` says where, in the warning."""
    unseen = times > last
    if not unseen.any():
        return values
    told = f"{np.count_nonzero(unseen)} of {times.size} times lie after {last:.3g}, the last one {seen}: NaN"
    warnings.warn(f"{told} ({_HOW})", UserWarning, stacklevel=stacklevel)
    return np.where(unseen, np.nan, values)


def unseen_as_inf(quantiles: Vector, last: float, *, stacklevel: int, seen: str = "seen in training") -> Vector:
    """Return quantiles with infinity in place of times after the last one seen."""
    unseen = quantiles > last
    if not unseen.any():
        return quantiles
    told = f"{np.count_nonzero(unseen)} of {quantiles.size} quantiles lie after {last:.3g}, the last time {seen}"
    warnings.warn(f"{told}: infinity ({_HOW})", UserWarning, stacklevel=stacklevel)
    return np.where(unseen, np.inf, quantiles)


@dataclass(frozen=True, eq=False)
class MeanTime:
    """Mean time of each row, and how far the networks behind it disagree.

    Attributes
    ----------
    value : array, shape (n,)
        The mean, in the unit of the times.
    error : array, shape (n,)
        Standard error of the mean over the networks (seeds) that are averaged: the standard deviation of their own
        means over the root of their number. It tells how much other initial weights and batches would change; not what
        other training rows would. NaN of a model that is one network, or none.
    """

    value: Vector
    error: Vector

    @classmethod
    def of_networks(cls, value: Vector, networks: Vector) -> "MeanTime":
        """Put a mean beside those of the networks it averages, ``(networks, n)``."""
        k = len(networks)
        error = networks.std(axis=0, ddof=1) / np.sqrt(k) if k > 1 else np.full(value.shape, np.nan)
        return cls(value, error)

    def where(self, known: npt.NDArray[np.bool_]) -> "MeanTime":
        """Put NaN where the mean is not known."""
        return MeanTime(np.where(known, self.value, np.nan), np.where(known, self.error, np.nan))


# A mean is known if no more than this share of rows like it outlives the last time seen.
_MOST_LEFT = 0.01


def means_known(left: Vector, last: float, *, stacklevel: int, seen: str = "seen in training") -> Any:
    """Return of which rows the mean time is known, from S at the last time seen; warn if there are others."""
    known = left <= _MOST_LEFT
    if not known.all():
        told = f"{np.count_nonzero(~known)} of {known.size} means are NaN: more than {_MOST_LEFT:.0%} of such rows"
        advice = "ask for predict_rmst up to a horizon that was seen, or for extrapolate=True"
        warnings.warn(f"{told} outlive {last:.3g}, the last time {seen} ({advice})", UserWarning, stacklevel=stacklevel)
    return known


def read_after(after: Any, n: int) -> Vector | None:
    """Check the time that rows have come to without the event: one for all, or one per row."""
    if after is None:
        return None
    values = as_floats("after", as_row("after", after)).astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        fail("after", "finite times, zero or larger", values[first_row(bad)], first_row(bad))
    if values.size not in (1, n):
        fail("after", f"one time, or one for each of the {n} rows", f"{values.size}")
    return np.array(np.broadcast_to(values, n))


def read_before(after: Any, n: int, horizon: float) -> Vector | None:
    """Check times that rows have come to, all before a horizon."""
    found = read_after(after, n)
    if found is not None and (late := found >= horizon).any():
        fail("after", f"times before the horizon, {horizon:g}", found[first_row(late)], first_row(late))
    return found


# --- Curves given on a grid of times, read between the grid's points.
# Every curve starts at S(0) = 1 and stays at its last value beyond the grid. In between, ``"linear"`` connects the
# points by straight lines, the first one to (0, 1), and ``"previous"`` holds the value of the last grid point passed
# (right-continuous, as a Kaplan-Meier curve). A grid that begins at time 0 brings its own first value.
#
# ``interpolation="step"`` of the discrete distributions is neither of them: it gives every time in a bin the value at
# the end of the bin, the next grid point.

Interpolation = Literal["linear", "previous"]
INTERPOLATIONS: tuple[Interpolation, ...] = ("linear", "previous")


def left_column(times: Vector, t: FloatArray | float) -> Integers:
    """Index of the last grid time that is not after t; -1 before the first."""
    return np.asarray(np.searchsorted(times, np.asarray(t, dtype=np.float64), side="right") - 1)


def column(curves: FloatArray, index: int, start: float) -> Vector:
    """One column of the curves in float64; index -1 stands for time 0, where every curve equals `start`."""
    if index < 0:
        return np.full(curves.shape[0], start)
    return curves[:, index].astype(np.float64)


def fraction(times: Vector, t: FloatArray | float, index: Integers) -> Vector:
    """How far t lies between the grid time at `index` and the next one; 0 beyond the last."""
    grid = np.concatenate([[0.0], times])
    left = grid[index + 1]
    right = grid[np.minimum(index + 2, times.size)]
    gap = right - left
    share: Vector = np.divide(np.asarray(t) - left, gap, out=np.zeros(np.shape(gap)), where=gap > 0)
    return share


def at_point(survival: FloatArray, times: Vector, t: float, interpolation: Interpolation) -> Vector:
    """Survival probability of every row at the one time t.

    Examples
    --------
    >>> import numpy as np
    >>> at_point(np.array([[0.8, 0.4]]), np.array([1.0, 2.0]), 1.5, "linear").round(3)
    array([0.6])
    """
    index = left_column(times, t)
    value = column(survival, int(index), 1.0)
    if interpolation == "linear":
        share = float(fraction(times, t, index))
        if share > 0:
            value = (1 - share) * value + share * column(survival, int(index) + 1, 1.0)
    return value


def at_own_time(survival: FloatArray, times: Vector, time: FloatArray, interpolation: Interpolation) -> Vector:
    """Survival probability of every row at its observed time."""
    index = left_column(times, time)
    rows = np.arange(time.size)
    value = np.where(index < 0, 1.0, survival[rows, np.maximum(index, 0)]).astype(np.float64)
    if interpolation == "linear":
        share = fraction(times, time, index)
        following = survival[rows, np.minimum(index + 1, times.size - 1)]
        value = (1 - share) * value + share * following
    return value


def restricted_mean(survival: FloatArray, times: Vector, interpolation: Interpolation) -> Vector:
    """Area under each curve from 0 to the last time of the grid."""
    widths = np.diff(times, prepend=0.0)
    # Weight of every column: a value that is held reaches to the right, a line to both sides. The rest is the curve's
    # start at 1.
    after = np.append(widths[1:], 0.0)
    if interpolation == "previous":
        return np.asarray(widths[0] + survival @ after)
    return np.asarray(widths[0] / 2 + survival @ ((widths + after) / 2))


# --- Average predicted survival curve against the Kaplan-Meier curve.


@dataclass(frozen=True, eq=False)
class KMCalibration:
    """Distance between the average predicted curve and the Kaplan-Meier curve.

    Attributes
    ----------
    value : float
        Mean squared difference over the time from 0 to `stop`: 0 for identical curves, at most 1.
    stop : float
        Where the integral ends.
    times, predicted, observed : arrays, shape (k,)
        Both curves at 0 and at the distinct event times up to `stop`.
    """

    value: float
    stop: float
    times: Vector = field(repr=False)
    predicted: Vector = field(repr=False)
    observed: Vector = field(repr=False)


def km_calibration(
    survival: Any,
    times: Any,
    *,
    time: Any,
    event: Any,
    competing: Any = None,
    interpolation: Interpolation = "linear",
    weights: Any = None,
) -> KMCalibration:
    r"""Integrated squared difference between the mean prediction and Kaplan-Meier.

    .. math:: \frac{1}{t_K} \int_0^{t_K} \Big( \frac1n \sum_i S_i(t) - S_{KM}(t) \Big)^2 dt

    The integral is by the trapezoidal rule through 0 and the distinct event times. Marginal calibration only: a model
    that gives everybody the Kaplan-Meier curve scores 0.

    Parameters
    ----------
    survival : array-like, shape (n, m)
        Predicted survival probability of each row at each of `times`.
    times : array-like, shape (m,)
        Strictly increasing.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: the curves are
        one less the incidence of this cause, and the Aalen-Johansen estimate stands in place of Kaplan-Meier.
    interpolation : {"linear", "previous"}
        How to read the average curve between grid points; see `evaluate`.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of both curves.

    Returns
    -------
    KMCalibration
        The integral ends at the last event time within the grid, `stop`; NaN when no event lies in it.

    References
    ----------
    Chapfuwa and others (2020), Calibration and Uncertainty in Neural Time-to-Event Modeling, IEEE Transactions on
    Neural Networks and Learning Systems.

    Examples
    --------
    >>> curves = [[0.75, 0.5, 0.25, 0.0]] * 4
    >>> km_calibration(curves, [1, 2, 3, 4], time=[1, 2, 3, 4], event=[1, 1, 1, 1]).value
    0.0
    """
    outcome = as_outcome(time, event, beside={"survival": survival, "weights": weights}, competing=competing)
    curves, grid = as_curves("survival", survival, times, outcome.n)
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    points = event_points(outcome, grid)
    w = as_row_weights(weights, outcome.n)
    predicted, observed = both_curves(curves, grid, outcome, points, interpolation, w)
    stop = float(points[-1])
    squared = np.square(predicted - observed)
    area = float(np.dot(np.diff(points), (squared[1:] + squared[:-1]) / 2))
    return KMCalibration(area / stop if stop > 0 else float("nan"), stop, points, predicted, observed)


def event_points(outcome: Outcome, grid: Vector) -> Vector:
    """Zero and the distinct times of events within the grid."""
    time = outcome.time
    jumps = np.unique(time[outcome.event & (time > 0) & (time <= grid[-1])]).astype(np.float64)
    return np.concatenate([[0.0], jumps])


def both_curves(
    curves: FloatArray,
    grid: Vector,
    outcome: Outcome,
    points: Vector,
    interpolation: Interpolation,
    weights: Vector | None = None,
) -> tuple[Vector, Vector]:
    """Average predicted curve and observed one of these rows, at the points."""
    mean = curves.mean(axis=0, dtype=np.float64) if weights is None else weights @ curves / weights.sum()
    average = np.broadcast_to(mean, (points.size, grid.size))
    observed = observed_risk(outcome, weights).without(points)
    return at_own_time(average, grid, points, interpolation), observed
