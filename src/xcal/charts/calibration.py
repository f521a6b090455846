"""Pictures of calibration: each takes what was measured of one or more models, with the colour of each."""

import math
from collections.abc import Callable, Sequence

import numpy as np

from xcal.charts.marks import Spec, band, bars, chart, hover, line, table, tip, x_axis, y_axis
from xcal.metrics.calibration_curve import CalibrationCurve, Counts
from xcal.metrics.inputs import Vector
from xcal.metrics.pit_histogram import PitHistogram
from xcal.metrics.pp_curve import PPCurve

PERCENT, TIP_PERCENT = ".0%", ".1%"


def only_words(text: str) -> Spec:
    """Return words in place of a picture."""
    words = {"mark": {"type": "text", "text": text, "fontSize": 14}}
    return chart([words], height=120, data={"values": [{}]})


def calibration_curves(drawn: Sequence[tuple[CalibrationCurve, str]], *, top: float | None = None) -> Spec:
    """Draw smooth curves with their bands, the risk groups with their intervals, and the diagonal.

    `top` is where both axes end; by default where the curves do.
    """
    end = risk_limit([curve for curve, _ in drawn]) if top is None else top
    x = x_axis("Predicted risk", domain=[0, end], form=PERCENT)
    y = y_axis("Observed risk", domain=[0, end], form=PERCENT)
    layers = [line(table(x=[0.0, end], y=[0.0, end]), x, y, "reference", dashed=True)]
    for curve, ink in drawn:
        layers += _calibration_layers(curve, x, y, ink)
    return chart(layers, height=360)


def _calibration_layers(curve: CalibrationCurve, x: Spec, y: Spec, ink: str) -> list[Spec]:
    smooth = table(x=curve.predicted, y=curve.observed, low=curve.lower, high=curve.upper)
    points = table(
        x=curve.point_predicted,
        y=curve.point_observed,
        low=curve.point_lower,
        high=curve.point_upper,
        rows=curve.point_rows,
    )
    tips = [tip("x", "predicted", TIP_PERCENT), tip("y", "observed", TIP_PERCENT)]
    ends = [tip("low", "from", TIP_PERCENT), tip("high", "to", TIP_PERCENT)]
    whiskers = band(points, x, y, ink)
    whiskers["mark"] = {**line(points, x, y, ink)["mark"], "type": "rule", "strokeWidth": 1.5, "opacity": 0.7}
    dotted = hover(points, x, y, [*tips, *ends, tip("rows", "rows", ",")], ink)
    dotted["mark"] = {**dotted["mark"], "size": 55, "aria": True}
    del dotted["encoding"]["opacity"], dotted["params"]
    return [
        band(smooth, x, y, ink),
        line(smooth, x, y, ink),
        hover(smooth, x, y, [*tips, *ends], ink),
        whiskers,
        dotted,
    ]


def risk_limit(curves: Sequence[CalibrationCurve]) -> float:
    """Where the axes of risk end: the next tenth beyond what is drawn."""
    ends = [np.concatenate([c.predicted, c.observed, c.upper, c.point_predicted, c.point_upper]) for c in curves]
    largest = extreme(ends, np.max, 1.0)
    return min(1.0, max(0.1, math.ceil(largest * 10 - 1e-9) / 10))


def extreme(parts: Sequence[Vector], of: Callable[[Vector], float], otherwise: float) -> float:
    """Return the largest or smallest of all finite numbers."""
    numbers = np.concatenate([np.zeros(0), *parts])
    finite = numbers[np.isfinite(numbers)]
    return float(of(finite)) if finite.size else otherwise


def narrowest(edges: Sequence[Vector]) -> float:
    """Return the width of the narrowest bin of some histograms."""
    return min(float(np.diff(one).min()) for one in edges)


def heights(values: Vector | Counts, edges: Vector, base: float) -> Vector:
    """Return the heights of bars, some of which are wider than others: what each part of width `base` holds on average.

    Examples
    --------
    >>> heights(np.array([0.2, 0.6]), np.array([0.0, 0.25, 1.0]), 0.25)
    array([0.2, 0.2])
    """
    return np.asarray(values * base / np.diff(edges))


