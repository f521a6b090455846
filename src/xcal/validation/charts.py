"""What the charts of a report show, for one model or several on the same axes: on the page, and with matplotlib."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from xcal._checks import as_choice, fail
from xcal.metrics.inputs import Vector
from xcal.metrics.net_benefit import DecisionCurve
from xcal.show.charts import (
    PERCENT,
    SERIES,
    TIP_PERCENT,
    Axis,
    Band,
    Bars,
    Drawing,
    Forest,
    ForestRow,
    Line,
    Mark,
    Picture,
    Points,
    Rule,
    Segments,
    Words,
    band_and_line,
    calibration_curves,
    extreme,
    heights,
    narrowest,
    pit_histograms,
    pit_limit,
    pp_curves,
    risk_histograms,
    risk_limit,
    time_in_words,
    time_title,
    written,
)
from xcal.show.page import Chart, Key
from xcal.validation.result import AuditResult, CovariatePart, WorstSubgroup
from xcal.validation.words import ESTIMATORS, find, interval, label, missing, names, shown

Results = Sequence[AuditResult]
Found = TypeVar("Found")
# What is asked for: its name on the picture, the metric, the horizon, the group.
WantedValue = tuple[str, str, float | None, str | None]
Wanted = Sequence[WantedValue]
# A picture, and what it shows for those who cannot see it.
Drawn = tuple[Drawing, str]

# What stands in place of a picture, on the page.
NOT_HERE = "Not measured at this horizon."
NOTHING: Drawn = (Words(NOT_HERE), NOT_HERE)
_TIME_TIP = ("x", "time", ".3~g")
_HORIZON_DASH = (2, 3)
SIZE = (5.2, 4.0)
"""Of a picture in a paper, in inches."""


def following(made: Sequence[Drawn], follows: Sequence[str] = ("horizon",), **more: Any) -> Chart:
    """Make one chart of a picture for every option of the selectors; with one picture there is nothing to follow."""
    specs, alts = zip(*made, strict=True)
    return Chart(specs, alts, follows=tuple(follows) if len(made) > 1 else (), **more)


def by_horizon(horizons: Sequence[float], make: Callable[[float], Drawn], **more: Any) -> Chart:
    """Make one chart that follows the page's horizon."""
    return following([make(t) for t in horizons], **more)


def keys(results: Results, shape: str = "line") -> tuple[Key, ...]:
    """Legend of the models."""
    named = names(results) if len(results) > 1 else ["the model"]
    return tuple(Key(name, ink, shape) for name, ink in zip(named, SERIES, strict=False))  # type: ignore[arg-type]


def same(items: Sequence[Found], horizon: float | None, group: str | None = None) -> Found | None:
    """Return the one of the curves that has this horizon and group."""
    for item in items:
        if getattr(item, "horizon", None) == horizon and getattr(item, "group", None) == group:
            return item
    return None


def observed_and_predicted(results: Results, horizon: float | None) -> Drawn:
    """Draw the observed risk over time with its band, and the mean prediction."""
    over = results[0].measured.over_time
    seen = {"x": over.times, "y": over.observed, "low": over.observed_lower, "high": over.observed_upper}
    marks: list[Mark] = [Band(seen, "observed", step=True, opacity=0.12)]
    marks.append(Line(seen, "observed", step=True, label=f"observed ({over.by})"))
    tips = (_TIME_TIP, ("y", "predicted", TIP_PERCENT), ("seen", "observed", TIP_PERCENT))
    for result, ink in zip(results, SERIES, strict=False):
        curve = result.measured.over_time
        if np.isfinite(curve.predicted).any():
            data = {"x": curve.times, "y": curve.predicted, "seen": curve.observed}
            marks.append(Line(data, ink, tips=tips, label="mean prediction"))
    risks = [over.observed_upper, over.observed, *(result.measured.over_time.predicted for result in results)]
    y = Axis("Risk of the event", (0.0, extreme(risks, np.max, 1.0)), PERCENT, nice=True)
    return _over_time(results[0], y, [*marks, *at_horizon(horizon, over.times)]), _risk_in_words(results, horizon)


# Colours of causes.
INKS = ("model", "second", "without_event", "censored")


