"""All metrics of xcal in one table: what each needs and computes, and every number that it gives as people read it.

`METRICS` has one entry per computation, in the order of `evaluate`: the prediction that it needs, its function, how its
intervals come, what of it merges. `VALUES` has one line per number, in the order of an audit's table: its label, how it
is written, what a perfect model scores, which direction is better, and where it is shown. Everything that asks which
metrics there are reads these two.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal.calibration.dcalibration import d_calibration
from xcal.calibration.significance import DCalibrationResult
from xcal.calibration.streaming import DCalibration
from xcal.metrics.auc import cumulative_dynamic_auc
from xcal.metrics.brier import StreamingBrier, brier_score, integrated_brier_score, scaled_brier_score
from xcal.metrics.concordance import StreamingConcordance, concordance_index
from xcal.metrics.cox import cox_calibration, cox_ici
from xcal.metrics.cox_ici_streaming import StreamingCoxICI
from xcal.metrics.curves import both_curves, event_points, km_calibration
from xcal.metrics.ici import DISTANCES, smooth_calibration
from xcal.metrics.inputs import Form, Vector
from xcal.metrics.intervals import GAIN, PLAIN, POSITIVE, SHARE, UNKNOWN_DISTANCE, Distance, Scale
from xcal.metrics.observed_expected import (
    CalibrationSlope,
    ObservedExpected,
    StreamingObservedExpected,
    error_of_mean,
    observed_expected,
    ratio,
    slope_of,
)
from xcal.metrics.one_calibration import StreamingOneCalibration, one_calibration
from xcal.metrics.pit import quantile_slope
from xcal.metrics.predictions import Predictions
from xcal.metrics.pseudo_values import jackknife

Interval = tuple[float, float]

# --- Every number that is shown of a model.


@dataclass(frozen=True)
class Value:
    """One number: what it is called inside and in an audit, and how people meet it.

    Attributes
    ----------
    metric, name, hint : str
        Its name in an audit, what people call it, and one line on how to read it.
    form : str
        How it is written.
    perfect : float, optional
        The value of a perfect model; None where there is no such value.
    better : {1, -1, 0}
        1 if higher is better, -1 if lower; 0 where neither is.
    good : tuple of two floats, optional
        Range that is good enough for a verdict.
    at_horizon : bool
        Whether there is one for each horizon.
    scale : Scale
        Where it has no bounds and its resamples are closer to normal.
    compared : bool
        Whether a difference of two models means something: not where it says something about test or rows.
    main : bool
        Whether it is among the first that a person compares, and a difference is called better or worse.
    text : int
        Place in the short text of an audit; 0 if it is not there.
    analytic : str
        Its name among the values of an audit whose intervals have a formula; "" where they come from resamples.
    column : str
        Its name in a result of `evaluate`, by default `metric`.
    """

    metric: str
    name: str
    form: Form
    hint: str = ""
    perfect: float | None = None
    better: int = 0
    good: Interval | None = None
    at_horizon: bool = False
    scale: Scale = PLAIN
    compared: bool = True
    main: bool = False
    text: int = 0
    analytic: str = ""
    column: str = ""


_AT: dict[str, Any] = {"at_horizon": True}
_BESIDE: dict[str, Any] = {"compared": False}
_CONCORDANCE: dict[str, Any] = {"perfect": 1, "better": 1, "main": True, "scale": SHARE}
_NUMBER_OF_TESTS = "for the number of tests at horizons"
_NOISE, _UNEXPLAINED = "its mean on as many rows", "what noise does not explain; 0 is right"
_PERFECT_ROWS = "mean of a perfect model on as many rows"
_BY_COX = "misleads where hazards are not proportional"
_FLOOR = "0 is right; compare with the floor"


def _p(metric: str, label: str, hint: str) -> tuple[Value, Value]:
    """Return the p-value of a test at horizons, alone and corrected."""
    return (
        Value(f"{metric}_p", f"{label}, p", "p", hint, **_AT, **_BESIDE),
        Value(f"{metric}_p_corrected", f"{label}, p (corrected)", "p", _NUMBER_OF_TESTS, **_AT, **_BESIDE),
    )


def _distance(
    metric: str, name: str, hint: str, floor: str = _NOISE, text: int = 0, **given: Any
) -> tuple[Value, Value, Value]:
    """Return a distance of risks from what happened, what a perfect model scores, and what noise leaves of it."""
    beside: dict[str, Any] = {**_AT, **_BESIDE}
    return (
        Value(metric, name, "fraction", hint, perfect=0, better=-1, **_AT, text=text, **given),
        Value(f"{metric}_floor", f"{name} of a perfect model", "fraction", floor, **beside, text=text and text + 1),
        Value(f"{metric}_excess", f"{name} without noise", "fraction", _UNEXPLAINED, **beside),
    )


# Values that are averaged over sites, with the scale on which the sites are taken to be normal.
ACROSS_SITES: Mapping[str, Scale] = {"auc": SHARE, "oe": POSITIVE, "slope": PLAIN, "ici_excess": PLAIN}


def _across_sites(metric: str, name: str, form: Form) -> tuple[Value, Value, Value, Value]:
    """Return a value's mean over sites, its interval for a new one, and how much the sites differ."""
    given: dict[str, Any] = {**_AT, **_BESIDE}
    return (
        Value(f"{metric}_sites", f"{name}, mean over sites", form, "random effects", **given),
        Value(
            f"{metric}_new_site", f"{name}, a new site", form, "the interval is where a new site is expected", **given
        ),
        Value(f"{metric}_sites_tau2", f"{name}, tau² between sites", "small", "variance beyond chance", **given),
        Value(f"{metric}_sites_i2", f"{name}, I² between sites", "percent", "share of variance beyond chance", **given),
    )


