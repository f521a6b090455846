"""Columns of a file as features: what each one is, and its cells in the form that the model learns from."""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from xcal._checks import fail, is_missing
from xcal.cli.table_file import TableFile, has_decimal_comma, is_number
from xcal.cli.workflow.settings import DATES
from xcal.estimators.encoding import Kind

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
    if column.dtype.kind in "biufm":
        return "number"
    if column.dtype.kind == "M":
        return "date"
    seen = column.dropna()
    distinct = seen.unique()
    if all(isinstance(cell, bool | np.bool_ | int | float | np.number) for cell in distinct):
        return "number"
    words = [str(cell) for cell in distinct]
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
