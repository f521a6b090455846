"""What the estimators accept as rows: tables of numbers, data frames as people have them, outcomes and weights."""

import datetime
import tempfile
import warnings
from dataclasses import asdict, dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from xcal._checks import (
    Floats,
    as_numpy,
    as_weights,
    check_rows,
    fail,
    first_row,
)
from xcal.data.features import ColumnKind, MappedFeatures, column_kind, loaded_features
from xcal.data.parquet import map_parquet
from xcal.data.surv import Outcome
from xcal.data.survival import SurvivalData, check_nothing_beside, outcome_of, read_labels, read_weights

_ENCODE = (
    "encode categories in the pipeline before this estimator, with OneHotEncoder for instance: make_survival_pipeline("
    "make_column_transformer((OneHotEncoder(), [names]), remainder='passthrough'), SurvivalModel()); or encode='auto'"
)
_DATES = "turn dates and durations into numbers before, days since a fixed date for instance; or encode='auto'"
_IMPUTE = "impute them in the pipeline before this estimator, with SimpleImputer for instance; or encode='auto'"


def read_features(estimator: Any, X: Any, *, reset: bool) -> Floats:
    """Features as a float array. With `reset` their number and names are learnt, otherwise compared.

    Categories and missing values belong to the steps of a pipeline before the estimator; the errors say so.
    """
    if isinstance(X, SurvivalData):
        numbers, known = as_numpy("X", loaded_features(X.x)), list(X.feature_names or ())
        X = pd.DataFrame(numbers, columns=known, copy=False) if known else numbers
    if isinstance(X, str | PathLike):
        expected = "a table, or for fit the path of a parquet file (pandas.read_csv reads a CSV file)"
        fail("X", expected, repr(str(X)))
    if type(X).__name__ == "LazyFrame":
        fail("X", "a data frame with its rows", "a LazyFrame: call .collect() first")
    _check_names(X)
    encoded = _encoded(estimator, X, reset=reset)
    if encoded is not None:
        return encoded
    _check_columns(X)
    if isinstance(X, list | tuple):
        try:
            X = np.asarray(X)
        except ValueError:
            fail("X", "rows of one length", "rows of different lengths")
    X = _as_numbers(X)
    if issparse(X):
        X = X.toarray()  # one-hot encoded columns, as OneHotEncoder gives them
    x = _validated(estimator, X, reset=reset)
    bad = ~np.isfinite(x)
    if bad.any():
        row, column = np.unravel_index(int(bad.argmax()), x.shape)
        names = getattr(estimator, "feature_names_in_", None)
        label = f"column {int(column) if names is None else repr(str(names[column]))}"
        if np.isnan(x[row, column]):
            fail("X", f"no missing values ({_IMPUTE})", f"NaN in {label}", int(row))
        fail("X", "finite numbers", f"{x[row, column]} (infinity) in {label}", int(row))
    return x


def _validated(estimator: Any, X: Any, *, reset: bool) -> Floats:
    """Let scikit-learn check the table; its words come on one line, with the argument's name."""
    try:
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
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:  # of torch: a tensor that cannot be read
        if "feature names" in str(error):
            raise  # a list of names, in the form that scikit-learn's own checks ask for
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"X: {' '.join(str(error).split())}") from error
    return x


def read_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Features that can be read some rows at a time: an array, or for `SurvivalData` in a file what reads from it.

    Rows of a file were checked when the data was made. Of these only names and number of the columns are learnt or
    compared; nothing else is read.
    """
    if not isinstance(X, SurvivalData) or not isinstance(X.x, np.memmap | MappedFeatures) or X.x.ndim != 2:
        return read_features(estimator, X, reset=reset)
    if reset and X.n < 2:
        fail("X", "at least two rows to train on", X.n)
    first = X[:1]
    read_features(estimator, first.replaced(x=np.repeat(np.asarray(first.x), 2, axis=0)), reset=reset)
    return X.x if isinstance(X.x, MappedFeatures) else MappedFeatures(X.x)


def _encoded(estimator: Any, X: Any, *, reset: bool) -> Floats | None:
    """Numbers of a data frame by the estimator's encoding; None if it has none and shall have none."""
    is_frame = hasattr(X, "columns")
    if reset and hasattr(estimator, "encoding_"):
        del estimator.encoding_
    if reset and estimator.encode == "auto" and is_frame:
        estimator.encoding_ = Encoding.of(X)
    if not hasattr(estimator, "encoding_"):
        return None
    if not is_frame:
        names = ", ".join(column.name for column in estimator.encoding_.columns)
        fail("X", f"a data frame with the columns {names}, as in fit", type(X).__name__)
    validate_data(estimator, X, reset=reset, skip_check_array=True)
    encoded: Floats = estimator.encoding_(X)
    return encoded


