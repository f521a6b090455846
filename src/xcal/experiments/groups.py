"""Which runs are trained together."""

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


def missing_groups(spec: Spec, missing: list[tuple[RowSpec, float, int]]) -> list[Group]:
    """Split missing runs into groups that `fit_path` can train at once, each a full grid."""
    groups = []
    for row in spec.rows:
        pairs = [(lam, seed) for r, lam, seed in missing if r is row]
        if spec.group == "run":
            groups += [Group(row, (lam,), (seed,)) for lam, seed in pairs]
            continue
        # Seeds that miss the same lambdas go together, unless each has its own rows.
        by_lambdas: dict[tuple[float, ...], list[int]] = {}
        for seed in spec.seeds:
            lams = tuple(lam for lam, s in pairs if s == seed)
            if lams:
                by_lambdas.setdefault(lams, []).append(seed)
        for lams, seeds in by_lambdas.items():
            each = [(seed,) for seed in seeds] if spec.data.per_seed else [tuple(seeds)]
            groups += [Group(row, lams, chosen) for chosen in each]
    return groups
