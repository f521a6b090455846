"""Calibration at one time by few numbers: observed over expected events, slope and intercept."""

from dataclasses import dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtrc, ndtri

from xcal._checks import (
    BoolArray,
    FloatArray,
    as_choice,
    as_event,
    as_number,
    as_probability,
    check_rows,
    fail,
)
from xcal.calibration.bins import Clusters, as_clusters, sum_of_squares
from xcal.calibration.dcalibration import as_at_most
from xcal.calibration.histogram import cumulative_hazard
from xcal.data.surv import as_outcome
from xcal.metrics.cells import Accumulator, sums_as_floats, unit_sums
from xcal.metrics.cox import log_hazard
from xcal.metrics.inputs import (
    Matrix,
    Vector,
    as_curves,
    as_time_grid,
    mean_of,
    read_at,
)
from xcal.metrics.kaplan_meier_streaming import LIMIT, BoundedCurve, StreamingKaplanMeier
from xcal.metrics.observed import observed_risk
from xcal.metrics.pseudo_values import HazardsSeen, jackknife

Interval = Literal["robust", "greenwood", "poisson"]
_FARTHEST = 12.0  # log of the largest factor on hazards that is looked for


@dataclass(frozen=True)
class ObservedExpected:
    """Ratio of the observed to the mean predicted probability of an event by one time.

    Attributes
    ----------
    value : float
        Observed / expected: 1 for a model that is right on average, above 1 where it predicts too little.
    lower, upper : float
        Ends of the interval; NaN without an event by `at`.
    observed : float
        One minus Kaplan-Meier at `at`.
    expected : float
        Mean predicted probability.
    at : float
        The time.
    n_events : int
        Events by `at`.
    """

    value: float
    lower: float
    upper: float
    observed: float
    expected: float
    at: float
    n_events: int


def observed_expected(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    competing: Any = None,
    level: float = 0.95,
    interval: Interval = "robust",
    outside: Literal["nan", "raise", "clip"] = "nan",
    weights: Any = None,
) -> ObservedExpected:
    r"""Return O/E at one time, the observed probability by Kaplan-Meier.

    .. math:: \frac{O}{E} = \frac{1 - S_{KM}(t)}{\frac1n \sum_i p_i}, \qquad
              \frac{O}{E} \exp\Big(\pm z \, \frac{s}{O}\Big)

    with s the error of O. It assumes that censoring does not depend on the covariates; `xcal.audit` tests that, and
    corrects for it.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: what was observed is then the
        Aalen-Johansen estimate in place of one minus Kaplan-Meier.
    level : float
        Coverage of the interval.
    interval : {"robust", "greenwood", "poisson"}
        Where s comes from. "robust": the spread of pseudo-values less O/E times the predictions, which knows that rows
        with a high risk were expected to have the event. "greenwood": the variance of Kaplan-Meier or Aalen-Johansen,
        the expected value taken as known; the published interval where other events compete.
        "poisson": s / O is one over the root of the number of events by t, as in the published guideline; it
        is 1.1 to 2.4 times too wide, the more so the more of the rows have their event.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or take the last value of the Kaplan-Meier curve.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of both means. "robust" and "greenwood" are then design-based;
        "poisson" counts events and is refused.

    Returns
    -------
    ObservedExpected
        NaN where every prediction is zero.

    References
    ----------
    McLernon, Giardiello, Van Calster and others (2023), Annals of Internal Medicine 176(1):105-114, for the ratio and
    the interval "poisson"; van Geloven and others (2022), BMJ 377:e069249, for "greenwood".

    Examples
    --------
    >>> result = observed_expected([0.2, 0.2, 0.3, 0.3], at=2, time=[1, 2, 3, 4], event=[1, 0, 1, 1])
    >>> result.value
    1.0
    """
    rows = read_at(probability, at, time=time, event=event, competing=competing, weights=weights, outside=outside)
    p, outcome, w = rows.risk, rows.outcome, rows.weights
    level = as_number("level", level, above=0, below=1)
    as_choice("interval", interval, get_args(Interval))
    if w is not None and interval == "poisson":
        fail("interval", "'robust' or 'greenwood' with weights, as 'poisson' counts events", repr(interval))
    curve = observed_risk(outcome, w)
    observed = float(curve.at(rows.at)) if rows.known else float("nan")
    if interval == "poisson":
        error = observed / max(rows.n_events, 1) ** 0.5
    elif interval == "greenwood":
        error = float(curve.error(rows.at))
    else:
        error = error_of_mean(jackknife(outcome, rows.at, weights=w), observed, p, weights=w)
    return ratio(observed, mean_of(p, w), error, rows.at, rows.n_events, level)


