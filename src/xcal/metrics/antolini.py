"""Pairs for Antolini's time-dependent concordance: predictions compared at the time of the earlier event."""

from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal._ordering import sortable_time, stable_sort, starts_run
from xcal.metrics.curves import Interpolation, column, fraction, left_column
from xcal.metrics.inputs import Vector
from xcal.metrics.pairs import PairWeights, pair_weights

# From this many events on one column of the grid, counting all their pairs at once in O(n log n) is quicker than
# comparing event by event.
_MANY_EVENTS = 192


def antolini_weights(
    time: FloatArray,
    event: BoolArray,
    curves: FloatArray,
    times: Vector,
    *,
    increasing: bool,
    interpolation: Interpolation,
    tau: float,
    rows: Vector | None = None,
) -> PairWeights:
    """Compare S_i(T_i) with S_j(T_i) for every event i before `tau` and every row j known to outlast it.

    With "previous", all events between one column of the grid and the next are compared on the same predictions, so the
    time is O(m n log n) for m columns. With "linear" each distinct event time has predictions of its own: O(n) for each
    event. Memory is O(n) beyond the curves in both cases.

    Parameters
    ----------
    time, event : arrays, shape (n,)
        Observed times and event indicators.
    curves : array, shape (n, m)
        Survival probabilities, or F if `increasing`.
    times : array, shape (m,)
        The grid.
    increasing : bool
        The curves are distribution functions: the row with the larger value is the one at higher risk.
    interpolation : {"linear", "previous"}
        How to read the curves between the grid's points.
    tau : float
        Events at or after this time open no pair.
    rows : array, shape (n,), optional
        Weights of the rows, of which a pair counts the product of two: O(n) for each event, whatever the interpolation.
    """
    sign, start = (-1.0, 0.0) if increasing else (1.0, 1.0)
    keys, order = stable_sort(sortable_time(time, event))
    outlasting = _first_outlasting(keys)
    opens = np.flatnonzero((event & (time < tau))[order])
    total = PairWeights(0.0, 0.0, 0.0)
    if opens.size == 0:
        return total
    moments = time[order][opens].astype(np.float64)
    for block in _runs(left_column(times, moments)):
        events, at = opens[block], moments[block]
        left = left_column(times, at)
        base = sign * column(curves, int(left[0]), start)
        if interpolation == "previous":
            total += _events_on_one_score(time, event, base, order, events, outlasting, rows)
            continue
        following = sign * column(curves, min(int(left[0]) + 1, times.size - 1), start)
        share = fraction(times, at, left)
        for part in _runs(at):
            score = (1 - share[part[0]]) * base + share[part[0]] * following
            total += _events_on_one_score(time, event, score, order, events[part], outlasting, rows)
    return total


def _runs(values: npt.NDArray[Any]) -> list[npt.NDArray[np.int64]]:
    """Places of each run of equal values."""
    return np.split(np.arange(values.size), np.flatnonzero(starts_run(values))[1:])


def _first_outlasting(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each row in time order, where the rows begin that outlast it: after all rows with its own key."""
    starts = np.flatnonzero(starts_run(keys))
    ends = np.append(starts[1:], keys.size)
    return np.repeat(ends, ends - starts)


def _events_on_one_score(
    time: FloatArray,
    event: BoolArray,
    score: Vector,
    order: npt.NDArray[np.int64],
    block: npt.NDArray[np.int64],
    outlasting: npt.NDArray[np.int64],
    rows: Vector | None,
) -> PairWeights:
    """Pairs of the events at the places `block` of the time order, all compared on the same scores."""
    if rows is not None:
        return _weighted_events(score[order], rows[order], block, outlasting)
    if block.size >= _MANY_EVENTS:
        weight = np.zeros(time.size)
        weight[order[block]] = 1.0
        return pair_weights(time, event, score, weight)
    # Only rows from the first event of the block on can outlast any of its events.
    first = int(block[0])
    later = score[order[first:]]
    concordant = at_least = comparable = 0
    for place in block:
        others = later[outlasting[place] - first :]
        own = later[place - first]
        concordant += int(np.count_nonzero(others > own))
        at_least += int(np.count_nonzero(others >= own))
        comparable += others.size
    return PairWeights(float(concordant), float(at_least - concordant), float(comparable))


def _weighted_events(
    score: Vector, weights: Vector, block: npt.NDArray[np.int64], outlasting: npt.NDArray[np.int64]
) -> PairWeights:
    """Pairs of events of weighted rows, which stand in time order."""
    concordant = tied = comparable = 0.0
    for place in block:
        others, counts = score[outlasting[place] :], weights[place] * weights[outlasting[place] :]
        concordant += float(counts[others > score[place]].sum())
        tied += float(counts[others == score[place]].sum())
        comparable += float(counts.sum())
    return PairWeights(concordant, tied, comparable)