def _check_names(X: Any) -> None:
    """Refuse a data frame that has a name twice; scikit-learn and pandas say so in many ways."""
    names = [str(name) for name in getattr(X, "columns", ())]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        fail("X", "columns with different names", f"{twice!r} more than once")


def _check_columns(X: Any) -> None:
    """Name the first column of a data frame that does not hold numbers."""
    columns, dtypes = getattr(X, "columns", None), getattr(X, "dtypes", None)
    if columns is None or dtypes is None:
        return
    if len(columns) == 0:
        fail("X", "at least one column", "a data frame without any")
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


# --- Data frames as people have them, turned into numbers: `encode="auto"`.


Kind = Literal["number", "category", "date"]
# More categories than this, or one for every second row, are names of rows and not classes of them.
MOST_CATEGORIES = 50
_DAY = pd.Timedelta(days=1)


@dataclass(frozen=True)
class ColumnCode:
    """How one column becomes numbers."""

    name: str
    # A number is itself, as are True (1) and False (0), and a duration is its days; a date is the days since `origin`;
    # a category has a column of 0 and 1 for each of `categories`
    kind: Kind
    fill: float  # what stands for a missing number: the median of the rows of `fit`
    has_missing: bool  # whether values were missing in `fit`: then there is one more column that says so
    categories: tuple[str, ...] = ()
    origin: str = ""  # a date as text; "" for other kinds

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
        kind = feature_kind(values)
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
        names = [str(name) for name in frame.columns]
        if not names:
            fail("X", "at least one column", "a data frame without any")
        return cls(tuple(ColumnCode.of(name, _column(frame, name)) for name in names))

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


def _column(frame: Any, name: str) -> "pd.Series[Any]":
    """One column in pandas' form, whatever the frame is."""
    place = [str(column) for column in frame.columns].index(name)
    if isinstance(frame, pd.DataFrame):
        return frame.iloc[:, place].reset_index(drop=True)
    return pd.Series(frame[name].to_list(), name=name)


# What a column is to a model, by what it holds.
_FEATURE_KIND: dict[ColumnKind, Kind] = {
    "number": "number",
    "flag": "number",
    "duration": "number",
    "date": "date",
    "category": "category",
}


def feature_kind(values: "pd.Series[Any]") -> Kind:
    """Return the kind of a column that a model learns from: flags and durations are numbers to it."""
    return _FEATURE_KIND[column_kind(values)]


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


# --- Rows with their outcomes and weights, checked once.


def read_observed(X: Any, y: Any, n: int | None = None, *, name: str = "y") -> Outcome:
    """Read what was observed of the `n` rows of X: the estimators know of entries, intervals, people and causes."""
    found = outcome_of(X, y, n, name=name, entry=True, intervals=True, people=True, causes=True)
    return found if len(found.causes) > 1 else replace(found, cause=None, causes=())


def read_table(estimator: Any, X: Any, y: Any, weights: Any) -> SurvivalData:
    """Rows to fit on, without those of weight zero."""
    if isinstance(X, str | PathLike) and Path(X).suffix == ".parquet":
        X, y = _from_parquet(Path(X), y), None
    if isinstance(X, SurvivalData):
        check_nothing_beside({"y": y, "sample_weight": weights})
        return _as_table(estimator, X, reset=True)
    x = read_features(estimator, X, reset=True)
    outcome = read_observed(X, y, x.shape[0])
    check_rows({"X": X, "sample_weight": weights})
    return _weighted(x, outcome, _read_weights(weights, x.shape[0], "sample_weight"))


def _from_parquet(path: Path, y: Any) -> SurvivalData:
    """Rows of a parquet file whose columns `y` names; they are read piece by piece, and held in memory then."""
    known = {"time", "event", "cause", "entry", "lower", "upper", "id", "weights"}
    if not isinstance(y, dict) or not set(y) <= known or not all(isinstance(name, str) for name in y.values()):
        fail("y", "the names of columns of the file, such as {'time': 'months', 'event': 'died'}", repr(y)[:80])
    with tempfile.TemporaryDirectory() as folder:
        data = map_parquet(path, into=Path(folder) / "features.npy", **y)
        return data.replaced(x=loaded_features(data.x))