@dataclass(frozen=True)
class EventRatio:
    """Events that happened, and those that the model expects of rows while they were under observation.

    Attributes
    ----------
    value, lower, upper : float
        Observed / expected and its interval; 1 for a model that is right on average. NaN without an event.
    observed, expected : float
        The two numbers.
    p_value : float
        Test that the model is right on average.
    n : int
        Rows, or clusters of rows.
    """

    value: float
    lower: float
    upper: float
    observed: float
    expected: float
    p_value: float
    n: int


def event_ratio(
    cdf: Any,
    event: Any,
    *,
    cdf_entry: Any = None,
    cdf_lower: Any = None,
    clusters: Any = None,
    level: float = 0.95,
) -> EventRatio:
    r"""Return the number of events for each that the model expects over the time under observation.

    .. math:: \frac{O}{E} = \frac{\sum_i N_i}{\sum_i H_i(T_i) - H_i(\text{entry}_i)}, \qquad H = -\log(1 - F)

    A row that was observed for longer is expected to have more events, so that nothing is assumed about censoring and
    entry but that they depend on nothing that the model does not know. As O - E is a martingale at the end of the
    follow-up, its variance is E; of clusters, it is the sum of squares.

    O/E is the factor on all hazards under which the rows are most likely. Where events lie in intervals it is that
    factor, and E what goes with it.

    Parameters
    ----------
    cdf : array-like of shape (n,)
        The model's F at each row's last time.
    event : array-like of shape (n,)
        True where the event happened.
    cdf_entry : array-like of shape (n,), optional
        F at the time from which each row was under observation; 0 by default. Several rows of one person whose
        covariates change go on from each other: the F at the entry of one is that at the end of the one before.
    cdf_lower : array-like of shape (n,), optional
        For events that are known to lie between two times: F at the earlier one, where `cdf` is F at the later one.
    clusters : array-like of shape (n,), optional
        One label per row: rows with the same label, such as those of one person, may depend on each other.
    level : float
        Coverage of the interval.

    Returns
    -------
    EventRatio

    References
    ----------
    Berry (1983), Biometrics 39(1):173-184.

    Examples
    --------
    >>> found = event_ratio([0.5, 0.75, 0.5], [1, 0, 1], cdf_entry=[0, 0.5, 0])
    >>> found.observed, round(found.expected, 3), round(found.value, 3)
    (2.0, 2.079, 0.962)
    """
    beside = {"cdf_entry": cdf_entry, "cdf_lower": cdf_lower, "clusters": clusters}
    check_rows({"cdf": cdf, "event": event, **beside})
    u = as_probability("cdf", cdf)
    happened = as_event(event, u.size)
    level = as_number("level", level, above=0, below=1)
    together = None if clusters is None else as_clusters(clusters, u.size)
    hazard = cumulative_hazard(u)
    lower = None if cdf_lower is None else cumulative_hazard(as_at_most("cdf_lower", cdf_lower, u))
    if cdf_entry is not None:
        before = cumulative_hazard(as_at_most("cdf_entry", cdf_entry, u))
        hazard, lower = hazard - before, None if lower is None else np.maximum(lower - before, 0.0)
    if lower is not None:
        ends = np.where(happened, lower, hazard), np.where(happened, hazard, np.inf)
        return events_between(HazardsSeen(*ends), together, level)
    return events_of(happened, hazard, together, level)


