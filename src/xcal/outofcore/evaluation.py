"""Every metric of a folder of parquet files, without holding the rows: here, in processes, or on Ray."""

import json
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from xcal._checks import as_choice, as_count, as_number, fail
from xcal._files import check_target, new_file, sole_user, write_whole
from xcal._workers import Engine, Report, WorkerProcesses, as_engine, cluster, results
from xcal.metrics.cells import State
from xcal.metrics.cox_ici_streaming import IndexRange, index_range, knot_range
from xcal.metrics.spec import VALUES
from xcal.outofcore.passes import (
    N_KNOTS,
    PIECE_ROWS,
    Columns,
    FirstPass,
    Known,
    Pass,
    Piece,
    Plan,
    SecondPass,
    ThirdPass,
    batches,
    cut,
    find_columns,
    fingerprint,
    learn,
    opened,
    parquet_files,
    places,
)

# --- What is found in the end, as a table and as JSON.

# Why a value is NaN.
_TOO_FEW = "not known: too few rows were observed until then"

_UNKNOWN = {
    "harrell": "not known: no two rows can be compared",
    "oe": "not known: no event is expected, or no row was observed until then",
}


@dataclass(frozen=True, repr=False)
class FolderEvaluation:
    """Metrics of all rows of a folder.

    Attributes
    ----------
    rows, events, files : int
        Rows (as often as they count), events, and files.
    exact_rows : bool
        Whether the rows were few enough to be kept where a metric needs them all.
    metrics : tuple of dict
        One for each value: `name`, `at` (a time, or None), `value`, and where there are any `lower` and `upper` (the
        range that holds the value of the rows), `error_bound`, `p_value`, `floor`, `standard_error`, `note`. A value
        that the rows cannot tell is NaN, and `note` says why.
    """

    rows: int
    events: int
    files: int
    exact_rows: bool
    metrics: tuple[dict[str, Any], ...]

    def __getitem__(self, key: str | tuple[str, float]) -> dict[str, Any]:
        """One metric, by name or by name and time."""
        name, at = key if isinstance(key, tuple) else (key, None)
        for metric in self.metrics:
            if metric["name"] == name and metric["at"] == at:
                return metric
        raise KeyError(f"{key!r}; there are {', '.join(dict.fromkeys(m['name'] for m in self.metrics))}")

    def to_json(self) -> str:
        """Everything as JSON; what is not known is null."""
        known = {"rows": self.rows, "events": self.events, "files": self.files, "exact_rows": self.exact_rows}
        listed = [{k: _known(v) for k, v in metric.items()} for metric in self.metrics]
        return json.dumps({**known, "metrics": listed}, indent=1, allow_nan=False) + "\n"

    def __repr__(self) -> str:
        share = self.events / self.rows
        lines = [
            f"{_counted(self.rows, 'row')} in {_counted(self.files, 'file')}, "
            f"{_counted(self.events, 'event')} ({share:.0%})",
            f"{'metric':<22}{'at':>10}{'value':>12}{'± at most':>12}  ",
        ]
        for metric in self.metrics:
            at = "" if metric["at"] is None else f"{metric['at']:g}"
            bound, value = metric.get("error_bound"), metric["value"]
            off = "exact" if bound == 0 else "" if bound is None or math.isnan(value) else f"{bound:.1e}"
            more = "" if metric.get("p_value") is None else f"p = {metric['p_value']:.3g}"
            shown = f"{value:.3e}" if 0 < abs(value) < 1e-3 else f"{value:.5f}"
            if math.isnan(value):
                more = metric["note"]
            lines.append(f"{metric['name']:<22}{at:>10}{shown:>12}{off:>12}  {more}".rstrip())
        return "\n".join(lines)


def _counted(n: int, what: str) -> str:
    return f"{n:,} {what}{'s' * (n != 1)}"


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def summarise(first: FirstPass, second: SecondPass, third: ThirdPass | None, files: int) -> FolderEvaluation:
    """Compute every metric from the passes."""
    cells = first.curves.cells()
    rows = int((cells.events + cells.censored).sum())
    metrics = (*_of_all_times(first, second), *_at_horizons(first, second, third))
    return FolderEvaluation(rows, int(cells.events.sum()), files, first.plan.exact, metrics)


