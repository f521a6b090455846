"""How results are shown: comparisons as text (Markdown, CSV, JSON), frontiers as pictures, pages of all results."""

import csv
import io
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np

from xcal._checks import fail
from xcal._files import new_file, write_whole
from xcal.show.charts import horizontal_label, vertical_label
from xcal.show.render import set_log_ticks
from xcal_paper.comparison import (
    LARGEST_LOGNORMAL_LAMBDA,
    METRIC_NAMES,
    METRICS,
    PARTS,
    Cell,
    Comparison,
    Level,
    PenaltyComparison,
    compare,
    compare_penalties,
    paper_values,
    values_of,
)
from xcal_paper.data import PathLike
from xcal_paper.records import is_trial
from xcal_paper.spec import Penalty, Variant, load_spec, table_names

__all__ = [
    "as_csv",
    "as_json",
    "draw_frontier",
    "markdown",
    "penalties_as_json",
    "penalties_as_text",
    "write_pages",
]

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
    """Return in words for how many epochs the models were trained, and the name of a trial."""
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


# ----------------------------------------------------------------------------------------------------------------------
# The frontier as a picture: what each model pays, in concordance or likelihood, for its calibration.


OF = ("concordance", "nll", "dcal_within")
# One colour per source; the sources differ in shape too, for print in grey (Okabe and Ito's palette).
_PRINTED = {"color": "#7f7f7f", "marker": "s", "linestyle": ":", "label": "the paper's values"}
_PENALTIES = {
    "paper": {"color": "#0072b2", "marker": "o", "linestyle": "-", "label": "X-CAL, the paper's penalty"},
    "ours": {"color": "#d55e00", "marker": "^", "linestyle": "-", "label": "X-CAL, our penalty"},
    "annealed": {"color": "#cc79a7", "marker": "D", "linestyle": "-", "label": "X-CAL, our penalty annealed"},
    "ramped": {"color": "#56b4e9", "marker": "v", "linestyle": "-", "label": "X-CAL, ours annealed, weight rising"},
}
_RECALIBRATED = {
    "color": "#009e73",
    "marker": "*",
    "linestyle": "none",
    "label": "λ = 0, recalibrated",
    "markersize": 13,
}
_MOST_COLUMNS = 3


@dataclass(frozen=True)
class Series:
    """Points of one line of one panel, in the order of lambda; `hollow_start`: the first one is the lowest lambda."""

    dcal: list[float]
    value: list[float]
    style: dict[str, Any]
    hollow_start: bool = False


def draw_frontier(
    table: str | Path,
    path: PathLike,
    *,
    of: str = "concordance",
    variant: str | None = None,
    penalty: str | None = None,
    epochs: int | str | None = None,
    results: PathLike = "paper/results",
    part: str = "",
) -> Path:
    """Draw D-calibration against concordance (or NLL, or D-cal within groups), one panel per model of the table.

    Every panel shows the paper's own values, the path of each penalty that has records (one of them if `penalty` is
    given), and lambda = 0 after recalibration. The dashed line is the floor, what a perfect model scores on average.
    """
    if of not in OF:
        fail("of", " or ".join(OF), repr(of))
    spec = load_spec(table)
    if spec.kind != "path":
        fail("table", "a table of models, which has a frontier", spec.table)
    wanted = tuple(_PENALTIES) if penalty is None else (penalty,)
    found = [compare(table, variant=variant, penalty=p, epochs=epochs, results=results, part=part) for p in wanted]
    if not any(comparison.records for comparison in found):
        fail("results", "records to draw", f"none for {spec.table}, {found[0].variant}")
    figure = _figure(found, of)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with new_file(target) as unfinished:
        # The temporary file has another ending than the picture, which says of what kind it is.
        figure.savefig(unfinished, dpi=110, format=target.suffix.removeprefix(".") or "png")
    return target


def _figure(found: list[Comparison], of: str) -> Any:
    """Return the matplotlib figure, one panel per model."""
    from matplotlib.figure import Figure

    spec = found[0].spec
    n = len(spec.models)
    columns = min(_MOST_COLUMNS, n)
    height = math.ceil(n / columns)
    figure = Figure(figsize=(4.0 * columns, 3.1 * height + 0.7), layout="constrained")
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    for place, (panel, model) in enumerate(zip(panels, spec.models, strict=False)):
        _draw_panel(panel, found, model.name, of)
        panel.set_title(model.label)
        if place + columns >= n:
            panel.set_xlabel(horizontal_label())
        if place % columns == 0:
            panel.set_ylabel(vertical_label(of))
    for unused in panels[n:]:
        unused.set_axis_off()
    part = f", {found[0].part} data" if found[0].part else ""
    trial = f", {found[0].trial}" if found[0].trial else ""
    trial += f": {spec.training.epochs} epochs" if found[0].trial in spec.trials else ""
    figure.suptitle(f"{spec.title}{part}, {found[0].variant}{trial}", fontsize=12)
    _draw_legend(figure, panels)
    return figure


