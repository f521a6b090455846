"""The frontier of a path as a picture, and as a page with everything about the model that is picked."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xcal.estimators.frontier_values import AtHorizon, Candidate, Frontier, Values
from xcal.estimators.selection import Selection, summarise
from xcal.metrics.inputs import Form, rounded_time, said
from xcal.metrics.intervals import even_square
from xcal.metrics.spec import GOOD_BINS
from xcal.show.charts import (
    PERCENT,
    Axis,
    Drawing,
    FrontierPoint,
    Line,
    Mark,
    Picture,
    Points,
    Rule,
    Segments,
    calibration_curves,
    frontier,
    horizontal_label,
    p_in_words,
    pit_histograms,
    pit_limit,
    pp_curves,
    risk_histograms,
    risk_limit,
    time_in_words,
    time_title,
    vertical_label,
    written,
)
from xcal.show.page import (
    Block,
    Callout,
    Cell,
    Chart,
    Copyable,
    Download,
    Figure,
    Figures,
    Key,
    Level,
    Notes,
    Page,
    Row,
    Section,
    Selector,
    Stack,
    Table,
    Text,
    Varying,
    write_page,
)
from xcal.show.render import SIGNAL, draw_on

# --- The picture of a frontier.


def plot_frontier(table: pd.DataFrame, candidates: pd.DataFrame, ax: Any = None) -> Any:
    """Draw D-calibration (log scale) against concordance: means with their spread over seeds, one point per lambda.

    Recalibrated candidates are squares beside them.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    means = summarise(table).dropna(subset=["dcal", "concordance"])
    mapped = candidates[candidates["recalibrated"].astype(bool)].dropna(subset=["dcal", "concordance"])
    trained = _columns(means)
    spread = {name: means[f"{name}_sd"].fillna(0.0).to_numpy() for name in ("dcal", "concordance")}
    ends = {
        **trained,
        # On a log scale an error bar must end above zero.
        "left": trained["x"] - np.minimum(spread["dcal"], 0.9 * trained["x"]),
        "right": trained["x"] + spread["dcal"],
        "low": trained["y"] - spread["concordance"],
        "high": trained["y"] + spread["concordance"],
    }
    marks: list[Mark] = [
        Line(trained, "model", order="x", opacity=0.4),
        Segments(ends, "model", x="left", x2="right", width=1),
        Segments(ends, "model", y="low", y2="high", width=1),
        Points(trained, "model"),
    ]
    if len(mapped):
        marks.append(Points(_columns(mapped), "second", shape="square", label="recalibrated"))
    marks.append(Rule(x=float(means["dcal_floor"].mean()), dash=(4, 3), label="a perfect model (mean)"))
    x = Axis(horizontal_label("validation rows"), log=True)
    y = Axis(vertical_label("concordance", "validation rows"))
    ax.margins(x=0.15, y=0.12)
    draw_on(ax, Picture(x, y, tuple(marks), height=0))
    named = means.reset_index().assign(label=lambda lines: [f"λ = {lam:g}" for lam in lines["lambda"]])
    # Of the recalibrated ones only the first is labelled: they lie close together.
    first = mapped.head(1).assign(label=lambda lines: [f"λ = {lam:g}, recalibrated" for lam in lines["lambda"]])
    columns = ["dcal", "concordance", "label"]
    labelled = pd.concat([named[columns], first[columns]], ignore_index=True)
    _label(ax, labelled, pd.concat([labelled, mapped], ignore_index=True))
    return ax


def _columns(table: pd.DataFrame) -> dict[str, Any]:
    return {"x": table["dcal"].to_numpy(), "y": table["concordance"].to_numpy()}


# Where a label may stand: so far from its point, in points, and in these directions (degrees), tried in this order.
_DISTANCES = (6, 12, 20, 30, 42, 56, 72, 90, 110, 132)
_DIRECTIONS = (45, -45, 135, -135, 90, -90, 0, 180, 20, -20, 160, -160, 70, -70, 110, -110)

