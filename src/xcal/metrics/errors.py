"""Errors of predicted probabilities, corrected for censoring: Brier score, its integral, IPA; likelihood."""

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Self

import numpy as np

from xcal._checks import (
    BoolArray,
    FloatArray,
    as_choice,
    as_floats,
    as_weights,
    effective_units,
    fail,
    first_row,
)
from xcal._kaplan_meier import KaplanMeier
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.cells import (
    EXPONENTS,
    Accumulator,
    as_fraction,
    float_sums,
    sums_as_floats,
    unit_sums,
)
from xcal.metrics.inputs import Matrix, Vector, as_curves, as_row_weights, as_time_grid
from xcal.metrics.kaplan_meier_streaming import BoundedCurve
from xcal.metrics.observed import as_censoring, censoring_survival, observed_risk
from xcal.metrics.pseudo_values import CensoringModel, censoring_of
from xcal.metrics.resamples import Block, product

# Predictions worked on at a time: a few arrays of that size fit the processor's cache; of resamples.
_BLOCK, _COUNTED = 1 << 15, 1 << 18


@dataclass(frozen=True, eq=False)
class BrierScore:
    """Brier score at each time.

    Attributes
    ----------
    times, values : arrays, shape (m,)
        The times asked for and the score at each; NaN where it cannot be estimated (with ``outside="nan"``).
    estimable : bool array, shape (m,)
        Which times lie within the follow-up.
    n : int
        Rows.
    """

    times: Vector
    values: Vector
    estimable: BoolArray
    n: int


@dataclass(frozen=True, eq=False)
class IntegratedBrierScore:
    """Average of the Brier score over an interval of time.

    Attributes
    ----------
    value : float
        Area under the curve by the trapezoidal rule, divided by ``stop - start``.
    start, stop : float
        First and last time that took part.
    curve : BrierScore
        The scores that were integrated, with the times left out still listed.
    """

    value: float
    start: float
    stop: float
    curve: BrierScore = field(repr=False)


def brier_score(
    survival: Any,
    times: Any,
    *,
    time: Any,
    event: Any,
    competing: Any = None,
    censoring: Any = None,
    left_limit: bool = True,
    outside: Literal["nan", "raise", "clip"] = "nan",
    weights: Any = None,
) -> BrierScore:
    r"""Brier score with inverse probability of censoring weights (Graf and others).

    .. math::
        BS(t) = \frac1n \sum_i \Big[ \frac{1(T_i \le t, \text{event})}{G(T_i-)} S_i(t)^2
                + \frac{1(T_i > t)}{G(t)} (1 - S_i(t))^2 \Big]

    A row with an event by t should have had S(t) = 0, a row still under observation S(t) = 1. A row censored by t
    contributes nothing itself; the weights let rows still observed speak for it.

    Parameters
    ----------
    survival : array-like, shape (n, m), or (n,) with a single time
        Predicted probability of being event-free at each of `times`.
    times : array-like, shape (m,)
        Strictly increasing.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: the row should have
        had S = 1, one less the incidence of its cause, and counts by its time as a row with the event does.
    censoring : KaplanMeier or array-like of shape (n, k), optional
        ``kaplan_meier(time=..., event=..., of="censoring")`` of the training rows; by default G is estimated from
        the rows at hand. Covariates on which censoring may depend: each row has its own G then, by a Cox model of the
        censorings, and none stands for more than 20.
    left_limit : bool
        Weigh an event at T by G just before T, the chance that it was seen; False weighs it by G(T), as scikit-survival
        does. They differ only where an event and a censoring share a time. Times in whole months make many of these,
        and G(T) is then far off: .167 where the truth is .096, with 12 % events at genuinely discrete times.
    outside : {"nan", "raise", "clip"}
        For times at or beyond the largest of `time`, after the last time behind `censoring`, or with G zero: give NaN,
        refuse, or keep the last positive G. Times before the first observation are no problem.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row; every sum over rows is weighted, that behind G too.

    Returns
    -------
    BrierScore

    References
    ----------
    Graf, Schmoor, Sauerbrei, Schumacher (1999), Statistics in Medicine 18(17-18):2529-2545.

    Examples
    --------
    >>> score = brier_score([[0.9, 0.5], [0.8, 0.6], [0.9, 0.8]], [1, 2], time=[1.5, 2.5, 3], event=[1, 0, 1])
    >>> score.values.round(4)
    array([0.02, 0.15])
    """
    outcome = as_outcome(
        time, event, beside={"survival": survival, "weights": weights, "censoring": censoring}, competing=competing
    )
    curves, grid = as_curves("survival", survival, times, outcome.n)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    w = as_row_weights(weights, outcome.n)
    return _brier(curves, grid, outcome, censoring_of(censoring, outcome, w), left_limit, outside, w)


