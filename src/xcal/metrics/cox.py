"""A Cox model with few covariates, and the published slope and calibration index that assume one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from xcal._checks import MANY, FloatArray, as_count, as_number
from xcal._kaplan_meier import curve_of_counts, fit_kaplan_meier, starts_run
from xcal.data.surv import Outcome
from xcal.metrics.inputs import (
    Integers,
    Matrix,
    Vector,
    counted_quantiles,
    read_at,
    running_sums,
)

# --- A Cox model with few covariates, behind the integrated calibration index and the Cox calibration slope.

# Log partial likelihood, its gradient, its negated Hessian, and each death's risk-set total.
Likelihood = tuple[float, Vector, Matrix, Vector]
_MAX_STEPS = 50
_MAX_HALVINGS = 30
# Newton's decrement bounds how much log-likelihood is still to be gained; beside sampling error, where differences of
# about 1 matter, a gain below this is nothing.
_DECREMENT = 1e-10
# Rounding of a log-likelihood as a share of it: that of a million rows is about -1e7, and its last digits are noise.
_ROUNDING = 1e-13
# Above so many deaths (of rows that count several times), so many at one time stand for all of that time.
_MANY_DEATHS = 1 << 20
_SHOWN_DEATHS = 256
# log(-log(1 - p)) is infinite at p = 0 and p = 1. Predictions are moved this far inside, to -23.0 and 3.1 on that
# scale; no calibration sample can tell a probability of 1e-10 from zero.
_INSIDE = 1e-10


def log_hazard(p: Vector) -> Vector:
    """log(-log(1 - p)), the log of the cumulative hazard behind a probability, held within that of 1e-10 and 1 - 1e-10.

    Under proportional hazards it is the linear predictor plus a constant.
    """
    return np.asarray(np.log(-np.log1p(-np.clip(p, _INSIDE, 1 - _INSIDE))))


@dataclass(frozen=True, eq=False)
class CoxFit:
    """Coefficients, their information, and cumulative baseline hazard at one time.

    `converged` is False if there is no maximum. The inverse of `information` is the covariance of the coefficients.
    """

    coefficients: Vector
    baseline: float
    converged: bool
    information: Matrix

    def event_probability(self, x: Matrix) -> Vector:
        """Probability of an event by the time of `baseline`."""
        with np.errstate(over="ignore"):  # an infinite hazard is a probability of one
            return np.asarray(-np.expm1(-self.baseline * np.exp(x @ self.coefficients)))


class RiskSets:
    """Risk sets of the distinct event times, for rows in time order that may count several times or not at all.

    Sums over risk sets run from the last row to the first, so that nothing is subtracted from them but the deaths of
    their own time, which stand at their beginning: Efron's method lets the k-th of d deaths at one time meet the others
    with the part k/d of each already gone.

    Parameters
    ----------
    outcome : Outcome
        Sorted by time, events before censored rows of the same time.
    """

    def __init__(self, outcome: Outcome) -> None:
        time = outcome.time
        self._events = np.flatnonzero(outcome.event)
        own = time[self._events]
        self._starts = np.flatnonzero(starts_run(own)) if own.size else self._events
        first = self._events[self._starts]
        self._time = time[first]
        # Places in the sums from the end: with everybody at risk, and without the deaths of the time.
        self._at_risk = time.size - first
        self._outlasting = self._at_risk - np.diff(np.append(self._starts, self._events.size))

    def fit(self, x: Matrix, counts: Vector, at: float, start: Vector, *, most_deaths: int | None = None) -> CoxFit:
        """Efron's partial likelihood maximised, x of shape (p, n); Newton's method begins at `start`.

        `counts` are whole numbers, at least one of them on an event. At a time with more than `most_deaths` deaths,
        so many stand for all: the mean over them is the midpoint rule for Efron's.
        """
        deaths = self._deaths(counts, most_deaths)
        p = x.shape[0]
        upper = np.triu_indices(p)
        observed = x.take(self._events, axis=1) @ counts[self._events]
        x, counts = np.ascontiguousarray(x[:, ::-1]), counts[::-1]
        products = np.vstack([np.ones_like(counts)[None], x, x[upper[0]] * x[upper[1]]]) * counts

        def likelihood(beta: Vector) -> Likelihood:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a wild trial step is halved
                # einsum, as a matrix library wakes all its threads for these, and they get in each other's way.
                sums = deaths.totals(products * np.exp(np.einsum("p,pn->n", beta, x)))
                total, mean = sums[0], sums[1 : p + 1] / sums[0]
                information = np.empty((p, p))
                weighted = mean if deaths.weight is None else mean * deaths.weight
                information[upper] = deaths.sum(sums[p + 1 :] / total)
                information[upper[::-1]] = information[upper]
                information -= np.einsum("pn,qn->pq", weighted, mean)
                value = float(beta @ observed - deaths.sum(np.log(total)))
                return value, observed - weighted.sum(axis=1), information, total

        beta, (_, _, information, denominators), converged = newton(likelihood, start)
        return CoxFit(beta, deaths.hazard(denominators, at), converged, information)

    def offset_hazard(self, offset: Vector, at: float, counts: Vector | None = None) -> tuple[float, float]:
        """Cumulative baseline hazard at one time with the offset as the whole linear predictor, and its variance.

        Efron's estimator, the sum over deaths of one over the risk-set total; its variance is the sum of the squares.
        `counts` are how often each row counts, once by default.
        """
        own = np.ones(offset.size) if counts is None else counts
        deaths = self._deaths(own)
        steps = 1.0 / deaths.totals((own[::-1] * np.exp(offset[::-1]))[None])[0][deaths.time <= at]
        return float(steps.sum()), float(np.square(steps).sum())

    def _deaths(self, counts: Vector, most: int | None = None) -> "_Deaths":
        number = np.add.reduceat(counts[self._events], self._starts).astype(np.int64)
        shown = number if most is None else np.minimum(number, most)
        of_time = np.repeat(np.arange(number.size), shown)
        gone = (np.arange(of_time.size) - (np.cumsum(shown) - shown)[of_time]) / shown[of_time]
        weight = None
        if most is not None:
            weight = number[of_time] / shown[of_time]
            # From the beginnings of the parts to their middles, less half a death: nothing where all are shown.
            gone += 0.5 / shown[of_time] - 0.5 / number[of_time]
        return _Deaths(self._time[of_time], gone, self._at_risk[of_time], self._outlasting[of_time], weight)


@dataclass(frozen=True, eq=False)
class _Deaths:
    """Each death: its time, the part of its fellow dead already gone, and its places in the sums over risk sets."""

    time: FloatArray
    gone: Vector
    at_risk: Integers
    outlasting: Integers
    weight: Vector | None = None  # deaths that each stands for; one each if None

    def sum(self, values: Matrix) -> Matrix:
        """Sum over the deaths, along the last axis."""
        return np.asarray((values if self.weight is None else values * self.weight).sum(axis=-1))

    def hazard(self, totals: Vector, at: float) -> float:
        """Cumulative baseline hazard at one time: over the deaths by then, the sum of one over the risk-set total."""
        early = self.time <= at
        # Where the likelihood has no maximum, sums over risk sets may underflow.
        with np.errstate(divide="ignore", over="ignore"):
            return float(np.sum((1.0 if self.weight is None else self.weight[early]) / totals[early]))

    def totals(self, backwards: Matrix) -> Matrix:
        """Sum over the risk set of each death, of values of shape (k, n) from the last row to the first."""
        running = running_sums(backwards)
        everybody = running.take(self.at_risk, axis=1)
        return np.asarray(everybody - self.gone * (everybody - running.take(self.outlasting, axis=1)))


def fit_cox(x: Matrix, outcome: Outcome, at: float, counts: Vector | None = None, *, rough: bool = False) -> CoxFit:
    """Maximise Efron's partial likelihood by Newton's method with step halving; hazard by Efron's estimator.

    Parameters
    ----------
    x : array, shape (n, p)
        Covariates, p small, on a scale near 1.
    outcome : Outcome
        Of n rows, at least one of them with an event.
    at : float
        Time of the cumulative baseline hazard.
    counts : array, shape (n,), optional
        How often each row counts. With millions of deaths, a part of those at one time stand for all.
    rough : bool
        Let a part of them stand for all whatever their number: for rows whose times are rough too.
    """
    order = outcome.order()
    sets = RiskSets(outcome.take(order))
    own = np.ones(outcome.n) if counts is None else counts[order]
    all_shown = counts is None or (counts[outcome.event].sum() <= _MANY_DEATHS and not rough)
    most = None if all_shown else _SHOWN_DEATHS
    return sets.fit(np.ascontiguousarray(x[order].T), own, at, np.zeros(x.shape[1]), most_deaths=most)


def newton(likelihood: Callable[[Vector], Likelihood], beta: Vector) -> tuple[Vector, Likelihood, bool]:
    """Maximise a log partial likelihood by Newton's method with step halving: where, what it is there, and whether."""
    value, gradient, information, denominators = likelihood(beta)
    converged = False
    for _ in range(_MAX_STEPS):
        try:
            step = np.linalg.solve(information, gradient)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(step).all():
            break
        noise = max(_DECREMENT, _ROUNDING * abs(value))
        for halving in range(_MAX_HALVINGS):
            trial = likelihood(beta + step / 2**halving)
            # Beside the maximum the last digits of the likelihood are noise; a step that gains nothing is as good.
            if trial[0] >= value - noise:
                break
        else:
            break
        converged = float(gradient @ step) / 2 < _DECREMENT
        beta = beta + step / 2**halving
        value, gradient, information, denominators = trial
        if converged:
            break
    return beta, (value, gradient, information, denominators), converged


