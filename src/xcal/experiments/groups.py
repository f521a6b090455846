"""Which runs are trained together.

A penalty as sharp as the paper's turns the last digits of a model into others, and the last digits depend on how many
models a matrix product is for. A group is therefore always trained whole: a run that is done again then comes out as
before (on the same machine and versions).
"""

from dataclasses import dataclass

from xcal.experiments.spec import RowSpec, Spec


@dataclass(frozen=True)
class Group:
    """Runs that are trained together: all pairs of these lambdas and seeds."""

    row: RowSpec
    lambdas: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def n_models(self) -> int:
        """Number of runs."""
        return len(self.lambdas) * len(self.seeds)

    def holds(self, lam: float, seed: int) -> bool:
        """Whether the run of this lambda and seed is one of the group's."""
        return lam in self.lambdas and seed in self.seeds


def groups_of(spec: Spec, row: RowSpec) -> list[Group]:
    """Return the groups of a row: each run alone, or the whole grid, or the grid of each seed that has its own rows."""
    if spec.group == "run":
        return [Group(row, (lam,), (seed,)) for lam in spec.lambdas for seed in spec.seeds]
    together = [(seed,) for seed in spec.seeds] if spec.data.per_seed else [spec.seeds]
    return [Group(row, spec.lambdas, seeds) for seeds in together]


def missing_groups(spec: Spec, missing: list[tuple[RowSpec, float, int]]) -> list[Group]:
    """Return the groups of which a run is missing, whole."""
    return [
        group
        for row in spec.rows
        for group in groups_of(spec, row)
        if any(r is row and group.holds(lam, seed) for r, lam, seed in missing)
    ]
