"""What a report draws, without a library that draws it: colours, numbers, marks, calibration, the frontier.

A picture is described once, by the frozen classes of this module; `xcal.show.render` turns it into a Vega-Lite
specification for a page or draws it on the axes of matplotlib for a paper.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from xcal.calibration.significance import p_in_words as p_in_words  # noqa: PLC0414 - also offered here
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


# --- Marks and pictures.

SERIES = ("model", "second")
"""Colours of the models that share a picture."""
PERCENT, TIP_PERCENT = ".0%", ".1%"

# Columns of equal length; what a mark reads is x, y, low, high, x2, y2, if not said otherwise.
Data: TypeAlias = Mapping[str, Any]
# One line of a tooltip: a column, its title, and how its numbers are written ("": it holds text).
Tip = tuple[str, str, str]


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes
    ----------
    title : str
    domain : pair of float, optional
        Its ends; by default those of the data.
    form : str
        How its numbers are written, in the language of d3; ".0%" are percentages.
    ticks : int
        About how many; 0: as many as usual.
    nice : bool
        Whether the axis goes on to the next round number.
    log, bare : bool
        A logarithmic scale; an axis without labels.
    """

    title: str = ""
    domain: Sequence[float] | None = None
    form: str = ""
    ticks: int = 0
    nice: bool = False
    log: bool = False
    bare: bool = False


@dataclass(frozen=True, eq=False)
class Line:
    """A line, in the order of x or of the column `order`; with `tips` its points can be pointed at."""

    data: Data
    ink: str
    dashed: bool = False
    step: bool = False
    tips: tuple[Tip, ...] = ()
    label: str = ""
    order: str = ""
    opacity: float = 1.0


