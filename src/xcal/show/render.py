"""The two backends of a picture: a Vega-Lite specification for a page, the axes of matplotlib for a paper.

Each kind of mark has one function in either half. Names that users gave reach a specification as data only, never as
names of fields or in expressions.
"""

import math
import textwrap
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy as np

from xcal.show.charts import (
    COLOURS,
    FONT,
    SERIES,
    Axis,
    Band,
    Bars,
    Data,
    Drawing,
    Forest,
    Label,
    Line,
    Mark,
    Points,
    Ring,
    Rule,
    Segments,
    Tip,
    Words,
    colour,
)

# --- For a page: Vega-Lite.

Spec = dict[str, Any]
SIGNAL = "shown"
"""The parameter that says which point is picked."""

# Width that the labels of a vertical axis take, so that pictures above each other line up.
_LABELS_WIDE = 42


def chart_config() -> dict[str, Any]:
    """Vega-Lite configuration that all charts share."""
    ink, quiet = colour("ink"), colour("quiet")
    axis = {
        "labelColor": quiet,
        "titleColor": quiet,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 500,
        "titlePadding": 8,
        "gridColor": colour("grid"),
        "domainColor": colour("line"),
        "tickColor": colour("line"),
        "tickSize": 4,
        "labelPadding": 5,
    }
    return {
        "font": FONT,
        "background": None,
        "view": {"stroke": None},
        "axis": axis,
        "text": {"color": ink, "font": FONT, "fontSize": 12},
        "title": {"color": ink, "font": FONT},
        "header": {"labelColor": quiet, "titleColor": quiet},
        "legend": {"disable": True},
    }


def to_vega(drawing: Drawing) -> Spec:
    """Return the Vega-Lite specification; it has no width, as it takes that of the page."""
    if isinstance(drawing, Words):
        mark = {"type": "text", "text": drawing.text, "fontSize": 14}
        return {"height": 120, "layer": [{"mark": mark}], "data": {"values": [{}]}}
    if isinstance(drawing, Forest):
        return _forest_layers(drawing)
    axes = {"x": _vega_x(drawing.x), "y": _vega_y(drawing.y)}
    layers = [layer for mark in drawing.marks for layer in _layers(mark, axes)]
    # Rows that several layers show are written once.
    names: dict[int, str] = {}
    datasets = {}
    for layer in layers:
        data = layer["data"]
        name = names.setdefault(id(data), f"rows{len(names)}")
        if name not in datasets:
            datasets[name] = _table(data)
        layer["data"] = {"name": name}
    picked = {} if drawing.picked is None else {"params": [{"name": SIGNAL, "value": drawing.picked}]}
    return {"height": drawing.height, "datasets": datasets, "layer": layers, **picked}


def _table(data: Data) -> list[Spec]:
    """Rows of data from columns; numbers keep six digits, more than any picture can show."""
    lists = [[_short(value) for value in np.asarray(column).tolist()] for column in data.values()]
    return [dict(zip(data, row, strict=True)) for row in zip(*lists, strict=True)]


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def _vega_x(axis: Axis) -> Spec:
    ticks: Spec = {"title": axis.title, "grid": False, "tickCount": 6, **({"format": axis.form} if axis.form else {})}
    scale: Spec = {"nice": axis.nice, **({"domain": list(axis.domain)} if axis.domain else {})}
    if axis.bare:
        ticks = {"title": None, "labels": False, "ticks": False, "grid": False}
    if axis.log and axis.domain:
        ticks |= {"values": log_ticks(*axis.domain), "format": "~g", "labelOverlap": True}
        scale["type"] = "log"
    return {"field": "x", "type": "quantitative", "axis": ticks, "scale": scale}


def _vega_y(axis: Axis) -> Spec:
    wide = {"minExtent": _LABELS_WIDE, "maxExtent": _LABELS_WIDE}
    form = {"format": axis.form} if axis.form else {}
    ticks = {"title": axis.title or None, "tickCount": axis.ticks or 5, **wide, **form}
    scale = {"nice": axis.nice or axis.domain is None, **({"domain": list(axis.domain)} if axis.domain else {})}
    return {"field": "y", "type": "quantitative", "axis": ticks, "scale": scale}


def _tip(field: str, title: str, form: str) -> Spec:
    kind = "quantitative" if form else "nominal"
    return {"field": field, "type": kind, "title": title, **({"format": form} if form else {})}


def _tooltip(tips: Sequence[Tip]) -> Spec:
    return {"tooltip": [_tip(*tip) for tip in tips]} if tips else {}


