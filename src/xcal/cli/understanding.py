"""What a file holds: kinds of columns, missing values, times and events, and which columns are no features."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from xcal._checks import BoolArray, FloatArray, fail, is_missing
from xcal.cli.run_folder import DATES, FitSettings
from xcal.cli.table_file import TableFile, has_decimal_comma, is_date, is_number
from xcal.data.features import follows_time, rank_correlation, tells_event
from xcal.data.surv import Outcome
from xcal.estimators.inputs import MOST_CATEGORIES, Kind, feature_kind
from xcal.metrics.inputs import ends, is_small, told

# Dates with or without a time of day: with the year first they can be read in one way, with the year last in two.
_CLOCK = r"(?P<clock>[ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?"
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})(?P<mark>[-/.])(?P<month>\d{2})(?P=mark)(?P<day>\d{2})" + _CLOCK)
_YEAR_LAST = re.compile(r"(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4})" + _CLOCK)
# With more different numbers than this a column measures something; grades 1, 2, 3 and "unknown" are categories.
_MANY_NUMBERS = 10


def kind_of(table: TableFile, name: str, dates: str | None) -> Kind:
    """Return the kind of a column: numbers (also true/false, durations), dates or categories; `dates`: one of `DATES`.

    A column of numbers with a few words in it is an error that names the first one: to take each number for a category
    of its own would lose what it says.
    """
    column = table.frame[name]
    if (kind := feature_kind(column)) != "category":
        return kind
    words = [str(cell) for cell in column.dropna().unique()]
    if words and all(_as_iso(word, dates) for word in words):
        return "date"
    numbers = sum(is_number(word) for word in words)
    if words and numbers == len(words):
        return "number"
    commas = [word for word in words if has_decimal_comma(word)]
    if commas and numbers + len(commas) == len(words):
        row = next(row for row, cell in enumerate(column) if str(cell) == commas[0])
        expected = f"numbers with a decimal point, as in 1.9 (--decimal , reads commas; --drop {name} leaves it out)"
        table.fail(name, expected, "a decimal comma", row)
    if numbers > _MANY_NUMBERS and 2 * numbers > len(words):
        row = next(row for row, cell in enumerate(column) if not is_missing(cell) and not is_number(str(cell)))
        expected = f"a number as in most rows, or an empty cell (or leave the column out: --drop {name})"
        table.fail(name, expected, "text", row)
    return "category"


def dates_of(table: TableFile, names: Iterable[str]) -> dict[str, set[str]]:
    """Return the columns of dates with the year last, each with the ways of `DATES` in which all of it can be read."""
    found = {}
    for name in names:
        column = table.frame[name]
        words = [str(cell) for cell in column.dropna().unique()] if column.dtype.kind == "O" else []
        if words and all(_YEAR_LAST.fullmatch(word) for word in words):
            found[name] = {order for order in DATES if all(_as_iso(word, order) for word in words)}
    return found


def _as_iso(word: str, dates: str | None) -> str | None:
    """Write a date as 2024-12-31, with its time of day; None for what is none, or cannot be read without `dates`."""
    word = word.strip()
    if found := _YEAR_FIRST.fullmatch(word):
        day, month = found["day"], found["month"]
    elif dates is not None and (found := _YEAR_LAST.fullmatch(word)):
        day, month = (found["first"], found["second"])[:: 1 if dates == "day-first" else -1]
    else:
        return None
    if not (1 <= int(day) <= 31 and 1 <= int(month) <= 12):
        return None
    return f"{found['year']}-{int(month):02d}-{int(day):02d}{found['clock'] or ''}"


def read_features(table: TableFile, kinds: Mapping[str, Kind], dates: str | None) -> Any:
    """Return a data frame of the columns in their forms: floats, texts or dates, missing where the cell is empty."""
    import pandas as pd

    missing = [name for name in kinds if name not in table.names]
    if missing:
        fail(str(table.path), f"the columns that the model was trained on, {missing[0]!r} among them", "none such")
    read: dict[Kind, Callable[[TableFile, str], Any]] = {
        "number": _numbers,
        "category": _labels,
        "date": partial(_dates, dates=dates),
    }
    return pd.DataFrame({name: read[kind](table, name) for name, kind in kinds.items()})


def _numbers(table: TableFile, name: str) -> Any:
    import pandas as pd

    column = table.frame[name]
    if column.dtype.kind == "m":
        return (column / pd.Timedelta(days=1)).to_numpy(dtype=np.float64)
    if column.dtype.kind not in "biuf":
        _refuse(table, name, lambda cell: is_number(str(cell)) or isinstance(cell, bool | np.bool_), "a number")
        column = column.map(float, na_action="ignore")
    values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(values).any():
        row = int(np.argmax(np.isinf(values)))
        table.fail(name, "a finite number or an empty cell", "an infinite number", row)
    return values


def _labels(table: TableFile, name: str) -> Any:
    """Texts; 1 and 1.0 are the same category, as a column with an empty cell holds floats."""
    return table.frame[name].map(_label, na_action="ignore").astype(object)


def _label(cell: Any) -> str:
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return str(cell)


def _dates(table: TableFile, name: str, dates: str | None) -> Any:
    import pandas as pd

    column = table.frame[name]
    if column.dtype.kind != "M":
        shown = "2024-12-31" if dates is None else f"2024-12-31, or with the {dates.removesuffix('-first')} first"
        _refuse(table, name, lambda cell: _as_iso(str(cell), dates) is not None, f"a date such as {shown}")
        written = column.map(lambda cell: _as_iso(str(cell), dates), na_action="ignore")
        try:
            column = pd.to_datetime(written, format="ISO8601")
        except ValueError:
            bad = pd.to_datetime(written, format="ISO8601", errors="coerce").isna() & written.notna()
            row = int(np.argmax(bad.to_numpy())) if bad.any() else None
            table.fail(name, "dates such as 2024-12-31", "a day or an hour that there is not", row)
    return column.dt.tz_convert(None) if column.dt.tz is not None else column


def _refuse(table: TableFile, name: str, good: Any, what: str) -> None:
    """Name the first filled cell that is not `good`."""
    column = table.frame[name]
    filled = column.notna().to_numpy()
    for row in np.flatnonzero(filled):
        cell = column.iloc[row]
        if not good(cell):
            got = "text" if isinstance(cell, str) else f"a cell of type {type(cell).__name__}"
            table.fail(name, f"{what} or an empty cell", got, int(row))


# --- Pairs of columns that tell the time together: the dates of entry and of the last visit, or two ages.
# Neither column says anything alone, and their difference is the outcome: a network finds it, and looks perfect on
# rows held out. The later one is what nobody knows at the start.


# Rows and columns of one kind that are looked at: a pair that tells the time does so in every row.
_ROWS, _MOST_COLUMNS = 2_000, 200
# Correlation of a difference with the time from which its ranks are looked at too.
_WORTH_A_LOOK = 0.9


class Pair(NamedTuple):
    """A later column, the earlier one that makes the time of it, and the rank correlation of difference and time."""

    later: str
    earlier: str
    correlation: float


def time_between(features: Any, time: FloatArray, *, at_least: float, fewest: int) -> list[Pair]:
    """Find the columns that follow the time, in ranks, after another column of their kind is subtracted.

    Each comes with its closest, if their rank correlation is `at_least` so high. Both columns must be filled in as many
    rows as `fewest` says. `features` are floats, dates and texts; texts are not looked at.
    """
    step = -(-len(time) // _ROWS)
    seen, at = features.iloc[::step], time[::step]
    found: list[Pair] = []
    for kind in "fM":
        names = [name for name in seen.columns if seen[name].dtype.kind == kind][:_MOST_COLUMNS]
        if len(names) > 1:
            numbers = np.stack([as_numbers(seen[name]) for name in names], axis=1)
            found += _of_one_kind(names, numbers, at, at_least, fewest)
    return found


def as_numbers(cells: Any) -> FloatArray:
    """Return numbers as they are, dates in days; NaN where a cell is empty."""
    if cells.dtype.kind != "M":
        return np.asarray(cells.to_numpy(dtype=np.float64))
    days = (cells - cells.min()).dt.total_seconds() / 86_400
    return np.asarray(days.to_numpy(dtype=np.float64))


def _of_one_kind(names: list[str], numbers: FloatArray, time: FloatArray, at_least: float, fewest: int) -> list[Pair]:
    found = []
    for later, name in enumerate(names):
        between = numbers[:, later, None] - numbers
        closest = Pair(name, "", 0.0)
        for earlier in np.flatnonzero(_correlations(between, time, fewest) >= _WORTH_A_LOOK):
            both = np.isfinite(between[:, earlier])
            correlation = rank_correlation(between[both, earlier], time[both])
            if correlation > closest.correlation:
                closest = Pair(name, names[earlier], correlation)
        if closest.correlation >= at_least:
            found.append(closest)
    return found


def _correlations(columns: FloatArray, time: FloatArray, fewest: int) -> FloatArray:
    """Correlate every column with the time, each in the rows where it is filled; 0 where these are too few."""
    filled = np.isfinite(columns)
    rows = np.maximum(filled.sum(axis=0), 1)
    values, times = np.where(filled, columns, 0.0), np.where(filled, time[:, None], 0.0)
    values, times = (np.where(filled, part - part.sum(axis=0) / rows, 0.0) for part in (values, times))
    spread = np.sqrt((values**2).sum(axis=0) * (times**2).sum(axis=0))
    usable = (rows >= fewest) & (spread > 0)
    return np.where(usable, (values * times).sum(axis=0) / np.where(usable, spread, 1.0), 0.0)


# --- What a file holds: kinds of columns, missing values, times and events, and which columns are no features.


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
    """What was understood of the rows to train on."""

    columns: tuple[Column, ...]  # in the order of the file
    notes: tuple[str, ...]  # what a person should look at, a sentence each
    dates: str | None = None  # how dates with the year last are read; None where there are none, or nobody can tell

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that are learnt from."""
        return tuple(column.name for column in self.columns if not column.left_out)


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
    features: dict[str, Any], time: FloatArray, rows: Any, settings: FitSettings
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
        settings.cause: "the cause",
        settings.entry: "the time of entry",
        settings.lower: "the last visit without the event",
        settings.upper: "the first visit with the event",
        settings.id: "the person",
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
    shown_kind = "yes/no" if kind == "number" and _is_flag(seen) else kind
    advice = (advice or _keep(name)) if reason else ""
    column = Column(name, shown_kind, shown, _values(kind, seen, settings.min_cell), reason, advice)
    return column, None if reason else values


