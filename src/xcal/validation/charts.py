"""Charts of a report on calibration, as Vega-Lite specifications, for one model or several on the same axes."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from xcal.metrics.inputs import Vector
from xcal.pages import Chart, Key
from xcal.validation.labels import find, names, shown, time_title
from xcal.validation.marks import (
    SERIES,
    Spec,
    band,
    bars,
    chart,
    hover,
    line,
    table,
    tip,
    vertical,
    x_axis,
    y_axis,
)
from xcal.validation.measurements import CalibrationCurve, PitHistogram
from xcal.validation.result import AuditResult
from xcal.validation.words import time_in_words

Results = Sequence[AuditResult]
Found = TypeVar("Found")
# What is asked for: its name on the picture, the metric, the horizon, the group.
Wanted = Sequence[tuple[str, str, float | None, str | None]]
PERCENT, TIP_PERCENT = ".0%", ".1%"
NOT_HERE = "Not measured at this horizon."


def empty() -> Spec:
    """Say in place of a picture that there is none."""
    words = {"mark": {"type": "text", "text": NOT_HERE, "fontSize": 14}}
    return chart([words], height=120, data={"values": [{}]})


def by_horizon(horizons: Sequence[float], make: Callable[[float], tuple[Spec, str]], **more: object) -> Chart:
    """Make one chart that follows the page's horizon."""
    made = [make(t) for t in horizons]
    specs, alts = (tuple(one[k] for one in made) for k in (0, 1))
    return Chart(specs, alts, follows=("horizon",) if len(made) > 1 else (), **more)  # type: ignore[arg-type]


def keys(results: Results, shape: str = "line") -> tuple[Key, ...]:
    """Legend of the models."""
    named = names(results) if len(results) > 1 else ["the model"]
    return tuple(Key(name, ink, shape) for name, ink in zip(named, SERIES, strict=False))  # type: ignore[arg-type]


def same(items: Sequence[Found], horizon: float | None, group: str | None = None) -> Found | None:
    """Give the one of the curves that has this horizon and group."""
    for item in items:
        if getattr(item, "horizon", None) == horizon and getattr(item, "group", None) == group:
            return item
    return None


def observed_and_predicted(results: Results, horizon: float | None) -> tuple[Spec, str]:
    """Draw the observed risk over time with its band, and the mean prediction."""
    over = results[0].measured.over_time
    unit = results[0].time_unit
    x = x_axis(time_title(unit), domain=[0, float(over.times[-1])])
    shown_risks = [over.observed_upper, over.observed, *(result.measured.over_time.predicted for result in results)]
    y = y_axis("Risk of the event", form=PERCENT, domain=[0, extreme(shown_risks, np.max, 1.0)], nice=True)
    seen = table(x=over.times, y=over.observed, low=over.observed_lower, high=over.observed_upper)
    layers = [band(seen, x, y, "observed", step=True, opacity=0.12), line(seen, x, y, "observed", step=True)]
    for result, ink in zip(results, SERIES, strict=False):
        curve = result.measured.over_time
        if np.isfinite(curve.predicted).any():
            rows = table(x=curve.times, y=curve.predicted, seen=curve.observed)
            tips = [tip("x", "time", ".3~g"), tip("y", "predicted", TIP_PERCENT), tip("seen", "observed", TIP_PERCENT)]
            layers += [line(rows, x, y, ink), hover(rows, x, y, tips, ink)]
    layers += [] if horizon is None else [vertical(horizon, x)]
    return chart(layers, height=300), _risk_in_words(results, horizon)


def _risk_in_words(results: Results, horizon: float | None) -> str:
    text = "Line chart of the observed and the mean predicted risk over time."
    if horizon is None:
        return text
    for name, result in zip(names(results), results, strict=True):
        mean, seen = find(result, "mean_risk", horizon), find(result, "observed_risk", horizon)
        if mean and seen:
            at = time_in_words(horizon, result.time_unit)
            text += f" At {at} {name} predicts {shown(mean)} on average, and {shown(seen)} is observed."
    return text


def calibration(results: Results, horizon: float, group: str | None = None) -> tuple[Spec, str]:
    """Draw the smooth curve with its band, the risk groups with their intervals, and the diagonal."""
    curves = [same(result.measured.calibration, horizon, group) for result in results]
    if not any(curves):
        return empty(), NOT_HERE
    top = risk_limit([curve for curve in curves if curve is not None])
    x = x_axis("Predicted risk", domain=[0, top], form=PERCENT)
    y = y_axis("Observed risk", domain=[0, top], form=PERCENT)
    layers = [line(table(x=[0.0, top], y=[0.0, top]), x, y, "reference", dashed=True)]
    words = f"Calibration curve at {time_in_words(horizon, results[0].time_unit)}{_of(group)}."
    for result, curve, ink, name in zip(results, curves, SERIES, names(results), strict=False):
        if curve is None:
            continue
        layers += _calibration_layers(curve, x, y, ink)
        found = [find(result, metric, horizon, group) for metric in ("ici", "emax")]
        if found[0] and found[1]:
            words += (
                f" {name}: predicted and observed risk differ by {shown(found[0])} on average and by {shown(found[1])}"
                " at most."
            )
    return chart(layers, height=360), words


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


def _of(group: str | None) -> str:
    return "" if group is None else f" in the group {group}"