def events_between(seen: HazardsSeen, clusters: Clusters | None, level: float) -> EventRatio:
    """Return the factor on all hazards under which events in intervals are most likely, as O/E."""
    events, n = float(np.count_nonzero(seen.event)), seen.lower.size if clusters is None else clusters.count
    slope, variance = seen.score(0.0)
    if clusters is not None:
        variance = sum_of_squares(slope, clusters)
    p_value = float(chdtrc(1, slope.sum() ** 2 / variance)) if variance > 0 else float(events == 0)
    if not seen.score(-_FARTHEST)[0].sum() > 0 > seen.score(_FARTHEST)[0].sum():  # no event, or all before any time
        return EventRatio(np.nan, np.nan, np.nan, events, np.nan, p_value, n)
    log = float(brentq(lambda change: seen.score(change)[0].sum(), -_FARTHEST, _FARTHEST))
    slope, information = seen.score(log)
    error = information**-0.5 if clusters is None else sum_of_squares(slope, clusters) ** 0.5 / information
    value, reach = float(np.exp(log)), float(np.exp(ndtri((1 + level) / 2) * error))
    return EventRatio(value, value / reach, value * reach, events, events / value, p_value, n)


def events_of(event: BoolArray, hazard: Vector, clusters: Clusters | None, level: float) -> EventRatio:
    """Return O/E of rows with these hazards over their time under observation."""
    seen, expected = float(np.count_nonzero(event)), float(hazard.sum())
    n = event.size if clusters is None else clusters.count
    value = seen / expected if expected > 0 else float("nan")
    error, variance = seen, expected
    if clusters is not None:
        error, variance = (sum_of_squares(event - share * hazard, clusters) for share in (value, 1.0))
    reach = float(np.exp(ndtri((1 + level) / 2) * error**0.5 / seen)) if seen > 0 and expected > 0 else float("nan")
    p_value = float(chdtrc(1, (seen - expected) ** 2 / variance)) if variance > 0 else float(seen == 0)
    return EventRatio(value, value / reach, value * reach, seen, expected, p_value, n)


def error_of_mean(
    values: Vector, observed: float, p: Vector, clusters: Clusters | None = None, weights: Vector | None = None
) -> float:
    """Return the standard error of O as a part of O/E: of the mean of pseudo-values less O/E times the predictions."""
    expected = mean_of(p, weights)
    left = values - observed / expected * p if expected > 0 else values - observed
    left = left - mean_of(left, weights)
    if weights is None:
        return float(sum_of_squares(left, clusters) ** 0.5) / values.size
    return float(sum_of_squares(weights * left, clusters) ** 0.5 / weights.sum())


def ratio(observed: float, expected: float, error: float, at: float, events: int, level: float) -> ObservedExpected:
    """Return O/E with its interval from the error of what was observed; none without an event."""
    value = observed / expected if expected > 0 else float("nan")
    factor = float(np.exp(ndtri((1 + level) / 2) * error / observed)) if events and observed > 0 else float("nan")
    return ObservedExpected(value, value / factor, value * factor, observed, expected, at, events)


# --- Calibration slope and intercept at one time, by a regression of pseudo-values: nothing is assumed about hazards.
# The form by a Cox regression over the whole follow-up stands in `cox_calibration`, the quantile slope of the X-CAL
# paper in `quantile_slope`.

_STEPS, _HALVINGS, _CLOSE = 100, 30, 1e-8
_ROUNDING = 1e-12  # of a sum of squares, as a share of it


@dataclass(frozen=True)
class CalibrationSlope:
    """Slope and intercept of what happened by one time on what was predicted, on the complementary log-log scale.

    Attributes
    ----------
    slope, slope_lower, slope_upper : float
        1 for a calibrated model; below 1 where risks are too extreme, above 1 where they are not spread widely enough.
        NaN where the rows do not determine it: no event by `at`, equal predictions, or no solution.
    intercept, intercept_lower, intercept_upper : float
        With the slope held at 1: 0 for a calibrated model, above 0 where it predicts too little.
    at : float
        The time.
    n_events : int
        Events by `at`.
    """

    slope: float
    slope_lower: float
    slope_upper: float
    intercept: float
    intercept_lower: float
    intercept_upper: float
    at: float
    n_events: int


