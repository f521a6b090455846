"""Charts as Vega-Lite specifications: colours, numbers, marks, and the pictures of calibration."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal.metrics.calibration_curve import CalibrationCurve
from xcal.metrics.inputs import Form, Integers, Vector
from xcal.metrics.pit import PitHistogram, PPCurve

# --- Colours and the look of charts, which name colours as CSS variables: dark, light and print need no redraw.


# Name: (light, dark). Okabe and Ito's palette for what must be told apart, greys for the rest.
COLOURS = {
    "page": ("#f4f5f7", "#12151a"),
    "card": ("#ffffff", "#1b2027"),
    "ink": ("#1a1f26", "#e8ebef"),
    "quiet": ("#57606c", "#a3adb9"),
    "line": ("#dde1e6", "#323a45"),
    "grid": ("#eceef1", "#29303a"),
    "model": ("#0072b2", "#56b4e9"),
    "second": ("#d55e00", "#ff9d52"),
    "observed": ("#1a1f26", "#e8ebef"),
    "reference": ("#8a929c", "#7f8996"),
    "with_event": ("#d55e00", "#ff9d52"),
    "without_event": ("#009e73", "#3fd0a4"),
    "censored": ("#8a929c", "#7f8996"),
    "good": ("#00795a", "#3fd0a4"),
    "good_ground": ("#e5f4ef", "#12302a"),
    "caution": ("#8a5a00", "#f0bf4c"),
    "caution_ground": ("#fdf3dc", "#332a14"),
    "bad": ("#b3261e", "#ff8f86"),
    "bad_ground": ("#fcebe9", "#3a1d1c"),
    "unknown": ("#57606c", "#a3adb9"),
    "unknown_ground": ("#eceef1", "#252c35"),
    "focus": ("#0072b2", "#56b4e9"),
}


FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


def colour(name: str) -> str:
    """Return the CSS variable of a colour."""
    return f"var(--{name.replace('_', '-')})"


def colour_rules() -> str:
    """Write the variables: light by default, dark as the reader's system or the page's button says, light in print."""
    light, dark = ("".join(f"--{name.replace('_', '-')}:{pair[k]};" for name, pair in COLOURS.items()) for k in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n"
        f"@media print{{:root,:root[data-theme=dark],:root:not([data-theme=light]){{color-scheme:light;{light}}}}}\n"
    )


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


# --- How numbers and times are written on pages.


def written(value: float, form: Form) -> str:
    """Write one number.

    Examples
    --------
    >>> written(0.98712, "ratio"), written(0.24719, "percent"), written(0.00004, "p"), written(0.000432, "small")
    ('0.99', '24.7%', '< 0.001', '0.00043')
    """
    if math.isnan(value):
        return "–"
    if form == "percent":
        return f"{value:.1%}"
    if form == "p":
        return "< 0.001" if value < 0.001 else f"{value:.3f}"
    if form == "small":
        return f"{value:.2g}"
    return f"{value:.2f}" if form == "ratio" else f"{value:.3f}"


def p_in_words(p_value: float) -> str:
    """Write a p-value in a sentence.

    Examples
    --------
    >>> p_in_words(0.0312), p_in_words(1e-9)
    ('p = 0.031', 'p < 0.0001')
    """
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"


def time_in_words(time: float, unit: str) -> str:
    """Write a time with its unit, if that is known.

    Examples
    --------
    >>> time_in_words(60.0, "months"), time_in_words(1.0, "years"), time_in_words(1.5, "")
    ('60 months', '1 year', 'time 1.5')
    """
    if not unit:
        return f"time {time:g}"
    return f"{time:g} {unit[:-1] if time == 1 and unit.endswith('s') else unit}"


def time_title(unit: str) -> str:
    """Title of a time axis."""
    return f"Time ({unit})" if unit else "Time"


# --- Pieces of Vega-Lite specifications that the charts of a report share.
# Names that users gave reach the specifications as data only, never as names of fields or in expressions.


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


# --- Pictures of calibration: each takes what was measured of one or more models, with the colour of each.


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


def heights(values: Vector | Integers, edges: Vector, base: float) -> Vector:
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
