"""Comparisons as text: Markdown, CSV and JSON."""

import csv
import io
import json
import math
from typing import Any

from xcal.experiments.paper_comparison import METRIC_NAMES, METRICS, Cell, Comparison, values_of
from xcal.experiments.penalty_comparison import LARGEST_LOGNORMAL_LAMBDA, Level, PenaltyComparison

SIGNS = {"matched": "=", "better": "+", "worse": "−", "not settled": "?", "missing": "", "not in the paper": ""}

# What the second table of a page shows, and under which names.
_BEYOND_THE_PAPER = {
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
    "first-day": "the first day in the unit and the time after it",
}
# What is said of records that are not of the table's own data.
_PARTS = {
    "demo": "The data is the open demo of MIMIC-III, 100 patients who all died in the end, and not the data of the "
    "paper. The paper's values stand beside ours to show the form of the table; marks and score compare two data sets "
    "and say nothing about the method.",
    "other": "The data has the shape of MIMIC-III and is neither the full data nor its demo. The paper's values stand "
    "beside ours to show the form of the table; marks and score say nothing about the method.",
}
# Columns of the CSV file and keys of the JSON output, with the attribute of a cell that each holds. "row" is older than
# the attribute's name, and stays for those who read these files.
_CELL_COLUMNS = {
    "row": "model",
    "lam": "lam",
    "metric": "metric",
    "ours": "ours",
    "spread": "spread",
    "n_seeds": "n_seeds",
    "paper": "paper",
    "mark": "mark",
}


def number(value: float, metric: str) -> str:
    """Write three decimals, or two digits for a small D-calibration.

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
    """Return the comparison with the paper as a page of Markdown."""
    spec = comparison.spec
    lines = [
        f"# {spec.title}: {comparison.variant}, penalty {comparison.penalty}",
        "",
        f"`{spec.table}`, {comparison.variant}, penalty: {comparison.penalty}, {_epochs(comparison)}. "
        f"{_coverage(comparison)}",
        "",
        "Each cell: ours ± standard deviation over seeds, the paper's value in brackets, and a mark: "
        "= matched, + better, − worse, ? not settled.",
        "",
        *_paper_table(comparison),
    ]
    if comparison.part:
        lines[3:3] = ["", f"**{_PARTS[comparison.part]}**"]
    if spec.kind == "path":
        lines += ["", *_beyond_the_paper(comparison)]
    if any("dcal_lower" in record.metrics for record in comparison.records):
        lines += ["", *_intervals(comparison)]
    return "\n".join(lines) + "\n"


def _epochs(comparison: Comparison) -> str:
    """Return for how many epochs the models were trained, and the name of a trial."""
    spec = comparison.spec
    numbers = {m.label: spec.training_of(m, comparison.variant).epochs for m in spec.models}
    other = "".join(f"; {label}: {n}" for label, n in numbers.items() if n != spec.training.epochs)
    trial = f" (trial: {comparison.trial})" if comparison.trial else ""
    return f"{spec.training.epochs} epochs{other}{trial}"


def _coverage(comparison: Comparison) -> str:
    compared = len(comparison.compared)
    text = f"Score {comparison.score:.2f}: the share of {compared} cells that are matched or better."
    if comparison.n_missing:
        text += f" {comparison.n_missing} cells have no record yet."
    if comparison.n_not_settled:
        text += f" {comparison.n_not_settled} are not settled: our seeds differ by more than half the paper's value."
    seeds = {cell.n_seeds for cell in comparison.compared}
    if seeds and seeds != {len(comparison.spec.seeds)}:
        text += f" Cells rest on {min(seeds)} to {max(seeds)} seeds." if len(seeds) > 1 else f" Seeds: {min(seeds)}."
    if comparison.other_jobs:
        text += (
            f" {comparison.other_jobs} of {len(comparison.records)} records were trained beside other runs than those "
            "of the table, as --lambdas or --seeds asked for; with the paper's penalty the values depend on that."
        )
    return text


def _paper_table(comparison: Comparison) -> list[str]:
    spec = comparison.spec
    lambdas = [f"λ = {lam:g}" for lam in spec.lambdas]
    lines = ["| model | metric | " + " | ".join(lambdas) + " |", "|---|---|" + "---|" * len(lambdas)]
    for model in spec.models:
        for metric in METRICS[spec.kind]:
            cells = [_text(comparison.cell(model.name, lam, metric)) for lam in spec.lambdas]
            lines.append(f"| {model.label} | {METRIC_NAMES[metric]} | " + " | ".join(cells) + " |")
    return lines


def _text(cell: Cell) -> str:
    spread = "" if math.isnan(cell.spread) else f" ± {number(cell.spread, cell.metric)}"
    ours = number(cell.ours, cell.metric) + spread if cell.n_seeds else "–"
    paper = "" if math.isnan(cell.paper) else f" [{number(cell.paper, cell.metric)}]"
    return f"{ours}{paper} {SIGNS[cell.mark]}".strip()


def _beyond_the_paper(comparison: Comparison) -> list[str]:
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
    lines += ["| model | metric | " + " | ".join(columns) + " | floor |", "|---|---|" + "---|" * (len(columns) + 1)]
    for model in spec.models:
        for metric, name in _BEYOND_THE_PAPER.items():
            path = [values_of(comparison.records, model.name, lam, metric) for lam in spec.lambdas]
            path.append(values_of(comparison.records, model.name, 0.0, metric, recalibrated=True))
            floor = values_of(comparison.records, model.name, 0.0, f"{metric}_floor")
            shown = [number(_mean(values), metric) or "–" for values in path]
            lines.append(f"| {model.label} | {name} | {' | '.join(shown)} | {number(_mean(floor), metric)} |")
    return lines


def _intervals(comparison: Comparison) -> list[str]:
    """List the intervals of rows that depend on each other."""
    spec = comparison.spec
    lines = [
        "## Intervals by subject",
        "",
        "The rows of one subject depend on each other. In brackets: 95 % intervals by drawing whole subjects of the "
        "test set with replacement; means over seeds. They say how much the values would differ with other patients, "
        "for these trained models. The floor of D-cal is that of so many dependent rows. A p-value that counts every "
        "row as an observation would mean nothing here and is not given.",
        "",
        "| model | metric | " + " | ".join(f"λ = {lam:g}" for lam in spec.lambdas) + " | floor |",
        "|---|---|" + "---|" * (len(spec.lambdas) + 1),
    ]
    for model in spec.models:
        for metric in METRICS[spec.kind]:
            cells = [_with_interval(comparison, model.name, lam, metric) for lam in spec.lambdas]
            floor = number(_mean(values_of(comparison.records, model.name, spec.lambdas[0], f"{metric}_floor")), metric)
            lines.append(f"| {model.label} | {METRIC_NAMES[metric]} | {' | '.join(cells)} | {floor} |")
    return lines


def _with_interval(comparison: Comparison, model: str, lam: float, metric: str) -> str:
    names = (metric, f"{metric}_lower", f"{metric}_upper")
    value, low, high = (number(_mean(values_of(comparison.records, model, lam, name)), metric) for name in names)
    return f"{value} [{low}, {high}]" if value else "–"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def as_csv(comparison: Comparison) -> str:
    """Return the comparison with the paper as CSV, one line per cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "variant", "penalty", *_CELL_COLUMNS])
    for cell in comparison.cells:
        values = [getattr(cell, name) for name in _CELL_COLUMNS.values()]
        shown = ["" if isinstance(value, float) and math.isnan(value) else value for value in values]
        writer.writerow([comparison.spec.table, comparison.variant, comparison.penalty, *shown])
    return text.getvalue()


