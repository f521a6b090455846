"""Covariates as conditional calibration reads them: columns with names, numbers or categories, none missing."""

import math
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_numpy, fail, first_row, is_missing

# Each is a column of indicators: so many of some ten thousand rows fit into the memory.
MOST_LABELS = 5_000


@dataclass(frozen=True, eq=False)
class Column:
    """One covariate: its numbers, or for a category the number of each row's label among `labels`."""

    name: str
    values: npt.NDArray[np.float64]
    labels: tuple[str, ...] | None = None

    def take(self, rows: npt.NDArray[Any] | slice) -> "Column":
        """Keep some rows."""
        return Column(self.name, self.values[rows], self.labels)

    def cuts(self, n: int) -> npt.NDArray[np.float64]:
        """Return numbers that cut the rows into n parts of about equal size, fewer where values are equal.

        They are quantiles to a hundredth of what nine rows in ten span: a person reads 1.27 more easily than 1.26839,
        and no row's own value is told.

        Examples
        --------
        >>> Column("age", np.linspace(18.1234, 90.5678, 500)).cuts(4)
        array([36.1, 54.3, 72.4])
        >>> Column("grade", np.repeat([1.0, 2.0, 3.0], 50)).cuts(4)
        array([1., 2., 3.])
        """
        found = np.quantile(self.values, np.arange(1, n) / n, method="lower")
        span = float(np.subtract(*np.quantile(self.values, [0.95, 0.05]))) or float(np.ptp(self.values))
        if span > 0:
            digits = -math.floor(math.log10(span / 100))
            found = np.array([round(float(cut), digits) for cut in found])
        return np.unique(found)


def as_columns(X: Any, n: int | None = None) -> tuple[Column, ...]:
    """Read a data frame (pandas or polars) or an array, (n, p), into columns.

    Text, categories and booleans become categories; everything else must be finite numbers. Columns that were read
    before are taken as they are. Without `n` any number of rows will do.
    """
    if isinstance(X, tuple) and all(isinstance(column, Column) for column in X):
        columns: tuple[Column, ...] = X
    elif hasattr(X, "columns") and not isinstance(X, np.ndarray):
        names = [str(name) for name in X.columns]
        if len(set(names)) < len(names):
            fail(
                "X", "columns with different names", f"{next(n for n in names if names.count(n) > 1)!r} more than once"
            )
        columns = tuple(_as_column(str(name), X[name]) for name in X.columns)
    else:
        array = as_numpy("X", X)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            fail("X", "one row per prediction and one column per covariate", f"shape {array.shape}")
        columns = tuple(_as_column(f"x{k}", array[:, k]) for k in range(array.shape[1]))
    if not columns:
        fail("X", "at least one column", "none")
    for column in columns:
        if n is not None and column.values.size != n:
            fail("X", f"{n} rows, one per row of cdf", f"{column.values.size} in column {column.name!r}")
    return columns


def _is_number(value: Any) -> bool:
    """Whether a value is a number: no text, and no yes or no."""
    return isinstance(value, Real | Decimal) and not isinstance(value, bool | np.bool_)


def is_category(values: Any) -> bool:
    """Whether a column of pandas is a category, whose labels may be numbers."""
    return getattr(getattr(values, "dtype", None), "name", None) == "category"


def _as_column(name: str, values: Any) -> Column:
    array, category = np.asarray(values), is_category(values)
    # An object column may hold numbers alone.
    if array.size and array.dtype == object and not category and all(_is_number(value) for value in array.flat):
        array = array.astype(np.float64)
    if array.dtype.kind in "iuf" and not category:
        numbers = array.astype(np.float64)
        bad = ~np.isfinite(numbers)
        if bad.any():
            row = first_row(bad)
            fail("X", f"finite numbers in column {name!r} (fill missing values first)", numbers[row], row)
        return Column(name, numbers)
    if array.dtype.kind == "M":
        fail("X", f"numbers or categories in column {name!r}", "dates: give the days since some day")
    if array.dtype.kind in "cm":
        fail("X", f"numbers or categories in column {name!r}", f"type {array.dtype}")
    listed = array.tolist()
    missing = np.array([is_missing(label) for label in listed], dtype=np.bool_)
    if missing.any():
        row = first_row(missing)
        fail("X", f"a label in every row of column {name!r}", listed[row], row)
    labels, codes = np.unique(np.array([str(label) for label in listed]), return_inverse=True)
    if labels.size > MOST_LABELS:
        expected = f"at most {MOST_LABELS:,} categories in column {name!r} (leave out what names single rows)"
        fail("X", expected, f"{labels.size:,}")
    return Column(name, codes.astype(np.float64), tuple(str(label) for label in labels))
