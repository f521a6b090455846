"""Cumulative/dynamic AUC: how well risks tell those with an event by a time from those without; errors of resamples."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xcal._checks import BoolArray, FloatArray, as_choice, as_floats, as_numpy, check_same_length, fail, first_row
from xcal.data.surv import as_outcome
from xcal.metrics.inputs import Matrix, Vector, as_row_weights, as_time_grid, running_sums
from xcal.metrics.observed import censoring_survival
from xcal.metrics.pseudo_values import CensoringModel, censoring_of
from xcal.metrics.resamples import Block, Timeline


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
    censoring: Any = None,
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
    censoring : KaplanMeier or array-like of shape (n, k), optional
        ``kaplan_meier(time=..., event=..., of="censoring")`` of the training rows; by default G is estimated from
        the rows at hand. Covariates on which censoring may depend: each row has its own G then, as in `brier_score`,
        and controls are weighted by theirs.
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
    outcome = as_outcome(
        time, event, beside={"risk": risk, "weights": weights, "censoring": censoring}, competing=competing
    )
    grid = as_time_grid("times", times)
    scores = _as_scores(risk, outcome.n, grid.size)
    as_choice("outside", outside, ("nan", "raise"))
    w = as_row_weights(weights, outcome.n)
    curve = censoring_of(censoring, outcome, w)
    if isinstance(curve, CensoringModel):
        inverse, lasting = curve.stands_for(outcome, grid, left_limit=left_limit)
        known = np.ones(outcome.n, dtype=np.bool_)
    else:
        g, known = censoring_survival(curve, outcome.time, left_limit=left_limit)
        inverse = 1 / g if w is None else w / g
    cases, controls = np.zeros(grid.size), np.zeros(grid.size)
    values, estimable = np.full(grid.size, np.nan), np.zeros(grid.size, dtype=np.bool_)
    for k, t in enumerate(grid):
        case, control = outcome.happened_by(t), outcome.time > t
        of_control, enough = None if w is None else w[control], bool(known[case].all())
        if isinstance(curve, CensoringModel):
            over = outcome.ended & ~outcome.event & ~control
            of_control = np.where(over, inverse, lasting[:, k])[control | over]
            control = control | over
        elif outcome.competing is not None:
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


# --- AUC of resamples.


class CountedAUC:
    """Cumulative/dynamic AUC at one time: cases against controls in the order of their risks."""

    def __init__(self, line: Timeline, risk: Vector, at: float) -> None:
        passed, self._at = line.passed(at), at
        self._cases = np.flatnonzero(line.event[:passed])
        controls = np.arange(passed, risk.size)
        if line.outcome.competing is not None:
            controls = np.append(np.flatnonzero(line.outcome.competing[:passed]), controls)
        self._controls = controls[np.argsort(risk[controls], kind="stable")]
        ordered = risk[self._controls]
        self._below = np.searchsorted(ordered, risk[self._cases], side="left")
        self._up_to = np.searchsorted(ordered, risk[self._cases], side="right")
        # Of rows under observation the weight is the same and cancels, unless there are others beside them.
        self._over = None if line.outcome.competing is None else self._controls < passed

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


# --- AUC, Brier score and IPA from pseudo-values, of the rows and of resamples.
# Used where censoring depends on covariates. The pseudo-values are corrected for it, and these are linear in what
# happened to a row, so that its pseudo-value can stand for it. Net benefit is, too.


class CountedValues:
    """Accuracy at one time from predictions and pseudo-values.

    `null` are the risks of rows by a model without covariates, where these differ: with the time of their entry.
    """

    def __init__(self, risk: Vector, values: Vector, null: Vector | None = None) -> None:
        self._risk, self._values, self._null = risk, values, null
        self._order = np.argsort(risk, kind="stable")
        ordered = risk[self._order]
        self._below = np.searchsorted(ordered, ordered, side="left")
        self._up_to = np.searchsorted(ordered, ordered, side="right")

    def accuracy(self, counts: Matrix) -> dict[str, Vector]:
        """Return AUC, Brier score and IPA of every resample; NaN where a resample does not determine one."""
        total, o = counts.sum(axis=1), self._values
        brier = self._error(self._risk, counts)
        mean = counts @ o / total
        null = mean * (1 - mean) if self._null is None else self._error(self._null, counts)
        ratio = np.divide(brier, null, out=np.full(null.size, np.nan), where=null > 0)
        return {"auc": self._auc(counts), "brier": np.asarray(brier), "ipa": 1 - ratio}

    def _error(self, p: Vector, counts: Matrix) -> Vector:
        """Mean squared error of risks."""
        o = self._values
        return np.asarray(counts @ (o * (1 - p) ** 2 + (1 - o) * p**2) / counts.sum(axis=1))

    def _auc(self, counts: Matrix) -> Vector:
        drawn = counts.take(self._order, axis=1)
        o = self._values[self._order]
        case, control = drawn * o, drawn * (1 - o)
        running = running_sums(control)
        below, up_to = running.take(self._below, axis=1), running.take(self._up_to, axis=1)
        # A row is no pair with itself, nor with another draw of itself.
        same = np.einsum("bi,bi->b", case, control)
        agreed = np.einsum("bi,bi->b", case, below + up_to) / 2 - same / 2
        pairs = case.sum(axis=1) * control.sum(axis=1) - same
        return np.asarray(np.divide(agreed, pairs, out=np.full(pairs.size, np.nan), where=pairs > 0))
