"""What was observed of rows: Kaplan-Meier, Aalen-Johansen for several causes, Turnbull for intervals; follow-up."""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from xcal._checks import (
    BoolArray,
    FloatArray,
    as_causes,
    as_choice,
    as_count,
    as_flag,
    as_floats,
    as_number,
    as_time,
    check_rows,
    fail,
)
from xcal._kaplan_meier import GAP, KaplanMeier, Of, fit_kaplan_meier, fit_turnbull, product_limit
from xcal.data.surv import Outcome, as_intervals, as_outcome
from xcal.metrics.inputs import Matrix, Vector, as_row_weights

Causes = npt.NDArray[np.int64]


def as_censoring(censoring: KaplanMeier | None, outcome: Outcome, weights: Vector | None = None) -> KaplanMeier:
    """Use the given censoring curve, or estimate one from the data at hand."""
    if censoring is None:
        return fit_kaplan_meier(outcome.time, outcome.ended, "censoring", weights)
    if not isinstance(censoring, KaplanMeier) or censoring.of != "censoring":
        got = f"a curve of {censoring.of!r}" if isinstance(censoring, KaplanMeier) else type(censoring).__name__
        fail("censoring", 'None or kaplan_meier(time=..., event=..., of="censoring")', got)
    return censoring


def censoring_survival(curve: KaplanMeier, t: FloatArray, *, left_limit: bool) -> tuple[Vector, BoolArray]:
    """Probability of not being censored by t, and where it is known.

    It is not known after the last time of the data behind the curve, and useless as a weight where it is zero. There
    the smallest positive value of the curve is given instead, for callers that choose to carry it on.

    Parameters
    ----------
    curve : KaplanMeier
        Of the censoring times.
    t : array
        Where to read it.
    left_limit : bool
        P(C >= t), the chance that an event at t was seen, instead of P(C > t). They differ only at times at which a
        row of the data behind the curve was censored.
    """
    value = curve.before(t) if as_flag("left_limit", left_limit) else curve.at(t)
    known = (np.asarray(t) <= curve.times[-1]) & (value > 0)
    positive = curve.survival[curve.survival > 0]
    last = float(positive.min()) if positive.size else 1.0
    return np.where(value > 0, value, last), np.asarray(known)


def kaplan_meier(*, time: Any, event: Any, of: Of = "event", weights: Any = None, entry: Any = None) -> KaplanMeier:
    r"""Kaplan-Meier estimate from right-censored data.

    .. math:: S(t) = \prod_{t_j \le t} \Big( 1 - \frac{d_j}{r_j} \Big)

    with :math:`d_j` events at the time :math:`t_j` and :math:`r_j` rows whose time is not before it.

    Parameters
    ----------
    time : array-like, shape (n,)
        Observed times, finite and not negative.
    event : array-like, shape (n,)
        True where the event happened, False where the row was censored.
    of : {"event", "censoring"}
        Estimate P(T > t), the survival curve, or G(t) = P(C > t), the curve that inverse probability of censoring
        weights need. At a time with both, the events count as coming first: the rows with an event at t are no
        longer at risk of being censored at t.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row. The curve is that of rows repeated as often as their weights say;
        its variance is design-based, the sum of squares of the rows' influences, as a row of weight 10 is one
        observation. Equal weights change nothing.
    entry : array-like, shape (n,), optional
        Time from which each row was under observation: it is at risk after its entry only. Without it, rows of delayed
        entry make the curve too high. Not together with `weights`.

    Returns
    -------
    KaplanMeier
        With only censored rows the survival curve is 1 everywhere, with only events the censoring curve is.

    References
    ----------
    Kaplan, Meier (1958), JASA 53(282):457-481.

    Examples
    --------
    >>> curve = kaplan_meier(time=[1, 2, 2, 3], event=[1, 1, 0, 1])
    >>> curve.at([0.5, 1, 2, 3])
    array([1.  , 0.75, 0.5 , 0.  ])
    >>> kaplan_meier(time=[1, 2, 2, 3], event=[1, 1, 0, 1], of="censoring").at([2, 3])
    array([0.5, 0.5])
    """
    outcome = as_outcome(time, event, beside={"weights": weights, "entry": entry}).entered(entry)
    chosen = as_choice("of", of, ("event", "censoring"))
    if outcome.entry is not None and weights is not None:
        fail("weights", "none beside times of entry", "weights")
    curve = fit_kaplan_meier(
        outcome.time, outcome.event, chosen, as_row_weights(weights, outcome.n), entry=outcome.entry
    )
    emptied = (curve.counts > 0) & (curve.counts == curve.at_risk) & (curve.times < outcome.last)
    if outcome.entry is not None and emptied.any():
        t = curve.times[emptied][0]
        few = f"all {curve.at_risk[emptied][0]:g} rows that had entered by time {t:g} had the event then"
        warnings.warn(
            f"{few}, and the curve is 0 from there on, although {np.count_nonzero(outcome.time > t):,} rows were "
            "observed later: start later, with the rows that have entered by then",
            stacklevel=2,
        )
    return curve


