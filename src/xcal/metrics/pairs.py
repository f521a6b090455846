"""Weights of concordant, tied and comparable pairs of rows under right censoring.

A pair is comparable when it is known which of the two events came first: the earlier row has an event, and the other
row's time is larger, or equal and censored (a row censored at t was still event-free at t). Two events at the same
time are not comparable, and neither is any pair whose earlier row is censored.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal._ordering import Indices, is_event_key, sortable, sortable_time, stable_sort, starts_run
from xcal.metrics.concordant_pairs import IntVector, Weights, dominated_weight
from xcal.metrics.inputs import Vector
from xcal.metrics.running_sums import running_sums

Matrix = npt.NDArray[np.float64]
Places = npt.NDArray[np.int32]


@dataclass(frozen=True)
class PairWeights:
    """Total weight of the pairs that agree, that have equal predictions, and that can be compared at all."""

    concordant: float
    tied: float
    comparable: float

    def __add__(self, other: "PairWeights") -> "PairWeights":
        return PairWeights(
            self.concordant + other.concordant, self.tied + other.tied, self.comparable + other.comparable
        )


def pair_weights(
    time: FloatArray, event: BoolArray, score: FloatArray, weight: FloatArray | None = None
) -> PairWeights:
    """Compare every event with all rows known to outlast it, in O(n log n) time and O(n) memory.

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
    keys, order = stable_sort(sortable_time(time, event)[arranged])
    starts_tie = starts_run(keys)  # a tie: the rows of one time that are all events or all censored
    weights: Weights = is_event_key(keys)
    if weight is not None:
        weights = weights * weight[arranged[order]].astype(np.float64)
    comparable = _comparable_weight(starts_tie, weights)
    rank, tied = (time.size - 1 - order).astype(np.int32), 0.0
    del by_score, arranged, keys, order  # 24 bytes per row less while the pairs are counted
    if sorted_rank is not None:
        rank, tied = _break_ties(sorted_rank[rank], starts_tie, weights)
    return PairWeights(dominated_weight(rank, weights), tied, comparable)


def weighted_pairs(
    time: FloatArray, event: BoolArray, score: FloatArray, rows: Vector, weight: FloatArray | None = None
) -> PairWeights:
    """`pair_weights` of rows with weights `rows`, of which a pair counts the product of two."""
    _, order = stable_sort(sortable_time(time, event))
    opens = np.ones((1, time.size)) if weight is None else weight[order][None].astype(np.float64)
    pairs = CountedPairs(time[order], event[order], score[order].astype(np.float64))
    ((concordant, tied, comparable),) = pairs.weights(rows[order][None], [opens])
    return PairWeights(float(concordant[0]), float(tied[0]), float(comparable[0]))


def _rank(score: FloatArray) -> tuple[Indices, IntVector | None]:
    """Order that sorts the scores and, only if some are equal, the rank of each sorted score, equal for equal ones."""
    keys, order = stable_sort(sortable(score))
    starts = starts_run(keys)
    return order, None if starts.all() else np.cumsum(starts, dtype=np.int32)


def _comparable_weight(starts_tie: BoolArray, weights: Weights) -> float:
    """All rows after the end of an event's tie outlast it."""
    n = starts_tie.size
    if starts_tie.all():
        return float(np.dot(weights, np.arange(n - 1, -1, -1, dtype=np.float64)))
    starts = np.flatnonzero(starts_tie)
    return float(np.dot(np.add.reduceat(weights, starts, dtype=np.float64), n - np.append(starts[1:], n)))


def _break_ties(rank: IntVector, starts_tie: BoolArray, weights: Weights) -> tuple[IntVector, float]:
    """Turn ranks with ties into a permutation under which no tied pair looks concordant; weigh the tied pairs.

    Among equal scores the later row gets the smaller rank. In that order a run of equal scores begins with its
    latest tie, so the rows of the run that outlast an event stand between the start of the run and that of its tie.
    """
    n = rank.size
    sorted_rank, order = stable_sort(np.ascontiguousarray(rank[::-1]))
    position = n - 1 - order
    place = np.arange(n, dtype=np.int32)
    permutation = np.empty(n, dtype=np.int32)
    permutation[position] = place
    new_run = starts_run(sorted_rank)
    new_tie = new_run | starts_run(np.cumsum(starts_tie, dtype=np.int32)[position])
    outlasting = np.maximum.accumulate(place * new_tie) - np.maximum.accumulate(place * new_run)
    return permutation, float(np.dot(outlasting.astype(np.float64), weights[position]))


