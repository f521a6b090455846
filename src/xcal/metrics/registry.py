"""The metrics that `evaluate` knows: what each needs, what it gives, what a perfect model scores."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from xcal._deprecation import warn_renamed
from xcal.calibration import DCalibrationResult, d_calibration
from xcal.metrics.auc import cumulative_dynamic_auc
from xcal.metrics.brier import brier_score, integrated_brier_score
from xcal.metrics.concordance import concordance_index
from xcal.metrics.cox_calibration import cox_calibration
from xcal.metrics.ici import integrated_calibration_index, smoothed
from xcal.metrics.inputs import Vector
from xcal.metrics.intervals import Distance, euclidean
from xcal.metrics.km_calibration import both_curves, event_points, km_calibration
from xcal.metrics.observed_expected import observed_expected
from xcal.metrics.one_calibration import one_calibration
from xcal.metrics.predictions import Predictions
from xcal.metrics.quantile_slope import quantile_slope
from xcal.metrics.scaled_brier import scaled_brier_score


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
    distance : Distance, optional
        For a metric that is zero at best, the deviations whose length it is.
    clustered : bool
        Whether it holds for rows in clusters; a p-value that counts every row as one observation does not.
    """

    needs: str
    compute: Callable[[Predictions], Mapping[str, float]]
    ideal: Mapping[str, float | None]
    resampled: bool = True
    distance: Distance | None = None
    clustered: bool = True


def _harrell(p: Predictions) -> Mapping[str, float]:
    result = concordance_index(time=p.time, event=p.event, predicted_time=p.predicted_time)
    return {"concordance_harrell": result.value}


def _uno(p: Predictions) -> Mapping[str, float]:
    result = concordance_index(
        time=p.time, event=p.event, predicted_time=p.predicted_time, method="uno", censoring=p.censoring
    )
    return {"concordance_uno": result.value}


def _antolini(p: Predictions) -> Mapping[str, float]:
    result = concordance_index(
        time=p.time, event=p.event, survival=p.survival, times=p.times, interpolation=p.interpolation
    )
    return {"concordance_antolini": result.value}


def _auc(p: Predictions) -> Mapping[str, float]:
    result = cumulative_dynamic_auc(p.probability, p.at, time=p.time, event=p.event, censoring=p.censoring)
    return {"auc": float(result.values[0])}


def _brier(p: Predictions) -> Mapping[str, float]:
    result = brier_score(1 - p.probability, p.at, time=p.time, event=p.event, censoring=p.censoring)
    return {"brier": float(result.values[0])}


def _ipa(p: Predictions) -> Mapping[str, float]:
    result = scaled_brier_score(1 - p.probability, p.at, time=p.time, event=p.event, censoring=p.censoring)
    return {"ipa": float(result.values[0])}


def _integrated_brier(p: Predictions) -> Mapping[str, float]:
    assert p.times is not None
    if p.times.size < 2:
        return {"integrated_brier": float("nan")}
    result = integrated_brier_score(p.survival, p.times, time=p.time, event=p.event, censoring=p.censoring)
    return {"integrated_brier": result.value}


def _d_calibration(p: Predictions) -> Mapping[str, float]:
    return {"d_calibration": _measured(p).value}


def _d_calibration_p(p: Predictions) -> Mapping[str, float]:
    """Give what a perfect model scores on average, and Akritas' p-value, the same for every method."""
    result = _measured(p)
    p_value = float("nan") if result.p_value is None else result.p_value
    return {"d_calibration_floor": result.floor, "d_calibration_p": p_value}


def _measured(p: Predictions) -> DCalibrationResult:
    clusters = None if p.clusters is None else p.clusters.codes
    method = p.d_calibration_method
    return d_calibration(p.cdf, p.cdf_event, n_bins=p.n_bins, method=method, time=p.time, clusters=clusters)


def _quantile_slope(p: Predictions) -> Mapping[str, float]:
    result = quantile_slope(p.cdf, event=p.cdf_event)
    return {"quantile_slope": result.slope, "quantile_intercept": result.intercept}


def _oe(p: Predictions) -> Mapping[str, float]:
    return {"oe": observed_expected(p.probability, at=p.at, time=p.time, event=p.event).value}


def _cox_calibration(p: Predictions) -> Mapping[str, float]:
    result = cox_calibration(p.probability, at=p.at, time=p.time, event=p.event)
    return {"cox_slope": result.slope, "cox_intercept": result.intercept}


def _one_calibration(p: Predictions) -> Mapping[str, float]:
    result = one_calibration(p.probability, at=p.at, time=p.time, event=p.event, cdf=p.cdf, n_risk_groups=p.n_bins)
    return {"one_calibration_p": result.p_value}


def _ici(p: Predictions) -> Mapping[str, float]:
    result = integrated_calibration_index(p.probability, at=p.at, time=p.time, event=p.event)
    return {"ici": result.value, "e50": result.e50, "e90": result.e90, "emax": result.emax}


