"""What the estimators accept as X: tables of numbers, data frames with categories, rows in a file."""

import datetime
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from xcal._checks import as_numpy, fail
from xcal.data import SurvivalData
from xcal.data.features import MappedFeatures, loaded_features

Floats = npt.NDArray[np.float64]

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
        X = _frame(X)
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
    X = _as_numbers(_listed(X) if isinstance(X, list | tuple) else X)
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


def _listed(X: Any) -> npt.NDArray[Any]:
    try:
        return np.asarray(X)
    except ValueError:
        fail("X", "rows of one length", "rows of different lengths")


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
    from xcal.estimators.encoding import Encoding  # which needs this module's types

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


def _frame(data: SurvivalData) -> Any:
    """Features as scikit-learn takes them, with their names where they have any."""
    x = as_numpy("X", loaded_features(data.x))
    return pd.DataFrame(x, columns=list(data.feature_names), copy=False) if data.feature_names else x


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
