"""Curves given on a grid of times, read between the grid's points.

Every curve starts at S(0) = 1 and stays at its last value beyond the grid. In between, ``"linear"`` connects the points
by straight lines, the first one to (0, 1), and ``"previous"`` holds the value of the last grid point passed
(right-continuous, as a Kaplan-Meier curve). A grid that begins at time 0 brings its own first value.

``interpolation="step"`` of the discrete distributions is neither of them: it gives every time in a bin the value at the
end of the bin, the next grid point.
"""

from typing import Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import FloatArray
from xcal.metrics.inputs import Vector

Interpolation = Literal["linear", "previous"]
INTERPOLATIONS: tuple[Interpolation, ...] = ("linear", "previous")


def left_column(times: Vector, t: FloatArray | float) -> npt.NDArray[np.int64]:
    """Index of the last grid time that is not after t; -1 before the first."""
    return np.asarray(np.searchsorted(times, np.asarray(t, dtype=np.float64), side="right") - 1)


def column(curves: FloatArray, index: int, start: float) -> Vector:
    """One column of the curves in float64; index -1 stands for time 0, where every curve equals `start`."""
    if index < 0:
        return np.full(curves.shape[0], start)
    return curves[:, index].astype(np.float64)


def fraction(times: Vector, t: FloatArray | float, index: npt.NDArray[np.int64]) -> Vector:
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