def integrated_brier_score(
    survival: Any,
    times: Any,
    *,
    time: Any,
    event: Any,
    competing: Any = None,
    censoring: Any = None,
    left_limit: bool = True,
    outside: Literal["drop", "raise", "clip"] = "drop",
    weights: Any = None,
) -> IntegratedBrierScore:
    r"""Brier score averaged over time, :math:`\frac{1}{t_m - t_1}\int_{t_1}^{t_m} BS(t)\,dt` by the trapezoidal rule.

    It is normalised by the length of the interval that was integrated, not by the largest time.

    Parameters
    ----------
    survival, times, time, event, competing, censoring, left_limit, weights
        As for :func:`brier_score`; at least two times.
    outside : {"drop", "raise", "clip"}
        Times at which the score cannot be estimated are left out, so that the interval ends before them; or they are
        refused; or the last positive G is carried on.

    Returns
    -------
    IntegratedBrierScore
        Its value is NaN when fewer than two times remain.

    References
    ----------
    Graf, Schmoor, Sauerbrei, Schumacher (1999), Statistics in Medicine 18(17-18):2529-2545.

    Examples
    --------
    >>> survival = [[0.9, 0.5], [0.8, 0.6], [0.9, 0.8]]
    >>> round(integrated_brier_score(survival, [1, 2], time=[1.5, 2.5, 3], event=[1, 0, 1]).value, 4)
    0.085
    """
    outcome = as_outcome(
        time, event, beside={"survival": survival, "weights": weights, "censoring": censoring}, competing=competing
    )
    curves, grid = as_curves("survival", survival, times, outcome.n)
    if grid.size < 2:
        fail("times", "at least two times to integrate over", grid.size)
    as_choice("outside", outside, ("drop", "raise", "clip"))
    w = as_row_weights(weights, outcome.n)
    return integrated(_brier(curves, grid, outcome, censoring_of(censoring, outcome, w), left_limit, outside, w))


def integrated(curve: BrierScore) -> IntegratedBrierScore:
    """Average of the scores that could be estimated, by the trapezoidal rule."""
    kept = np.isfinite(curve.values)
    if np.count_nonzero(kept) < 2:
        return IntegratedBrierScore(float("nan"), float("nan"), float("nan"), curve)
    x, y = curve.times[kept], curve.values[kept]
    area = float(np.dot(np.diff(x), (y[1:] + y[:-1]) / 2))
    return IntegratedBrierScore(area / float(x[-1] - x[0]), float(x[0]), float(x[-1]), curve)


def _brier(
    survival: FloatArray,
    times: Vector,
    outcome: Outcome,
    censoring: KaplanMeier | CensoringModel,
    left_limit: bool,
    outside: str,
    weights: Vector | None,
) -> BrierScore:
    estimable = times < outcome.last
    if isinstance(censoring, CensoringModel):
        of_passed, of_lasting = censoring.stands_for(outcome, times, left_limit=left_limit)
    else:
        g_time, known = censoring_survival(censoring, times, left_limit=False)
        g_row, _ = censoring_survival(censoring, outcome.time, left_limit=left_limit)
        estimable, of_passed, of_lasting = estimable & known, outcome.ended / g_row, 1 / g_time
    if outside == "raise" and not estimable.all():
        row = int(np.argmin(estimable))
        fail("times", f"times below {outcome.last} at which the censoring curve is known", times[row], row)
    values = _mean_errors(survival, times, outcome, of_passed, of_lasting, weights)
    if outside != "clip":
        values[~estimable] = np.nan
    return BrierScore(times, values, estimable, outcome.n)