def calibration_slope(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    competing: Any = None,
    level: float = 0.95,
    outside: Literal["nan", "raise", "clip"] = "nan",
    weights: Any = None,
) -> CalibrationSlope:
    r"""Return calibration slope and intercept at one time.

    With :math:`\theta_i` the jackknife pseudo-value of the event by t and :math:`x_i = \log(-\log(1 - p_i))`, least
    squares of

    .. math:: \theta_i \approx 1 - \exp(-\exp(a + b x_i)), \qquad \theta_i \approx 1 - \exp(-\exp(a_0 + x_i)).

    b is the slope and :math:`a_0` the intercept. Errors are robust (sandwich), intervals Wald's.

    It assumes that censoring does not depend on the covariates, and nothing about hazards. `xcal.audit` tests the
    former, and corrects for it.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`. Probabilities below 1e-10, or as close to 1, are
        held there: they are infinite on the scale of x.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: what was observed is then the
        Aalen-Johansen estimate in place of one minus Kaplan-Meier.
    level : float
        Coverage of the intervals.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or take what was observed by then.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row; the errors are then design-based (sandwich). Equal weights change
        nothing.

    Returns
    -------
    CalibrationSlope

    References
    ----------
    van Geloven, Giardiello, Bonneville and others (2022), BMJ 377:e069249.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=4000)
    >>> time, event = rng.exponential(np.exp(-x)), np.ones(4000)
    >>> too_extreme = 1 - np.exp(-np.exp(2 * x))
    >>> round(calibration_slope(too_extreme, at=1.0, time=time, event=event).slope, 1)
    0.5
    """
    rows = read_at(probability, at, time=time, event=event, competing=competing, weights=weights, outside=outside)
    level = as_number("level", level, above=0, below=1)
    known = rows.n_events > 0 and rows.known
    observed = jackknife(rows.outcome, rows.at, weights=rows.weights) if known else None
    return slope_of(rows.risk, observed, rows.at, rows.n_events, level, weights=rows.weights)


def slope_of(
    p: Vector,
    observed: Vector | None,
    at: float,
    n_events: int,
    level: float,
    clusters: Clusters | None = None,
    weights: Vector | None = None,
) -> CalibrationSlope:
    """Return slope and intercept of checked predictions and pseudo-values; NaN where these are None."""
    z = float(ndtri((1 + level) / 2))
    ends = [
        (value, value - z * error, value + z * error)
        for value, error in (
            (v, sum_of_squares(i, clusters) ** 0.5) for v, i in slope_and_intercept(p, observed, weights)
        )
    ]
    return CalibrationSlope(*ends[0], *ends[1], at, n_events)


def slope_and_intercept(
    p: Vector, observed: Vector | None, weights: Vector | None = None
) -> tuple[tuple[float, Vector], tuple[float, Vector]]:
    """Return slope and intercept, each with the influence of every row on it; NaN where they are not determined."""
    unknown = (float("nan"), np.full(p.size, np.nan))
    if observed is None:
        return unknown, unknown
    x = log_hazard(p)
    found = _regression(observed, x, np.ones((p.size, 1)), weights)
    intercept = unknown if found is None else (float(found[0][0]), found[1][:, 0])
    # Centred, so that Gauss and Newton's method starts in a well-conditioned place.
    with_slope = np.column_stack([np.ones(p.size), x - x.mean()])
    found = _regression(observed, x, with_slope, weights) if np.ptp(x) > 0 else None
    return (unknown if found is None else (1 + float(found[0][1]), found[1][:, 1])), intercept


def _regression(observed: Vector, offset: Vector, x: Matrix, weights: Vector | None) -> tuple[Vector, Matrix] | None:
    """Return the coefficients beside an offset and every row's influence on them, by least squares; None without any.

    Gauss and Newton's method with halved steps.
    """
    root = np.ones(observed.size) if weights is None else np.sqrt(weights)
    coefficients = np.zeros(x.shape[1])
    left, slope = _left(observed, offset, root)
    for _ in range(_STEPS):
        design = slope[:, None] * x
        try:
            bread = np.linalg.inv(design.T @ design)
        except np.linalg.LinAlgError:
            return None
        step, loss = bread @ (design.T @ left), float(left @ left)
        for halving in range(_HALVINGS):
            trial = coefficients + step / 2**halving
            left, slope = _left(observed, offset + x @ trial, root)
            if float(left @ left) <= loss * (1 + _ROUNDING):
                break
        coefficients = trial
        if np.abs(step).max() < _CLOSE:
            return coefficients, (design * left[:, None]) @ bread
    return None