def _d_calibration(metric: str, of: str, excess: str, text: int = 0, **given: Any) -> tuple[Value, Value, Value]:
    """Return D-calibration by one treatment of censored rows, its floor and its excess."""
    return (
        Value(metric, f"D-calibration ({of})", "small", _FLOOR, perfect=0, better=-1, text=text, **given),
        Value(f"{metric}_floor", f"Floor ({of})", "small", _PERFECT_ROWS, **_BESIDE, text=text and text + 1),
        Value(f"{metric}_excess", f"Without noise ({of})", "small", excess, **_BESIDE),
    )


# One number, one or two lines.
# fmt: off
VALUES: Mapping[str, Value] = {
    value.metric: value
    for value in (
        Value("harrell", "Harrell's C", "fraction", "1 orders every pair rightly, 0.5 is chance",
            **_CONCORDANCE, text=1, column="concordance_harrell"),
        Value("uno", "Uno's C", "fraction", "as Harrell's, corrected for censoring",
            **_CONCORDANCE, text=2, column="concordance_uno"),
        Value("antolini", "Antolini's C", "fraction", "as Harrell's, for curves that cross",
            **_CONCORDANCE, text=3, column="concordance_antolini"),
        Value("auc", "AUC", "fraction", "1 separates who has the event by then, 0.5 is chance",
            **_CONCORDANCE, **_AT, text=7),
        Value("oe", "O/E", "ratio", "events observed per event expected; 1 is right",
            perfect=1, good=(0.8, 1.25), **_AT, text=3, analytic="O/E"),
        *_p("oe", "O/E", "test that the risks are right on average"),
        Value("mean_risk", "Mean predicted risk", "percent", "average over all rows", **_AT, text=1),
        Value("observed_risk", "Observed risk", "percent", "by Kaplan-Meier", **_AT, **_BESIDE, text=2),
        Value("slope", "Calibration slope", "ratio", "1 is right; below 1: risks too extreme",
            perfect=1, good=(0.8, 1.25), **_AT, text=4, analytic="slope"),
        *_p("slope", "Calibration slope", "test that the slope is 1"),
        Value("intercept", "Calibration intercept", "ratio", "0 is right; below 0: risks too high",
            perfect=0, **_AT, analytic="intercept"),
        *_distance("ici", "ICI", "mean distance of predicted from observed risk", f"{_NOISE}: noise alone",
            good=(0.0, 0.05), main=True, text=5, analytic="ICI"),
        *_p("ici", "ICI", "test that the risks are right at each level"),
        *_distance("e50", "E50", "median of that distance"),
        *_distance("e90", "E90", "nine rows in ten are closer than this"),
        *_distance("emax", "Emax", "the largest distance"),
        Value("one_calibration_p", "One-calibration, p", "p", "test of the risk groups at the horizon",
            **_AT, **_BESIDE),
        Value("event_ratio", "Events per expected event", "ratio", "over the time under observation; 1 is right",
            perfect=1, good=(0.8, 1.25), text=3, analytic="events per expected event"),
        Value("event_ratio_p", "Events per expected event, p", "p", "test that they are right on average", **_BESIDE),
        Value("event_ratio_p_corrected", "Events per expected event, p (Holm)", "p",
            "corrected for the number of groups", **_BESIDE),
        *_d_calibration("d_calibration", "uniform", "what noise does not explain",
            text=4, main=True, analytic="D-calibration"),
        *_d_calibration("d_calibration_km", "Kaplan-Meier", _UNEXPLAINED),
        *_d_calibration("d_calibration_ipcw", "weighted", "what noise does not explain"),
        Value("d_calibration_p", "D-calibration, p", "p", "alone; of a perfect model below 0.05 in 5 of 100 audits",
            **_BESIDE, text=6),
        Value("d_calibration_p_corrected", "D-calibration, p (Holm)", "p", "corrected for the number of groups",
            **_BESIDE),
        Value("quantile_slope", "Slope over quantiles of F", "ratio", "1 is right", perfect=1),
        Value("quantile_intercept", "Intercept over quantiles of F", "ratio", "0 is right", perfect=0),
        Value("km_calibration", "KM calibration", "small", "mean prediction against Kaplan-Meier over time",
            perfect=0, better=-1),
        Value("km_calibration_floor", "KM calibration of a perfect model", "small", _NOISE, **_BESIDE),
        Value("km_calibration_excess", "KM calibration without noise", "small", _UNEXPLAINED, **_BESIDE),
        Value("conditional_calibration", "Conditional calibration", "small", "0 is right; compare with its noise",
            perfect=0, better=-1, text=7),
        Value("conditional_calibration_floor", "Noise taken off", "small",
            "what chance alone adds; the value is without it", **_BESIDE),
        Value("conditional_calibration_noise", "Noise left", "small",
            "standard deviation of the value of a right model", **_BESIDE),
        Value("conditional_calibration_p", "Conditional calibration, p", "p",
            "below 0.05: not right for all covariates", **_BESIDE, text=8),
        Value("subgroup_p", "Subgroup most off, p", "p", "on rows that took no part in the search", **_BESIDE),
        Value("brier", "Brier score", "fraction", "mean squared error; 0 is best",
            perfect=0, better=-1, **_AT, scale=POSITIVE, text=8),
        Value("ipa", "IPA", "percent", "error saved against no covariates; higher is better",
            perfect=1, better=1, **_AT, scale=GAIN, main=True, text=9),
        Value("ibs", "Integrated Brier score", "fraction", "Brier score averaged over time",
            perfect=0, better=-1, scale=POSITIVE, main=True, text=9, column="integrated_brier"),
        Value("nll", "Negative log-likelihood", "fraction", "lower is better, for models of the same rows",
            better=-1, main=True, text=10),
        *_across_sites("auc", "AUC", "fraction"),
        *_across_sites("oe", "O/E", "ratio"),
        *_across_sites("slope", "Calibration slope", "ratio"),
        *_across_sites("ici_excess", "ICI without noise", "fraction"),
        Value("cox_slope", "Slope by a Cox model", "ratio", _BY_COX, perfect=1),
        Value("cox_intercept", "Intercept by a Cox model", "ratio", _BY_COX, perfect=0),
        *(
            Value(f"{name}_cox", f"{label} by a Cox model", "fraction", _BY_COX, perfect=0, better=-1, **_AT, **_BESIDE)
            for name, label in (("ici", "ICI"), ("e50", "E50"), ("e90", "E90"), ("emax", "Emax"))
        ),
    )
}
# fmt: on


