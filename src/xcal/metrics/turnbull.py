"""Turnbull's estimate: the survival curve of events that are only known to lie between two times.

A screening finds an event between two visits. Taking it as happened at the visit that found it makes survival too
high; the estimate here uses only that it lies in (lower, upper]. Where all times are known it is Kaplan-Meier.
"""

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xcal._checks import FloatArray, as_floats, check_rows
from xcal._kaplan_meier import GAP, fit_turnbull
from xcal.data.surv import as_intervals
from xcal.metrics.inputs import Vector, as_row_weights

_MOST_STEPS = 20_000


@dataclass(frozen=True, eq=False)
class Turnbull:
    """Survival curve of interval-censored rows.

    The data tell how much mass lies in each of some intervals, and nothing about where within them.

    Attributes
    ----------
    lower, upper : arrays, shape (m,)
        The intervals (lower, upper] that hold mass, ascending; equal ends are a time. The last `upper` is infinite
        where rows are still without the event at the end.
    mass : array, shape (m,)
        Probability of an event in each; adds up to 1.
    gap : float
        Upper bound of the log-likelihood per row that a better curve could gain.
    """

    lower: Vector = field(repr=False)
    upper: Vector = field(repr=False)
    mass: Vector = field(repr=False)
    gap: float

    def at(self, t: FloatArray | float) -> Vector:
        """Return the probability of no event by t, with the mass of an interval put at its end.

        Within an interval that is the highest curve that the data allow; see `bounds`.
        """
        return self.bounds(t)[1]

    def bounds(self, t: FloatArray | float) -> tuple[Vector, Vector]:
        """Return the lowest and the highest probability of no event by t that the data do not tell apart."""
        points = as_floats("t", np.atleast_1d(t)).astype(np.float64)
        left = np.append(1.0, 1.0 - np.cumsum(self.mass))
        # A mass at a time has come by then; one of an interval may have begun to come after its start.
        begun = np.where(self.lower < self.upper, np.nextafter(self.lower, np.inf), self.lower)
        ends = (left[np.searchsorted(side, points, side="right")] for side in (begun, self.upper))
        low, high = (np.clip(end, 0.0, 1.0).reshape(np.shape(t)) for end in ends)
        return low, high


def turnbull(*, lower: Any, upper: Any, weights: Any = None) -> Turnbull:
    r"""Estimate the survival curve of events that lie in (lower, upper].

    .. math:: \hat p = \arg\max_p \sum_i w_i \log \sum_{j:\, I_j \subseteq (l_i, u_i]} p_j

    over the innermost intervals :math:`I_j`, those from a lower end to the next upper end with no other end between:
    no other place can hold mass. Found by self-consistency, which makes each mass the mean of what the rows say of it,
    in extrapolated steps.

    Parameters
    ----------
    lower, upper : array-like, shape (n,)
        Ends of the interval of each row, as in `xcal.Surv`: equal ends are a time known exactly, an infinite or missing
        `upper` is a row censored at `lower`.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row.

    Returns
    -------
    Turnbull

    References
    ----------
    Turnbull (1976), Journal of the Royal Statistical Society B 38(3):290-295. Gentleman, Geyer (1994), Biometrika
    81(3):618-623, for the bound `gap`. Varadhan, Roland (2008), Scandinavian Journal of Statistics 35(2):335-353, for
    the extrapolated steps.

    Examples
    --------
    >>> curve = turnbull(lower=[0, 1, 1, 2, 3], upper=[1, 2, 3, np.inf, np.inf])
    >>> curve.at([0.5, 1, 2, 3]).round(3)
    array([1. , 0.8, 0.4, 0.4])
    """
    check_rows({"lower": lower, "upper": upper, "weights": weights})
    rows = as_intervals(lower, upper)
    low = np.asarray(rows.lower, dtype=np.float64)
    weight = as_row_weights(weights, rows.n)
    share = np.full(rows.n, 1 / rows.n) if weight is None else weight / weight.sum()
    high = np.where(rows.event, rows.time, np.inf).astype(np.float64)
    found = Turnbull(*fit_turnbull(low, high, share, steps=_MOST_STEPS))
    if found.gap > GAP:
        warnings.warn(
            f"turnbull: after {_MOST_STEPS:,} steps the log-likelihood per row may still grow by {found.gap:.1g}",
            stacklevel=2,
        )
    return found