def _left(observed: Vector, eta: Vector, root: Vector) -> tuple[Vector, Vector]:
    """Return what the mean 1 - exp(-exp(eta)) leaves of the pseudo-values, and the slope of the mean.

    Both times the roots of the weights, with which weighted least squares are plain ones.
    """
    hazard = np.exp(np.minimum(eta, 50.0))
    return root * (observed + np.expm1(-hazard)), root * (hazard * np.exp(-hazard))


# --- Observed over expected events at several times, over chunks, processes or files.


@dataclass(frozen=True, eq=False)
class ObservedExpectedAt:
    """O/E at each time.

    Attributes
    ----------
    results : tuple of ObservedExpected
        One for each of `at`; NaN where no row was followed so long.
    error_bound : array, shape (m,)
        Largest distance of each value from that of the rows; zero where the times of all rows are known.
    """

    results: tuple[ObservedExpected, ...]
    error_bound: Vector = field(repr=False)


class StreamingObservedExpected(Accumulator):
    """Accumulate O/E at fixed times without holding the rows; see `observed_expected`.

    Its interval is the one called "greenwood" there: that of pseudo-values needs the rows.

    Parameters
    ----------
    at : array-like, shape (m,)
        Increasing times.
    level : float
        Coverage of the intervals.
    grid, limit
        Of the times, as in `StreamingKaplanMeier`.

    Examples
    --------
    >>> meter = StreamingObservedExpected([2])
    >>> _ = meter.update([[0.2], [0.2], [0.3], [0.3]], time=[1, 2, 3, 4], event=[1, 0, 1, 1])
    >>> meter.compute().results[0].value
    1.0
    """

    def __init__(self, at: Any, *, level: float = 0.95, grid: Any = None, limit: int = LIMIT) -> None:
        super().__init__()
        self.at = as_time_grid("at", at)
        self.level = as_number("level", level, above=0, below=1)
        self.curves = StreamingKaplanMeier(grid=grid, at=self.at, limit=limit)
        m = self.at.size
        # The parts are those of the curves, so that merge and state_dict have one copy of the rule.
        self._sums, self._cells = self.curves._sums, self.curves._cells
        self._sums |= {name: np.zeros(m, np.int64) for name in ("events", "followed")}
        self._sums["expected"] = np.zeros((2, m), np.int64)

    def load_state_dict(self, state: Any) -> Self:
        """Replace the state by one from `state_dict` of an accumulator with the same settings."""
        super().load_state_dict(state)
        self.curves._sums, self.curves._cells = self._sums, self._cells
        return self

    def _settings(self) -> tuple[Any, ...]:
        return self.at, self.level, *self.curves._settings()

    def update(self, probability: Any, *, time: Any, event: Any) -> Self:
        """Add rows: the probability of an event by each of `at`, shape (n, m), and the outcome."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        outcome = as_outcome(time, event, beside={"probability": probability})
        p, _ = as_curves("probability", probability, self.at, outcome.n)
        self.add(p, outcome.time, outcome.event)
        return self

    def add(self, probability: FloatArray, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        self.curves.add(time, event)
        self._sums["expected"] += unit_sums(probability)
        for k, moment in enumerate(self.at):
            self._sums["events"][k] += np.count_nonzero(event & (time <= moment))
            self._sums["followed"][k] += np.count_nonzero(time >= moment)

    def compute(self) -> ObservedExpectedAt:
        """Return O/E of all rows seen so far."""
        self._need_rows()
        curve = self.curves.compute()
        expected = sums_as_floats(self._sums["expected"]) / self.n
        observed = np.where(self._sums["followed"] > 0, 1 - curve.curve.at(self.at), np.nan)
        error = np.sqrt(curve.curve.variance(self.at))
        counted = zip(observed, expected, error, self.at, self._sums["events"], strict=True)
        results = tuple(ratio(float(o), float(e), float(s), float(t), int(d), self.level) for o, e, s, t, d in counted)
        return ObservedExpectedAt(results, _error_bound(curve, self.at, expected))


def _error_bound(curve: BoundedCurve, at: Vector, expected: Vector) -> Vector:
    """How far the curve can be off, over the expected share."""
    low, high = curve.bounds(at)
    value = curve.curve.at(at)
    off = np.maximum(high - value, value - low)
    bound: Vector = np.divide(off, expected, out=np.full(at.size, np.nan), where=expected > 0)
    return bound