# --- How each is computed from checked predictions.


@dataclass(frozen=True)
class Metric:
    """One computation of `evaluate`.

    Attributes
    ----------
    needs : str
        The prediction without which it cannot be computed.
    gives : tuple of str
        Names of its values in `VALUES`.
    compute : callable
        From predictions to these, by name.
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
    accumulator : class, optional
        What computes it over chunks, processes or files.
    """

    needs: str
    gives: tuple[str, ...]
    compute: Callable[[Predictions], Mapping[str, float]]
    resampled: bool = True
    intervals: Callable[[Predictions, float], Mapping[str, Interval]] | None = None
    deviations: Callable[[Predictions, Predictions], Vector] | None = None
    clustered: bool = True
    weighted: bool = True
    accumulator: type | None = None


def _outcome(p: Predictions) -> dict[str, Any]:
    return {"time": p.time, "event": p.event, "weights": p.weights}


def _weighing(p: Predictions) -> dict[str, Any]:
    """Outcomes, the rows' weights and the censoring curve, as the metrics with weights for censoring take them."""
    return {**_outcome(p), "censoring": p.censoring}


def _harrell(p: Predictions) -> Mapping[str, float]:
    return {"harrell": concordance_index(predicted_time=p.predicted_time, **_outcome(p)).value}


def _uno(p: Predictions) -> Mapping[str, float]:
    return {"uno": concordance_index(predicted_time=p.predicted_time, method="uno", **_weighing(p)).value}


def _antolini(p: Predictions) -> Mapping[str, float]:
    curves: dict[str, Any] = {"survival": p.survival, "times": p.times, "interpolation": p.interpolation}
    return {"antolini": concordance_index(**curves, **_outcome(p)).value}


def _auc(p: Predictions) -> Mapping[str, float]:
    return {"auc": float(cumulative_dynamic_auc(p.probability, p.at, **_weighing(p)).values[0])}


def _brier(p: Predictions) -> Mapping[str, float]:
    return {"brier": float(brier_score(1 - p.probability, p.at, **_weighing(p)).values[0])}


