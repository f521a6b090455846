"""The metrics that `evaluate` knows: what each needs, what it gives, what a perfect model scores."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal.calibration import DCalibrationResult, d_calibration
from xcal.metrics.auc import cumulative_dynamic_auc
from xcal.metrics.brier import brier_score, integrated_brier_score, scaled_brier_score
from xcal.metrics.concordance import concordance_index
from xcal.metrics.cox import cox_calibration, cox_ici
from xcal.metrics.curves import both_curves, event_points, km_calibration
from xcal.metrics.ici import DISTANCES, smooth_calibration
from xcal.metrics.inputs import Vector
from xcal.metrics.intervals import UNKNOWN_DISTANCE, Distance
from xcal.metrics.observed_expected import (
    CalibrationSlope,
    ObservedExpected,
    error_of_mean,
    observed_expected,
    ratio,
    slope_of,
)
from xcal.metrics.one_calibration import one_calibration
from xcal.metrics.pit import quantile_slope
from xcal.metrics.predictions import Predictions
from xcal.metrics.pseudo_values import jackknife

Interval = tuple[float, float]


@dataclass(frozen=True)
class Entry:
    """One line of the registry.

    Attributes
    ----------
    needs : str
        The prediction without which it cannot be computed.
    compute : callable
        From predictions to named values.
    ideal : mapping
        The value of a perfect model for each name, None where there is no such value.
    resampled : bool
        Whether an interval by resampling rows makes sense; for a p-value it does not.
    intervals : callable, optional
        From predictions and a level to the intervals of the values by formula, in place of resamples.
    deviations : callable, optional
        For a squared distance from a perfect model, the vector whose squared length it is: ``deviations(points, rows)``
        of `rows`, at the places that `points` gives, so that two of them can be subtracted.
    clustered : bool
        Whether it holds for rows in clusters; a p-value that counts every row as one observation does not.
    weighted : bool
        Whether it holds for rows with sampling weights.
    """

    needs: str
    compute: Callable[[Predictions], Mapping[str, float]]
    ideal: Mapping[str, float | None]
    resampled: bool = True
    intervals: Callable[[Predictions, float], Mapping[str, Interval]] | None = None
    deviations: Callable[[Predictions, Predictions], Vector] | None = None
    clustered: bool = True
    weighted: bool = True


def _harrell(p: Predictions) -> Mapping[str, float]:
    result = concordance_index(time=p.time, event=p.event, predicted_time=p.predicted_time, weights=p.weights)
    return {"concordance_harrell": result.value}


def _uno(p: Predictions) -> Mapping[str, float]:
    result = concordance_index(
        time=p.time,
        event=p.event,
        predicted_time=p.predicted_time,
        method="uno",
        censoring=p.censoring,
        weights=p.weights,
    )
    return {"concordance_uno": result.value}


def _antolini(p: Predictions) -> Mapping[str, float]:
    result = concordance_index(
        time=p.time,
        event=p.event,
        survival=p.survival,
        times=p.times,
        interpolation=p.interpolation,
        weights=p.weights,
    )
    return {"concordance_antolini": result.value}


def _weighing(p: Predictions) -> dict[str, Any]:
    """Outcomes, the censoring curve and the rows' weights, as the metrics with weights for censoring take them."""
    return {"time": p.time, "event": p.event, "censoring": p.censoring, "weights": p.weights}


def _auc(p: Predictions) -> Mapping[str, float]:
    result = cumulative_dynamic_auc(p.probability, p.at, **_weighing(p))
    return {"auc": float(result.values[0])}


def _brier(p: Predictions) -> Mapping[str, float]:
    result = brier_score(1 - p.probability, p.at, **_weighing(p))
    return {"brier": float(result.values[0])}


def _ipa(p: Predictions) -> Mapping[str, float]:
    result = scaled_brier_score(1 - p.probability, p.at, **_weighing(p))
    return {"ipa": float(result.values[0])}


def _integrated_brier(p: Predictions) -> Mapping[str, float]:
    assert p.times is not None
    if p.times.size < 2:
        return {"integrated_brier": float("nan")}
    result = integrated_brier_score(p.survival, p.times, **_weighing(p))
    return {"integrated_brier": result.value}