def risk_limit(curves: Sequence[CalibrationCurve]) -> float:
    """Where the axes of risk end: the next tenth beyond what is drawn."""
    ends = [np.concatenate([c.predicted, c.observed, c.upper, c.point_predicted, c.point_upper]) for c in curves]
    largest = extreme(ends, np.max, 1.0)
    return min(1.0, max(0.1, math.ceil(largest * 10 - 1e-9) / 10))


def extreme(parts: Sequence[Vector], of: Callable[[Vector], float], otherwise: float) -> float:
    """Give the largest or smallest of all finite numbers."""
    numbers = np.concatenate([np.zeros(0), *parts])
    finite = numbers[np.isfinite(numbers)]
    return float(of(finite)) if finite.size else otherwise


def risk_histogram(results: Results, horizon: float, group: str | None = None) -> tuple[Spec, str]:
    """Draw how many rows have each predicted risk, on the axis of the curve above it."""
    curves = [same(result.measured.calibration, horizon, group) for result in results]
    if not any(curves):
        return empty(), NOT_HERE
    top = risk_limit([curve for curve in curves if curve is not None])
    x = x_axis("", domain=[0, top])
    x["axis"] = {"title": None, "labels": False, "ticks": False, "grid": False}
    y = y_axis("Rows", ticks=2, form=",d")
    layers = []
    for curve, ink in zip(curves, SERIES, strict=False):
        if curve is None:
            continue
        rows = table(x=curve.risk_edges[:-1], x2=np.minimum(curve.risk_edges[1:], top), y=curve.risk_counts)
        rows = [row for row in rows if row["x"] < top]
        tips = [tip("x", "risk from", TIP_PERCENT), tip("x2", "to", TIP_PERCENT), tip("y", "rows", ",")]
        layers.append(bars(rows, x, y, ink, tips, opacity=0.55 if len(results) == 1 else 0.4))
    return chart(layers, height=64), "Histogram of the predicted risks, beneath the calibration curve."


def pit(results: Results, method: str, group: str | None = None) -> tuple[Spec, str]:
    """Draw the histogram of F at the own times, with the range in which a perfect model stays."""
    found = [_pit_of(result, method, group) for result in results]
    first = next((one for one in found if one is not None), None)
    if first is None:
        return empty(), "Not measured."
    top = 1.1 * extreme([part for one in found if one is not None for part in (one.mass, one.upper)], np.max, 1.0)
    x = x_axis("F at the own time", domain=[0, 1], form=".1f")
    y = y_axis("Share of the rows", domain=[0, top], form=PERCENT)
    flat = table(x=first.edges[:-1], x2=first.edges[1:], low=first.lower, high=first.upper, y=np.diff(first.edges))
    layers = []
    here = [(one, ink) for one, ink in zip(found, SERIES, strict=False) if one is not None]
    for k, (one, ink) in enumerate(here):
        width = np.diff(one.edges)
        gap, part = 0.06 * width, 0.88 * width / len(here)
        left = one.edges[:-1] + gap + k * part
        rows = table(x=left, x2=left + part, y=one.mass, start=one.edges[:-1], end=one.edges[1:])
        tips = [tip("start", "F from", ".2f"), tip("end", "to", ".2f"), tip("y", "share", TIP_PERCENT)]
        layers.append(bars(rows, x, y, ink, tips, opacity=0.8))
    layers += _flat_band(flat, x, y)
    return chart(layers, height=260), f"Histogram of F at the own times{_of(group)}; a perfect model is flat."


def _flat_band(rows: list[Spec], x: Spec, y: Spec) -> list[Spec]:
    """Draw the range of a perfect model over the bars: two edges and a light ground, so that the bars stay in sight."""
    layers = []
    for field, dashed in (("low", [2, 2]), ("y", [5, 4]), ("high", [2, 2])):
        mark = {"type": "rule", "strokeDash": dashed, "strokeWidth": 1.4, "aria": False, "color": "var(--ink)"}
        encoding = {"x": x, "x2": {"field": "x2"}, "y": {**y, "field": field}}
        layers.append({"data": {"values": rows}, "mark": mark, "encoding": encoding})
    return layers


def _pit_of(result: AuditResult, method: str, group: str | None) -> PitHistogram | None:
    found = (one for one in result.measured.pit if one.method == method and one.group == group)
    return next(found, None)


def pp(results: Results) -> tuple[Spec, str]:
    """Draw the distribution of F at the own times against the diagonal."""
    x, y = (make(title, domain=[0, 1], form=".1f") for make, title in ((x_axis, "Predicted"), (y_axis, "Observed")))
    layers = [line(table(x=[0.0, 1.0], y=[0.0, 1.0]), x, y, "reference", dashed=True)]
    for result, ink in zip(results, SERIES, strict=False):
        curve = result.measured.pp
        if curve is None:
            continue
        rows = table(x=curve.predicted, y=curve.observed, low=curve.lower, high=curve.upper)
        tips = [tip("x", "F up to"), tip("y", "share of rows"), tip("low", "from"), tip("high", "to")]
        layers += [band(rows, x, y, ink), line(rows, x, y, ink), hover(rows, x, y, tips, ink)]
    return chart(layers, height=260), "Probability-probability plot: the share of rows with F up to each value."
