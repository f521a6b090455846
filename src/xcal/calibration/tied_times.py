"""Times of few distinct values: events that share a time share one value of F."""

import numpy as np
import numpy.typing as npt

from xcal._checks import check_same_length, fail, first_row
from xcal.calibration.bins import Edges
from xcal.calibration.histogram import Array


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