def _metric(name: str, value: float, at: float | None = None, **more: Any) -> dict[str, Any]:
    if math.isnan(value):
        # No bound and no p-value either: 0 would say that a value is there, and exact.
        missing = {key: math.nan for key in ("error_bound", "p_value") if key in more}
        more |= missing | {"note": _UNKNOWN.get(name, _TOO_FEW)}
    return {"name": name, "at": at, "value": float(value), **more}


# What is told of a value, where what was accumulated says it.
_TOLD = ("floor", "p_value", "standard_error", "observed", "expected")


def _read(name: str, found: Any, at: float | None = None, error_bound: float | None = None) -> dict[str, Any]:
    """Write what was accumulated: the range that holds the value of the rows, or at a horizon its interval."""
    more = {one: getattr(found, one) for one in _TOLD if hasattr(found, one)}
    if at is not None and hasattr(found, "lower"):
        more["interval"] = [_known(found.lower), _known(found.upper)]
    elif hasattr(found, "lower"):
        more |= {"lower": found.lower, "upper": found.upper}
    bound = getattr(found, "error_bound", 0.0) if error_bound is None else error_bound
    return _metric(name, found.value, at, **more, error_bound=bound)


def _of_all_times(first: FirstPass, second: SecondPass) -> Iterator[dict[str, Any]]:
    meters: dict[str, Any] = {**first.meters, **second.meters}
    for name in [name for name in VALUES if name in meters and not VALUES[name].at_horizon]:
        yield _read(name, meters[name].compute())
    if "brier" in meters and first.plan.columns.horizons[1:]:
        brier = meters["brier"].compute()
        bound = brier.integrated_error_bound
        yield _metric("ibs", brier.integrated.value, error_bound=bound, until=brier.integrated.stop)


def _at_horizons(first: FirstPass, second: SecondPass, third: ThirdPass | None) -> Iterator[dict[str, Any]]:
    if not first.plan.columns.survival:
        return
    meters: dict[str, Any] = {**first.meters, **second.meters}
    brier = meters.pop("brier").compute()
    several = {name: meters[name].compute() for name in VALUES if name in meters and VALUES[name].at_horizon}
    for k, at in enumerate(first.plan.columns.horizons):
        yield _metric("brier", brier.score.values[k], at, error_bound=float(brier.error_bound[k]))
        for name, found in several.items():
            yield _read(name, found.results[k], at, float(found.error_bound[k]))
        one = meters[f"one{k}"].compute()
        # With the quantiles of the rows as cuts it is `one_calibration`; with others it is exact for these.
        cuts = {"cuts": [*map(float, meters[f"one{k}"].cuts)]}
        result, known = one.result, {"error_bound": 0.0} if one.exact and meters[f"p{k}"].exact else {}
        more = {"p_value": result.p_value, "degrees_of_freedom": result.degrees_of_freedom, "method": result.method}
        groups = {"predicted": [*map(float, result.predicted)], "observed": [_known(float(o)) for o in result.observed]}
        yield _metric("one_calibration", result.statistic, at, **more, **known, **groups, **cuts)
        ici = meters[f"ici{k}"].compute()
        within = None if third is None else _index_range(first, third, k)
        for name in ("value", "e50", "e90", "emax"):
            value = getattr(ici.index, name)
            own: dict[str, Any] = {"error_bound": 0.0}
            if not ici.exact:
                own = {"note": f"predictions moved by up to {ici.resolution:.2g}"}
                if within is not None:
                    lower, upper = getattr(within, name)
                    own |= {"lower": lower, "upper": upper, "error_bound": max(upper - value, value - lower)}
            yield _metric("ici_cox" if name == "value" else f"{name}_cox", value, at, **own)


def _index_range(first: FirstPass, third: ThirdPass, k: int) -> IndexRange:
    """Range of the ICI of the rows at one horizon."""
    place = third.near.of_horizons[k]
    if place is None:
        return IndexRange()
    counted: Any = first.meters[f"p{k}"]
    sums: Any = third.meters[f"sets{k}"].compute()
    knots = knot_range(counted.cells(), N_KNOTS)
    return IndexRange() if knots is None else index_range(sums, place, counted.cells(), knots)


# --- The side file of a run: what is finished, so that the same command resumes after Ctrl-C or a kill.

