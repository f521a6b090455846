"""The progress bar of tables that are being trained."""

from typing import Any

from xcal.experiments.jobs import Job


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
