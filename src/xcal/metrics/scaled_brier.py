"""Scaled Brier score, also called the index of prediction accuracy (IPA)."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from xcal._checks import BoolArray
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier
from xcal.metrics.brier import brier_score
from xcal.metrics.inputs import Vector, as_outcome, as_row_weights, as_time_grid


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
    censoring: KaplanMeier | None = None,
    left_limit: bool = True,
    outside: Literal["nan", "raise", "clip"] = "nan",
    weights: Any = None,
) -> ScaledBrierScore:
    r"""Scaled Brier score: the share of the null model's error that the predictions explain.

    .. math:: IPA(t) = 1 - BS(t) / BS_{KM}(t)

    The null model gives everybody the Kaplan-Meier curve of the rows at hand.

    Parameters
    ----------
    survival, times, time, event, censoring, left_limit, outside, weights
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
        "censoring": censoring,
        "left_limit": left_limit,
        "outside": outside,
        "weights": weights,
    }
    score = brier_score(survival, times, **given)
    times_seen, happened = as_outcome(time, event, weights=weights)
    grid = as_time_grid("times", times)
    curve = fit_kaplan_meier(times_seen, happened, weights=as_row_weights(weights, times_seen.size))
    null = brier_score(np.broadcast_to(curve.at(grid), (times_seen.size, grid.size)), grid, **given)
    ratio = np.divide(score.values, null.values, out=np.full(grid.size, np.nan), where=null.values > 0)
    return ScaledBrierScore(grid, 1 - ratio, score.values, null.values, score.estimable)
