"""Charts of a report, as Vega-Lite specifications, for one model or several on the same axes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from xcal.metrics.inputs import Vector
from xcal.show import Chart, Key
from xcal.show.charts import (
    PERCENT,
    SERIES,
    TIP_PERCENT,
    Spec,
    band,
    bars,
    calibration_curves,
    chart,
    dots,
    extreme,
    heights,
    horizontal,
    hover,
    line,
    narrowest,
    only_words,
    pit_histograms,
    pp_curves,
    risk_histograms,
    table,
    time_in_words,
    time_title,
    tip,
    vertical,
    written,
    x_axis,
    y_axis,
)
from xcal.validation.result import AuditResult, AuditValue, CovariatePart, DecisionCurve, PitHistogram, WorstSubgroup
from xcal.validation.words import find, interval, label, names, shown

# --- Charts of a report on calibration, as Vega-Lite specifications, for one model or several on the same axes.


Results = Sequence[AuditResult]


Found = TypeVar("Found")


# What is asked for: its name on the picture, the metric, the horizon, the group.
Wanted = Sequence[tuple[str, str, float | None, str | None]]


NOT_HERE = "Not measured at this horizon."


def empty() -> Spec:
    """Show in place of a picture that there is none."""
    return only_words(NOT_HERE)


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
    """Return the one of the curves that has this horizon and group."""
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
    layers += at_horizon(horizon, over.times, x)
    return chart(layers, height=300), _risk_in_words(results, horizon)


def at_horizon(horizon: float | None, times: Vector, x: Spec) -> list[Spec]:
    """Draw the upright line of the horizon, but past the end of the axis."""
    return [] if horizon is None or horizon > times[-1] else [vertical(horizon, x)]


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
    drawn = _inked(curves)
    if not drawn:
        return empty(), NOT_HERE
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
    return calibration_curves(drawn), words


def _inked(items: Sequence[Found | None]) -> list[tuple[Found, str]]:
    """Return the curves, each with its model's colour; models without one are left out."""
    return [(item, ink) for item, ink in zip(items, SERIES, strict=False) if item is not None]


def _of(group: str | None) -> str:
    return "" if group is None else f" in the group {group}"


def risk_histogram(results: Results, horizon: float, group: str | None = None) -> tuple[Spec, str]:
    """Draw how many rows have each predicted risk, on the axis of the curve above it."""
    drawn = _inked([same(result.measured.calibration, horizon, group) for result in results])
    if not drawn:
        return empty(), NOT_HERE
    return risk_histograms(drawn), "Histogram of the predicted risks, beneath the calibration curve."


def pit(results: Results, method: str, group: str | None = None) -> tuple[Spec, str]:
    """Draw the histogram of F at the observed times, with the range in which a perfect model stays."""
    drawn = _inked([_pit_of(result, method, group) for result in results])
    if not drawn:
        return empty(), "Not measured."
    return pit_histograms(drawn), f"Histogram of F at the observed times{_of(group)}; a perfect model is flat."


def _pit_of(result: AuditResult, method: str, group: str | None) -> PitHistogram | None:
    found = (one for one in result.measured.pit if one.method == method and one.group == group)
    return next(found, None)


def pp(results: Results) -> tuple[Spec, str]:
    """Draw the distribution of F at the observed times against the diagonal."""
    drawn = _inked([result.measured.pp for result in results])
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


def covariate_parts(results: Results) -> tuple[Spec, str]:
    """Draw the mean of F for the parts of the covariates that are furthest off."""
    rows, words = [], []
    for name, parts in drawn_parts(results):
        for k, part in enumerate(parts):
            if part is not None:
                rows.append({"name": name, "x": part.mean, "low": part.lower, "high": part.upper, "series": k})
                words.append(f"{name}: {part.mean:.2f}")
    spec = dots(rows, title="Mean of F at the event", reference=0.5, form=".2f", second=len(results) > 1)
    return spec, f"Mean of F at the event by covariate; 0.5 is right. {'; '.join(words)}."


