"""The progress bar of a table that is being trained."""

from collections.abc import Callable
from typing import Any

from xcal.experiments.jobs import Job
from xcal.training import EpochReport


class ProgressBar:
    """One bar over the epochs of all runs of all jobs, with the time left; by default shown on a terminal only."""

    def __init__(self, jobs: list[Job], epochs: Callable[[Job], int], shown: bool | None) -> None:
        from tqdm import tqdm

        total = sum(job.n_runs * epochs(job) for job in jobs)
        # disable=None: off unless the standard error is a terminal.
        disable = None if shown is None else not shown
        self.bar: Any = tqdm(total=total, unit="epoch", unit_scale=True, disable=disable, smoothing=0.05)
        self.n_jobs, self.number = len(jobs), 0

    def __enter__(self) -> "ProgressBar":
        return self

    def __exit__(self, *unused: object) -> None:
        self.bar.close()

    def begin(self, job: Job) -> None:
        """Show which job is trained now."""
        self.number += 1
        self.bar.set_description(f"job {self.number}/{self.n_jobs}: {job.model.name}, {job.n_runs} runs")

    def epoch(self, report: EpochReport) -> None:
        """Count one epoch of each run that the report is about."""
        self.bar.update(report.models.size)

    def finish(self, job: Job, epochs: int) -> None:
        """Count a job that was trained elsewhere."""
        self.number += 1
        self.bar.set_description(f"job {self.number}/{self.n_jobs}: {job.model.name}, {job.n_runs} runs")
        self.bar.update(job.n_runs * epochs)
