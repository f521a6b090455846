"""What the estimators accept as rows with their outcomes and weights, checked once; `features` has X alone."""

import tempfile
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import (
    BoolArray,
    as_floats,
    as_numpy,
    as_row,
    as_weights,
    check_rows,
    check_same_length,
    fail,
    first_row,
)
from xcal.data import SurvivalData, time_and_event
from xcal.data._arguments import check_nothing_beside
from xcal.data.columns import read_labels, read_weights
from xcal.data.features import loaded_features
from xcal.data.parquet import map_parquet
from xcal.estimators.features import Floats, read_features, read_rows


def read_target(X: Any, y: Any, n: int, *, name: str = "y") -> tuple[Floats, BoolArray]:
    """Check times and events of the `n` rows of X."""
    if y is None:
        fail(
            name,
            "Surv(time=..., event=...)",
            "None: a survival model requires y to be passed, but the target y is None",
        )
    time, event = time_and_event(y, name=name, X=X)
    check_same_length(name, time, "X", n)
    # A field of a structured array has gaps between its values, which torch cannot take; one row counts as contiguous
    # whatever its gaps, so that only a copy is safe.
    return np.array(time, dtype=np.float64), np.array(event)


def read_table(estimator: Any, X: Any, y: Any, weights: Any) -> SurvivalData:
    """Rows to fit on, without those of weight zero."""
    if isinstance(X, str | PathLike) and Path(X).suffix == ".parquet":
        X, y = _from_parquet(Path(X), y), None
    if isinstance(X, SurvivalData):
        check_nothing_beside({"y": y, "sample_weight": weights})
        return _as_table(estimator, X, reset=True)
    x = read_features(estimator, X, reset=True)
    time, event = read_target(X, y, x.shape[0])
    check_rows({"X": X, "sample_weight": weights})
    return _weighted(x, time, event, _read_weights(weights, x.shape[0], "sample_weight"))


def _from_parquet(path: Path, y: Any) -> SurvivalData:
    """Rows of a parquet file whose columns `y` names; they are read piece by piece, and held in memory then."""
    known = ("time", "event", "weights")
    if (
        not isinstance(y, dict)
        or not {"time", "event"} <= set(y) <= set(known)
        or not all(isinstance(name, str) for name in y.values())
    ):
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
        time, event = read_target(data[0], data[1], x.shape[0], name="validation_data y")
        given = data[2] if len(data) == 3 else None
        check_rows({"its X": data[0], "validation_data sample_weight": given, "validation_clusters": clusters})
        table = _weighted(x, time, event, _read_weights(given, x.shape[0], "validation_data sample_weight"))
    if not table.event.any():
        fail("validation_data", "at least one event", f"{table.n} censored rows")
    if clusters is None:
        return table
    labels = read_labels("validation_clusters", clusters, table.n)
    if np.unique(labels).size < 2:
        fail("validation_clusters", "at least two clusters", f"the label {labels[0]} in every row")
    return table.replaced(groups=labels)


def read_outcome(X: Any, y: Any, n: int) -> tuple[Floats, BoolArray]:
    """Read times and events of the `n` rows of X, from y or from the `SurvivalData` that X is."""
    if not isinstance(X, SurvivalData):
        return read_target(X, y, n)
    check_nothing_beside({"y": y})
    return as_numpy("time", X.time).astype(np.float64), as_numpy("event", X.event)


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
    return _weighted(x, as_numpy("time", data.time).astype(np.float64), as_numpy("event", data.event), weights)


def check_events(table: SurvivalData, *, discrete: bool, split: bool) -> None:
    """Check that there are events to learn from: two for time bins, and one more if the rows will be split."""
    found = int(np.count_nonzero(table.event))
    to_train = 2 if discrete else 1
    needed = to_train + split
    if found < needed:
        why = f", {to_train} to train on and 1 to validate on (or give validation_data)" if split else " to train on"
        expected = f"at least {needed} event{'s' if needed > 1 else ''}{why}"
        fail("y", expected, f"{found} among n_samples = {table.n} rows")


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


def read_times(times: Any) -> Floats:
    """Check times at which curves are asked for: finite, zero or larger, in any order."""
    values = as_floats("times", as_row("times", times)).astype(np.float64)
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        fail("times", "finite times, zero or larger", values[first_row(bad)], first_row(bad))
    return values


def _read_weights(weights: Any, n: int, name: str) -> Floats | None:
    if weights is None:
        return None
    if not np.any(as_numpy(name, weights)):
        fail(name, "at least one weight above zero", "none. Sample weights must contain at least one non-zero number.")
    return read_weights(name, weights, n, reference="X")


def _weighted(x: Any, time: Floats, event: BoolArray, weights: Floats | None) -> SurvivalData:
    """Put checked rows together, without those of weight zero."""
    table = SurvivalData.trusted(x, time, event, weights)
    return table if weights is None else table[np.flatnonzero(weights > 0)]