def _draw_panel(panel: Any, found: list[Comparison], model: str, of: str) -> None:
    for series in (_printed(found[0], model, of), *_paths(found, model, of), _recalibrated(found, model, of)):
        if series is None:
            continue
        panel.plot(series.dcal, series.value, **{"markersize": 5, "linewidth": 1.3, **series.style})
        if series.hollow_start:
            mark, colour = series.style["marker"], series.style["color"]
            panel.plot(series.dcal[:1], series.value[:1], marker=mark, color=colour, mfc="white", ms=7)
    floor = _floor(found, model)
    if floor is not None:
        look = {"color": "#888888", "linestyle": "--", "linewidth": 1.0, "zorder": 0}
        panel.axvline(floor, label="a perfect model (mean)", **look)
    panel.set_xscale("log")
    set_log_ticks(panel.xaxis)
    if of == "dcal_within":
        panel.set_yscale("log")
        set_log_ticks(panel.yaxis)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(alpha=0.25)


def _draw_legend(figure: Any, panels: Any) -> None:
    entries: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            entries.setdefault(label, handle)
    figure.legend(
        entries.values(),
        entries.keys(),
        title="hollow: the lowest λ, where a line begins",
        loc="outside lower center",
        ncols=len(entries) if len(entries) <= 5 else 3,  # more do not fit beside each other
        frameon=False,
    )


def _printed(comparison: Comparison, model: str, of: str) -> Series | None:
    """Return the values that the paper prints."""
    printed = paper_values(comparison.spec.paper)
    lambdas = [lam for lam in comparison.spec.lambdas if {(model, lam, "dcal"), (model, lam, of)} <= printed.keys()]
    if not lambdas:
        return None
    dcal, value = ([printed[model, lam, metric] for lam in lambdas] for metric in ("dcal", of))
    return Series(dcal, value, _PRINTED, hollow_start=True)


def _paths(found: list[Comparison], model: str, of: str) -> list[Series]:
    """Return one line per penalty that has records."""
    series = []
    for comparison in found:
        points = [_means(comparison, model, lam, of) for lam in comparison.path_lambdas]
        kept = [point for point in points if point is not None]
        if kept:
            dcal, value = ([point[k] for point in kept] for k in (0, 1))
            style = _PENALTIES[comparison.penalty]
            series.append(Series(dcal, value, style, hollow_start=points[0] is not None))
    return series


def _recalibrated(found: list[Comparison], model: str, of: str) -> Series | None:
    # At lambda = 0 all penalties share their models: the first one that has records will do.
    points = (_means(comparison, model, 0.0, of, recalibrated=True) for comparison in found)
    point = next((point for point in points if point is not None), None)
    return None if point is None else Series([point[0]], [point[1]], _RECALIBRATED)


def _means(
    comparison: Comparison, model: str, lam: float, of: str, *, recalibrated: bool = False
) -> tuple[float, float] | None:
    """Return the means over seeds of D-calibration and of the other metric, or None without records."""
    values = [values_of(comparison.records, model, lam, metric, recalibrated=recalibrated) for metric in ("dcal", of)]
    if not all(values):
        return None
    return float(np.mean(values[0])), float(np.mean(values[1]))


def _floor(found: list[Comparison], model: str) -> float | None:
    values = [v for comparison in found for v in values_of(comparison.records, model, 0.0, "dcal_floor")]
    return float(np.mean(values)) if values else None


# ----------------------------------------------------------------------------------------------------------------------
# All results as pages: one page per file of records, the frontiers as pictures, and one page that lists them.


# The paper's tables with enough test rows to tell two penalties apart.
_LARGE = ("gamma-censored", "gamma-uncensored", "mnist-censored", "mnist-uncensored")


