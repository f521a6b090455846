"""Our values beside the paper's, and our penalty beside the paper's.

First the values that the paper prints, then the comparison cell by cell, then two penalties at equal D-calibration.
"""

import csv
import io
import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from xcal._checks import as_choice, fail
from xcal._files import Corrupt
from xcal_paper.data import PathLike
from xcal_paper.records import Record, RecordFile, is_trial, jobs_of
from xcal_paper.spec import Kind, ModelSpec, Penalty, Spec, Variant, load_spec

PaperKey = tuple[str, float, str]


@cache
def paper_values(table: str) -> dict[PaperKey, float]:
    """Values of one table by (model, lambda, metric); empty for a table that the paper does not have.

    Examples
    --------
    >>> paper_values("gamma-censored")["lognormal-nll", 0.0, "nll"]
    -0.059
    """
    text = (files("xcal_paper") / "specs" / "paper.csv").read_text(encoding="utf-8")
    return {
        (line["row"], float(line["lambda"]), line["metric"]): float(line["value"])
        for line in csv.DictReader(io.StringIO(text))
        if line["table"] == table
    }


# ----------------------------------------------------------------------------------------------------------------------
# Our values beside the paper's, cell by cell: matched, better or worse, and the share that is not worse.


Mark = Literal["matched", "better", "worse", "not settled", "missing", "not in the paper"]

# Data that records can be of: the table's own (""), or for MIMIC-III its demo, or anything else of its shape.
PARTS = ("", "demo", "other")

NLL_LIMIT, NLL_DEVIATIONS = 0.05, 3.0
# Three standard deviations match anything if they are large enough. Beyond this share of the paper's value, or of one
# nat where that is more (an NLL may be near zero), the seeds disagree so much that nothing can be said.
NLL_LARGEST_SPREAD = 0.5
CONCORDANCE_LIMIT = 0.02
DCAL_FACTOR, DCAL_LIMIT = 2.0, 1e-4
# The paper prints decimals: .83 is within .05 of .78, though the two doubles differ by slightly more.
_ROUNDING = 1e-9

METRICS: dict[Kind, tuple[str, ...]] = {
    "path": ("nll", "dcal", "concordance"),
    "gamma-choice": ("dcal", "soft_dcal", "nll"),
    "jensen-slack": ("dcal", "bound_500", "bound_10000"),
}
METRIC_NAMES = {
    "nll": "NLL",
    "dcal": "D-cal",
    "concordance": "Concordance",
    "soft_dcal": "Soft D-cal",
    "bound_500": "Bound, batches of 500",
    "bound_10000": "Bound, batches of 10,000",
}


@dataclass(frozen=True)
class Cell:
    """One cell of a table: one metric of one model at one lambda.

    Attributes
    ----------
    model : str
    lam : float
    metric : str
    ours, spread : float
        Mean and standard deviation over seeds; NaN without records, and a NaN spread for one seed.
    n_seeds : int
    paper : float
        The paper's value; NaN where the paper has none.
    mark : str
    """

    model: str
    lam: float
    metric: str
    ours: float
    spread: float
    n_seeds: int
    paper: float
    mark: Mark


@dataclass(frozen=True)
class Comparison:
    """A table: its cells in the order of models, metrics and lambdas, and the records behind them.

    `other_jobs` counts the records that come from another job than the table's: from a part of the table, or from other
    seeds. Older records do not name their job and are not counted. `part` names the part of the data that the records
    are of, "demo" for the demo of MIMIC-III; empty for the table's own data. `trial` is the name of the trial, empty
    for the table's own epochs.
    """

    spec: Spec
    variant: Variant
    penalty: Penalty
    cells: tuple[Cell, ...]
    records: tuple[Record, ...]
    corrupt: tuple[Corrupt, ...]
    other_jobs: int = 0
    part: str = ""
    trial: str = ""

    @property
    def compared(self) -> list[Cell]:
        """Cells that have a value of ours and one of the paper's, but for those that are not settled."""
        return [cell for cell in self.cells if cell.mark in {"matched", "better", "worse"}]

    @property
    def score(self) -> float:
        """Share of the compared cells that are matched or better; NaN where nothing can be compared."""
        compared = self.compared
        good = sum(cell.mark != "worse" for cell in compared)
        return good / len(compared) if compared else math.nan

    @property
    def n_missing(self) -> int:
        """Cells of the paper that have no record."""
        return sum(cell.mark == "missing" for cell in self.cells)

    @property
    def n_not_settled(self) -> int:
        """Cells whose seeds differ too much to say anything; they count neither for nor against us."""
        return sum(cell.mark == "not settled" for cell in self.cells)

    @property
    def path_lambdas(self) -> tuple[float, ...]:
        """Lambdas that the penalty is trained with, also those beyond the paper's."""
        return self.spec.of_penalty(self.penalty).lambdas

    def cell(self, model: str, lam: float, metric: str) -> Cell:
        """Return one cell."""
        return next(c for c in self.cells if (c.model, c.lam, c.metric) == (model, lam, metric))


