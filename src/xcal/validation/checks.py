"""What `audit` takes, checked once: outcomes, horizons, groups, thresholds, training rows."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from xcal._checks import BoolArray, FloatArray, as_count, as_event, as_floats, as_time, fail, first_row
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.data import SurvivalData, time_and_event
from xcal.metrics.inputs import Vector
from xcal.validation.sample import Labels

# A share of the rows, and a number of them, that must still be under observation at a horizon that is chosen here.
SUPPORTED_SHARE, SUPPORTED_ROWS = 0.05, 10
# Groups of a variable: more values than these are no groups.
MOST_NUMERIC_GROUPS, MOST_GROUPS = 10, 30
# Rows times resamples that take about a minute, the number of resamples where that allows it, and the fewest.
RESAMPLED_ROWS, MOST_RESAMPLES, FEWEST_RESAMPLES = 10_000_000, 1000, 200
# Rows of the random part that is resampled where all of them would take longer: as noisy as all, up to a known factor.
PART_OF_ROWS = 10_000

# First digits of numbers that are easy to read.
_READABLE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)

Outcome = tuple[FloatArray, BoolArray]


def read_outcome(y: Any, *, name: str = "y") -> Outcome:
    """Read times and events from `Surv`, a structured array, a data frame, or a pair (time, event)."""
    if y is None:
        fail(name, "the outcomes of the rows, Surv(time=..., event=...)", "None")
    if isinstance(y, SurvivalData):
        time, event = np.asarray(y.time), np.asarray(y.event)
    elif isinstance(y, tuple) and len(y) == 2:
        time = as_time(y[0], name=f"{name} time")
        event = as_event(y[1], time.size, reference=f"{name} time", name=f"{name} event")
    else:
        time, event = time_and_event(y, name=name)
    if time.size < 2:
        fail(name, "at least 2 rows", f"{time.size}")
    if not event.any():
        fail(name, "at least one event", f"{time.size} censored rows")
    return np.array(time, dtype=np.float64), np.array(event)


def read_training(training: Any) -> tuple[Any, Outcome | None]:
    """Features, if they were given, and outcomes of the training rows: ``y``, ``(X, y)`` or `SurvivalData`."""
    if training is None:
        return None, None
    if isinstance(training, SurvivalData):
        return training.x, read_outcome(training, name="training")
    pair = isinstance(training, tuple) and len(training) == 2
    if pair and np.ndim(training[0]) == 2:
        return training[0], read_outcome(training[1], name="training y")
    return None, read_outcome(training, name="training")


def supported_until(time: FloatArray, event: BoolArray) -> float:
    """Give the last time at which enough rows are still under observation; half of the rows where there are few."""
    enough = min(max(SUPPORTED_ROWS, SUPPORTED_SHARE * time.size), time.size / 2)
    curve = fit_kaplan_meier(time, event)
    return float(curve.times[curve.at_risk >= enough][-1])


def default_horizons(time: FloatArray, event: BoolArray, end: float = np.inf) -> Vector:
    """Quartiles of the event times within the follow-up that enough rows support, as readable numbers.

    `end` is where the model's curves end.

    Examples
    --------
    >>> time = np.arange(1.0, 1001.0)
    >>> default_horizons(time, np.full(1000, True))
    array([250., 500., 700.])
    """
    limit = min(supported_until(time, event), end)
    seen = time[event & (time <= limit)]
    if seen.size == 0:
        seen = np.array([limit])
    quartiles = np.quantile(seen, [0.25, 0.5, 0.75])
    found = np.unique([rounded(float(t), at_most=limit) for t in quartiles])
    return found[found > 0] if (found > 0).any() else np.array([limit])


def rounded(t: float, *, at_most: float) -> float:
    """Give the readable number that is closest in proportion, and not past `at_most`.

    Examples
    --------
    >>> rounded(0.96, at_most=2.0), rounded(481.0, at_most=1000.0), rounded(96.0, at_most=99.0)
    (1.0, 500.0, 90.0)
    """
    if t <= 0:
        return t
    power = math.floor(math.log10(t))
    near = [float(f"{step * 10.0**exponent:.12g}") for exponent in (power, power + 1) for step in _READABLE]
    allowed = [number for number in near if number <= at_most] or [t]
    return min(allowed, key=lambda number: abs(math.log(number / t)))


def read_horizons(horizons: Any, time: FloatArray) -> Vector:
    """Check horizons that were asked for: increasing, after 0, and not past the last time of the rows."""
    found: Vector = as_floats("horizons", np.atleast_1d(np.asarray(horizons))).astype(np.float64)
    bad = ~(np.isfinite(found) & (found > 0))
    if bad.any():
        fail("horizons", "finite times above 0", found[first_row(bad)], first_row(bad))
    last = float(time.max())
    if found.max() > last:
        fail("horizons", f"times within the follow-up, whose last time is {last:g}", f"{found.max():g}")
    return np.unique(found)


def check_covered(horizons: Vector, end: float) -> None:
    """Refuse a horizon past the end of the curves: the model says nothing about it."""
    if horizons.size and horizons[-1] > end:
        fail("horizons", f"times that the model's curves cover, which end at {end:g}", f"{horizons[-1]:g}")


def read_thresholds(thresholds: Any) -> Vector:
    """Risks at which somebody might act: increasing, between 0 and 1; by default every per cent."""
    if thresholds is None:
        return np.arange(1, 100) / 100
    found: Vector = as_floats("thresholds", np.atleast_1d(np.asarray(thresholds))).astype(np.float64)
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
    return as_count("n_bootstrap", n_bootstrap, at_least=0), None


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
    elif _are_names(groups):
        found = {name: _column(X, name) for name in groups}
    else:
        found = {str(getattr(groups, "name", None) or "group"): groups}
    return {str(name): _labels(str(name), values, n) for name, values in found.items()}


def _are_names(groups: Any) -> bool:
    few = isinstance(groups, list | tuple) and 0 < len(groups) <= MOST_GROUPS
    return few and all(isinstance(name, str) for name in groups)


def _column(X: Any, name: str) -> Any:
    columns = getattr(X, "columns", None)
    if columns is None:
        fail("groups", "a mapping of names to labels, where X is no data frame", f"the name {name!r}")
    if name not in list(columns):
        shown = ", ".join(str(column) for column in list(columns)[:12])
        fail("groups", f"names of columns of X ({shown})", repr(name))
    return X[name]


def _labels(name: str, values: Any, n: int) -> Labels:
    """Labels as text; a missing one becomes the label "missing", which the result shows as a group."""
    import pandas as pd

    series = pd.Series(np.asarray(values) if not hasattr(values, "to_numpy") else values.to_numpy())
    if series.size != n:
        fail(f"groups[{name!r}]", f"{n} labels, one per row", f"{series.size}")
    kinds = series.dropna().unique()
    numeric = series.dtype.kind in "iuf"
    if numeric and len(kinds) > MOST_NUMERIC_GROUPS:
        advice = f"cut it first, for instance pandas.cut(X[{name!r}], 4)"
        fail(f"groups[{name!r}]", f"at most {MOST_NUMERIC_GROUPS} values ({advice})", f"{len(kinds)} different numbers")
    if len(kinds) > MOST_GROUPS:
        fail(f"groups[{name!r}]", f"at most {MOST_GROUPS} groups", f"{len(kinds)} different labels")
    return np.asarray([_text(value) for value in series], dtype=np.str_)


def _text(value: Any) -> str:
    if value is None or value != value:  # noqa: PLR0124 - NaN
        return "missing"
    return f"{value:g}" if isinstance(value, float | np.floating) else str(value)
