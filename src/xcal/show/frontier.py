"""The frontier: D-calibration against what is paid for it, one point per model that can be picked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xcal.show.charts import Spec, chart, colour, line, table, tip, vertical, x_axis, y_axis

# --- The axes that all pictures of a frontier share, so that a reader learns them once.
# D-calibration is on the horizontal axis, on a log scale, and left is better. What is paid for it (concordance, NLL)
# is on the vertical axis. A dashed line shows the floor, what a perfect model scores on average.


# What a frontier can show on its vertical axis: the name of the metric and its better direction.
VERTICAL = {
    "concordance": ("concordance", "up"),
    "nll": ("NLL", "down"),
    "dcal_within": ("D-cal within groups", "down"),
}


_FLOOR = {"color": "#888888", "linestyle": "--", "linewidth": 1.0, "zorder": 0, "label": "a perfect model (mean)"}


def horizontal_label(rows: str = "") -> str:
    """Label of the horizontal axis; `rows` names the rows, such as "validation rows"."""
    return f"D-calibration{f' on {rows}' if rows else ''} (left is better)"


def vertical_label(of: str, rows: str = "") -> str:
    """Label of the vertical axis."""
    name, direction = VERTICAL[of]
    return f"{name}{f' on {rows}' if rows else ''} ({direction} is better)"


def finish_frontier(ax: Any, *, of: str, floor: float | None) -> None:
    """Set the scales of axes that hold the points already, and draw the floor."""
    if floor is not None:
        ax.axvline(floor, **_FLOOR)
    ax.set_xscale("log")
    if of == "dcal_within":
        ax.set_yscale("log")
    for axis in (ax.xaxis, ax.yaxis) if of == "dcal_within" else (ax.xaxis,):
        _set_log_ticks(axis)
    ax.spines[["top", "right"]].set_visible(False)


def _set_log_ticks(axis: Any) -> None:
    """Label 1, 2 and 5 of each decade where there are few decades, else the decades alone."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    few = high < low * 50
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axis.set_minor_formatter(NullFormatter())


def _short(value: float) -> str:
    return f"{value:.2g}" if value >= 0.01 else f"{value:.1e}".replace(".0e", "e").replace("e-0", "e-")


# --- The frontier: D-calibration against what is paid for it, one point per model that can be picked.


# The parameter that says which point is picked.
SIGNAL = "shown"


_HEIGHT = 270


# Room for points and labels on a phone, and of three pictures side by side on a desk: labels are placed for it.
_WIDTH = 240


_LETTER, _LINE = 7.0, 13.0


# Where a label may stand: its shift from the point and how it is aligned; tried in this order.
_PLACES = (
    (0, -17, "center"),
    (0, 17, "center"),
    (13, 0, "left"),
    (-13, 0, "right"),
    (10, -13, "left"),
    (-10, -13, "right"),
    (10, 13, "left"),
    (-10, 13, "right"),
)


@dataclass(frozen=True)
class FrontierPoint:
    """One model: its name, its label on the picture, where it stands, and where its networks stand alone.

    That which was `chosen` is labelled whatever is around it.
    """

    name: str
    label: str
    dcal: float
    value: float
    recalibrated: bool = False
    alone: tuple[tuple[float, float], ...] = ()
    chosen: bool = False


