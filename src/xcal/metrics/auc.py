"""Cumulative/dynamic AUC: how well risks tell those with an event by a time from those without."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from xcal._checks import BoolArray, FloatArray, as_floats, as_numpy, check_same_length, fail, first_row
from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.censoring import as_censoring, censoring_survival
from xcal.metrics.inputs import Vector, as_choice, as_outcome, as_row_weights, as_time_grid


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
    times_seen, happened = as_outcome(time, event, risk=risk, weights=weights)
    grid = as_time_grid("times", times)
    scores = _as_scores(risk, times_seen.size, grid.size)
    as_choice("outside", outside, ("nan", "raise"))
    w = as_row_weights(weights, times_seen.size)
    curve = as_censoring(censoring, times_seen, happened, w)
    g, known = censoring_survival(curve, times_seen, left_limit=left_limit)
    inverse = 1 / g if w is None else w / g
    cases, controls = np.zeros(grid.size), np.zeros(grid.size)
    values, estimable = np.full(grid.size, np.nan), np.zeros(grid.size, dtype=np.bool_)
    for k, t in enumerate(grid):
        case, control = happened & (times_seen <= t), times_seen > t
        cases[k], controls[k] = np.count_nonzero(case), np.count_nonzero(control)
        estimable[k] = cases[k] > 0 and controls[k] > 0 and bool(known[case].all())
        if estimable[k]:
            score = scores[:, k if scores.shape[1] > 1 else 0]
            values[k] = _area(score[case], score[control], inverse[case], None if w is None else w[control])
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
