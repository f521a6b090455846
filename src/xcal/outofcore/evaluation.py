"""Every metric of a folder of parquet files, without holding the rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from xcal._checks import as_choice, as_count, as_number, fail
from xcal._engines import Engine, as_engine
from xcal._files import check_target, write_whole
from xcal._locks import sole_user
from xcal._worker_processes import WorkerProcesses
from xcal.outofcore.columns import find_columns, parquet_files
from xcal.outofcore.local import Work, Workers, in_processes, in_this_process, piece_state
from xcal.outofcore.passes import FirstPass, Known, Pass, Plan, SecondPass, ThirdPass, learn, places
from xcal.outofcore.reading import PIECE_ROWS, Piece, cut, fingerprint, opened
from xcal.outofcore.result import FolderEvaluation, summarise
from xcal.outofcore.resume import Progress, SideFile

# Of what is kept, in case the states of another version look alike.
_VERSION = 2


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
    >>> found["concordance"]["value"]
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
def _bar(
    settings: EvaluationSettings, plan: Plan, pieces: list[Piece], progress: Progress
) -> Iterator[Callable[[int], None]]:
    """Show rows done, rows per second and the time left."""
    from tqdm import tqdm

    done = sum(pieces[k].rows for finished in progress.finished for k in finished)
    # disable=None: off unless the standard error is a terminal.
    disable = None if settings.progress is None else not settings.progress
    with tqdm(
        desc="rows", total=plan.n_passes * plan.rows, initial=done, unit=" rows", unit_scale=True, disable=disable
    ) as bar:

        def report(rows: int) -> None:
            bar.update(rows)

        yield report


@contextmanager
def _engine(settings: EvaluationSettings, n_pieces: int) -> Iterator[Workers | None]:
    """Start Ray, or processes of this machine; they are kept for all passes."""
    processes = min(settings.processes, n_pieces)
    if settings.engine == "ray":
        from xcal.outofcore.on_ray import started

        with started():
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
    report: Callable[[int], None]
    workers: Workers | None

    def passed(self, number: int, make: Callable[[], Pass]) -> Pass:
        """Complete one pass."""
        finished = self.progress.finished[number]
        total = make()
        stored = self.progress.states[number]
        if stored is not None:
            total.load_state_dict(stored)
        left = {k: piece for k, piece in enumerate(self.pieces) if k not in finished}
        work: Work = (make, self.files, self.plan.columns)
        if self.settings.engine == "ray" and left:
            from xcal.outofcore.on_ray import on_ray

            total.merge(on_ray(work, left))
            finished |= set(left)
            self.report(sum(piece.rows for piece in left.values()))
        elif left:
            self._on_this_machine(number, work, left, total)
        self._keep(number, total)
        return total

    def _on_this_machine(self, number: int, work: Work, left: dict[int, Piece], total: Pass) -> None:
        states = (
            in_this_process(work, left, self.report)
            if self.workers is None
            else in_processes(self.workers, work, left, self.report)
        )
        merging = False
        try:
            for done, state in states:
                merging = True
                total.merge(state)
                self.progress.finished[number].add(done)
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
