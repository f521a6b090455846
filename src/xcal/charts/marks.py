"""Pieces of Vega-Lite specifications that the charts of a report share.

Names that users gave reach the specifications as data only, never as names of fields or in expressions.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal.pages.theme import colour

Spec = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
# Width that the labels of a vertical axis take, so that pictures above each other line up.
_LABELS_WIDE = 42
SERIES = ("model", "second")


def table(**columns: npt.ArrayLike | Sequence[Any]) -> list[Spec]:
    """Rows of data from columns; numbers keep six digits, more than any picture can show."""
    lists = [[_short(value) for value in np.asarray(column).tolist()] for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*lists, strict=True)]


def _short(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) and math.isfinite(value) else value


def chart(layers: Sequence[Spec], *, height: int | Spec, **more: Any) -> Spec:
    """Put layers on top of each other; rows that several of them show are written once."""
    datasets: dict[str, list[Spec]] = {}
    named: dict[int, str] = {}
    drawn = []
    for layer in layers:
        if "data" in layer:
            rows = layer["data"]["values"]
            name = named.setdefault(id(rows), f"rows{len(named)}")
            datasets[name] = rows
            layer = {**layer, "data": {"name": name}}  # noqa: PLW2901 - the layer with its rows taken out
        drawn.append(layer)
    return {"$schema": SCHEMA, "height": height, "datasets": datasets, "layer": drawn, **more}


def x_axis(title: str, *, domain: Sequence[float] | None = None, form: str = "", **more: Any) -> Spec:
    """Horizontal position by the field x."""
    axis = {"title": title, "grid": False, "tickCount": 6, **({"format": form} if form else {})}
    scale = {"nice": False, **({"domain": list(domain)} if domain else {})}
    return {"field": "x", "type": "quantitative", "axis": axis, "scale": scale, **more}


def y_axis(
    title: str, *, domain: Sequence[float] | None = None, form: str = "", ticks: int = 5, nice: bool = False
) -> Spec:
    """Vertical position by the field y; `nice` ends the axis at the next round number."""
    axis = {
        "title": title,
        "tickCount": ticks,
        "minExtent": _LABELS_WIDE,
        "maxExtent": _LABELS_WIDE,
        **({"format": form} if form else {}),
    }
    scale = {"nice": nice or domain is None, **({"domain": list(domain)} if domain else {})}
    return {"field": "y", "type": "quantitative", "axis": axis, "scale": scale}


def tip(field: str, title: str, form: str = ".3f") -> Spec:
    """One line of a tooltip."""
    kind = "quantitative" if form else "nominal"
    return {"field": field, "type": kind, "title": title, **({"format": form} if form else {})}


def line(rows: list[Spec], x: Spec, y: Spec, ink: str, *, dashed: bool = False, step: bool = False) -> Spec:
    """Draw a line."""
    mark = {"type": "line", "color": colour(ink), "strokeWidth": 1.5 if dashed else 2.5, "clip": True, "aria": False}
    if dashed:
        mark["strokeDash"] = [5, 4]
    if step:
        mark["interpolate"] = "step-after"
    return {"data": {"values": rows}, "mark": mark, "encoding": {"x": x, "y": y}}


def band(rows: list[Spec], x: Spec, y: Spec, ink: str, *, step: bool = False, opacity: float = 0.16) -> Spec:
    """Fill the band between the fields low and high."""
    mark = {"type": "area", "color": colour(ink), "opacity": opacity, "clip": True, "aria": False}
    if step:
        mark["interpolate"] = "step-after"
    encoding = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}}
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding}


def hover(rows: list[Spec], x: Spec, y: Spec, tips: Sequence[Spec], ink: str) -> Spec:
    """Draw points that are seen only under the pointer, with a tooltip."""
    mark = {"type": "point", "filled": True, "size": 90, "color": colour(ink), "aria": False, "clip": True}
    param = {
        "name": f"near_{ink}",
        "select": {"type": "point", "on": "pointerover", "nearest": False, "clear": "pointerout"},
    }
    seen = {"condition": {"param": param["name"], "empty": False, "value": 0.9}, "value": 0}
    encoding = {"x": x, "y": y, "tooltip": list(tips), "opacity": seen}
    return {"data": {"values": rows}, "mark": mark, "params": [param], "encoding": encoding}


def vertical(at: float, x: Spec) -> Spec:
    """Mark a place on the horizontal axis, such as the horizon."""
    mark = {"type": "rule", "color": colour("reference"), "strokeDash": [2, 3], "strokeWidth": 1.5, "aria": False}
    return {"data": {"values": [{"x": at}]}, "mark": mark, "encoding": {"x": x}}


def horizontal(at: float, y: Spec, *, dashed: bool = True) -> Spec:
    """Mark a place on the vertical axis."""
    mark: Spec = {"type": "rule", "color": colour("reference"), "strokeWidth": 1.5, "aria": False}
    if dashed:
        mark["strokeDash"] = [5, 4]
    return {"data": {"values": [{"y": at}]}, "mark": mark, "encoding": {"y": y}}


def bars(rows: list[Spec], x: Spec, y: Spec, ink: str, tips: Sequence[Spec], *, opacity: float = 0.85) -> Spec:
    """Draw bars from x to x2, from zero to y."""
    mark = {"type": "rect", "color": colour(ink), "opacity": opacity, "aria": False}
    encoding = {"x": x, "x2": {"field": "x2"}, "y": y, "y2": {"datum": 0}, "tooltip": list(tips)}
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding}


def dots(rows: list[Spec], *, title: str, reference: float | None, form: str, second: bool) -> Spec:
    """Draw values with their intervals beside each other, one line of the picture for each `name`, in the given order.

    The rows have name, x, low, high and series (0 or 1); with `second` two series share a line.
    """
    ends = [row[key] for row in rows for key in ("x", "low", "high") if _finite(row[key])]
    ends += [] if reference is None else [reference]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    # Values that hardly differ must not look far apart.
    room = max(0.06 * (high - low), 0.01)
    axis = {"title": title, "grid": True, "tickCount": 5, "format": form}
    scale = {"domain": [low - room, high + room], "nice": False, "zero": False}
    x = {"field": "x", "type": "quantitative", "axis": axis, "scale": scale}
    names = {"title": None, "labelLimit": 150, "domain": False, "ticks": False, "grid": False}
    y: Spec = {"field": "name", "type": "nominal", "sort": None, "axis": names}
    ink: Spec = {"value": colour(SERIES[0])}
    offset: Spec = {}
    if second:
        numbers = {"field": "series", "type": "ordinal"}
        offset = {"yOffset": {**numbers, "scale": {"paddingOuter": 0.6}}}
        ink = {**numbers, "scale": {"domain": [0, 1], "range": [colour(name) for name in SERIES]}, "legend": None}
    tips = [tip("name", "", ""), tip("x", title, form), tip("low", "from", form), tip("high", "to", form)]
    shared = {"y": y, "color": ink, **offset}
    layers: list[Spec] = [
        {
            "mark": {"type": "rule", "strokeWidth": 2, "aria": False},
            "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, **shared},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
            "encoding": {"x": x, "tooltip": tips, **shared},
        },
    ]
    if reference is not None:
        layers.insert(0, vertical(reference, x))
    if not second:
        text = {"type": "text", "dy": -11, "fontSize": 11, "color": colour("quiet"), "aria": False}
        layers.append({"mark": text, "encoding": {"x": x, "y": y, "text": tip("x", "", form)}})
    lines = max(1, len({row["name"] for row in rows}))
    return chart(layers, height=36 * lines, data={"values": rows})


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
