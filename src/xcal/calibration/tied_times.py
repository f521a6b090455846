"""Times of few distinct values: events that share a time share one value of F."""

import numpy as np
import numpy.typing as npt

from xcal._checks import check_same_length, fail, first_row
from xcal.calibration.bins import Edges
from xcal.calibration.histogram import Array

# Times are on a grid if all are multiples of the smallest distance to within this share of it.
_ON_GRID = 1e-6
# Times in units of which the follow-up has at most so many, or with fewer different times per event, are coarse.
_MOST_UNITS, _DISTINCT_SHARE = 200, 0.2


def unit_starts(time: Array) -> Array:
    """Return the start of the interval that each row's time ends.

    Where times are multiples of a unit, an interval is one unit long, whether or not the time before happens to be
    among these rows; elsewhere it starts at the time before.
    """
    distinct = np.unique(np.append(time, 0.0))
    unit = _unit(distinct)
    if unit is not None:
        return np.asarray(np.maximum(time - unit, 0.0))
    return np.asarray(np.append(0.0, distinct)[np.searchsorted(distinct, time)])


def are_coarse(time: Array, event: npt.NDArray[np.bool_]) -> bool:
    """Return whether times stand for intervals, such as whole months, that are long beside the follow-up.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> time, event = rng.exponential(20, 300), np.full(300, True)
    >>> are_coarse(time, event), are_coarse(np.ceil(time), event)
    (False, True)
    """
    distinct = np.unique(np.append(time, 0.0))
    unit = _unit(distinct)
    if unit is not None and distinct[-1] <= _MOST_UNITS * unit:
        return True
    return bool(np.unique(time[event]).size < _DISTINCT_SHARE * np.count_nonzero(event))


def _unit(distinct: Array) -> float | None:
    """Return the unit of which increasing times are multiples; None if there is none, or one time alone."""
    if distinct.size < 3:
        return None
    unit = float(np.diff(distinct).min())
    multiples = distinct / unit
    return unit if np.abs(multiples - multiples.round()).max() < _ON_GRID else None


def within_interval(u: Array, before: Array, event: npt.NDArray[np.bool_], seed: int) -> Array:
    """Draw the F of each event evenly from the interval that its time stands for; censored rows keep its end."""
    check_same_length("cdf_before", before, "cdf", u.size)
    wrong = before > u
    if wrong.any():
        row = first_row(wrong)
        fail("cdf_before", f"at most cdf, {u[row]}", before[row], row)
    # From one source for all rows, whatever else is drawn later: "simulated" starts its own from the same seed.
    share = np.random.default_rng([seed, 1]).random(u.size)
    return np.where(event, before + share * (u - before), u)


def ties_caution(time: Array, event: npt.NDArray[np.bool_], edges: Edges) -> str | None:
    """Return what to tell a user whose times take so few values that even a true model looks uneven; None if not.

    So it is if most events share their time with another one, and the most common time holds the mass of half a bin.
    """
    distinct, counts = np.unique(time[event], return_counts=True)
    if counts.size == 0 or 2 * counts[counts > 1].sum() < counts.sum():
        return None
    if counts.max() / time.size < np.diff(edges).min() / 2:
        return None
    return (
        f"the {counts.sum()} events have {distinct.size} distinct times only: tied events share one value of F, so "
        "that even a true model looks uneven and is rejected. Give cdf_before, F at the start of the interval that "
        "each time stands for (F at the month before, say)"
    )
