"""Data frames as people have them, turned into numbers: `encode="auto"`."""

import datetime
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from xcal._checks import fail, first_row
from xcal.estimators.features import Floats

Kind = Literal["number", "category", "date"]
# More categories than this, or one for every second row, are names of rows and not classes of them.
MOST_CATEGORIES = 50
_DAY = pd.Timedelta(days=1)


@dataclass(frozen=True)
class ColumnCode:
    """How one column becomes numbers.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "date"}
        A number is itself, as are True (1) and False (0), and a duration is its days; a date is the days since
        `origin`; a category has a column of 0 and 1 for each of `categories`.
    fill : float
        What stands for a missing number: the median of the rows of `fit`.
    has_missing : bool
        Whether values were missing in `fit`: then there is one more column that says so.
    categories : tuple of str
    origin : str
        A date as text; "" for other kinds.
    """

    name: str
    kind: Kind
    fill: float
    has_missing: bool
    categories: tuple[str, ...] = ()
    origin: str = ""

    @property
    def width(self) -> int:
        """Number of columns that it becomes."""
        return (len(self.categories) if self.kind == "category" else 1) + self.has_missing

    @classmethod
    def of(cls, name: str, values: "pd.Series[Any]") -> "ColumnCode":
        """Learn from a column of the rows of `fit`."""
        missing = values.isna().to_numpy()
        if missing.all():
            fail("X", f"a value in column {name!r}", "missing values in every row")
        kind = _kind(values)
        if kind == "category":
            return cls(name, kind, 0.0, bool(missing.any()), _categories(name, values[~missing]))
        origin = str(pd.to_datetime(values[~missing]).min()) if kind == "date" else ""
        numbers = _numbers(name, kind, origin, values)
        return cls(name, kind, float(np.median(numbers[~missing])), bool(missing.any()), (), origin)

    def __call__(self, values: "pd.Series[Any]") -> list[Floats]:
        """Columns of numbers."""
        missing = values.isna().to_numpy()
        if missing.any() and not self.has_missing:
            instead = "none of its categories" if self.kind == "category" else "the median of fit stands for them"
            warnings.warn(
                f"column {self.name!r} has missing values, and fit saw none: {instead}",
                UserWarning,
                stacklevel=8,  # the line that calls predict
            )
        if self.kind == "category":
            labels = values.astype(str).to_numpy(dtype=object)
            unknown = ~missing & ~np.isin(labels.astype(str), self.categories)
            if unknown.any():
                told = f"the first at row {first_row(unknown)}"
                warnings.warn(
                    f"column {self.name!r} has values that fit never saw ({told}): none of its categories",
                    UserWarning,
                    stacklevel=8,  # the line that calls predict
                )
            found = [(~missing & (labels == category)).astype(np.float64) for category in self.categories]
        else:
            found = [np.where(missing, self.fill, _numbers(self.name, self.kind, self.origin, values))]
        return [*found, missing.astype(np.float64)] if self.has_missing else found


@dataclass(frozen=True)
class Encoding:
    """How the columns of a data frame become numbers, learnt in `fit` and saved with the model."""

    columns: tuple[ColumnCode, ...]

    @classmethod
    def of(cls, frame: Any) -> "Encoding":
        """Learn from the rows of `fit`."""
        return cls(tuple(ColumnCode.of(name, _column(frame, name)) for name in _names(frame)))

    @property
    def width(self) -> int:
        """Number of columns of numbers."""
        return sum(column.width for column in self.columns)

    def __call__(self, frame: Any) -> Floats:
        """Numbers of a frame with the same columns, ``(n, width)``."""
        parts: list[Floats] = []
        for column in self.columns:
            parts += column(_column(frame, column.name))
        return np.ascontiguousarray(np.column_stack(parts), dtype=np.float64)

    def as_json(self) -> list[dict[str, Any]]:
        """Return the columns in the form of a file."""
        return [asdict(column) | {"categories": list(column.categories)} for column in self.columns]

    @classmethod
    def from_json(cls, content: Sequence[Mapping[str, Any]]) -> "Encoding":
        """Read what `as_json` wrote, and `header` has checked."""
        return cls(tuple(ColumnCode(**{**column, "categories": tuple(column["categories"])}) for column in content))


def _names(frame: Any) -> list[str]:
    names = [str(name) for name in frame.columns]
    if not names:
        fail("X", "at least one column", "a data frame without any")
    return names


def _column(frame: Any, name: str) -> "pd.Series[Any]":
    """One column in pandas' form, whatever the frame is."""
    place = [str(column) for column in frame.columns].index(name)
    if isinstance(frame, pd.DataFrame):
        return frame.iloc[:, place].reset_index(drop=True)
    return pd.Series(frame[name].to_list(), name=name)


def _kind(values: "pd.Series[Any]") -> Kind:
    dtype = values.dtype
    if pd.api.types.is_bool_dtype(dtype) or pd.api.types.is_numeric_dtype(dtype):
        return "number"
    if pd.api.types.is_timedelta64_dtype(dtype):
        return "number"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "date"
    seen = values.dropna()
    objects = pd.api.types.is_object_dtype(dtype)
    if objects and all(isinstance(value, bool | np.bool_ | int | float | np.number) for value in seen):
        return "number"
    if objects and all(isinstance(value, datetime.date) for value in seen):
        return "date"
    return "category"


def _categories(name: str, seen: "pd.Series[Any]") -> tuple[str, ...]:
    found = sorted({str(value) for value in seen})
    if len(found) > MOST_CATEGORIES or (len(found) > 2 and 2 * len(found) > len(seen)):
        expected = f"columns of at most {MOST_CATEGORIES} categories, with two rows or more each on average"
        fail("X", expected, f"{len(found)} different values in column {name!r}: leave out what only names the rows")
    return tuple(found)


def _numbers(name: str, kind: Kind, origin: str, values: "pd.Series[Any]") -> Floats:
    """Numbers of a column that is none of categories, NaN where they are missing."""
    try:
        if kind == "date":
            return np.asarray((pd.to_datetime(values) - pd.Timestamp(origin)) / _DAY, dtype=np.float64)
        if pd.api.types.is_timedelta64_dtype(values.dtype):
            return np.asarray(values / _DAY, dtype=np.float64)
        numbers = pd.to_numeric(values).to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise ValueError(f"X: expected {kind}s in column {name!r}, as in fit, got others: {error}") from error
    if np.isinf(numbers).any():
        fail("X", "finite numbers", f"infinity in column {name!r}", first_row(np.isinf(numbers)))
    return np.asarray(numbers)