# From this distance on a line leads from the point to its label.
_FAR = 16


def _label(ax: Any, points: pd.DataFrame, marks: pd.DataFrame) -> None:
    """Write a label near each of `points`, where it covers no other label, none of `marks` and not the legend."""
    ax.get_figure().draw_without_rendering()  # the limits and the layout are known from now on
    taken = [_freeze(ax, ax.get_legend())]
    at = ax.transData.transform(marks[["dcal", "concordance"]].to_numpy(dtype=float))
    for _, row in points.iterrows():
        where = (row["dcal"], row["concordance"])
        text = ax.annotate(
            row["label"],
            where,
            xytext=(0, 0),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=9,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.7},
        )
        shift, far = _free_place(ax, text.get_window_extent(), taken, at)
        text.set_position(shift)
        taken.append(text.get_window_extent())
        if far:
            line = {"arrowstyle": "-", "color": "#888888", "linewidth": 0.7, "shrinkA": 0, "shrinkB": 3}
            ax.annotate("", where, xytext=shift, textcoords="offset points", arrowprops=line, zorder=1.5)


def _freeze(ax: Any, legend: Any) -> Any:
    """Keep the legend where it is: "best" would look for a new place, on top of labels, when they are there."""
    box = legend.get_window_extent()
    corner = ax.transAxes.inverted().transform((box.x0, box.y0))
    legend.borderaxespad = 0
    legend.set_loc("lower left")
    legend.set_bbox_to_anchor(tuple(corner), transform=ax.transAxes)
    return box


def _free_place(ax: Any, box: Any, taken: Sequence[Any], marks: Any) -> tuple[tuple[float, float], bool]:
    """Shift of a label that stands on its point, in points, to the nearest free place; and whether that is far.

    In a picture that is too small for its labels, the nearest place within the axes that covers the fewest things.
    """
    inside, per_point = ax.get_window_extent(), ax.get_figure().dpi / 72
    best, fewest = ((0.0, 0.0), False), math.inf
    for distance, degrees in product(_DISTANCES, _DIRECTIONS):
        across, up = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        # The edge, or the corner, that faces the point is so far from it.
        right = distance * per_point * across + _sign(across) * box.width / 2
        above = distance * per_point * up + _sign(up) * box.height / 2
        moved = box.translated(right, above)
        if moved.x0 < inside.x0 or moved.x1 > inside.x1 or moved.y0 < inside.y0 or moved.y1 > inside.y1:
            continue
        covered = moved.count_overlaps(taken) + moved.count_contains(marks)
        if covered < fewest:
            best, fewest = ((right / per_point, above / per_point), distance >= _FAR), covered
        if covered == 0:
            break
    return best


def _sign(share: float) -> int:
    """Which way a label lies from its point; 0 for straight above, below or beside it."""
    return 0 if abs(share) < 0.01 else int(math.copysign(1, share))


# --- Tables of the frontier page: every candidate on its rows, and the values that the choice was based on.


_UNKNOWN = float("nan")

# Name in files, name for people, how it is written, and where it is found.
_METRICS: tuple[tuple[str, str, Form, Callable[[Values], float]], ...] = (
    ("dcal", "D-calibration", "small", lambda values: values.dcal.value),
    ("dcal_floor", "Floor", "small", lambda values: values.dcal.floor),
    ("dcal_p", "p", "p", lambda values: _UNKNOWN if values.dcal.p_value is None else values.dcal.p_value),
    ("conditional", "Conditional", "small", lambda values: values.conditional),
    ("concordance", "Concordance", "fraction", lambda values: values.concordance),
    ("nll", "NLL", "fraction", lambda values: values.nll),
    ("ibs", "IBS", "fraction", lambda values: values.ibs),
)


