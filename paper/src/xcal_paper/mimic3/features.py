"""The last two steps: 714 statistics with masks for each instance, and, on demand, 76 numbers for each hour.

First the statistics, then the time series of a block as numbers, then the two steps.
"""

import csv
import io
import shutil
from dataclasses import dataclass, field
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal_paper.mimic3.files import Report, block_path, blocks_of, read_columns, write_parquet
from xcal_paper.mimic3.steps import SLACK
from xcal_paper.mimic3.variable_list import (
    FUNCTIONS,
    SUB_PERIODS,
    categories,
    discretised_names,
    feature_names,
    text_variables,
    variables,
)

MICROSECONDS = 3_600_000_000  # of one hour
_SLACK = round(SLACK * MICROSECONDS)
# Values that are looked at together; bounds the memory, some 40 bytes for each.
_TOGETHER = 1 << 21
N_STATISTICS = len(SUB_PERIODS) * len(FUNCTIONS)

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Lookup:
    """Statistics of one variable: `table` has a row for each thing that can be seen, `row` says which one each sees.

    The first row of the table is that of an instance that sees no value: NaN throughout.
    """

    table: npt.NDArray[np.float32]
    row: npt.NDArray[np.int32]


def statistics_of(
    stay: Integers, time: Integers, value: Floats, instance_stay: Integers, instance_time: Integers
) -> Lookup:
    """Statistics of one variable.

    Parameters
    ----------
    stay, time, value : (n,)
        Measured values, sorted by stay and time. Stays are numbered from 0; times are microseconds since their start.
    instance_stay, instance_time : (m,)
        Stay and time of each instance, which sees values until then (the slack included).

    Returns
    -------
    Lookup
        Statistics in the order sub-period, function; `row` has one entry per instance.
    """
    if not len(time):
        return Lookup(np.full((1, N_STATISTICS), np.nan, np.float32), np.zeros(len(instance_stay), np.int32))
    clock = _Clock(stay, time, instance_time)
    seen_until = clock.after(instance_stay, instance_time + _SLACK)
    first = np.searchsorted(stay, instance_stay)
    nothing = seen_until <= first
    ends, row = np.unique(np.where(nothing, 0, seen_until), return_inverse=True)
    # The end 0 stands for nothing; it must be there, so that the first row of the table is that one.
    if ends[0] != 0:
        ends, row = np.concatenate([[0], ends]), row + 1
    begins = np.searchsorted(stay, stay[ends[1:] - 1])
    table = np.full((len(ends), N_STATISTICS), np.nan, np.float32)
    start, stop = _sub_periods(clock, stay, time, begins, ends[1:])
    table[1:] = _moments(value, start.ravel(), stop.ravel()).reshape(len(ends) - 1, N_STATISTICS)
    return Lookup(table, row.astype(np.int32))


class _Clock:
    """One increasing axis for the values of all stays, so that one search finds places in all of them."""

    def __init__(self, stay: Integers, time: Integers, other: Integers) -> None:
        self._origin = min(int(time.min()), int(other.min(initial=0))) - 2 * _SLACK
        self._span = max(int(time.max()), int(other.max(initial=0))) + 2 * _SLACK - self._origin
        self._axis = stay * self._span + (time - self._origin)

    def after(self, stay: Integers, time: Integers) -> Integers:
        """Place after the last value of the stay that is not later than `time`."""
        return np.searchsorted(self._axis, stay * self._span + (time - self._origin), side="right")


