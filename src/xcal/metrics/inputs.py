"""What the metrics accept, checked once in the public functions."""

from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import (
    BoolArray,
    FloatArray,
    as_choice,
    as_count,
    as_event,
    as_floats,
    as_numpy,
    as_probability,
    as_time,
    as_weights,
    check_rows,
    check_same_length,
    effective_units,
    fail,
    first_row,
)

Vector = npt.NDArray[np.float64]

# as_choice and as_count are those of the whole package; they stand here too, for the metrics that check all they take
# through this module.
__all__ = [
    "Vector",
    "as_choice",
    "as_count",
    "as_curves",
    "as_outcome",
    "as_row_probability",
    "as_row_weights",
    "as_score",
    "as_time_grid",
    "as_time_point",
    "mean_of",
]


def as_outcome(time: Any, event: Any, **beside: Any) -> tuple[FloatArray, BoolArray]:
    """Observed times and event indicators of the same rows, which are those of what is given `beside` them, too."""
    check_rows({"time": time, "event": event, **beside})
    times = as_time(time)
    return times, as_event(event, times.size, reference="time")


def as_score(name: str, values: Any, n: int) -> FloatArray:
    """One number per row of which only the order matters: infinite values are welcome, NaN has no place in an order."""
    array = as_floats(name, values)
    check_same_length(name, array, "time", n)
    missing = np.isnan(array)
    if missing.any():
        row = first_row(missing)
        fail(name, "numbers that can be put in order", array[row], row)
    return array


def as_row_probability(name: str, values: Any, n: int) -> Vector:
    """One probability for each of the n rows, as float64."""
    array: Vector = as_probability(name, values).astype(np.float64, copy=False)
    check_same_length(name, array, "time", n)
    return array


def as_row_weights(weights: Any, n: int) -> Vector | None:
    """Check sampling weights of the n rows, in effective units; None if there are none or all are equal."""
    return None if weights is None else effective_units(as_weights("weights", weights, n, reference="time"))


def mean_of(values: Vector, weights: Vector | None) -> float:
    """Mean of one value per row, by the weights of the rows if they have some."""
    return float(values.mean() if weights is None else weights @ values / weights.sum())


def as_curves(name: str, curves: Any, times: Any, n: int) -> tuple[FloatArray, Vector]:
    """One curve per row, shape (n, m), on m increasing times; a single column may come as shape (n,) with one time."""
    points = as_time_grid("times", times)
    array = as_numpy(name, curves)
    if array.ndim == 1 and points.size == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != points.size:
        hint = " (transpose it?)" if array.shape == (points.size, n) else ""
        fail(name, f"shape (rows, {points.size}), one column for each of times", f"shape {array.shape}{hint}")
    check_same_length(name, array, "time", n)
    if array.dtype.kind != "f" or array.dtype == np.float16:
        array = array.astype(np.float64)
    # NaN makes both comparisons false, so one pass over extrema catches everything.
    if not (array.min() >= 0 and array.max() <= 1):
        row = first_row((~((array >= 0) & (array <= 1))).ravel())
        where = (row // points.size, row % points.size)
        fail(name, "probabilities in [0, 1]", array[where], where)
    return array, points


def as_time_grid(name: str, times: Any) -> Vector:
    """One or more strictly increasing times, as float64."""
    points: Vector = as_time(np.atleast_1d(as_numpy(name, times)), name=name).astype(np.float64, copy=False)
    falls = np.diff(points) <= 0
    if falls.any():
        row = first_row(falls) + 1
        fail(name, "strictly increasing times", f"{points[row]} after {points[row - 1]}", row)
    return points


def as_time_point(name: str, value: Any) -> float:
    """One finite time, zero or larger."""
    array = as_numpy(name, value)
    if array.ndim != 0:
        fail(name, "one number", f"shape {array.shape}")
    if not (np.isfinite(array) and array >= 0):
        fail(name, "a finite time, zero or larger", array)
    return float(array)
