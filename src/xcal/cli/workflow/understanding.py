"""What a file holds: kinds of columns, missing values, times and events, and which columns are no features."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xcal._checks import BoolArray, fail
from xcal.cli.table_file import Floats, TableFile, is_date
from xcal.cli.workflow.columns import dates_of, kind_of, read_features
from xcal.cli.workflow.settings import DATES, FitSettings
from xcal.cli.workflow.time_between import as_numbers, rank_correlation, time_between
from xcal.estimators.encoding import MOST_CATEGORIES, Kind
from xcal.metrics.small_cells import ends, is_small, told

# Rank correlation with the time from which a column deserves a second look.
_CLOSE_TO_TIME = 0.95
# Rank correlation with the time above which a column is the time itself: a rounded copy has ties and is a little below
# 1, and nothing that is known at the start orders censored rows so well.
_SAME_ORDER = 0.995
# Kind of a column that has a role, or is dropped: it was not looked at.
NO_KIND = "-"
# Rows below which an equality with the outcome may be chance.
_FEW_ROWS = 10
# Categories that the table of columns shows.
_SHOWN = 4


@dataclass(frozen=True)
class Column:
    """One column: what it is, and why it is no feature (`left_out`, "" for a feature).

    `missing` is None where a few rows have no value. `values` tells of no value that only a few rows have. `advice`
    says what can be done about a column that is left out.
    """

    name: str
    kind: str
    missing: int | None
    values: str
    left_out: str = ""
    advice: str = ""


@dataclass(frozen=True)
class Understanding:
    """What was understood of the rows to train on.

    Attributes
    ----------
    columns : tuple of Column
        In the order of the file.
    notes : tuple of str
        What a person should look at, a sentence each.
    dates : {"day-first", "month-first"} or None
        How dates with the year last are read; None where there are none, or nobody can tell.
    """

    columns: tuple[Column, ...]
    notes: tuple[str, ...]
    dates: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that are learnt from."""
        return tuple(column.name for column in self.columns if not column.left_out)


@dataclass(frozen=True, eq=False)
class Outcome:
    """Times and events of a file."""

    time: Floats
    event: BoolArray


def read_outcome(table: TableFile, settings: FitSettings) -> Outcome:
    """Read times and events; at least two rows, and one event."""
    time = table.times(settings.time, "--time")
    event = table.events(settings.event, "--event", settings.event_value)
    if table.n < 2:
        fail(str(table.path), "at least 2 rows", table.n)
    if not event.any():
        table.fail(settings.event, "at least one event", f"{table.n} rows without one")
    return Outcome(time, event)


def understand(table: TableFile, outcome: Outcome, rows: Any, settings: FitSettings) -> tuple[Understanding, Any]:
    """Judge every column by the rows to train on (`rows`, their numbers), and read the features of all rows.

    Returns what was understood, and the data frame of the features.
    """
    for option, names in (("--drop", settings.drop), ("--keep", settings.keep), ("--by", settings.by)):
        for name in names:
            table.column(name, option)
    import pandas as pd

    columns, features = [], {}
    suspicions: dict[str, str] = {}
    dates, told = _date_order(table, settings)
    for name in table.names:
        column, values = _column(table, name, outcome, rows, settings, dates)
        columns.append(column)
        if values is not None:
            features[name] = values
            suspicions |= _suspicion(name, values.iloc[rows], outcome.time[rows])
    reasons, of_pairs = _of_pairs(features, outcome.time, rows, settings)
    columns = [
        replace(column, left_out=reasons[column.name], advice=_keep(column.name)) if column.name in reasons else column
        for column in columns
    ]
    features = {name: values for name, values in features.items() if name not in reasons}
    suspicions = {name: why for name, why in (of_pairs | suspicions).items() if name in features}
    notes = [*table.notes, *told, *_of_outcome(outcome, rows), *suspicions.values()]
    if not features:
        fail(str(table.path), "at least one column to learn from", "none beside time, event and what was left out")
    notes += [
        f"column {column.name!r} is left out: {column.left_out} ({column.advice})"
        for column in columns
        if column.left_out and column.name not in {*settings.drop, *_roles(settings)}
    ]
    return Understanding(tuple(columns), tuple(notes), dates), pd.DataFrame(features)


