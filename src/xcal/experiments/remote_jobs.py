"""The jobs of tables in other processes: of this machine, or of the machines of a Ray cluster.

A process gets the job, not the rows: it loads them as the first process did, from the same folder, and compares their
hash. So a table of any size costs no memory on the way, and no record is made on other rows. The first process alone
writes records.
"""

import pickle
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch

from xcal._checks import fail
from xcal._engines import Engine, cluster, has_gpus, results
from xcal._threads import usable_threads
from xcal._worker_processes import Report, WorkerProcesses
from xcal.experiments.data import PathLike, TableData, load_data
from xcal.experiments.job_records import JobRecords
from xcal.experiments.jobs import Job
from xcal.experiments.records import Record

# How each table of a call is trained: what all its jobs share.
Tables = tuple[JobRecords, ...]


@dataclass(frozen=True)
class RemoteTask:
    """One job, and what it must find.

    Attributes
    ----------
    table : int
        Place of its table among those of the call.
    data_dir : path, optional
        Where the table's data is.
    """

    table: int
    job: Job
    spec_hash: str
    data_dir: PathLike | None
    data_hash: str


@dataclass(frozen=True)
class Remote:
    """Processes that train jobs.

    Attributes
    ----------
    device : torch.device
        Where each of them trains.
    results : function
        Yields the number of each task and its records as they are made; is given a function that is told the epochs of
        runs that are trained.
    """

    device: torch.device
    results: Callable[[Tables, Sequence[RemoteTask], Report], Generator[tuple[int, list[Record]]]]


@contextmanager
def remote(engine: Engine, processes: int, device: torch.device | None) -> Iterator[Remote]:
    """Start processes for this block: those of a Ray cluster, or so many of this machine, which share its cores.

    Parameters
    ----------
    device
        None with Ray: a job has a GPU if the cluster has any.
    """
    if engine == "ray":
        with cluster():
            yield Remote(torch.device("cuda" if has_gpus() else "cpu") if device is None else device, _on_ray)
        return
    assert device is not None
    threads = max(1, usable_threads() // processes)
    with WorkerProcesses(_made, processes, threads=threads) as workers:
        yield Remote(device, workers.results)


def _on_ray(tables: Tables, tasks: Sequence[RemoteTask], report: Report) -> Generator[tuple[int, list[Record]]]:
    gpus = int(tables[0].device.type == "cuda")
    for number, records in results("ray", _made, tables, tasks, gpus=gpus):
        report(tables[tasks[number].table].run_epochs(tasks[number].job))
        yield number, records


def _made(tables: Tables, task: RemoteTask, report: Report | None = None) -> list[Record]:
    """Train one job; on another machine, or at least in another process."""
    making = tables[task.table]
    seed = task.job.seeds[0] if making.spec.data.per_seed else making.spec.seeds[0]
    data = _loaded(pickle.dumps((making.spec, making.variant, seed, making.device, task.data_dir)))
    if data.hash != task.data_hash:
        fail("data_dir", f"the rows of the first process (hash {task.data_hash}) in every process", data.hash)
    return making.make(task.job, data, task.spec_hash, report or (lambda _: None))


@lru_cache(maxsize=1)
def _loaded(arguments: bytes) -> TableData:
    """Load the rows once in each process: jobs come one after another."""
    return load_data(*pickle.loads(arguments))