def _d_calibration(p: Predictions) -> Mapping[str, float]:
    return {"d_calibration": _measured(p).value}


def _d_calibration_p(p: Predictions) -> Mapping[str, float]:
    """Return what a perfect model scores on average, and Akritas' p-value, the same for every method."""
    result = _measured(p)
    p_value = float("nan") if result.p_value is None else result.p_value
    return {"d_calibration_floor": result.floor, "d_calibration_p": p_value}


def _measured(p: Predictions) -> DCalibrationResult:
    clusters = None if p.clusters is None else p.clusters.codes
    return d_calibration(
        p.cdf,
        p.cdf_event,
        n_bins=p.n_bins,
        method=p.d_calibration_method,
        time=p.time,
        clusters=clusters,
        weights=p.weights,
    )


def _quantile_slope(p: Predictions) -> Mapping[str, float]:
    result = quantile_slope(p.cdf, event=p.cdf_event, weights=p.weights)
    return {"quantile_slope": result.slope, "quantile_intercept": result.intercept}


def _observed(p: Predictions) -> Vector:
    """Pseudo-values of the event by `at`; NaN where no row was followed so long."""
    followed = p.at <= p.time.max()
    return jackknife(p.time, p.event, p.at, weights=p.weights) if followed else np.full(p.time.size, np.nan)


def _ratio(p: Predictions, level: float) -> ObservedExpected:
    given: dict[str, Any] = {"at": p.at, "time": p.time, "event": p.event, "level": level, "weights": p.weights}
    plain = observed_expected(p.probability, interval="greenwood", **given)
    error = error_of_mean(_observed(p), plain.observed, p.probability, p.clusters, p.weights)
    return ratio(plain.observed, plain.expected, error, p.at, plain.n_events, level)


def _oe(p: Predictions) -> Mapping[str, float]:
    return {"oe": _ratio(p, 0.95).value}


def _oe_intervals(p: Predictions, level: float) -> Mapping[str, Interval]:
    found = _ratio(p, level)
    return {"oe": (found.lower, found.upper)}


def _regression(p: Predictions, level: float) -> CalibrationSlope:
    events = int(np.count_nonzero(p.event & (p.time <= p.at)))
    observed = _observed(p) if events and p.at <= p.time.max() else None
    return slope_of(p.probability, observed, p.at, events, level, p.clusters, p.weights)


def _slope(p: Predictions) -> Mapping[str, float]:
    found = _regression(p, 0.95)
    return {"slope": found.slope, "intercept": found.intercept}


def _slope_intervals(p: Predictions, level: float) -> Mapping[str, Interval]:
    found = _regression(p, level)
    return {
        "slope": (found.slope_lower, found.slope_upper),
        "intercept": (found.intercept_lower, found.intercept_upper),
    }


def _cox_calibration(p: Predictions) -> Mapping[str, float]:
    result = cox_calibration(p.probability, at=p.at, time=p.time, event=p.event)
    return {"cox_slope": result.slope, "cox_intercept": result.intercept}


def _one_calibration(p: Predictions) -> Mapping[str, float]:
    result = one_calibration(p.probability, at=p.at, time=p.time, event=p.event, cdf=p.cdf, n_risk_groups=p.n_bins)
    return {"one_calibration_p": result.p_value}


def _distances(p: Predictions, level: float) -> Mapping[str, Distance]:
    observed = _observed(p)
    if np.isnan(observed).any():
        return dict.fromkeys(DISTANCES, UNKNOWN_DISTANCE)
    return smooth_calibration(p.probability, observed, p.clusters, p.weights).distances(level)


def _ici(p: Predictions) -> Mapping[str, float]:
    found = _distances(p, 0.95)
    floors = {f"{name}_floor": distance.floor for name, distance in found.items()}
    return {name: distance.value for name, distance in found.items()} | floors


def _ici_intervals(p: Predictions, level: float) -> Mapping[str, Interval]:
    return {name: (distance.lower, distance.upper) for name, distance in _distances(p, level).items()}


