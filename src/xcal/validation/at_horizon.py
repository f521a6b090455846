"""Calibration at one horizon: what happened, row by row, beside what was predicted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from xcal._checks import FloatArray
from xcal._kaplan_meier import curve_of_counts
from xcal.metrics.calibration_slope import CalibrationSlope, slope_of
from xcal.metrics.ici import SmoothCalibration, smooth_calibration
from xcal.metrics.inputs import Vector, mean_of
from xcal.metrics.intervals import Distance
from xcal.metrics.observed_expected import ObservedExpected, error_of_mean, ratio
from xcal.metrics.pseudo_values import doubly_robust, jackknife
from xcal.metrics.risk_group_tests import group_labels
from xcal.validation.rows import Rows

# Risk groups whose Kaplan-Meier curves stand for the curves of a model that gives the risk at one time alone.
_RISK_GROUPS = 10


@dataclass(frozen=True, eq=False)
class CalibrationAt:
    """Calibration of some rows at one horizon.

    Where it is not known how long censored rows were seen (`Rows.seen`), values and curve are those of the first
    possibility, and the intervals hold those of all.

    Attributes
    ----------
    values : array, shape (n,)
        Pseudo-values of the event by the horizon.
    ratio : ObservedExpected
    slope : CalibrationSlope
    smooth : SmoothCalibration or None
        None where there are too few events for levels of risk.
    distances : mapping of str to Distance
        ICI, E50, E90 and Emax; empty there.
    ratios : tuple of float
        O/E for each of `Rows.seen`.
    """

    values: Vector
    ratio: ObservedExpected
    slope: CalibrationSlope
    smooth: SmoothCalibration | None
    distances: Mapping[str, Distance]
    ratios: tuple[float, ...]


def calibration_at(rows: Rows, horizon: float, level: float, *, fewest: int) -> CalibrationAt:
    """Measure calibration at a horizon within the follow-up, by level of risk if there are so many events by then."""
    found = [_of_part(rows, horizon, part, level, fewest) for part in rows.seen]
    first = found[0]
    if len(found) == 1:
        return first
    slopes = [one.slope for one in found]
    return replace(
        first,
        ratio=replace(
            first.ratio,
            lower=min(one.ratio.lower for one in found),
            upper=max(one.ratio.upper for one in found),
        ),
        slope=replace(
            first.slope,
            slope_lower=min(one.slope_lower for one in slopes),
            slope_upper=max(one.slope_upper for one in slopes),
            intercept_lower=min(one.intercept_lower for one in slopes),
            intercept_upper=max(one.intercept_upper for one in slopes),
        ),
        distances={name: _joined([one.distances[name] for one in found]) for name in first.distances},
        ratios=tuple(one.ratio.value for one in found),
    )


def _joined(distances: Sequence[Distance]) -> Distance:
    """Return the first distance with the interval that holds all of them."""
    lower, upper = min(one.lower for one in distances), max(one.upper for one in distances)
    return replace(distances[0], excess=min(one.excess for one in distances), lower=lower, upper=upper)


def _of_part(rows: Rows, horizon: float, part: float, level: float, fewest: int) -> CalibrationAt:
    """Measure with censored rows seen during this part of their last interval."""
    p, values = rows.risk[horizon], observed_values(rows, horizon, part)
    observed = observed_risk(rows, horizon, part, values)
    events = int(np.count_nonzero(rows.event & (rows.time <= horizon)))
    error = error_of_mean(values, observed, p, rows.clusters, rows.weights)
    oe = ratio(observed, mean_of(p, rows.weights), error, horizon, events, level)
    smooth = smooth_calibration(p, values, rows.clusters, rows.weights) if events >= fewest else None
    return CalibrationAt(
        values=values,
        ratio=oe,
        slope=slope_of(p, None if smooth is None else values, horizon, events, level, rows.clusters, rows.weights),
        smooth=smooth,
        distances={} if smooth is None else smooth.distances(level),
        ratios=(oe.value,),
    )


def observed_risk(rows: Rows, horizon: float, part: float, values: Vector) -> float:
    """Return the observed risk: one minus Kaplan-Meier, or the mean of values that are corrected for censoring."""
    if rows.censoring_model is not None:
        return mean_of(values, rows.weights)
    times, place = np.unique(rows.time, return_inverse=True)
    one = np.ones(rows.n) if rows.weights is None else rows.weights
    events, censored = (np.bincount(place, one * kind).astype(np.float64) for kind in (rows.event, ~rows.event))
    # Half of the rows that are censored in an interval count as gone before its events (the actuarial rule).
    mixed = None if part == 1 else np.full(times.size, True)
    return 1 - float(curve_of_counts(times.astype(np.float64), events, censored, mixed=mixed).at(horizon))


def observed_values(rows: Rows, horizon: float, part: float) -> Vector:
    """Return the pseudo-values of the event by a horizon, corrected for censoring where there is a model of it."""
    if rows.censoring_model is None:
        return jackknife(rows.time, rows.event, horizon, seen=part, weights=rows.weights)
    if rows.survival is not None and rows.times is not None and rows.cdfs:
        cdf = dict(zip(rows.seen, rows.cdfs, strict=False)).get(part, rows.cdfs[0])
        times, interpolation = rows.times, rows.interpolation
        survival: FloatArray = rows.survival
        # The observed time of a late row is read beyond the horizon, and not needed.
        own: Vector = np.where(rows.time > horizon, 1.0, 1 - cdf.astype(np.float64))
    else:
        survival, times = _curves_by_risk(rows, horizon)
        passed = np.searchsorted(times, rows.time, side="right")
        own = np.append(np.ones((rows.n, 1)), survival, axis=1)[np.arange(rows.n), passed].astype(np.float64)
        interpolation = "previous"
    return doubly_robust(survival, times, interpolation, own, rows.time, rows.event, horizon, rows.censoring_model)


def _curves_by_risk(rows: Rows, horizon: float) -> tuple[FloatArray, Vector]:
    """Return Kaplan-Meier curves of rows with similar risks, one for each row, where the model gives no curves."""
    label = group_labels(rows.risk[horizon], _RISK_GROUPS)
    times = np.unique(rows.time[rows.event & (rows.time <= horizon)]).astype(np.float64)
    curves = np.empty((int(label.max()) + 1, times.size))
    for k, curve in enumerate(curves):
        own = label == k
        at_risk = own.sum() - np.searchsorted(rows.time[own], times, side="left")
        dead = rows.time[own & rows.event]
        deaths = np.searchsorted(dead, times, side="right") - np.searchsorted(dead, times, side="left")
        curve[:] = np.cumprod(1 - np.divide(deaths, at_risk, out=np.zeros(times.size), where=at_risk > 0))
    return curves[label], times