def _ipa(p: Predictions) -> Mapping[str, float]:
    return {"ipa": float(scaled_brier_score(1 - p.probability, p.at, **_weighing(p)).values[0])}


def _integrated_brier(p: Predictions) -> Mapping[str, float]:
    assert p.times is not None
    if p.times.size < 2:
        return {"ibs": float("nan")}
    return {"ibs": integrated_brier_score(p.survival, p.times, **_weighing(p)).value}


def _d_calibration_value(p: Predictions) -> Mapping[str, float]:
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
    return jackknife(p.outcome, p.at, weights=p.weights) if followed else np.full(p.time.size, np.nan)


def _ratio(p: Predictions, level: float) -> ObservedExpected:
    plain = observed_expected(p.probability, at=p.at, interval="greenwood", level=level, **_outcome(p))
    error = error_of_mean(_observed(p), plain.observed, p.probability, p.clusters, p.weights)
    return ratio(plain.observed, plain.expected, error, p.at, plain.n_events, level)


def _oe(p: Predictions) -> Mapping[str, float]:
    return {"oe": _ratio(p, 0.95).value}


def _oe_intervals(p: Predictions, level: float) -> Mapping[str, Interval]:
    found = _ratio(p, level)
    return {"oe": (found.lower, found.upper)}


def _regression(p: Predictions, level: float) -> CalibrationSlope:
    events = int(np.count_nonzero(p.outcome.happened_by(p.at)))
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
    result = km_calibration(p.survival, p.times, interpolation=p.interpolation, **_outcome(p))
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
    where = event_points(points.outcome, rows.times)
    if where.size < 2:
        return np.full(1, np.nan)
    given = (rows.survival, rows.times, rows.outcome, where, rows.interpolation)
    predicted, observed = both_curves(*given, rows.weights)
    gaps = np.diff(where)
    share = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2 / where[-1]
    return np.asarray(np.sqrt(share) * (predicted - observed))


METRICS: Mapping[str, Metric] = {
    "harrell": Metric("predicted_time", ("harrell",), _harrell, accumulator=StreamingConcordance),
    "uno": Metric("predicted_time", ("uno",), _uno),
    "antolini": Metric("survival", ("antolini",), _antolini),
    "auc": Metric("survival", ("auc",), _auc),
    "brier": Metric("survival", ("brier",), _brier, accumulator=StreamingBrier),
    "ipa": Metric("survival", ("ipa",), _ipa),
    "integrated_brier": Metric("survival", ("ibs",), _integrated_brier, accumulator=StreamingBrier),
    "d_calibration": Metric(
        "cdf", ("d_calibration",), _d_calibration_value, deviations=_histogram_deviations, accumulator=DCalibration
    ),
    "d_calibration_p": Metric("cdf", ("d_calibration_floor", "d_calibration_p"), _d_calibration_p, resampled=False),
    "quantile_slope": Metric("cdf", ("quantile_slope", "quantile_intercept"), _quantile_slope),
    "oe": Metric("survival", ("oe",), _oe, intervals=_oe_intervals, accumulator=StreamingObservedExpected),
    "slope": Metric("survival", ("slope", "intercept"), _slope, intervals=_slope_intervals),
    "one_calibration": Metric(
        "survival",
        ("one_calibration_p",),
        _one_calibration,
        resampled=False,
        clustered=False,
        weighted=False,
        accumulator=StreamingOneCalibration,
    ),
    "ici": Metric("survival", (*DISTANCES, *(f"{name}_floor" for name in DISTANCES)), _ici, intervals=_ici_intervals),
    "km_calibration": Metric("survival", ("km_calibration",), _km_calibration, deviations=_curve_deviations),
    # As in published guidelines; right where hazards are proportional, and only there.
    "cox_calibration": Metric("survival", ("cox_slope", "cox_intercept"), _cox_calibration, weighted=False),
    "ici_cox": Metric(
        "survival",
        ("ici_cox", "e50_cox", "e90_cox", "emax_cox"),
        _ici_cox,
        resampled=False,
        weighted=False,
        accumulator=StreamingCoxICI,
    ),
}


def column(name: str) -> str:
    """Return the name of a value in a result of `evaluate`."""
    return VALUES[name].column or name


# Root mean square error of the bins of D-calibration beyond noise, as a share of what a bin should hold, that is good
# enough.
GOOD_BINS = 0.15


def good_range(name: str) -> Interval:
    """Return the range in which a value is good enough."""
    found = VALUES[name].good
    assert found is not None, name
    return found


# Every name under which a metric can be asked for: its own, and those of the values it gives.
NAMES: Mapping[str, str] = {
    **{name: name for name in METRICS},
    **{column(value): name for name, metric in METRICS.items() for value in metric.gives},
}