def _is_flag(seen: Any) -> bool:
    return set(np.unique(seen)) <= {0.0, 1.0}


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
        if kind == "number" and distinct == len(cells) and bool((seen == seen.round()).all()):
            return "its whole numbers are all different, as those of an id", ""
    return "", ""


def _outcome_again(kind: Kind, cells: Any, time: FloatArray, event: BoolArray) -> str:
    """Whether a column says what the model shall predict: the time or the event, or a code of it."""
    filled = cells.notna().to_numpy()
    # By chance two halves of ten rows or more hardly ever agree.
    if tells_event(filled, event, most=2):
        which = "had the event" if bool((filled == event).all()) else "are censored"
        return f"it is filled exactly in the rows that {which}: it knows the outcome"
    if not filled.all():
        return ""
    if tells_event(cells.factorize()[0], event, most=2):
        return "it is the event, or a code of it"
    follows = kind != "category" and np.unique(time).size > _SHOWN
    if follows and follows_time(as_numbers(cells), time, above=_SAME_ORDER):
        return "it is the time, perhaps rounded, or orders the rows as the time does"
    return ""


def _suspicion(name: str, cells: Any, time: FloatArray) -> dict[str, str]:
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
    if _is_flag(seen):
        yes = int(seen.sum())
        if told(yes, seen.size, min_cell) is not None:
            return f"{seen.mean():.0%} yes"
        return f"fewer than {min_cell} {'yes' if is_small(yes, min_cell) else 'no'}"
    found = ends(seen, min_cell)
    middle = f"median {seen.median():.4g}"
    return middle if found is None else f"{found[0]:.4g} to {found[1]:.4g}, {middle}"