# --- Cox calibration slope and intercept: the weak calibration of clinical prediction models.
# Not the quantile slope of the X-CAL paper, which stands in `quantile_slope`.

# A slope per standard deviation of x that is not known to within a thousand has run away: the events come in the exact
# order of the predictions, and the likelihood only levels off.
_LEAST_INFORMATION = 1e-6


@dataclass(frozen=True)
class CoxCalibration:
    """Slope and intercept of a Cox regression on the model's own log cumulative hazard.

    Attributes
    ----------
    slope, slope_lower, slope_upper : float
        Coefficient and its Wald interval: 1 for a calibrated model, below 1 where risks are too extreme (too high
        above the mean, too low below), above 1 where they are not spread enough. NaN where the rows do not
        determine it: no event, equal predictions, or a perfect separation.
    intercept, intercept_lower, intercept_upper : float
        Log of the factor on the cumulative hazards at `at`, the slope held at 1, and its Wald interval: 0 for a
        calibrated model, above 0 where it predicts too little. NaN without an event.
    at : float
        The time.
    n_events : int
        Events by `at`: those that took part.
    """

    slope: float
    slope_lower: float
    slope_upper: float
    intercept: float
    intercept_lower: float
    intercept_upper: float
    at: float
    n_events: int


def cox_calibration(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    level: float = 0.95,
    outside: Literal["nan", "raise", "clip"] = "nan",
) -> CoxCalibration:
    r"""Calibration slope and intercept on the scale :math:`x_i = \log(-\log(1 - p_i))`.

    Both use the rows as followed until t: events by t count, and others are censored at their observed time or at t.

    The slope is the coefficient b of a Cox regression, hazard :math:`\lambda_0(t) \exp(b x_i)`, with Efron's method
    for ties. For a model with proportional hazards x is its linear predictor plus a constant, and the slope is that on
    the linear predictor, whatever the time. For other models it belongs to the time.

    The intercept holds b at 1, with x as an offset: the log of the cumulative baseline hazard at t (Efron's
    estimator), which is zero if everybody's cumulative hazard at t is :math:`\exp(x_i)`, as the model says. Its
    exponential is the factor by which the model's cumulative hazards would have to be multiplied.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`. Probabilities below 1e-10, or as close to 1, are
        held there: they are infinite on the scale of x.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    level : float
        Coverage of the intervals.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or take the hazard reached by then.

    Returns
    -------
    CoxCalibration

    References
    ----------
    van Houwelingen (2000), Statistics in Medicine 19(24):3401-3415. Crowson, Atkinson, Therneau (2016), Statistical
    Methods in Medical Research 25(4):1692-1706.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=4000)
    >>> time, event = rng.exponential(np.exp(-x)), np.ones(4000)
    >>> too_extreme = 1 - np.exp(-np.exp(2 * x))
    >>> round(cox_calibration(too_extreme, at=1.0, time=time, event=event).slope, 1)
    0.5
    """
    rows = read_at(probability, at, time=time, event=event, outside=outside)
    level = as_number("level", level, above=0, below=1)
    unknown = (float("nan"), float("nan"))
    slope = intercept = unknown
    if rows.n_events and rows.known:
        followed = Outcome(np.minimum(rows.outcome.time, rows.at), rows.outcome.happened_by(rows.at))
        x, order = log_hazard(rows.risk), followed.order()
        slope = _slope(x, followed)
        hazard, variance = RiskSets(followed.take(order)).offset_hazard(x[order], rows.at)
        # The standard error of the log by the delta method.
        intercept = float(np.log(hazard)), variance**0.5 / hazard
    z = float(ndtri((1 + level) / 2))
    return CoxCalibration(
        slope[0],
        slope[0] - z * slope[1],
        slope[0] + z * slope[1],
        intercept[0],
        intercept[0] - z * intercept[1],
        intercept[0] + z * intercept[1],
        rows.at,
        rows.n_events,
    )