def risk_histograms(drawn: Sequence[tuple[CalibrationCurve, str]], *, top: float | None = None) -> Spec:
    """Draw how many rows have each predicted risk, on the axis of the curve above it."""
    end = risk_limit([curve for curve, _ in drawn]) if top is None else top
    x = x_axis("", domain=[0, end])
    x["axis"] = {"title": None, "labels": False, "ticks": False, "grid": False}
    y = y_axis("Rows", ticks=2, form=",d")
    layers, base = [], narrowest([curve.risk_edges for curve, _ in drawn])
    for curve, ink in drawn:
        edges, counts = curve.risk_edges, curve.risk_counts
        shown = {"y": heights(counts, edges, base), "start": edges[:-1], "end": edges[1:], "rows": counts}
        rows = table(x=edges[:-1], x2=np.minimum(edges[1:], end), **shown)
        rows = [row for row in rows if row["x"] < end]
        tips = [tip("start", "risk from", TIP_PERCENT), tip("end", "to", TIP_PERCENT), tip("rows", "rows", ",")]
        layers.append(bars(rows, x, y, ink, tips, opacity=0.55 if len(drawn) == 1 else 0.4))
    return chart(layers, height=64)


def pit_histograms(
    drawn: Sequence[tuple[PitHistogram, str]], *, beside: Sequence[PitHistogram] = (), top: float | None = None
) -> Spec:
    """Draw histograms of F at the observed times, with the range in which a perfect model stays.

    `top` is where the vertical axis ends; by default above the highest bar. Those `beside` are drawn on the same scale.
    """
    first, base = drawn[0][0], narrowest([*(one.edges for one, _ in drawn), *(one.edges for one in beside)])
    end = pit_limit([one for one, _ in drawn]) if top is None else top
    x = x_axis("F at the observed time", domain=[0, 1], form=".1f")
    y = y_axis("Share of the rows", domain=[0, end], form=PERCENT)
    even = {"low": first.lower, "high": first.upper, "y": np.diff(first.edges)}
    scaled = {name: heights(part, first.edges, base) for name, part in even.items()}
    flat = table(x=first.edges[:-1], x2=first.edges[1:], **scaled)
    layers = []
    for k, (one, ink) in enumerate(drawn):
        width = np.diff(one.edges)
        gap, part = 0.06 * width, 0.88 * width / len(drawn)
        left = one.edges[:-1] + gap + k * part
        shown = {"start": one.edges[:-1], "end": one.edges[1:], "share": one.mass}
        rows = table(x=left, x2=left + part, y=heights(one.mass, one.edges, base), **shown)
        tips = [tip("start", "F from", ".2f"), tip("end", "to", ".2f"), tip("share", "share", TIP_PERCENT)]
        layers.append(bars(rows, x, y, ink, tips, opacity=0.8))
    layers += _flat_band(flat, x, y)
    return chart(layers, height=260)


def pit_limit(histograms: Sequence[PitHistogram]) -> float:
    """Where the axis of the shares ends: a tenth above what is drawn."""
    base = narrowest([one.edges for one in histograms])
    parts = [heights(part, one.edges, base) for one in histograms for part in (one.mass, one.upper)]
    return 1.1 * extreme(parts, np.max, 1.0)


def _flat_band(rows: list[Spec], x: Spec, y: Spec) -> list[Spec]:
    """Draw the range of a perfect model over the bars: two edges and a light ground, so that the bars stay in sight."""
    layers = []
    for field, dashed in (("low", [2, 2]), ("y", [5, 4]), ("high", [2, 2])):
        mark = {"type": "rule", "strokeDash": dashed, "strokeWidth": 1.4, "aria": False, "color": "var(--ink)"}
        encoding = {"x": x, "x2": {"field": "x2"}, "y": {**y, "field": field}}
        layers.append({"data": {"values": rows}, "mark": mark, "encoding": encoding})
    return layers


def pp_curves(drawn: Sequence[tuple[PPCurve, str]]) -> Spec:
    """Draw distributions of F at the observed times against the diagonal."""
    x, y = (make(title, domain=[0, 1], form=".1f") for make, title in ((x_axis, "Predicted"), (y_axis, "Observed")))
    layers = [line(table(x=[0.0, 1.0], y=[0.0, 1.0]), x, y, "reference", dashed=True)]
    for curve, ink in drawn:
        rows = table(x=curve.predicted, y=curve.observed, low=curve.lower, high=curve.upper)
        tips = [tip("x", "F up to"), tip("y", "share of rows"), tip("low", "from"), tip("high", "to")]
        layers += [band(rows, x, y, ink), line(rows, x, y, ink), hover(rows, x, y, tips, ink)]
    return chart(layers, height=260)