def incidences(result: AuditResult) -> Drawn:
    """Draw the observed incidences of the causes on top of each other, and the mean predictions as lines."""
    over = [one.measured.over_time for one in result.by_cause.values()]
    times, below, predicted = over[0].times, np.zeros(over[0].times.size), np.zeros(over[0].times.size)
    bands: list[Mark] = []
    lines: list[Mark] = []
    words = []
    for k, (name, one) in enumerate(zip(result.by_cause, over, strict=True)):
        above, predicted = below + one.observed, predicted + one.predicted
        ink = INKS[k % len(INKS)]
        data = {"x": times, "low": below, "high": above, "y": predicted, "seen": one.observed, "own": one.predicted}
        bands.append(Band(data, ink, step=True, opacity=0.35))
        tips = (_TIME_TIP, ("own", f"{name}, predicted", TIP_PERCENT), ("seen", "observed", TIP_PERCENT))
        lines.append(Line(data, ink, dashed=True, tips=tips if k < len(INKS) else ()))
        words.append(f"{name}: {written(float(one.observed[-1]), 'percent')} at the end")
        below = above
    y = Axis("Probability", (0.0, min(1.0, 1.05 * extreme([below, predicted], np.max, 1.0))), PERCENT, nice=True)
    return _over_time(result, y, [*bands, *lines]), f"Observed incidence of each cause. {'; '.join(words)}."


def cells(result: AuditResult) -> Drawn:
    """Draw the events of each cause in bins of the all-cause F, and the number expected, side by side in each bin."""
    found, top = result.measured.cells, 1.0
    marks: list[Mark] = []
    for k, one in enumerate(found):
        left, width = one.edges[:-1], np.diff(one.edges)
        start, end = (left + width * (0.05 + 0.9 * part / len(found)) for part in (k, k + 1))
        per = np.round(width / np.diff(one.edges).min())  # bins that were merged show their mean
        data = {"x": start, "x2": end, "y": one.events / per, "middle": (start + end) / 2, "mean": one.expected / per}
        tips = (("y", f"{one.cause}, events", ".0f"), ("mean", "expected", ".1f"))
        points = {"x": data["middle"], "y": data["mean"]}
        marks += [Bars(data, INKS[k % len(INKS)], tips), Points(points, "ink", size=30, outline="card")]
        top = max(top, float(data["y"].max()), float(data["mean"].max()))
    x, y = Axis("All-cause F at the event", (0.0, 1.0), ".1f"), Axis("Events", (0.0, 1.06 * top))
    words = "; ".join(f"{one.cause}: {one.events.sum():.0f} events, {one.expected.sum():.0f} expected" for one in found)
    return Picture(x, y, tuple(marks), height=260), f"Events by cause in bins of F. {words}."


def _over_time(result: AuditResult, y: Axis, marks: Sequence[Mark], height: int = 300) -> Picture:
    x = Axis(time_title(result.time_unit), (0.0, float(result.measured.over_time.times[-1])))
    return Picture(x, y, tuple(marks), height)


def at_horizon(horizon: float | None, times: Vector) -> list[Mark]:
    """Draw the upright line of the horizon, but past the end of the axis."""
    return [] if horizon is None or horizon > times[-1] else [Rule(x=horizon, dash=_HORIZON_DASH)]


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


def calibration(results: Results, horizon: float, group: str | None = None, beside: Results = ()) -> Drawn:
    """Draw the smooth curve with its band, the risk groups with their intervals, and the diagonal.

    The axes are the same for the models `beside` it, as are those of the pictures below.
    """
    curves = [same(result.measured.calibration, horizon, group) for result in results]
    drawn = _inked(curves)
    if not drawn:
        return NOTHING
    words = f"Calibration curve at {time_in_words(horizon, results[0].time_unit)}{_of(group)}."
    for result, curve, name in zip(results, curves, names(results), strict=True):
        if curve is None:
            continue
        found = [find(result, metric, horizon, group) for metric in ("ici", "emax")]
        if found[0] and found[1]:
            words += (
                f" {name}: predicted and observed risk differ by {shown(found[0])} on average and by {shown(found[1])}"
                " at most."
            )
    return calibration_curves(drawn, top=_end_of_risks([*results, *beside], horizon, group)), words


def _end_of_risks(results: Results, horizon: float, group: str | None) -> float:
    curves = [same(result.measured.calibration, horizon, group) for result in results]
    return risk_limit([curve for curve in curves if curve is not None])