@dataclass(frozen=True, eq=False)
class Band:
    """The ground between low and high."""

    data: Data
    ink: str
    step: bool = False
    opacity: float = 0.16


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars from x to x2, from zero to y."""

    data: Data
    ink: str
    tips: tuple[Tip, ...] = ()
    opacity: float = 0.85


@dataclass(frozen=True, eq=False)
class Points:
    """Points; a column `pick` makes them something to click on."""

    data: Data
    ink: str
    tips: tuple[Tip, ...] = ()
    size: int = 55
    shape: Literal["circle", "square"] = "circle"
    hollow: bool = False
    outline: str = ""
    opacity: float = 1.0
    label: str = ""


@dataclass(frozen=True, eq=False)
class Segments:
    """Straight lines between (x, y) and (x2, y2), which are names of columns; x2 or y2 may be the same as x or y."""

    data: Data
    ink: str
    x: str = "x"
    y: str = "y"
    x2: str = ""
    y2: str = ""
    dash: tuple[int, ...] = ()
    width: float = 1.5
    opacity: float = 1.0


@dataclass(frozen=True)
class Rule:
    """A line across the whole picture, at one x or at one y."""

    x: float | None = None
    y: float | None = None
    dash: tuple[int, ...] = ()
    label: str = ""


@dataclass(frozen=True, eq=False)
class Ring:
    """A ring around the point that is picked on a page; a paper has none."""

    data: Data


@dataclass(frozen=True)
class Label:
    """A word beside a point, `shift` pixels to the right and down; a click on it picks the point `pick`."""

    text: str
    x: float
    y: float
    ink: str
    shift: tuple[float, float]
    align: Literal["left", "center", "right"]
    pick: int


Mark: TypeAlias = Line | Band | Bars | Points | Segments | Rule | Ring | Label


@dataclass(frozen=True, eq=False)
class Picture:
    """Marks on two axes, the first at the bottom.

    Attributes
    ----------
    x, y : Axis
    marks : tuple of marks
    height : int
        On a page, in pixels.
    square, title : bool, str
        In a paper: whether a unit is as long upwards as across, and a line above. A page has its own.
    picked : int, optional
        The point that the page picks at first, where points can be picked.
    """

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    height: int
    square: bool = False
    title: str = ""
    picked: int | None = None


@dataclass(frozen=True)
class ForestRow:
    """A value and the ends of its interval, NaN without one; `series` is 0 or 1, the colour of its model."""

    name: str
    value: float
    low: float
    high: float
    series: int = 0


@dataclass(frozen=True)
class Forest:
    """Values with their intervals, one line of the picture for each name, in the given order.

    With `second` two series share a line.
    """

    rows: tuple[ForestRow, ...]
    title: str
    reference: float | None
    form: str
    second: bool = False


@dataclass(frozen=True)
class Words:
    """Words in place of a picture."""

    text: str


Drawing: TypeAlias = Picture | Forest | Words


def extreme(parts: Sequence[Vector], of: Callable[[Vector], float], otherwise: float) -> float:
    """Return the largest or smallest of all finite numbers."""
    numbers = np.concatenate([np.zeros(0), *parts])
    finite = numbers[np.isfinite(numbers)]
    return float(of(finite)) if finite.size else otherwise


def band_and_line(data: Data, ink: str, tips: tuple[Tip, ...], label: str = "") -> tuple[Mark, Mark]:
    """Draw a curve with the band around it."""
    return Band(data, ink), Line(data, ink, tips=tips, label=label)


# --- Pictures of calibration: each takes what was measured of one or more models, with the colour of each.


def calibration_curves(drawn: Sequence[tuple[CalibrationCurve, str]], *, top: float | None = None) -> Picture:
    """Draw smooth curves with their bands, the risk groups with their intervals, and the diagonal.

    `top` is where both axes end; by default where the curves do.
    """
    end = risk_limit([curve for curve, _ in drawn]) if top is None else top
    marks: list[Mark] = [Line({"x": [0.0, end], "y": [0.0, end]}, "reference", dashed=True)]
    names = (("x", "predicted"), ("y", "observed"), ("low", "from"), ("high", "to"))
    tips = tuple((field, title, TIP_PERCENT) for field, title in names)
    for curve, ink in drawn:
        points = {
            "x": curve.point_predicted,
            "y": curve.point_observed,
            "low": curve.point_lower,
            "high": curve.point_upper,
            "rows": curve.point_rows,
        }
        marks += band_and_line(_with_ends(curve), ink, tips)
        marks.append(Segments(points, ink, y="low", y2="high", opacity=0.7))
        marks.append(Points(points, ink, (*tips, ("rows", "rows", ","))))
    x, y = (Axis(title, (0.0, end), PERCENT) for title in ("Predicted risk", "Observed risk"))
    return Picture(x, y, tuple(marks), height=360, square=True)


def _with_ends(curve: CalibrationCurve | PPCurve) -> Data:
    return {"x": curve.predicted, "y": curve.observed, "low": curve.lower, "high": curve.upper}


def risk_limit(curves: Sequence[CalibrationCurve]) -> float:
    """Where the axes of risk end: the next tenth beyond what is drawn."""
    ends = [np.concatenate([c.predicted, c.observed, c.upper, c.point_predicted, c.point_upper]) for c in curves]
    largest = extreme(ends, np.max, 1.0)
    return min(1.0, max(0.1, math.ceil(largest * 10 - 1e-9) / 10))


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


def risk_histograms(drawn: Sequence[tuple[CalibrationCurve, str]], *, top: float | None = None) -> Picture:
    """Draw how many rows have each predicted risk, on the axis of the curve above it."""
    end = risk_limit([curve for curve, _ in drawn]) if top is None else top
    base = narrowest([curve.risk_edges for curve, _ in drawn])
    tips = (("start", "risk from", TIP_PERCENT), ("end", "to", TIP_PERCENT), ("rows", "rows", ","))
    marks = []
    for curve, ink in drawn:
        left, right = curve.risk_edges[:-1], curve.risk_edges[1:]
        shown = {
            "x": left,
            "x2": np.minimum(right, end),
            "y": heights(curve.risk_counts, curve.risk_edges, base),
            "start": left,
            "end": right,
            "rows": curve.risk_counts,
        }
        inside = {name: column[left < end] for name, column in shown.items()}
        marks.append(Bars(inside, ink, tips, opacity=0.55 if len(drawn) == 1 else 0.4))
    return Picture(Axis(domain=(0.0, end), bare=True), Axis("Rows", ticks=2, form=",d"), tuple(marks), height=64)


def pit_histograms(
    drawn: Sequence[tuple[PitHistogram, str]], *, beside: Sequence[PitHistogram] = (), top: float | None = None
) -> Picture:
    """Draw histograms of F at the observed times, with the range in which a perfect model stays.

    `top` is where the vertical axis ends; by default above the highest bar. Those `beside` are drawn on the same scale.
    """
    first, base = drawn[0][0], narrowest([*(one.edges for one, _ in drawn), *(one.edges for one in beside)])
    end = pit_limit([one for one, _ in drawn]) if top is None else top
    tips = (("start", "F from", ".2f"), ("end", "to", ".2f"), ("share", "share", TIP_PERCENT))
    marks: list[Mark] = []
    for k, (one, ink) in enumerate(drawn):
        width = np.diff(one.edges)
        part = 0.88 * width / len(drawn)
        left = one.edges[:-1] + 0.06 * width + k * part
        shown = {"start": one.edges[:-1], "end": one.edges[1:], "share": one.mass}
        data = {"x": left, "x2": left + part, "y": heights(one.mass, one.edges, base), **shown}
        marks.append(Bars(data, ink, tips, opacity=0.8))
    # The range of a perfect model lies over the bars as lines, so that the bars stay in sight.
    even = {"low": first.lower, "high": first.upper, "y": np.diff(first.edges)}
    flat = {name: heights(part, first.edges, base) for name, part in even.items()}
    flat = {"x": first.edges[:-1], "x2": first.edges[1:], **flat}
    for field, dash in (("low", (2, 2)), ("y", (5, 4)), ("high", (2, 2))):
        marks.append(Segments(flat, "ink", y=field, x2="x2", dash=dash, width=1.4))
    x = Axis("F at the observed time", (0.0, 1.0), ".1f")
    return Picture(x, Axis("Share of the rows", (0.0, end), PERCENT), tuple(marks), height=260)


def pit_limit(histograms: Sequence[PitHistogram]) -> float:
    """Where the axis of the shares ends: a tenth above what is drawn."""
    base = narrowest([one.edges for one in histograms])
    parts = [heights(part, one.edges, base) for one in histograms for part in (one.mass, one.upper)]
    return 1.1 * extreme(parts, np.max, 1.0)


def pp_curves(drawn: Sequence[tuple[PPCurve, str]]) -> Picture:
    """Draw distributions of F at the observed times against the diagonal."""
    x, y = (Axis(title, (0.0, 1.0), ".1f") for title in ("Predicted", "Observed"))
    marks: list[Mark] = [Line({"x": [0.0, 1.0], "y": [0.0, 1.0]}, "reference", dashed=True)]
    names = (("x", "F up to"), ("y", "share of rows"), ("low", "from"), ("high", "to"))
    tips = tuple((field, title, ".3f") for field, title in names)
    for curve, ink in drawn:
        marks += band_and_line(_with_ends(curve), ink, tips)
    return Picture(x, y, tuple(marks), height=260, square=True)


# --- The frontier: D-calibration against what is paid for it, one point per model that can be picked.
# All its pictures share their axes, so that a reader learns them once.
# D-calibration is on the horizontal axis, on a log scale, and left is better. What is paid for it (concordance, NLL)
# is on the vertical axis. A dashed line shows the floor, what a perfect model scores on average.

# What a frontier can show on its vertical axis: the name of the metric and its better direction.
VERTICAL = {
    "concordance": ("concordance", "up"),
    "nll": ("NLL", "down"),
    "ibs": ("IBS", "down"),
    "dcal_within": ("D-cal within groups", "down"),
}


def horizontal_label(rows: str = "") -> str:
    """Label of the horizontal axis; `rows` names the rows, such as "validation rows"."""
    return f"D-calibration{f' on {rows}' if rows else ''} (left is better)"


def vertical_label(of: str, rows: str = "") -> str:
    """Label of the vertical axis."""
    name, direction = VERTICAL[of]
    return f"{name}{f' on {rows}' if rows else ''} ({direction} is better)"


_HEIGHT, _FORM = 270, ".3f"

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
    points: Sequence[FrontierPoint],
    of: str,
    *,
    least: float,
    floor: float,
    picked: int | None = None,
    rows: str = "",
) -> Picture:
    """Draw the points, a line through those as they were trained, their networks alone, and the floor.

    Parameters
    ----------
    points
        In the order of the selector that a click sets.
    of : str
        The metric on the vertical axis, of `VERTICAL`.
    least : float
        The axis shows at least so much: values that hardly differ must not look far apart.
    floor : float
        What a perfect model scores on average.
    picked : int, optional
        The point that is picked at first, on a page; its picture has a title in place of that of the vertical axis, and
        the points have their labels.
    rows : str
        Names the rows, such as "validation rows".
    """
    on_page, name = picked is not None, VERTICAL[of][0]
    kept = [(k, one) for k, one in enumerate(points) if one.dcal > 0 and math.isfinite(one.value)]
    shown = [one for _, one in kept]
    across, up = _ends(shown, floor), _span([value for one in shown for value in _values(one)], least)
    trained, mapped = (_columns([one for one in kept if one[1].recalibrated == flag]) for flag in (False, True))
    tips = (("name", "", ""), ("x", "D-calibration", ".3g"), ("y", name, _FORM))
    marks: list[Mark] = [Rule(x=floor, dash=(2, 3), label="a perfect model (mean)")]
    marks += [Line(trained, "model", order="pick", opacity=0.35), *_spread(shown), Ring(_columns(kept))]
    if mapped["x"]:
        look: dict[str, Any] = {"size": 95, "shape": "square", "outline": "card", "label": "recalibrated"}
        marks.append(Points(mapped, "second", tips, **look))
    marks.append(Points(trained, "model", tips, size=95, outline="card"))
    marks += _labels(kept, across, up) if on_page else []
    x, y = Axis(horizontal_label(rows), across, log=True), Axis("" if on_page else vertical_label(of, rows), up, _FORM)
    return Picture(x, y, tuple(marks), height=_HEIGHT, picked=picked)


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
