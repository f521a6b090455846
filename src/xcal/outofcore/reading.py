"""Rows of parquet files in batches; what is wrong is named by file, column, row group and row."""

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, fail

_PATTERN = re.compile(r"[sS]_(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)")
_SUFFIXES = {".parquet", ".pq"}


@dataclass(frozen=True)
class Columns:
    """Names of the columns: outcome, weight, and what a model says."""

    time: str
    event: str
    # weight, cdf, risk, nll: whole numbers that say how often a row counts; F at the observed time; a number that is
    # larger where the event is expected sooner; negative log-likelihood
    weight: str | None
    cdf: str | None
    risk: str | None
    nll: str | None
    survival: tuple[tuple[float, str], ...]  # times, increasing, and columns of the survival probabilities there

    @property
    def names(self) -> list[str]:
        """All columns that are read."""
        single = [self.time, self.event, self.weight, self.cdf, self.risk, self.nll]
        return [name for name in single if name is not None] + [name for _, name in self.survival]

    @property
    def horizons(self) -> tuple[float, ...]:
        """Times of the survival probabilities."""
        return tuple(time for time, _ in self.survival)


def parquet_files(folder: Path) -> list[Path]:
    """Parquet files of a folder and of those in it, in the order of their names."""
    if folder.is_file():
        raise NotADirectoryError(f"{folder}: expected a folder of parquet files, got a file: give the folder it is in")
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: expected a folder of parquet files, got no folder by that name")
    found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _SUFFIXES and path.is_file())
    # Files that other programs are still writing, and their notes, have names that begin so.
    found = [path for path in found if not path.name.startswith((".", "_"))]
    if not found:
        fail(str(folder), "parquet files (*.parquet)", "none")
    return found


def find_columns(
    files: list[Path], schemas: list[Any], time: str, event: str, horizons: tuple[float, ...] | None
) -> Columns:
    """Find the columns in the first file, and check that the others have them too, all of them numbers."""
    known = schemas[0].names
    survival = _survival(files[0], known, horizons)
    extra = {role: role if role in known else None for role in ("weight", "cdf", "risk", "nll")}
    columns = Columns(time=time, event=event, survival=survival, **extra)
    if not (survival or columns.cdf or columns.risk or columns.nll):
        fail(str(files[0]), "predictions: columns cdf, risk, nll or S_12 (survival at time 12)", ", ".join(known))
    for path, schema in zip(files, schemas, strict=True):
        for name in columns.names:
            if name not in schema.names:
                fail(str(path), f"a column {name!r}, as in {files[0].name}", f"the columns {', '.join(schema.names)}")
            kind = str(schema.field(name).type)
            if not kind.startswith(("float", "double", "halffloat", "int", "uint", "bool")):
                fail(f"{path}, column {name!r}", "numbers", f"type {kind}")
    return columns


def _survival(path: Path, known: list[str], horizons: tuple[float, ...] | None) -> tuple[tuple[float, str], ...]:
    """Columns of survival probabilities by their times; all of them, or those at the horizons asked for."""
    found: dict[float, str] = {}
    for name in known:
        if match := _PATTERN.fullmatch(name):
            time = float(match[1])
            if time in found:
                fail(str(path), "one column for each time", f"{found[time]!r} and {name!r}")
            found[time] = name
    if horizons is not None:
        for time in horizons:
            if time not in found:
                fail(f"horizons, {path}", f"a column S_{time:g}", f"the times {', '.join(f'{t:g}' for t in found)}")
        found = {time: found[time] for time in horizons}
    return tuple(sorted(found.items()))


BATCH_ROWS = 1 << 17

# Rows of one piece of work, about: results of pieces are merged and kept, so a run resumes from there.
PIECE_ROWS = 1 << 21
_FOOTER = 1 << 16


