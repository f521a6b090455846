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
`coarsened`        the curves are, up to a recalibration; for events that lie in intervals, whose times nobody knows
=================  ====================================================================================================

All are exact where nothing is hidden. Andersen, Klein, Rosthøj (2003), Biometrika 90:15-27, for the first; for the
second the efficient influence function of a survival probability (Robins, Rotnitzky 1992), with the audited model's
curves as the model of the outcome; for the third Louis (1982), JRSS B 44:226-233, on information that is missing.

Before them stand the models of when rows are censored, and the test of what that depends on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import chdtrc, ndtri
from scipy.stats import rankdata

from xcal._checks import BoolArray, FloatArray, as_numpy, check_same_length, fail, first_row
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier, later_entries
from xcal.calibration.subgroups import Column
from xcal.data.surv import Outcome
from xcal.metrics.cox import RiskSets
from xcal.metrics.inputs import Integers, Interpolation, Matrix, Vector, fraction, left_column
from xcal.metrics.observed import as_censoring, at_risk_of, two_causes

# --- When rows are censored: models of it, and whether it depends on what is known of the rows.
# Kaplan-Meier, the jackknife and weights by a marginal censoring curve take the rows still observed to stand for those
# that are not. Where patients at high risk leave earlier, they do not. The score test of a Cox model of the censorings
# asks about the predicted risks and about every covariate; it sees such a dependence long before it matters.

# Level of the test, over all that was asked about, and censored rows below which nothing is tested.
LEVEL, FEWEST_CENSORED = 0.01, 20

# Logarithm of a factor on the hazard of censoring that no data show.
_MOST_PREDICTOR = 30.0

# Censored rows for each term of the model of censoring.
_PER_TERM = 10

# A row stands for at most 1 / this many rows by such a model: heavier ones would decide the result alone.
LEAST_UNCENSORED = 0.05


@dataclass(frozen=True, eq=False)
class CensoringModel:
    """A Cox model of the censoring times: the probability of not being censored, for each row by its covariates.

    Attributes
    ----------
    times, hazard : arrays, shape (k,)
        Times of the censorings, ascending, and the cumulative baseline hazard after each.
    factor : array, shape (n,)
        Factor of each row on that hazard.
    lived : array, shape (n,), or None
        Cumulative baseline hazard at the entry of each row, from which on it could be censored; None for 0.
    """

    times: Vector
    hazard: Vector
    factor: Vector
    lived: Vector | None = None

    def before(self, t: FloatArray) -> Vector:
        """Return the probability of each row to be observed until its own entry of `t`, shape (n,), or longer."""
        passed = np.append(0.0, self.hazard)[np.searchsorted(self.times, t, side="left")]
        return np.asarray(np.exp(-self.factor * (passed if self.lived is None else passed - self.lived)))

    def take(self, rows: npt.NDArray[Any]) -> "CensoringModel":
        """Return the model for some of the rows."""
        lived = None if self.lived is None else self.lived[rows]
        return CensoringModel(self.times, self.hazard, self.factor[rows], lived)

    def of_rows(self, rows: slice, t: Vector) -> Vector:
        """Return that of some rows at every time of a grid, shape (rows, times)."""
        passed = np.append(0.0, self.hazard)[np.searchsorted(self.times, t, side="left")]
        since = passed if self.lived is None else passed - self.lived[rows, None]
        return np.asarray(np.exp(-self.factor[rows, None] * since))

    def entered(self, entry: FloatArray | None) -> "CensoringModel":
        """Return the model for rows that could be censored from their entry on."""
        if entry is None:
            return self
        lived = np.append(0.0, self.hazard)[np.searchsorted(self.times, entry, side="right")]
        return CensoringModel(self.times, self.hazard, self.factor, lived)

    def stands_for(self, outcome: Outcome, t: Vector, *, left_limit: bool = True) -> tuple[Vector, Matrix]:
        """Return for how many rows each stands: with its event, shape (n,), and under observation after t, (n, times).

        None stands for more than 1 / `LEAST_UNCENSORED`.
        """
        own = self.before(outcome.time if left_limit else np.nextafter(outcome.time, np.inf))
        later = self.of_rows(slice(None), np.nextafter(t, np.inf))
        return outcome.ended / np.maximum(own, LEAST_UNCENSORED), 1 / np.maximum(later, LEAST_UNCENSORED)

    def observed_risk(self, outcome: Outcome, t: Vector, chosen: BoolArray | None = None) -> Vector:
        """Return the share of all or some of the rows with the event by each time; NaN where there are none."""
        chosen = np.ones(outcome.n, dtype=np.bool_) if chosen is None else chosen
        ended, lasts = self.stands_for(outcome, t)
        passed = (chosen[:, None] & (outcome.time[:, None] <= t)) * ended[:, None]
        risk = (passed * outcome.event[:, None]).sum(axis=0)
        total = passed.sum(axis=0) + ((chosen[:, None] & (outcome.time[:, None] > t)) * lasts).sum(axis=0)
        return np.asarray(np.divide(risk, total, out=np.full(t.size, np.nan), where=total > 0))