def _km_calibration(p: Predictions) -> Mapping[str, float]:
    result = km_calibration(p.survival, p.times, time=p.time, event=p.event, interpolation=p.interpolation)
    return {"km_calibration": result.value}


def _histogram_deviations(points: Predictions, rows: Predictions) -> Vector:
    """Mass less width of each bin."""
    method = rows.d_calibration_method
    result = d_calibration(rows.cdf, rows.cdf_event, n_bins=rows.n_bins, method=method, time=rows.time, p_value=None)
    return np.asarray(result.histogram - np.diff(result.edges))


def _smooth_deviations(points: Predictions, rows: Predictions) -> Vector:
    """Predicted less smoothed observed probability, at the predictions of `points`; NaN where nothing can be fitted."""
    predicted = points.probability
    observed, _, converged = smoothed(rows.probability, predicted, rows.time, rows.event, rows.at)
    return np.where(converged and rows.at <= rows.time.max(), predicted - observed, np.nan)


def _curve_deviations(points: Predictions, rows: Predictions) -> Vector:
    """Average predicted less Kaplan-Meier curve at the events of `points`; the sum of squares is the integral."""
    assert rows.survival is not None
    assert rows.times is not None
    where = event_points(points.time, points.event, rows.times)
    if where.size < 2:
        return np.full(1, np.nan)
    predicted, observed = both_curves(rows.survival, rows.times, rows.time, rows.event, where, rows.interpolation)
    gaps = np.diff(where)
    share = (np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2 / where[-1]
    return np.asarray(np.sqrt(share) * (predicted - observed))


ERRORS: Mapping[str, Callable[[Vector], float]] = {
    "ici": lambda deviations: float(np.abs(deviations).mean()),
    "e50": lambda deviations: float(np.quantile(np.abs(deviations), 0.5)),
    "e90": lambda deviations: float(np.quantile(np.abs(deviations), 0.9)),
    "emax": lambda deviations: float(np.abs(deviations).max()),
}

ENTRIES: Mapping[str, Entry] = {
    "harrell": Entry("predicted_time", _harrell, {"concordance_harrell": 1}),
    "uno": Entry("predicted_time", _uno, {"concordance_uno": 1}),
    "antolini": Entry("survival", _antolini, {"concordance_antolini": 1}),
    "auc": Entry("survival", _auc, {"auc": 1}),
    "brier": Entry("survival", _brier, {"brier": 0}),
    "ipa": Entry("survival", _ipa, {"ipa": 1}),
    "integrated_brier": Entry("survival", _integrated_brier, {"integrated_brier": 0}),
    "d_calibration": Entry(
        "cdf",
        _d_calibration,
        {"d_calibration": 0},
        distance=Distance(_histogram_deviations, {"d_calibration": euclidean}, squared=True),
    ),
    "d_calibration_p": Entry(
        "cdf", _d_calibration_p, {"d_calibration_floor": None, "d_calibration_p": None}, resampled=False
    ),
    "quantile_slope": Entry("cdf", _quantile_slope, {"quantile_slope": 1, "quantile_intercept": 0}),
    "oe": Entry("survival", _oe, {"oe": 1}),
    "cox_calibration": Entry("survival", _cox_calibration, {"cox_slope": 1, "cox_intercept": 0}),
    "one_calibration": Entry(
        "survival", _one_calibration, {"one_calibration_p": None}, resampled=False, clustered=False
    ),
    "ici": Entry(
        "survival",
        _ici,
        {"ici": 0, "e50": 0, "e90": 0, "emax": 0},
        distance=Distance(_smooth_deviations, ERRORS, squared=False),
    ),
    "km_calibration": Entry(
        "survival",
        _km_calibration,
        {"km_calibration": 0},
        distance=Distance(_curve_deviations, {"km_calibration": euclidean}, squared=True),
    ),
}

# Every name under which a metric can be asked for: its own, and those of the values it gives.
NAMES: Mapping[str, str] = {
    **{name: name for name in ENTRIES},
    **{value: name for name, entry in ENTRIES.items() for value in entry.ideal},
}

# Names until 0.2.0, and what they are called now.
FORMER_NAMES: Mapping[str, str] = {
    "calibration_slope": "quantile_slope",
    "calibration_intercept": "quantile_intercept",
}


def compute(names: Iterable[str], predictions: Predictions) -> dict[str, float]:
    """Every value of the named entries."""
    return {key: value for name in names for key, value in ENTRIES[name].compute(predictions).items()}


def present_name(name: str, *, stacklevel: int) -> str:
    """Give the name of a metric or value as it is now; a former one is answered with a warning.

    `stacklevel` is 2 for the line that calls the function from which this one is called.
    """
    if not isinstance(name, str) or name not in FORMER_NAMES:  # what is no name at all is refused later
        return name
    new = FORMER_NAMES[name]
    warn_renamed(f"the metric {name!r}", repr(new), removed_in="0.2.0", stacklevel=stacklevel + 1)
    return new