def candidate_table(candidates: Sequence[Candidate]) -> Table:
    """Return all candidates on the rows of the page; beneath a value the range of its networks alone."""
    rows = []
    for one in candidates:
        cells: list[Cell] = [one.name]
        for metric, _, form, value in _METRICS:
            alone = [value(seed) for seed in one.seeds.values()]
            ranged = len(alone) > 1 and metric not in ("dcal_floor", "dcal_p")
            beneath = f"{written(min(alone), form)} to {written(max(alone), form)}" if ranged else ""
            cells.append(_cell(value(one.values), form, beneath))
        rows.append(tuple(cells))
    caption = "On the rows of this page. Beneath a value: the lowest and the highest of the networks alone"
    header = ("Model", *(label for _, label, _, _ in _METRICS))
    return Table(caption, header, tuple(rows), tuple(range(1, len(header))))


def validation_table(table: pd.DataFrame) -> Table:
    """Return the values on the validation rows by which the path chose, `SurvivalPath.candidates_`."""
    shown = [(name, label, form) for name, label, form, _ in _METRICS if name in table.columns]
    rows = []
    for record in table.to_dict("records"):
        mapped = ", recalibrated" if record["recalibrated"] else ""
        cells: list[Cell] = [f"λ = {record['lambda']:g}{mapped}"]
        cells += [_cell(_number(record[name]), form) for name, _, form in shown]
        rows.append(tuple(cells))
    caption = (
        "On the validation rows, by which the path chose (path.candidates_). Epochs were chosen on them too, so they "
        "flatter a little; recalibrated ones are cross-fitted"
    )
    header = ("Model", *(label for _, label, _ in shown))
    return Table(caption, header, tuple(rows), tuple(range(1, len(header))))