def mark_nll(ours: float, spread: float, paper: float) -> Mark:
    """Mark an NLL: matched within .05 or within 3 of our standard deviations; not settled if one is half the paper's.

    Examples
    --------
    >>> mark_nll(0.83, 0.001, 0.78), mark_nll(0.9, 0.05, 0.78), mark_nll(0.9, 0.01, 0.78), mark_nll(0.7, 0.01, 0.78)
    ('matched', 'matched', 'worse', 'better')
    >>> mark_nll(38.0, 30.0, 4.4)
    'not settled'
    """
    if spread > NLL_LARGEST_SPREAD * max(1.0, abs(paper)):
        return "not settled"
    deviations = 0.0 if math.isnan(spread) else NLL_DEVIATIONS * spread
    return _mark(ours - paper, max(NLL_LIMIT, deviations))


def mark_concordance(ours: float, spread: float, paper: float) -> Mark:
    """Mark a concordance: matched within .02, whatever the spread."""
    return _mark(paper - ours, CONCORDANCE_LIMIT)


def mark_dcal(ours: float, spread: float, paper: float) -> Mark:
    """Mark a D-calibration: matched within a factor of 2, or within 1e-4, whatever the spread."""
    if max(ours, paper) <= DCAL_FACTOR * min(ours, paper) * (1 + _ROUNDING):
        return "matched"
    return _mark(ours - paper, DCAL_LIMIT)


MARKS: dict[str, Callable[[float, float, float], Mark]] = {
    "nll": mark_nll,
    "concordance": mark_concordance,
    "dcal": mark_dcal,
    "soft_dcal": mark_dcal,
    "bound_500": mark_dcal,
    "bound_10000": mark_dcal,
}


def _mark(excess: float, limit: float) -> Mark:
    """Mark a value that is worse than the paper's by `excess`; a value that is not a number is worse."""
    if abs(excess) <= limit * (1 + _ROUNDING):
        return "matched"
    return "better" if excess < 0 else "worse"


def compare(
    table: str | Path,
    *,
    variant: str | None = None,
    penalty: str | None = None,
    epochs: int | str | None = None,
    results: PathLike = "paper/results",
    part: str = "",
) -> Comparison:
    """Compare the records of a table with the paper's values.

    Only records of the spec as it is now count. Records with another hash are left out. So are trials (runs with
    another number of epochs), unless that number or the trial's name is given as `epochs`, and runs on a part of the
    data or on other data ("demo" or "other", for MIMIC-III), unless it is given as `part`.
    """
    full = load_spec(table)
    as_choice("part", part, PARTS if full.data.name == "mimic" else ("",))
    spec = full.narrowed(epochs=epochs)
    chosen, soft = full.chosen_variant(variant, penalty)
    kept, corrupt = _records(full, spec, chosen, soft, Path(results), part)
    cells = tuple(
        _cell(model, lam, metric, kept, spec)
        for model in spec.models
        for metric in METRICS[spec.kind]
        for lam in spec.lambdas
    )
    other_jobs = sum(_of_other_job(r, spec.of_penalty(soft)) for r in kept)
    trial = epochs if isinstance(epochs, str) and epochs in full.trials | full.score_trials else ""
    return Comparison(spec, chosen, soft, cells, kept, corrupt, other_jobs, part, trial)


def _records(
    full: Spec, spec: Spec, variant: Variant, penalty: Penalty, results: Path, part: str
) -> tuple[tuple[Record, ...], tuple[Corrupt, ...]]:
    """Return the records of a table as it is asked for: each model's from its own file, by its hash."""
    kept: list[Record] = []
    unreadable: list[Corrupt] = []
    for trial in (False, True):
        models = [model for model in spec.models if is_trial(full, spec, model, variant) == trial]
        if models:
            file = RecordFile.of(results, spec, variant, penalty, trial=trial, part=part)
            found, corrupt = file.read()
            hashes = {model.name: spec.hash(model, variant, penalty) for model in models}
            kept += [r for r in found.values() if hashes.get(r.model) == r.spec_hash]
            unreadable += corrupt
    return tuple(kept), tuple(unreadable)


def _of_other_job(record: Record, spec: Spec) -> bool:
    """Return whether a record names a job that is not one of the table's."""
    own = {(job.lambdas, job.seeds) for job in jobs_of(spec, spec.model(record.model))}
    return record.job_seeds != () and (record.job_lambdas, record.job_seeds) not in own


def values_of(
    records: tuple[Record, ...], model: str, lam: float, metric: str, *, recalibrated: bool = False
) -> list[float]:
    """Return the values of one metric for all seeds of one model and lambda."""
    chosen = [r.recalibrated if recalibrated else r.metrics for r in records if (r.model, r.lam) == (model, lam)]
    return [metrics[metric] for metrics in chosen if metric in metrics]


def _cell(model: ModelSpec, lam: float, metric: str, records: tuple[Record, ...], spec: Spec) -> Cell:
    values = np.array(values_of(records, model.name, lam, metric))
    ours = float(values.mean()) if values.size else math.nan
    # An infinite value has no spread.
    spread = float(values.std(ddof=1)) if values.size > 1 and np.isfinite(values).all() else math.nan
    paper = paper_values(spec.paper).get((model.name, lam, metric), math.nan)
    mark: Mark = "not in the paper"
    if not math.isnan(paper):
        mark = MARKS[metric](ours, spread, paper) if values.size else "missing"
    return Cell(model.name, lam, metric, ours, spread, values.size, paper, mark)


# ----------------------------------------------------------------------------------------------------------------------
# Our penalty against the paper's at equal D-calibration, and the corrected log-normal against the published one.


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
    results: PathLike = "paper/results",
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