def _slope(x: Vector, outcome: Outcome) -> tuple[float, float]:
    """Coefficient of x and its standard error; NaN where the likelihood has no maximum."""
    spread = float(x.std())
    if spread == 0:
        return float("nan"), float("nan")
    # Centred and scaled, so that Newton's method starts in a well-conditioned place.
    return slope_of(fit_cox(((x - x.mean()) / spread)[:, None], outcome, outcome.last), spread)


def slope_of(fit: CoxFit, spread: float) -> tuple[float, float]:
    """Coefficient of x and its standard error, from a fit to x over `spread`; NaN where there is no maximum."""
    information = float(fit.information[0, 0])
    if not fit.converged or not information > _LEAST_INFORMATION:
        return float("nan"), float("nan")
    return float(fit.coefficients[0]) / spread, information**-0.5 / spread


# --- The calibration index of published guidelines, by a Cox model: right where hazards are proportional, and only
# there.
# `xcal.metrics.integrated_calibration_index` assumes nothing about hazards. This one is kept because published
# validations report it, and because its sums can be formed without holding the rows (`xcal.metrics.streaming`).

Smoother = Literal["spline", "line", "constant"]


@dataclass(frozen=True, eq=False)
class CoxICI:
    """Summary of the distance between predicted and smoothed observed probabilities.

    Attributes
    ----------
    value : float
        ICI, the mean absolute difference over the rows.
    e50, e90, emax : float
        Median, 90th percentile and maximum of the absolute difference.
    predicted, observed : arrays, shape (100,)
        The calibration curve between the first and the 99th percentile of the predictions.
    at : float
        The time.
    smoother : {"spline", "line", "constant"}
        What could be fitted: the spline asked for; a straight line when the predictions have too few distinct values
        for its knots; Kaplan-Meier when they are all equal.
    converged : bool
        False when the likelihood of the smoother does not determine it, for instance with a single event after which
        nobody is at risk; all values are then NaN.
    """

    value: float
    e50: float
    e90: float
    emax: float
    predicted: Vector = field(repr=False)
    observed: Vector = field(repr=False)
    at: float
    smoother: Smoother
    converged: bool