def as_csv(candidates: Sequence[Candidate]) -> str:
    """Return all values as text in full precision; a line without a seed is the model of all networks together."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["lambda", "recalibrated", "seed", *(name for name, _, _, _ in _METRICS)])
    for one in candidates:
        lines: list[tuple[str, Values]] = [("", one.values)]
        lines += [(str(seed), values) for seed, values in one.seeds.items()]
        for seed, values in lines:
            numbers = (value(values) for _, _, _, value in _METRICS)
            shown = ("" if math.isnan(number) else repr(float(number)) for number in numbers)
            writer.writerow([repr(one.lam), one.recalibrated, seed, *shown])
    return text.getvalue()


def _number(value: float | None) -> float:
    return _UNKNOWN if value is None else float(value)


def _cell(value: float, form: Form, beneath: str = "") -> Cell:
    return "–" if math.isnan(value) else (written(value, form), float(value), beneath)


# --- Sections of the frontier page about the model that is picked: each picture is drawn once for every candidate.


# Colours of the examples, from low to high risk.
_INKS = ("without_event", "model", "second")


def known(value: float) -> float | None:
    """Return a number, or None for one that the rows do not determine."""
    return float(value) if np.isfinite(value) else None


def _following(
    shown: Frontier, make: Callable[[Candidate], Drawing], alt: str, keys: tuple[Key, ...], **more: str
) -> Chart:
    """Make one chart that follows the picked model."""
    specs = tuple(make(one) for one in shown.candidates)
    alts = tuple(f"{alt} {name}." for name in shown.names)
    return Chart(specs, alts, follows=("model",), keys=keys, **more)


def all_times(shown: Frontier) -> Section:
    """Show F at the observed times of the picked model: histogram with its band, and the same without bins."""
    # One axis for all models, so that a bar that shrinks is seen to shrink.
    every = [one.pit for one in shown.candidates]
    top = pit_limit(every)
    histogram = _following(
        shown,
        lambda one: pit_histograms([(one.pit, "model")], beside=every, top=top),
        "Histogram of F at the observed times of",
        (Key("the picked model", "model", "box"), Key("a perfect model, 95 of 100 times", "ink", "dashed")),
        title="F at the observed times",
        reading="Of a perfect model all bars are equally high, up to chance: each ends within its two "
        "dotted lines 95 of 100 times. High on the left: events come "
        "earlier than predicted; on the right: later; at both ends: the model is too sure.",
    )
    distribution = _following(
        shown,
        lambda one: pp_curves([(one.pp, "model")]),
        "Probability-probability plot of",
        (Key("the picked model", "model"), Key("right", "reference", "dashed")),
        title="P-P curve",
        reading="The same without bins, censored rows by Kaplan-Meier. A line that leaves the diagonal with its band "
        "is more than chance.",
    )
    return Section("Is it right over all times?", (Row((histogram, distribution)),), "All times")


def one_time(shown: Frontier, unit: str) -> Section:
    """Show the calibration curve of the picked model at each horizon."""
    at = [time_in_words(float(t), unit) for t in shown.rows.horizons]
    several = len(at) > 1
    follows = ("model", "horizon") if several else ("model",)
    tops = [
        risk_limit([one.horizons[k].curve for one in shown.candidates]) for k in range(len(at))
    ]  # one axis for all models

    def pictures(draw: Callable[..., Drawing], words: str, **more: Any) -> Chart:
        specs, alts = [], []
        for name, one in zip(shown.names, shown.candidates, strict=True):
            for here, top, when in zip(one.horizons, tops, at, strict=True):
                specs.append(draw([(here.curve, "model")], top=top))
                alts.append(f"{words} of {name} at {when}.")
        return Chart(tuple(specs), tuple(alts), follows=follows, **more)

    curve = pictures(
        calibration_curves,
        "Calibration curve",
        keys=(
            Key("the picked model", "model"),
            Key("groups of risk", "model", "point"),
            Key("right", "reference", "dashed"),
        ),
    )
    histogram = pictures(
        risk_histograms,
        "Histogram of the predicted risks",
        reading="On the dashed line observed equals predicted. Above it the model promises too little risk, below it "
        "too much. The bars beneath say how many rows have each risk.",
    )
    beside = Varying("model", tuple(_by_horizon(one.horizons) for one in shown.candidates))
    choice: tuple[Block, ...] = (Selector("horizon", "Horizon", tuple(at), start=len(at) // 2),) if several else ()
    picture = Row((Stack((curve, histogram)), beside), (2, 1))
    heading = "Is it right for each level of risk?" if several else f"Is it right for each level of risk at {at[0]}?"
    return Section(heading, (*choice, picture, *_extrapolated(shown, unit)), "Level of risk")


def _extrapolated(shown: Frontier, unit: str) -> tuple[Block, ...]:
    """Name the horizons after the last time seen in training."""
    late = [time_in_words(float(t), unit) for t in shown.rows.horizons if t > shown.rows.end]
    if not late:
        return ()
    last = time_in_words(float(f"{shown.rows.end:.3g}"), unit)
    return (Text(f"Extrapolated, as no row of the training was followed beyond {last}: {', '.join(late)}.", "note"),)


def _by_horizon(horizons: Sequence[AtHorizon]) -> Block:
    blocks = tuple(_horizon_tiles(one) for one in horizons)
    return blocks[0] if len(blocks) == 1 else Varying("horizon", blocks)


def _horizon_tiles(one: AtHorizon) -> Figures:
    risk = one.risk
    ends = f"{written(risk.lower, 'ratio')} to {written(risk.upper, 'ratio')}" if np.isfinite(risk.lower) else ""
    figures = (
        Figure("O/E", written(risk.value, "ratio"), known(risk.value), ends, "observed per expected; 1 is right"),
        Figure("Mean predicted risk", written(risk.expected, "percent"), risk.expected, note="average over all rows"),
        Figure("Observed risk", written(risk.observed, "percent"), known(risk.observed), note="by Kaplan-Meier"),
        Figure(
            "ICI",
            written(one.ici, "fraction"),
            known(one.ici),
            note="mean distance of predicted from observed risk; a perfect model would show "
            f"{written(one.floor, 'fraction')}",
        ),
    )
    return Figures(figures)


def patients(shown: Frontier, unit: str) -> Section:
    """Draw survival curves: means over rows of a level of risk, or those of the rows that were asked for."""
    examples = shown.examples
    if not examples:
        few = Text("These are too few rows for mean curves by level of risk, and single rows are not shown.", "note")
        return Section("What does it tell patients?", (few,), "Patients")
    if examples[0].outcome is None:
        reading = (
            f"Each line is the mean over {len(examples[0].x)} rows, the same for every model: those next to a tenth, "
            f"half or nine tenths of the order of risk by {shown.names[0]}. No single row is shown."
        )
    else:
        reading = (
            "Rows that were asked for. A filled point is where a row had its event, a hollow one where it was censored."
        )
    picture = _following(
        shown,
        lambda one: _survival_curves(one, shown, unit),
        "Predicted survival over time by",
        tuple(Key(one.name, ink) for one, ink in zip(examples, _INKS, strict=False)),
        reading=reading,
    )
    return Section("What does it tell patients?", (picture,), "Patients")


def _survival_curves(one: Candidate, measured: Frontier, unit: str) -> Picture:
    marks: list[Mark] = []
    tips = (("row", "", ""), ("x", "time", ".3~g"), ("y", "no event until then", ".1%"))
    for example, survival, ink in zip(measured.examples, one.survival, _INKS, strict=False):
        data = {"x": measured.times, "y": survival, "row": [example.name] * measured.times.size}
        marks.append(Line(data, ink, tips=tips))
        if example.outcome is not None and example.outcome[0] <= measured.times[-1]:
            time, happened = example.outcome
            place = {"x": [time], "y": [float(np.interp(time, measured.times, survival))]}
            marks.append(Points(place, ink, size=100, hollow=not happened, outline=ink))
    x = Axis(time_title(unit), (0.0, float(measured.times[-1])))
    return Picture(x, Axis("Probability of no event", (0.0, 1.0), PERCENT), tuple(marks), height=300)


# --- The frontier page of a path: every candidate on the same rows, and everything about the one that is picked.


# A model is called off if a perfect one would look as bad in fewer than this share of samples, as in `select`.
_LEVEL = 0.05
_TICK = "✓"


@dataclass(frozen=True, eq=False)
class FrontierReport:
    """What the page shows: the candidates on the user's rows, what the path chose, and the values it chose by."""

    frontier: Frontier
    selection: Selection
    validation: pd.DataFrame
    model: str
    time_unit: str
    untrained: tuple[float, ...] = ()

    @property
    def chosen(self) -> int:
        """Place of what the path chose among the candidates."""
        which = (self.selection.lam, self.selection.recalibrated)
        return [(one.lam, one.recalibrated) for one in self.frontier.candidates].index(which)