def fit_censoring(x: Vector, outcome: Outcome) -> CensoringModel | None:
    """Fit a Cox model of the censorings; None where its likelihood has no maximum.

    At one time the events come first: rows with an event at t are no longer at risk of being censored there.
    """
    time, event = outcome.time, outcome.ended
    spread = x.std(axis=0)
    scaled = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    # A censoring comes just after the events of its time.
    late, all_x, counts = np.where(event, time, np.nextafter(time, np.inf)), scaled, np.ones(time.size)
    leaves = ~event
    if outcome.entry is not None:
        # Rows are taken out of the sets of those at risk that lie before their entry, by counts below zero.
        late = np.append(late, np.nextafter(outcome.entry, np.inf))
        leaves, counts = np.append(leaves, np.zeros(time.size, dtype=np.bool_)), np.append(counts, -counts)
        all_x = np.append(scaled, scaled, axis=0)
    both = Outcome(late, leaves)
    order = both.order()
    sets, counts = RiskSets(both.take(order)), counts[order]
    ordered, censored = late[order], leaves[order]
    start = np.zeros(x.shape[1])
    fit = sets.fit(np.ascontiguousarray(all_x[order].T), counts, float(ordered[-1]), start)
    predictor = all_x @ fit.coefficients
    # Covariates that tell the order of all censorings have ever larger coefficients.
    if not fit.converged or not np.abs(predictor).max() < _MOST_PREDICTOR:
        return None
    factor = np.exp(predictor)
    # Breslow's steps: one over the sum of the factors at risk.
    at_risk = np.cumsum((counts * factor[order])[::-1])[::-1]
    first = np.searchsorted(ordered, ordered[censored], side="left")
    times = time[order[censored]].astype(np.float64)
    return CensoringModel(times, np.cumsum(1 / at_risk[first]), factor[: time.size]).entered(outcome.entry)


def same_for_all(outcome: Outcome) -> CensoringModel:
    """Return the model of censoring that is the same for all rows at risk."""
    curve = fit_kaplan_meier(outcome.time, outcome.ended, "censoring", entry=outcome.entry)
    some = curve.counts > 0
    hazard = np.cumsum(curve.counts[some] / curve.at_risk[some])
    return CensoringModel(curve.times[some], hazard, np.ones(outcome.n)).entered(outcome.entry)


