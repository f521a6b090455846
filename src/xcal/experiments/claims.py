"""Which process trains a job, where several work on the same records.

A job belongs to the process that has its lock. The others leave it out and say so, and a job that was finished in the
meantime is not trained a second time. Locks end with their process (`xcal._locks`).
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from xcal._locks import BusyError, sole_user
from xcal.experiments.jobs import Job
from xcal.experiments.records import Record, RecordFile

RunKey = tuple[str, float, int]  # model, lambda, seed


@dataclass(frozen=True)
class Claims:
    """The jobs of one call, and who has them.

    Attributes
    ----------
    files : mapping
        File of records of each model.
    counts : function
        Whether a record of the file counts for this call: of this spec and made on these rows.
    elsewhere : list of str
        A sentence for each job that another process has.
    """

    files: Mapping[str, RecordFile]
    counts: Callable[[Record], bool]
    elsewhere: list[str] = field(default_factory=list)

    @contextmanager
    def claimed(self, jobs: list[Job]) -> Iterator[list[Job]]:
        """Keep those of the jobs that are free for this block, and give them: without those that are finished now."""
        with ExitStack() as kept:
            free = []
            for job in jobs:
                try:
                    kept.enter_context(sole_user(f"job of {job.model.name}", self._place(job)))
                except BusyError as busy:
                    self.elsewhere.append(str(busy))
                else:
                    free.append(job)
            done = self.finished()
            yield [job for job in free if not runs_of(job) <= done]

    def finished(self) -> set[RunKey]:
        """Return the runs that have a record by now."""
        return {
            (r.model, r.lam, r.seed)
            for file in set(self.files.values())
            for r in file.read()[0].values()
            if self.counts(r)
        }

    def _place(self, job: Job) -> Path:
        named = repr((job.model.name, job.lambdas, job.seeds)).encode()
        file = self.files[job.model.name].path
        return file.with_name(f"{file.name}.{hashlib.sha256(named).hexdigest()[:8]}")


def runs_of(job: Job) -> set[RunKey]:
    """Return all runs of a job."""
    return {(job.model.name, lam, seed) for lam in job.lambdas for seed in job.seeds}