def write_frontier(report: FrontierReport, path: str | Path) -> Path:
    """Write the page as one HTML file; see `SurvivalPath.report`."""
    return write_page(frontier_page(report), path)


def frontier_page(report: FrontierReport) -> Page:
    """Return the page."""
    rows = report.frontier.rows
    events = int(np.count_nonzero(rows.event))
    drawn = f" (drawn at random from {rows.given:,})" if rows.given > rows.n else ""
    of = "" if rows.clusters is None else f" in {np.unique(rows.clusters).size:,} clusters"
    shown = f"{len(report.frontier.names)} candidates on {rows.n:,} rows{drawn}{of} with {events:,} events"
    return Page(
        title="Calibration frontier",
        subtitle=f"{report.model}: {shown}",
        selectors=(Selector("model", "Model", report.frontier.names, "slider", report.chosen),),
        top=(_answer(report),),
        sections=(
            _cost(report),
            all_times(report.frontier),
            one_time(report.frontier, report.time_unit),
            patients(report.frontier, report.time_unit),
            _numbers(report),
        ),
        footer=f"Made by xcal {import_module('xcal').__version__}. This file needs no network and sends nothing.",
    )


def _answer(report: FrontierReport) -> Callout:
    """Return what was chosen and why, and how it does on the rows of the page."""
    one = report.frontier.candidates[report.chosen]
    measured = one.values.dcal
    reason = report.selection.reason
    bins = f"D-calibration in {report.frontier.rows.n_bins} bins"
    sentence = f"On the rows of this page its {bins} is {measured.value:.2g}; a perfect model scores "
    sentence += f"{measured.floor:.2g} on average"
    level: Level = "unknown"
    if measured.p_value is not None:
        n_bins, level = report.frontier.rows.n_bins, "good"
        told = "nothing shows that it is off"
        if measured.p_value < _LEVEL:  # an error may be real and small, as the verdict of an audit has it
            square = even_square(measured.value, measured.floor, n_bins - 1, 0.95)
            error, most = (float(np.sqrt(n_bins * part)) for part in (square.excess, square.upper))
            told = "small, but no chance" if most <= GOOD_BINS else "it is off"
            told = f"{told}, bins hold {100 * error:.0f} % too many or too few events"
            level = "good" if most <= GOOD_BINS else "caution"
        sentence += f" ({p_in_words(measured.p_value)}): {told}"
    sentences = (f"{reason[0].upper()}{reason[1:]}.", f"{sentence}.")
    return Callout(level, "Chosen by select()", one.name, sentences)


