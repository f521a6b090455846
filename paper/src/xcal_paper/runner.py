"""Run what is missing of tables, job by job: train, measure, write the records.

All runs of a job are trained together, and records that exist already stay as they are: see `xcal_paper.records`.
First the runs of one table, then the progress bar, then all tables of a call.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from xcal._checks import as_choice, as_count, fail
from xcal._devices import as_device, best_device
from xcal._files import Corrupt
from xcal._workers import Engine, as_engine
from xcal_paper.data import PathLike, TableData, data_part, load_data
from xcal_paper.jobs import JobRecords, Remote, RemoteTask, remote
from xcal_paper.records import Claims, Job, Key, Record, RecordFile, RunKey, is_trial, unfinished_jobs
from xcal_paper.spec import ModelSpec, Penalty, Variant, load_spec


@dataclass(frozen=True)
class Request:
    """What to train of a table, and where its records and its data are; `reproduce` has the meaning of each."""

    table: str | Path
    models: Iterable[str] | None = None
    lambdas: Iterable[float] | None = None
    seeds: Iterable[int] | None = None
    variant: Variant | None = None
    penalty: Penalty | None = None
    epochs: int | str | None = None
    results: PathLike = "paper/results"
    data_dir: PathLike | None = None


@dataclass(frozen=True)
class Summary:
    """What `reproduce` did.

    Attributes
    ----------
    path : Path
        The file of records.
    trained, kept : int
        Runs trained now, and runs that had a record already.
    missing : int
        Runs still without a record; above 0 only after an interruption, or where another process trains them.
    corrupt : tuple of Corrupt
        Lines that could not be read; their runs were trained again where they were asked for.
    other_data : int
        Records replaced because they were made on other data.
    seconds : float
    interrupted : bool
    trained_beside : int
        Runs that had a record already and were trained again because they share a job with a missing run. Their records
        stay as they were.
    elsewhere : tuple of str
        A sentence for each job that another process is training, and which was left to it.
    """

    path: Path
    trained: int
    kept: int
    missing: int
    corrupt: tuple[Corrupt, ...]
    other_data: int
    seconds: float
    interrupted: bool
    trained_beside: int
    elsewhere: tuple[str, ...] = ()


class TableRuns:
    """One table of one call: reads its records, loads its data if something is missing, and writes new records.

    Parameters
    ----------
    request
        What to train.
    device
        Where to train.
    """

    def __init__(self, request: Request, device: torch.device) -> None:
        full = load_spec(request.table)
        variant, penalty = full.chosen_variant(request.variant, request.penalty)
        self.spec = full.of_penalty(penalty).narrowed(
            models=request.models, lambdas=request.lambdas, seeds=request.seeds, epochs=request.epochs
        )
        self.data_dir = request.data_dir
        self.job_records = JobRecords(self.spec, variant, penalty, device)
        self.hashes = {model.name: self.spec.hash(model, variant, penalty) for model in self.spec.models}
        part = data_part(self.spec, request.data_dir)
        self.files = {
            model.name: RecordFile.of(Path(request.results), self.spec, variant, penalty, trial=trial, part=part)
            for model, trial in ((m, is_trial(full, self.spec, m, variant)) for m in self.spec.models)
        }
        self.data: dict[int, TableData] = {}
        self.claims = Claims(self.files, self._counts)
        self._trained, self._beside, self._other_data = 0, 0, 0
        self._corrupt: list[Corrupt] = []

    def read(self) -> None:
        """Read the records, and find out which runs have none."""
        self._start = time.perf_counter()
        self._done: dict[Key, Record] = {}
        for file in set(self.files.values()):
            file.check_writable()
            records, unreadable = file.read()
            self._done |= records
            self._corrupt += unreadable
        self._wanted = [
            (m, lam, seed) for m in self.spec.models for lam in self.spec.lambdas for seed in self.spec.seeds
        ]
        self.missing = [run for run in self._wanted if self._key(*run) not in self._done]

    def load(self, device: torch.device) -> None:
        """Load the data if something is missing; records that were made on other data are missing too."""
        if not self.missing:
            return
        variant = self.job_records.variant
        # One copy for all seeds, unless they have their own rows.
        seeds = self.spec.seeds if self.spec.data.per_seed else self.spec.seeds[:1]
        loaded = {seed: load_data(self.spec, variant, seed, device, self.data_dir) for seed in seeds}
        self.data = {seed: loaded.get(seed, loaded[seeds[0]]) for seed in self.spec.seeds}
        there = {key for key, record in self._done.items() if self._counts(record)}
        missing = [run for run in self._wanted if self._key(*run) not in there]
        self._other_data = len(missing) - len(self.missing)
        self.missing = missing

    @property
    def jobs(self) -> list[Job]:
        """Jobs of which a run is missing."""
        return unfinished_jobs(self.spec, self.missing)

    def write(self, records: list[Record]) -> None:
        """Write the records of a job that is finished; those that are there already stay as they are."""
        there = self.claims.finished()
        new = [record for record in records if (record.model, record.lam, record.seed) not in there]
        if new:
            self.files[new[0].model].add(new)
        self._trained, self._beside = self._trained + len(new), self._beside + len(records) - len(new)

    def summary(self, *, interrupted: bool) -> Summary:
        """Return what was done."""
        missed: set[RunKey] = set()
        if self._trained < len(self.missing):
            missed = {(m.name, lam, seed) for m, lam, seed in self.missing} - self.claims.finished()
        # The file to name to a person: of the last model that was asked for, and trained if any was.
        last = (self.missing or self._wanted)[-1][0]
        return Summary(
            self.files[last.name].path,
            self._trained,
            len(self._wanted) - self._trained - len(missed),
            len(missed),
            tuple(self._corrupt),
            self._other_data,
            time.perf_counter() - self._start,
            interrupted,
            self._beside,
            tuple(self.claims.elsewhere),
        )

    def _key(self, model: ModelSpec, lam: float, seed: int) -> Key:
        return (model.name, self.hashes[model.name], lam, seed)

    def _counts(self, record: Record) -> bool:
        """Return whether a record is one of this table, and made on these rows."""
        right = self.hashes.get(record.model) == record.spec_hash and record.seed in self.data
        return right and self.data[record.seed].hash == record.data_hash


# ----------------------------------------------------------------------------------------------------------------------
# The progress bar of tables that are being trained.


class ProgressBar:
    """One bar over the epochs of all runs of all jobs, with the time left.

    Parameters
    ----------
    n_jobs, epochs
        Jobs, and the epochs of all their runs together.
    shown
        By default shown on a terminal only.
    """

    def __init__(self, n_jobs: int, epochs: int, shown: bool | None) -> None:
        from tqdm import tqdm

        # disable=None: off unless the standard error is a terminal.
        disable = None if shown is None else not shown
        self.bar: Any = tqdm(
            desc=f"0/{n_jobs} jobs finished",
            total=epochs,
            unit="epoch",
            unit_scale=True,
            disable=disable,
            smoothing=0.05,
        )
        self.n_jobs, self.number = n_jobs, 0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *unused: object) -> None:
        self.bar.close()

    def begin(self, job: Job) -> None:
        """Show which job is trained now, where one is trained after another."""
        self.number += 1
        self.bar.set_description(f"job {self.number}/{self.n_jobs}: {job.model.name}, {job.n_runs} runs")

    def epoch(self, runs: int) -> None:
        """Count one epoch of each of so many runs."""
        self.bar.update(runs)

    def finish(self) -> None:
        """Show how many jobs are finished, where several are trained at a time."""
        self.number += 1
        self.bar.set_description(f"{self.number}/{self.n_jobs} jobs finished")


# ----------------------------------------------------------------------------------------------------------------------
# Run what is missing of tables, job by job: train, measure, write the records.
#
# All runs of a job are trained together, and records that exist already stay as they are: see `xcal_paper.records`.


def reproduce(
    table: str | Path,
    *,
    models: Iterable[str] | None = None,
    lambdas: Iterable[float] | None = None,
    seeds: Iterable[int] | None = None,
    variant: Variant | None = None,
    penalty: Penalty | None = None,
    epochs: int | str | None = None,
    device: str | None = None,
    results: PathLike = "paper/results",
    data_dir: PathLike | None = None,
    progress: bool | None = None,
    engine: Engine = "local",
    processes: int = 1,
) -> Summary:
    """Train and measure every run of a table that has no record yet.

    A run is one model of the table with one lambda and one seed. The runs of a job are trained together, and always all
    of them: where a record is missing, the whole job is trained again and only the missing record is written. The
    reason: with the paper's penalty, the metrics of a run depend on the runs that are trained beside it. `lambdas` and
    `seeds` make smaller jobs, and each record names the job it comes from.

    Parameters
    ----------
    table
        A name from `table_names`, or the path of a TOML file.
    models, lambdas, seeds
        Only these; by default all of the table's.
    variant : {"as-published", "corrected"}, optional
        By default the table's.
    penalty : {"paper", "ours", "annealed", "ramped"}, optional
        By default the paper's for "as-published" and ours for "corrected". The annealed one is ours with a temperature
        that falls from 2 bin widths to 0.1. With "ramped" it does so in the first half of the epochs, while the weight
        rises (`TrainingConfig`).
    epochs
        Another number of epochs than the table's, for all models, or the name of one of the table's trials. Such a run
        is a trial, and its record goes into a separate file.
    device
        By default the GPU if there is one.
    results
        Folder of the records; by default that of the repository, seen from its root.
    data_dir
        See `xcal.datasets.data_directory`; for MIMIC-III the folder that ``xcal mimic prepare`` has made. Records of
        its demo, or of other data of its shape, go to a folder of their own.
    progress
        True or False for a progress bar; by default one is shown on a terminal.
    engine : {"local", "ray"}
        Train the jobs on this machine, or as tasks of a Ray cluster: this machine, or that of ``RAY_ADDRESS``.
        Every machine then loads the data from the same `data_dir`. Records are written by this process alone. A task
        whose machine dies is given to another one.
    processes
        With the engine "local": so many jobs are trained at a time, each in a process of its own, on one GPU or on
        equal shares of torch's threads; those that take longest begin first. By default one after another, in this
        process. The records are the same; on a CPU, the same as those of one process with a share's threads. A script
        that uses this needs the lines ``if __name__ == "__main__":`` around what it does.

    Returns
    -------
    Summary
        Also after a keyboard interrupt. Records of finished jobs are kept; call the function again to resume.
    """
    request = Request(table, models, lambdas, seeds, variant, penalty, epochs, results, data_dir)
    return next(reproduce_tables([request], Manner(device, progress, engine, processes)))


@dataclass(frozen=True)
class Manner:
    """How to train; `reproduce` has the meaning of each."""

    device: str | None = None
    progress: bool | None = None
    engine: Engine = "local"
    processes: int = 1

    def __post_init__(self) -> None:
        as_engine(self.engine)
        as_count("processes", self.processes, at_least=1)
        if self.engine == "ray" and self.processes > 1:
            fail("processes", "1 with the engine ray, which knows its machines", self.processes)

    @property
    def here(self) -> bool:
        """Whether this process trains the jobs."""
        return self.engine == "local" and self.processes == 1

    def chosen_device(self) -> torch.device | None:
        """Return where jobs are trained; None with Ray, which knows when it has started."""
        if self.engine == "ray":
            as_choice("device", self.device, ("cpu", "cuda"), or_none=True)
            return None if self.device is None else torch.device(self.device)
        return best_device() if self.device is None else as_device(self.device)


def reproduce_tables(requests: Iterable[Request], manner: Manner) -> Iterator[Summary]:
    """Yield what was done of each table, in their order.

    In this process, one table is finished before the next one is begun, and those after an interruption are left out.
    In several processes, the jobs of all tables are trained side by side.
    """
    device = manner.chosen_device()
    if manner.here:
        assert device is not None
        for request in requests:
            table = TableRuns(request, device)
            table.read()
            table.load(device)
            interrupted = _trained_here(table, manner.progress)
            yield table.summary(interrupted=interrupted)
            if interrupted:
                return
        return
    tables = [TableRuns(request, device or torch.device("cpu")) for request in requests]
    for table in tables:
        table.read()
    interrupted = _trained_elsewhere(tables, manner, device)
    yield from (table.summary(interrupted=interrupted) for table in tables)


def _trained_here(table: TableRuns, progress: bool | None) -> bool:
    """Train one job after another; each is this process's from its begin until its records are written.

    Returns whether that was interrupted.
    """
    making, jobs = table.job_records, table.jobs
    try:
        with ProgressBar(len(jobs), sum(map(making.run_epochs, jobs)), progress) as bar:
            for job in jobs:
                with table.claims.claimed([job]) as free:
                    for mine in free:
                        bar.begin(mine)
                        data = table.data[mine.seeds[0]]
                        table.write(making.make(mine, data, table.hashes[mine.model.name], bar.epoch))
    except KeyboardInterrupt:
        return True
    return False


def _trained_elsewhere(tables: list[TableRuns], manner: Manner, device: torch.device | None) -> bool:
    """Train the jobs of all tables in other processes; returns whether that was interrupted."""
    n_jobs = sum(len(table.jobs) for table in tables)
    if not n_jobs:
        return False
    # The processes import what they need while this one loads the data; it needs only their hashes, not the GPU.
    with remote(manner.engine, min(manner.processes, n_jobs), device) as workers, ExitStack() as claimed:
        for table in tables:
            table.load(torch.device("cpu"))
        tasks = [
            RemoteTask(place, job, table.hashes[job.model.name], table.data_dir, table.data[job.seeds[0]].hash)
            for place, table in enumerate(tables)
            for job in claimed.enter_context(table.claims.claimed(table.jobs))
        ]
        return _distributed(workers, tables, tasks, manner.progress)


def _distributed(workers: Remote, tables: list[TableRuns], tasks: list[RemoteTask], progress: bool | None) -> bool:
    """Hand out the tasks, those that take longest first, and write their records; returns whether interrupted."""

    def effort(task: RemoteTask) -> int:
        table = tables[task.table]
        return table.job_records.effort(task.job, table.data[task.job.seeds[0]])

    tasks = sorted(tasks, key=effort, reverse=True)
    making = tuple(replace(table.job_records, device=workers.device) for table in tables)
    epochs = sum(making[task.table].run_epochs(task.job) for task in tasks)
    try:
        with (
            ProgressBar(len(tasks), epochs, progress) as bar,
            closing(workers.results(making, tasks, bar.epoch)) as results,
        ):
            for number, records in results:
                tables[tasks[number].table].write(records)
                bar.finish()
    except KeyboardInterrupt:
        return True
    return False
