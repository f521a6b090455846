"""What `audit` takes, checked once: outcomes, groups, thresholds, training rows."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from xcal._checks import (
    MANY,
    BoolArray,
    FloatArray,
    as_count,
    as_floats,
    as_numpy,
    as_row,
    as_weights,
    check_rows,
    effective_units,
    fail,
    first_row,
    is_missing,
)
from xcal.calibration.clusters import Clusters, as_clusters
from xcal.data import SurvivalData, time_and_event
from xcal.data._arguments import check_nothing_beside
from xcal.metrics.inputs import Vector
from xcal.validation.sample import Labels

# Groups of a variable: more values than these are no groups.
MOST_NUMERIC_GROUPS, MOST_GROUPS = 10, 30
# Rows times resamples that take about a minute, the number of resamples where that allows it, and the fewest.
RESAMPLED_ROWS, MOST_RESAMPLES, FEWEST_RESAMPLES = 10_000_000, 1000, 200
# Rows of the random part that is resampled where all of them would take longer: as noisy as all, up to a known factor.
PART_OF_ROWS = 10_000

Outcome = tuple[FloatArray, BoolArray]


def read_outcome(y: Any, *, name: str = "y", X: Any = None, beside: Mapping[str, Any] | None = None) -> Outcome:
    """Read times and events from `Surv`, a structured array, a data frame, or a pair (time, event).

    `X` and `beside` are what else is known of the same rows, as in `time_and_event`.
    """
    if y is None:
        fail(name, "the outcomes of the rows, Surv(time=..., event=...)", "None")
    if isinstance(y, SurvivalData):
        check_rows({"X": X, **(beside or {})})
        time, event = np.asarray(y.time), np.asarray(y.event)
    else:
        time, event = time_and_event(y, name=name, X=X, beside=beside)
    if time.size < 2:
        fail(name, "at least 2 rows", f"{time.size}")
    if not event.any():
        fail(name, "at least one event", f"{time.size} censored rows")
    return np.array(time, dtype=np.float64), np.array(event)


def of_rows(**given: Any) -> dict[str, Any]:
    """Return all that has a value for every row, by its argument: columns of a mapping one by one, curves by row."""
    found: dict[str, Any] = {}
    for name, values in given.items():
        if isinstance(values, Mapping):
            found |= {f"{name}[{str(key)!r}]": column for key, column in values.items()}
        else:
            found[name] = values
        columns = getattr(values, "columns", None)
        # Curves may stand in columns, one for each row: named by the rows, or counted.
        if name in ("model", "survival") and hasattr(columns, "equals") and type(columns).__name__ != "RangeIndex":
            found[f"columns of {name}"] = SimpleNamespace(index=columns)
    return found


def read_training(training: Any) -> tuple[Any, Outcome | None]:
    """Features, if they were given, and outcomes of the training rows: ``y``, ``(X, y)`` or `SurvivalData`."""
    if training is None:
        return None, None
    if isinstance(training, SurvivalData):
        return training.x, read_outcome(training, name="training")
    pair = isinstance(training, tuple) and len(training) == 2
    if pair and np.ndim(training[0]) == 2:
        return training[0], read_outcome(training[1], name="training y", X=training[0])
    return None, read_outcome(training, name="training")


def read_thresholds(thresholds: Any) -> Vector:
    """Risks at which somebody might act: increasing, between 0 and 1; by default every per cent."""
    if thresholds is None:
        return np.arange(1, 100) / 100
    found: Vector = as_floats("thresholds", as_row("thresholds", thresholds)).astype(np.float64)
    bad = ~((found > 0) & (found < 1))
    if bad.any():
        fail("thresholds", "risks between 0 and 1", found[first_row(bad)], first_row(bad))
    return np.unique(found)


def read_resamples(n_bootstrap: Any, n: int) -> tuple[int, int | None]:
    """Read the number of resamples, and of how many rows they are; None for all.

    "auto" is 1,000 up to 10,000 rows, fewer up to 50,000, and beyond 200 of a random part of 10,000 rows. A number that
    was asked for is of all rows.
    """
    if isinstance(n_bootstrap, str):
        if n_bootstrap != "auto":
            fail("n_bootstrap", "'auto' or a number of resamples", repr(n_bootstrap))
        if RESAMPLED_ROWS // n < FEWEST_RESAMPLES:
            return FEWEST_RESAMPLES, PART_OF_ROWS
        return min(MOST_RESAMPLES, RESAMPLED_ROWS // n), None
    return as_count("n_bootstrap", n_bootstrap, at_least=0, at_most=MANY), None


def read_groups(groups: Any, X: Any, n: int) -> dict[str, Labels]:
    """Labels of the rows for each variable: names of columns of X, a mapping, a frame, or one array."""
    if groups is None:
        return {}
    if isinstance(groups, str):
        groups = [groups]
    if isinstance(groups, Mapping):
        found = dict(groups)
    elif hasattr(groups, "columns"):
        found = {str(column): groups[column] for column in groups.columns}
    elif are_names(groups):
        found = {name: column_of(X, name, "groups") for name in groups}
    else:
        found = {str(getattr(groups, "name", None) or "group"): groups}
    return {str(name): _labels(str(name), values, n) for name, values in found.items()}


def read_clusters(clusters: Any, X: Any, n: int) -> Clusters | None:
    """Read the cluster of each row, from a column of X or labels; None where every row is a cluster of its own."""
    if clusters is None:
        return None
    labels = column_of(X, clusters, "clusters") if isinstance(clusters, str) else clusters
    found = as_clusters(labels, n, reference="y")
    return None if found.count == n else found


def read_weights(weights: Any, X: Any, y: Any, n: int) -> Vector | None:
    """Read the sampling weights of the rows, from a column of X, an array, or `SurvivalData`; None if all are equal."""
    if isinstance(y, SurvivalData) and y.weights is not None:
        check_nothing_beside({"weights": weights})
        return effective_units(as_weights("weights", y.weights, n, reference="y"))
    if weights is None:
        return None
    values = column_of(X, weights, "weights") if isinstance(weights, str) else weights
    check_rows({"X": X, "weights": values})
    return effective_units(as_weights("weights", values, n, reference="y"))


def are_names(given: Any, most: int = MOST_GROUPS) -> bool:
    """Whether names of columns were given, at most so many."""
    few = isinstance(given, list | tuple) and 0 < len(given) <= most
    return few and all(isinstance(name, str) for name in given)


def column_of(X: Any, name: str, argument: str) -> Any:
    """Return the column of X that an argument names."""
    columns = getattr(X, "columns", None)
    if columns is None:
        fail(argument, "a mapping of names to labels, where X is no data frame", f"the name {name!r}")
    if name not in list(columns):
        shown = ", ".join(str(column) for column in list(columns)[:12])
        fail(argument, f"names of columns of X ({shown})", repr(name))
    return X[name]


def _labels(name: str, values: Any, n: int) -> Labels:
    """Labels as text; a missing one becomes the label "missing", which the result shows as a group."""
    import pandas as pd

    where = f"groups[{name!r}]"
    listed = as_numpy(where, values) if hasattr(values, "detach") else values
    try:
        array = np.asarray(listed) if not hasattr(listed, "to_numpy") else listed.to_numpy()
    except ValueError:
        fail(where, f"{n} labels, one per row", "rows of different lengths")
    if array.ndim != 1 or array.dtype.names:
        fail(where, "a one-dimensional array, one label per row", f"{array.dtype} of shape {array.shape}")
    series = pd.Series(array)
    if series.size != n:
        fail(f"groups[{name!r}]", f"{n} labels, one per row", f"{series.size}")
    kinds = series.dropna().unique()
    numeric = series.dtype.kind in "iuf"
    if numeric and len(kinds) > MOST_NUMERIC_GROUPS:
        advice = f"cut it first: pandas.cut(X[{name!r}], 4), or a column of groups in the file"
        fail(f"groups[{name!r}]", f"at most {MOST_NUMERIC_GROUPS} values ({advice})", f"{len(kinds)} different numbers")
    if len(kinds) > MOST_GROUPS:
        fail(f"groups[{name!r}]", f"at most {MOST_GROUPS} groups", f"{len(kinds)} different labels")
    return np.asarray([_text(value) for value in series], dtype=np.str_)


def _text(value: Any) -> str:
    if is_missing(value):
        return "missing"
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)


def check_text(name: str, value: Any) -> None:
    """Check that what is printed as it is, is text."""
    if not isinstance(value, str):
        fail(name, "text", repr(value))
