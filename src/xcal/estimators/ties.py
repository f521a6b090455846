"""Times of few distinct values: the interval that each of them stands for."""

from typing import Literal

import numpy as np

from xcal._checks import BoolArray
from xcal.calibration.bins import bin_edges
from xcal.calibration.tied_times import ties_caution
from xcal.estimators.features import Floats

Ties = Literal["auto", "interval", "point"]
# Times are on a grid if all are multiples of the smallest distance to within this share of it.
_ON_GRID = 1e-6


def interval_starts(ties: Ties, time: Floats, event: BoolArray, n_bins: int) -> Floats | None:
    """Start of the interval that each row's time ends; None if times stand for themselves.

    A model of tied times learns F at each of them: what had happened by then, of which what had happened by the time
    before is a part. Where times are multiples of a unit, an interval is one unit long, whether or not the time before
    happens to be among these rows; elsewhere it starts at the time before.
    """
    if ties == "point" or (ties == "auto" and ties_caution(time, event, bin_edges(n_bins)) is None):
        return None
    distinct = np.unique(np.append(time, 0.0))
    if distinct.size == 1:
        return np.zeros_like(time)
    unit = np.diff(distinct).min()
    multiples = distinct / unit
    if np.abs(multiples - multiples.round()).max() < _ON_GRID:
        return np.asarray(np.maximum(time - unit, 0.0))
    return np.asarray(np.append(0.0, distinct)[np.searchsorted(distinct, time)])
