"""Distribution of the predicted risks, by what had happened by the horizon."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal._checks import MANY
from xcal.metrics.inputs import Vector, as_count, as_outcome, as_row_probability, as_row_weights, as_time_point
from xcal.metrics.small_cells import as_min_cell, evened


@dataclass(frozen=True, eq=False, repr=False)
class RiskDistribution:
    """Predicted risks at one horizon, by what had happened by then: shares of rows in each bin of risk."""

    horizon: float
    edges: Vector  # (b + 1,)
    with_event: Vector  # (b,) shares that sum to 1 over rows with an event by the horizon
    without_event: Vector  # the same over rows seen event-free at the horizon
    censored: Vector  # the same over rows censored before it: their outcome is not known
    n_with_event: int
    n_without_event: int
    n_censored: int


def risk_distribution(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    n_bins: int = 20,
    weights: Any = None,
    min_cell: int = 0,
) -> RiskDistribution:
    """Histogram of the predicted risks for each outcome.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    at : float
        The time; an event exactly then has happened, and a row censored exactly then was event-free.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    n_bins : int
        Bins of equal width over [0, 1].
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of the shares.
    min_cell : int
        Of each outcome, neighbouring bins are evened until each run of them has none or so many rows.

    Returns
    -------
    RiskDistribution
        Shares of an outcome that no row has are zero.

    Examples
    --------
    >>> result = risk_distribution([0.9, 0.6, 0.2, 0.1], at=2, time=[1, 1, 3, 2], event=[1, 0, 1, 0], n_bins=2)
    >>> result.with_event, result.without_event, result.censored
    (array([0., 1.]), array([1., 0.]), array([0., 1.]))
    """
    times_seen, happened = as_outcome(time, event, probability=probability, weights=weights)
    p = as_row_probability("probability", probability, times_seen.size)
    moment, w = as_time_point("at", at), as_row_weights(weights, times_seen.size)
    edges = np.linspace(0, 1, as_count("n_bins", n_bins, at_least=1, at_most=MANY) + 1)
    case = happened & (times_seen <= moment)
    lost = ~happened & (times_seen < moment)
    free = ~case & ~lost
    few, shares, totals = as_min_cell(min_cell), [], []
    for rows in (case, free, lost):
        counts = np.histogram(p[rows], edges)[0]
        sums = None if w is None else np.histogram(p[rows], edges, weights=w[rows])[0]
        shown = evened(counts, few, sums)
        shares.append(shown / shown.sum() if rows.any() else shown)
        totals.append(int(counts.sum()))
    return RiskDistribution(moment, edges, shares[0], shares[1], shares[2], totals[0], totals[1], totals[2])