def _ici_cox(p: Predictions) -> Mapping[str, float]:
    found = cox_ici(p.probability, at=p.at, time=p.time, event=p.event)
    return {"ici_cox": found.value, "e50_cox": found.e50, "e90_cox": found.e90, "emax_cox": found.emax}


def _km_calibration(p: Predictions) -> Mapping[str, float]:
    given: dict[str, Any] = {"time": p.time, "event": p.event, "weights": p.weights}
    result = km_calibration(p.survival, p.times, interpolation=p.interpolation, **given)
    return {"km_calibration": result.value}


def _histogram_deviations(points: Predictions, rows: Predictions) -> Vector:
    """Mass less width of each bin."""
    given: dict[str, Any] = {"n_bins": rows.n_bins, "method": rows.d_calibration_method, "time": rows.time}
    result = d_calibration(rows.cdf, rows.cdf_event, p_value=None, weights=rows.weights, **given)
    return np.asarray(result.histogram - np.diff(result.edges))


def _curve_deviations(points: Predictions, rows: Predictions) -> Vector:
    """Average predicted less Kaplan-Meier curve at the events of `points`; the sum of squares is the integral."""
    assert rows.survival is not None
    assert rows.times is not None
    where = event_points(points.time, points.event, rows.times)
    if where.size < 2:
        return np.full(1, np.nan)
    given = (rows.survival, rows.times, rows.time, rows.event, where, rows.interpolation)
    predicted, observed = both_curves(*given, rows.weights)
    gaps = np.diff(where)
    share = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2 / where[-1]
    return np.asarray(np.sqrt(share) * (predicted - observed))


ENTRIES: Mapping[str, Entry] = {
    "harrell": Entry("predicted_time", _harrell, {"concordance_harrell": 1}),
    "uno": Entry("predicted_time", _uno, {"concordance_uno": 1}),
    "antolini": Entry("survival", _antolini, {"concordance_antolini": 1}),
    "auc": Entry("survival", _auc, {"auc": 1}),
    "brier": Entry("survival", _brier, {"brier": 0}),
    "ipa": Entry("survival", _ipa, {"ipa": 1}),
    "integrated_brier": Entry("survival", _integrated_brier, {"integrated_brier": 0}),
    "d_calibration": Entry("cdf", _d_calibration, {"d_calibration": 0}, deviations=_histogram_deviations),
    "d_calibration_p": Entry(
        "cdf", _d_calibration_p, {"d_calibration_floor": None, "d_calibration_p": None}, resampled=False
    ),
    "quantile_slope": Entry("cdf", _quantile_slope, {"quantile_slope": 1, "quantile_intercept": 0}),
    "oe": Entry("survival", _oe, {"oe": 1}, intervals=_oe_intervals),
    "slope": Entry("survival", _slope, {"slope": 1, "intercept": 0}, intervals=_slope_intervals),
    "one_calibration": Entry(
        "survival",
        _one_calibration,
        {"one_calibration_p": None},
        resampled=False,
        clustered=False,
        weighted=False,
    ),
    "ici": Entry(
        "survival",
        _ici,
        {name: 0 for name in DISTANCES} | {f"{name}_floor": None for name in DISTANCES},
        intervals=_ici_intervals,
    ),
    "km_calibration": Entry("survival", _km_calibration, {"km_calibration": 0}, deviations=_curve_deviations),
    # As in published guidelines; right where hazards are proportional, and only there.
    "cox_calibration": Entry("survival", _cox_calibration, {"cox_slope": 1, "cox_intercept": 0}, weighted=False),
    "ici_cox": Entry(
        "survival",
        _ici_cox,
        {"ici_cox": 0, "e50_cox": 0, "e90_cox": 0, "emax_cox": 0},
        resampled=False,
        weighted=False,
    ),
}

# Every name under which a metric can be asked for: its own, and those of the values it gives.
NAMES: Mapping[str, str] = {
    **{name: name for name in ENTRIES},
    **{value: name for name, entry in ENTRIES.items() for value in entry.ideal},
}


def compute(names: Iterable[str], predictions: Predictions) -> dict[str, float]:
    """Every value of the named entries."""
    return {key: value for name in names for key, value in ENTRIES[name].compute(predictions).items()}
