"""Train and measure one job, the records of all its runs: in this process, in others, or on a Ray cluster."""

import pickle
import platform
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any

import torch

import xcal
from xcal._checks import fail
from xcal._devices import usable_threads
from xcal._workers import Engine, Report, WorkerProcesses, cluster, has_gpus, results
from xcal.distributions import Family
from xcal.training import PathResult, fit_path
from xcal.training.stack import MakeNetwork
from xcal_paper.data import PathLike, TableData, load_data
from xcal_paper.evaluation import study_metrics, test_metrics
from xcal_paper.models import from_guess, make_family, make_network, make_objective
from xcal_paper.records import Job, Metrics, Record
from xcal_paper.spec import Penalty, Spec, Variant, soft_bins


@dataclass(frozen=True)
class JobRecords:
    """What turns the jobs of one table, variant and penalty into records."""

    spec: Spec
    variant: Variant
    penalty: Penalty
    device: torch.device

    def epochs(self, job: Job) -> int:
        """Return how long the runs of a job are trained."""
        return self.spec.training_of(job.model, self.variant).epochs

    def run_epochs(self, job: Job) -> int:
        """Return the epochs of all runs of a job together."""
        return job.n_runs * self.epochs(job)

    def effort(self, job: Job, data: TableData) -> int:
        """Return a rough measure of how long a job takes: rows that each weight of each run sees."""
        settings = self.spec.variants[self.variant]
        n_outputs = make_family(job.model, self.variant, data.edges).n_outputs
        with torch.device("meta"):  # only the shapes are wanted
            network = make_network(job.model, settings, tuple(data.train.x.shape[1:]), n_outputs)()
        return self.run_epochs(job) * data.train.n * sum(weights.numel() for weights in network.parameters())

    def make(self, job: Job, data: TableData, spec_hash: str, report: Callable[[int], None]) -> list[Record]:
        """Train all runs of a job, measure them and return their records.

        `report` is told after every epoch how many runs it was one of.

        Raises
        ------
        KeyboardInterrupt
            Also where the training itself caught the interruption: a path that was stopped early is not what the spec
            asks for, and gets no record.
        """
        start = time.perf_counter()
        make, family = self._network_and_family(job, data)
        path = self._train(job, data, make, family, report)
        if path.interrupted:
            raise KeyboardInterrupt
        metrics, recalibrated = self._measure(job, path, data)
        shared = {
            "table": self.spec.table,
            "variant": self.variant,
            "penalty": self.penalty,
            "model": job.model.name,
            "spec_hash": spec_hash,
            "data_hash": data.hash,
            "data": data.name,
            "epochs": self.epochs(job),
            "versions": _versions(),
            "device": _device_name(self.device),
            "job_runs": job.n_runs,
            "job_lambdas": job.lambdas,
            "job_seeds": job.seeds,
            "job_seconds": round(time.perf_counter() - start, 3),
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        return _records(path, metrics, recalibrated, shared)

    def _network_and_family(self, job: Job, data: TableData) -> tuple[MakeNetwork, Family]:
        settings = self.spec.variants[self.variant]
        family = make_family(job.model, self.variant, data.edges)
        make = make_network(job.model, settings, tuple(data.train.x.shape[1:]), family.n_outputs)
        if settings.first_guess:
            # From times in single precision, as the models see them.
            make = partial(from_guess, make, family.initial(data.train.time.float(), data.train.event))
        return make, family

    def _train(
        self, job: Job, data: TableData, make: MakeNetwork, family: Family, report: Callable[[int], None]
    ) -> PathResult:
        return fit_path(
            make,
            family,
            data.train,
            data.validation,
            lambdas=job.lambdas,
            seeds=job.seeds,
            objective=make_objective(job.model, self.variant, data.train),
            penalty=soft_bins(self.penalty, job.model),
            calibration_bins=self.spec.calibration_bins,
            config=self.spec.training_of(job.model, self.variant).config(self.penalty),
            device=self.device,
            progress=lambda epoch: report(epoch.models.size),
        )

    def _measure(self, job: Job, path: PathResult, data: TableData) -> tuple[list[Metrics], dict[int, Metrics]]:
        """Return the metrics of every run, and those of lambda = 0 after recalibration by place in the path."""
        bins = self.spec.calibration_bins
        if self.spec.kind == "path":
            zero = job.lambdas.index(0.0) if 0.0 in job.lambdas else None
            return test_metrics(path, data, self.variant, bins, zero)
        penalty = soft_bins(self.penalty, job.model)
        return study_metrics(self.spec.kind, path, data, self.variant, bins, penalty), {}


def _records(
    path: PathResult, metrics: list[Metrics], recalibrated: dict[int, Metrics], shared: dict[str, Any]
) -> list[Record]:
    best = path.best()
    failures = {failure.model: str(failure) for failure in path.failures}
    return [
        Record(
            lam=float(path.lambdas[k]),
            seed=int(path.seeds[k]),
            best_epoch=int(path.best_epoch[k]),
            metrics=_rounded(metrics[k]),
            validation=_rounded({"objective": best.objective[0, k], "dcal": best.dcal[0, k]}),
            recalibrated=_rounded(recalibrated.get(k, {})),
            failure=failures.get(k, ""),
            **shared,
        )
        for k in range(path.n_models)
    ]


def _rounded(metrics: Metrics) -> Metrics:
    """Keep seven digits, what single precision holds: people read records too."""
    return {name: float(f"{value:.7g}") for name, value in metrics.items()}


def _versions() -> dict[str, str]:
    return {"xcal": xcal.__version__, "torch": torch.__version__, "python": platform.python_version()}


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


# ----------------------------------------------------------------------------------------------------------------------
# The jobs of tables in other processes: of this machine, or of the machines of a Ray cluster.
#
# A process gets the job, not the rows: it loads them as the first process did, from the same folder, and compares their
# hash. So a table of any size costs no memory on the way, and no record is made on other rows. The first process alone
# writes records.


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