def _sub_periods(
    clock: _Clock, stay: Integers, time: Integers, begin: Integers, end: Integers
) -> tuple[Integers, Integers]:
    """First and behind-last place of the values in each sub-period, shape (n, 7)."""
    numbers = stay[begin]
    first, last = time[begin], time[end - 1]
    span = last - first
    start, stop = [], []
    for _, side, percent in SUB_PERIODS:
        # A value counts if L - slack < t < R + slack. All is multiplied by 100, so that it stays whole.
        if side == "first":
            border = 100 * first + span * percent + 100 * _SLACK
            start.append(begin)
            stop.append(np.minimum(clock.after(numbers, (border - 1) // 100), end))
        else:
            border = 100 * last - span * percent - 100 * _SLACK
            start.append(np.maximum(clock.after(numbers, border // 100), begin))
            stop.append(end)
    return np.stack(start, axis=1), np.stack(stop, axis=1)


def _moments(value: Floats, start: Integers, stop: Integers) -> npt.NDArray[np.float32]:
    """Compute minimum, maximum, mean, standard deviation, skewness and count of ``value[start:stop]``, row by row."""
    result = np.empty((len(start), len(FUNCTIONS)), np.float32)
    total = np.cumsum(stop - start)
    done = 0
    while done < len(start):
        before = total[done - 1] if done else 0
        until = max(int(np.searchsorted(total, before + _TOGETHER, side="right")), done + 1)
        result[done:until] = _moments_together(value, start[done:until], stop[done:until])
        done = until
    return result


def _moments_together(value: Floats, start: Integers, stop: Integers) -> Floats:
    count = stop - start
    places = np.cumsum(count) - count
    chosen = value[np.repeat(start - places, count) + np.arange(int(count.sum()))]
    lowest = np.minimum.reduceat(chosen, places)
    highest = np.maximum.reduceat(chosen, places)
    mean = np.add.reduceat(chosen, places) / count
    # Two passes: the deviations are taken from the mean of their own sub-period, so nothing cancels.
    chosen -= np.repeat(mean, count)
    power = chosen * chosen
    variance = np.add.reduceat(power, places) / count
    power *= chosen
    third = np.add.reduceat(power, places) / count
    constant = lowest == highest
    variance[constant] = 0.0
    # As scipy.stats.skew: undefined where the spread is no more than rounding.
    spread = variance > (np.finfo(np.float64).eps * mean) ** 2
    skew = np.full(len(count), np.nan)
    np.divide(third, variance**1.5, out=skew, where=spread)
    return np.stack([lowest, highest, np.where(constant, lowest, mean), np.sqrt(variance), skew, count], axis=1)


# ----------------------------------------------------------------------------------------------------------------------
# The time series of one block as numbers: what the last two steps compute with.


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


# ----------------------------------------------------------------------------------------------------------------------
# Fifth step: 714 statistics and 714 masks for each instance, standardised on the training rows.
#
# The statistics of a block are computed once and kept in a temporary file, as small tables with a row for each thing
# that can be seen (`statistics.Lookup`). From these come the means and standard deviations of the training rows, and
# then the rows themselves: never more than one block is in memory.


@dataclass
class _Moments:
    """Number, mean and sum of squared deviations of the defined values of each statistic, added to block by block."""

    count: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(feature_names())))
    mean: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(feature_names())))
    squares: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(feature_names())))

    def add(self, columns: slice, lookup: Lookup) -> None:
        """Add the rows of a block: each row of the table as often as instances see it."""
        times = np.bincount(lookup.row, minlength=len(lookup.table)).astype(np.float64)[:, None]
        table = lookup.table.astype(np.float64)
        defined = np.isfinite(table)
        weight = times * defined
        count = weight.sum(axis=0)
        some = np.maximum(count, 1.0)  # a column without a value adds nothing: its sums are zero
        table[~defined] = 0.0
        mean = (weight * table).sum(axis=0) / some
        squares = (weight * (table - mean) ** 2).sum(axis=0)
        whole = np.maximum(self.count[columns] + count, 1.0)
        difference = mean - self.mean[columns]
        self.squares[columns] += squares + difference**2 * self.count[columns] * count / whole
        self.mean[columns] += difference * count / whole
        self.count[columns] += count

    def scale(self) -> npt.NDArray[np.float64]:
        """Return the standard deviation; 1 for a statistic that is constant or never defined."""
        deviation = np.sqrt(self.squares / np.maximum(self.count, 1.0))
        # Equal float32 numbers add up to squares that are rounding only.
        noise = np.abs(self.mean) * np.finfo(np.float32).eps
        return np.where(deviation > noise, deviation, 1.0)


def write_features(
    stays: dict[str, npt.NDArray[Any]],
    timeseries: Path,
    instances: Path,
    folder: Path,
    work: Path,
    report: Report,
) -> dict[str, int]:
    """Write the features of every block and ``scaling.csv`` into `folder`; returns counts."""
    kept = work / "statistics"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    blocks = [(split, block) for split, block, _ in blocks_of(stays) if block_path(instances, split, block).is_file()]
    moments = _Moments()
    counts = {f"unknown_texts {name}": 0 for name in variables()}
    for number, (split, block) in enumerate(blocks):
        measurements = read_measurements(block_path(timeseries, split, block))
        lookups = _lookups(measurements, read_columns(block_path(instances, split, block)))
        if split == "train":
            for position, lookup in enumerate(lookups):
                moments.add(_columns(position), lookup)
        for name, measured in measurements.variables.items():
            counts[f"unknown_texts {name}"] += measured.unknown
        _keep(kept / f"{split}-{block}.npz", lookups)
        report("statistics", number + 1, len(blocks))
    rows = 0
    for number, (split, block) in enumerate(blocks):
        temporary = kept / f"{split}-{block}.npz"
        columns: dict[str, Any] = dict(read_columns(block_path(instances, split, block)))
        _add_features(columns, _read_kept(temporary), moments)
        rows += write_parquet(block_path(folder, split, block), columns)
        temporary.unlink()
        report("features", number + 1, len(blocks))
    (folder / "scaling.csv").write_text(_scaling(moments), encoding="utf-8")
    return {"rows": rows, "columns": len(feature_names(masks=True))} | counts


