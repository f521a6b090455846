"""Fifth step: 714 statistics and 714 masks for each instance, standardised on the training rows.

The statistics of a block are computed once and kept in a temporary file, as small tables with a row for each thing that
can be seen (`statistics.Lookup`). From these come the means and standard deviations of the training rows, and then the
rows themselves: never more than one block is in memory.
"""

import csv
import io
import shutil
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal.datasets.mimic3.measurements import Measurements, read_measurements
from xcal.datasets.mimic3.parquet_files import block_path, blocks_of, read_columns, write_parquet
from xcal.datasets.mimic3.reporting import Report
from xcal.datasets.mimic3.statistics import MICROSECONDS, N_STATISTICS, Lookup, statistics_of
from xcal.datasets.mimic3.variables import feature_names, variables


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