def censoring_of(censoring: Any, outcome: Outcome, weights: Vector | None = None) -> KaplanMeier | CensoringModel:
    """Return the censoring curve to weight by, or a model where `censoring` has covariates of the rows."""
    if censoring is None or isinstance(censoring, KaplanMeier):
        return as_censoring(censoring, outcome, weights)
    x = as_numpy("censoring", censoring).astype(np.float64, copy=False)
    x = x[:, None] if x.ndim == 1 else x
    if x.ndim != 2 or not x.shape[1]:
        fail("censoring", "a curve, or covariates of shape (rows, columns)", f"shape {x.shape}")
    check_same_length("censoring", x, "time", outcome.n)
    bad = np.asarray(~np.isfinite(x).all(axis=1))
    if bad.any():
        fail("censoring", "finite covariates", "NaN or an infinite number", first_row(bad))
    if weights is not None:
        fail("censoring", "a curve, or None, beside sampling weights", "covariates")
    if outcome.ended.all():
        return same_for_all(outcome)
    found = fit_censoring(x, outcome)
    if found is None:
        fail("censoring", "covariates that do not tell the order of all censorings", "some that do")
    return found


# --- What the censoring depends on.


@dataclass(frozen=True, eq=False)
class Term:
    """A variable on which censoring may depend, and the p-value of the test whether it does."""

    name: str
    values: Vector
    p_value: float
    is_risk: bool


def terms_of(columns: Sequence[Column]) -> Iterator[tuple[str, Vector, bool]]:
    """Return what is tested of each column: numbers as normal scores of their ranks, every label on its own."""
    for column in columns:
        if column.labels is None:
            yield column.name, normal_scores(column.values), False
        else:
            for k in range(len(column.labels)):
                member = (column.values == k).astype(np.float64)
                if 0 < member.sum() < member.size:
                    yield column.name, member, False


def asked_terms(
    variables: Iterable[tuple[str, Vector, bool]],
    outcome: Outcome,
    censored: BoolArray,
    last: float,
    weights: Vector | None = None,
) -> list[Term]:
    """Test each variable, of rows in the order of their times: its name, values, and whether it is a predicted risk.

    `censored` are the rows that left before the time `last`.
    """
    return [
        Term(name, values, score_test(values, outcome.time, censored, last, weights, outcome.entry), is_risk)
        for name, values, is_risk in variables
    ]


def dependent(terms: Sequence[Term]) -> list[Term]:
    """Return the variables on which censoring depends, by a test that is corrected for their number."""
    return [term for term in terms if term.p_value * len(terms) < LEVEL]


