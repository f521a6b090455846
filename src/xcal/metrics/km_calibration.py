"""Average predicted survival curve against the Kaplan-Meier curve."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xcal._checks import BoolArray, FloatArray
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.metrics.curves import INTERPOLATIONS, Interpolation, at_own_time
from xcal.metrics.inputs import Vector, as_choice, as_curves, as_outcome, as_row_weights


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
    interpolation : {"linear", "previous"}
        How to read the average curve between grid points; see `evaluate`.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of both curves.

    Returns
    -------
    KMCalibration
        The integral ends at the last event time within the grid, `stop`; NaN when no event lies in it.

    Examples
    --------
    >>> curves = [[0.75, 0.5, 0.25, 0.0]] * 4
    >>> km_calibration(curves, [1, 2, 3, 4], time=[1, 2, 3, 4], event=[1, 1, 1, 1]).value
    0.0
    """
    times_seen, happened = as_outcome(time, event, survival=survival, weights=weights)
    curves, grid = as_curves("survival", survival, times, times_seen.size)
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    points = event_points(times_seen, happened, grid)
    w = as_row_weights(weights, times_seen.size)
    predicted, observed = both_curves(curves, grid, times_seen, happened, points, interpolation, w)
    stop = float(points[-1])
    squared = np.square(predicted - observed)
    area = float(np.dot(np.diff(points), (squared[1:] + squared[:-1]) / 2))
    return KMCalibration(area / stop if stop > 0 else float("nan"), stop, points, predicted, observed)


def event_points(time: FloatArray, event: BoolArray, grid: Vector) -> Vector:
    """Zero and the distinct times of events within the grid."""
    jumps = np.unique(time[event & (time > 0) & (time <= grid[-1])]).astype(np.float64)
    return np.concatenate([[0.0], jumps])


def both_curves(
    curves: FloatArray,
    grid: Vector,
    time: FloatArray,
    event: BoolArray,
    points: Vector,
    interpolation: Interpolation,
    weights: Vector | None = None,
) -> tuple[Vector, Vector]:
    """Average predicted curve and Kaplan-Meier curve of these rows, at the points."""
    mean = curves.mean(axis=0, dtype=np.float64) if weights is None else weights @ curves / weights.sum()
    average = np.broadcast_to(mean, (points.size, grid.size))
    observed = fit_kaplan_meier(time, event, weights=weights).at(points)
    return at_own_time(average, grid, points, interpolation), observed
