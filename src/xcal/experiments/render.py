"""A comparison as Markdown, CSV and JSON."""

import csv
import io
import json
import math
from typing import Any

from xcal.experiments.comparison import METRICS, NAMES, Cell, Comparison, figures_of

SIGNS = {"matched": "=", "better": "+", "worse": "−", "missing": "", "not in the paper": ""}

_SHOWN_AFTER = ("nll", "nll_density", "dcal", "dcal_within", "concordance")
_AFTER_NAMES = {
    "nll": "NLL",
    "nll_density": "NLL by density",
    "dcal": "D-cal",
    "dcal_within": "D-cal within groups",
    "concordance": "Concordance",
}
_GROUPS = {
    "mean-quartiles": "quartiles of the true mean time",
    "label": "the ten digits",
    "age-halves": "patients below and above the median age",
}


def number(value: float, metric: str) -> str:
    """Three decimals, or two digits for a small D-calibration.

    Examples
    --------
    >>> number(0.98712, "concordance"), number(0.00012, "dcal"), number(float("nan"), "nll")
    ('0.987', '1.2e-4', '')
    """
    if math.isnan(value):
        return ""
    small = metric not in {"nll", "nll_density", "concordance"} and 0 < abs(value) < 0.0095
    return f"{value:.1e}".replace("e-0", "e-") if small else f"{value:.3f}"


def markdown(comparison: Comparison) -> str:
    """Return the table and what follows from it, as a page."""
    spec = comparison.spec
    lines = [
        f"# {spec.title}: {comparison.variant}, penalty {comparison.penalty}",
        "",
        f"`{spec.table}`, {comparison.variant}, penalty: {comparison.penalty}, {spec.training.epochs} epochs. "
        f"{_coverage(comparison)}",
        "",
        "Each cell: ours ± standard deviation over seeds, the paper's in brackets, and a mark: "
        "= matched, + better, − worse.",
        "",
        *_table(comparison),
    ]
    if spec.kind == "path":
        lines += ["", *_more(comparison)]
    return "\n".join(lines) + "\n"


def _coverage(comparison: Comparison) -> str:
    compared = len(comparison.compared)
    text = f"Score {comparison.score:.2f}: the share of {compared} cells that are matched or better."
    if comparison.n_missing:
        text += f" {comparison.n_missing} cells have no record yet."
    seeds = {cell.n_seeds for cell in comparison.compared}
    if seeds and seeds != {len(comparison.spec.seeds)}:
        text += f" Cells rest on {min(seeds)} to {max(seeds)} seeds." if len(seeds) > 1 else f" Seeds: {min(seeds)}."
    if comparison.other_groups:
        text += (
            f" {comparison.other_groups} of {len(comparison.records)} records were trained beside other models than "
            "those of the table, as --lambdas or --seeds asked for; with the paper's penalty figures depend on that."
        )
    return text


def _table(comparison: Comparison) -> list[str]:
    spec = comparison.spec
    lambdas = [f"λ = {lam:g}" for lam in spec.lambdas]
    lines = ["| model | figure | " + " | ".join(lambdas) + " |", "|---|---|" + "---|" * len(lambdas)]
    for row in spec.rows:
        for metric in METRICS[spec.kind]:
            cells = [_text(comparison.cell(row.name, lam, metric)) for lam in spec.lambdas]
            lines.append(f"| {row.label} | {NAMES[metric]} | " + " | ".join(cells) + " |")
    return lines


def _text(cell: Cell) -> str:
    spread = "" if math.isnan(cell.spread) else f" ± {number(cell.spread, cell.metric)}"
    ours = number(cell.ours, cell.metric) + spread if cell.n_seeds else "–"
    paper = "" if math.isnan(cell.paper) else f" [{number(cell.paper, cell.metric)}]"
    return f"{ours}{paper} {SIGNS[cell.mark]}".strip()


def _more(comparison: Comparison) -> list[str]:
    """List what the paper does not show: density likelihoods, subgroups, the floor, and recalibration."""
    spec = comparison.spec
    groups = _GROUPS[spec.data.groups]
    lines = [
        "## Beyond the paper",
        "",
        "NLL by density divides the mass of a discrete model's bin by its width and can be compared across models; the "
        "NLL above is by bin mass for discrete models. D-cal within groups is the mean over "
        f"{groups}, weighted by their rows. A floor is what a perfect model scores on average. *Recalibrated* is the "
        "model of λ = 0 after one increasing map of F, fitted to the validation rows.",
        "",
    ]
    columns = [f"λ = {lam:g}" for lam in spec.lambdas] + ["recalibrated"]
    lines += ["| model | figure | " + " | ".join(columns) + " | floor |", "|---|---|" + "---|" * (len(columns) + 1)]
    for row in spec.rows:
        for metric in _SHOWN_AFTER:
            path = [figures_of(comparison.records, row.name, lam, metric) for lam in spec.lambdas]
            path.append(figures_of(comparison.records, row.name, 0.0, metric, recalibrated=True))
            floor = figures_of(comparison.records, row.name, 0.0, f"{metric}_floor")
            shown = [number(_mean(values), metric) or "–" for values in path]
            lines.append(
                f"| {row.label} | {_AFTER_NAMES[metric]} | {' | '.join(shown)} | {number(_mean(floor), metric)} |"
            )
    return lines


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def as_csv(comparison: Comparison) -> str:
    """One line a cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "variant", "penalty", *_FIELDS])
    for cell in comparison.cells:
        values = [getattr(cell, name) for name in _FIELDS]
        shown = ["" if isinstance(value, float) and math.isnan(value) else value for value in values]
        writer.writerow([comparison.spec.table, comparison.variant, comparison.penalty, *shown])
    return text.getvalue()


_FIELDS = ("row", "lam", "metric", "ours", "spread", "n_seeds", "paper", "mark")


def as_json(comparison: Comparison) -> str:
    """Score and cells; what is not known is null."""
    content = {
        "table": comparison.spec.table,
        "variant": comparison.variant,
        "penalty": comparison.penalty,
        "epochs": comparison.spec.training.epochs,
        "score": comparison.score,
        "compared": len(comparison.compared),
        "missing": comparison.n_missing,
        "other_groups": comparison.other_groups,
        "cells": [{name: getattr(cell, name) for name in _FIELDS} for cell in comparison.cells],
    }
    return json.dumps(without_nan(content), indent=1)


def without_nan(value: Any) -> Any:
    """Replace NaN by None, which JSON can write."""
    if isinstance(value, dict):
        return {key: without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
