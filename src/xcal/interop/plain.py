"""Predictions that come as numbers or functions: survival curves, F at the observed times, or risks at one time."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import FloatArray, as_choice, as_number, as_numpy, as_probability, check_same_length, fail
from xcal.interop.predictions import BETWEEN, ModelPredictions, Rows, past_the_end
from xcal.metrics.curves import INTERPOLATIONS, Interpolation
from xcal.metrics.inputs import Vector, as_curves

# --- Survival curves in a data frame: which side holds the times.
# Libraries disagree. lifelines and pycox give times x rows, with the times in the index; tables are mostly rows x
# times. The labels decide; where both sides could hold the times, the frame is refused and never guessed.


def is_frame(values: Any) -> bool:
    """Whether this is a pandas or polars data frame."""
    return hasattr(values, "columns") and type(values).__module__.split(".")[0] in {"pandas", "polars"}


def curves_of_frame(frame: Any, n: int, times: Any = None, *, name: str = "survival") -> tuple[FloatArray, Vector]:
    """Read survival curves of `n` rows: array of shape (n, m), and the m times.

    Parameters
    ----------
    frame : pandas or polars data frame
        Rows x times with the times as column names (numbers, or text that is a number), or times x rows with the times
        as index.
    n : int
        Rows, as many as y has.
    times : array-like, optional
        The times, where the labels do not say them: then the frame is rows x times.

    Examples
    --------
    >>> import pandas as pd
    >>> curves_of_frame(pd.DataFrame([[0.9, 0.5], [0.8, 0.7], [1.0, 0.9]], columns=[1.0, 2.0]), 3)[1]
    array([1., 2.])
    >>> curves_of_frame(pd.DataFrame([[0.9, 0.8, 1.0], [0.5, 0.7, 0.9]], index=[1.0, 2.0]), 3)[0].shape
    (3, 2)
    """
    if type(frame).__name__ == "LazyFrame":
        fail(name, "a data frame with its rows", "a LazyFrame: call .collect() first")
    values = as_numpy(name, frame.to_numpy())
    across, down = as_times(list(frame.columns)), as_times(list(getattr(frame, "index", [])))
    shape = f"shape {values.shape}"
    if times is not None:
        asked = as_numpy("times", times).astype(np.float64)
        return _by_given_times(name, values, asked, n)
    by_row = across is not None and values.shape[0] == n
    by_column = down is not None and values.shape[1] == n
    if by_row and by_column:
        advice = "give times= with an array of shape (rows, times)"
        fail(name, f"a data frame whose labels tell rows from times ({advice})", f"{shape} with times on both sides")
    if by_row and across is not None:
        return values, across
    if by_column and down is not None:
        return values.T, down
    wanted = f"{n} rows with increasing times as column names, or {n} columns with increasing times as index"
    fail(name, wanted, f"{shape}, columns {_some(frame.columns)}")


def as_times(labels: list[Any]) -> Vector | None:
    """Labels as increasing times of zero or more; None if they are none."""
    if not labels or any(isinstance(label, bool | tuple) for label in labels):
        return None
    try:
        times = np.asarray([float(label) for label in labels])
    except (TypeError, ValueError):
        return None
    fits = np.isfinite(times).all() and times[0] >= 0 and (np.diff(times) > 0).all()
    return times if fits else None


def _by_given_times(name: str, values: npt.NDArray[Any], times: Vector, n: int) -> tuple[FloatArray, Vector]:
    """Orient by shape alone: the user said what the times are."""
    by_row, by_column = values.shape == (n, times.size), values.shape == (times.size, n)
    if by_column and not by_row:
        return values.T, times
    if by_row and (not by_column or times.size == n):
        return values, times  # a square frame is rows x times, as an array is
    fail(name, f"shape ({n}, {times.size}), rows x times, or its transpose", f"shape {values.shape}")


def _some(labels: Any) -> str:
    shown = [str(label) for label in list(labels)[:3]]
    return ", ".join(shown) + (", ..." if len(labels) > 3 else "")


# --- Survival curves as functions: scikit-survival's step functions, xcal's curves, or anything that can be called.


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


# --- Predictions that come as numbers: survival curves, F at the observed times, or risks at one time.


def is_plain(values: Any) -> bool:
    """Whether this is a prediction and not a model: a frame, an array, a tensor, or a list."""
    return (
        is_frame(values)
        or isinstance(values, np.ndarray | list | tuple)
        or (hasattr(values, "detach") and hasattr(values, "shape"))
    )


def read_curves(
    survival: Any,
    rows: Rows,
    *,
    times: Any = None,
    interpolation: Interpolation | None = None,
    model: str = "survival curves",
    library: str = "none",
) -> ModelPredictions:
    """Survival curves of each row, as an array with `times`, a data frame, or functions.

    `interpolation` is "linear" unless said, and "previous" for step functions.
    """
    how: Interpolation = "linear"
    functions = is_functions(survival)
    if functions:
        curves, points, how = curves_of_functions(survival, rows)
    elif is_frame(survival):
        curves, points = curves_of_frame(survival, rows.n, times)
    else:
        array = as_numpy("survival", survival)
        if array.ndim == 1:
            fail(
                "survival",
                "curves of shape (rows, times) (one value per row: cdf=, F at the observed time, or risk=)",
                f"shape {array.shape}",
            )
        if times is None:
            fail("times", "the times of the columns of survival", "None")
        curves, points = array, times
    curves, points = as_curves("survival", curves, points, rows.n)
    if interpolation is not None:
        how = as_choice("interpolation", interpolation, INTERPOLATIONS)
    reading = (
        f"Survival curves were given at {points.size:,} times, from {points[0]:g} to {points[-1]:g}, and start at 1.",
        BETWEEN[how],
        past_the_end(float(points[-1]), rows.time),
    )
    end = end_of_functions(survival) if functions else float(points[-1])
    return ModelPredictions(
        model, library, rows.n, survival=curves, times=points, interpolation=how, reading=reading, end=end
    )


def read_cdf(cdf: Any, rows: Rows) -> ModelPredictions:
    """F of each row at its observed time, and nothing else."""
    values = as_probability("cdf", cdf)
    check_same_length("cdf", values, "y", rows.n)
    reading = ("F at each row's observed time was given, and nothing else: there are no risks at a horizon.",)
    own = values.astype(np.float64, copy=False)
    return ModelPredictions("F at the observed times", "none", rows.n, cdf=own, reading=reading)


def read_risk(risk: Any, horizon: Any, rows: Rows) -> ModelPredictions:
    """Risk of each row at one time, and nothing else."""
    at = as_number("horizons", horizon, above=0)
    values = as_numpy("risk", risk)
    if values.ndim == 1 and values.size and np.isfinite(values).all() and 1 < values.max() <= 100 and values.min() >= 0:
        row = int(np.argmax(values > 1))
        fail("risk", "probabilities in [0, 1] (percent? divide by 100)", values[row], row)
    checked = as_probability("risk", risk)
    check_same_length("risk", checked, "y", rows.n)
    reading = (f"The risk of an event by time {at:g} was given, and nothing about other times.",)
    own = checked.astype(np.float64, copy=False)
    return ModelPredictions(f"risks at {at:g}", "none", rows.n, risk=own, risk_horizon=at, reading=reading)