def _inked(items: Sequence[Found | None]) -> list[tuple[Found, str]]:
    """Return the curves, each with its model's colour; models without one are left out."""
    return [(item, ink) for item, ink in zip(items, SERIES, strict=False) if item is not None]


def _of(group: str | None) -> str:
    return "" if group is None else f" in the group {group}"


def risk_histogram(results: Results, horizon: float, group: str | None = None, beside: Results = ()) -> Drawn:
    """Draw how many rows have each predicted risk, on the axis of the curve above it."""
    drawn = _inked([same(result.measured.calibration, horizon, group) for result in results])
    if not drawn:
        return NOTHING
    top = _end_of_risks([*results, *beside], horizon, group)
    return risk_histograms(drawn, top=top), "Histogram of the predicted risks, beneath the calibration curve."


def pit(results: Results, method: str, group: str | None = None, beside: Results = ()) -> Drawn:
    """Draw the histogram of F at the observed times, with the range in which a perfect model stays."""
    found, others = (
        [next((one for one in r.measured.pit if (one.method, one.group) == (method, group)), None) for r in some]
        for some in (results, beside)
    )
    drawn, around = _inked(found), [one for one in others if one is not None]
    if not drawn:
        return Words(NOT_HERE), "Not measured."
    top = pit_limit([*(one for one, _ in drawn), *around])
    picture = pit_histograms(drawn, beside=around, top=top)
    return picture, f"Histogram of F at the observed times{_of(group)}; a perfect model is flat."


def pp(results: Results) -> Drawn:
    """Draw the distribution of F at the observed times against the diagonal."""
    drawn = _inked([result.measured.pp for result in results])
    if not drawn:
        return NOTHING
    return pp_curves(drawn), "Probability-probability plot: the share of rows with F up to each value."


# Covariates that are drawn: those whose parts are furthest off.
_MOST_COVARIATES = 4


def drawn_parts(results: Results) -> list[tuple[str, list[CovariatePart | None]]]:
    """Return the parts of the covariates that are furthest off in any of the models: names, and one value per model."""
    found = [{} if r.measured.for_whom is None else {p.name: p for p in r.measured.for_whom.parts} for r in results]
    far: dict[str, float] = {}
    for parts in found:
        for part in parts.values():
            width = (part.upper - part.lower) or 1.0
            far[part.column] = max(far.get(part.column, 0.0), abs(part.mean - 0.5) / width)
    columns = sorted(far, key=lambda column: -far[column])[:_MOST_COVARIATES]
    names_of = {part.name: part.column for parts in found for part in parts.values()}
    return [
        (name, [parts.get(name) for parts in found])
        for column in columns
        for name, own in names_of.items()
        if own == column
    ]


def covariate_parts(results: Results, title: str = "Mean of F at the event") -> Drawn:
    """Draw the mean of F for the parts of the covariates that are furthest off."""
    rows = tuple(
        ForestRow(name, part.mean, part.lower, part.upper, k)
        for name, parts in drawn_parts(results)
        for k, part in enumerate(parts)
        if part is not None
    )
    words = "; ".join(f"{row.name}: {row.value:.2f}" for row in rows)
    forest = Forest(rows, title, 0.5, ".2f", second=len(results) > 1)
    return forest, f"Mean of F at the event by covariate; 0.5 is right. {words}."


def subgroup(worst: WorstSubgroup) -> Drawn:
    """Draw the histogram of F in the subgroup that is most off, with the standard error of each bar."""
    left, right = worst.edges[:-1], worst.edges[1:]
    gap, base = 0.06 * (right - left), narrowest([worst.edges])
    mass, reach = (heights(part, worst.edges, base) for part in (worst.mass, 1.96 * worst.mass_error))
    middle, low = (left + right) / 2, np.maximum(mass - reach, 0.0)
    data = {"x": left + gap, "x2": right - gap, "middle": middle, "y": mass, "low": low, "high": mass + reach}
    tips = (("y", "share", TIP_PERCENT), ("low", "from", TIP_PERCENT), ("high", "to", TIP_PERCENT))
    whiskers = Segments(data, "ink", x="middle", y="low", y2="high")
    y = Axis("Share of the rows", (0.0, 1.1 * float((mass + reach).max())), PERCENT)
    marks = (Bars(data, "model", tips, opacity=0.8), whiskers, Rule(y=base, dash=(5, 4)))
    words = f"Histogram of F at the observed times of rows with {worst.rule}; a perfect model is flat."
    return Picture(Axis("F at the observed time", (0.0, 1.0), ".1f"), y, marks, height=260), words