def frontier(
    points: Sequence[FrontierPoint], *, short: str, form: str, least: float, floor: float, picked: int
) -> Spec:
    """Draw the points, a line through those as they were trained, their networks alone, and the floor.

    Parameters
    ----------
    points
        In the order of the selector that a click sets.
    short, form
        The metric on the vertical axis, and how its numbers are written. The axis has no title: the picture has one.
    least : float
        The axis shows at least so much: values that hardly differ must not look far apart.
    floor : float
        What a perfect model scores on average.
    picked : int
        The point that is picked at first.
    """
    kept = [(k, one) for k, one in enumerate(points) if one.dcal > 0 and math.isfinite(one.value)]
    left, right = _ends([one for _, one in kept], floor)
    low, high = _span([value for _, one in kept for value in _values(one)], least)
    x = x_axis(horizontal_label(), domain=[left, right])
    x["scale"]["type"] = "log"
    x["axis"] = {**x["axis"], "values": log_ticks(left, right), "format": "~g", "labelOverlap": True}
    y = y_axis("", domain=[low, high], form=form)
    y["scale"]["zero"] = False
    y["axis"]["title"] = None
    rows = [{"x": one.dcal, "y": one.value, "name": one.name, "pick": k, "mapped": one.recalibrated} for k, one in kept]
    trained, mapped = ([row for row in rows if row["mapped"] == flag] for flag in (False, True))
    through = line(trained, x, y, "model")
    through["mark"] = {**through["mark"], "strokeWidth": 1.5, "opacity": 0.35}
    through["encoding"] = {**through["encoding"], "order": {"field": "pick", "type": "quantitative"}}
    tips = [tip("name", "", ""), tip("x", "D-calibration", ".3g"), tip("y", short, form)]
    layers = [vertical(floor, x), through, *_spread([one for _, one in kept], x, y), _ring(rows, x, y)]
    if mapped:
        layers.append(_dots(mapped, x, y, tips, "second", "square"))
    layers.append(_dots(trained, x, y, tips, "model", "circle"))
    layers += _labels(kept, x, y, (left, right), (low, high))
    return chart(layers, height=_HEIGHT, params=[{"name": SIGNAL, "value": picked}])


