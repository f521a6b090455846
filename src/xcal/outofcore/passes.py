"""Rows of parquet files in batches, and what each pass over them accumulates.

What is wrong is named by file, column, row group and row.
"""

import hashlib
import inspect
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, fail
from xcal.calibration.streaming import DCalibration
from xcal.metrics.cells import Accumulator, State
from xcal.metrics.cox_ici_streaming import Place, StreamingRiskSets, knot_range
from xcal.metrics.kaplan_meier_streaming import BoundedCurve
from xcal.metrics.spec import METRICS, Metric
from xcal.metrics.streaming import (
    StreamingBrier,
    StreamingConcordance,
    StreamingCoxICI,
    StreamingKaplanMeier,
    StreamingOneCalibration,
    StreamingQuantiles,
)

# --- Files, columns and batches of rows.

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


# --- What each pass over the rows accumulates.
# The first pass counts times and predictions: the censoring curve, O/E, D-calibration, likelihood, and the quantiles
# from which the second takes its weights, cuts and grids. The second gives the Brier score, one-calibration, ICI and
# concordance. A third, where it is asked for, measures how far ICI on a grid can be from that of the rows.

# Cells of the grids beyond the rows that are kept: of time and risk for concordance, of time and probability for ICI.
CONCORDANCE_CELLS = 1024
ICI_TIMES, ICI_RISKS = 256, 256

# Cells of time that the bound of ICI is computed on.
BOUND_TIMES = 8192
N_KNOTS = 3

# Distinct times or predictions that are counted exactly beyond the rows that are kept.
_DISTINCT = 1 << 16


@dataclass(frozen=True)
class Plan:
    """What is to be measured: the columns, and how many rows there are against how many may be kept."""

    columns: Columns
    rows: int
    exact_rows: int
    d_calibration_method: Any = "uniform"
    n_risk_groups: int = 10
    ici_bound: bool = False

    @property
    def n_passes(self) -> int:
        """How often the rows are read."""
        return 3 if self.ici_bound and self.columns.survival and not self.exact else 2

    @property
    def exact(self) -> bool:
        """Whether all rows may be kept where a metric needs them."""
        return self.rows <= self.exact_rows

    @property
    def limit(self) -> int:
        """Distinct values that are counted exactly."""
        return max(self.exact_rows, _DISTINCT) if self.exact else _DISTINCT


