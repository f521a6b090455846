"""Cumulative/dynamic AUC: how well risks tell those with an event by a time from those without; errors of resamples."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xcal._checks import BoolArray, FloatArray, as_choice, as_floats, as_numpy, check_same_length, fail, first_row
from xcal._kaplan_meier import KaplanMeier
from xcal.data.surv import as_outcome
from xcal.metrics.inputs import Matrix, Vector, as_row_weights, as_time_grid, running_sums
from xcal.metrics.times import Block, Timeline, as_censoring, censoring_survival, product


@dataclass(frozen=True, eq=False)
class CumulativeDynamicAUC:
    """AUC at each time.

    Attributes
    ----------
    times, values : arrays, shape (m,)
        The times asked for and the AUC at each; NaN where it cannot be estimated.
    estimable : bool array, shape (m,)
        Which times have a row with an event by then, a row still under observation after it, and known weights.
    n_cases, n_controls : int arrays, shape (m,)
        Rows with an event by each time, and rows still event-free under observation after it.
    """

    times: Vector
    values: Vector
    estimable: BoolArray
    n_cases: Vector
    n_controls: Vector


def cumulative_dynamic_auc(
    risk: Any,
    times: Any,
    *,
    time: Any,
    event: Any,
    competing: Any = None,
    censoring: KaplanMeier | None = None,
    left_limit: bool = True,
    outside: Literal["nan", "raise"] = "nan",
    weights: Any = None,
) -> CumulativeDynamicAUC:
    r"""Area under the ROC curve at each time, with inverse probability of censoring weights (Uno and others).

    .. math::
        AUC(t) = \frac{\sum_i \sum_j \frac{1(T_i \le t, \text{event})}{G(T_i-)} 1(T_j > t)
                 [1(r_i > r_j) + \tfrac12 1(r_i = r_j)]}
                 {\sum_i \frac{1(T_i \le t, \text{event})}{G(T_i-)} \sum_j 1(T_j > t)}

    Cases are the rows with an event by t, controls the rows still under observation after t. A row censored by t is
    neither; the weights let the other cases stand for it. The weight of the controls, 1 / G(t), is the same for all and
    cancels.

    Parameters
    ----------
    risk : array-like, shape (n,) or (n, m)
        One score per row for all times, or one for each of `times`; a larger one says that the event comes sooner.
        Only the order matters: the predicted probability of an event by t is such a score.
    times : float or array-like, shape (m,)
        Strictly increasing.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: it is a control
        from then on, weighted by 1 / G at its own time.
    censoring : KaplanMeier, optional
        ``kaplan_meier(time=..., event=..., of="censoring")`` of the training rows; by default G is estimated from
        the rows at hand.
    left_limit : bool
        Weigh an event at T by G just before T, the chance that it was seen; False weighs it by G(T), as scikit-survival
        does. They differ only where an event and a censoring share a time.
    outside : {"nan", "raise"}
        For times without a case, without a control, or with a case whose weight is not known: give NaN or refuse.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row; a pair counts the product of two, and G is that of weighted rows.

    Returns
    -------
    CumulativeDynamicAUC

    References
    ----------
    Uno, Cai, Tian, Wei (2007), JASA 102(478):527-537. Hung, Chiang (2010), Canadian Journal of Statistics 38(1):8-26.

    Examples
    --------
    >>> result = cumulative_dynamic_auc([9, 8, 2, 5], [2.5], time=[1, 2, 3, 4], event=[1, 0, 1, 1])
    >>> result.values
    array([1.])
    """
    outcome = as_outcome(time, event, beside={"risk": risk, "weights": weights}, competing=competing)
    grid = as_time_grid("times", times)
    scores = _as_scores(risk, outcome.n, grid.size)
    as_choice("outside", outside, ("nan", "raise"))
    w = as_row_weights(weights, outcome.n)
    curve = as_censoring(censoring, outcome, w)
    g, known = censoring_survival(curve, outcome.time, left_limit=left_limit)
    inverse = 1 / g if w is None else w / g
    cases, controls = np.zeros(grid.size), np.zeros(grid.size)
    values, estimable = np.full(grid.size, np.nan), np.zeros(grid.size, dtype=np.bool_)
    for k, t in enumerate(grid):
        case, control = outcome.happened_by(t), outcome.time > t
        of_control, enough = None if w is None else w[control], bool(known[case].all())
        if outcome.competing is not None:
            over = outcome.competing & ~control
            now, seen = censoring_survival(curve, np.array([t]), left_limit=False)
            control = control | over
            of_control = np.where(over, inverse, (1.0 if w is None else w) / now)[control]
            enough = enough and bool(seen[0] and known[over].all())
        cases[k], controls[k] = np.count_nonzero(case), np.count_nonzero(control)
        estimable[k] = cases[k] > 0 and controls[k] > 0 and enough
        if estimable[k]:
            score = scores[:, k if scores.shape[1] > 1 else 0]
            values[k] = _area(score[case], score[control], inverse[case], of_control)
    if outside == "raise" and not estimable.all():
        row = first_row(~estimable)
        fail("times", "times with events before, rows under observation after, and known weights", grid[row], row)
    return CumulativeDynamicAUC(grid, values, estimable, cases, controls)


def _as_scores(risk: Any, n: int, m: int) -> FloatArray:
    """One column of scores for all times, or one for each; infinite scores are in order, NaN is not."""
    array = as_numpy("risk", risk)
    if array.ndim == 1:
        array = as_floats("risk", array)[:, None]
    if array.ndim != 2 or array.shape[1] not in (1, m):
        fail("risk", f"shape (rows,) or (rows, {m})", f"shape {array.shape}")
    check_same_length("risk", array, "time", n)
    missing = np.isnan(array).any(axis=1)
    if missing.any():
        row = first_row(missing)
        fail("risk", "numbers that can be put in order", "nan", row)
    return array


def _area(case: FloatArray, control: FloatArray, weight: Vector, of_control: Vector | None) -> float:
    """Weighted share of controls below each case, equal ones counted one half."""
    ordered = np.sort(control)
    below = np.searchsorted(ordered, case, side="left")
    up_to = np.searchsorted(ordered, case, side="right")
    if of_control is None:
        return float(weight @ (below + up_to) / 2 / (weight.sum() * control.size))
    running = np.append(0.0, np.cumsum(of_control[np.argsort(control, kind="stable")]))
    return float(weight @ (running[below] + running[up_to]) / 2 / (weight.sum() * running[-1]))


# --- Brier scores and AUC of resamples.

_BLOCK = 1 << 18  # predictions worked on at a time


def brier_scores(block: Block, survival: FloatArray, times: Vector) -> Matrix:
    """Brier score at each time, shape (b, m); NaN where it cannot be estimated. A block of rows at a time."""
    g, _ = block.row_weights
    event_weight, others = block.counts * block.line.ended / g, block.line.competing
    n, m = survival.shape
    dead, alive = np.zeros((block.total.size, m)), np.zeros((block.total.size, m))
    step = max(1, _BLOCK // m)
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
    if block.line.competing is not None:
        alive = alive + (block.counts * block.line.competing / g)[:, :passed].sum(axis=1)
    score = (dead * survival**2 + alive * (1 - survival) ** 2) / block.total
    return np.where(estimable, score, np.nan)


def integrated(scores: Matrix, times: Vector) -> Vector:
    """Scores averaged over the times at which they can be estimated, by the trapezoidal rule; these come first."""
    n_kept = np.isfinite(scores).sum(axis=1)
    filled = np.where(np.isfinite(scores), scores, 0.0)
    areas = np.cumsum(np.diff(times) * (filled[:, 1:] + filled[:, :-1]) / 2, axis=1)
    last = np.maximum(n_kept - 1, 1)
    mean = areas[np.arange(n_kept.size), last - 1] / (times[last] - times[0])
    return np.where(n_kept >= 2, mean, np.nan)


class CountedAUC:
    """Cumulative/dynamic AUC at one time: cases against controls in the order of their risks."""

    def __init__(self, line: Timeline, risk: Vector, at: float) -> None:
        passed, self._at = line.passed(at), at
        self._cases = np.flatnonzero(line.event[:passed])
        controls = np.arange(passed, risk.size)
        if line.competing is not None:
            controls = np.append(np.flatnonzero(line.competing[:passed]), controls)
        self._controls = controls[np.argsort(risk[controls], kind="stable")]
        ordered = risk[self._controls]
        self._below = np.searchsorted(ordered, risk[self._cases], side="left")
        self._up_to = np.searchsorted(ordered, risk[self._cases], side="right")
        # Of rows under observation the weight is the same and cancels, unless there are others beside them.
        self._over = None if line.competing is None else self._controls < passed

    def values(self, block: Block) -> Vector:
        """AUC of every resample; NaN without a case, without a control, or with a case of unknown weight."""
        g, known = block.row_weights
        drawn = block.counts.take(self._cases, axis=1)
        weight = drawn / g.take(self._cases, axis=1)
        controls = block.counts.take(self._controls, axis=1)
        if self._over is not None:
            now, _ = block.time_weight(self._at)
            controls = controls / np.where(
                self._over, np.broadcast_to(g, block.counts.shape).take(self._controls, axis=1), now[:, None]
            )
        running = running_sums(controls)
        below, up_to = running.take(self._below, axis=1), running.take(self._up_to, axis=1)
        agreed = np.einsum("bi,bi->b", weight, below + up_to) / 2
        pairs = weight.sum(axis=1) * running[:, -1]
        estimable = (pairs > 0) & ~((drawn > 0) & ~known.take(self._cases, axis=1)).any(axis=1)
        return np.asarray(np.divide(agreed, pairs, out=np.full(pairs.size, np.nan), where=estimable))