def read_validation(estimator: Any, data: Any, clusters: Any = None) -> SurvivalData:
    """Rows given as ``validation_data=(X, y)``, ``(X, y, sample_weight)`` or `SurvivalData`.

    `clusters`, one label per row, become their `groups`; without them the rows have none, and are independent.
    """
    if isinstance(data, SurvivalData):
        table = _as_table(estimator, data, reset=False)
    elif not isinstance(data, tuple | list) or len(data) not in (2, 3):
        fail("validation_data", "(X, y) or (X, y, sample_weight)", type(data).__name__)
    else:
        x = read_features(estimator, data[0], reset=False)
        outcome = read_observed(data[0], data[1], x.shape[0], name="validation_data y")
        given = data[2] if len(data) == 3 else None
        check_rows({"its X": data[0], "validation_data sample_weight": given, "validation_clusters": clusters})
        table = _weighted(x, outcome, _read_weights(given, x.shape[0], "validation_data sample_weight"))
    if not table.event.any():
        fail("validation_data", "at least one event", f"{table.n} censored rows")
    if clusters is None:
        return table
    labels = read_labels("validation_clusters", clusters, table.n)
    if np.unique(labels).size < 2:
        fail("validation_clusters", "at least two clusters", f"the label {labels[0]} in every row")
    return table.replaced(groups=labels)


def read_judged_weights(X: Any, weights: Any, n: int) -> Floats | None:
    """Read the sampling weights of the `n` rows of X, from `sample_weight` or from the `SurvivalData` that X is."""
    if isinstance(X, SurvivalData):
        check_nothing_beside({"sample_weight": weights})
        return None if X.weights is None else as_weights("weights", X.weights, n, reference="X")
    check_rows({"X": X, "sample_weight": weights})
    return None if weights is None else as_weights("sample_weight", weights, n, reference="X")


def _as_table(estimator: Any, data: SurvivalData, *, reset: bool) -> SurvivalData:
    """Rows of an estimator, features and times in float64, from data that was checked when it was made.

    Features in a file stay there, in their own type.
    """
    x = read_rows(estimator, data, reset=reset)
    weights = None if data.weights is None else as_numpy("weights", data.weights)
    return _weighted(x, read_observed(data, None), weights)


def check_events(table: SurvivalData, *, discrete: bool, split: bool) -> None:
    """Check that there are events to learn from: two for time bins, and one more if the rows will be split.

    Of each cause there has to be one, and one more if the rows will be split.
    """
    found = int(np.count_nonzero(table.event))
    to_train = 2 if discrete else 1
    needed = to_train + split
    if found < needed:
        why = f", {to_train} to train on and 1 to validate on (or give validation_data)" if split else " to train on"
        expected = f"at least {needed} event{'s' if needed > 1 else ''}{why}"
        fail("y", expected, f"{found} among n_samples = {table.n} rows")
    for k, label in enumerate(table.causes, 1):
        if (of_cause := int(np.count_nonzero(table.cause == k))) < 1 + split:
            fail("y", f"at least {1 + split} events of cause {label!r}", f"{of_cause} among {table.n} rows")


def warn_of_few_events(table: SurvivalData) -> None:
    """Warn the caller of `fit` if there are so few events that nothing can be learnt, or many at time zero."""
    events = table.time[table.event]
    if events.size < FEW_EVENTS:
        told = f"{events.size} events among {table.n} rows are too few to learn from: predictions will be near chance"
        warnings.warn(told, UserWarning, stacklevel=5)
    at_zero = int(np.count_nonzero(events <= 0))
    # All of them at zero is an error, said later.
    if max(_FEW_AT_ZERO, _SHARE_AT_ZERO * events.size) <= at_zero < events.size:
        warnings.warn(
            f"{at_zero} of {events.size} events are at time 0, and are read as events within the first time bin. If "
            "times are rounded down, add half a unit to all of them; if the event was there at the start, leave such "
            "rows out",
            UserWarning,
            stacklevel=5,
        )


# With fewer events `fit` warns.
FEW_EVENTS = 10
# So many events at time zero, and so large a share of all events, are no accident: units that were rounded down.
_FEW_AT_ZERO, _SHARE_AT_ZERO = 3, 0.02


def check_no_event_at_zero(table: SurvivalData, name: str) -> None:
    """Check the rows of a continuous distribution; `name` is the argument that they came by."""
    found = int(np.count_nonzero(table.event & (table.time <= 0)))
    if found:
        fail(
            name,
            "event times larger than zero (a continuous distribution has no likelihood for an event at time zero; move "
            "such rows to a small positive time or use a discrete one, 'mtlr' for instance)",
            f"{found} at time zero",
        )


def _read_weights(weights: Any, n: int, name: str) -> Floats | None:
    if weights is None:
        return None
    if not np.any(as_numpy(name, weights)):
        fail(name, "at least one weight above zero", "none. Sample weights must contain at least one non-zero number.")
    return read_weights(name, weights, n, reference="X")


def _weighted(x: Any, outcome: Outcome, weights: Floats | None) -> SurvivalData:
    """Put checked rows together, without those of weight zero."""
    # Rows of one person are no independent observations.
    table = SurvivalData.trusted(x, None, None, weights, groups=outcome.id).with_outcome(outcome)
    if not table.plain and weights is not None:
        fail("sample_weight", "None for rows that are seen in part, or of several causes", "weights")
    return table if weights is None else table[np.flatnonzero(weights > 0)]
