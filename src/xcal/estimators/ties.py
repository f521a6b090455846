"""Times of few distinct values: the interval that each of them stands for."""

from typing import Literal

from xcal._checks import BoolArray
from xcal.calibration.bins import bin_edges
from xcal.calibration.tied_times import ties_caution, unit_starts
from xcal.estimators.features import Floats

Ties = Literal["auto", "interval", "point"]


def interval_starts(ties: Ties, time: Floats, event: BoolArray, n_bins: int) -> Floats | None:
    """Start of the interval that each row's time ends; None if times stand for themselves.

    A model of tied times learns F at each of them: what had happened by then, of which what had happened by the time
    before is a part.
    """
    if ties == "point" or (ties == "auto" and ties_caution(time, event, bin_edges(n_bins)) is None):
        return None
    return unit_starts(time)