class Pass:
    """Accumulators by name, which are updated, merged and written together."""

    def __init__(self) -> None:
        self.meters: dict[str, Accumulator | DCalibration] = {}

    def update(self, batch: Batch) -> None:
        """Add rows that were checked."""
        raise NotImplementedError

    def merge(self, state: Mapping[str, Any]) -> Self:
        """Add a state of the same pass over other rows."""
        other = type(self)(*self._made_from()).load_state_dict(state)
        for name, meter in self.meters.items():
            meter.merge(other.meters[name])  # type: ignore[arg-type]
        return self

    def state_dict(self) -> State:
        """Return all states, by names such as ``brier/dead``."""
        return {
            f"{name}/{part}": values
            for name, meter in self.meters.items()
            for part, values in meter.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Replace all states."""
        for name, meter in self.meters.items():
            start = f"{name}/"
            meter.load_state_dict({k.removeprefix(start): v for k, v in state.items() if k.startswith(start)})
        return self

    def _made_from(self) -> tuple[Any, ...]:
        raise NotImplementedError


class FirstPass(Pass):
    """Everything that needs nothing known beforehand."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        columns, limit = plan.columns, plan.limit
        self.meters |= {name: meter for name, metric in METRICS.items() if (meter := _made(metric, plan)) is not None}
        self._reads = {name: _needed(_reader(self.meters[name])) for name in self.meters}
        self.meters |= {f"p{k}": StreamingQuantiles(limit=limit) for k in range(len(columns.survival))}
        if not columns.survival:
            self.meters["km"] = StreamingKaplanMeier(limit=limit)
        if columns.risk is not None:
            self.meters["risk"] = StreamingQuantiles(limit=limit)

    def _made_from(self) -> tuple[Any, ...]:
        return (self.plan,)

    def update(self, batch: Batch) -> None:
        """Add rows that were checked."""
        meters: dict[str, Any] = self.meters
        # In float64, where one minus a float32 number is exact.
        p = 1 - batch.survival.astype(np.float64)
        for name, arguments in self._reads.items():
            _reader(meters[name])(**{one: p if one == "probability" else getattr(batch, one) for one in arguments})
        for k in range(p.shape[1]):
            meters[f"p{k}"].add(p[:, k])
        if "km" in meters:
            meters["km"].add(batch.time, batch.event)
        if "risk" in meters:
            meters["risk"].add(batch.risk)

    @property
    def curves(self) -> StreamingKaplanMeier:
        """Counts of the times."""
        found: Any = self.meters["oe"].curves if "oe" in self.meters else self.meters["km"]  # type: ignore[union-attr]
        counted: StreamingKaplanMeier = found
        return counted


def _made(metric: Metric, plan: Plan) -> Any:
    """Make what accumulates a metric in one pass; None for a metric that has none, or rows without what it reads."""
    columns = plan.columns
    there = {"cdf": columns.cdf, "nll": columns.nll, "risk": columns.risk, "probability": columns.survival}
    if metric.accumulator is None or not all(there.get(one, True) for one in _needed(_reader(metric.accumulator))):
        return None
    offered: dict[str, Any] = {"at": columns.horizons, "limit": plan.limit, "method": plan.d_calibration_method}
    taken = inspect.signature(metric.accumulator).parameters
    return metric.accumulator(**{name: value for name, value in offered.items() if name in taken})


def _reader(accumulator: Any) -> Any:
    """Return what takes rows: that for checked ones, where there is one."""
    return getattr(accumulator, "add", accumulator.update)


def _needed(function: Any) -> list[str]:
    """Return the arguments without which a function cannot be called."""
    named = inspect.signature(function).parameters.items()
    return [name for name, one in named if name != "self" and one.default is one.empty]


@dataclass(frozen=True, eq=False)
class Known:
    """What the second pass takes from the first."""

    censoring: BoundedCurve
    cuts: tuple[Any, ...]
    concordance_grids: tuple[Any, Any] | None
    ici_grids: tuple[tuple[Any, Any], ...] | None
    ici_knots: tuple[Any, ...] | None


def learn(first: FirstPass) -> Known:
    """Take weights, cuts and grids from the first pass."""
    plan, meters = first.plan, first.meters
    if first.curves.n == 0:  # there are rows: `evaluate_folder` looked
        fail(f"column {plan.columns.weight!r}", "a row with a weight above 0", "none")
    predictions: list[Any] = [meters[f"p{k}"] for k in range(len(plan.columns.survival))]
    groups = plan.n_risk_groups
    # As in `one_calibration`: the prediction at these ranks begins the next group.
    cuts = tuple(np.unique(p.compute(np.arange(1, groups) * p.n // groups)) for p in predictions)
    censoring = first.curves.compute("censoring")
    if plan.exact:
        return Known(censoring, cuts, None, None, None)
    times = _times(first, CONCORDANCE_CELLS)
    risk: Any = meters.get("risk")
    grids = None if risk is None else (times, risk.spread(CONCORDANCE_CELLS))
    coarse = np.union1d(_times(first, ICI_TIMES), plan.columns.horizons)
    knots = tuple(_knots(p) for p in predictions)
    return Known(censoring, cuts, grids, tuple((coarse, _risks(p)) for p in predictions), knots)


def _knots(predictions: StreamingQuantiles) -> Any:
    """Knots of the spline behind ICI, nearer to those of the rows than those of the grid; None if some are equal."""
    within = knot_range(predictions.cells(), N_KNOTS)
    return None if within is None else (within[0] + within[1]) / 2


def _times(first: FirstPass, k: int) -> Any:
    """Up to k times that divide the rows into parts of about equal size."""
    cells = first.curves.cells()
    up_to = np.cumsum(cells.events + cells.censored)
    return np.unique(cells.high[np.searchsorted(up_to, np.arange(1, k + 1) * up_to[-1] // k, side="left")])


def _risks(predictions: StreamingQuantiles) -> Any:
    """Points that divide the rows, and points of equal distance: narrow cells where rows are and where they are not."""
    first, last = (float(end) for end in predictions.compute([0, predictions.n - 1]))
    return np.union1d(predictions.spread(ICI_RISKS), np.linspace(first, last, ICI_RISKS + 1))


class SecondPass(Pass):
    """Everything that needs the censoring curve, cuts or grids."""

    def __init__(self, plan: Plan, known: Known) -> None:
        super().__init__()
        self.plan, self.known = plan, known
        columns = plan.columns
        if columns.survival:
            self.meters["brier"] = StreamingBrier(columns.horizons, known.censoring)
        for k, at in enumerate(columns.horizons):
            self.meters[f"one{k}"] = StreamingOneCalibration(
                at=at, cuts=known.cuts[k], uses_cdf=columns.cdf is not None, limit=plan.limit
            )
            grids = None if known.ici_grids is None else known.ici_grids[k]
            knots = None if known.ici_knots is None else known.ici_knots[k]
            self.meters[f"ici{k}"] = StreamingCoxICI(at=at, n_knots=N_KNOTS, grids=grids, limit=plan.limit, knots=knots)
        if columns.risk is not None:
            self.meters["harrell"] = StreamingConcordance(grids=known.concordance_grids, limit=plan.limit)

    def _made_from(self) -> tuple[Any, ...]:
        return self.plan, self.known

    def update(self, batch: Batch) -> None:
        """Add rows that were checked."""
        meters: dict[str, Any] = self.meters
        if "brier" in meters:
            meters["brier"].add(batch.survival, batch.time, batch.event)
        p = 1 - batch.survival.astype(np.float64)
        # All have the same grid of times.
        place = meters["ici0"].time_place(batch.time) if p.shape[1] else None
        for k in range(p.shape[1]):
            meters[f"one{k}"].add(p[:, k], batch.time, batch.event, batch.cdf)
            meters[f"ici{k}"].add(p[:, k], batch.time, batch.event, place)
        if "harrell" in meters:
            meters["harrell"].add(batch.time, batch.event, batch.risk)


@dataclass(frozen=True, eq=False)
class Places:
    """What the third pass takes from the first two: where each curve of ICI is, None if it is no spline."""

    times: Any
    of_horizons: tuple[Place | None, ...]


def places(first: FirstPass, second: SecondPass) -> Places:
    """Take the fits on grids, near which those of the rows are."""
    found: list[Place | None] = []
    for k in range(len(first.plan.columns.horizons)):
        meters: dict[str, Any] = {**first.meters, **second.meters}
        curve, cells = meters[f"ici{k}"].compute().curve, meters[f"p{k}"].cells()
        if second.known.ici_knots is None or second.known.ici_knots[k] is None or not curve.converged or not curve.fit:
            found.append(None)
            continue
        ends = max(float(cells.low[0]), 0.0), min(float(cells.high[-1]), 1.0)
        found.append(Place(curve.knots, curve.fit.coefficients / curve.scale, *ends))
    return Places(np.union1d(_times(first, BOUND_TIMES), first.plan.columns.horizons), tuple(found))


class ThirdPass(Pass):
    """Sums over risk sets, for the bound of ICI."""

    def __init__(self, plan: Plan, near: Places) -> None:
        super().__init__()
        self.plan, self.near = plan, near
        for k, (at, place) in enumerate(zip(plan.columns.horizons, near.of_horizons, strict=True)):
            if place is not None:
                self.meters[f"sets{k}"] = StreamingRiskSets(place, near.times, at)

    def _made_from(self) -> tuple[Any, ...]:
        return self.plan, self.near

    def update(self, batch: Batch) -> None:
        """Add rows that were checked."""
        p = 1 - batch.survival.astype(np.float64)
        for k in range(p.shape[1]):
            meter: Any = self.meters.get(f"sets{k}")
            if meter is not None:
                meter.add(p[:, k], batch.time, batch.event)
