"""The time series of one block as numbers: what the last two steps compute with."""

from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal.datasets.mimic3.statistics import MICROSECONDS
from xcal.datasets.mimic3.variables import categories, text_variables, variables


@dataclass(frozen=True)
class Measured:
    """Values of one variable: rows of the time series in which it was measured, and its value there.

    A text that is no number and no known category has no value; `unknown` says how many such texts there were.
    """

    rows: npt.NDArray[np.intp]
    value: npt.NDArray[np.float64]
    place: npt.NDArray[np.intp]  # among the one-hot columns of a category; 0 for other variables
    unknown: int


@dataclass(frozen=True)
class Measurements:
    """Time series of one block. Stays are numbered from 0 in the order of `stay_ids`; rows are sorted by stay, time."""

    stay_ids: npt.NDArray[np.int32]
    subject_ids: npt.NDArray[np.int32]
    stay: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]  # microseconds
    hours: npt.NDArray[np.float64]
    variables: dict[str, Measured]


def read_measurements(path: Path) -> Measurements:
    """Read the file of one block of ``timeseries/``."""
    parquet: Any = import_module("pyarrow.parquet")
    table = parquet.ParquetFile(path).read()
    stay_ids, first, stay = np.unique(table.column("stay_id").to_numpy(), return_index=True, return_inverse=True)
    hours = table.column("hours").to_numpy()
    return Measurements(
        stay_ids=stay_ids,
        subject_ids=table.column("subject_id").to_numpy()[first],
        stay=stay.astype(np.int64),
        time=np.rint(hours * MICROSECONDS).astype(np.int64),
        hours=hours,
        variables={name: _measured(name, table.column(name)) for name in variables()},
    )


def _measured(variable: str, column: Any) -> Measured:
    rows = np.flatnonzero(column.is_valid().to_numpy())
    members = categories().get(variable, ())
    if variable not in text_variables():
        value = column.drop_null().to_numpy().astype(np.float64)
        place = np.searchsorted([member.number for member in members], value)
        return Measured(rows, value, place, 0)
    coded = column.drop_null().combine_chunks().dictionary_encode()
    texts = coded.dictionary.to_pylist()
    known = {member.text: member for member in members}
    numbers = np.array([known[text].number if text in known else _number(text, bool(members)) for text in texts])
    places = np.array([known[text].place if text in known else 0 for text in texts], np.intp)
    code = coded.indices.to_numpy()
    value = numbers.astype(np.float64)[code] if len(texts) else np.empty(0)
    good = np.isfinite(value)
    place = (places[code] if len(texts) else np.empty(0, np.intp))[good]
    return Measured(rows[good], value[good], place, int((~good).sum()))


def _number(text: str, categorical: bool) -> float:
    """Return the number that a text is, NaN if it is none; a category that is not known has no number."""
    try:
        value = float(text)
    except ValueError:
        return np.nan
    return value if isfinite(value) and not categorical else np.nan