def model_of_terms(terms: Sequence[Term], found: Sequence[Term], outcome: Outcome, n: int) -> CensoringModel | None:
    """Fit a Cox model of the `n` censorings on what was found and the last predicted risk, as far as rows allow."""
    most = max(1, n // _PER_TERM)
    risk = [term for term in terms if term.is_risk][-1:]
    wanted = sorted(found or terms, key=lambda term: term.p_value)
    chosen = [*risk, *(term for term in wanted if term not in risk)][:most]
    # Risks of several horizons are nearly the same variable.
    kept: list[Vector] = []
    for term in chosen:
        if all(abs(np.corrcoef(term.values, other)[0, 1]) < 0.95 for other in kept):
            kept.append(term.values)
    return fit_censoring(np.column_stack(kept), outcome)


def found_censoring(columns: Sequence[Column], risk: Vector, outcome: Outcome) -> CensoringModel:
    """Return the model of censoring of these rows: by the risks and columns on which it depends, or one for all."""
    order = outcome.order()
    ordered, censored = outcome.take(order), ~outcome.ended[order]
    if censored.sum() < FEWEST_CENSORED:
        return same_for_all(outcome)
    parts = [Column(column.name, column.values[order], column.labels) for column in columns]
    variables = [("the predicted risk", normal_scores(risk[order]), True)] if np.ptp(risk) > 0 else []
    asked = asked_terms([*variables, *terms_of(parts)], ordered, censored, float(ordered.time[-1]))
    found = dependent(asked)
    model = model_of_terms(asked, found, ordered, int(censored.sum())) if found else None
    if model is None:
        return same_for_all(outcome)
    return model.take(np.argsort(order))


def normal_scores(values: FloatArray) -> Vector:
    """Return normal scores of the ranks: in order, and without outliers."""
    return np.asarray(ndtri((rankdata(values) - 0.5) / values.size))


def score_test(
    z: Vector,
    time: FloatArray,
    censored: BoolArray,
    last: float,
    weights: Vector | None,
    entry: FloatArray | None = None,
) -> float:
    """P-value of the score test of a Cox model of the censorings on one variable, rows in time order.

    Of weighted rows with the variance of Lin and Wei, the sum of squares of what each row adds to the score: its
    residual at its censoring less what was expected of it while it was at risk.
    """
    followed = np.minimum(time, last)
    one = np.ones(z.size) if weights is None else weights
    backwards = (one[:, None] * np.column_stack([np.ones(z.size), z, z * z]))[::-1].cumsum(axis=0)[::-1]
    first = np.searchsorted(followed, followed[censored], side="left")
    sums = backwards[first]
    if entry is not None:  # rows that have not entered are not at risk
        order = np.argsort(entry)[::-1]
        later = np.cumsum(np.column_stack([np.ones(z.size), z, z * z])[order], axis=0)
        number = later_entries(followed[censored].astype(np.float64), entry).astype(np.int64)
        sums = sums - np.concatenate([np.zeros((1, 3)), later])[number]
    n, total, square = sums.T
    mean = total / n
    if weights is None:
        score, variance = float((z[censored] - mean).sum()), float((square / n - mean**2).sum())
    else:
        hazard, expected = (np.append(0.0, np.cumsum(w)) for w in (one[censored] / n, one[censored] * mean / n))
        passed = np.searchsorted(followed[censored], followed, side="right")
        added = expected[passed] - z * hazard[passed]
        added[censored] += z[censored] - mean
        score, variance = float(one @ added), float(np.square(one * added).sum())
    if not variance > 0:
        return 1.0
    return float(chdtrc(1, score**2 / variance))


# --- Pseudo-values.

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
    cause, n = two_causes(outcome), outcome.n
    moments, place = np.unique(outcome.time, return_inverse=True)
    one = np.ones(n) if weights is None else weights
    by_then = int(np.searchsorted(moments, at, side="right"))
    own, left, *others = (
        np.bincount(place, one * (cause == k), moments.size)[:by_then].astype(np.float64)
        for k in (1, 0, *((2,) if outcome.competing is not None else ()))
    )
    d = sum(others, start=own)
    r = at_risk_of(place, one, moments.size)[:by_then] - (1 - seen) * left
    passed, at_own = place < by_then, np.minimum(place, by_then)
    if weights is not None:
        return _infinitesimal(d, own, r, passed, at_own, cause, seen, float(weights.sum()))
    # What is still to come from each moment on, for one who has reached it: nothing after the last.
    survival = np.append(1.0, np.cumprod(1 - _part(d, r)))
    comes = survival[:-1] * _part(own, r)
    ahead = _part(np.append(np.cumsum(comes[::-1])[::-1], 0.0), survival)
    # Without a row that outlasts them: survival before each moment, and the incidence before it.
    before = np.append(1.0, np.cumprod(1.0 - _part(d, r - 1)))
    passed_by = np.append(0.0, np.cumsum(before[:-1] * _part(own, r - 1)))
    # Without the row at its own moment, of which a censored one was seen a part.
    remain = np.append(r, 0.0)[at_own] - np.where(cause > 0, 1.0, seen)
    comes_own = _part(np.append(own, 0.0)[at_own] - ((cause == 1) & passed), remain)
    kept_own = 1 - _part(np.append(d, 0.0)[at_own] - ((cause > 0) & passed), remain)
    after = comes_own + kept_own * ahead[np.minimum(at_own + 1, by_then)]
    left_out = passed_by[at_own] + before[at_own] * np.where(passed, after, 0.0)
    return np.asarray(n * ahead[0] - (n - 1) * left_out)


def _infinitesimal(
    d: Vector,
    own: Vector,
    r: Vector,
    passed: BoolArray,
    place: Integers,
    cause: Integers,
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


def _part(amount: Vector, whole: Vector) -> Vector:
    """Return amount / whole; 0 where there is nothing of the whole."""
    return np.divide(amount, whole, out=np.zeros(np.shape(whole)), where=whole > 0)


def doubly_robust(
    survival: FloatArray,
    times: Vector,
    interpolation: Interpolation,
    own: Vector,
    outcome: Outcome,
    at: float,
    censoring: CensoringModel,
    at_entry: Vector | None = None,
    free: tuple[FloatArray, Vector] | None = None,
) -> Vector:
    r"""Return pseudo-values by the model's own curves and a model of the censoring.

    .. math:: 1 - S_i(h) + \int_0^{\min(T_i, h)} \frac{S_i(h)}{S_i(u)} \frac{dM_i(u)}{G_i(u-)},
              \qquad dM_i = dN_i - d\Lambda_i

    with G the probability of not being censored. The prediction itself, corrected by what happened to the row while it
    was observed, weighted up for rows like it that were not. As :math:`S(h) / S(u)` grows by its own product with
    :math:`d\Lambda`, the integral is a sum of increments of that ratio over G.

    Where others compete, C is one less the incidence, S the probability of no event of any kind, and

    .. math:: 1 - \frac{C_i(u) - C_i(h)}{S_i(u)}

    stands for the ratio: one less the chance of one who has come to u to have the event by h. A competing event takes
    that chance away.

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
    free : tuple of two arrays, optional
        Where others compete, S at `times`, shape (n, m), and at each row's observed time; `survival` and `own` are C.
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
        comes_free = curves if free is None else _at_knots(free[0][rows], times, knots, interpolation)
        ratio = _no_more(curves[:, -1:], curves, comes_free)
        compensator = np.cumsum(np.diff(ratio, axis=1) / uncensored, axis=1)
        compensator = np.concatenate([np.zeros((len(ratio), 1)), compensator], axis=1)
        late = time[rows] > at
        integral = _Integral(knots, ratio, uncensored, compensator, interpolation)
        own_free = own[rows] if free is None else free[1][rows]
        reached = np.where(late, 1.0, _no_more(curves[:, -1], own[rows], own_free))
        lived, left = integral.until(np.minimum(time[rows], at), reached), curves[:, -1]
        if at_entry is not None and outcome.entry is not None:
            left = _ratio(curves[:, -1], at_entry[rows])
            lived = lived - integral.until(outcome.entry[rows], left)
        happened = event[rows] & ~late
        seen = np.maximum(censoring.before(time)[rows], LEAST_UNCENSORED)
        values[rows] = 1 - left + np.where(happened, reached / seen, 0.0) - lived
        if outcome.competing is not None:
            values[rows] -= np.where(outcome.competing[rows] & ~late, (1 - reached) / seen, 0.0)
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


def _no_more(later: Vector, earlier: Vector, free: Vector) -> Vector:
    """1 - (C(u) - C(h)) / S(u): the chance of one who has come to u without any event not to have this one by h."""
    if free is earlier:
        return _ratio(later, earlier)
    comes = np.divide(np.maximum(earlier - later, 0.0), free, out=np.zeros(earlier.shape), where=free > 0)
    return np.asarray(1 - np.minimum(comes, 1.0))


def _ratio(later: Vector, earlier: Vector) -> Vector:
    """S(h) / S(u), the chance of one who has come to u to come to h; 0 where nobody should have come to u."""
    later, earlier = np.broadcast_arrays(later, earlier)
    return np.divide(later, earlier, out=np.zeros(earlier.shape), where=earlier > 0)


# --- Events that lie in intervals.

_LEAST_HAZARD, _MOST_HAZARD, _SHORT = 1e-12, 600.0, 1e-6
# Levels of risk, each with one number of how much is hidden: at most so many, and the least sum of p (1 - p) of one.
# By rows that tell less the number follows what happened to them, and their mean is not p.
_LEVELS, _EACH = 10, 10.0


@dataclass(frozen=True, eq=False)
class HazardsSeen:
    """What is known of the events of rows, on the scale of the cumulative hazard by which a model predicts them.

    Each is the hazard of the row since it came under observation.

    Attributes
    ----------
    lower, upper : arrays, shape (n,)
        Hazard at the two ends of the interval in which the event lies; equal where its time is known. Of a row without
        an event, `lower` is that of its last time, and `upper` infinite.
    """

    lower: Vector
    upper: Vector

    @property
    def event(self) -> BoolArray:
        """Rows whose event is known to have come."""
        return np.isfinite(self.upper)

    @property
    def exact(self) -> BoolArray:
        """Rows whose event has a known time, or an interval in which the model puts no mass."""
        return self.event & (self.upper - self.lower <= _LEAST_HAZARD)

    def lived(self) -> Vector:
        """Return the mean hazard that each row has lived through until its event, or until its last time.

        An event in (l, u] came when the hazard, which is exponential under the model, lay between those of the two.
        """
        length = np.where(self.event, self.upper - self.lower, 0.0)
        # Mean of an exponential number below a limit: 1 less the limit over (exp(limit) - 1).
        small = length < _SHORT
        whole = np.where(small, 1.0, length)
        within = np.where(small, length / 2, 1 - whole / np.expm1(np.minimum(whole, _MOST_HAZARD)))
        return np.asarray(self.lower + within)

    def score(self, change: float) -> tuple[Vector, float]:
        """Return the slope of each row's log-likelihood in the log of a factor on all hazards, and the information."""
        low, length = np.exp(change) * self.lower, np.exp(change) * np.where(self.event, self.upper - self.lower, 0.0)
        small = length < _SHORT
        w = np.where(small, 1.0, np.minimum(length, _MOST_HAZARD))
        inside = np.where(small, 1 - length / 2, w / np.expm1(w))
        falls = np.where(small, length / 2, inside * (w * np.exp(w) / np.expm1(w) - 1))
        return self.event * inside - low, float((self.event * falls + low).sum())

    def by(self, at: Vector, happened: BoolArray, outlasted: BoolArray) -> Vector:
        """Return P(T <= h | what is known) by the hazard at h; some have had the event by h, others are past it."""
        seen, whole = (-np.expm1(-np.maximum(end - self.lower, 0.0)) for end in (at, self.upper))
        inside = np.divide(seen, whole, out=np.full(at.size, 0.5), where=whole > 0)
        return np.where(happened, 1.0, np.where(outlasted, 0.0, np.clip(inside, 0.0, 1.0)))

    def recalibrated(self, level: Vector) -> "tuple[Recalibration, HazardsSeen]":
        """Fit a change of the hazards to these rows by maximum likelihood, and return it with the hazards changed.

        `level` is the log of each row's hazard at some time, by which rows at high risk may change by another factor.
        """
        z = level - level.mean()
        exact, event = self.exact, self.event
        log_lower, log_upper = (np.log(np.maximum(ends, _LEAST_HAZARD)) for ends in (self.lower, self.upper))

        def loss(change: Vector) -> tuple[float, Vector]:
            """Return minus the log-likelihood per row and its slope; a standard normal prior keeps it finite."""
            power = np.exp(change[2])
            low, high = (
                _changed(change, z, ends, log)
                for ends, log in ((self.lower, log_lower), (self.upper, np.where(event, log_upper, 0.0)))
            )
            slopes = [np.array([h, z * h, h * power * log]) for h, log in ((low, log_lower), (high, log_upper))]
            length = np.where(event & ~exact, np.maximum(high - low, _LEAST_HAZARD), 1.0)
            inside = event & ~exact
            likelihood = -low + np.where(inside, np.log(-np.expm1(-length)), 0.0)
            likelihood += np.where(exact, change[0] + change[1] * z + change[2] + (power - 1) * log_lower, 0.0)
            ways = np.where(inside, (slopes[1] - slopes[0]) / np.expm1(np.minimum(length, _MOST_HAZARD)), 0.0)
            density = np.array([np.ones(z.size), z, 1 + power * log_lower])
            slope = (np.where(exact, density, 0.0) + ways - slopes[0]).mean(axis=1)
            prior = change / z.size
            return float(-likelihood.mean() + change @ prior / 2), -slope + prior

        found = Recalibration(minimize(loss, np.zeros(3), jac=True, method="BFGS").x, level.mean())
        ends = (found.of(level, self.lower), np.where(event, found.of(level, self.upper), np.inf))
        return found, HazardsSeen(*ends)


@dataclass(frozen=True, eq=False)
class Recalibration:
    """A change of cumulative hazards, H to exp(a + c z) H^exp(d), with z the log hazard of the row at one time."""

    change: Vector
    mean: float

    def of(self, level: Vector, hazard: Vector) -> Vector:
        """Return the hazards of rows after the change."""
        return _changed(self.change, level - self.mean, hazard, np.log(np.maximum(hazard, _LEAST_HAZARD)))


def _changed(change: Vector, z: Vector, hazard: Vector, log: Vector) -> Vector:
    power = np.exp(change[2])
    grown = np.exp(np.clip(change[0] + change[1] * z + power * log, -_MOST_HAZARD, np.log(_MOST_HAZARD)))
    return np.asarray(np.where(hazard > 0, grown, 0.0))


def coarsened(seen: HazardsSeen, risk: Vector, happened: BoolArray, outlasted: BoolArray) -> Vector:
    r"""Return pseudo-values of the event by a time, of rows whose events lie in intervals or are censored.

    .. math:: p_i + \frac{q_i - p_i}{r}, \qquad q_i = P(T_i \le h \mid \text{what is known}), \quad p_i = P(T_i \le h)

    by the model's curves, recalibrated to these rows so that q leans on what happened and not on what was predicted.
    If they are right then, q has mean p. Where the truth is higher, q is by a part of that only, the part r of the
    information on the event by h that the intervals leave: 1 - q (1 - q) / (p (1 - p)) over rows of similar risk.
    Divided by it the mean is the true risk to first order, and the spread is what the intervals leave unknown. Where h
    lies in nobody's interval it is the outcome itself.

    Parameters
    ----------
    seen : HazardsSeen
        Of the model.
    risk : array, shape (n,)
        The model's risk by h.
    happened, outlasted : bool arrays, shape (n,)
        Rows known to have had the event by h, and those known not to.
    """
    at = -np.log1p(-np.minimum(risk, 1 - 1e-15))
    level = np.log(np.maximum(at, _LEAST_HAZARD))
    change, own = seen.recalibrated(level)
    at = change.of(level, at)
    p, q = -np.expm1(-at), own.by(at, happened, outlasted)
    label = _levels(risk, p * (1 - p))
    hidden, whole = (np.bincount(label, share * (1 - share)) for share in (q, p))
    left = 1 - np.divide(hidden, whole, out=np.zeros(whole.size), where=whole > 0)
    return np.asarray(p + (q - p) / np.maximum(left, LEAST_UNCENSORED)[label])


def _levels(risk: Vector, told: Vector) -> Integers:
    """Divide rows by their risk into levels that tell the same in sum.

    Rows of one risk stay together: in their order, which is that of time, they would be told apart by the outcome.
    """
    levels = int(np.clip(told.sum() / _EACH, 1, _LEVELS))
    _, place = np.unique(risk, return_inverse=True)
    of_each = np.bincount(place, told)
    middle = (np.cumsum(of_each) - of_each / 2) / max(float(of_each.sum()), np.finfo(np.float64).tiny)
    return np.asarray(np.minimum((middle * levels).astype(np.int64), levels - 1)[place], dtype=np.int64)
