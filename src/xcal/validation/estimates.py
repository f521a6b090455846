"""Values of every metric on one set of rows, by the public functions of `xcal.metrics`."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration import d_calibration
from xcal.calibration.results import Method, PValue
from xcal.metrics.auc import cumulative_dynamic_auc
from xcal.metrics.brier import integrated_brier_score
from xcal.metrics.concordance import concordance_index
from xcal.metrics.cox_calibration import cox_calibration
from xcal.metrics.ici import integrated_calibration_index
from xcal.metrics.inputs import Vector
from xcal.metrics.km_calibration import km_calibration
from xcal.metrics.likelihood import mean_nll
from xcal.metrics.observed_expected import observed_expected
from xcal.metrics.one_calibration import one_calibration
from xcal.metrics.pit_histogram import N_BINS
from xcal.metrics.scaled_brier import scaled_brier_score
from xcal.validation.rows import Rows

Key = tuple[str, float | None]  # metric and horizon
Interval = tuple[float, float]
UNKNOWN: Interval = (float("nan"), float("nan"))

# With fewer rows per bin than this, p-values of Akritas' test are up to twice too small far out; simulated ones hold.
_ROWS_PER_BIN = 50
DEPENDENT = "it counts every row as one observation, and the rows of a cluster are not"
# Comparing curves that are read along lines takes one step for each pair of an event and a later row.
MOST_PAIRS = 5_000_000_000
METHODS: tuple[tuple[Method, str], ...] = (
    ("uniform", "d_calibration"),
    ("km", "d_calibration_km"),
    ("ipcw", "d_calibration_ipcw"),
)


@dataclass(frozen=True, eq=False)
class Estimates:
    """Values, the intervals that have a standard formula, smooth calibration curves, and what was skipped and why."""

    values: dict[Key, float] = field(default_factory=dict)
    smooth: dict[float, tuple[Vector, Vector]] = field(default_factory=dict)
    intervals: dict[Key, Interval] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def put(self, metric: str, horizon: float | None, value: float, interval: Interval | None = None) -> None:
        """Add a value; one that the rows do not determine is named as skipped instead."""
        if np.isnan(value):
            at = "" if horizon is None else f" at {horizon:g}"
            self.skipped[f"{metric}{at}"] = "these rows do not determine it"
            return
        self.values[metric, horizon] = float(value)
        if interval is not None:
            self.intervals[metric, horizon] = interval


def estimate(rows: Rows, *, level: float, seed: int, calibration_only: bool = False) -> Estimates:
    """Everything that the predictions allow; for subgroups the calibration metrics alone."""
    found = Estimates()
    if not calibration_only:
        _discrimination(rows, found)
        _overall(rows, found)
    for horizon in rows.risk:
        _mean_calibration(rows, horizon, level, found)
        _moderate_calibration(rows, horizon, found)
        if not calibration_only:
            _accuracy(rows, horizon, found)
    _weak_calibration(rows, level, found)
    _calibration_over_time(rows, seed, found)
    return found


def _discrimination(rows: Rows, found: Estimates) -> None:
    given: dict[str, Any] = {"time": rows.time, "event": rows.event}
    if rows.score is None:
        for name in ("harrell", "uno", "antolini"):
            found.skipped[name] = "F at the own times alone puts no rows in order"
        return
    found.put("harrell", None, concordance_index(**given, predicted_time=rows.score).value)
    uno = concordance_index(**given, predicted_time=rows.score, method="uno", censoring=rows.censoring)
    found.put("uno", None, uno.value)
    if rows.survival is None:
        found.skipped["antolini"] = "it compares whole survival curves"
    elif rows.interpolation == "linear" and n_pairs(rows) > MOST_PAIRS:
        found.skipped["antolini"] = f"it takes one step for each of {n_pairs(rows):,} pairs"
    else:
        curves: dict[str, Any] = {"survival": rows.survival, "times": rows.times, "interpolation": rows.interpolation}
        found.put("antolini", None, concordance_index(**given, **curves).value)


def n_pairs(rows: Rows) -> int:
    """Pairs of an event and a row that comes later in the order of times."""
    return int((rows.n - 1 - np.flatnonzero(rows.event)).sum())


def _overall(rows: Rows, found: Estimates) -> None:
    if rows.nll is None:
        found.skipped["nll"] = "the model gives no density"
    else:
        found.put("nll", None, mean_nll(rows.nll).value)
    if rows.survival is None or rows.times is None or rows.times.size < 2:
        found.skipped["ibs"] = "it needs survival curves at two times or more"
        return
    score = integrated_brier_score(
        rows.survival, rows.times, time=rows.time, event=rows.event, censoring=rows.censoring
    )
    found.put("ibs", None, score.value)


def _accuracy(rows: Rows, horizon: float, found: Estimates) -> None:
    risk = rows.risk[horizon]
    given: dict[str, Any] = {"time": rows.time, "event": rows.event, "censoring": rows.censoring}
    found.put("auc", horizon, float(cumulative_dynamic_auc(risk, horizon, **given).values[0]))
    scaled = scaled_brier_score(1 - risk, horizon, **given)
    found.put("brier", horizon, float(scaled.brier[0]))
    found.put("ipa", horizon, float(scaled.values[0]))


def _mean_calibration(rows: Rows, horizon: float, level: float, found: Estimates) -> None:
    risk = rows.risk[horizon]
    result = observed_expected(risk, at=horizon, time=rows.time, event=rows.event, level=level)
    found.put("oe", horizon, result.value, _by_formula(rows, result.lower, result.upper))
    found.put("mean_risk", horizon, result.expected)
    low, high = fit_kaplan_meier(rows.time, rows.event).interval(horizon, level)
    found.put("observed_risk", horizon, result.observed, _by_formula(rows, 1 - float(high), 1 - float(low)))


def _by_formula(rows: Rows, lower: float, upper: float) -> Interval | None:
    """Give an interval that supposes independent rows; None, so that it is resampled, where they are in clusters."""
    return (lower, upper) if rows.clusters is None else None


def _moderate_calibration(rows: Rows, horizon: float, found: Estimates) -> None:
    risk = rows.risk[horizon]
    given: dict[str, Any] = {"time": rows.time, "event": rows.event}
    index = integrated_calibration_index(risk, at=horizon, **given)
    found.smooth[horizon] = index.predicted, index.observed
    if (rows.event & (rows.time <= horizon)).any():
        for name, value in (("ici", index.value), ("e50", index.e50), ("e90", index.e90), ("emax", index.emax)):
            found.put(name, horizon, value)
    else:
        # The observed curve is zero in every resample: an interval without a width, which says more than is known.
        reason = "no row has the event by then, and resamples cannot say how uncertain that is; nor E50, E90 and Emax"
        found.skipped[f"ici at {horizon:g}"] = reason
    if rows.clusters is not None:
        found.skipped["one_calibration_p"] = DEPENDENT
        return
    test = one_calibration(risk, at=horizon, **given, cdf=rows.cdf)
    found.put("one_calibration_p", horizon, test.p_value)


def _weak_calibration(rows: Rows, level: float, found: Estimates) -> None:
    """Slope and intercept at the last horizon that the predictions and these rows reach."""
    at = slope_horizon(rows)
    if at is None:
        for name in ("cox_slope", "cox_intercept"):
            found.skipped[name] = "they need the risks at a horizon within the follow-up"
        return
    result = cox_calibration(rows.risk[at], at=at, time=rows.time, event=rows.event, level=level)
    found.put("cox_slope", None, result.slope, _by_formula(rows, result.slope_lower, result.slope_upper))
    interval = _by_formula(rows, result.intercept_lower, result.intercept_upper)
    found.put("cox_intercept", None, result.intercept, interval)


def slope_horizon(rows: Rows) -> float | None:
    """Give the last horizon that the predictions and these rows reach, at which slope and intercept are computed."""
    return max((horizon for horizon in rows.risk if horizon <= rows.time[-1]), default=None)


def _calibration_over_time(rows: Rows, seed: int, found: Estimates) -> None:
    if rows.cdf is None:
        for _, name in METHODS:
            found.skipped[name] = "it needs F at the own times"
    else:
        given: dict[str, Any] = {"n_bins": N_BINS, "time": rows.time, "clusters": _cluster_labels(rows)}
        for method, name in METHODS:
            result = d_calibration(rows.cdf, rows.cdf_event, method=method, p_value=None, **given)
            found.put(name, None, result.value)
            found.put(f"{name}_floor", None, result.floor)
        found.put("d_calibration_p", None, _d_calibration_p(rows, seed))
    if rows.survival is None:
        found.skipped["km_calibration"] = "it needs survival curves"
        return
    curves = km_calibration(
        rows.survival, rows.times, time=rows.time, event=rows.event, interpolation=rows.interpolation
    )
    found.put("km_calibration", None, curves.value)


def _d_calibration_p(rows: Rows, seed: int) -> float:
    """Akritas' p-value, or with few rows per bin a simulated one: both hold their size under censoring.

    With clusters it is always Akritas' statistic, beside draws in which whole clusters change their sign.
    """
    many = rows.clusters is not None or rows.n >= _ROWS_PER_BIN * N_BINS
    test: PValue = "akritas" if many else "simulated"
    clusters = _cluster_labels(rows)
    result = d_calibration(rows.cdf, rows.cdf_event, n_bins=N_BINS, p_value=test, seed=seed, clusters=clusters)
    return float("nan") if result.p_value is None else result.p_value


def _cluster_labels(rows: Rows) -> Any:
    return None if rows.clusters is None else rows.clusters.codes