def as_json(comparison: Comparison) -> str:
    """Return score and cells of the comparison with the paper as JSON; an unknown value is null."""
    content = {
        "table": comparison.spec.table,
        "variant": comparison.variant,
        "penalty": comparison.penalty,
        "epochs": comparison.spec.training.epochs,
        "trial": comparison.trial,
        "part": comparison.part,
        "score": comparison.score,
        "compared": len(comparison.compared),
        "missing": comparison.n_missing,
        "other_groups": comparison.other_jobs,
        "cells": [{column: getattr(cell, name) for column, name in _CELL_COLUMNS.items()} for cell in comparison.cells],
    }
    return json.dumps(_without_nan(content), indent=1)


def penalties_as_text(found: PenaltyComparison) -> str:
    """Return the comparison of two penalties as a few lines of text."""
    trial = f" ({found.trial})" if found.trial else ""
    ours = "our penalty" if found.penalty == "ours" else f"our penalty ({found.penalty})"
    others = {"paper": "the paper's", "ours": "our penalty"}
    other = others.get(found.against, f"our penalty ({found.against})")
    lines = [
        f"{found.table}, {found.variant}{trial}: {ours} against {other} at {len(found.levels)} levels of D-cal",
        f"  lower NLL and higher concordance: {found.share:.0%}",
        f"  matched or better on both (NLL within .05, concordance within .02): {found.share_matched:.0%}",
        f"  lower NLL: {found.share_nll:.0%}, higher concordance: {found.share_concordance:.0%}",
        "  median gain where the level is reached: NLL {:.4f}, concordance {:.4f}".format(*found.median_gain),
        "  both by model, on the seeds that both penalties have:",
    ]
    for model in dict.fromkeys(level.model for level in found.levels):
        own = [level for level in found.levels if level.model == model]
        seeds = ", ".join(map(str, found.seeds[model]))
        lines.append(f"  {model}: {sum(level.both for level in own)} of {len(own)} (seeds {seeds})")
    if found.incomplete:
        lines.append(f"  not compared, as no seed has both penalties at all lambdas: {', '.join(found.incomplete)}")
    return "\n".join(lines + (_lognormal_lines(found.lognormal) if found.lognormal else []))


def _lognormal_lines(lognormal: dict[str, list[str]]) -> list[str]:
    whole = sum(len(better) == 3 for better in lognormal.values())
    return [
        "corrected log-normal (our penalty) better than the published one (paper's) on NLL, D-cal and concordance: "
        f"{whole} of {len(lognormal)} models and lambdas up to {LARGEST_LOGNORMAL_LAMBDA:g}",
        *(
            f"  {where}: better on {', '.join(better) or 'none'}"
            for where, better in lognormal.items()
            if len(better) < 3
        ),
    ]


def penalties_as_json(found: PenaltyComparison) -> str:
    """Return the comparison of two penalties as JSON; an unknown value is null."""
    shares = {name: getattr(found, name) for name in ("share", "share_matched", "share_nll", "share_concordance")}
    content = {
        "table": found.table,
        "variant": found.variant,
        "penalty": found.penalty,
        "trial": found.trial,
        **shares,
        "levels": [_level(level) for level in found.levels],
        "seeds": {model: list(seeds) for model, seeds in found.seeds.items()},
        "incomplete": found.incomplete,
        "against": found.against,
        "lognormal": found.lognormal,
    }
    return json.dumps(_without_nan(content), indent=1)


def _level(level: Level) -> dict[str, Any]:
    names = ("lam", "level", "nll", "concordance", "our_nll", "our_concordance", "both", "matched")
    return {"row": level.model} | {name: getattr(level, name) for name in names}


def _without_nan(value: Any) -> Any:
    """Replace NaN and infinity, which JSON cannot write, by None."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
