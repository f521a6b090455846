"""Pseudo-values: what each row, censored or not, says about the event by one time.

Without censoring the pseudo-value of a row is 1 if its event came by that time and 0 if not. Under censoring it may be
any number near these. Its mean over rows is an estimate of their probability of an event, so it can stand in an average
or in a regression wherever the outcome itself would. Nothing is assumed about hazards.

=================  ====================================================================================================
kind               it estimates without bias if
=================  ====================================================================================================
`jackknife`        censoring does not depend on the covariates; of weighted rows it is the infinitesimal jackknife
`doubly_robust`    the censoring model is right, *or* the curves are: a true model is never called wrong because of how
                   its rows were censored
=================  ====================================================================================================

Both are exact where nobody is censored. Andersen, Klein, Rosthøj (2003), Biometrika 90:15-27, for the first; for the
second the efficient influence function of a survival probability (Robins, Rotnitzky 1992), with the audited model's
curves as the model of the outcome.
"""

from dataclasses import dataclass

import numpy as np

from xcal._checks import BoolArray, FloatArray
from xcal._kaplan_meier import share_left
from xcal.data.surv import Outcome
from xcal.metrics.censoring import CensoringModel
from xcal.metrics.competing import incidence_pseudo_values
from xcal.metrics.curves import Interpolation, fraction, left_column
from xcal.metrics.inputs import Integers, Vector

# A row stands for at most 1 / this many rows in `doubly_robust`: heavier ones would decide the result alone.
LEAST_UNCENSORED = 0.05
# Knots between 0 and the time at which curves that are read along lines are integrated, and rows worked on at a time.
_KNOTS, _BLOCK = 100, 1 << 14


def jackknife(outcome: Outcome, at: float, *, seen: float = 1.0, weights: Vector | None = None) -> Vector:
    """Return n F - (n - 1) F without the row, with F the observed risk by one time.

    It is one minus Kaplan-Meier, or Aalen-Johansen where other events compete.

    Of weighted rows, F + W dF/dw: what F changes by, per weight of the row, if that is changed a little, with W the sum
    of all weights (the infinitesimal jackknife). Their weighted mean is F.

    Parameters
    ----------
    outcome : Outcome
        Of n rows, at least two.
    at : float
        The time; an event exactly then has happened.
    seen : float
        Where rows share a time because times are in whole units: the part of its last unit during which a censored row
        was observed. 1 is Kaplan-Meier, in which it is at risk of every event of its time; 1/2 the actuarial rule.
    weights : array, shape (n,), optional
        Of the rows, all above zero.
    """
    if outcome.competing is not None:
        return incidence_pseudo_values(outcome, at, seen=seen, weights=weights)
    n, event = outcome.n, outcome.event
    moments, place = np.unique(outcome.time, return_inverse=True)
    one = np.ones(n) if weights is None else weights
    events, censored = (np.bincount(place, weights=one * kind).astype(np.float64) for kind in (event, ~event))
    at_risk = np.cumsum((events + censored)[::-1])[::-1] - (1 - seen) * censored
    by_then = int(np.searchsorted(moments, at, side="right"))
    d, r = events[:by_then], at_risk[:by_then]
    kept = share_left(d, r)
    if weights is not None:
        return _infinitesimal(d, r, place, event, seen, float(weights.sum()))
    # Leaving out a row that outlasts a moment, one with its event there, and one that is censored there.
    without, without_event, without_censored = (
        share_left(deaths, rows) for deaths, rows in ((d, r - 1), (d - 1, r - 1), (d, r - seen))
    )
    before = np.append(1.0, np.cumprod(without))
    after = np.append(np.cumprod(kept[::-1])[::-1], 1.0)
    # A row that outlasts the time has no factor of its own, and none of the others after it.
    passed, own = place < by_then, np.minimum(place, by_then)
    factor = np.where(event, np.append(without_event, 1.0)[own], np.append(without_censored, 1.0)[own])
    left_out = before[own] * np.where(passed, factor * after[np.minimum(own + 1, by_then)], 1.0)
    return np.asarray(1 - (n * after[0] - (n - 1) * left_out))


def _infinitesimal(d: Vector, r: Vector, place: Integers, event: BoolArray, seen: float, total: float) -> Vector:
    """Pseudo-values from the weights of deaths and of those at risk at the times up to one time.

    A row changes the log of the survival by the sum of d / (r (r - d)) while it is at risk, less 1 / (r - d) at its
    event. Where nobody is left survival is zero, and nothing changes it.
    """
    left = r - d
    survival = float(np.prod(share_left(d, r)))
    step = np.divide(1.0, left, out=np.zeros_like(left), where=left > 0)
    terms = np.divide(d * step, r, out=np.zeros_like(r), where=r > 0)
    passed = np.append(0.0, np.cumsum(terms))
    own = np.minimum(place, d.size)
    at_own = np.where(event, np.append(terms - step, 0.0)[own], np.append(seen * terms, 0.0)[own])
    return np.asarray(1 - survival - total * survival * (passed[own] + at_own))


