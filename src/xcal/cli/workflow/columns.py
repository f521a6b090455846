"""Columns of a file as features: what each one is, and its cells in the form that the model learns from."""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from xcal._checks import fail, is_missing
from xcal.cli.table_file import TableFile, is_number
from xcal.estimators.encoding import Kind

# Dates that can be read in one way only: year, month, day, with or without a time of day.
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")
# With more different numbers than this a column measures something; grades 1, 2, 3 and "unknown" are categories.
_MANY_NUMBERS = 10


def kind_of(table: TableFile, name: str) -> Kind:
    """Tell numbers (also true/false and durations), dates and categories apart.

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
    if words and all(_ISO_DATE.fullmatch(word.strip()) for word in words):
        return "date"
    numbers = sum(is_number(word) for word in words)
    if words and numbers == len(words):
        return "number"
    if numbers > _MANY_NUMBERS and 2 * numbers > len(words):
        row = next(row for row, cell in enumerate(column) if not is_missing(cell) and not is_number(str(cell)))
        expected = f"a number as in most rows, or an empty cell (or leave the column out: --drop {name})"
        table.fail(name, expected, repr(column.iloc[row]), row)
    return "category"


def read_features(table: TableFile, kinds: Mapping[str, Kind]) -> Any:
    """Give a data frame of the columns in their forms: floats, texts or dates, missing where the cell is empty."""
    import pandas as pd

    missing = [name for name in kinds if name not in table.names]
    if missing:
        fail(str(table.path), f"the columns that the model was trained on, {missing[0]!r} among them", "none such")
    read = {"number": _numbers, "category": _labels, "date": _dates}
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
        table.fail(name, "a finite number or an empty cell", values[row], row)
    return values


def _labels(table: TableFile, name: str) -> Any:
    """Texts; 1 and 1.0 are the same category, as a column with an empty cell holds floats."""
    return table.frame[name].map(_label, na_action="ignore").astype(object)


def _label(cell: Any) -> str:
    if isinstance(cell, float | np.floating) and float(cell).is_integer():
        return str(int(cell))
    return str(cell)


def _dates(table: TableFile, name: str) -> Any:
    import pandas as pd

    column = table.frame[name]
    if column.dtype.kind != "M":
        _refuse(table, name, lambda cell: bool(_ISO_DATE.fullmatch(str(cell).strip())), "a date such as 2024-12-31")
        try:
            column = pd.to_datetime(column.map(lambda cell: str(cell).strip(), na_action="ignore"), format="ISO8601")
        except ValueError as error:
            table.fail(name, "dates such as 2024-12-31", str(error).splitlines()[0])
    return column.dt.tz_convert(None) if column.dt.tz is not None else column


def _refuse(table: TableFile, name: str, good: Any, what: str) -> None:
    """Name the first filled cell that is not `good`."""
    column = table.frame[name]
    filled = column.notna().to_numpy()
    for row in np.flatnonzero(filled):
        cell = column.iloc[row]
        if not good(cell):
            table.fail(name, f"{what} or an empty cell", repr(cell), int(row))
