"""Survival curves as functions: scikit-survival's step functions, xcal's curves, or anything that can be called."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from xcal._checks import FloatArray, as_numpy, fail
from xcal.interop.rows import Rows
from xcal.metrics.curves import Interpolation
from xcal.metrics.inputs import Vector


def is_functions(values: Any) -> bool:
    """Whether this is a list or an array of functions."""
    if isinstance(values, np.ndarray):
        return values.dtype == object and values.ndim == 1 and values.size > 0 and callable(values[0])
    return isinstance(values, Sequence) and len(values) > 0 and callable(values[0])


def curves_of_functions(functions: Any, rows: Rows) -> tuple[FloatArray, Vector, Interpolation]:
    """Read functions of time at their own points, or at the times that were asked for.

    A step function (``StepFunction`` of scikit-survival) is read at all of its steps, so that "previous" gives its
    value at every time. Other functions are smooth: they are called at a grid and read along straight lines.
    """
    steps = all(type(function).__name__ == "StepFunction" for function in functions)
    times = _points(functions, rows) if steps or rows.times is not None else _within(functions, rows.grid())
    survival = np.empty((len(functions), times.size))
    for row, function in enumerate(functions):
        if not callable(function):
            fail("survival", "functions of time in every row", type(function).__name__, row)
        values = _held(function, times) if steps else as_numpy("survival", function(times))
        if values.shape != times.shape:
            fail("survival", f"functions that give {times.size} values for {times.size} times", values.shape, row)
        survival[row] = values
    return survival, times, "previous" if steps else "linear"


def _held(step: Any, times: Vector) -> FloatArray:
    """Read a step function by its own steps: 1 before the first, as survival is, and the last value past the end.

    A call of scikit-survival's own refuses times past the end, and gives the first value before the first step.
    """
    passed = np.searchsorted(np.asarray(step.x), times, side="right") - 1
    values = step.a * np.asarray(step.y, dtype=np.float64) + step.b
    return np.where(passed < 0, 1.0, values[np.maximum(passed, 0)])


def _points(functions: Any, rows: Rows) -> Vector:
    """All steps of all functions, or the times that were asked for."""
    if rows.times is not None:
        return rows.times
    first = np.asarray(functions[0].x, dtype=np.float64)
    if all(function.x is functions[0].x for function in functions):
        return first
    return np.unique(np.concatenate([np.asarray(function.x, dtype=np.float64) for function in functions]))


def end_of_functions(functions: Any) -> float | None:
    """Return the last time that every function covers; None where they do not say what they cover."""
    ends = [function.domain[1] for function in functions if getattr(function, "domain", None) is not None]
    return float(min(ends)) if ends else None


def _within(functions: Any, grid: Vector) -> Vector:
    """Those times of the grid that every function covers, where the functions say what they cover."""
    end = end_of_functions(functions)
    inside = grid if end is None else grid[grid <= end]
    if inside.size == 0:
        fail("survival", "functions that cover the times of y", f"an end at time {end:g}")
    return inside