def _columns(position: int) -> slice:
    """Columns of the variable at this position among the 714."""
    return slice(position * N_STATISTICS, (position + 1) * N_STATISTICS)


def _lookups(measurements: Measurements, instances: dict[str, npt.NDArray[Any]]) -> list[Lookup]:
    stay = np.searchsorted(measurements.stay_ids, instances["stay_id"]).astype(np.int64)
    time = np.rint(instances["period_length"] * MICROSECONDS).astype(np.int64)
    return [
        statistics_of(measurements.stay[one.rows], measurements.time[one.rows], one.value, stay, time)
        for one in measurements.variables.values()
    ]


def _keep(path: Path, lookups: list[Lookup]) -> None:
    tables = {f"table{number}": lookup.table for number, lookup in enumerate(lookups)}
    np.savez(path, rows=np.stack([lookup.row for lookup in lookups]), **tables)  # type: ignore[arg-type]  # as in los.py


def _read_kept(path: Path) -> list[Lookup]:
    with np.load(path) as kept:
        rows = kept["rows"]
        return [Lookup(kept[f"table{number}"], row) for number, row in enumerate(rows)]


def _add_features(columns: dict[str, Any], lookups: list[Lookup], moments: _Moments) -> None:
    """Add 714 standardised statistics, then 714 masks."""
    pa: Any = import_module("pyarrow")
    names, scale = feature_names(masks=True), moments.scale()
    masks: dict[str, Any] = {}
    for position, lookup in enumerate(lookups):
        inside = _columns(position)
        table = ((lookup.table - moments.mean[inside]) / scale[inside]).astype(np.float32)
        for offset, values in enumerate(np.ascontiguousarray(table.T)):
            place = inside.start + offset
            columns[names[place]] = pa.array(values[lookup.row])
            masks[names[place + len(moments.mean)]] = pa.array(np.isfinite(values)[lookup.row])
    columns |= masks


def _scaling(moments: _Moments) -> str:
    """Text of ``scaling.csv``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("column", "mean", "standard_deviation", "defined"))
    numbers = zip(moments.mean.tolist(), moments.scale().tolist(), moments.count.astype(int).tolist(), strict=True)
    writer.writerows((name, *row) for name, row in zip(feature_names(), numbers, strict=True))
    return text.getvalue()


# ----------------------------------------------------------------------------------------------------------------------
# Last step, on demand: 76 numbers for each hour of a stay.
#
# A continuous variable has one column, a categorical one a column per category (one-hot), and every variable a mask.
# The last value of an hour wins. An hour without a value has zeros and a mask of zero; nothing is filled in.


def write_discretised(
    stays: dict[str, npt.NDArray[Any]], timeseries: Path, folder: Path, report: Report
) -> dict[str, int]:
    """Write the hours of every block into `folder`; returns how many there are."""
    pa: Any = import_module("pyarrow")
    blocks = list(blocks_of(stays))
    counts = {"hours": 0}
    for number, (split, block, _) in enumerate(blocks):
        source = block_path(timeseries, split, block)
        if source.is_file():
            measurements = read_measurements(source)
            stay, hour, values = discretise(measurements)
            columns = {
                "stay_id": measurements.stay_ids[stay],
                "subject_id": measurements.subject_ids[stay],
                "hour": hour.astype(np.int32),
            }
            columns |= {name: pa.array(values[:, place]) for place, name in enumerate(discretised_names())}
            counts["hours"] += write_parquet(block_path(folder, split, block), columns)
        report("discretised", number + 1, len(blocks))
    return counts


def discretise(
    measurements: Measurements,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Stay (from 0), hour and 76 values of every hour, from a stay's first hour to that of its last measurement."""
    # A value on the full hour belongs to the hour before it, the very first moment to hour 0: astype rounds to zero.
    hour_of_row = (measurements.hours - SLACK).astype(np.int64)
    last = np.zeros(len(measurements.stay_ids), np.int64)
    np.maximum.at(last, measurements.stay, hour_of_row)
    start = np.cumsum(last + 1) - (last + 1)
    stay = np.repeat(np.arange(len(last)), last + 1)
    hour = np.arange(len(stay)) - start[stay]
    bin_of_row = start[measurements.stay] + hour_of_row
    values = np.zeros((len(stay), len(discretised_names())), np.float32)
    column, mask = 0, len(discretised_names()) - len(variables())
    for name in variables():
        one = measurements.variables[name]
        bins = bin_of_row[one.rows]
        # Rows are in order of time, so the last one of a bin is the one before the next bin begins.
        final = np.flatnonzero(np.diff(bins, append=-1) != 0)
        width = len(categories().get(name, (None,)))
        values[bins[final], column + one.place[final]] = 1.0 if name in categories() else one.value[final]
        values[bins, mask] = 1.0
        column, mask = column + width, mask + 1
    return stay, hour, values
