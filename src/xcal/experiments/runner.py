"""Run what is missing of tables, job by job: train, measure, write the records.

All runs of a job are trained together, and records that exist already stay as they are: see `xcal.experiments.jobs`.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from xcal._checks import as_choice, as_count, fail
from xcal._devices import as_device, best_device
from xcal._engines import Engine, as_engine
from xcal.experiments.data import PathLike
from xcal.experiments.progress_bar import ProgressBar
from xcal.experiments.remote_jobs import Remote, RemoteTask, remote
from xcal.experiments.spec import Penalty, Variant
from xcal.experiments.table_runs import Request, Summary, TableRuns


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
    results: PathLike = "results",
    data_dir: PathLike | None = None,
    progress: bool | None = None,
    engine: Engine = "local",
    processes: int = 1,
    rows: Iterable[str] | None = None,
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
        Folder of the records.
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
    rows
        Earlier name of `models`.

    Returns
    -------
    Summary
        Also after a keyboard interrupt. Records of finished jobs are kept; call the function again to resume.
    """
    if rows is not None:
        if models is not None:
            fail("rows", "nothing beside models, of which it is the earlier name", rows)
        warnings.warn("reproduce: the argument 'rows' is now 'models'", FutureWarning, stacklevel=2)
        models = rows
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
