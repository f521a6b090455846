"""Our values beside the paper's, cell by cell: matched, better or worse, and the share that is not worse."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from xcal._checks import as_choice
from xcal._record_lines import Corrupt
from xcal.experiments.data import PathLike
from xcal.experiments.jobs import jobs_of
from xcal.experiments.paper_values import paper_values
from xcal.experiments.records import Record, RecordFile, is_trial
from xcal.experiments.spec import Kind, ModelSpec, Penalty, Spec, Variant
from xcal.experiments.spec_file import load_spec

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
    results: PathLike = "results",
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
    trial = epochs if isinstance(epochs, str) and epochs in full.trials else ""
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
    """Whether a record names a job that is not one of the table's."""
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
