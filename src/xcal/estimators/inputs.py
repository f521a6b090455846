"""What the estimators accept as X, y and weights, checked once."""

import datetime
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import validate_data

from xcal._checks import BoolArray, as_floats, check_same_length, fail, first_row
from xcal.data import time_and_event

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Table:
    """Checked rows: features ``(n, d)``, times and events ``(n,)``, and weights above zero or none."""

    x: Floats
    time: Floats
    event: BoolArray
    weights: Floats | None = None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.time.size

    @property
    def design_effect(self) -> float:
        """Variance of a weighted mean over that of a plain one, ``n sum(w^2) / sum(w)^2``; 1 without weights."""
        w = self.weights
        return 1.0 if w is None else float(w.size * np.square(w).sum() / np.square(w.sum()))

    def take(self, rows: npt.NDArray[Any]) -> "Table":
        """Pick rows by index."""
        weights = None if self.weights is None else self.weights[rows]
        return Table(self.x[rows], self.time[rows], self.event[rows], weights)


def read_features(estimator: Any, X: Any, *, reset: bool) -> Floats:
    """Features as a float array. With `reset` their number and names are learnt, otherwise compared.

    Categories and missing values belong to the steps of a pipeline before the estimator; the errors say so.
    """
    if type(X).__name__ == "LazyFrame":
        fail("X", "a data frame with its rows", "a LazyFrame: call .collect() first")
    _check_columns(X)
    X = _as_numbers(np.asarray(X) if isinstance(X, list | tuple) else X)
    # One layout in memory, so that a frame and an array with the same numbers give the same bits.
    x: Floats = validate_data(
        estimator,
        X,
        reset=reset,
        dtype=np.float64,
        order="C",
        ensure_all_finite=False,
        ensure_min_samples=2 if reset else 1,
    )
    bad = ~np.isfinite(x)
    if bad.any():
        row, column = np.unravel_index(int(bad.argmax()), x.shape)
        names = getattr(estimator, "feature_names_in_", None)
        label = f"column {int(column) if names is None else repr(str(names[column]))}"
        if np.isnan(x[row, column]):
            fail("X", f"no missing values ({_IMPUTE})", f"NaN in {label}", int(row))
        fail("X", "finite numbers", f"{x[row, column]} (infinity) in {label}", int(row))
    return x


def read_target(y: Any, n: int, *, name: str = "y") -> tuple[Floats, BoolArray]:
    """Check times and events of the `n` rows of X."""
    if y is None:
        fail(
            name,
            "Surv(time=..., event=...)",
            "None: a survival model requires y to be passed, but the target y is None",
        )
    time, event = time_and_event(y, name=name)
    check_same_length(name, time, "X", n)
    # A field of a structured array has gaps between its values, which torch cannot take; one row counts as contiguous
    # whatever its gaps, so that only a copy is safe.
    return np.array(time, dtype=np.float64), np.array(event)


def read_table(estimator: Any, X: Any, y: Any, weights: Any) -> Table:
    """Rows to fit on, without those of weight zero."""
    x = read_features(estimator, X, reset=True)
    time, event = read_target(y, x.shape[0])
    return _with_weights(Table(x, time, event), weights, "sample_weight")


def read_validation(estimator: Any, data: Any) -> Table:
    """Rows given as ``validation_data=(X, y)`` or ``(X, y, sample_weight)``."""
    if not isinstance(data, tuple | list) or len(data) not in (2, 3):
        fail("validation_data", "(X, y) or (X, y, sample_weight)", type(data).__name__)
    x = read_features(estimator, data[0], reset=False)
    time, event = read_target(data[1], x.shape[0], name="validation_data y")
    weights = data[2] if len(data) == 3 else None
    table = _with_weights(Table(x, time, event), weights, "validation_data sample_weight")
    if not table.event.any():
        fail("validation_data", "at least one event", f"{table.n} censored rows")
    return table


