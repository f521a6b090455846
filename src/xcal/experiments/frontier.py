"""The frontier as a picture: what each model pays, in concordance or likelihood, for its calibration."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import fail
from xcal.experiments.comparison import Comparison, compare, figures_of
from xcal.experiments.data import PathLike
from xcal.experiments.paper import paper_figures
from xcal.experiments.spec import load_spec

OF = {
    "concordance": "concordance",
    "nll": "NLL",
    "dcal_within": "D-cal within groups",
}
# One colour a source, told apart also by shape and without colour (Okabe and Ito's palette).
_PRINTED = {"color": "#7f7f7f", "marker": "s", "linestyle": ":", "label": "the paper's figures"}
_PAPER = {"color": "#0072b2", "marker": "o", "linestyle": "-", "label": "X-CAL, the paper's penalty"}
_OURS = {"color": "#d55e00", "marker": "^", "linestyle": "-", "label": "X-CAL, our penalty"}
_ANNEALED = {"color": "#cc79a7", "marker": "D", "linestyle": "-", "label": "X-CAL, our penalty annealed"}
_STYLES = {"paper": _PAPER, "ours": _OURS, "annealed": _ANNEALED}
_MENDED = {"color": "#009e73", "marker": "*", "linestyle": "none", "label": "λ = 0, recalibrated", "markersize": 13}


@dataclass(frozen=True)
class Series:
    """Points of one line of one panel, in the order of lambda."""

    dcal: list[float]
    value: list[float]
    style: dict[str, Any]
    starts: bool = False  # whether the first point, of the lowest lambda, is shown as such


def draw_frontier(
    table: str | Path,
    path: PathLike,
    *,
    of: str = "concordance",
    variant: str | None = None,
    penalty: str | None = None,
    epochs: int | None = None,
    results: PathLike = "results",
) -> Path:
    """Draw D-calibration against concordance (or NLL, or D-cal within groups), one panel a row of the table.

    Every panel shows the paper's own figures, the path of each penalty that has records (one of them if `penalty` is
    given), and lambda = 0 after recalibration. The grey line is the floor, what a perfect model scores.
    """
    if of not in OF:
        fail("of", " or ".join(OF), repr(of))
    spec = load_spec(table)
    if spec.kind != "path":
        fail("table", "a table of models, which has a frontier", spec.table)
    wanted = tuple(_STYLES) if penalty is None else (penalty,)
    found = [compare(table, variant=variant, penalty=p, epochs=epochs, results=results) for p in wanted]
    if not any(comparison.records for comparison in found):
        fail("results", "records to draw", f"none for {spec.table}, {found[0].variant}")
    from matplotlib.figure import Figure

    columns = min(3, len(spec.rows))
    height = math.ceil(len(spec.rows) / columns)
    figure = Figure(figsize=(4.0 * columns, 3.1 * height + 0.7), layout="constrained")
    panels = figure.subplots(height, columns, squeeze=False).ravel()
    for panel, row in zip(panels, spec.rows, strict=False):
        for series in _series(found, row.name, of):
            panel.plot(series.dcal, series.value, **{"markersize": 5, "linewidth": 1.3, **series.style})
            if series.starts:
                mark, colour = series.style["marker"], series.style["color"]
                panel.plot(*(v[:1] for v in (series.dcal, series.value)), marker=mark, color=colour, mfc="white", ms=7)
        floor = _floor(found, row.name)
        if floor is not None:
            panel.axvline(floor, color="#bbbbbb", linewidth=1.0, zorder=0, label="floor of a perfect model")
        panel.set(xscale="log", yscale="log" if of == "dcal_within" else "linear", title=row.label)
        for axis in (panel.xaxis, panel.yaxis) if of == "dcal_within" else (panel.xaxis,):
            _log_ticks(axis)
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    for unused in panels[len(spec.rows) :]:
        unused.set_axis_off()
    for place, panel in enumerate(panels[: len(spec.rows)]):
        if place + columns >= len(spec.rows):
            panel.set_xlabel("D-calibration (left is better)")
        if place % columns == 0:
            panel.set_ylabel(f"{OF[of]} ({'up' if of == 'concordance' else 'down'} is better)")
    figure.suptitle(f"{spec.title}, {found[0].variant}", fontsize=12)
    _legend(figure, panels)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=110)
    return target


def _log_ticks(axis: Any) -> None:
    """Label 1, 2 and 5 of each decade where there are few decades, else the decades alone."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    few = high < low * 50
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_formatter(NullFormatter())


def _short(value: float) -> str:
    return f"{value:.2g}" if value >= 0.01 else f"{value:.0e}".replace("e-0", "e-")


def _legend(figure: Any, panels: Any) -> None:
    entries: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        for label, handle in zip(labels, handles, strict=True):
            entries.setdefault(label, handle)
    title = "hollow: the lowest λ, where a line begins"
    columns = len(entries) if len(entries) <= 5 else 3  # more do not fit beside each other
    figure.legend(
        entries.values(),
        entries.keys(),
        title=title,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
    )


def _series(found: list[Comparison], row: str, of: str) -> list[Series]:
    spec = found[0].spec
    series = []
    printed = paper_figures(spec.paper)
    known = [lam for lam in spec.lambdas if {(row, lam, "dcal"), (row, lam, of)} <= printed.keys()]
    if known:
        series.append(
            Series([printed[row, x, "dcal"] for x in known], [printed[row, x, of] for x in known], _PRINTED, True)
        )
    for comparison in found:
        points = [_means(comparison, row, lam, of) for lam in spec.lambdas]
        kept = [point for point in points if point is not None]
        if kept:
            style = _STYLES[comparison.penalty]
            series.append(Series([d for d, _ in kept], [v for _, v in kept], style, points[0] is not None))
    # Without a penalty the two paths share their models: one of them will do.
    mended = (_means(comparison, row, 0.0, of, recalibrated=True) for comparison in found)
    point = next((point for point in mended if point is not None), None)
    if point is not None:
        series.append(Series([point[0]], [point[1]], _MENDED))
    return series


def _means(
    comparison: Comparison, row: str, lam: float, of: str, *, recalibrated: bool = False
) -> tuple[float, float] | None:
    values = [figures_of(comparison.records, row, lam, metric, recalibrated=recalibrated) for metric in ("dcal", of)]
    if not all(values):
        return None
    return float(np.mean(values[0])), float(np.mean(values[1]))


def _floor(found: list[Comparison], row: str) -> float | None:
    values = [v for comparison in found for v in figures_of(comparison.records, row, 0.0, "dcal_floor")]
    return float(np.mean(values)) if values else None
