"""Sections of the frontier page about the model that is picked: each picture is drawn once for every candidate."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xcal.charts.calibration import (
    PERCENT,
    calibration_curves,
    pit_histograms,
    pit_limit,
    pp_curves,
    risk_histograms,
    risk_limit,
)
from xcal.charts.marks import Spec, chart, hover, line, table, tip, x_axis, y_axis
from xcal.charts.words import time_in_words, time_title, written
from xcal.estimators.frontier.values import AtHorizon, Candidate, Frontier
from xcal.pages import Block, Chart, Figure, Figures, Key, Row, Section, Selector, Stack, Text, Varying
from xcal.pages.theme import colour

# Colours of the examples, from low to high risk.
_INKS = ("without_event", "model", "second")


def known(value: float) -> float | None:
    """Return a number, or None for one that the rows do not determine."""
    return float(value) if np.isfinite(value) else None


def _following(
    shown: Frontier, make: Callable[[Candidate], Spec], alt: str, keys: tuple[Key, ...], **more: str
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

    def pictures(draw: Callable[..., Spec], words: str, **more: Any) -> Chart:
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


def _survival_curves(one: Candidate, measured: Frontier, unit: str) -> Spec:
    x = x_axis(time_title(unit), domain=[0, float(measured.times[-1])])
    y = y_axis("Probability of no event", domain=[0, 1], form=PERCENT)
    layers: list[Spec] = []
    for example, survival, ink in zip(measured.examples, one.survival, _INKS, strict=False):
        points = table(x=measured.times, y=survival, row=[example.name] * measured.times.size)
        tips = [tip("row", "", ""), tip("x", "time", ".3~g"), tip("y", "no event until then", ".1%")]
        layers += [line(points, x, y, ink), hover(points, x, y, tips, ink)]
        if example.outcome is not None and example.outcome[0] <= measured.times[-1]:
            own, happened = example.outcome
            layers.append(_outcome(own, float(np.interp(own, measured.times, survival)), happened, x, y, ink))
    return chart(layers, height=300)


def _outcome(time: float, survival: float, happened: bool, x: Spec, y: Spec, ink: str) -> Spec:
    """Mark what happened to a row, on its curve."""
    fill = colour(ink if happened else "card")
    mark = {"type": "point", "filled": True, "size": 100, "fill": fill, "stroke": colour(ink), "strokeWidth": 2.5}
    return {
        "data": {"values": table(x=[time], y=[survival])},
        "mark": {**mark, "opacity": 1, "aria": False},
        "encoding": {"x": x, "y": y},
    }
