"""Values of every metric on one set of rows, and curves over time, by the public functions of `xcal.metrics`."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import ndtri

from xcal._checks import FloatArray
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration import d_calibration
from xcal.calibration.bins import N_BINS
from xcal.calibration.histogram import cumulative_hazard
from xcal.calibration.significance import Method, PValue
from xcal.metrics.auc import cumulative_dynamic_auc
from xcal.metrics.brier import brier_score, integrated_brier_score, scaled_brier_score
from xcal.metrics.concordance import concordance_index
from xcal.metrics.cox import cox_calibration, cox_ici
from xcal.metrics.curves import at_point, km_calibration
from xcal.metrics.inputs import Vector, mean_of, reached, told
from xcal.metrics.intervals import Distance, even_square, uneven_square
from xcal.metrics.net_benefit import CountedValues
from xcal.metrics.observed_expected import events_between, events_of
from xcal.metrics.one_calibration import one_calibration
from xcal.metrics.pit import bin_shares
from xcal.metrics.predictions import mean_nll
from xcal.metrics.times import as_censoring, censoring_survival
from xcal.metrics.turnbull import turnbull
from xcal.validation.at_horizon import FEWEST_FOR_LEVELS_IN_GROUP, CalibrationAt, calibration_at, observed_values
from xcal.validation.result import OverTime, Skipped
from xcal.validation.rows import Rows

# --- Curves over time: outcomes, mean prediction, rows at risk, censoring, Brier score.

_POINTS, _CORRECTED_POINTS = 101, 21


def over_time(rows: Rows, level: float) -> OverTime:
    """Everything at 101 equally spaced times from 0 to the last that enough rows have reached.

    One column of predictions at a time.
    """
    times = np.linspace(0.0, reached(rows.time, rows.min_cell), _POINTS)
    if rows.lower is not None:
        return _of_intervals(rows, rows.lower, times)
    if rows.entry is not None:
        return _from_entry(rows, rows.entry, times, level)
    curve = fit_kaplan_meier(rows.time, rows.event, weights=rows.weights)
    survived = curve.at(times)
    low, high = curve.interval(times, level)
    observed = 1 - survived
    if rows.censoring_model is not None and rows.survival is not None:
        observed, low, high = _corrected(rows, times, level)
    predicted, brier = np.full(times.size, np.nan), np.full(times.size, np.nan)
    censoring = as_censoring(rows.censoring, rows.outcome, rows.weights)
    given: dict[str, Any] = {"time": rows.time, "event": rows.event, "weights": rows.weights, "censoring": censoring}
    if rows.survival is not None and rows.times is not None:
        for k in np.flatnonzero(times <= rows.times[-1]):
            survival = np.clip(at_point(rows.survival, rows.times, float(times[k]), rows.interpolation), 0.0, 1.0)
            predicted[k] = 1 - mean_of(survival, rows.weights)
            brier[k] = brier_score(survival, times[k], **given).values[0]
    return OverTime(
        times=times,
        observed=observed,
        observed_lower=1 - high,
        observed_upper=1 - low,
        predicted=predicted,
        at_risk=(rows.n - np.searchsorted(rows.time, times, side="left")).astype(np.int64),
        uncensored=censoring.at(times) if rows.censoring is None else _own_censoring(rows, times),
        brier=brier,
        brier_null=_null_brier(rows, times, survived),
    )


def _from_entry(rows: Rows, entry: FloatArray, times: Vector, level: float) -> OverTime:
    """Kaplan-Meier of rows that are at risk from their entry on, and what the model expects of it.

    From one time to the next, the expected curve falls by the mean risk of those at risk at the first: whoever these
    are, the two curves of a true model agree but for chance.
    """
    curve = fit_kaplan_meier(rows.time, rows.event, entry=entry)
    low, high = curve.interval(times, level)
    expected, unknown = np.ones(times.size), np.full(times.size, np.nan)
    at_risk = np.array([np.count_nonzero((entry < t) & (rows.time >= t)) for t in times])
    if rows.survival is None or rows.times is None:
        expected = unknown
    else:
        before = np.ones(rows.n)
        for k in range(1, times.size):
            own = at_point(rows.survival, rows.times, float(times[k]), rows.interpolation).astype(np.float64)
            here = (entry <= times[k - 1]) & (rows.time > times[k - 1]) & (before > 0)
            kept = own[here] / before[here]
            expected[k] = expected[k - 1] * float(np.clip(kept, 0.0, 1.0).mean() if here.any() else 1.0)
            before = own
        expected[times > rows.times[-1]] = np.nan
    return OverTime(
        times=times,
        observed=1 - curve.at(times),
        observed_lower=1 - high,
        observed_upper=1 - low,
        predicted=1 - expected,
        at_risk=at_risk.astype(np.int64),
        uncensored=fit_kaplan_meier(rows.time, rows.event, "censoring", entry=entry).at(times),
        brier=unknown,
        brier_null=unknown,
    )


def _of_intervals(rows: Rows, lower: FloatArray, times: Vector) -> OverTime:
    """Turnbull's curve, with the range that the intervals leave open, beside the mean prediction; with entry neither.

    No formula for its error holds for visits at any times, nor do resamples.
    """
    unknown = np.full(times.size, np.nan)
    low, high, predicted = unknown, unknown, unknown
    if rows.entry is None:
        low, high = turnbull(lower=lower, upper=np.where(rows.event, rows.time, np.inf)).bounds(times)
        predicted = unknown.copy()
        if rows.survival is not None and rows.times is not None:
            for k in np.flatnonzero(times <= rows.times[-1]):
                predicted[k] = 1 - at_point(rows.survival, rows.times, float(times[k]), rows.interpolation).mean()
    entry = np.zeros(rows.n) if rows.entry is None else rows.entry
    return OverTime(
        times=times,
        observed=1 - (low + high) / 2,
        observed_lower=1 - high,
        observed_upper=1 - low,
        predicted=predicted,
        at_risk=np.array([np.count_nonzero((entry < t) & (rows.time >= t)) for t in times], dtype=np.int64),
        uncensored=unknown,
        brier=unknown,
        brier_null=unknown,
        by="Turnbull",
    )


def _corrected(rows: Rows, times: Vector, level: float) -> tuple[Vector, Vector, Vector]:
    """Return the observed risk, and the ends of the interval of survival, by doubly robust pseudo-values.

    At some of the times, and along straight lines between them; NaN past the end of the curves.
    """
    assert rows.times is not None
    at = np.linspace(0.0, min(float(rows.times[-1]), float(rows.time[-1])), _CORRECTED_POINTS)
    mean, reach = np.zeros(at.size), np.zeros(at.size)
    for k, t in enumerate(at[1:], 1):
        values = observed_values(rows, float(t), rows.seen[0])
        mean[k], reach[k] = values.mean(), float(ndtri((1 + level) / 2)) * values.std() / rows.n**0.5
    # What has happened stays: an estimate that falls is noise.
    mean = np.clip(np.maximum.accumulate(mean), 0.0, 1.0)
    ends = [np.clip(1 - mean + side * reach, 0.0, 1.0) for side in (-1, 1)]
    observed, low, high = (np.where(times <= at[-1], np.interp(times, at, y), np.nan) for y in (mean, *ends))
    return observed, low, high


def _own_censoring(rows: Rows, times: Vector) -> Vector:
    """Share of these rows not yet censored, where the weights come from training rows."""
    return fit_kaplan_meier(rows.time, rows.event, "censoring", rows.weights).at(times)


def _null_brier(rows: Rows, times: Vector, survival: Vector) -> Vector:
    """Brier score of one curve for everybody: the two sums of its formula need no rows times times."""
    censoring = as_censoring(rows.censoring, rows.outcome, rows.weights)
    one = np.ones(rows.n) if rows.weights is None else rows.weights
    total = np.append(0.0, np.cumsum(one))
    g_row, _ = censoring_survival(censoring, rows.time, left_limit=True)
    g_time, known = censoring_survival(censoring, times, left_limit=False)
    passed = np.searchsorted(rows.time, times, side="right")
    dead = np.append(0.0, np.cumsum(one * rows.event / g_row))[passed]
    alive = (total[-1] - total[passed]) / g_time
    score = (dead * survival**2 + alive * (1 - survival) ** 2) / total[-1]
    return np.where(known & (times < rows.time[-1]), score, np.nan)


# --- Values of every metric on one set of rows, by the public functions of `xcal.metrics`.


Key = tuple[str, float | None]  # metric and horizon
Interval = tuple[float, float]
UNKNOWN: Interval = (float("nan"), float("nan"))

# With fewer rows per bin than this, p-values of Akritas' test are up to twice too small far out; simulated ones hold.
_ROWS_PER_BIN = 50
_FEW_AND_MANY_DRAWS, _FAR_FROM_LIMITS = (99, 999), 0.2
DEPENDENT = "it counts every row as one observation, and the rows of a cluster are not"
WEIGHTED = "it counts every row once, and these rows have weights"

# Comparing curves that are read along lines takes one step for each pair of an event and a later row.
MOST_PAIRS = 5_000_000_000

METHODS: tuple[tuple[Method, str], ...] = (
    ("uniform", "d_calibration"),
    ("km", "d_calibration_km"),
    ("ipcw", "d_calibration_ipcw"),
)


@dataclass(frozen=True, eq=False)
class Estimates:
    """Values, the intervals that have a standard formula, calibration at horizons, and what was skipped and why."""

    values: dict[Key, float] = field(default_factory=dict)
    at: dict[float, CalibrationAt] = field(default_factory=dict)
    intervals: dict[Key, Interval] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    ibs_range: list[tuple[float, float]] = field(default_factory=list)  # one, where there is a score

    def put(self, metric: str, horizon: float | None, value: float, interval: Interval | None = None) -> None:
        """Add a value; one that the rows do not determine is named as skipped instead."""
        if np.isnan(value):
            self.skip(metric, "these rows do not determine it", horizon)
            return
        self.values[metric, horizon] = float(value)
        if interval is not None:
            self.intervals[metric, horizon] = interval

    def skip(self, what: str, why: str, horizon: float | None = None, *, interval: bool = False) -> None:
        """Name something that was not computed."""
        self.skipped.append(Skipped(what, why, horizon, interval=interval))


def estimate(
    rows: Rows, *, level: float, seed: int, calibration_only: bool = False, with_accuracy: bool = True
) -> Estimates:
    """Everything that the predictions allow; for subgroups the calibration metrics alone, for sites with accuracy."""
    found = Estimates()
    if not calibration_only:
        _discrimination(rows, found)
        _overall(rows, found)
    for horizon in rows.risk:
        _calibration_at(rows, horizon, level, found, in_group=calibration_only)
        if with_accuracy:
            accuracy(rows, horizon, found)
        if not calibration_only:
            _one_calibration(rows, horizon, found)
    if not calibration_only:
        _by_cox_models(rows, level, found)
    _calibration_over_time(rows, level, seed, found)
    return found


def _discrimination(rows: Rows, found: Estimates) -> None:
    given: dict[str, Any] = {"time": rows.time, "event": rows.event, "weights": rows.weights}
    if rows.score is None or rows.lower is not None:
        why = rows.seen_in_part if rows.lower is not None else "F at the observed times alone puts no rows in order"
        for name in ("harrell", "uno", "antolini"):
            found.skip(name, why)
        return
    harrell = concordance_index(**given, predicted_time=rows.score, entry=rows.entry)
    found.put("harrell", None, harrell.value)
    if rows.entry is not None:
        for name in ("uno", "antolini"):
            found.skip(name, f"{rows.seen_in_part}; Harrell's C is that of the rows at risk at each event")
        return
    uno = concordance_index(**given, predicted_time=rows.score, method="uno", censoring=rows.censoring)
    found.put("uno", None, uno.value)
    if rows.survival is None:
        found.skip("antolini", "it compares whole survival curves")
    elif rows.interpolation == "linear" and n_pairs(rows) > MOST_PAIRS:
        found.skip("antolini", f"it takes one step for each of {n_pairs(rows):,} pairs")
    else:
        curves: dict[str, Any] = {"survival": rows.survival, "times": rows.times, "interpolation": rows.interpolation}
        found.put("antolini", None, concordance_index(**given, **curves).value)


def n_pairs(rows: Rows) -> int:
    """Pairs of an event and a row that comes later in the order of times."""
    return int((rows.n - 1 - np.flatnonzero(rows.event)).sum())


def _overall(rows: Rows, found: Estimates) -> None:
    if rows.nll is None:
        found.skip("nll", "the model gives no density")
    else:
        found.put("nll", None, mean_nll(rows.nll, weights=rows.weights).value)
    if rows.survival is None or rows.times is None or rows.times.size < 2:
        found.skip("ibs", "it needs survival curves at two times or more")
        return
    if rows.seen_in_part:
        found.skip("ibs", f"{rows.seen_in_part}; Brier scores at horizons allow for them")
        return
    given: dict[str, Any] = {"time": rows.time, "event": rows.event, "weights": rows.weights}
    score = integrated_brier_score(rows.survival, rows.times, censoring=rows.censoring, **given)
    found.put("ibs", None, score.value)
    if np.isfinite(score.value):
        found.ibs_range.append((score.start, score.stop))


def accuracy(rows: Rows, horizon: float, found: Estimates) -> None:
    """Put AUC, Brier score and IPA at one horizon, corrected for censoring where there is a model of it."""
    rows = rows.entered_by(horizon)
    risk = rows.risk[horizon]
    if rows.by_values and horizon in found.at:
        corrected = CountedValues(risk, found.at[horizon].values, null_risk(rows, horizon))
        values = corrected.accuracy(np.ones((1, rows.n)))
        for name, value in values.items():
            found.put(name, horizon, float(value[0]))
        return
    given: dict[str, Any] = {"time": rows.time, "event": rows.event, "censoring": rows.censoring}
    given["weights"] = rows.weights
    found.put("auc", horizon, float(cumulative_dynamic_auc(risk, horizon, **given).values[0]))
    scaled = scaled_brier_score(1 - risk, horizon, **given)
    found.put("brier", horizon, float(scaled.brier[0]))
    found.put("ipa", horizon, float(scaled.values[0]))


def null_risk(rows: Rows, horizon: float) -> Vector | None:
    """Return the risk of each row from its entry on by one curve for everybody; None where that is the same for all."""
    if rows.entry is None or rows.lower is not None:
        return None
    curve = fit_kaplan_meier(rows.time, rows.event, entry=rows.entry)
    come = np.asarray(curve.at(rows.entry))
    return np.asarray(1 - np.divide(float(curve.at(horizon)), come, out=np.zeros(rows.n), where=come > 0))


def _calibration_at(rows: Rows, horizon: float, level: float, found: Estimates, *, in_group: bool) -> None:
    """Calibration at one horizon: on average, by slope, and for each level of risk."""
    rows = rows.entered_by(horizon)
    risk, events = rows.risk[horizon], int(np.count_nonzero(rows.event & (rows.time <= horizon)))
    found.put("mean_risk", horizon, mean_of(risk, rows.weights))
    if horizon > rows.time[-1]:
        found.skip("oe", "no row was followed so long", horizon)
        return
    fewest = FEWEST_FOR_LEVELS_IN_GROUP if in_group else 1
    at = calibration_at(rows, horizon, level, fewest=fewest)
    found.at[horizon] = at
    found.put("oe", horizon, at.ratio.value, (at.ratio.lower, at.ratio.upper))
    found.put("observed_risk", horizon, at.ratio.observed, _risk_interval(rows, horizon, at, level))
    if events < fewest:
        # Without any event the observed curve is zero, and nothing says how uncertain that is.
        count = _count(events) if told(events, rows.n, rows.min_cell) is not None else f"fewer than {fewest} events"
        too_few = f"{count} by then are too few: {fewest} are needed"
        why = "no row has the event by then" if not events else too_few
        for name in ("slope", "ici"):
            found.skip(name, why, horizon)
        return
    slope = at.slope
    found.put("slope", horizon, slope.slope, (slope.slope_lower, slope.slope_upper))
    found.put("intercept", horizon, slope.intercept, (slope.intercept_lower, slope.intercept_upper))
    for name, distance in at.distances.items():
        interval = distance.lower, distance.upper
        found.put(name, horizon, distance.value, interval)
        found.put(f"{name}_floor", horizon, distance.floor)
        found.put(f"{name}_excess", horizon, distance.excess, interval)


def _count(events: int) -> str:
    return "1 event" if events == 1 else f"{events:,} events"


def _risk_interval(rows: Rows, horizon: float, at: CalibrationAt, level: float) -> Interval | None:
    """Interval of the observed risk; None, so that it is resampled, where rows are in clusters."""
    if rows.clusters is not None:
        return None
    if rows.by_values:
        error = float(at.values.std(ddof=1)) / rows.n**0.5
        reach = float(ndtri((1 + level) / 2)) * error
        return max(0.0, at.ratio.observed - reach), min(1.0, at.ratio.observed + reach)
    low, high = fit_kaplan_meier(rows.time, rows.event, weights=rows.weights).interval(horizon, level)
    return 1 - float(high), 1 - float(low)


def _one_calibration(rows: Rows, horizon: float, found: Estimates) -> None:
    if rows.clusters is not None or rows.weights is not None or rows.seen_in_part:
        why = DEPENDENT if rows.clusters is not None else WEIGHTED if rows.weights is not None else rows.seen_in_part
        found.skip("one_calibration_p", why)
        return
    test = one_calibration(rows.risk[horizon], at=horizon, time=rows.time, event=rows.event, cdf=rows.cdf)
    found.put("one_calibration_p", horizon, test.p_value)


def _by_cox_models(rows: Rows, level: float, found: Estimates) -> None:
    """Values of published guidelines, which assume proportional hazards: for comparison, and never for the verdict."""
    at = max((horizon for horizon in rows.risk if horizon <= rows.time[-1]), default=None)
    if at is None:
        return
    if rows.weights is not None or rows.seen_in_part:
        for name in ("cox_slope", "ici_cox"):
            found.skip(name, rows.seen_in_part if rows.weights is None else WEIGHTED)
        return
    given: dict[str, Any] = {"time": rows.time, "event": rows.event}
    for horizon in found.at:
        index = cox_ici(rows.risk[horizon], at=horizon, **given)
        for name in ("value", "e50", "e90", "emax"):
            found.put("ici_cox" if name == "value" else f"{name}_cox", horizon, getattr(index, name))
    result = cox_calibration(rows.risk[at], at=at, **given, level=level)
    ends = (result.slope_lower, result.slope_upper), (result.intercept_lower, result.intercept_upper)
    slope, intercept = ends if rows.clusters is None else (None, None)
    found.put("cox_slope", None, result.slope, slope)
    found.put("cox_intercept", None, result.intercept, intercept)


def _calibration_over_time(rows: Rows, level: float, seed: int, found: Estimates) -> None:
    if rows.cdf is None:
        for _, name in METHODS:
            found.skip(name, rows.no_cdf)
    else:
        given: dict[str, Any] = {"n_bins": N_BINS, "clusters": _cluster_labels(rows), "weights": rows.weights}
        given |= (
            {"cdf_entry": rows.cdf_entry, "cdf_lower": rows.cdf_lower} if rows.seen_in_part else {"time": rows.time}
        )
        for method, name in METHODS:
            if method != "uniform" and rows.seen_in_part:
                found.skip(name, rows.seen_in_part)
                continue
            result = d_calibration(rows.cdf, rows.cdf_event, method=method, p_value=None, **given)
            found.put(name, None, result.value)
            found.put(f"{name}_floor", None, result.floor)
            if method == "uniform":
                distance = even_square(result.value, result.floor, N_BINS - 1, level)
                if rows.lower is not None:
                    distance = _of_parts(rows, level)
                found.intervals[name, None] = (distance.lower, distance.upper)
                found.put(f"{name}_excess", None, distance.excess, (distance.lower, distance.upper))
        found.put("d_calibration_p", None, _d_calibration_p(rows, seed))
        _event_ratio(rows, level, found)
    if rows.survival is None:
        found.skip("km_calibration", "it needs survival curves")
        return
    if rows.seen_in_part:
        found.skip("km_calibration", rows.seen_in_part)
        return
    given = {"time": rows.time, "event": rows.event, "weights": rows.weights, "interpolation": rows.interpolation}
    found.put("km_calibration", None, km_calibration(rows.survival, rows.times, **given).value)


def _of_parts(rows: Rows, level: float) -> Distance:
    """Return what is known of D-calibration where events have parts of bins, whose noise is not the same in all."""
    assert rows.cdf is not None
    bins = bin_shares(rows.cdf, rows.cdf_event, entry=rows.cdf_entry, lower=rows.cdf_lower)
    residuals = (bins.shares - bins.widths) / rows.n
    deviation = residuals.sum(axis=0)
    if rows.clusters is not None:
        residuals = np.array([rows.clusters.sums(column) for column in residuals.T]).T
    return uneven_square(deviation, residuals, level)


def _event_ratio(rows: Rows, level: float, found: Estimates) -> None:
    """Put the events for each that is expected over the time under observation, of rows that are seen in part."""
    if not rows.seen_in_part:
        return
    if rows.lower is not None:
        one = [events_between(rows.hazards, rows.clusters, level)]
    else:
        one = [events_of(rows.cdf_event, cumulative_hazard(cdf), rows.clusters, level) for cdf in rows.cdfs_since_entry]
    interval = min(ratio.lower for ratio in one), max(ratio.upper for ratio in one)
    found.put("event_ratio", None, one[0].value, interval)
    found.put("event_ratio_p", None, max(ratio.p_value for ratio in one))


def _d_calibration_p(rows: Rows, seed: int) -> float:
    """Akritas' p-value, or with few rows per bin a simulated one: both hold their size under censoring.

    With clusters it is always Akritas' statistic, beside draws in which whole clusters change their sign, and with
    weights the same with its design-based law. Where it is not known how long censored rows were seen, the largest
    p-value of all possibilities.
    """
    simple = rows.clusters is None and rows.weights is None and not rows.seen_in_part
    many = not simple or rows.n >= _ROWS_PER_BIN * N_BINS
    given: dict[str, Any] = {"n_bins": N_BINS, "seed": seed, "clusters": _cluster_labels(rows)}
    given |= {"weights": rows.weights, "cdf_entry": rows.cdf_entry, "cdf_lower": rows.cdf_lower}

    def tested(cdf: FloatArray) -> float:
        if many:
            test: PValue = "akritas" if rows.lower is None else "residuals"
            found = d_calibration(cdf, rows.cdf_event, p_value=test, **given).p_value
        else:
            # What is far from any limit after a few draws needs no more of them.
            for draws in _FEW_AND_MANY_DRAWS:
                found = d_calibration(cdf, rows.cdf_event, p_value="simulated", n_simulations=draws, **given).p_value
                if found is not None and found > _FAR_FROM_LIMITS:
                    break
        return float("nan") if found is None else found

    return max(tested(cdf) for cdf in rows.cdfs)


def _cluster_labels(rows: Rows) -> Any:
    return None if rows.clusters is None else rows.clusters.codes