@dataclass(frozen=True, eq=False)
class FollowUp:
    """Distribution of the follow-up.

    Attributes
    ----------
    median, lower_quartile, upper_quartile : float
        Times by which a half, a quarter and three quarters of the rows would have been censored, had they had no event;
        NaN where the curve does not come down that far.
    longest : float
        Largest time of a row.
    curve : KaplanMeier
        Share of the rows still under observation, events set aside.
    """

    median: float
    lower_quartile: float
    upper_quartile: float
    longest: float
    curve: KaplanMeier = field(repr=False)


def follow_up(*, time: Any, event: Any, weights: Any = None, entry: Any = None) -> FollowUp:
    r"""Follow-up by reverse Kaplan-Meier: the censoring is the event, and an event ends the observation of it.

    The plain median of the times is too short where events end the follow-up of many rows.

    .. math:: \min \{ t : G(t) \le 1/2 \}

    is the median, with G the Kaplan-Meier curve of the censoring; the quartiles likewise.

    Parameters
    ----------
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row.
    entry : array-like, shape (n,), optional
        Time from which each row was under observation, as in `kaplan_meier`.

    Returns
    -------
    FollowUp

    References
    ----------
    Schemper, Smith (1996), Controlled Clinical Trials 17(4):343-346.

    Examples
    --------
    >>> follow_up(time=[1, 2, 3, 4, 5], event=[1, 0, 0, 0, 0]).median
    3.0
    """
    curve = kaplan_meier(time=time, event=event, of="censoring", weights=weights, entry=entry)
    return FollowUp(
        median=_first_at_or_below(curve, 0.5),
        lower_quartile=_first_at_or_below(curve, 0.75),
        upper_quartile=_first_at_or_below(curve, 0.25),
        longest=float(curve.times[-1]),
        curve=curve,
    )


def _first_at_or_below(curve: KaplanMeier, share: float) -> float:
    """Return the first time at which the curve is at or below a share; a hair of rounding does not decide."""
    reached = np.flatnonzero(curve.survival <= share * (1 + 1e-12))
    return float(curve.times[reached[0]]) if reached.size else float("nan")


# --- Several causes of an event: what comes of each by a time, where the others may come first.
# A patient can die before the recurrence. To treat that death as censoring answers another question, what would happen
# if nobody died, and overstates the risk. The Aalen-Johansen estimate is the probability, by each time, of an event of
# each cause while all causes act.
#
# Causes are whole numbers: 0 for a censored row, 1, 2, ... for the causes. With a single cause the estimate is one
# minus Kaplan-Meier, and every function here agrees with the one for a single cause.


def as_cause(of: Any, n_causes: int) -> int:
    """Check the number of the cause that is asked about."""
    return as_count("of", of, at_least=1, at_most=n_causes)