# --- Order, errors, usefulness and the rows themselves.


def values_with_intervals(results: Results, wanted: Wanted, *, title: str, reference: float | None) -> Drawn:
    """Draw numbers with their intervals, one line each."""
    rows, words = [], []
    for name, metric, horizon, group in wanted:
        for k, (model, result) in enumerate(zip(names(results), results, strict=True)):
            value = find(result, metric, horizon, group)
            if value is None:
                continue
            rows.append(ForestRow(name, value.value, value.lower, value.upper, k))
            who = f"{model}, " if len(results) > 1 else ""
            ends = f" ({interval(value)})" if interval(value) else ""
            words.append(f"{who}{name}: {shown(value)}{ends}")
    form = {"percent": TIP_PERCENT, "ratio": ".2f"}.get(label(wanted[0][1]).form, ".3f") if wanted else ".3f"
    return Forest(tuple(rows), title, reference, form, second=len(results) > 1), f"{title}. {'; '.join(words)}."


def brier(results: Results, horizon: float | None) -> Drawn:
    """Draw the Brier score over time beside that of a model without covariates."""
    over = results[0].measured.over_time
    null = {"x": over.times, "y": over.brier_null}
    marks: list[Mark] = [Line(null, "reference", dashed=True, label="Kaplan-Meier")]
    tips = (_TIME_TIP, ("y", "model", ".3f"), ("null", "Kaplan-Meier", ".3f"))
    for result, ink in zip(results, SERIES, strict=False):
        curve = result.measured.over_time
        data = {"x": curve.times, "y": curve.brier, "null": curve.brier_null}
        marks.append(Line(data, ink, tips=tips, label="model"))
    scores = [over.brier_null, *(result.measured.over_time.brier for result in results)]
    y = Axis("Brier score", (0.0, extreme(scores, np.max, 0.25)), ".2f", nice=True)
    picture = _over_time(results[0], y, [*marks, *at_horizon(horizon, over.times)], height=260)
    return picture, "Brier score over time, beside that of the Kaplan-Meier curve."


def decision(results: Results, horizon: float) -> Drawn:
    """Draw net benefit over thresholds, with treating everybody and nobody."""
    drawn = _inked([same(result.measured.decision, horizon) for result in results])
    if not drawn:
        return NOTHING
    first = drawn[0][0]
    everybody = {"x": first.threshold, "y": first.treat_all}
    marks: list[Mark] = [Line(everybody, "reference", dashed=True, label="act on everybody")]
    marks.append(Rule(y=0.0, label="act on nobody"))
    tips = (("x", "threshold", PERCENT), ("y", "model", ".3f"), ("all", "everybody", ".3f"))
    for curve, ink in drawn:
        data = {"x": curve.threshold, "y": curve.model, "low": curve.lower, "high": curve.upper}
        marks += band_and_line({**data, "all": curve.treat_all}, ink, tips, "model")
    x = Axis("Threshold: act above this risk", ends_of(first.threshold), PERCENT)
    y = Axis("Net benefit", benefit_limits([curve for curve, _ in drawn]), ".2f")
    return Picture(x, y, tuple(marks), 280), f"Decision curve at {time_in_words(horizon, results[0].time_unit)}."


# Values whose precision is drawn, each in its colour.
_PRECISION_INKS = {"oe": "model", "slope": "second", "auc": "without_event", "ici": "observed"}
PRECISION_KEYS = tuple(Key(label(metric).name, ink) for metric, ink in _PRECISION_INKS.items())


