"""Whether our penalty beats the paper's, and the corrected log-normal the published one."""

import math
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import fail
from xcal.experiments.comparison import Comparison, compare, figures_of, mark_concordance, mark_nll
from xcal.experiments.data import PathLike
from xcal.experiments.render import without_nan
from xcal.experiments.spec import load_spec

# The corrected log-normal is held to beat the published one up to here.
_LARGEST_LAMBDA = 100.0


@dataclass(frozen=True)
class Level:
    """One level of D-calibration that the paper's penalty reaches, and the best that either penalty does there.

    Attributes
    ----------
    row : str
    lam : float
        Lambda at which the paper's penalty reached the level.
    level : float
        Its D-calibration, or twice the floor where that is higher: below that differences are noise.
    nll, concordance : float
        Lowest and highest among the models of the paper's penalty at that level or below.
    our_nll, our_concordance : float
        The same of ours; NaN if no model of ours is at that level or below.
    """

    row: str
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
class Headline:
    """All levels of one table and variant, and how the corrected log-normal fares against the published one.

    `lognormal` maps each row and lambda to the figures on which the corrected model is better, where both were run.
    """

    table: str
    variant: str
    penalty: str
    levels: tuple[Level, ...]
    lognormal: dict[str, list[str]]

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

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        shares = {name: getattr(self, name) for name in ("share", "share_matched", "share_nll", "share_concordance")}
        found = {
            "table": self.table,
            "variant": self.variant,
            "penalty": self.penalty,
            **shares,
            "levels": [asdict(v) | {"both": v.both, "matched": v.matched} for v in self.levels],
        }
        return dict(without_nan(found | {"lognormal": self.lognormal}))

    def __str__(self) -> str:
        lines = [
            f"{self.table}, {self.variant}: our penalty{'' if self.penalty == 'ours' else f' ({self.penalty})'} "
            f"against the paper's at {len(self.levels)} levels of D-cal",
            f"  lower NLL and higher concordance: {self.share:.0%}",
            f"  matched or better on both (NLL within .05, concordance within .02): {self.share_matched:.0%}",
            f"  lower NLL: {self.share_nll:.0%}, higher concordance: {self.share_concordance:.0%}",
        ]
        for row in dict.fromkeys(level.row for level in self.levels):
            own = [level for level in self.levels if level.row == row]
            lines.append(f"  {row}: {sum(level.both for level in own)} of {len(own)}")
        if self.lognormal:
            whole = sum(len(better) == 3 for better in self.lognormal.values())
            lines.append(
                f"corrected log-normal (our penalty) better than the published one (paper's) on NLL, D-cal and "
                f"concordance: {whole} of {len(self.lognormal)} rows and lambdas up to {_LARGEST_LAMBDA:g}"
            )
            lines += [
                f"  {where}: better on {', '.join(better) or 'none'}"
                for where, better in self.lognormal.items()
                if len(better) < 3
            ]
        return "\n".join(lines)


def headline(
    table: str | Path,
    *,
    variant: str | None = None,
    penalty: str = "ours",
    epochs: int | None = None,
    results: PathLike = "results",
) -> Headline:
    """Compare the paper's penalty and ours (or `penalty`, "annealed") with everything else equal.

    For every row and every lambda above 0, the D-calibration of the paper's penalty (mean over seeds) is a level. A
    path is read as straight lines between neighbouring lambdas, in the logarithm of D-calibration, because two
    penalties never stop at the same level; of each penalty the lowest NLL and the highest concordance at that level or
    below are taken. Both sides choose from their path in the same way, so that two equal paths give a share of 0,
    and 1 of matched or better. A level below twice the floor counts as twice the floor: a few seeds cannot tell such a
    model from a perfect one.
    """
    spec = load_spec(table)
    if spec.kind != "path":
        fail("table", "a table of models, which has a headline", spec.table)
    if penalty == "paper":
        fail("penalty", "ours or annealed, to be compared with the paper's", repr(penalty))
    paper = compare(table, variant=variant, penalty="paper", epochs=epochs, results=results)
    ours = compare(table, variant=paper.variant, penalty=penalty, epochs=epochs, results=results)
    levels = []
    for row in paper.spec.rows:
        theirs, own = (
            {lam: point for lam in c.spec.lambdas if lam > 0 and (point := point_of(c, row.name, lam))}
            for c in (paper, ours)
        )
        if own:
            levels += [level_at(row.name, lam, point, theirs, own) for lam, point in theirs.items()]
    beaten = _lognormal(
        compare(table, variant="as-published", penalty="paper", epochs=epochs, results=results),
        compare(table, variant="corrected", penalty="ours", epochs=epochs, results=results),
    )
    return Headline(paper.spec.table, paper.variant, ours.penalty, tuple(levels), beaten)


Point = dict[str, float]


def point_of(comparison: Comparison, row: str, lam: float) -> Point | None:
    """Mean figures over seeds, or None without records."""
    found = {
        metric: figures_of(comparison.records, row, lam, metric)
        for metric in ("nll", "dcal", "dcal_floor", "concordance")
    }
    if not all(found.values()):
        return None
    return {metric: float(np.mean(values)) for metric, values in found.items()}


def level_at(row: str, lam: float, point: Point, theirs: dict[float, Point], own: dict[float, Point]) -> Level:
    """Return the best of two paths at the level of one point."""
    level = max(point["dcal"], 2 * point["dcal_floor"])
    best = []
    for points in (theirs, own):
        reached = _reached([points[lam] for lam in sorted(points)], level)
        best.append(min((p["nll"] for p in reached), default=math.nan))
        best.append(max((p["concordance"] for p in reached), default=math.nan))
    return Level(row, lam, level, *best)


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
    for row in published.spec.rows:
        for lam in published.spec.lambdas:
            old, new = (point_of(c, row.name, lam) for c in (published, corrected))
            if row.model != "lognormal" or row.objective != "nll" or lam > _LARGEST_LAMBDA or not old or not new:
                continue
            better = [name for name in ("nll", "dcal") if new[name] < old[name]]
            better += ["concordance"] if new["concordance"] > old["concordance"] else []
            found[f"{row.name}, lambda {lam:g}"] = better
    return found


def _share(values: list[bool]) -> float:
    return sum(values) / len(values) if values else math.nan
