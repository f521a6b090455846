"""How often the model puts two rows in the order in which their events came."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, fail, first_row
from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.antolini import antolini_weights
from xcal.metrics.censoring import as_censoring, censoring_survival
from xcal.metrics.curves import INTERPOLATIONS, Interpolation
from xcal.metrics.inputs import as_choice, as_curves, as_outcome, as_row_weights, as_score, as_time_point
from xcal.metrics.pairs import PairWeights, pair_weights, weighted_pairs

Method = Literal["harrell", "uno", "antolini"]


@dataclass(frozen=True)
class Concordance:
    """A concordance index and the pairs behind it.

    Attributes
    ----------
    value : float
        ``(concordant + tied / 2) / comparable``; 0.5 for a prediction without information, 1 for a perfect order.
        NaN when no two rows can be compared.
    concordant, discordant, tied, comparable : float
        Number of pairs; for Uno's method, and of weighted rows, the sum of their weights. A tie is a pair with equal
        predictions.
    method : str
        "harrell", "uno" or "antolini".
    tau : float
        Events at or after this time opened no pair; infinite when none was set.
    n, n_events : int
        Rows, and rows with an event.
    n_dropped : int
        Events left out because their censoring weight is not known (Uno with ``outside="drop"``).
    """

    value: float
    concordant: float
    discordant: float
    tied: float
    comparable: float
    method: Method
    tau: float
    n: int
    n_events: int
    n_dropped: int = 0


def concordance_index(
    *,
    time: Any,
    event: Any,
    predicted_time: Any = None,
    risk: Any = None,
    survival: Any = None,
    cdf: Any = None,
    times: Any = None,
    method: Method | None = None,
    tau: float | None = None,
    interpolation: Interpolation = "linear",
    censoring: KaplanMeier | None = None,
    left_limit: bool = True,
    outside: Literal["drop", "raise", "clip"] = "drop",
    weights: Any = None,
) -> Concordance:
    r"""Concordance index of Harrell, of Uno or, for whole curves, of Antolini.

    A pair of rows is comparable when the one with the smaller time had its event, or when both have the same time and
    only one had its event: that one came first. Two events at one time are not comparable. Of a comparable pair,
    equal predictions count one half.

    Parameters
    ----------
    time, event : array-like, shape (n,)
        Observed times, finite and not negative; True where the event happened.
    predicted_time, risk : array-like, shape (n,)
        Give one of them for "harrell" and "uno". A larger `predicted_time` says that the event comes later, a larger
        `risk` that it comes sooner. Only the order matters, so infinite values are accepted; NaN is not.
    survival, cdf : array-like, shape (n, m)
        Give one of them for "antolini": every row's survival probability, or F, at the m increasing `times`. `cdf`
        keeps apart events so unlikely that 1 - F rounds to 1.
    times : array-like, shape (m,)
        The grid of `survival` or `cdf`.
    method : {"harrell", "uno", "antolini"}, optional
        By default "antolini" if curves are given, else "harrell". "uno" weighs the pairs of an event at t by
        :math:`1 / G(t-)^2`, so that the result does not depend on the censoring, only on `tau`.
    tau : float, optional
        Events at or after `tau` open no pair.
    interpolation : {"linear", "previous"}
        How to read curves between grid points; see `evaluate`. "previous" takes O(m n log n) time, "linear" O(n) for
        each event.
    censoring : KaplanMeier, optional
        Where Uno's G comes from: ``kaplan_meier(time=..., event=..., of="censoring")`` of the training rows. By
        default it is estimated from the rows at hand.
    left_limit : bool
        Weigh an event at t by G just before t, as Uno and others write it; False weighs it by G(t), as scikit-survival
        does. They differ only where an event and a censoring share a time.
    outside : {"drop", "raise", "clip"}
        For "uno", what to do with events at which G is not known or zero, usually those after the last training time:
        leave them out as if `tau` lay before them, refuse, or keep the last positive G.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row. A pair counts the product of two, and Uno's G is that of weighted
        rows. Equal weights change nothing. "antolini" takes O(n) for each event then.

    Returns
    -------
    Concordance
        Its value is NaN when there is no comparable pair: no events, one row, or one single time without censoring.

    Notes
    -----
    Harrell's and Uno's index take O(n log n) time and O(n) memory. Harrell's depends on how much is censored, because
    pairs whose earlier row is censored are left out.

    References
    ----------
    Harrell, Lee, Mark (1996), Statistics in Medicine 15(4):361-387. Uno et al. (2011), Statistics in Medicine
    30(10):1105-1117. Antolini, Boracchi, Biganzoli (2005), Statistics in Medicine 24(24):3927-3944.

    Examples
    --------
    >>> time, event = [1, 2, 3, 4], [1, 0, 1, 1]
    >>> concordance_index(time=time, event=event, predicted_time=[1, 2, 4, 3]).value
    0.75
    >>> concordance_index(time=time, event=event, risk=[9, 8, 2, 5]).value
    0.75
    """
    times_seen, happened = as_outcome(
        time, event, predicted_time=predicted_time, risk=risk, survival=survival, cdf=cdf, weights=weights
    )
    limit = np.inf if tau is None else as_time_point("tau", tau)
    default: Method = "antolini" if survival is not None or cdf is not None else "harrell"
    method = as_choice("method", default if method is None else method, ("harrell", "uno", "antolini"))
    n_dropped = 0
    rows = as_row_weights(weights, times_seen.size)
    if method == "antolini":
        pairs = _antolini(times_seen, happened, survival, cdf, times, interpolation, limit, rows)
    else:
        score = _one_score(predicted_time, risk, times_seen.size)
        weight = None
        if method == "uno":
            as_choice("outside", outside, ("drop", "raise", "clip"))
            curve = as_censoring(censoring, times_seen, happened, rows)
            weight, n_dropped = _uno_weight(times_seen, happened, limit, curve, left_limit, outside)
        elif limit < np.inf:
            weight = (times_seen < limit).astype(np.float64)
        given = (times_seen, happened, score)
        pairs = pair_weights(*given, weight) if rows is None else weighted_pairs(*given, rows, weight)
    return summary(pairs, method, limit, happened.size, int(np.count_nonzero(happened)), n_dropped)


def _one_score(predicted_time: Any, risk: Any, n: int) -> FloatArray:
    """Scores that grow with the time of the event."""
    if (predicted_time is None) == (risk is None):
        got = "neither" if risk is None else "both"
        fail("predicted_time, risk", "exactly one of the two", got)
    if risk is None:
        return as_score("predicted_time", predicted_time, n)
    return np.negative(as_score("risk", risk, n))


def _uno_weight(
    time: FloatArray, event: BoolArray, tau: float, curve: KaplanMeier, left_limit: bool, outside: str
) -> tuple[npt.NDArray[np.float64], int]:
    """Squared inverse of the probability that an event at this time was not censored before, for both rows of a pair.

    The earlier row was seen to have its event at t and the later one was seen to outlast t: each is observed with
    probability G(t).
    """
    opens = event & (time < tau)
    g, known = censoring_survival(curve, time, left_limit=left_limit)
    unknown = opens & ~known
    if outside == "raise" and unknown.any():
        row = first_row(unknown)
        fail("time", "events no later than the times behind `censoring`, where G > 0", time[row], row)
    if outside == "clip":
        unknown[:] = False
    used = opens & ~unknown
    return np.where(used, 1.0 / np.square(g), 0.0), int(np.count_nonzero(unknown))


def _antolini(
    time: FloatArray,
    event: BoolArray,
    survival: Any,
    cdf: Any,
    times: Any,
    interpolation: Interpolation,
    tau: float,
    rows: npt.NDArray[np.float64] | None,
) -> PairWeights:
    """Check the curves and compare them."""
    if (survival is None) == (cdf is None):
        fail("survival, cdf", "exactly one of the two", "neither" if cdf is None else "both")
    if times is None:
        fail("times", "the grid on which the curves are given", None)
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    increasing = survival is None
    name, given = ("cdf", cdf) if increasing else ("survival", survival)
    curves, grid = as_curves(name, given, times, time.size)
    given = (time, event, curves, grid)
    return antolini_weights(*given, increasing=increasing, interpolation=interpolation, tau=tau, rows=rows)


def summary(pairs: PairWeights, method: Method, tau: float, n: int, n_events: int, n_dropped: int = 0) -> Concordance:
    """Return the index of these pairs, of `n` rows with `n_events` events."""
    agreed = pairs.concordant + pairs.tied / 2
    return Concordance(
        value=agreed / pairs.comparable if pairs.comparable > 0 else float("nan"),
        concordant=pairs.concordant,
        discordant=pairs.comparable - pairs.concordant - pairs.tied,
        tied=pairs.tied,
        comparable=pairs.comparable,
        method=method,
        tau=tau,
        n=n,
        n_events=n_events,
        n_dropped=n_dropped,
    )