def precision(result: AuditResult, horizon: float) -> Drawn:
    """Draw how wide intervals are for each number of events, as a part of the width to aim for."""
    found = [one for one in result.precision() if one.horizon == horizon]
    if not found:
        return NOTHING
    here, needed = found[0].n_events, [one.n_needed for one in found]
    low, high = 0.5 * min(here, *needed), 2.0 * max(here, *needed)
    events = np.geomspace(low, high, 16)
    marks: list[Mark] = [Rule(y=1.0, dash=(5, 4)), Rule(x=float(here), dash=_HORIZON_DASH)]
    for one in found:
        data = {"x": events, "y": np.sqrt(one.n_needed / events)}
        marks.append(Line(data, _PRECISION_INKS[one.metric], label=label(one.metric).name))
    picture = Picture(
        Axis("Events", (low, high), log=True), Axis("Width / width to aim for", (0.0, 3.0)), tuple(marks), height=240
    )
    told = "; ".join(f"{label(one.metric).name}: {one.n_needed:,}" for one in found)
    return picture, f"Events for an interval as narrow as is aimed for: {told}; here there are {here:,}."


def ends_of(values: Vector) -> list[float]:
    """Return the ends of an axis."""
    return [float(values[0]), float(values[-1])]


def benefit_limits(curves: Sequence[DecisionCurve]) -> tuple[float, float]:
    """Return the ends of the axis of net benefit: what is far below treating nobody would hide the rest."""
    high = max(0.01, 1.06 * extreme([part for c in curves for part in (c.model, c.upper, c.treat_all)], np.max, 1.0))
    low = extreme([part for c in curves for part in (c.model, c.lower)], np.min, 0.0)
    return max(-0.35 * high, min(-0.08 * high, low)), high


OUTCOMES = (
    ("with_event", "event by then"),
    ("without_event", "event-free then"),
    ("censored", "censored before"),
)
OUTCOME_KEYS = tuple(Key(text, ink, "dashed" if ink == "censored" else "box") for ink, text in OUTCOMES)


def risks_by_outcome(result: AuditResult, horizon: float, beside: Results = ()) -> Drawn:
    """Draw the predicted risks of rows with the event, without it, and censored before the horizon.

    The axis of shares is the same for the models `beside` it.
    """
    found = same(result.measured.risks, horizon)
    if found is None:
        return NOTHING
    others = [same(other.measured.risks, horizon) for other in beside]
    pictured = [found, *(other for other in others if other is not None)]
    top = extreme([getattr(one, field) for one in pictured for field, _ in OUTCOMES], np.max, 1.0)
    marks: list[Mark] = []
    for field, text in OUTCOMES[:2]:
        data = {"x": found.edges[:-1], "x2": found.edges[1:], "y": getattr(found, field)}
        tips = (("x", "risk from", TIP_PERCENT), ("x2", "to", TIP_PERCENT), ("y", text, TIP_PERCENT))
        marks.append(Bars(data, field, tips, opacity=0.3))
    # The outlines after both grounds, so that neither hides the other.
    for field, text in OUTCOMES:
        shares = getattr(found, field)
        data = {"x": found.edges, "y": np.append(shares, shares[-1])}
        counted = f"{text} ({getattr(found, f'n_{field}'):,})"
        marks.append(Line(data, field, step=True, dashed=field == "censored", label=counted))
    x = Axis("Predicted risk", ends_of(found.edges), PERCENT)
    picture = Picture(x, Axis("Share of each", (0.0, top), PERCENT, nice=True), tuple(marks), height=240)
    counts = f"{found.n_with_event:,} with the event, {found.n_without_event:,} without, {found.n_censored:,} censored"
    return picture, f"Risks at {time_in_words(horizon, result.time_unit)} by outcome: {counts}."


def followed(result: AuditResult) -> Drawn:
    """Draw how many rows are still under observation."""
    over = result.measured.over_time
    data = {"x": over.times, "y": over.at_risk, "low": np.zeros(over.times.size), "high": over.at_risk}
    line = Line(data, "model", tips=(_TIME_TIP, ("y", "rows", ",")))
    picture = _over_time(result, Axis("Rows", form=",d"), [Band(data, "model", opacity=0.2), line], height=200)
    return picture, f"Rows still followed: {over.at_risk[0]:,} at first, {over.at_risk[-1]:,} at the end."


def uncensored(result: AuditResult) -> Drawn:
    """Draw the share of rows not yet censored."""
    over = result.measured.over_time
    tips = (_TIME_TIP, ("y", "not censored", TIP_PERCENT))
    line = Line({"x": over.times, "y": over.uncensored}, "censored", step=True, tips=tips)
    left = written(float(over.uncensored[-1]), "percent")
    picture = _over_time(result, Axis("Not yet censored", (0.0, 1.0), PERCENT), [line], height=200)
    return picture, f"Share of rows not yet censored: {left} at the end."