def doubly_robust(
    survival: FloatArray,
    times: Vector,
    interpolation: Interpolation,
    own: Vector,
    outcome: Outcome,
    at: float,
    censoring: CensoringModel,
    at_entry: Vector | None = None,
) -> Vector:
    r"""Return pseudo-values by the model's own curves and a model of the censoring.

    .. math:: 1 - S_i(h) + \int_0^{\min(T_i, h)} \frac{S_i(h)}{S_i(u)} \frac{dM_i(u)}{G_i(u-)},
              \qquad dM_i = dN_i - d\Lambda_i

    with G the probability of not being censored. The prediction itself, corrected by what happened to the row while it
    was observed, weighted up for rows like it that were not. As :math:`S(h) / S(u)` grows by its own product with
    :math:`d\Lambda`, the integral is a sum of increments of that ratio over G.

    Parameters
    ----------
    survival, times, interpolation
        Curves, shape (n, m), that reach `at`, and how they are read between their times.
    own : array, shape (n,)
        S at each row's observed time.
    outcome, at
        What happened to the rows, and the time.
    censoring : CensoringModel
        Of the same rows.
    at_entry : array, shape (n,), optional
        S at the time of entry of each row, which all lie before `at`. The pseudo-values are then of the event by `at`
        of a row that has come to its entry: its law from there on is S(t) / S(entry), and integrals begin there.
    """
    time, event = outcome.time, outcome.event
    knots = np.append(0.0, times[(times > 0) & (times < at)])
    if interpolation == "linear":
        knots = np.union1d(knots, np.linspace(0.0, at, _KNOTS + 1))
    knots = np.append(knots[knots < at], at)
    values = np.empty(time.size)
    for start in range(0, time.size, _BLOCK):
        rows = slice(start, start + _BLOCK)
        curves = _at_knots(survival[rows], times, knots, interpolation)
        uncensored = np.maximum(_over_cells(censoring, rows, knots, interpolation), LEAST_UNCENSORED)
        ratio = _ratio(curves[:, -1:], curves)
        compensator = np.cumsum(np.diff(ratio, axis=1) / uncensored, axis=1)
        compensator = np.concatenate([np.zeros((len(ratio), 1)), compensator], axis=1)
        late = time[rows] > at
        integral = _Integral(knots, ratio, uncensored, compensator, interpolation)
        reached = np.where(late, 1.0, _ratio(curves[:, -1], own[rows]))
        lived, left = integral.until(np.minimum(time[rows], at), reached), curves[:, -1]
        if at_entry is not None and outcome.entry is not None:
            left = _ratio(curves[:, -1], at_entry[rows])
            lived = lived - integral.until(outcome.entry[rows], left)
        happened = event[rows] & ~late
        seen = np.maximum(censoring.before(time)[rows], LEAST_UNCENSORED)
        values[rows] = 1 - left + np.where(happened, reached / seen, 0.0) - lived
    return values


@dataclass(frozen=True, eq=False)
class _Integral:
    """The integral over the hazard in `doubly_robust`, of every row from 0 to any time."""

    knots: Vector
    ratio: Vector
    uncensored: Vector
    compensator: Vector
    interpolation: Interpolation

    def until(self, t: FloatArray, reached: Vector) -> Vector:
        """Return the integral until t, at which the ratio is `reached`: one time for each row."""
        line, straight = np.arange(t.size), self.interpolation == "linear"
        cell = np.searchsorted(self.knots, t, side="right") - 1
        cell = np.minimum(cell, self.knots.size - (2 if straight else 1))
        whole = self.compensator[line, cell]
        if straight:
            whole = whole + (reached - self.ratio[line, cell]) / self.uncensored[line, cell]
        return np.asarray(whole)


def _at_knots(survival: FloatArray, times: Vector, knots: Vector, interpolation: Interpolation) -> Vector:
    """Survival of every row at every knot, shape (rows, knots)."""
    whole = np.concatenate([np.ones((len(survival), 1)), survival], axis=1)
    left = left_column(times, knots)
    value = whole[:, left + 1]
    if interpolation == "linear":
        share = fraction(times, knots, left)
        value = (1 - share) * value + share * whole[:, np.minimum(left + 2, times.size)]
    return np.asarray(np.clip(value, 0.0, 1.0), dtype=np.float64)


def _over_cells(censoring: CensoringModel, rows: slice, knots: Vector, interpolation: Interpolation) -> Vector:
    """G that belongs to each cell between two knots: in its middle, or before its end, where a step function jumps."""
    return censoring.of_rows(rows, (knots[1:] + knots[:-1]) / 2 if interpolation == "linear" else knots[1:])


def _ratio(later: Vector, earlier: Vector) -> Vector:
    """S(h) / S(u), the chance of one who has come to u to come to h; 0 where nobody should have come to u."""
    later, earlier = np.broadcast_arrays(later, earlier)
    return np.divide(later, earlier, out=np.zeros(earlier.shape), where=earlier > 0)