def cox_ici(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    n_knots: int = 3,
    outside: Literal["nan", "raise", "clip"] = "nan",
) -> CoxICI:
    r"""ICI, E50, E90 and Emax of Austin, Harrell and van Klaveren, which assume proportional hazards.

    The observed probability is smoothed by a Cox model of the event on a restricted cubic spline of
    :math:`\log(-\log(1 - p_i))`, fitted to the whole follow-up with Efron's method for ties. Censored rows enter
    through its risk sets. The distance :math:`|p_i - \hat p(p_i)|` is then summarised over all rows, censored ones
    included.

    One factor on one baseline hazard describes every row: where hazards cross, or where spread or tails differ between
    rows, the true probabilities themselves score well above zero (.02 to .05 in the documentation's table). Use it to
    compare with published values, and `integrated_calibration_index` to judge a model.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    n_knots : int
        Knots of the spline, at least 3, at equally spaced quantiles: of 0.1 to 0.9 for three, 0.05 to 0.95 for four
        to six, 0.025 to 0.975 for more.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or keep the hazard reached by then.

    Returns
    -------
    CoxICI
        With no event by `at` the observed curve is zero.

    References
    ----------
    Austin, Harrell, van Klaveren (2020), Statistics in Medicine 39(21):2714-2742.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=2000)
    >>> time = rng.exponential(1 / rate)
    >>> result = cox_ici(1 - np.exp(-rate), at=1.0, time=time, event=np.ones(2000))
    >>> result.value < 0.03 < result.emax * 3
    True
    """
    rows = read_at(probability, at, time=time, event=event, outside=outside)
    as_count("n_knots", n_knots, at_least=3, at_most=MANY)
    curve = fitted_curve(rows.risk, rows.outcome, rows.at, n_knots)
    return index_of_curve(rows.risk, None, curve, rows.at, known=rows.known)