# --- The same pictures with matplotlib, for papers: axes in, axes out.


def plot(
    result: AuditResult, kind: str, ax: Any = None, *, horizon: float | None = None, group: str | None = None
) -> Any:
    """Draw one picture into `ax`, and give the axes back.

    Parameters
    ----------
    result : AuditResult
    kind : str
        One of `KINDS`.
    ax : matplotlib axes, optional
        A new figure by default.
    horizon : float, optional
        One of the result's horizons; by default the middle one, as on the page.
    group : str, optional
        A group, "variable = label", for "calibration" and "pit"; by default all rows.

    Returns
    -------
    matplotlib axes
        Where the predictions do not allow the picture, they say why.
    """
    from xcal.show.render import draw_on

    as_choice("kind", kind, KINDS)
    if horizon is not None and horizon not in result.horizons:
        known = ", ".join(f"{t:g}" for t in result.horizons) or "it has none"
        fail("horizon", f"one of the result's horizons ({known})", repr(horizon))
    if group is not None and group not in result.groups:
        known = ", ".join(map(repr, result.groups)) or "none, as no groups were given"
        fail("group", f"one of the groups ({known})", repr(group))
    if group is not None and kind not in _BY_GROUP:
        fail("group", f"None, as only {' and '.join(_BY_GROUP)} are drawn by group", repr(group))
    if horizon is None and result.horizons:
        horizon = result.horizons[len(result.horizons) // 2]
    drawing = drawing_of(result, kind, horizon, group)
    if drawing is None:
        why = missing(result, *_PLOTS[kind][1]) or ["the predictions given do not allow this picture"]
        drawing = Words(f"Not shown: {why[0]}")
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=SIZE, layout="constrained")
    draw_on(ax, drawing)
    return ax


def drawing_of(result: AuditResult, kind: str, horizon: float | None, group: str | None = None) -> Drawing | None:
    """Return a picture for a paper; None where the predictions do not allow it."""
    drawing = _PLOTS[kind][0](result, horizon, group)
    nothing = isinstance(drawing, Words) or (isinstance(drawing, Forest) and not drawing.rows)
    return None if nothing else drawing


def _at(drawing: Drawing, result: AuditResult, horizon: float | None, axes: str = "x") -> Drawing:
    """Name the horizon on the axes, as a paper has no control that shows it."""
    if not isinstance(drawing, Picture) or horizon is None:
        return drawing
    at, named = time_in_words(horizon, result.time_unit), {axis: getattr(drawing, axis) for axis in axes}
    return replace(drawing, **{axis: replace(own, title=f"{own.title} at {at}") for axis, own in named.items()})


def _plot_calibration(result: AuditResult, horizon: float | None, group: str | None) -> Drawing:
    """Draw the curve, with the histogram of the risks at its foot."""
    curve = same(result.measured.calibration, horizon, group)
    if curve is None:
        return NOTHING[0]
    picture = calibration_curves([(curve, "model")])
    counts = heights(curve.risk_counts, curve.risk_edges, narrowest([curve.risk_edges]))
    foot = 0.12 * risk_limit([curve]) * counts / max(1.0, counts.max())
    bars = Bars({"x": curve.risk_edges[:-1], "x2": curve.risk_edges[1:], "y": foot}, "model", opacity=0.25)
    return _at(replace(picture, marks=(*picture.marks, bars), title=group or ""), result, horizon, "xy")


def _plot_pit(result: AuditResult, horizon: float | None, group: str | None) -> Drawing:
    one = next((one for one in result.measured.pit if one.group == group), None)
    if one is None:
        return NOTHING[0]
    rows = f"censored rows: {ESTIMATORS.get(one.method, one.method)}"
    return replace(pit_histograms([(one, "model")]), title=rows if group is None else f"{group} ({rows})")


def _plot_discrimination(result: AuditResult) -> Drawing:
    wanted: list[WantedValue] = [(label(metric).name, metric, None, None) for metric in ("harrell", "uno", "antolini")]
    wanted += [(f"AUC at {time_in_words(t, result.time_unit)}", "auc", t, None) for t in result.horizons]
    return values_with_intervals([result], wanted, title="Concordance or AUC", reference=None)[0]


