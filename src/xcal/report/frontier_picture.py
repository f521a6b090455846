"""The frontier as a picture: what each model pays, in concordance or likelihood, for its calibration."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import fail
from xcal._files import new_file
from xcal._frontier_axes import VERTICAL, finish_frontier, horizontal_label, vertical_label
from xcal.experiments.data import PathLike
from xcal.experiments.paper_comparison import Comparison, compare, values_of
from xcal.experiments.paper_values import paper_values
from xcal.experiments.spec_file import load_spec

OF = tuple(VERTICAL)
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
    results: PathLike = "results",
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
    trial = f", {found[0].trial}: {spec.training.epochs} epochs" if found[0].trial else ""
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
    finish_frontier(panel, of=of, floor=_floor(found, model))
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