def _dash(dash: Sequence[int]) -> Spec:
    return {"strokeDash": list(dash)} if dash else {}


@singledispatch
def _layers(mark: Mark, axes: Spec) -> list[Spec]:
    """Return the layers of one mark, with its columns as their data."""
    raise NotImplementedError(type(mark))


@_layers.register
def _(mark: Line, axes: Spec) -> list[Spec]:
    thin = mark.dashed or mark.opacity < 1
    look: Spec = {"type": "line", "color": colour(mark.ink), "strokeWidth": 1.5 if thin else 2.5}
    look |= {"clip": True, "aria": False, **({"opacity": mark.opacity} if mark.opacity < 1 else {})}
    look |= {**_dash((5, 4) if mark.dashed else ()), **({"interpolate": "step-after"} if mark.step else {})}
    order = {"order": {"field": mark.order, "type": "quantitative"}} if mark.order else {}
    drawn = {"data": mark.data, "mark": look, "encoding": {**axes, **order}}
    if not mark.tips:
        return [drawn]
    # Points that are seen only under the pointer.
    param = f"near_{mark.ink}"
    nearest = {"type": "point", "on": "pointerover", "nearest": False, "clear": "pointerout"}
    seen = {"condition": {"param": param, "empty": False, "value": 0.9}, "value": 0}
    point = {"type": "point", "filled": True, "size": 90, "color": colour(mark.ink), "aria": False, "clip": True}
    hover = {
        "data": mark.data,
        "mark": point,
        "params": [{"name": param, "select": nearest}],
        "encoding": {**axes, **_tooltip(mark.tips), "opacity": seen},
    }
    return [drawn, hover]


@_layers.register
def _(mark: Band, axes: Spec) -> list[Spec]:
    look = {"type": "area", "color": colour(mark.ink), "opacity": mark.opacity, "clip": True, "aria": False}
    look |= {"interpolate": "step-after"} if mark.step else {}
    ends = {"y": {**axes["y"], "field": "low"}, "y2": {"field": "high"}}
    return [{"data": mark.data, "mark": look, "encoding": {"x": axes["x"], **ends}}]


@_layers.register
def _(mark: Bars, axes: Spec) -> list[Spec]:
    look = {"type": "rect", "color": colour(mark.ink), "opacity": mark.opacity, "aria": False}
    ends = {"x2": {"field": "x2"}, "y2": {"datum": 0}}
    return [{"data": mark.data, "mark": look, "encoding": {**axes, **ends, **_tooltip(mark.tips)}}]


@_layers.register
def _(mark: Points, axes: Spec) -> list[Spec]:
    look = {"type": "point", "filled": True, "shape": mark.shape, "size": mark.size, "opacity": mark.opacity}
    look |= {"color": colour("card" if mark.hollow else mark.ink), "aria": bool(mark.tips)}
    outline = mark.ink if mark.hollow else mark.outline
    look |= {"stroke": colour(outline), "strokeWidth": 2.5 if mark.hollow else 1.2} if outline else {}
    look |= {"cursor": "pointer"} if "pick" in mark.data else {}
    return [{"data": mark.data, "mark": look, "encoding": {**axes, **_tooltip(mark.tips)}}]


@_layers.register
def _(mark: Segments, axes: Spec) -> list[Spec]:
    look = {"type": "rule", "color": colour(mark.ink), "strokeWidth": mark.width, "opacity": mark.opacity}
    look |= {"aria": False, **_dash(mark.dash)}
    start = {"x": {**axes["x"], "field": mark.x}, "y": {**axes["y"], "field": mark.y}}
    end = {name: {"field": field} for name, field in (("x2", mark.x2), ("y2", mark.y2)) if field}
    return [{"data": mark.data, "mark": look, "encoding": {**start, **end}}]


@_layers.register
def _(mark: Rule, axes: Spec) -> list[Spec]:
    look = {"type": "rule", "color": colour("reference"), "strokeWidth": 1.5, "aria": False, **_dash(mark.dash)}
    name, at = ("x", mark.x) if mark.y is None else ("y", mark.y)
    return [{"data": {name: [at]}, "mark": look, "encoding": {name: axes[name]}}]


@_layers.register
def _(mark: Ring, axes: Spec) -> list[Spec]:
    # The rings of the other points cannot be seen, but be hit by a finger.
    look = {"type": "point", "filled": True, "fill": "transparent", "size": 330, "strokeWidth": 2.5}
    look |= {"aria": False, "cursor": "pointer"}
    picked = {"condition": {"test": f"datum.pick === {SIGNAL}", "value": colour("ink")}, "value": "transparent"}
    return [{"data": mark.data, "mark": look, "encoding": {**axes, "stroke": picked}}]