def log_ticks(low: float, high: float) -> list[float]:
    """Ticks of a log axis: 1, 2 and 5 of each decade where there are few decades, else the decades alone.

    Examples
    --------
    >>> log_ticks(0.0009, 0.012)
    [0.001, 0.002, 0.005, 0.01]
    """
    steps = (1, 2, 5) if high < 50 * low else (1,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{step}e{decade}") for decade in decades for step in steps]
    return [tick for tick in ticks if low <= tick <= high]


def _values(one: FrontierPoint) -> list[float]:
    return [one.value, *(value for _, value in one.alone if math.isfinite(value))]


def _ends(points: Sequence[FrontierPoint], floor: float) -> tuple[float, float]:
    shown = [dcal for one in points for dcal in (one.dcal, *(seed for seed, _ in one.alone)) if dcal > 0]
    shown += [floor] if floor > 0 else []
    low, high = (min(shown), max(shown)) if shown else (1e-3, 1e-2)
    room = max((high / low) ** 0.1, 1.25)
    return low / room, high * room


def _span(values: Sequence[float], least: float) -> tuple[float, float]:
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    room = max(0.14 * (high - low), (least - (high - low)) / 2)
    return low - room, high + room


def _spread(points: Sequence[FrontierPoint], x: Spec, y: Spec) -> list[Spec]:
    """Draw each network alone: a small dot, tied to the model that it is a part of."""
    ends = [(one, seed) for one in points for seed in one.alone if seed[0] > 0 and math.isfinite(seed[1])]
    if not ends:
        return []
    alone = table(
        x=[seed[0] for _, seed in ends],
        y=[seed[1] for _, seed in ends],
        x2=[one.dcal for one, _ in ends],
        y2=[one.value for one, _ in ends],
    )
    ink = {"color": colour("model"), "aria": False}
    encoding = {"x": x, "y": y}
    return [
        {
            "data": {"values": alone},
            "mark": {"type": "rule", "strokeWidth": 1, "opacity": 0.28, **ink},
            "encoding": {**encoding, "x2": {"field": "x2"}, "y2": {"field": "y2"}},
        },
        {
            "data": {"values": alone},
            "mark": {"type": "point", "filled": True, "size": 16, "opacity": 0.5, **ink},
            "encoding": encoding,
        },
    ]


def _ring(rows: list[Spec], x: Spec, y: Spec) -> Spec:
    """Draw a ring around the point that is picked; the others have one that cannot be seen, to be hit by a finger."""
    mark = {"type": "point", "filled": True, "fill": "transparent", "size": 330, "strokeWidth": 2.5, "aria": False}
    picked = {"condition": {"test": f"datum.pick === {SIGNAL}", "value": colour("ink")}, "value": "transparent"}
    return {
        "data": {"values": rows},
        "mark": {**mark, "cursor": "pointer"},
        "encoding": {"x": x, "y": y, "stroke": picked},
    }


def _dots(rows: list[Spec], x: Spec, y: Spec, tips: Sequence[Spec], ink: str, shape: str) -> Spec:
    mark = {"type": "point", "filled": True, "shape": shape, "size": 95, "opacity": 1, "color": colour(ink)}
    return {
        "data": {"values": rows},
        "mark": {**mark, "stroke": colour("card"), "strokeWidth": 1.2, "cursor": "pointer"},
        "encoding": {"x": x, "y": y, "tooltip": list(tips)},
    }


def _labels(
    kept: Sequence[tuple[int, FrontierPoint]], x: Spec, y: Spec, across: tuple[float, float], up: tuple[float, float]
) -> list[Spec]:
    """Write labels where they cover no point and no other label; a point without such a place is named on hover."""
    centres = [_pixel(one.dcal, one.value, across, up) for _, one in kept]
    seeds = [_pixel(*seed, across, up) for _, one in kept for seed in one.alone if seed[0] > 0]
    taken = [(a - 6, b - 6, a + 6, b + 6) for a, b in centres] + [(a - 2, b - 2, a + 2, b + 2) for a, b in seeds]
    layers: list[Spec] = []
    labelled = [(own, k, one) for own, (k, one) in enumerate(kept) if one.label]
    for own, k, one in sorted(labelled, key=lambda item: not item[2].chosen):
        places = [(place, _box(centres[own], *place, one.label)) for place in _PLACES]
        others = [box for index, box in enumerate(taken) if index != own]
        free = [found for found in places if _inside(found[1]) and not any(_overlap(found[1], box) for box in others)]
        if not free and one.chosen:
            free = places
        if free:
            place, box = free[0]
            taken.append(box)
            layers.append(_label(one, k, place, x, y))
    return layers


def _label(one: FrontierPoint, pick: int, place: tuple[float, float, str], x: Spec, y: Spec) -> Spec:
    dx, dy, align = place
    mark = {"type": "text", "dx": dx, "dy": dy, "align": align, "baseline": "middle", "fontSize": 12}
    ink = {"color": colour("second" if one.recalibrated else "quiet"), "aria": False, "cursor": "pointer"}
    return {
        "data": {"values": [{"x": one.dcal, "y": one.value, "label": one.label, "pick": pick}]},
        "mark": {**mark, **ink},
        "encoding": {"x": x, "y": y, "text": {"field": "label", "type": "nominal"}},
    }


def _inside(box: tuple[float, float, float, float]) -> bool:
    return box[0] >= 0 and box[2] <= _WIDTH and box[1] >= 0 and box[3] <= _HEIGHT


def _pixel(dcal: float, value: float, across: tuple[float, float], up: tuple[float, float]) -> tuple[float, float]:
    share = math.log(dcal / across[0]) / math.log(across[1] / across[0])
    return _WIDTH * share, _HEIGHT * (up[1] - value) / (up[1] - up[0])


def _box(centre: tuple[float, float], dx: float, dy: float, align: str, text: str) -> tuple[float, float, float, float]:
    wide = _LETTER * len(text)
    left = centre[0] + dx - {"left": 0.0, "center": 0.5, "right": 1.0}[align] * wide
    return left, centre[1] + dy - _LINE / 2, left + wide, centre[1] + dy + _LINE / 2


def _overlap(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
