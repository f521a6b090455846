"""Charts of a report on order, errors, usefulness and the rows themselves; see `xcal.validation.charts`."""

from collections.abc import Sequence

import numpy as np

from xcal.charts.calibration import PERCENT, TIP_PERCENT, extreme
from xcal.charts.marks import (
    SERIES,
    Spec,
    band,
    bars,
    chart,
    dots,
    horizontal,
    hover,
    line,
    table,
    tip,
    x_axis,
    y_axis,
)
from xcal.charts.words import time_in_words, time_title, written
from xcal.metrics.inputs import Vector
from xcal.pages import Key
from xcal.validation.charts import NOT_HERE, Results, Wanted, at_horizon, empty, same
from xcal.validation.labels import find, interval, label, names, shown
from xcal.validation.measurements import AuditValue, DecisionCurve
from xcal.validation.result import AuditResult


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
