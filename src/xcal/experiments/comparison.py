"""Ours beside the paper's, cell by cell: matched, better or worse, and the share that is not worse."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from xcal.experiments.data import PathLike
from xcal.experiments.groups import groups_of
from xcal.experiments.paper import paper_figures
from xcal.experiments.records import Corrupt, Record, RecordFile
from xcal.experiments.runner import chosen_variant
from xcal.experiments.spec import Kind, Penalty, RowSpec, Spec, Variant, load_spec

Mark = Literal["matched", "better", "worse", "missing", "not in the paper"]

NLL_LIMIT, NLL_DEVIATIONS = 0.05, 3.0
CONCORDANCE_LIMIT = 0.02
DCAL_FACTOR, DCAL_LIMIT = 2.0, 1e-4
# Figures are printed in decimals: .83 is within .05 of .78, though the two doubles differ by a hair more.
_ROUNDING = 1e-9

METRICS: dict[Kind, tuple[str, ...]] = {
    "path": ("nll", "dcal", "concordance"),
    "gamma-choice": ("dcal", "soft_dcal", "nll"),
    "jensen-slack": ("dcal", "bound_500", "bound_10000"),
}
NAMES = {
    "nll": "NLL",
    "dcal": "D-cal",
    "concordance": "Concordance",
    "soft_dcal": "Soft D-cal",
    "bound_500": "Bound, batches of 500",
    "bound_10000": "Bound, batches of 10,000",
}


@dataclass(frozen=True)
class Cell:
    """One figure of a table.

    Attributes
    ----------
    row : str
    lam : float
    metric : str
    ours, spread : float
        Mean and standard deviation over seeds; NaN without records, and a NaN spread for one seed.
    n_seeds : int
    paper : float
        NaN where the paper has no figure.
    mark : str
    """

    row: str
    lam: float
    metric: str
    ours: float
    spread: float
    n_seeds: int
    paper: float
    mark: Mark


@dataclass(frozen=True)
class Comparison:
    """A table: its cells in the order of rows, metrics and lambdas, and the records behind them.

    `other_groups` counts the records whose models were trained beside other ones than those of the table (part of a
    table, or other seeds), as far as the records say: older ones do not.
    """

    spec: Spec
    variant: Variant
    penalty: Penalty
    cells: tuple[Cell, ...]
    records: tuple[Record, ...]
    corrupt: tuple[Corrupt, ...]
    other_groups: int = 0

    @property
    def compared(self) -> list[Cell]:
        """Cells that have a figure of ours and one of the paper."""
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

    def cell(self, row: str, lam: float, metric: str) -> Cell:
        """Return one cell."""
        return next(c for c in self.cells if (c.row, c.lam, c.metric) == (row, lam, metric))


def mark_nll(ours: float, spread: float, paper: float) -> Mark:
    """Mark an NLL: matched within .05 or within 3 of our standard deviations.

    Examples
    --------
    >>> mark_nll(0.83, 0.001, 0.78), mark_nll(0.9, 0.05, 0.78), mark_nll(0.9, 0.01, 0.78), mark_nll(0.7, 0.01, 0.78)
    ('matched', 'matched', 'worse', 'better')
    """
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
    """Mark by how much ours is worse than the paper's; a figure that is not a number is worse."""
    if abs(excess) <= limit * (1 + _ROUNDING):
        return "matched"
    return "better" if excess < 0 else "worse"


def compare(
    table: str | Path,
    *,
    variant: str | None = None,
    penalty: str | None = None,
    epochs: int | None = None,
    results: PathLike = "results",
) -> Comparison:
    """Put the records of a table beside the paper's figures.

    Only records of the spec as it is now count: those with another hash are left out, trials (other epochs) unless
    their number of epochs is given.
    """
    full = load_spec(table)
    spec = full.narrowed(epochs=epochs)
    chosen, soft = chosen_variant(full, variant, penalty)
    file = RecordFile.of(Path(results), spec, chosen, soft, trial=spec.training != full.training)
    found, corrupt = file.read()
    hashes = {row.name: spec.hash(row, chosen, soft) for row in spec.rows}
    kept = tuple(r for r in found.values() if hashes.get(r.row) == r.spec_hash)
    cells = tuple(
        _cell(row, lam, metric, kept, spec)
        for row in spec.rows
        for metric in METRICS[spec.kind]
        for lam in spec.lambdas
    )
    return Comparison(spec, chosen, soft, cells, kept, tuple(corrupt), sum(_of_other_group(r, spec) for r in kept))


def _of_other_group(record: Record, spec: Spec) -> bool:
    """Whether a record names a group that is none of the table's."""
    own = {(group.lambdas, group.seeds) for group in groups_of(spec, spec.row(record.row))}
    return record.group_seeds != () and (record.group_lambdas, record.group_seeds) not in own


def figures_of(
    records: tuple[Record, ...], row: str, lam: float, metric: str, *, recalibrated: bool = False
) -> list[float]:
    """Figures of all seeds of one row and lambda."""
    chosen = [r.recalibrated if recalibrated else r.figures for r in records if (r.row, r.lam) == (row, lam)]
    return [figures[metric] for figures in chosen if metric in figures]


def _cell(row: RowSpec, lam: float, metric: str, records: tuple[Record, ...], spec: Spec) -> Cell:
    values = np.array(figures_of(records, row.name, lam, metric))
    ours = float(values.mean()) if values.size else math.nan
    # An infinite figure has no spread.
    spread = float(values.std(ddof=1)) if values.size > 1 and np.isfinite(values).all() else math.nan
    paper = paper_figures(spec.paper).get((row.name, lam, metric), math.nan)
    mark: Mark = "not in the paper"
    if not math.isnan(paper):
        mark = MARKS[metric](ours, spread, paper) if values.size else "missing"
    return Cell(row.name, lam, metric, ours, spread, values.size, paper, mark)