def _mean_errors(
    survival: FloatArray,
    times: Vector,
    outcome: Outcome,
    event_weight: Vector,
    alive_weight: Vector,
    weights: Vector | None,
) -> Vector:
    """Weighted mean squared error at each time, a block of rows at a time.

    `alive_weight` is that of all rows at each time, or has one line for each row.
    """
    n, m = survival.shape
    dead, alive = np.zeros(m), np.zeros(m)
    if weights is not None:
        event_weight = event_weight * weights
    step = max(1, _BLOCK // m)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        others = None if outcome.competing is None else outcome.competing[rows]
        outlasting, passed = squared_errors(survival[rows], times, outcome.time[rows], others)
        if alive_weight.ndim == 2:
            outlasting *= alive_weight[rows]
        alive += outlasting.sum(axis=0) if weights is None else weights[rows] @ outlasting
        dead += event_weight[rows] @ passed
    if alive_weight.ndim == 1:
        alive *= alive_weight
    return np.asarray((dead + alive) / (n if weights is None else weights.sum()))


def squared_errors(
    survival: FloatArray, times: Vector, time: FloatArray, competing: BoolArray | None = None
) -> tuple[Vector, Vector]:
    """Squared errors of rows under observation at each time, and of rows whose time has passed; zero elsewhere."""
    outlasts = (time[:, None] > times).astype(np.float64)
    error = np.square(survival - (outlasts if competing is None else np.maximum(outlasts, competing[:, None])))
    outlasts *= error
    error -= outlasts
    return outlasts, error


# --- Scaled Brier score, also called the index of prediction accuracy (IPA).


@dataclass(frozen=True, eq=False)
class ScaledBrierScore:
    """Scaled Brier score at each time.

    Attributes
    ----------
    times, values : arrays, shape (m,)
        The times asked for and 1 - `brier` / `null` at each: 1 for a perfect prediction, 0 for one that knows no
        covariates, below 0 for one that is worse. NaN where it cannot be estimated or the null model makes no error.
    brier, null : arrays, shape (m,)
        Brier score of the predictions, and of the Kaplan-Meier curve of the same rows given to everybody.
    estimable : bool array, shape (m,)
        Which times lie within the follow-up.
    """

    times: Vector
    values: Vector
    brier: Vector = field(repr=False)
    null: Vector = field(repr=False)
    estimable: BoolArray = field(repr=False)


def scaled_brier_score(
    survival: Any,
    times: Any,
    *,
    time: Any,
    event: Any,
    competing: Any = None,
    censoring: Any = None,
    left_limit: bool = True,
    outside: Literal["nan", "raise", "clip"] = "nan",
    weights: Any = None,
) -> ScaledBrierScore:
    r"""Scaled Brier score: the share of the null model's error that the predictions explain.

    .. math:: IPA(t) = 1 - BS(t) / BS_{KM}(t)

    The null model gives everybody the Kaplan-Meier curve of the rows at hand, or the Aalen-Johansen estimate where
    other events compete; where G is that of each row, the share that the weights give.

    Parameters
    ----------
    survival, times, time, event, competing, censoring, left_limit, outside, weights
        As for :func:`brier_score`.

    Returns
    -------
    ScaledBrierScore

    References
    ----------
    Kattan, Gerds (2018), Diagnostic and Prognostic Research 2:7.

    Examples
    --------
    >>> result = scaled_brier_score([[0.1], [0.2], [0.9], [0.8]], [2.5], time=[1, 2, 3, 4], event=[1, 1, 1, 1])
    >>> result.values.round(3)
    array([0.9])
    """
    given: dict[str, Any] = {
        "time": time,
        "event": event,
        "competing": competing,
        "censoring": censoring,
        "left_limit": left_limit,
        "outside": outside,
        "weights": weights,
    }
    score = brier_score(survival, times, **given)
    outcome, grid = as_outcome(time, event, competing=competing), score.times
    w = as_row_weights(weights, outcome.n)
    model = censoring_of(censoring, outcome, w)
    if isinstance(model, CensoringModel):
        curve = 1 - model.observed_risk(outcome, grid)
    else:
        curve = observed_risk(outcome, w).without(grid)
    null = brier_score(np.broadcast_to(curve, (outcome.n, grid.size)), grid, **given)
    ratio = np.divide(score.values, null.values, out=np.full(grid.size, np.nan), where=null.values > 0)
    return ScaledBrierScore(grid, 1 - ratio, score.values, null.values, score.estimable)


# --- Brier scores of resamples.


def brier_scores(block: Block, survival: FloatArray, times: Vector) -> Matrix:
    """Brier score at each time, shape (b, m); NaN where it cannot be estimated. A block of rows at a time."""
    g, _ = block.row_weights
    event_weight, others = block.counts * block.line.outcome.ended / g, block.line.outcome.competing
    n, m = survival.shape
    dead, alive = np.zeros((block.total.size, m)), np.zeros((block.total.size, m))
    step = max(1, _COUNTED // m)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        outlasts = block.line.time[rows, None] > times
        without = outlasts if others is None else outlasts | others[rows, None]
        error = np.square(survival[rows] - without, dtype=np.float64)
        dead += product(event_weight[:, rows], np.where(outlasts, 0.0, error))
        alive += product(block.counts[:, rows], np.where(outlasts, error, 0.0))
    scores = np.empty_like(dead)
    for k, t in enumerate(times):
        g_time, estimable = block.time_weight(float(t))
        scores[:, k] = np.where(estimable, (dead[:, k] + alive[:, k] / g_time) / block.total, np.nan)
    return scores


def null_brier_scores(block: Block, at: float) -> Vector:
    """Brier score at one time of the resample's own Kaplan-Meier curve, or Aalen-Johansen estimate."""
    g, _ = block.row_weights
    g_time, estimable = block.time_weight(at)
    passed, survival = block.line.passed(at), block.survival_at(at)
    dead = (block.counts * block.line.event / g)[:, :passed].sum(axis=1)
    alive = block.counts[:, passed:].sum(axis=1) / g_time
    if block.line.outcome.competing is not None:
        alive = alive + (block.counts * block.line.outcome.competing / g)[:, :passed].sum(axis=1)
    score = (dead * survival**2 + alive * (1 - survival) ** 2) / block.total
    return np.where(estimable, score, np.nan)


def integrated_scores(scores: Matrix, times: Vector) -> Vector:
    """Scores averaged over the times at which they can be estimated, by the trapezoidal rule; these come first."""
    n_kept = np.isfinite(scores).sum(axis=1)
    filled = np.where(np.isfinite(scores), scores, 0.0)
    areas = np.cumsum(np.diff(times) * (filled[:, 1:] + filled[:, :-1]) / 2, axis=1)
    last = np.maximum(n_kept - 1, 1)
    mean = areas[np.arange(n_kept.size), last - 1] / (times[last] - times[0])
    return np.where(n_kept >= 2, mean, np.nan)


# --- Brier score and its integral over chunks, processes or files, given the censoring curve.


@dataclass(frozen=True, eq=False)
class BoundedBrier:
    """Brier scores, their integral, and how far the censoring curve can have put them off.

    Attributes
    ----------
    score : BrierScore
    integrated : IntegratedBrierScore
        NaN with fewer than two times.
    error_bound : array, shape (m,)
        Largest distance of each score from that with the censoring curve of the rows; zero where that is exact.
    integrated_error_bound : float
    """

    score: BrierScore
    integrated: IntegratedBrierScore
    error_bound: Vector = field(repr=False)
    integrated_error_bound: float


class StreamingBrier(Accumulator):
    """Accumulate the Brier score without holding the rows; see `brier_score`.

    The weights need the censoring curve, so there are two passes over the rows: `StreamingKaplanMeier` first, then
    this. Given the curve, the sums are exact.

    Parameters
    ----------
    times : array-like, shape (m,)
        Increasing times of the survival probabilities.
    censoring : BoundedCurve or KaplanMeier
        ``StreamingKaplanMeier(at=times).compute("censoring")`` of the same rows, or a curve of the training rows.
    left_limit : bool
        As in `brier_score`.

    Examples
    --------
    >>> from xcal.metrics.streaming import StreamingKaplanMeier
    >>> time, event = [1.5, 2.5, 3], [1, 0, 1]
    >>> curve = StreamingKaplanMeier(at=[1, 2]).update(time=time, event=event).compute("censoring")
    >>> meter = StreamingBrier([1, 2], curve)
    >>> _ = meter.update([[0.9, 0.5], [0.8, 0.6], [0.9, 0.8]], time=time, event=event)
    >>> meter.compute().score.values.round(4)
    array([0.02, 0.15])
    """

    def __init__(self, times: Any, censoring: BoundedCurve | KaplanMeier, *, left_limit: bool = True) -> None:
        super().__init__()
        self.times, self.left_limit = as_time_grid("times", times), left_limit
        self.bounds = censoring if isinstance(censoring, BoundedCurve) else None
        given: Any = censoring.curve if isinstance(censoring, BoundedCurve) else censoring
        if given is None:
            fail("censoring", "a curve of the censorings, of a first pass or of the training rows", None)
        self.censoring = as_censoring(given, Outcome(np.empty(0), np.empty(0, np.bool_)))
        positive = self.censoring.survival[self.censoring.survival > 0]
        # A power of two that no weight exceeds: dividing by it is exact.
        self._scale = 2.0 ** math.ceil(math.log2(1 / float(np.min(positive, initial=1.0))))
        m = self.times.size
        self._sums |= {"n": np.zeros((), np.int64), "outlasting": np.zeros(m, np.int64)}
        self._sums |= {name: np.zeros((2, m), np.int64) for name in ("alive", "dead")}

    def _settings(self) -> tuple[Any, ...]:
        return self.times, self.left_limit, self.censoring.times, self.censoring.survival

    def update(self, survival: Any, *, time: Any, event: Any) -> Self:
        """Add rows: survival probabilities at `times`, shape (n, m), and the outcome."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        outcome = as_outcome(time, event, beside={"survival": survival})
        curves, _ = as_curves("survival", survival, self.times, outcome.n)
        self.add(curves, outcome.time, outcome.event)
        return self

    def add(self, survival: FloatArray, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        g, _ = censoring_survival(self.censoring, time, left_limit=self.left_limit)
        weight = event / g / self._scale
        self._sums["n"] += time.size
        step = max(1, _BLOCK // self.times.size)
        for start in range(0, time.size, step):
            rows = slice(start, start + step)
            outlasting, passed = squared_errors(survival[rows], self.times, time[rows])
            self._sums["alive"] += unit_sums(outlasting)
            self._sums["dead"] += unit_sums(passed * weight[rows, None])
            self._sums["outlasting"] += (time[rows, None] > self.times).sum(axis=0)

    def compute(self) -> BoundedBrier:
        """Return the scores of all rows seen so far; NaN where nobody is under observation any more or G is zero."""
        self._need_rows()
        g, known = censoring_survival(self.censoring, self.times, left_limit=False)
        estimable = known & (self._sums["outlasting"] > 0)
        total = sums_as_floats(self._sums["dead"], self._scale) + sums_as_floats(self._sums["alive"]) / g
        values = np.where(estimable, total / self.n, np.nan)
        score = BrierScore(self.times, values, estimable, self.n)
        bound = self._error_bound(values)
        whole = integrated(score)
        # An average of the scores is off by no more than the largest of them.
        off = float(np.max(bound[estimable], initial=0.0))
        return BoundedBrier(score, whole, bound, off)

    def _error_bound(self, values: Vector) -> Vector:
        """Every weight is off by a factor within the range of the curve, and so is a sum of positive terms."""
        if self.bounds is None:
            return np.zeros(values.size)
        ratios = np.array([self.bounds.relative_range(t) for t in self.times])
        return np.asarray(values * np.maximum(ratios[:, 1] - 1, 1 - ratios[:, 0]))


# --- Likelihood.


@dataclass(frozen=True)
class MeanNLL:
    """Mean negative log-likelihood; smaller is better.

    Attributes
    ----------
    value : float
        Mean over the rows; infinite where the model held one of them to be impossible.
    standard_error : float
        Of the mean; NaN for one row or an infinite mean.
    n : int
        Rows.
    """

    value: float
    standard_error: float
    n: int


def mean_nll(nll: Any, *, weights: Any = None) -> MeanNLL:
    r"""Average the negative log-likelihoods of rows.

    .. math:: \frac1n \sum_i \ell_i, \qquad \ell_i = -\log f(T_i) \text{ (event)}, \quad -\log S(T_i) \text{ (censored)}

    Parameters
    ----------
    nll : array-like, shape (n,)
        Minus the log of the density at an event, minus the log of the survival probability at a censoring: one value
        per row, as `xcal.objectives.nll` gives. Values of two models can be compared only if both are of densities in
        the same unit of time. Positive infinity is an answer (the model held the row to be impossible), NaN is none.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row; the standard error is then design-based.

    Returns
    -------
    MeanNLL

    Examples
    --------
    >>> mean_nll([1.0, 2.0, 3.0]).value
    2.0
    """
    values = as_nll(nll)
    w = None if weights is None else effective_units(as_weights("weights", weights, values.size, reference="nll"))
    mean = float(values.mean() if w is None else w @ values / w.sum())
    error = float("nan")
    if values.size > 1 and np.isfinite(mean):
        error = float(values.std(ddof=1) / values.size**0.5)
        if w is not None:
            error = float(np.sqrt(np.square(w * (values - mean)).sum()) / w.sum())
    return MeanNLL(mean, error, values.size)


def as_nll(nll: Any) -> Vector:
    """One negative log-likelihood per row: numbers, or infinity for a row that the model held to be impossible."""
    values: Vector = as_floats("nll", nll).astype(np.float64, copy=False)
    bad = np.isnan(values) | (values == -np.inf)
    if bad.any():
        row = first_row(bad)
        fail("nll", "numbers, or infinity for an impossible row", values[row], row)
    return values


# --- Mean negative log-likelihood over chunks, processes or files.


class StreamingMeanNLL(Accumulator):
    """Accumulate the mean negative log-likelihood; see `mean_nll`. Sums are exact, whatever the order of the rows.

    Examples
    --------
    >>> StreamingMeanNLL().update([1.0, 2.0]).merge(StreamingMeanNLL().update([3.0])).compute()
    MeanNLL(value=2.0, standard_error=0.5773502691896257, n=3)
    """

    def __init__(self) -> None:
        super().__init__()
        self._sums |= {"n": np.zeros((), np.int64), "impossible": np.zeros((), np.int64)}
        self._sums |= {name: np.zeros((2, EXPONENTS), np.int64) for name in ("values", "squares")}

    def _settings(self) -> tuple[Any, ...]:
        return ()

    def update(self, nll: Any) -> Self:
        """Add rows: one negative log-likelihood each; infinity where the model held the row to be impossible."""
        if np.size(nll) == 0:
            return self
        values = as_nll(nll)
        # A square past the largest float is as good as impossible: the standard error is then not known.
        possible = np.abs(values) < 1e150
        self._sums["n"] += values.size
        self._sums["impossible"] += np.count_nonzero(~possible)
        self._sums["values"] += float_sums(values[possible])
        self._sums["squares"] += float_sums(np.square(values[possible]))
        return self

    def compute(self) -> MeanNLL:
        """Return the mean of all rows seen so far, and its standard error."""
        self._need_rows()
        n = self.n
        if self._sums["impossible"] > 0:
            return MeanNLL(float("inf"), float("nan"), n)
        total = as_fraction(self._sums["values"])
        if n == 1:
            return MeanNLL(float(total), float("nan"), 1)
        # In whole numbers, so that nothing is lost where the mean is large beside the spread.
        spread = max(Fraction(0), as_fraction(self._sums["squares"]) - total**2 / n) / (n - 1)
        return MeanNLL(float(total / n), float(np.sqrt(float(spread / n))), n)