@dataclass(frozen=True, eq=False)
class _Comparison:
    """Events, and for each the stretch of `others` that it is compared with."""

    events: Places
    others: Places
    begin: Places
    end: Places

    def sums(self, counts: Matrix, weights: list[Matrix]) -> list[Vector]:
        """Sum of weight times the counts of the stretch, over the events."""
        running = running_sums(counts.take(self.others, axis=1))
        found = running.take(self.end, axis=1) - running.take(self.begin, axis=1)
        return [np.einsum("bi,bi->b", weight.take(self.events, axis=1), found) for weight in weights]


class CountedPairs:
    """Pairs of rows in time order, by the order of their scores, where rows count several times or have weights.

    Ranks of the scores are read bit by bit, the leading bit first. At each bit the rows stand in buckets by the bits
    before it, in time order within a bucket; a pair is counted at the bit where its two ranks first differ, when the
    later row has a one there and the earlier a zero. Which rows these are does not depend on the counts. So each bit
    leaves, for one set of counts, one cumulative sum of the counts of its ones and two look-ups per event: O(n log n),
    nothing sorted.
    """

    def __init__(self, time: FloatArray, event: BoolArray, score: Vector) -> None:
        keys = sortable_time(time, event)
        self._tie = np.cumsum(starts_run(keys)) - 1
        _, rank = np.unique(score, return_inverse=True)
        self._event = event
        bits = int(rank.max()).bit_length()
        self._concordant = [self._level(rank >> (bit + 1), (rank >> bit) & 1) for bit in range(bits)]
        everybody = np.ones(time.size, dtype=np.int64)
        self._comparable = self._later(np.zeros(time.size, dtype=np.int64), everybody, event)
        self._tied = self._later(rank, everybody, event) if np.unique(rank).size < time.size else None

    def _level(self, bucket: npt.NDArray[np.int64], bit: npt.NDArray[np.int64]) -> _Comparison:
        """Pairs of one bit: events with a zero, and rows after them with a one."""
        return self._later(bucket, bit, self._event & (bit == 0))

    def _later(self, bucket: npt.NDArray[np.int64], counted: npt.NDArray[np.int64], events: BoolArray) -> _Comparison:
        """For each of the events, the counted rows of the same bucket that outlast it."""
        order = np.argsort(bucket, kind="stable")
        bucket, tie, counted = bucket[order], self._tie[order], counted[order]
        before = np.append(0, np.cumsum(counted))
        ends = np.append(np.flatnonzero(starts_run(bucket))[1:], bucket.size)
        bucket_end = np.repeat(ends, np.diff(np.append(0, ends)))
        runs = starts_run(bucket) | starts_run(tie)
        run_ends = np.append(np.flatnonzero(runs)[1:], bucket.size)
        outlasting = np.repeat(run_ends, np.diff(np.append(0, run_ends)))
        begin, end = before[outlasting], before[bucket_end]
        kept = events[order] & (end > begin)
        small = [order[kept], order[counted > 0], begin[kept], end[kept]]
        return _Comparison(*(array.astype(np.int32) for array in small))

    def weights(self, counts: Matrix, weights: list[Matrix]) -> list[tuple[Vector, Vector, Vector]]:
        """Weight of concordant, tied and comparable pairs, for each weighting of the events.

        `counts` say how often each row counts, shape (b, n); a pair counts the product of two.
        """
        opening = [counts * weight for weight in weights]
        concordant = [np.zeros(len(counts)) for _ in weights]
        for level in self._concordant:
            concordant = [a + b for a, b in zip(concordant, level.sums(counts, opening), strict=True)]
        tied = [np.zeros(len(counts)) for _ in weights]
        if self._tied is not None:
            tied = self._tied.sums(counts, opening)
        return list(zip(concordant, tied, self._comparable.sums(counts, opening), strict=True))

    def indices(self, counts: Matrix, weights: list[Matrix]) -> list[Vector]:
        """Concordance for each weighting of the events; NaN without a comparable pair."""
        return [
            np.divide(agreed + tied / 2, whole, out=np.full(whole.size, np.nan), where=whole > 0)
            for agreed, tied, whole in self.weights(counts, weights)
        ]