def split_table(table: Table, fraction: float, seed: int) -> tuple[Table, Table]:
    """Split off validation rows, the same share of the events as of the censored rows."""
    rng = np.random.default_rng(seed)
    held_out = []
    for happened in (True, False):
        rows = rng.permutation(np.flatnonzero(table.event == happened))
        count = round(fraction * rows.size)
        if happened:
            # Either part needs an event: one to learn from, one to validate on.
            count = min(max(count, 1), rows.size - 1)
        held_out.append(rows[:count])
    chosen = np.zeros(table.n, dtype=bool)
    chosen[np.concatenate(held_out)] = True
    return table.take(np.flatnonzero(~chosen)), table.take(np.flatnonzero(chosen))


def check_events(table: Table, *, discrete: bool, split: bool) -> None:
    """Check that there are events to learn from: two for time bins, and one more if the rows will be split."""
    found = int(np.count_nonzero(table.event))
    to_train = 2 if discrete else 1
    needed = to_train + split
    if found < needed:
        why = f", {to_train} to train on and 1 to validate on (or give validation_data)" if split else " to train on"
        expected = f"at least {needed} event{'s' if needed > 1 else ''}{why}"
        fail("y", expected, f"{found} among n_samples = {table.n} rows")


def check_no_event_at_zero(table: Table, name: str) -> None:
    """Check the rows of a continuous distribution; `name` is the argument that they came by."""
    found = int(np.count_nonzero(table.event & (table.time <= 0)))
    if found:
        fail(
            name,
            "event times larger than zero (a continuous distribution has no likelihood for an event at time zero; move "
            "such rows to a small positive time or use a discrete one, 'mtlr' for instance)",
            f"{found} at time zero",
        )


def read_times(times: Any) -> Floats:
    """Check times at which curves are asked for: finite, zero or larger, in any order."""
    values = as_floats("times", np.atleast_1d(np.asarray(times))).astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        fail("times", "finite times, zero or larger", values[first_row(bad)], first_row(bad))
    return values


_ENCODE = "encode categories in the pipeline before this estimator, with OneHotEncoder for instance"
_DATES = "turn dates and durations into numbers before, days since a fixed date for instance"
_IMPUTE = "impute them in the pipeline before this estimator, with SimpleImputer for instance"


def _check_columns(X: Any) -> None:
    """Name the first column of a data frame that does not hold numbers."""
    columns, dtypes = getattr(X, "columns", None), getattr(X, "dtypes", None)
    if columns is None or dtypes is None:
        return
    for name, dtype in zip(columns, dtypes, strict=True):
        # A polars type knows what it is; a numpy or pandas type has a one-letter kind.
        kind = getattr(dtype, "kind", None)
        if isinstance(kind, str):
            numeric, dates = kind in tuple("biufc"), kind in tuple("mM")
        else:
            numeric, dates = dtype.is_numeric() or str(dtype) == "Boolean", dtype.is_temporal()
        if not numeric:
            fail("X", f"numeric columns ({_DATES if dates else _ENCODE})", f"column {name!r} of type {dtype}")


def _as_numbers(X: Any) -> Any:
    """Read text and objects in an array as numbers, or say why they are none; leave everything else as it is."""
    if not isinstance(X, np.ndarray) or X.dtype.kind not in "OUSmM":
        return X
    if X.dtype.kind in "mM":
        fail("X", f"numbers ({_DATES})", f"dtype {X.dtype}")
    try:
        return X.astype(np.float64)
    except ValueError as error:
        raise ValueError(f"X: expected numbers ({_ENCODE}), got text: {error}") from error
    except TypeError as error:
        dates = (datetime.date, datetime.time, datetime.timedelta, np.datetime64)
        found = next((value for value in X.flat if isinstance(value, dates)), None)
        if found is not None:
            fail("X", f"numbers ({_DATES})", repr(found))
        raise TypeError(f"X: expected numbers, got another kind of object: {error}") from error


def _with_weights(table: Table, weights: Any, name: str) -> Table:
    if weights is None:
        return table
    values = as_floats(name, weights).astype(np.float64)
    check_same_length(name, values, "X", table.n)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        fail(name, "finite weights, zero or larger", values[first_row(bad)], first_row(bad))
    if not (values > 0).any():
        fail(name, "at least one weight above zero", "none. Sample weights must contain at least one non-zero number.")
    return Table(table.x, table.time, table.event, values).take(np.flatnonzero(values > 0))