def _plot_oe(result: AuditResult) -> Drawing:
    wanted = [(time_in_words(t, result.time_unit), "oe", t, None) for t in result.horizons]
    return values_with_intervals([result], wanted, title="O/E", reference=1.0)[0]


def _plot_groups(result: AuditResult, horizon: float | None) -> Drawing:
    if horizon is None or not result.groups:
        return NOTHING[0]
    wanted: list[WantedValue] = [("All rows", "oe", horizon, None)]
    wanted += [(name, "oe", horizon, name) for name in result.groups if name not in result.sites]
    return _forest_of_oe(result, horizon, wanted) if len(wanted) > 1 else NOTHING[0]


def _plot_sites(result: AuditResult, horizon: float | None) -> Drawing:
    if horizon is None or not result.sites:
        return NOTHING[0]
    wanted: list[WantedValue] = [("All rows", "oe", horizon, None)]
    wanted += [(name, "oe", horizon, name) for name in result.sites]
    wanted += [("Mean of sites", "oe_sites", horizon, None), ("A new site", "oe_new_site", horizon, None)]
    return _forest_of_oe(result, horizon, wanted)


def _forest_of_oe(result: AuditResult, horizon: float, wanted: list[WantedValue]) -> Drawing:
    title = f"O/E at {time_in_words(horizon, result.time_unit)}"
    return values_with_intervals([result], wanted, title=title, reference=1.0)[0]


def _plot_censoring(result: AuditResult) -> Drawing:
    over = result.measured.over_time
    followed = {"x": over.times, "y": over.at_risk / max(1, over.at_risk.max())}
    marks = [
        Line({"x": over.times, "y": over.uncensored}, "reference", step=True, label="not yet censored"),
        Line(followed, "model", label="still followed"),
    ]
    return _over_time(result, Axis("Share of the rows", (0.0, 1.02), PERCENT), marks)


def _if_any(curve: Vector, drawing: Drawing) -> Drawing:
    """Return the drawing, or words if the predictions do not give the curve."""
    return drawing if np.isfinite(curve).any() else NOTHING[0]


# For each kind what draws it, and the names under which the reasons for its absence are listed.
_PLOTS: dict[str, tuple[Callable[[AuditResult, Any, str | None], Drawing], tuple[str, ...]]] = {
    "observed": (
        lambda one, t, _: _if_any(one.measured.over_time.predicted, observed_and_predicted([one], t)[0]),
        ("oe", "horizon"),
    ),
    "oe": (lambda one, t, _: _plot_oe(one), ("oe", "horizon")),
    "calibration": (_plot_calibration, ("ici", "horizon", "calibration")),
    "pit": (_plot_pit, ("d_calibration",)),
    "pp": (lambda one, t, _: pp([one])[0], ("d_calibration",)),
    "discrimination": (lambda one, t, _: _plot_discrimination(one), ("harrell", "uno", "antolini", "auc")),
    "brier": (
        lambda one, t, _: _if_any(one.measured.over_time.brier, brier([one], None)[0]),
        ("brier", "ibs", "horizon"),
    ),
    "decision": (lambda one, t, _: _at(decision([one], t)[0], one, t), ("net_benefit", "horizon")),
    "risks": (lambda one, t, _: _at(risks_by_outcome(one, t)[0], one, t), ("horizon", "risks")),
    "groups": (lambda one, t, _: _plot_groups(one, t), ("oe", "horizon")),
    "sites": (lambda one, t, _: _plot_sites(one, t), ("oe", "horizon")),
    "for_whom": (
        lambda one, t, _: covariate_parts([one], "Mean of F at the event (0.5 is right)")[0],
        ("conditional_calibration",),
    ),
    "censoring": (lambda one, t, _: _plot_censoring(one), ()),
    "precision": (lambda one, t, _: NOTHING[0] if t is None else precision(one, t)[0], ("oe", "horizon")),
}
KINDS: tuple[str, ...] = tuple(_PLOTS)
"""Kinds of pictures that `plot` accepts."""
_BY_GROUP = ("calibration", "pit")
AT_HORIZON = ("calibration", "decision", "risks", "groups", "sites", "precision")
"""Those of them that are of one horizon."""
