"""The frontier: D-calibration against what is paid for it, one point per model that can be picked."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from xcal.show.charts import Axis, Data, Label, Line, Mark, Picture, Points, Ring, Rule, Segments
from xcal.show.render import set_log_ticks

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
    """Set the scales of axes of matplotlib that hold the points already, and draw the floor."""
    if floor is not None:
        ax.axvline(floor, **_FLOOR)
    ax.set_xscale("log")
    set_log_ticks(ax.xaxis)
    if of == "dcal_within":
        ax.set_yscale("log")
        set_log_ticks(ax.yaxis)
    ax.spines[["top", "right"]].set_visible(False)


# --- The frontier: D-calibration against what is paid for it, one point per model that can be picked.


_HEIGHT = 270

# Room for points and labels on a phone, and of three pictures side by side on a desk: labels are placed for it.
_WIDTH = 240
_LETTER, _LINE = 7.0, 13.0

# Where a label may stand: its shift from the point and how it is aligned; tried in this order.
_PLACES: tuple[tuple[float, float, Literal["left", "center", "right"]], ...] = (
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
) -> Picture:
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
    shown = [one for _, one in kept]
    across, up = _ends(shown, floor), _span([value for one in shown for value in _values(one)], least)
    trained, mapped = (_columns([one for one in kept if one[1].recalibrated == flag]) for flag in (False, True))
    tips = (("name", "", ""), ("x", "D-calibration", ".3g"), ("y", short, form))
    marks = [Rule(x=floor, dash=(2, 3)), Line(trained, "model", order="pick", opacity=0.35), *_spread(shown)]
    marks.append(Ring(_columns(kept)))
    if mapped["x"]:
        marks.append(Points(mapped, "second", tips, size=95, shape="square", outline="card"))
    marks.append(Points(trained, "model", tips, size=95, outline="card"))
    marks += _labels(kept, across, up)
    x = Axis(horizontal_label(), across, log=True)
    return Picture(x, Axis("", up, form), tuple(marks), height=_HEIGHT, picked=picked)


def _columns(kept: Sequence[tuple[int, FrontierPoint]]) -> Data:
    return {
        "x": [one.dcal for _, one in kept],
        "y": [one.value for _, one in kept],
        "name": [one.name for _, one in kept],
        "pick": [k for k, _ in kept],
    }


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


def _spread(points: Sequence[FrontierPoint]) -> list[Mark]:
    """Draw each network alone: a small dot, tied to the model that it is a part of."""
    ends = [
        (*seed, one.dcal, one.value) for one in points for seed in one.alone if seed[0] > 0 and math.isfinite(seed[1])
    ]
    if not ends:
        return []
    alone = dict(zip(("x", "y", "x2", "y2"), zip(*ends, strict=True), strict=True))
    ties = Segments(alone, "model", x2="x2", y2="y2", width=1, opacity=0.28)
    return [ties, Points(alone, "model", size=16, opacity=0.5)]


def _labels(
    kept: Sequence[tuple[int, FrontierPoint]], across: tuple[float, float], up: tuple[float, float]
) -> list[Label]:
    """Write labels where they cover no point and no other label; a point without such a place is named on hover."""
    centres = [_pixel(one.dcal, one.value, across, up) for _, one in kept]
    seeds = [_pixel(*seed, across, up) for _, one in kept for seed in one.alone if seed[0] > 0]
    taken = [(a - 6, b - 6, a + 6, b + 6) for a, b in centres] + [(a - 2, b - 2, a + 2, b + 2) for a, b in seeds]
    labels = []
    labelled = [(own, k, one) for own, (k, one) in enumerate(kept) if one.label]
    for own, k, one in sorted(labelled, key=lambda item: not item[2].chosen):
        places = [(place, _box(centres[own], *place, one.label)) for place in _PLACES]
        others = [box for index, box in enumerate(taken) if index != own]
        free = [found for found in places if _inside(found[1]) and not any(_overlap(found[1], box) for box in others)]
        if not free and one.chosen:
            free = places
        if free:
            (dx, dy, align), box = free[0]
            taken.append(box)
            ink = "second" if one.recalibrated else "quiet"
            labels.append(Label(one.label, one.dcal, one.value, ink, (dx, dy), align, k))
    return labels


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