def _date_order(table: TableFile, settings: FitSettings) -> tuple[str | None, list[str]]:
    """Return how dates with the year last are read: as asked, or in the one way in which some column can be read.

    A file has one form of dates: the column that shows it speaks for those that could be read either way.
    """
    found = dates_of(table, [name for name in table.names if name not in {*settings.drop, *_roles(settings)}])
    shown = {next(iter(ways)): name for name, ways in found.items() if len(ways) == 1}
    dates = settings.dates
    for way, name in shown.items():
        if dates not in (None, way):
            fail("--dates", f"{way}, the one way in which column {name!r} can be read (or --drop {name})", dates)
    if len(shown) > 1:
        got = ", ".join(f"{way} in column {name!r}" for way, name in sorted(shown.items()))
        fail(str(table.path), "dates of one form (or leave one of the columns out: --drop)", got)
    if dates is None and shown:
        dates = next(iter(shown))
    read = [repr(name) for name, ways in found.items() if dates in ways]
    if not read:
        return dates, []
    other = next(way for way in DATES if way != dates)
    first = str(dates).removesuffix("-first")
    return dates, [
        f"dates are read with the {first} first: {', '.join(read)} (to read them otherwise: --dates {other})"
    ]


def _of_pairs(
    features: dict[str, Any], time: Floats, rows: Any, settings: FitSettings
) -> tuple[dict[str, str], dict[str, str]]:
    """Return why columns that give the time when another is subtracted are no features, and what is close to that."""
    import pandas as pd

    looked_at = pd.DataFrame({name: values.iloc[rows] for name, values in features.items()})
    reasons, suspicions = {}, {}
    for later, earlier, correlation in time_between(looked_at, time[rows], at_least=_CLOSE_TO_TIME, fewest=_FEW_ROWS):
        if correlation > _SAME_ORDER and later not in settings.keep:
            reasons[later] = f"its difference to {earlier!r} is the time, which nobody knows at the start"
        else:
            suspicions[later] = (
                f"the difference of the columns {later!r} and {earlier!r} follows the time closely (rank correlation "
                f"{correlation:.2f}): if {later!r} was filled in after the start, leave it out (--drop {later})"
            )
    return reasons, suspicions


def _keep(name: str) -> str:
    return f"to use it: --keep {name}"


def _roles(settings: FitSettings) -> dict[str, str]:
    """Columns with a purpose of their own."""
    named = {
        settings.time: "the time",
        settings.event: "the event",
        settings.split: "says where rows belong (--split)",
        settings.group: "keeps rows together (--group)",
    }
    return {name: role for name, role in named.items() if name is not None}


def _of_outcome(outcome: Outcome, rows: Any) -> list[str]:
    time, event = outcome.time[rows], outcome.event[rows]
    notes = []
    distinct = np.unique(time[event]).size
    if event.all():
        notes.append("no row is censored: if some patients were alive when last seen, look at the event column")
    if event.mean() <= 0.05:
        notes.append(f"{1 - event.mean():.1%} of the rows are censored: what is said of late times rests on few events")
    if 5 * distinct < np.count_nonzero(event):
        notes.append(
            f"{np.count_nonzero(event):,} events share {distinct} different times, whole months perhaps: finer times "
            "would tell more"
        )
    return notes


def _column(
    table: TableFile, name: str, outcome: Outcome, rows: Any, settings: FitSettings, dates: str | None
) -> tuple[Column, Any]:
    """Judge one column, and give the values of all rows if it is a feature, else None."""
    missing = int(table.frame[name].iloc[rows].isna().sum())
    shown = None if is_small(missing, settings.min_cell) else missing
    role = _roles(settings).get(name) or ("as asked (--drop)" if name in settings.drop else None)
    if role is not None:
        return Column(name, NO_KIND, shown, "", role), None
    if missing == len(rows):
        return Column(name, "empty", shown, "", "it is empty", _keep(name)), None
    kind = kind_of(table, name, dates)
    values = read_features(table, {name: kind}, dates)[name]
    cells = values.iloc[rows]
    reason, advice = ("", "") if name in settings.keep else _reason(kind, cells, outcome, rows)
    seen = cells.dropna()
    column = Column(name, _kind_in_words(kind, seen), shown, _values(kind, seen, settings.min_cell), reason)
    column = replace(column, advice=(advice or _keep(name)) if reason else "")
    return column, None if reason else values