@dataclass(frozen=True, eq=False)
class AalenJohansen:
    """Cumulative incidence of every cause: right-continuous, constant between the observed times.

    Attributes
    ----------
    times : array, shape (m,)
        The distinct observed times, ascending.
    incidence : array, shape (causes, m)
        Probability of an event of each cause by each time, the other causes acting too.
    error : array, shape (causes, m)
        Standard error (infinitesimal jackknife); of weighted rows, design-based.
    survival : array, shape (m,)
        Probability of no event by each time: one less the sum of the incidences.
    at_risk : array, shape (m,)
        Rows at risk at each time, of weighted rows their weights.
    counts : array, shape (causes, m)
        Events of each cause at each time.
    """

    times: Vector = field(repr=False)
    incidence: Matrix = field(repr=False)
    error: Matrix = field(repr=False)
    survival: Vector = field(repr=False)
    at_risk: Vector = field(repr=False)
    counts: Matrix = field(repr=False)

    @property
    def n_causes(self) -> int:
        """How many causes there are."""
        return len(self.incidence)

    def at(self, t: FloatArray | float, *, of: int) -> Vector:
        """Return the incidence of one cause at t; beyond the last observed time, the last value."""
        return self._step(self.incidence[as_cause(of, self.n_causes) - 1], t)

    def error_at(self, t: FloatArray | float, *, of: int) -> Vector:
        """Return the standard error of the incidence of one cause at t."""
        return self._step(self.error[as_cause(of, self.n_causes) - 1], t)

    def interval(self, t: FloatArray | float, *, of: int, level: float = 0.95) -> tuple[Vector, Vector]:
        """Return an interval of the incidence at t, on the log(-log) scale; NaN where the incidence is 0 or 1."""
        value, error = self.at(t, of=of), self.error_at(t, of=of)
        inside = (value > 0) & (value < 1)
        rest = 1 - np.where(inside, value, 0.5)
        reach = (
            float(ndtri((1 + as_number("level", level, above=0, below=1)) / 2)) * error / (rest * np.abs(np.log(rest)))
        )
        low, high = (np.where(inside, 1 - np.exp(np.log(rest) * np.exp(side * reach)), np.nan) for side in (-1, 1))
        return low, high

    def _step(self, values: Vector, t: Any) -> Vector:
        passed = np.searchsorted(self.times, np.asarray(t, dtype=np.float64), side="right")
        return np.asarray(np.where(passed > 0, values[passed - 1], 0.0))


def aalen_johansen(*, time: Any, cause: Any, n_causes: int | None = None, weights: Any = None) -> AalenJohansen:
    r"""Estimate the cumulative incidence of every cause from right-censored data.

    .. math:: \hat F_k(t) = \sum_{t_j \le t} \hat S(t_j-) \, \frac{d_{jk}}{r_j}

    with :math:`d_{jk}` the events of cause k at :math:`t_j`, :math:`r_j` the rows at risk, and S the Kaplan-Meier curve
    of the events of any cause. At one time the events come before the censorings.

    Parameters
    ----------
    time : array-like, shape (n,)
        Observed times.
    cause : array-like, shape (n,)
        0 for a censored row, 1, 2, ... for the cause of its event.
    n_causes : int, optional
        How many causes there are, where some may have no event; by default the largest in `cause`.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row; the errors are then design-based.

    Returns
    -------
    AalenJohansen

    References
    ----------
    Aalen, Johansen (1978), Scandinavian Journal of Statistics 5(3):141-150. The error is that of R's survival package.

    Examples
    --------
    >>> curves = aalen_johansen(time=[1, 2, 3, 4, 5], cause=[1, 2, 0, 1, 0])
    >>> float(curves.at(4.5, of=1)), float(curves.at(4.5, of=2))
    (0.5, 0.2)
    """
    check_rows({"time": time, "cause": cause, "weights": weights})
    observed = as_time(time)
    named = None if n_causes is None else as_count("n_causes", n_causes, at_least=1, at_most=1000)
    causes = as_causes(cause, observed.size, n_causes=named)
    found = int(causes.max(initial=0)) if named is None else named
    if found == 0:
        fail("cause", "at least one event, or n_causes", "0 in every row")
    return fit_aalen_johansen(observed, causes, found, as_row_weights(weights, observed.size))


def fit_aalen_johansen(
    time: FloatArray, cause: Causes, n_causes: int, weights: Vector | None = None, *, error_of: int | None = None
) -> AalenJohansen:
    """Return the estimate of checked data, with the errors of all causes, or of one of them and NaN for the others."""
    times, place = np.unique(time.astype(np.float64, copy=False), return_inverse=True)
    one = np.ones(time.size) if weights is None else weights
    counts = np.array([np.bincount(place, one * (cause == k), times.size) for k in range(1, n_causes + 1)])
    at_risk = at_risk_of(place, one, times.size)
    survival = product_limit(counts.sum(axis=0), at_risk)
    before = np.append(1.0, survival[:-1])
    incidence = np.cumsum(before * counts / at_risk, axis=1)
    error = np.full(incidence.shape, np.nan)
    for k in range(1, n_causes + 1) if error_of is None else (error_of,):
        error[k - 1] = _error(k, incidence[k - 1], counts, at_risk, before, place, cause, one)
    return AalenJohansen(times, incidence, error, survival, at_risk, counts)


