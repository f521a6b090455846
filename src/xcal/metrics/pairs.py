"""Weights of concordant, tied and comparable pairs of rows under right censoring.

A pair is comparable when it is known which of the two events came first: the earlier row has an event, and the other
row's time is larger, or equal and censored (a row censored at t was still event-free at t). Two events at the same
time are not comparable, and neither is any pair whose earlier row is censored.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import BoolArray, FloatArray
from xcal.metrics.dominance import FloatVector, IntVector, dominated_weight

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PairWeights:
    """Total weight of the pairs that agree, that have equal predictions, and that can be compared at all."""

    concordant: float
    tied: float
    comparable: float


def pair_weights(
    time: FloatArray, event: BoolArray, score: FloatArray, weight: FloatArray | None = None
) -> PairWeights:
    """Compare every event with all rows known to outlast it.

    Parameters
    ----------
    time, event, score : arrays, shape (n,)
        `score` is the prediction, larger meaning a later event; a pair is concordant when the row that outlasts the
        event has the larger score, and tied when the scores are equal.
    weight : array, shape (n,), optional
        What each pair of an event counts for; 1 if not given. Ignored on censored rows, which open no pair.

    Examples
    --------
    >>> import numpy as np
    >>> pair_weights(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]), np.array([1.0, 5.0, 0.5]))
    PairWeights(concordant=1.0, tied=0.0, comparable=2.0)
    """
    by_score, sorted_rank = _rank(score)
    # Sort the rows by time, those of one time by decreasing score with events first: so a row censored at t follows
    # the events at t, and two events at t never stand in concordant order.
    arranged = by_score[::-1]
    keys, order = _stable_sort(_time_key(time, event)[arranged])
    is_event = (keys & 1) == 0
    starts_group = _starts_run(keys)  # a group: the rows of one time that are all events or all censored
    weights = is_event.astype(np.float64)
    if weight is not None:
        weights *= weight[arranged[order]]
    comparable = _comparable_weight(starts_group, weights)
    rank, tied = (time.size - 1 - order).astype(np.int32), 0.0
    del by_score, arranged, keys, order, is_event  # 25 bytes a row less while the pairs are counted
    if sorted_rank is not None:
        rank, tied = _break_ties(sorted_rank[rank], starts_group, weights)
    return PairWeights(dominated_weight(rank, weights), tied, comparable)


def _comparable_weight(starts_group: BoolArray, weights: FloatVector) -> float:
    """All rows after the end of an event's group outlast it."""
    n = starts_group.size
    if starts_group.all():
        return float(np.dot(weights, np.arange(n - 1, -1, -1, dtype=np.float64)))
    starts = np.flatnonzero(starts_group)
    return float(np.dot(np.add.reduceat(weights, starts), n - np.append(starts[1:], n)))


def _break_ties(rank: IntVector, starts_group: BoolArray, weights: FloatVector) -> tuple[IntVector, float]:
    """Turn ranks with ties into a permutation under which no tied pair looks concordant; weigh the tied pairs.

    Among equal scores the later row gets the smaller rank. In that order a run of equal scores begins with its
    latest group, so the rows of the run that outlast an event are those before its own group begins.
    """
    n = rank.size
    sorted_rank, order = _stable_sort(np.ascontiguousarray(rank[::-1]))
    position = n - 1 - order
    permutation = np.empty(n, dtype=np.int32)
    permutation[position] = np.arange(n, dtype=np.int32)
    group = np.cumsum(starts_group, dtype=np.int32)[position]
    starts_run = _starts_run(sorted_rank)
    starts_part = starts_run.copy()
    starts_part[1:] |= group[1:] != group[:-1]
    parts = np.flatnonzero(starts_part)
    run_of_part = np.flatnonzero(starts_run)[np.cumsum(starts_run[parts]) - 1]
    return permutation, float(np.dot(np.add.reduceat(weights[position], parts), parts - run_of_part))


def _rank(score: FloatArray) -> tuple[Indices, IntVector | None]:
    """Order that sorts the scores and, only if some are equal, the rank of each sorted score, equal for equal ones."""
    keys, order = _stable_sort(_sortable(score))
    starts = _starts_run(keys)
    return order, None if starts.all() else np.cumsum(starts, dtype=np.int32)


def _time_key(time: FloatArray, event: BoolArray) -> npt.NDArray[np.int64]:
    """Integers in the order of the times, the last bit set for censored rows.

    The bits of a time, which is not negative, fill 63 bits; with the censoring bit they fill all 64. Flipping the
    highest one makes the order of unsigned integers that of signed ones.
    """
    key = _sortable(time.astype(np.float64, copy=False))
    key <<= 1
    key |= ~event
    key ^= np.int64(np.iinfo(np.int64).min)
    return key


def _starts_run(values: npt.NDArray[Any]) -> BoolArray:
    """Mark, among sorted values, the first of each run of equal ones."""
    starts = np.empty(values.size, dtype=np.bool_)
    starts[0] = True
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts


def _sortable(values: FloatArray) -> npt.NDArray[Any]:
    """Integers in the order of the floats: torch sorts integers by radix, several times faster than floats.

    Read as an integer, an IEEE 754 number with a clear sign bit is already in order, and one with the sign bit set
    is in reverse order. Adding zero turns -0.0 into 0.0, the two being equal.
    """
    signed = np.int32 if values.dtype == np.float32 else np.int64
    bits = (values + values.dtype.type(0)).view(signed)
    bits ^= (bits >> (8 * bits.itemsize - 1)) & np.iinfo(signed).max
    return bits


def _stable_sort(keys: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Indices]:
    values, order = torch.sort(torch.from_numpy(keys), stable=True)
    return values.numpy(), order.numpy()