def subgroup(worst: WorstSubgroup) -> tuple[Spec, str]:
    """Draw the histogram of F in the subgroup that is most off, with the standard error of each bar."""
    left, right = worst.edges[:-1], worst.edges[1:]
    gap, base = 0.06 * (right - left), narrowest([worst.edges])
    mass, reach = (heights(part, worst.edges, base) for part in (worst.mass, 1.96 * worst.mass_error))
    rows = table(
        x=left + gap,
        x2=right - gap,
        middle=(left + right) / 2,
        y=mass,
        low=np.maximum(mass - reach, 0.0),
        high=mass + reach,
    )
    x = x_axis("F at the observed time", domain=[0, 1], form=".1f")
    y = y_axis("Share of the rows", domain=[0, 1.1 * float((mass + reach).max())], form=PERCENT)
    tips = [tip("y", "share", TIP_PERCENT), tip("low", "from", TIP_PERCENT), tip("high", "to", TIP_PERCENT)]
    whiskers = band(rows, {**x, "field": "middle"}, y, "observed")
    whiskers["mark"] = {"type": "rule", "strokeWidth": 1.5, "aria": False, "color": "var(--ink)"}
    layers = [bars(rows, x, y, "model", tips, opacity=0.8), whiskers, horizontal(base, y)]
    words = f"Histogram of F at the observed times of rows with {worst.rule}; a perfect model is flat."
    return chart(layers, height=260), words


# --- Charts of a report on order, errors, usefulness and the rows themselves; see `xcal.validation.charts`.


def values_with_intervals(
    results: Results,
    wanted: Wanted,
    *,
    title: str,
    reference: float | None,
) -> tuple[Spec, str]:
    """Draw numbers with their intervals, one line each."""
    rows, words = [], []
    for name, metric, horizon, group in wanted:
        for k, (model, result) in enumerate(zip(names(results), results, strict=True)):
            value = find(result, metric, horizon, group)
            if value is None:
                continue
            rows.append({"name": name, "x": value.value, "low": value.lower, "high": value.upper, "series": k})
            who = f"{model}, " if len(results) > 1 else ""
            words.append(f"{who}{name}: {_with_interval(value)}")
    form = {"percent": TIP_PERCENT, "ratio": ".2f"}.get(label(wanted[0][1]).form, ".3f")
    spec = dots(rows, title=title, reference=reference, form=form, second=len(results) > 1)
    return spec, f"{title}. " + "; ".join(words) + "."


def _with_interval(value: AuditValue) -> str:
    ends = interval(value)
    return f"{shown(value)} ({ends})" if ends else shown(value)


def brier(results: Results, horizon: float | None) -> tuple[Spec, str]:
    """Draw the Brier score over time beside that of a model without covariates."""
    over = results[0].measured.over_time
    x = x_axis(time_title(results[0].time_unit), domain=[0, float(over.times[-1])])
    scores = [over.brier_null, *(result.measured.over_time.brier for result in results)]
    y = y_axis("Brier score", form=".2f", domain=[0, extreme(scores, np.max, 0.25)], nice=True)
    layers = [line(table(x=over.times, y=over.brier_null), x, y, "reference", dashed=True)]
    words = "Brier score over time, beside that of the Kaplan-Meier curve."
    for result, ink in zip(results, SERIES, strict=False):
        curve = result.measured.over_time
        rows = table(x=curve.times, y=curve.brier, null=curve.brier_null)
        tips = [tip("x", "time", ".3~g"), tip("y", "model"), tip("null", "Kaplan-Meier")]
        layers += [line(rows, x, y, ink), hover(rows, x, y, tips, ink)]
    layers += at_horizon(horizon, over.times, x)
    return chart(layers, height=260), words