def _error(
    of: int,
    incidence: Vector,
    counts: Matrix,
    at_risk: Vector,
    before: Vector,
    place: Causes,
    cause: Causes,
    weight: Vector,
) -> Vector:
    """Root of the sum of squares, over rows, of what a little more weight of the row would change (times its weight).

    Until its observed time every row has the same influence, that of one at risk. After it the influence follows the
    incidence along a straight line, as what is left to come is multiplied by what the row did to the survival. So three
    sums over the rows that have left are enough.
    """
    events, own = counts.sum(axis=0), counts[of - 1]
    left = at_risk - events
    step = np.divide(1.0, left, out=np.zeros_like(left), where=left > 0)
    log_survival = np.cumsum(events * step / at_risk)  # of a row at risk: what it adds to the log of the survival
    earlier = np.append(0.0, log_survival[:-1])
    waiting = np.cumsum(before * own / at_risk * (earlier - 1 / at_risk))
    # At its observed time, and the slope and level of the line after it.
    slope = log_survival[place] - np.where(cause > 0, step[place], 0.0)
    level = waiting[place] + np.where(cause == of, before[place] / at_risk[place], 0.0) - slope * incidence[place]
    square = np.square(weight)
    sums = (np.cumsum(np.bincount(place, square * x, at_risk.size)) for x in (level**2, level * slope, slope**2))
    constant, mixed, quadratic = sums
    later = square.sum() - np.cumsum(np.bincount(place, square, at_risk.size))
    return np.asarray(
        np.sqrt(np.maximum(later * waiting**2 + constant + 2 * incidence * mixed + incidence**2 * quadratic, 0.0))
    )


# --- What was observed of one event by a time: one minus Kaplan-Meier, or Aalen-Johansen where others compete.


@dataclass(frozen=True, eq=False)
class ObservedRisk:
    """Observed probability of an event by each time, from a curve of one event or of one of several causes."""

    curve: KaplanMeier | AalenJohansen

    def at(self, t: FloatArray | float) -> Vector:
        """Return the probability by t."""
        return self.curve.at(t, of=1) if isinstance(self.curve, AalenJohansen) else 1 - self.curve.at(t)

    def without(self, t: FloatArray | float) -> Vector:
        """Return the probability of none by t."""
        return 1 - self.curve.at(t, of=1) if isinstance(self.curve, AalenJohansen) else self.curve.at(t)

    def error(self, t: FloatArray | float) -> Vector:
        """Return its standard error."""
        if isinstance(self.curve, AalenJohansen):
            return self.curve.error_at(t, of=1)
        return np.asarray(self.curve.variance(t) ** 0.5)

    def interval(self, t: FloatArray | float, level: float) -> tuple[Vector, Vector]:
        """Return its interval, on the log(-log) scale."""
        if isinstance(self.curve, AalenJohansen):
            return self.curve.interval(t, of=1, level=level)
        low, high = self.curve.interval(t, level)
        return 1 - high, 1 - low


def observed_risk(outcome: Outcome, weights: Vector | None = None) -> ObservedRisk:
    """Return the observed risk of checked data."""
    if outcome.competing is None:
        return ObservedRisk(fit_kaplan_meier(outcome.time, outcome.event, weights=weights))
    return ObservedRisk(fit_aalen_johansen(outcome.time, two_causes(outcome), 2, weights, error_of=1))


def two_causes(outcome: Outcome) -> Causes:
    """Return 1 for the event, 2 for a competing one."""
    of_others = 0 if outcome.competing is None else 2 * outcome.competing.astype(np.int64)
    return np.asarray(outcome.event + of_others, dtype=np.int64)