def _cost(report: FrontierReport) -> Section:
    """Draw the three frontiers side by side, and the values of the picked model beneath."""
    axes: tuple[tuple[str, str, str, float, Callable[[Values], float]], ...] = (
        (vertical_label("concordance").capitalize(), "concordance", ".3f", 0.02, lambda values: values.concordance),
        (vertical_label("nll"), "NLL", ".3f", 0.02, lambda values: values.nll),
        ("IBS (down is better)", "IBS", ".3f", 0.01, lambda values: values.ibs),
    )
    pictures = []
    for title, short, form, least, value in axes:
        spec = frontier(
            _points(report, value),
            short=short,
            form=form,
            least=least,
            floor=report.frontier.floor,
            picked=report.chosen,
        )
        alt = f"D-calibration against {short}, one point per model; {_in_words(report, short, value)}"
        pictures.append(Chart((spec,), (alt,), follows=("model",), picks="model", signal=SIGNAL, title=title))
    legend = Text(
        "Blue circles are the weights λ of the penalty, as they were trained, with their networks alone as small dots: "
        "the spread over seeds. Orange squares are the same models after recalibration. The dotted line is what a "
        "perfect model scores on average: left of it is luck. The ring is the model that is picked, and "
        f"{_TICK} what select() chose. Click a point, or move the slider, and everything below follows.",
        "reading",
    )
    rest = (Text(f"{not_trained(report.untrained)}.", "note"),) if report.untrained else ()
    tiles = Varying("model", tuple(_with_command(report, k) for k in range(len(report.frontier.names))))
    return Section("What does calibration cost?", (Row(tuple(pictures)), legend, *rest, tiles), "Frontier")


def not_trained(lambdas: Sequence[float]) -> str:
    """Say which weights have no models, and how they get some."""
    weights = ", ".join(f"{lam:g}" for lam in lambdas)
    return (
        f"Not trained, as the choice did not need them: λ = {weights} (SurvivalPath(path='always'), or --path always, "
        "trains all)"
    )


def _points(report: FrontierReport, value: Callable[[Values], float]) -> list[FrontierPoint]:
    points = []
    for k, one in enumerate(report.frontier.candidates):
        chosen = k == report.chosen
        # Recalibrated candidates lie close together: only what was chosen is labelled.
        label = f"{_TICK} {one.lam:g}" if chosen else f"{one.lam:g}" if not one.recalibrated else ""
        alone = tuple((seed.dcal.value, value(seed)) for seed in one.seeds.values())
        several = alone if len(alone) > 1 else ()
        at = (one.values.dcal.value, value(one.values))
        points.append(FrontierPoint(one.name, label, *at, one.recalibrated, several, chosen))
    return points


