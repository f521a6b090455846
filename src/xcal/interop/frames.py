"""Survival curves in a data frame: which side holds the times.

Libraries disagree. lifelines and pycox give times x rows, with the times in the index; tables are mostly rows x times.
The labels decide; where both sides could hold the times, the frame is refused and never guessed.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import FloatArray, as_numpy, fail
from xcal.metrics.inputs import Vector


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