def at_risk_of(place: npt.NDArray[Any], weight: Vector, n_times: int) -> Vector:
    """Return the rows that have come to each time, by their weights."""
    return np.asarray(np.cumsum(np.bincount(place, weight, n_times)[::-1])[::-1], dtype=np.float64)


# --- Events that are only known to lie between two times.
# A screening finds an event between two visits. Taking it as happened at the visit that found it makes survival too
# high; Turnbull's estimate uses only that it lies in (lower, upper]. Where all times are known it is Kaplan-Meier.

_MOST_STEPS = 20_000


@dataclass(frozen=True, eq=False)
class Turnbull:
    """Survival curve of interval-censored rows.

    The data tell how much mass lies in each of some intervals, and nothing about where within them.

    Attributes
    ----------
    lower, upper : arrays, shape (m,)
        The intervals (lower, upper] that hold mass, ascending; equal ends are a time. The last `upper` is infinite
        where rows are still without the event at the end.
    mass : array, shape (m,)
        Probability of an event in each; adds up to 1.
    gap : float
        Upper bound of the log-likelihood per row that a better curve could gain.
    """

    lower: Vector = field(repr=False)
    upper: Vector = field(repr=False)
    mass: Vector = field(repr=False)
    gap: float

    def at(self, t: FloatArray | float) -> Vector:
        """Return the probability of no event by t, with the mass of an interval put at its end.

        Within an interval that is the highest curve that the data allow; see `bounds`.
        """
        return self.bounds(t)[1]

    def bounds(self, t: FloatArray | float) -> tuple[Vector, Vector]:
        """Return the lowest and the highest probability of no event by t that the data do not tell apart."""
        points = as_floats("t", np.atleast_1d(t)).astype(np.float64)
        left = np.append(1.0, 1.0 - np.cumsum(self.mass))
        # A mass at a time has come by then; one of an interval may have begun to come after its start.
        begun = np.where(self.lower < self.upper, np.nextafter(self.lower, np.inf), self.lower)
        ends = (left[np.searchsorted(side, points, side="right")] for side in (begun, self.upper))
        low, high = (np.clip(end, 0.0, 1.0).reshape(np.shape(t)) for end in ends)
        return low, high


def turnbull(*, lower: Any, upper: Any, weights: Any = None) -> Turnbull:
    r"""Estimate the survival curve of events that lie in (lower, upper].

    .. math:: \hat p = \arg\max_p \sum_i w_i \log \sum_{j:\, I_j \subseteq (l_i, u_i]} p_j

    over the innermost intervals :math:`I_j`, those from a lower end to the next upper end with no other end between:
    no other place can hold mass. Found by self-consistency, which makes each mass the mean of what the rows say of it,
    in extrapolated steps.

    Parameters
    ----------
    lower, upper : array-like, shape (n,)
        Ends of the interval of each row, as in `xcal.Surv`: equal ends are a time known exactly, an infinite or missing
        `upper` is a row censored at `lower`.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row.

    Returns
    -------
    Turnbull

    References
    ----------
    Turnbull (1976), Journal of the Royal Statistical Society B 38(3):290-295. Gentleman, Geyer (1994), Biometrika
    81(3):618-623, for the bound `gap`. Varadhan, Roland (2008), Scandinavian Journal of Statistics 35(2):335-353, for
    the extrapolated steps.

    Examples
    --------
    >>> curve = turnbull(lower=[0, 1, 1, 2, 3], upper=[1, 2, 3, np.inf, np.inf])
    >>> curve.at([0.5, 1, 2, 3]).round(3)
    array([1. , 0.8, 0.4, 0.4])
    """
    check_rows({"lower": lower, "upper": upper, "weights": weights})
    rows = as_intervals(lower, upper)
    low = np.asarray(rows.lower, dtype=np.float64)
    weight = as_row_weights(weights, rows.n)
    share = np.full(rows.n, 1 / rows.n) if weight is None else weight / weight.sum()
    high = np.where(rows.event, rows.time, np.inf).astype(np.float64)
    found = Turnbull(*fit_turnbull(low, high, share, steps=_MOST_STEPS))
    if found.gap > GAP:
        warnings.warn(
            f"turnbull: after {_MOST_STEPS:,} steps the log-likelihood per row may still grow by {found.gap:.1g}",
            stacklevel=2,
        )
    return found
