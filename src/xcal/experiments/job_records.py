"""Train and measure one job: the records of all its runs."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import torch

import xcal
from xcal.distributions import Family
from xcal.experiments.data import TableData
from xcal.experiments.evaluation import test_metrics
from xcal.experiments.jobs import Job
from xcal.experiments.models import from_guess, make_family, make_network, make_objective
from xcal.experiments.penalty_studies import study_metrics
from xcal.experiments.records import Metrics, Record
from xcal.experiments.spec import Penalty, Spec, Variant, soft_bins
from xcal.training import PathResult, fit_path
from xcal.training.stack import MakeNetwork


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
            objective=make_objective(job.model, self.variant),
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