def decision(results: Results, horizon: float) -> tuple[Spec, str]:
    """Draw net benefit over thresholds, with treating everybody and nobody."""
    curves = [same(result.measured.decision, horizon) for result in results]
    there = [curve for curve in curves if curve is not None]
    if not there:
        return empty(), NOT_HERE
    first = there[0]
    low, high = benefit_limits(there)
    x = x_axis("Threshold: act above this risk", form=PERCENT, domain=ends_of(first.threshold))
    y = y_axis("Net benefit", domain=[low, high], form=".2f")
    layers = [
        line(table(x=first.threshold, y=first.treat_all), x, y, "reference", dashed=True),
        horizontal(0.0, y, dashed=False),
    ]
    for curve, ink in zip(curves, SERIES, strict=False):
        if curve is None:
            continue
        rows = table(x=curve.threshold, y=curve.model, low=curve.lower, high=curve.upper, all=curve.treat_all)
        tips = [tip("x", "threshold", PERCENT), tip("y", "model"), tip("all", "everybody")]
        layers += [band(rows, x, y, ink), line(rows, x, y, ink), hover(rows, x, y, tips, ink)]
    return chart(layers, height=280), f"Decision curve at {time_in_words(horizon, results[0].time_unit)}."


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


def risks_by_outcome(result: AuditResult, horizon: float, beside: Results = ()) -> tuple[Spec, str]:
    """Draw the predicted risks of rows with the event, without it, and censored before the horizon.

    The axis of shares is the same for the models `beside` it.
    """
    found = same(result.measured.risks, horizon)
    if found is None:
        return empty(), NOT_HERE
    x = x_axis("Predicted risk", domain=ends_of(found.edges), form=PERCENT)
    others = [same(other.measured.risks, horizon) for other in beside]
    pictured = [found, *(other for other in others if other is not None)]
    shares = [getattr(one, field) for one in pictured for field, _ in OUTCOMES]
    y = y_axis("Share of each", form=PERCENT, domain=[0, extreme(shares, np.max, 1.0)], nice=True)
    layers = []
    for field, text in OUTCOMES[:2]:
        rows = table(x=found.edges[:-1], x2=found.edges[1:], y=getattr(found, field))
        tips = [tip("x", "risk from", TIP_PERCENT), tip("x2", "to", TIP_PERCENT), tip("y", text, TIP_PERCENT)]
        layers.append(bars(rows, x, y, field, tips, opacity=0.3))
    # The outlines after both grounds, so that neither hides the other.
    for field, _ in OUTCOMES:
        shares = getattr(found, field)
        rows = table(x=found.edges, y=np.append(shares, shares[-1]))
        layers.append(line(rows, x, y, field, step=True, dashed=field == "censored"))
    counts = f"{found.n_with_event:,} with the event, {found.n_without_event:,} without, {found.n_censored:,} censored"
    return chart(layers, height=240), f"Risks at {time_in_words(horizon, result.time_unit)} by outcome: {counts}."


def outcome_keys(result: AuditResult) -> tuple[Key, ...]:
    """Legend of the outcomes."""
    return tuple(Key(text, ink, "dashed" if ink == "censored" else "box") for ink, text in OUTCOMES)


def followed(result: AuditResult) -> tuple[Spec, str]:
    """Draw how many rows are still under observation."""
    over = result.measured.over_time
    x = x_axis(time_title(result.time_unit), domain=[0, float(over.times[-1])])
    y = y_axis("Rows", form=",d")
    rows = table(x=over.times, y=over.at_risk, low=np.zeros(over.times.size), high=over.at_risk)
    tips = [tip("x", "time", ".3~g"), tip("y", "rows", ",")]
    layers = [band(rows, x, y, "model", opacity=0.2), line(rows, x, y, "model"), hover(rows, x, y, tips, "model")]
    last = int(over.at_risk[-1])
    return chart(layers, height=200), f"Rows still followed: {int(over.at_risk[0]):,} at first, {last:,} at the end."


def uncensored(result: AuditResult) -> tuple[Spec, str]:
    """Draw the share of rows not yet censored."""
    over = result.measured.over_time
    x = x_axis(time_title(result.time_unit), domain=[0, float(over.times[-1])])
    y = y_axis("Not yet censored", domain=[0, 1], form=PERCENT)
    rows = table(x=over.times, y=over.uncensored)
    tips = [tip("x", "time", ".3~g"), tip("y", "not censored", TIP_PERCENT)]
    left = written(float(over.uncensored[-1]), "percent")
    layers = [line(rows, x, y, "censored", step=True), hover(rows, x, y, tips, "censored")]
    return chart(layers, height=200), f"Share of rows not yet censored: {left} at the end."