_HEADER = "header"
PASSES = 3  # at most


@dataclass
class Progress:
    """Finished pieces of each pass, and the states that they were merged to."""

    finished: list[set[int]] = field(default_factory=lambda: [set() for _ in range(PASSES)])
    states: list[State | None] = field(default_factory=lambda: [None] * PASSES)


class SideFile:
    """Keeps `Progress` in one file, written whole.

    Parameters
    ----------
    path : Path
    settings : mapping
        What the finished work belongs to: files with their fingerprints, columns, the pieces. Progress of any other
        settings does not count, so a file that has changed is counted anew.
    seconds : float
        Least time between two writes. One that takes long is made more rarely still.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any], *, seconds: float) -> None:
        self.path, self._seconds = path, seconds
        # As JSON and back, so that what was read can be compared.
        self._settings = json.loads(json.dumps(settings))
        self._written = time.monotonic()
        self._took = 0.0

    def read(self) -> tuple[Progress, str | None]:
        """Return what is finished, and why something that is there does not count."""
        try:
            return self._read()
        except FileNotFoundError:
            return Progress(), None
        # What a damaged archive makes its readers raise is of many kinds. Whatever it is, the work can be done again.
        except Exception:
            return Progress(), "it cannot be read"

    def _read(self) -> tuple[Progress, str | None]:
        # Opened here: numpy leaves a damaged file open.
        with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            header = json.loads(str(stored[_HEADER]))
            arrays = {name: stored[name] for name in stored.files if name != _HEADER}
        if header["settings"] != self._settings:
            return Progress(), _difference(header["settings"], self._settings)
        progress = Progress([{int(piece) for piece in pieces} for pieces in header["finished"]])
        if len(progress.finished) != PASSES:
            raise ValueError("another number of passes")
        for k, finished in enumerate(progress.finished):
            own = {name[2:]: values for name, values in arrays.items() if name.startswith(f"{k}/")}
            progress.states[k] = own or None
            if bool(own) != bool(finished) or not finished <= set(range(self._settings["pieces"])):
                raise ValueError("pieces and their sums do not belong together")
        return progress, None

    @property
    def due(self) -> bool:
        """Whether it is time to write again."""
        return time.monotonic() - self._written >= max(self._seconds, 10 * self._took)

    def write(self, progress: Progress) -> None:
        """Write what is finished."""
        start = time.monotonic()
        header = {"settings": self._settings, "finished": [sorted(pieces) for pieces in progress.finished]}
        arrays: dict[str, Any] = {_HEADER: np.array(json.dumps(header))}
        for k, state in enumerate(progress.states):
            arrays |= {f"{k}/{name}": values for name, values in (state or {}).items()}
        with new_file(self.path) as part, part.open("wb") as file:
            np.savez(file, **arrays)
        self._written = time.monotonic()
        self._took = self._written - start

    def remove(self) -> None:
        """Remove the file: the run is complete."""
        self.path.unlink(missing_ok=True)


def _difference(stored: Any, present: Mapping[str, Any]) -> str:
    """Return why the work of another run does not count."""
    if not isinstance(stored, dict) or stored.keys() != present.keys():
        return "it is of another version"
    before, after = (dict(settings["files"]) for settings in (stored, present))
    changed = [name for name in after if before.get(name) != after[name]] or [k for k in before if k not in after]
    return f"{changed[0]} has changed" if changed else "it is of other settings"


Work = tuple[Callable[[], Pass], list[Path], Columns]
Workers = WorkerProcesses[Work, Piece, State]


def piece_state(work: Work, piece: Piece, report: Report | None = None) -> State:
    """State of one pass over the rows of one piece; `report` is told the rows of each batch."""
    make, files, columns = work
    counted = make()
    for batch in batches(piece, files, columns):
        counted.update(batch)
        if report is not None:
            report(batch.n)
    return counted.state_dict()


# Of what is kept, in case the states of another version look alike.
_VERSION = 3


@dataclass(frozen=True)
class EvaluationSettings:
    """How a folder is evaluated.

    Attributes
    ----------
    time, event : str
        Columns of the outcome.
    horizons : tuple of float, optional
        Times of the survival columns to use; by default all.
    exact_rows : int
        Up to so many rows everything is exact. Beyond that concordance and ICI are counted on grids, and times and
        predictions beyond 65,536 distinct ones share cells: see the error bounds.
    d_calibration_method : {"uniform", "km"}
        As in `xcal.d_calibration`.
    ici_bound : bool
        Beyond `exact_rows`: read the rows a third time, for the range that holds ICI, E50, E90 and Emax of the rows.
    engine : {"local", "ray"}
    processes : int
        Of this machine; Ray uses all CPUs that it has.
    checkpoint_seconds : float
        Least time between two writes of what is finished.
    progress : bool, optional
        Whether to show a bar with the time left; by default if the standard error is a terminal.
    """

    time: str = "time"
    event: str = "event"
    horizons: tuple[float, ...] | None = None
    exact_rows: int = 1_000_000
    d_calibration_method: Literal["uniform", "km"] = "uniform"
    ici_bound: bool = False
    engine: Engine = "local"
    processes: int = 1
    checkpoint_seconds: float = 5.0
    progress: bool | None = None

    def __post_init__(self) -> None:
        as_engine(self.engine)
        as_choice("d_calibration_method", self.d_calibration_method, ("uniform", "km"))
        as_count("processes", self.processes, at_least=1)
        as_count("exact_rows", self.exact_rows, at_least=0)
        as_number("checkpoint_seconds", self.checkpoint_seconds, at_least=0)


def evaluate_folder(
    folder: str | Path,
    out: str | Path,
    settings: EvaluationSettings | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> FolderEvaluation:
    """Evaluate the predictions of a folder of parquet files and write the metrics as JSON.

    What is finished is kept beside `out`, in ``<out>.resume``: the same call resumes after Ctrl-C or a kill. A file
    that has changed is noticed, and all is counted anew.

    Parameters
    ----------
    folder : path
        Files with the columns time, event, and what the model says: cdf (F at the observed time), risk (larger:
        sooner), nll, S_12 and so on (survival at time 12); weight, a whole number, says how often a row counts.
    out : path
        JSON file to write, whole or not at all.
    settings : EvaluationSettings, optional
    say : callable, optional
        Is told, in a sentence, where work of an earlier run is used or not.

    Returns
    -------
    FolderEvaluation

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> table = pa.table({"time": [1.0, 2.0, 3.0, 4.0], "event": [1, 0, 1, 1], "risk": [9.0, 8.0, 2.0, 5.0]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(table, f"{folder}/part-0.parquet")
    ...     found = evaluate_folder(folder, f"{folder}/metrics.json")
    >>> found["harrell"]["value"]
    0.75
    """
    chosen = EvaluationSettings() if settings is None else settings
    target = Path(out).resolve()
    files = parquet_files(Path(folder))
    plan, pieces = _planned(files, chosen)
    check_target(target)
    # Two runs would write each other's progress.
    with sole_user("out", target):
        return _evaluated(files, plan, pieces, chosen, target, say)


def _evaluated(
    files: list[Path],
    plan: Plan,
    pieces: list[Piece],
    chosen: EvaluationSettings,
    target: Path,
    say: Callable[[str], None],
) -> FolderEvaluation:
    """Do the passes, or what is left of them, and write the result."""
    belongs = {
        "version": _VERSION,
        "files": [[str(path), fingerprint(path)] for path in files],
        "plan": asdict(plan),
        "pieces": len(pieces),
    }
    side = SideFile(target.with_name(f"{target.name}.resume"), belongs, seconds=chosen.checkpoint_seconds)
    progress, why_not = side.read()
    if why_not is not None:
        say(f"{side.path.name} does not count, as {why_not}: starting anew")
    elif any(progress.finished):
        done = " + ".join(str(len(finished)) for finished in progress.finished[: plan.n_passes])
        say(f"resuming: {done} of {plan.n_passes} × {len(pieces)} parts are done")
    with _bar(chosen, plan, pieces, progress) as report, _engine(chosen, len(pieces)) as workers:
        run = _Run(files, plan, pieces, chosen, side, progress, report, workers)
        first = run.passed(0, partial(FirstPass, plan))
        known: Known = learn(first)  # type: ignore[arg-type]
        second = run.passed(1, partial(SecondPass, plan, known))
        third = None
        if plan.n_passes > 2:
            third = run.passed(2, partial(ThirdPass, plan, places(first, second)))  # type: ignore[arg-type]
    found = summarise(first, second, third, len(files))  # type: ignore[arg-type]
    write_whole(target, found.to_json().encode())
    side.remove()
    return found


def _planned(files: list[Path], settings: EvaluationSettings) -> tuple[Plan, list[Piece]]:
    """Look at all files: columns, rows, pieces of work."""
    schemas, groups = [], []
    for path in files:
        file = opened(path)
        schemas.append(file.schema_arrow)
        groups.append([file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)])
        file.close()
    for path, schema in zip(files, schemas, strict=True):
        for option, name in (("time", settings.time), ("event", settings.event)):
            if name not in schema.names:
                fail(f"{option}, {path}", f"one of the columns {', '.join(schema.names)}", repr(name))
    columns = find_columns(files, schemas, settings.time, settings.event, settings.horizons)
    rows = sum(map(sum, groups))
    if rows == 0:
        fail(str(files[0].parent), "at least one row", "empty files")
    plan = Plan(columns, rows, settings.exact_rows, settings.d_calibration_method, ici_bound=settings.ici_bound)
    return plan, cut(groups, PIECE_ROWS)


@contextmanager
def _bar(settings: EvaluationSettings, plan: Plan, pieces: list[Piece], progress: Progress) -> Iterator[Report]:
    """Show rows done, rows per second and the time left."""
    from tqdm import tqdm

    done = sum(pieces[k].rows for finished in progress.finished for k in finished)
    # disable=None: off unless the standard error is a terminal.
    disable = None if settings.progress is None else not settings.progress
    total = plan.n_passes * plan.rows
    with tqdm(desc="rows", total=total, initial=done, unit=" rows", unit_scale=True, disable=disable) as bar:
        update: Any = bar.update
        yield update


@contextmanager
def _engine(settings: EvaluationSettings, n_pieces: int) -> Iterator[Workers | None]:
    """Start Ray, or processes of this machine; they are kept for all passes."""
    processes = min(settings.processes, n_pieces)
    if settings.engine == "ray":
        with cluster():
            yield None
    elif processes > 1:
        with WorkerProcesses(piece_state, processes, threads=1) as workers:
            yield workers
    else:
        yield None


@dataclass
class _Run:
    """The passes over the pieces, with what is finished kept."""

    files: list[Path]
    plan: Plan
    pieces: list[Piece]
    settings: EvaluationSettings
    side: SideFile
    progress: Progress
    report: Report
    workers: Workers | None

    def passed(self, number: int, make: Callable[[], Pass]) -> Pass:
        """Complete one pass."""
        finished = self.progress.finished[number]
        total = make()
        stored = self.progress.states[number]
        if stored is not None:
            total.load_state_dict(stored)
        left = {k: piece for k, piece in enumerate(self.pieces) if k not in finished}
        if left:
            self._merge(number, (make, self.files, self.plan.columns), left, total)
        self._keep(number, total)
        return total

    def _states(self, work: Work, pieces: list[Piece]) -> Generator[tuple[int, State]]:
        """Count the pieces where the engine does, and report the rows that are done."""
        if self.settings.engine == "ray":
            for place, state in results("ray", piece_state, work, pieces):
                self.report(pieces[place].rows)
                yield place, state
        elif self.workers is None:
            yield from ((place, piece_state(work, piece, self.report)) for place, piece in enumerate(pieces))
        else:
            yield from self.workers.results(work, pieces, self.report)

    def _merge(self, number: int, work: Work, left: dict[int, Piece], total: Pass) -> None:
        numbers, pieces = list(left), list(left.values())
        merging = False
        try:
            # Closed at once after an error: work that waits on a cluster is given up while that is there.
            with closing(self._states(work, pieces)) as states:
                for place, state in states:
                    merging = True
                    total.merge(state)
                    self.progress.finished[number].add(numbers[place])
                    merging = False
                    if self.side.due:
                        self._keep(number, total)
        except BaseException:
            # Also Ctrl-C: what is finished is kept. Half a merge is not; then what was written last counts.
            if self.progress.finished[number] and not merging:
                self._keep(number, total)
            raise

    def _keep(self, number: int, total: Pass) -> None:
        self.progress.states[number] = total.state_dict()
        self.side.write(self.progress)