@dataclass(frozen=True)
class Piece:
    """A part of the work: files by number, each with its row groups."""

    parts: tuple[tuple[int, tuple[int, ...]], ...]
    rows: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows that were checked; what the files do not have is None, and survival has no columns then."""

    time: FloatArray
    event: BoolArray
    cdf: FloatArray | None
    risk: FloatArray | None
    nll: FloatArray | None
    survival: FloatArray

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.time.size)


def opened(path: Path) -> Any:
    """Open a parquet file, or say why not."""
    try:
        import pyarrow.parquet as pq
        from pyarrow import ArrowException
    except ImportError as error:
        raise ImportError('parquet files need pyarrow: pip install "xcal[parquet]"') from error
    try:
        return pq.ParquetFile(path)
    except (ArrowException, OSError) as error:
        fail(str(path), "a parquet file", str(error).splitlines()[0])


def fingerprint(path: Path) -> list[Any]:
    """Size, time of the last change, and a checksum of the end of the file, where parquet keeps its statistics."""
    found = path.stat()
    with path.open("rb") as file:
        file.seek(max(0, found.st_size - _FOOTER))
        return [found.st_size, found.st_mtime_ns, hashlib.sha256(file.read()).hexdigest()[:16]]


def cut(row_groups: list[list[int]], rows_per_piece: int = PIECE_ROWS) -> list[Piece]:
    """Cut the work into pieces; `row_groups` has the rows of each row group of each file."""
    pieces: list[Piece] = []
    parts: dict[int, list[int]] = {}
    rows = 0
    for number, groups in enumerate(row_groups):
        for group, size in enumerate(groups):
            if rows and rows + size > rows_per_piece:
                pieces.append(_piece(parts, rows))
                parts, rows = {}, 0
            parts.setdefault(number, []).append(group)
            rows += size
    return [*pieces, _piece(parts, rows)] if parts else pieces


def _piece(parts: dict[int, list[int]], rows: int) -> Piece:
    return Piece(tuple((number, tuple(groups)) for number, groups in parts.items()), rows)


def batches(piece: Piece, files: list[Path], columns: Columns, batch_rows: int = BATCH_ROWS) -> Iterator[Batch]:
    """Read the rows of a piece, checked."""
    for number, groups in piece.parts:
        path = files[number]
        file = opened(path)
        sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        for group in groups:
            start = int(starts[group])
            for table in _read(path, file, group, columns, batch_rows):
                place = _Place(path, group, start)
                yield from _weighted(_batch(table, columns, place), _weight(table, columns, place), batch_rows)
                start += table.num_rows
            read = start - int(starts[group])
            if read != sizes[group]:
                fail(f"{path}, row group {group}", f"{sizes[group]} rows, as the end of the file says", read)
        file.close()


def _read(path: Path, file: Any, group: int, columns: Columns, batch_rows: int) -> Iterator[Any]:
    from pyarrow import ArrowException

    try:
        yield from file.iter_batches(batch_size=batch_rows, row_groups=[group], columns=columns.names)
    except (ArrowException, OSError) as error:
        fail(f"{path}, row group {group}", "rows that can be read", str(error).splitlines()[0])


@dataclass(frozen=True)
class _Place:
    """Where a batch comes from; `start` is the number in the file of its first row."""

    path: Path
    group: int
    start: int

    def row(self, row: int) -> str:
        """Name the place of a row of the batch."""
        return f"row group {self.group}, row {self.start + row + 1}"

    def check(self, name: str, good: BoolArray, values: npt.NDArray[Any], expected: str) -> None:
        """Refuse a column, by the first row that is wrong; the cell itself may be a patient's, and is not told."""
        if not good.all():
            row = int(np.argmin(good))
            value = float(values[row])
            got = f"{value}" if not math.isfinite(value) else "a negative number" if value < 0 else "another number"
            fail(f"{self.path}, column {name!r}, {self.row(row)}", expected, got)

    def column(self, table: Any, name: str) -> npt.NDArray[Any]:
        """Read a column in which nothing may be missing."""
        column = table.column(name)
        if column.null_count:
            missing = column.is_null().to_numpy(zero_copy_only=False)
            row = self.row(int(np.argmax(missing)))
            fail(f"{self.path}, column {name!r}, {row}", "a value in every row", "an empty cell")
        values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
        return values

    def floats(self, table: Any, name: str) -> FloatArray:
        """Read numbers: float32 as they are, others as float64."""
        values = self.column(table, name)
        return values if values.dtype == np.float32 else values.astype(np.float64)

    def shares(self, table: Any, name: str) -> FloatArray:
        """Read probabilities."""
        values = self.floats(table, name)
        if values.size and not (values.min() >= 0 and values.max() <= 1):
            self.check(name, (values >= 0) & (values <= 1), values, "a probability, a number from 0 to 1")
        return values


def _batch(table: Any, columns: Columns, place: _Place) -> Batch:
    time, event = place.floats(table, columns.time), place.column(table, columns.event)
    place.check(columns.time, np.isfinite(time) & (time >= 0), time, "a finite time, zero or larger")
    place.check(columns.event, np.asarray((event == 0) | (event == 1)), event, "True/False or 0/1")
    risk = None if columns.risk is None else place.floats(table, columns.risk)
    if risk is not None and columns.risk is not None:
        place.check(columns.risk, ~np.isnan(risk), risk, "a number that can be put in order")
    nll = None if columns.nll is None else place.floats(table, columns.nll)
    if nll is not None and columns.nll is not None:
        place.check(columns.nll, ~(np.isnan(nll) | (nll == -np.inf)), nll, "a number, or infinity")
    survival = [place.shares(table, name) for _, name in columns.survival]
    return Batch(
        time=time,
        event=event.astype(np.bool_),
        cdf=None if columns.cdf is None else place.shares(table, columns.cdf),
        risk=risk,
        nll=nll,
        survival=np.column_stack(survival) if survival else np.empty((time.size, 0)),
    )


def _weight(table: Any, columns: Columns, place: _Place) -> npt.NDArray[np.int64] | None:
    """How often each row counts."""
    if columns.weight is None:
        return None
    weight = place.floats(table, columns.weight)
    good = np.isfinite(weight) & (weight >= 0) & (weight == np.floor(weight)) & (weight < 2.0**40)
    place.check(columns.weight, np.asarray(good), weight, "a whole number: how often the row counts")
    return weight.astype(np.int64)


def _weighted(batch: Batch, weight: npt.NDArray[np.int64] | None, batch_rows: int) -> Iterator[Batch]:
    """Rows as often as they count, no more than a batch at a time."""
    if weight is None:
        yield batch
        return
    up_to = np.cumsum(weight)
    total = int(up_to[-1]) if up_to.size else 0
    for start in range(0, total, batch_rows):
        rows = np.searchsorted(up_to, np.arange(start, min(start + batch_rows, total)), side="right")
        taken: dict[str, Any] = {name: None if values is None else values[rows] for name, values in vars(batch).items()}
        yield Batch(**taken)