def _reason(kind: Kind, cells: Any, outcome: Outcome, rows: Any) -> tuple[str, str]:
    """Return why a column is no feature, "" if it may be one, and what to do where that is not to keep it."""
    seen = cells.dropna()
    distinct, time, event = seen.nunique(), outcome.time[rows], outcome.event[rows]
    if distinct == 1 and len(seen) == len(cells):
        return "all its values are the same", ""
    if kind == "category" and (distinct > MOST_CATEGORIES or (distinct > 2 and 2 * distinct > len(seen))):
        if all(is_date(str(cell)) for cell in seen):
            ways = "--dates day-first or --dates month-first says how, or write them as 2024-12-31"
            return "its dates can be read in two ways, or in none", ways
        reason = f"its {distinct:,} different texts in {len(seen):,} rows name rows, as an id does, or are free text"
        repeated = "some stand in several rows: if they name patients, --group keeps the rows of each together"
        return reason, repeated if 2 * distinct > len(seen) > distinct else ""
    if len(cells) >= _FEW_ROWS:
        if outcome_again := _outcome_again(kind, cells, time, event):
            return outcome_again, ""
        if kind == "number" and distinct == len(cells) and _whole(seen):
            return "its whole numbers are all different, as those of an id", ""
    return "", ""


def _outcome_again(kind: Kind, cells: Any, time: Floats, event: BoolArray) -> str:
    """Whether a column says what the model shall predict: the time or the event, or a code of it."""
    filled = cells.notna().to_numpy()
    # By chance two halves of ten rows or more hardly ever agree.
    both = bool(event.any()) and not bool(event.all())
    if both and ((filled == event).all() or (filled != event).all()):
        which = "had the event" if bool((filled == event).all()) else "are censored"
        return f"it is filled exactly in the rows that {which}: it knows the outcome"
    if not filled.all():
        return ""
    if both and cells.nunique() == 2:
        same = (cells == cells.iloc[int(np.argmax(event))]).to_numpy()
        if (same == event).all():
            return "it is the event, or a code of it"
    follows = kind != "category" and np.unique(time).size > _SHOWN
    if follows and abs(rank_correlation(as_numbers(cells), time)) > _SAME_ORDER:
        return "it is the time, perhaps rounded, or orders the rows as the time does"
    return ""


def _suspicion(name: str, cells: Any, time: Floats) -> dict[str, str]:
    """Return a warning, under its name, if a feature follows the time closely."""
    if cells.dtype.kind not in "fM" or len(cells) < _FEW_ROWS or not cells.notna().all():
        return {}
    correlation = rank_correlation(as_numbers(cells), time)
    if abs(correlation) < _CLOSE_TO_TIME:
        return {}
    return {
        name: f"column {name!r} follows the time closely (rank correlation {correlation:.2f}): if it was measured "
        f"after the start, leave it out (--drop {name})"
    }


def _whole(seen: Any) -> bool:
    values = seen.to_numpy(dtype=np.float64)
    return bool((values == np.round(values)).all())


def _kind_in_words(kind: Kind, seen: Any) -> str:
    if kind == "number" and set(np.unique(seen)) <= {0.0, 1.0}:
        return "yes/no"
    return kind


def _values(kind: Kind, seen: Any, min_cell: int) -> str:
    """Describe what a column holds: labels of many rows, and where most numbers lie."""
    if kind == "category":
        counted = seen.value_counts()
        common = counted[counted >= min_cell].iloc[:_SHOWN]
        if not common.size:
            return f"{counted.size:,} different"
        more = f" and {counted.size - common.size} more" if counted.size > common.size else ""
        return ", ".join(f"{label} ({count:,})" for label, count in common.items()) + more
    if kind == "date":
        return f"{seen.min():%Y-%m} to {seen.max():%Y-%m}"
    if set(np.unique(seen)) <= {0.0, 1.0}:
        yes = int(seen.sum())
        if told(yes, seen.size, min_cell) is not None:
            return f"{seen.mean():.0%} yes"
        return f"fewer than {min_cell} {'yes' if is_small(yes, min_cell) else 'no'}"
    found = ends(seen, min_cell)
    middle = f"median {seen.median():.4g}"
    return middle if found is None else f"{found[0]:.4g} to {found[1]:.4g}, {middle}"
