"""Our penalty against the paper's at equal D-calibration, and the corrected log-normal against the published one."""

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import get_args

import numpy as np

from xcal._checks import as_choice, fail
from xcal.experiments.data import PathLike
from xcal.experiments.paper_comparison import Comparison, compare, mark_concordance, mark_nll, values_of
from xcal.experiments.spec import Penalty
from xcal.experiments.spec_file import load_spec

# The corrected log-normal is compared with the published one up to here.
LARGEST_LOGNORMAL_LAMBDA = 100.0

Point = dict[str, float]


@dataclass(frozen=True)
class Level:
    """One level of D-calibration that the paper's penalty reaches, and the best that either penalty does there.

    Attributes
    ----------
    model : str
    lam : float
        Lambda at which the paper's penalty reached the level.
    level : float
        Its D-calibration, or twice the floor where that is higher: below that, differences are noise.
    nll, concordance : float
        Lowest and highest among the runs of the paper's penalty at that level or below.
    our_nll, our_concordance : float
        The same for our penalty; NaN if none of its runs is at that level or below.
    """

    model: str
    lam: float
    level: float
    nll: float
    concordance: float
    our_nll: float
    our_concordance: float

    @property
    def both(self) -> bool:
        """Whether ours has the lower NLL and the higher concordance."""
        return self.our_nll < self.nll and self.our_concordance > self.concordance

    @property
    def matched(self) -> bool:
        """Whether ours is matched or better on both, by the rule of the tables."""
        marks = (
            mark_nll(self.our_nll, math.nan, self.nll),
            mark_concordance(self.our_concordance, 0.0, self.concordance),
        )
        return not math.isnan(self.our_nll) and "worse" not in marks