@_layers.register
def _(mark: Label, axes: Spec) -> list[Spec]:
    dx, dy = mark.shift
    look = {"type": "text", "dx": dx, "dy": dy, "align": mark.align, "baseline": "middle", "fontSize": 12}
    look |= {"color": colour(mark.ink), "aria": False, "cursor": "pointer"}
    data = {"x": [mark.x], "y": [mark.y], "label": [mark.text], "pick": [mark.pick]}
    return [{"data": data, "mark": look, "encoding": {**axes, "text": {"field": "label", "type": "nominal"}}}]


def _forest_layers(forest: Forest) -> Spec:
    rows = [
        {"name": row.name, "x": row.value, "low": row.low, "high": row.high, "series": row.series}
        for row in forest.rows
    ]
    axis = {"title": forest.title, "grid": True, "tickCount": 5, "format": forest.form}
    scale = {"domain": list(_forest_ends(forest)), "nice": False, "zero": False}
    x = {"field": "x", "type": "quantitative", "axis": axis, "scale": scale}
    names = {"title": None, "labelLimit": 150, "domain": False, "ticks": False, "grid": False}
    y: Spec = {"field": "name", "type": "nominal", "sort": None, "axis": names}
    shared: Spec = {"y": y, "color": {"value": colour(SERIES[0])}}
    if forest.second:
        numbers = {"field": "series", "type": "ordinal"}
        inks = {"domain": [0, 1], "range": [colour(name) for name in SERIES]}
        shared = {"y": y, "color": {**numbers, "scale": inks, "legend": None}}
        shared["yOffset"] = {**numbers, "scale": {"paddingOuter": 0.6}}
    form = forest.form
    tips = (("name", "", ""), ("x", forest.title, form), ("low", "from", form), ("high", "to", form))
    whisker, point = {"type": "rule", "strokeWidth": 2, "aria": False}, {"type": "point", "filled": True, "size": 90}
    layers: list[Spec] = [
        {"mark": whisker, "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, **shared}},
        {"mark": {**point, "opacity": 1}, "encoding": {"x": x, **_tooltip(tips), **shared}},
    ]
    if forest.reference is not None:
        (rule,) = _layers(Rule(x=forest.reference, dash=(2, 3)), {"x": x})
        layers.insert(0, {**rule, "data": {"values": [{"x": forest.reference}]}})
    if not forest.second:
        text = {"type": "text", "dy": -11, "fontSize": 11, "color": colour("quiet"), "aria": False}
        layers.append({"mark": text, "encoding": {"x": x, "y": y, "text": _tip("x", "", form)}})
    lines = max(1, len({row.name for row in forest.rows}))
    return {"height": 36 * lines, "layer": layers, "data": {"values": rows}}


def _forest_ends(forest: Forest) -> tuple[float, float]:
    """Return the ends of the axis: values that hardly differ must not look far apart."""
    ends = [end for row in forest.rows for end in (row.value, row.low, row.high) if math.isfinite(end)]
    ends += [] if forest.reference is None else [forest.reference]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    room = max(0.06 * (high - low), 0.01)
    return low - room, high + room


# --- For a paper: matplotlib.


def draw_on(ax: Any, drawing: Drawing) -> None:
    """Draw into axes of matplotlib."""
    if isinstance(drawing, Words):
        words = textwrap.fill(drawing.text, 36)
        place = {"ha": "center", "va": "center", "color": _ink("reference"), "transform": ax.transAxes}
        ax.text(0.5, 0.5, words, parse_math=False, **place)
        ax.set_axis_off()
        return
    ax.spines[["top", "right"]].set_visible(False)
    if isinstance(drawing, Forest):
        _draw_forest(ax, drawing)
        return
    for mark in drawing.marks:
        _draw(mark, ax)
    ax.set(xlabel=drawing.x.title, ylabel=drawing.y.title)
    if drawing.title:
        ax.set_title(drawing.title, fontsize=10, parse_math=False)
    if drawing.square:
        ax.set_aspect("equal")
    _finish(ax.xaxis, drawing.x, ax.set_xlim)
    _finish(ax.yaxis, drawing.y, ax.set_ylim)
    if any(getattr(mark, "label", "") for mark in drawing.marks):
        ax.legend(frameon=False, fontsize=9, loc="best")  # said, so that a slow machine is no warning


def _ink(name: str) -> str:
    return COLOURS[name][0]


def _style(dash: Sequence[int]) -> Any:
    return (0, tuple(dash)) if dash else "-"


def _finish(axis: Any, described: Axis, set_limits: Any) -> None:
    from matplotlib.ticker import PercentFormatter

    if described.domain is not None:
        low, high = described.domain
        set_limits(low, None if described.nice else high)
    if described.form.endswith("%"):
        axis.set_major_formatter(PercentFormatter(1.0))
    if described.log:
        axis._set_axes_scale("log")
        set_log_ticks(axis)


@singledispatch
def _draw(mark: Mark, ax: Any) -> None:
    """Draw one mark; what only a page can use is left out."""


@_draw.register
def _(mark: Line, ax: Any) -> None:
    drawstyle = "steps-post" if mark.step else "default"
    look = {"color": _ink(mark.ink), "alpha": mark.opacity, "label": mark.label or None, "drawstyle": drawstyle}
    ax.plot(mark.data["x"], mark.data["y"], lw=1.2 if mark.dashed else 2, ls="--" if mark.dashed else "-", **look)


@_draw.register
def _(mark: Band, ax: Any) -> None:
    look = {"step": "post" if mark.step else None, "color": _ink(mark.ink), "alpha": mark.opacity, "lw": 0}
    ax.fill_between(mark.data["x"], mark.data["low"], mark.data["high"], **look)


@_draw.register
def _(mark: Bars, ax: Any) -> None:
    left, right = mark.data["x"], mark.data["x2"]
    ax.bar(left, mark.data["y"], right - left, align="edge", color=_ink(mark.ink), alpha=mark.opacity, lw=0)


@_draw.register
def _(mark: Points, ax: Any) -> None:
    look = {"color": _ink(mark.ink), "alpha": mark.opacity, "ms": 5, "label": mark.label or None}
    look |= {"mfc": "white"} if mark.hollow else {}
    ax.plot(mark.data["x"], mark.data["y"], "s" if mark.shape == "square" else "o", **look)


@_draw.register
def _(mark: Segments, ax: Any) -> None:
    from matplotlib.collections import LineCollection

    ends = ((mark.x, mark.y), (mark.x2 or mark.x, mark.y2 or mark.y))
    pairs = np.stack([np.stack([mark.data[x], mark.data[y]], axis=1) for x, y in ends], axis=1)
    look = {"color": _ink(mark.ink), "lw": mark.width, "ls": _style(mark.dash), "alpha": mark.opacity}
    ax.add_collection(LineCollection(list(pairs), **look))
    ax.autoscale_view()


@_draw.register
def _(mark: Rule, ax: Any) -> None:
    look = {"color": _ink("reference"), "lw": 1.2, "ls": _style(mark.dash), "label": mark.label or None, "zorder": 0}
    if mark.y is None:
        ax.axvline(mark.x, **look)
    else:
        ax.axhline(mark.y, **look)


def _draw_forest(ax: Any, forest: Forest) -> None:
    if forest.reference is not None:
        _draw(Rule(x=forest.reference, dash=(2, 3)), ax)
    for place, row in enumerate(forest.rows):
        ax.plot([row.low, row.high], [place, place], color=_ink(SERIES[row.series]), lw=1.5)
        ax.plot(row.value, place, "o", color=_ink(SERIES[row.series]), ms=6)
    ax.set_yticks(range(len(forest.rows)), [row.name for row in forest.rows])
    for text in ax.get_yticklabels():
        text.set_parse_math(False)
    ax.set(ylim=(len(forest.rows) - 0.5, -0.5), xlim=_forest_ends(forest), xlabel=forest.title)


# --- Logarithmic axes.


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a log axis: 1, 2 and 5 of each decade where there are few decades, else the decades alone.

    Examples
    --------
    >>> log_ticks(0.0009, 0.012)
    [0.001, 0.002, 0.005, 0.01]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in _steps(low, high)]
    return [tick for tick in ticks if low <= tick <= high]


def _steps(low: float, high: float) -> tuple[int, ...]:
    return (1, 2, 5) if high < 50 * low else (1,)


def set_log_ticks(axis: Any) -> None:
    """Label an axis of matplotlib, which already holds its data, at the same ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=_steps(*axis.get_view_interval())))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short_text(value)))
    axis.set_minor_formatter(NullFormatter())


def _short_text(value: float) -> str:
    return f"{value:g}" if value >= 0.01 else f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")
