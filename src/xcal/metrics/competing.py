"""Several causes of an event: what comes of each by a time, where the others may come first.

A patient can die before the recurrence. To treat that death as censoring answers another question, what would happen if
nobody died, and overstates the risk. The Aalen-Johansen estimate is the probability, by each time, of an event of each
cause while all causes act.

Causes are whole numbers: 0 for a censored row, 1, 2, ... for the causes. With a single cause the estimate is one minus
Kaplan-Meier, and every function here agrees with the one for a single cause.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from xcal._checks import (
    FloatArray,
    as_causes,
    as_count,
    as_number,
    as_time,
    check_rows,
    fail,
)
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier, product_limit
from xcal.data.surv import Outcome
from xcal.metrics.inputs import Vector, as_row_weights

Matrix = npt.NDArray[np.float64]
Causes = npt.NDArray[np.int64]


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


def fit_aalen_johansen(time: FloatArray, cause: Causes, n_causes: int, weights: Vector | None = None) -> AalenJohansen:
    """Return the estimate of checked data."""
    times, place = np.unique(time.astype(np.float64, copy=False), return_inverse=True)
    one = np.ones(time.size) if weights is None else weights
    counts = np.array([np.bincount(place, one * (cause == k), times.size) for k in range(1, n_causes + 1)])
    at_risk = _at_risk(place, one, times.size)
    survival = product_limit(counts.sum(axis=0), at_risk)
    before = np.append(1.0, survival[:-1])
    incidence = np.cumsum(before * counts / at_risk, axis=1)
    error = np.array(
        [_error(k, incidence[k - 1], counts, at_risk, before, place, cause, one) for k in range(1, n_causes + 1)]
    )
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
    return ObservedRisk(fit_aalen_johansen(outcome.time, _two_causes(outcome), 2, weights))


def _two_causes(outcome: Outcome) -> Causes:
    """Return 1 for the event, 2 for a competing one."""
    assert outcome.competing is not None
    return outcome.event + 2 * outcome.competing.astype(np.int64)


def incidence_pseudo_values(outcome: Outcome, at: float, *, seen: float = 1.0, weights: Vector | None = None) -> Vector:
    """Return n F - (n - 1) F without the row, with F the incidence of an event, others competing, by one time.

    Where nothing competes these are the values of `pseudo_values.jackknife`, whose parameters these are. Of weighted
    rows F + W dF/dw, the infinitesimal jackknife.
    """
    cause, n = _two_causes(outcome), outcome.n
    moments, place = np.unique(outcome.time, return_inverse=True)
    one = np.ones(n) if weights is None else weights
    counts = np.array([np.bincount(place, one * (cause == k), moments.size) for k in (1, 2)])
    by_then = int(np.searchsorted(moments, at, side="right"))
    left = np.bincount(place, one * (cause == 0), moments.size)
    r = (_at_risk(place, one, moments.size) - (1 - seen) * left)[:by_then]
    d, own = counts.sum(axis=0)[:by_then], counts[0, :by_then]
    passed, at_own = place < by_then, np.minimum(place, by_then)
    if weights is not None:
        return _infinitesimal(d, own, r, passed, at_own, cause, seen, float(weights.sum()))
    kept, comes = 1 - _part(d, r), _part(own, r)
    # What is still to come from each moment on, for one who has reached it: backwards, to its end.
    ahead = np.zeros(by_then + 1)
    for j in range(by_then - 1, -1, -1):
        ahead[j] = comes[j] + kept[j] * ahead[j + 1]
    # Without a row that outlasts them: survival before each moment, and the incidence before it.
    before = np.append(1.0, np.cumprod(1.0 - _part(d, r - 1)))
    passed_by = np.append(0.0, np.cumsum(before[:-1] * _part(own, r - 1)))
    # Without the row at its own moment, of which a censored one was seen a part.
    others = np.append(r, 0.0)[at_own] - np.where(cause > 0, 1.0, seen)
    comes_own = _part(np.append(own, 0.0)[at_own] - ((cause == 1) & passed), others)
    kept_own = 1 - _part(np.append(d, 0.0)[at_own] - ((cause > 0) & passed), others)
    after = comes_own + kept_own * ahead[np.minimum(at_own + 1, by_then)]
    left_out = passed_by[at_own] + before[at_own] * np.where(passed, after, 0.0)
    return np.asarray(n * ahead[0] - (n - 1) * left_out)


def _infinitesimal(
    d: Vector,
    own: Vector,
    r: Vector,
    passed: npt.NDArray[np.bool_],
    place: Causes,
    cause: Causes,
    seen: float,
    total: float,
) -> Vector:
    """Pseudo-values from the weights of events and of those at risk up to one time; see `_error` for the influence."""
    if not d.size:
        return np.zeros(cause.size)
    left = r - d
    step = np.divide(1.0, left, out=np.zeros_like(left), where=left > 0)
    before = np.append(1.0, np.cumprod(1 - _part(d, r))[:-1])
    comes = before * _part(own, r)
    incidence = np.cumsum(comes)
    grows = d * step / r
    log_survival = np.append(0.0, np.cumsum(grows))
    waiting = np.append(0.0, np.cumsum(comes * (log_survival[:-1] - 1 / r)))
    last = float(incidence[-1])
    at = np.minimum(place, d.size - 1)
    # A row is at risk of all events of its own time; a censored one of those of the part of it that it was seen.
    part = np.where(cause > 0, 1.0, seen)
    slope = log_survival[at] + part * grows[at] - np.where(cause > 0, step[at], 0.0)
    level = waiting[at] + comes[at] * (log_survival[at] - part / r[at])
    level = level + np.where(cause == 1, before[at] / r[at], 0.0) + slope * (last - incidence[at])
    return np.asarray(last + total * np.where(passed, level, waiting[-1]))


def _at_risk(place: npt.NDArray[Any], weight: Vector, n_times: int) -> Vector:
    """Return the rows that have come to each time, by their weights."""
    return np.asarray(np.cumsum(np.bincount(place, weight, n_times)[::-1])[::-1], dtype=np.float64)


def _part(amount: Vector, whole: Vector) -> Vector:
    """Return amount / whole; 0 where there is nothing of the whole."""
    return np.divide(amount, whole, out=np.zeros(np.shape(whole)), where=whole > 0)