def _in_words(report: FrontierReport, short: str, value: Callable[[Values], float]) -> str:
    """Return where the points stand, for those who cannot see them."""
    told = (
        f"{name}: D-calibration {one.values.dcal.value:.2g}, {short} {written(value(one.values), 'fraction')}"
        for name, one in zip(report.frontier.names, report.frontier.candidates, strict=True)
    )
    return "; ".join(told)


def _with_command(report: FrontierReport, k: int) -> Stack:
    one = report.frontier.candidates[k]
    mapped = ", recalibrated=True" if one.recalibrated else ""
    return Stack((tiles(report, k), Copyable(f"model = path.model({one.lam!r}{mapped})", "Copy the line")))


def tiles(report: FrontierReport, k: int) -> Figures:
    """Values of one candidate, each with that of the first beneath it."""
    first, one = report.frontier.candidates[0], report.frontier.candidates[k]
    figures = []
    for name, label, form, value in _METRICS:
        number, title, note = value(one.values), _TITLES.get(name, label), _NOTES.get(name, "")
        if name == "ibs":
            note = f"Brier score {_averaged(report)}; 0 is best"
        if k > 0 and name not in ("dcal_floor", "dcal_p"):
            note = f"{first.name}: {written(value(first.values), form)}"
        figures.append(Figure(title, written(number, form), known(number), note=note))
    return Figures(tuple(figures))


_TITLES = {"dcal_p": "p (Akritas)", "conditional": "Conditional calibration"}
_NOTES = {
    "dcal": "0 is right; compare with the floor",
    "dcal_floor": "a perfect model, on average",
    "dcal_p": "small: a perfect model rarely is so",
    "conditional": "for every row, not on average; 0 is right",
    "concordance": "1 is a perfect order, 0.5 chance",
    "nll": "lower is better",
}


def _averaged(report: FrontierReport) -> str:
    """Return in words over which times the Brier score is averaged: the same for all candidates, as their rows are."""
    ends = report.frontier.candidates[0].values.ibs_range
    if ends is None:
        return "averaged over all times seen"
    first, last = (rounded_time(t) for t in ends)
    return f"averaged from {first:g} to {time_in_words(last, report.time_unit)}"


def _numbers(report: FrontierReport) -> Section:
    """List every number, those that the choice was based on too."""
    notes = Notes(
        (
            "The rows of this page were given to path.report. Judge by rows that no model was trained on.",
            f"D-calibration in {report.frontier.rows.n_bins} bins, as in an audit, censored rows spread evenly "
            "(uniform); p by Akritas' test of a perfect model. On the validation rows it has the bins of the training.",
            "Conditional is conditional calibration: whether F is right given the covariates, less what noise gives.",
            "Concordance is Harrell's. NLL is the mean negative log-likelihood; under a discrete distribution an event "
            "counts the mass of its time bin over its width, on the validation rows the mass alone, as in training. "
            f"IBS is the Brier score {_averaged(report)}, weighted for censoring.",
            "A recalibrated model has the map of F that was fitted when the path was, not one fitted to these rows.",
            "xcal.audit(path.model(...), X, y) reports one model with all intervals. Its values are the same but in "
            "two cases: where times are in whole units, its D-calibration always draws F of an event evenly from the "
            "unit; where censoring depends on covariates, it corrects values at horizons, and this page does not.",
            *filter(None, [said(report.frontier.rows.min_cell)]),
        ),
        "How this was measured",
    )
    blocks: tuple[Block, ...] = (
        candidate_table(report.frontier.candidates),
        Download("Save as CSV", "frontier.csv", as_csv(report.frontier.candidates)),
        validation_table(report.validation),
        notes,
    )
    return Section("All numbers", blocks, "All numbers")