def write_pages(results: PathLike) -> list[Path]:
    """Write the pages and pictures of every file of records below `results`, and ``README.md``, which lists them.

    Returns
    -------
    list of Path
        What was written, the list last.
    """
    folder = Path(results)
    found = list(_with_records(folder))
    written = [page for comparison in found for page in _write_tables(comparison, folder)]
    penalties = []
    for table, variant, part, trial in dict.fromkeys(
        (c.spec.table, c.variant, c.part, c.trial) for c in found if c.spec.kind == "path"
    ):
        epochs = trial or None
        for of in OF:
            picture = _place(folder, table, part, trial) / f"{variant}.{of}{_ending(trial)}.png"
            written.append(
                draw_frontier(table, picture, of=of, variant=variant, epochs=epochs, results=folder, part=part)
            )
        if part:
            continue  # a part shows that everything works; penalties are compared on the paper's data
        own = [penalty for penalty in get_args(Penalty) if penalty != "paper"]
        ours = (compare_penalties(table, variant=variant, penalty=p, epochs=epochs, results=folder) for p in own)
        penalties += [comparison for comparison in ours if comparison.levels]
    index = folder / "README.md"
    lines = [*_scores(found), *(_penalties(penalties) if penalties else [])]
    write_whole(index, ("\n".join(lines) + "\n").encode())
    return [*written, index]


def _with_records(folder: Path) -> Iterator[Comparison]:
    for table in table_names():
        spec = load_spec(table)
        penalties = get_args(Penalty) if spec.kind == "path" else ("paper",)
        parts = PARTS if spec.data.name == "mimic" else ("",)
        for epochs, variant, penalty, part in product(
            (None, *spec.trials, *spec.score_trials), get_args(Variant), penalties, parts
        ):
            found = compare(table, variant=variant, penalty=penalty, epochs=epochs, results=folder, part=part)
            if any(not epochs or is_trial(spec, found.spec, spec.model(r.model), variant) for r in found.records):
                yield found


def _place(folder: Path, table: str, part: str, trial: str) -> Path:
    return folder / table / part / ("trial" if trial else "")


def _ending(trial: str) -> str:
    return f".{trial}" if trial else ""


def _write_tables(comparison: Comparison, folder: Path) -> Iterator[Path]:
    place = _place(folder, comparison.spec.table, comparison.part, comparison.trial)
    for ending, make in (("md", markdown), ("csv", as_csv)):
        page = place / f"{comparison.variant}.{comparison.penalty}{_ending(comparison.trial)}.{ending}"
        write_whole(page, make(comparison).encode())
        yield page


def _scores(found: list[Comparison]) -> list[str]:
    lines = [
        "# Results",
        "",
        "Made by `xcal results-page` from the records in this folder. A score is the share of cells that match the "
        "paper's value or are better; cells without a record are counted separately. A name in brackets is a part of "
        "the data, or a trial: other epochs than the table's (`--epochs NAME`). The same command makes the pages "
        "behind the links.",
        "",
        "| table | variant | penalty | score | cells compared | cells missing | runs |",
        "|---|---|---|---|---|---|---|",
    ]
    for c in found:
        place = _place(Path(), c.spec.table, c.part, c.trial).as_posix()
        of = f" ({c.part or c.trial})" if c.part or c.trial else ""
        link = f"[{c.spec.title}{of}]({place}/{c.variant}.{c.penalty}{_ending(c.trial)}.md)"
        lines.append(
            f"| {link} | {c.variant} | {c.penalty} | {c.score:.2f} | {len(c.compared)} | {c.n_missing} "
            f"| {len(c.records)} |"
        )
    return lines


def _penalties(found: list[PenaltyComparison]) -> list[str]:
    lines = [
        "",
        "## Our penalty against the paper's",
        "",
        "At each level of D-calibration that the paper's penalty reaches: is the lowest NLL of our penalty lower, "
        "and its highest concordance higher, everything else equal? Matched or better: NLL not higher by "
        "more than .05, concordance not lower by more than .02.",
        "",
        "| table | variant | penalty | levels | both | lower NLL | higher concordance | matched or better |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for c in found:
        values = (c.share, c.share_nll, c.share_concordance, c.share_matched)
        shares = " | ".join(f"{value:.0%}" for value in values)
        name = f"{c.table} ({c.trial})" if c.trial else c.table
        lines.append(f"| {name} | {c.variant} | {c.penalty} | {len(c.levels)} | {shares} |")
    large = [c for c in found if c.table in _LARGE and (c.variant, c.penalty) == ("as-published", "ours")]
    # Of a table that was run for several numbers of epochs, the run with the most levels.
    whole = {c.table: c for c in sorted(large, key=lambda c: len(c.levels))}
    levels = [level for c in whole.values() for level in c.levels]
    if levels:
        both, matched = (sum(getattr(level, name) for level in levels) for name in ("both", "matched"))
        share = f"both at {both} of {len(levels)} levels, {both / len(levels):.0%}"
        lines += ["", f"Gamma and MNIST tables together, as published: {share}; matched or better at {matched}."]
    return lines