def index_of_curve(p: Vector, counts: Vector | None, curve: "SmoothCurve", at: float, *, known: bool = True) -> CoxICI:
    """ICI of rows whose smooth curve is there."""
    low, high = _quantiles(p, counts, [0.01, 0.99])
    grid = np.linspace(float(low), float(high), 100)
    observed = curve.at(np.concatenate([p, grid]))
    if not (curve.converged and known):
        observed[:] = np.nan
    error = np.abs(p - observed[: p.size])
    e50, e90 = _quantiles(error, counts, [0.5, 0.9])
    return CoxICI(
        value=float(np.average(error, weights=counts)),
        e50=float(e50),
        e90=float(e90),
        emax=float(error.max()),
        predicted=grid,
        observed=observed[p.size :],
        at=at,
        smoother=curve.smoother,
        converged=curve.converged,
    )


def _quantiles(values: Vector, counts: Vector | None, levels: list[float] | Vector) -> Vector:
    """Quantiles of rows that may count several times; NaN where a value is."""
    if counts is None or np.isnan(values).any():
        return np.asarray(np.quantile(values, levels))
    order = np.argsort(values, kind="stable")
    return counted_quantiles(values[order], counts[order], levels)


@dataclass(frozen=True, eq=False)
class SmoothCurve:
    """Observed probability as a function of the predicted one: a Cox model on a spline or a line, or one number.

    Attributes
    ----------
    smoother : {"spline", "line", "constant"}
    constant : float
        The number, where it is one.
    knots : array or None
        Those of the spline; None for a line.
    centre, scale : arrays
        Columns of the basis have these taken off, and are divided by these.
    fit : CoxFit or None
        None where the curve is one number.
    """

    smoother: Smoother
    constant: float = np.nan
    knots: Vector | None = None
    centre: Vector = field(default_factory=lambda: np.zeros(1))
    scale: Vector = field(default_factory=lambda: np.ones(1))
    fit: CoxFit | None = None

    @property
    def converged(self) -> bool:
        """Whether the likelihood determines it."""
        return self.fit is None or self.fit.converged

    def at(self, p: Vector) -> Vector:
        """Observed probability where `p` is predicted."""
        if self.fit is None:
            return np.full(p.size, self.constant)
        return self.fit.event_probability((curve_basis(log_hazard(p), self.knots) - self.centre) / self.scale)


