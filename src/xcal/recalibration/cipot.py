"""The map behind CiPOT (Qi, Yu and Greiner, NeurIPS 2024): conformal percentiles of F at the observed times."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from xcal._checks import MANY, BoolArray, as_count
from xcal.recalibration.base import DIGITS, Floats, held_out_rows
from xcal.recalibration.piecewise import PiecewiseRecalibration, through_points

# The paper reports 9 levels, the deciles: ten pieces.
DEFAULT_PIECES = 10
# Sums of shares differ from a level by rounding where they meet it exactly.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class CiPOTRecalibration(PiecewiseRecalibration):
    """The levels of F that conformal prediction puts in the place of the deciles.

    The conformity score of a row is its survival probability at the observed time. A censored row has many scores,
    spread evenly from 0 to that probability, which is what the model itself says of it. The new quantile at a level p
    is the model's own quantile at that level of F below which a share p of the scores' F lies; here the paper's
    repetition of every row is taken to its limit, so that nothing is drawn. Between the levels G is a straight line in
    F. Below the first and above the last level it runs straight to 0 and 1, as the paper says nothing about them.

    The spread of censored rows trusts the model that is corrected: under censoring the map undoes only part of the
    error. Levels that fall on one F, because many rows share it, become one knot at the lowest of them.

    Attributes
    ----------
    knots, levels : ndarray
        F and G(F) at the ends of the straight lines, both strictly increasing from 0 to 1.
    n, n_events : int
        Rows and events that G was fitted to.

    Examples
    --------
    >>> cipot = CiPOTRecalibration.fit(np.arange(1, 100) / 200, np.ones(99))
    >>> cipot.quantile([0.1, 0.5])
    array([0.05, 0.25])
    """

    @classmethod
    def fit(cls, cdf: Any, event: Any, *, n_pieces: int | None = None) -> Self:
        """Fit G to F at the observed times of rows that did not train the model.

        Parameters
        ----------
        cdf : array-like of shape (n,)
            F at each row's observed time.
        event : array-like of shape (n,)
            True or 1 where the event happened.
        n_pieces : int, optional
            One more than the number of levels; 10 by default, which are the deciles.
        """
        u, happened = held_out_rows(cdf, event)
        pieces = DEFAULT_PIECES if n_pieces is None else as_count("n_pieces", n_pieces, at_least=2, at_most=MANY)
        wanted = np.arange(1, pieces) / pieces
        knots, levels = through_points(np.round(_quantiles(u, happened, wanted), DIGITS), wanted)
        return cls(knots, levels, u.size, int(happened.sum()))


def _quantiles(u: Floats, event: BoolArray, shares: Floats) -> Floats:
    """Smallest F below which each share of the rows lies, where a censored row is spread evenly from its F to 1.

    Between two neighbouring values the number of rows passed rises along a line: each censored row that began before
    adds 1 / (1 - F).
    """
    values = np.unique(np.append(u, 1.0))
    place = np.searchsorted(values, u)
    steps = np.bincount(place, weights=event | (u == 1), minlength=values.size)
    open_rows = ~event & (u < 1)
    begun = np.bincount(place[open_rows], weights=1 / (1 - u[open_rows]), minlength=values.size)
    slope = np.cumsum(begun)
    rise = np.append(0.0, slope[:-1] * np.diff(values))
    before = np.cumsum(rise) + np.cumsum(steps) - steps
    after = before + steps
    asked = shares * u.size * (1 - ROUNDING)
    at = np.minimum(np.searchsorted(after, asked), values.size - 1)
    left = np.maximum(at - 1, 0)
    lacking = asked - after[left]
    along = values[left] + np.divide(lacking, slope[left], out=np.zeros_like(lacking), where=slope[left] > 0)
    within = (before[at] >= asked) & (at > 0)
    return np.asarray(np.where(within, np.minimum(along, values[at]), values[at]))
