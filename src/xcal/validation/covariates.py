"""The covariates of an audit: which columns can be asked "for whom?", and why the others cannot."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from xcal._checks import BoolArray, FloatArray, fail
from xcal.calibration.covariates import Column, is_category
from xcal.validation.checks import MOST_GROUPS, Outcome, are_names, column_of

# The size of the test was measured up to so many columns.
MOST_COLUMNS = 50
# With fewer rows a subgroup of one half has hardly the 30 rows that the search asks for.
FEWEST_ROWS = 100
# Share of missing numbers up to which the median stands for them: right for every row means right for these rows, too.
# Of a column that is mostly empty, such as the day of a relapse, the gaps themselves are often known only later.
MOST_MISSING = 0.2
NO_COVARIATES = "no covariates were given: covariates= takes a table of them"

Reasons = tuple[tuple[str, str], ...]


def read_covariates(covariates: Any, X: Any, outcome: Outcome) -> tuple[tuple[Column, ...], Reasons, str]:
    """Read the columns that calibration is asked about: those given, or those of X.

    Returns
    -------
    columns : tuple of Column
        Empty if there are none.
    left_out : tuple of (name, reason)
        Columns that cannot be used.
    reason : str
        Why there are no columns; "" if there are.
    """
    n, given = outcome[0].size, covariates is not None
    if given and are_names(covariates, MOST_COLUMNS):
        named: Mapping[str, Any] | None = {name: column_of(X, name, "covariates") for name in covariates}
    else:
        named = _named(covariates if given else X)
    if named is None:
        if given:
            expected = "a table, a mapping of names to values, or names of columns of X"
            fail("covariates", expected, type(covariates).__name__)
        return (), (), NO_COVARIATES if X is None else "X is no table with one column per covariate"
    lengths = {len(values) for values in named.values()}
    if given and lengths - {n}:
        fail("covariates", f"{n} rows, one per outcome", f"{(lengths - {n}).pop()}")
    if lengths - {n}:
        return (), (), "X has another number of rows than y"
    if n < FEWEST_ROWS:
        return (), (), f"{n} rows are too few, at least {FEWEST_ROWS} are needed"
    return _usable(named, outcome, given=given)


def _usable(named: Mapping[str, Any], outcome: Outcome, *, given: bool) -> tuple[tuple[Column, ...], Reasons, str]:
    if len(named) > MOST_COLUMNS:
        if given:
            fail("covariates", f"at most {MOST_COLUMNS} columns", len(named))
        return (), (), f"X has {len(named):,} columns; name at most {MOST_COLUMNS} of them: covariates=[...]"
    columns, left_out = [], []
    for name, values in named.items():
        found = _read(name, values)
        found = found if isinstance(found, str) else _outcome_again(found, outcome) or found
        if isinstance(found, str):
            left_out.append((name, found))
        else:
            columns.append(found)
    reason = "" if columns else "no column can be used: " + "; ".join(f"{name} ({why})" for name, why in left_out[:3])
    return tuple(columns), tuple(left_out), reason


def _named(table: Any) -> dict[str, Any] | None:
    """Give the columns by their names; None for what is no table."""
    if isinstance(table, Mapping):
        return {str(name): values for name, values in table.items()} or None
    if hasattr(table, "columns") and not isinstance(table, np.ndarray):
        return {str(name): table[name] for name in table.columns} or None
    if not (hasattr(table, "__array__") or isinstance(table, list)):
        return None
    array = np.asarray(table)
    if array.ndim == 1 and array.dtype != object:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        return None
    return {f"x{k}": array[:, k] for k in range(array.shape[1])}


def _read(name: str, values: Any) -> Column | str:
    """Read one column, or say why it cannot be used."""
    import pandas as pd

    series = pd.Series(values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values))
    if series.nunique(dropna=False) < 2:
        return "all its values are the same"
    if series.dtype.kind == "O":
        series = series.infer_objects()
    if series.dtype.kind in "iuf" and not is_category(values):
        numbers = series.to_numpy(dtype=np.float64)
        missing = ~np.isfinite(numbers)
        if missing.mean() > MOST_MISSING:
            return f"{np.count_nonzero(missing):,} of its values are missing"
        numbers = np.where(missing, np.median(numbers[~missing]), numbers)
        if series.is_unique and bool((numbers == np.round(numbers)).all()):
            return "its whole numbers are all different, as those of an id"
        return Column(name, numbers)
    if series.dtype.kind in "mM":
        return "it holds dates"
    text = np.where(series.isna().to_numpy(), "missing", series.astype(str).to_numpy().astype(np.str_))
    labels, codes = np.unique(text, return_inverse=True)
    if labels.size > MOST_GROUPS:
        return f"it has {labels.size:,} different labels"
    return Column(name, codes.astype(np.float64), tuple(str(label) for label in labels))


def _outcome_again(column: Column, outcome: Outcome) -> str:
    """Say that a column tells the outcome, which no covariate does: the time, a coarser time, the event, its cause."""
    time, event = outcome
    if column.labels is None and _monotone(column.values, time):
        return "it follows from the time"
    if _tells(column.values, event):
        return "it tells whether the event happened"
    return ""


def _monotone(values: FloatArray, time: FloatArray) -> bool:
    """Whether the rows in the order of their times are in the order of the values, upwards or downwards."""
    upwards, downwards = (values[np.lexsort((sign * values, time))] for sign in (1, -1))
    return bool((np.diff(upwards) >= 0).all() or (np.diff(downwards) <= 0).all())


def _tells(values: FloatArray, event: BoolArray) -> bool:
    """Whether rows of the same value all have the event, or none of them has; of few different values only."""
    distinct, place = np.unique(values, return_inverse=True)
    if distinct.size > MOST_GROUPS or event.all():
        return False
    share = np.bincount(place, weights=event) / np.bincount(place)
    return bool(np.isin(share, (0.0, 1.0)).all())