def fitted_curve(
    p: Vector,
    outcome: Outcome,
    at: float,
    n_knots: int = 3,
    counts: Vector | None = None,
    *,
    knots: Vector | None = None,
    rough: bool = False,
) -> SmoothCurve:
    """Fit the observed probability as a function of the predicted one; knots that are not given are quantiles.

    `rough` is for rows whose times are no more than cells, see `fit_cox`.
    """
    if not outcome.happened_by(at).any():
        return SmoothCurve("constant", 0.0)
    if p.min() == p.max():
        return SmoothCurve("constant", 1 - _survival(outcome, at, counts))
    x = log_hazard(p)
    knots = _knots(x, n_knots, counts) if knots is None else knots
    basis = curve_basis(x, knots)
    # Centre and scale, so that Newton's method starts in a well-conditioned place; the fitted curve does not change.
    centre = np.average(basis, axis=0, weights=counts)
    spread = np.sqrt(np.average(np.square(basis - centre), axis=0, weights=counts))
    scale = np.where(spread > 0, spread, 1.0)
    fit = fit_cox((basis - centre) / scale, outcome, at, counts, rough=rough)
    return SmoothCurve("line" if knots is None else "spline", np.nan, knots, centre, scale, fit)


def _survival(outcome: Outcome, at: float, counts: Vector | None) -> float:
    """Kaplan-Meier at one time, of rows that may count several times."""
    if counts is None:
        return float(fit_kaplan_meier(outcome.time, outcome.event).at(at))
    times, place = np.unique(outcome.time, return_inverse=True)
    events, censored = (
        np.bincount(place, counts * kind).astype(np.float64) for kind in (outcome.event, ~outcome.event)
    )
    return float(curve_of_counts(times.astype(np.float64), events, censored).at(at))


def _knots(sample: Vector, n_knots: int, counts: Vector | None) -> Vector | None:
    """Knots at quantiles of the sample; None, for a line, where it has too few values."""
    knots = _quantiles(sample, counts, knot_levels(n_knots))
    return None if np.unique(knots).size < n_knots or np.unique(sample).size < n_knots else knots


def curve_basis(x: Vector, knots: Vector | None) -> Matrix:
    """Columns of a restricted cubic spline, cubic between the knots and straight beyond; without knots of a line.

    Harrell's truncated powers: the line itself, and for each knot but the last two a cubic piece from which the last
    two take away what would bend the right tail.
    """
    if knots is None:
        return x[:, None]
    pieces = [spline_piece(x, knot, knots[-2], knots[-1]) / (knots[-1] - knots[0]) ** 2 for knot in knots[:-2]]
    return np.column_stack([x, *pieces])


def knot_levels(n_knots: int) -> Vector:
    """Quantiles of the predictions at which the knots are."""
    outer = 0.1 if n_knots == 3 else 0.05 if n_knots <= 6 else 0.025
    return np.linspace(outer, 1 - outer, n_knots)


def spline_piece(x: Vector, knot: float, before_last: float, last: float) -> Vector:
    """Cubic piece of a knot: six times the twofold integral of a tent on the three knots with slope 1 on its left.

    So it grows with x and with the last two knots, and falls with the first.
    """

    def cube(knot: float) -> Vector:
        beyond = np.maximum(x - knot, 0.0)
        return np.asarray(beyond * beyond * beyond)

    piece = cube(knot)
    piece = piece - cube(before_last) * (last - knot) / (last - before_last)
    return np.asarray(piece + cube(last) * (before_last - knot) / (last - before_last))
