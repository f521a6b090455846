"""Inverse probability of censoring weights from the user's own G: checked, and summed by bin."""

from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_floats, check_same_length, fail, first_row
from xcal.calibration.bins import Edges
from xcal.calibration.censored import rest, share_of_bin
from xcal.calibration.histogram import Array, Floats, edges_like, locate


def as_censoring_survival(values: Any, event: npt.NDArray[np.bool_], *, every_row: bool = False) -> Array:
    """Check the user's G at each row: in (0, 1] for events, and for `every_row` where censored rows use it too."""
    g = as_floats("censoring_survival", values)
    check_same_length("censoring_survival", g, "cdf", event.size)
    bad = ~((g > 0) & (g <= 1)) & (event | every_row)
    if bad.any():
        row = first_row(bad)
        fail("censoring_survival", f"probabilities in (0, 1] for every {'row' if every_row else 'event'}", g[row], row)
    if not event.any():
        fail("event", "at least one event, as method='ipcw' uses events only", "none")
    return g


def inverse_weights(
    u: Array, event: npt.NDArray[np.bool_], g: Array, edges: Edges, time: Array | None = None
) -> tuple[Floats, Floats]:
    """Sum 1 / G over the events of each bin, and its square.

    With `time`, rows that outlast the last event count 1 / G as well and spread over [F, 1]: what happens after the end
    of the follow-up would otherwise be missing.
    """
    sums, squares = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
    counted = event if time is None else event | (time >= time[event].max())
    edge = edges_like(edges, u)
    f, happened, inverse = u[counted].astype(np.float64), event[counted], 1 / g[counted].astype(np.float64)
    bins, left = locate(f, edge), rest(f, edge)
    for j in range(edge.size - 1):
        spread = share_of_bin(j, bins, left, edge)
        share = inverse * np.where(happened, bins == j, spread)
        sums[j], squares[j] = share.sum(), np.square(share).sum()
    return sums, squares


def lost_mass_caution(total: float, squares: float, n: int) -> str | None:
    """Return what to tell a user whose events do not stand for everybody, given the sums of 1 / G and its square."""
    seen = total / n
    # Three standard errors below all rows, and by enough to matter.
    if seen + 3 * squares**0.5 / n > 0.97:
        return None
    return (
        f"the events, weighted by 1 / censoring_survival, stand for {seen:.0%} of the rows only: follow-up ended "
        "before the others could have theirs, and what they would add is missing. Give time as well, or use "
        "method='km'."
    )
