"""Which runs are trained together.

A penalty as sharp as the paper's enlarges differences in the last digits of a model, and the last digits depend on how
many runs share a matrix product. So all runs of a job are always trained, even where only one record is missing: that
run then gives the same record as before (on the same machine and with the same versions).
"""

from dataclasses import dataclass

from xcal.experiments.spec import ModelSpec, Spec


@dataclass(frozen=True)
class Job:
    """Runs of one model that are trained together: all pairs of these lambdas and seeds."""

    model: ModelSpec
    lambdas: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def n_runs(self) -> int:
        """Number of runs."""
        return len(self.lambdas) * len(self.seeds)

    def holds(self, lam: float, seed: int) -> bool:
        """Whether the run with this lambda and seed belongs to the job."""
        return lam in self.lambdas and seed in self.seeds


def jobs_of(spec: Spec, model: ModelSpec) -> list[Job]:
    """Return the jobs of a model.

    A job is one run (``job = "run"`` in the spec), all lambdas of a seed that has its own rows, or all lambdas and
    seeds. Lambdas beyond the paper's are apart, so that jobs with the paper's are the same without them.
    """
    if spec.job == "run":
        return [Job(model, (lam,), (seed,)) for lam in spec.lambdas for seed in spec.seeds]
    together = [(seed,) for seed in spec.seeds] if spec.data.per_seed else [spec.seeds]
    larger = tuple(lam for lam in spec.lambdas if lam in spec.larger_lambdas)
    table = tuple(lam for lam in spec.lambdas if lam not in larger)
    return [Job(model, lambdas, seeds) for lambdas in (table, larger) if lambdas for seeds in together]


def unfinished_jobs(spec: Spec, missing: list[tuple[ModelSpec, float, int]]) -> list[Job]:
    """Return the jobs of which at least one run is missing, each with all its runs."""
    return [
        job
        for model in spec.models
        for job in jobs_of(spec, model)
        if any(m is model and job.holds(lam, seed) for m, lam, seed in missing)
    ]
