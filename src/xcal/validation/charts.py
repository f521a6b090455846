"""Charts of a report on calibration, as Vega-Lite specifications, for one model or several on the same axes."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from xcal.charts.calibration import (
    PERCENT,
    TIP_PERCENT,
    calibration_curves,
    extreme,
    heights,
    narrowest,
    only_words,
    pit_histograms,
    pp_curves,
    risk_histograms,
)
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
    vertical,
    x_axis,
    y_axis,
)
from xcal.charts.words import time_in_words, time_title
from xcal.metrics.inputs import Vector
from xcal.pages import Chart, Key
from xcal.validation.labels import find, names, shown
from xcal.validation.measurements import CovariatePart, PitHistogram, WorstSubgroup
from xcal.validation.result import AuditResult

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
