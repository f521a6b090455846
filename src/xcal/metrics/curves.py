"""Curves given on a grid of times: read between its points and past its end, and their average beside Kaplan-Meier."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from xcal._checks import FloatArray, as_choice
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.inputs import Integers, Vector, as_curves, as_row_weights
from xcal.metrics.observed import observed_risk

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
