"""The jobs of a table on the machines of a Ray cluster.

A machine gets the job, not the rows: it loads them as the first process did, from the same folder, and compares their
hash. So a table of any size costs no memory on the way, and no record is made on other rows.
"""

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch

from xcal._checks import fail
from xcal._engines import cluster, has_gpus, results
from xcal.experiments.data import PathLike, TableData, load_data
from xcal.experiments.job_records import JobRecords
from xcal.experiments.jobs import Job
from xcal.experiments.progress_bar import ProgressBar
from xcal.experiments.records import Record


@dataclass(frozen=True)
class RayTask:
    """One job, and what it must find."""

    job: Job
    spec_hash: str
    data_hash: str


@dataclass(frozen=True)
class _Shared:
    job_records: JobRecords
    data_dir: PathLike | None


def ray_records(
    job_records: JobRecords, data_dir: PathLike | None, tasks: Sequence[RayTask], device: str | None
) -> Iterator[tuple[Job, list[Record]]]:
    """Yield each job with its records, as they are finished. By default a job has a GPU if the cluster has any."""
    with cluster():
        where = torch.device(("cuda" if has_gpus() else "cpu") if device is None else device)
        shared = _Shared(replace(job_records, device=where), data_dir)
        for number, records in results("ray", _made, shared, tasks, gpus=int(where.type == "cuda")):
            yield tasks[number].job, records


def _made(shared: _Shared, task: RayTask) -> list[Record]:
    """Train one job; on another machine, or at least in another process."""
    making = shared.job_records
    seed = task.job.seeds[0] if making.spec.data.per_seed else making.spec.seeds[0]
    data = _loaded(pickle.dumps((making.spec, making.variant, seed, making.device, shared.data_dir)))
    if data.hash != task.data_hash:
        fail("data_dir", f"the rows of the first process (hash {task.data_hash}) on every machine", data.hash)
    with ProgressBar([task.job], making.epochs, False) as bar:
        return making.make(task.job, data, task.spec_hash, bar)


@lru_cache(maxsize=1)
def _loaded(arguments: bytes) -> TableData:
    """Load the rows once in each process: jobs come one after another."""
    return load_data(*pickle.loads(arguments))