@dataclass(frozen=True)
class PenaltyComparison:
    """All levels of one table and variant, and the corrected log-normal beside the published one.

    `lognormal` has an entry for each log-normal model and lambda that was run in both variants: the metrics on which
    the corrected one is better. `incomplete` names the models that are not compared, because no seed has records of
    both penalties at all lambdas of the paper. `against` is the penalty that ours is compared with. `seeds` are the
    seeds on which a model is compared, those that both penalties have.
    """

    table: str
    variant: str
    penalty: str
    trial: str
    levels: tuple[Level, ...]
    lognormal: dict[str, list[str]]
    incomplete: tuple[str, ...] = ()
    against: str = "paper"
    seeds: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Share of levels at which ours has the lower NLL and the higher concordance."""
        return _share([level.both for level in self.levels])

    @property
    def share_matched(self) -> float:
        """Share of levels at which ours is matched or better on both."""
        return _share([level.matched for level in self.levels])

    @property
    def share_nll(self) -> float:
        """Share of levels at which ours has the lower NLL."""
        return _share([level.our_nll < level.nll for level in self.levels])

    @property
    def share_concordance(self) -> float:
        """Share of levels at which ours has the higher concordance."""
        return _share([level.our_concordance > level.concordance for level in self.levels])

    @property
    def median_gain(self) -> tuple[float, float]:
        """Median of how much lower our NLL and how much higher our concordance is, at the levels that ours reaches."""
        gains = [(level.nll - level.our_nll, level.our_concordance - level.concordance) for level in self.levels]
        reached = [gain for gain in gains if not math.isnan(gain[0])]
        nll, concordance = np.median(reached, axis=0) if reached else (math.nan, math.nan)
        return float(nll), float(concordance)


def compare_penalties(
    table: str | Path,
    *,
    variant: str | None = None,
    penalty: str = "ours",
    against: str = "paper",
    epochs: int | str | None = None,
    results: PathLike = "results",
) -> PenaltyComparison:
    """Compare our penalty (or `penalty`, "annealed" or "ramped") with the paper's (or `against`), all else equal.

    Means are over the seeds of which both penalties have records at every lambda of the paper above 0: a seed can be a
    split of the data, and then no other seed is comparable.

    For every model and every lambda above 0, the D-calibration of the other penalty (mean over seeds) is a level. Two
    penalties never stop at the same level, so a path is read as straight lines between neighbouring lambdas, in the
    logarithm of D-calibration. For each penalty the lowest NLL and the highest concordance at that level or below are
    taken. Both sides choose from their path in the same way: for two equal paths, the share of wins is 0 and the share
    of matched or better is 1. A level below twice the floor counts as twice the floor: a few seeds cannot tell such a
    model from a perfect one.
    """
    spec = load_spec(table)
    if spec.kind != "path":
        fail("table", "a table of models, which has paths to compare", spec.table)
    as_choice("against", against, get_args(Penalty))
    if penalty == against:
        fail("penalty", f"another penalty than {against}, to be compared with it", repr(penalty))
    other = compare(table, variant=variant, penalty=against, epochs=epochs, results=results)
    ours = compare(table, variant=other.variant, penalty=penalty, epochs=epochs, results=results)
    levels: list[Level] = []
    seeds: dict[str, tuple[int, ...]] = {}
    incomplete = []
    for model in other.spec.models:
        shared = _shared_seeds(other, ours, model.name)
        if shared:
            seeds[model.name] = tuple(sorted(shared))
            theirs, own = (_path(c, model.name, shared) for c in (other, ours))
            levels += [level_at(model.name, lam, point, theirs, own) for lam, point in theirs.items()]
        elif any(record.model == model.name for record in ours.records):
            incomplete.append(model.name)
    lognormal = _lognormal(
        compare(table, variant="as-published", penalty="paper", epochs=epochs, results=results),
        compare(table, variant="corrected", penalty="ours", epochs=epochs, results=results),
    )
    asked = (other.spec.table, other.variant, ours.penalty, other.trial)
    return PenaltyComparison(*asked, tuple(levels), lognormal, tuple(incomplete), against, seeds)


def _seeds(comparison: Comparison, model: str, lam: float) -> set[int]:
    """Return the seeds that have a record."""
    return {record.seed for record in comparison.records if (record.model, record.lam) == (model, lam)}


def _shared_seeds(other: Comparison, ours: Comparison, model: str) -> set[int]:
    """Return the seeds that both have at every lambda of the paper above 0 at which the other one has records."""
    lambdas = [lam for lam in other.spec.lambdas if lam > 0 and _seeds(other, model, lam)]
    each = [_seeds(c, model, lam) for lam in lambdas for c in (other, ours)]
    return set.intersection(*each) if each else set()


def _path(comparison: Comparison, model: str, seeds: set[int]) -> dict[float, Point]:
    """Return the points of a path at the lambdas above 0 that have records of all these seeds."""
    lambdas = [lam for lam in comparison.path_lambdas if lam > 0 and seeds <= _seeds(comparison, model, lam)]
    return {lam: point for lam in lambdas if (point := point_of(comparison, model, lam, seeds))}


def point_of(comparison: Comparison, model: str, lam: float, seeds: Collection[int] | None = None) -> Point | None:
    """Return the means over seeds, all or only these, of the metrics of a model, or None without records."""
    records = tuple(record for record in comparison.records if seeds is None or record.seed in seeds)
    found = {metric: values_of(records, model, lam, metric) for metric in ("nll", "dcal", "dcal_floor", "concordance")}
    if not all(found.values()):
        return None
    return {metric: float(np.mean(values)) for metric, values in found.items()}


def level_at(model: str, lam: float, point: Point, theirs: dict[float, Point], own: dict[float, Point]) -> Level:
    """Return the best of two paths at the level of one point."""
    level = max(point["dcal"], 2 * point["dcal_floor"])
    best = []
    for points in (theirs, own):
        reached = _reached([points[lam] for lam in sorted(points)], level)
        best.append(min((p["nll"] for p in reached), default=math.nan))
        best.append(max((p["concordance"] for p in reached), default=math.nan))
    return Level(model, lam, level, *best)


def _reached(path: list[Point], level: float) -> list[Point]:
    """Points of a path at the level or below, and where the lines between neighbours cross it."""
    found = [p for p in path if p["dcal"] <= level]
    for one, other in pairwise(path):
        if min(one["dcal"], other["dcal"]) < level < max(one["dcal"], other["dcal"]):
            share = math.log(level / one["dcal"]) / math.log(other["dcal"] / one["dcal"])
            found.append({name: one[name] + share * (other[name] - one[name]) for name in ("nll", "concordance")})
    return found


def _lognormal(published: Comparison, corrected: Comparison) -> dict[str, list[str]]:
    found = {}
    models = [m for m in published.spec.models if (m.distribution, m.objective) == ("lognormal", "nll")]
    lambdas = [lam for lam in published.spec.lambdas if lam <= LARGEST_LOGNORMAL_LAMBDA]
    for model in models:
        for lam in lambdas:
            shared = _seeds(published, model.name, lam) & _seeds(corrected, model.name, lam)
            old, new = (point_of(c, model.name, lam, shared) for c in (published, corrected))
            if old is None or new is None:
                continue
            better = [name for name in ("nll", "dcal") if new[name] < old[name]]
            better += ["concordance"] if new["concordance"] > old["concordance"] else []
            found[f"{model.name}, lambda {lam:g}"] = better
    return found


def _share(values: list[bool]) -> float:
    return sum(values) / len(values) if values else math.nan
