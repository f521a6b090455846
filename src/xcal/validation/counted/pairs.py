"""Concordance of resamples: pairs of rows that count several times.

Ranks of the predictions are read bit by bit, the leading bit first. At each bit the rows stand in buckets by the bits
before it, in time order within a bucket; a pair is counted at the bit where its two ranks first differ, when the later
row has a one there and the earlier a zero. Which rows these are does not depend on the counts. So each bit leaves, for
a resample, one cumulative sum of the counts of its ones and two look-ups per event: O(n log n), nothing sorted.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal._ordering import sortable_time, starts_run
from xcal.metrics.curves import Interpolation, column, fraction, left_column
from xcal.metrics.inputs import Vector
from xcal.metrics.running_sums import running_sums
from xcal.validation.counted.block import Block, Matrix, product

Places = npt.NDArray[np.int32]
# Numbers compared at a time, and summed by one matrix product.
_BLOCK = 1 << 19


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
    """Pairs of rows in time order, by the order of their scores."""

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

    def indices(self, block: Block, weights: list[Matrix]) -> list[Vector]:
        """Concordance of every resample for each weighting of the pairs; NaN without a comparable pair."""
        opening = [block.counts * weight for weight in weights]
        agreed = [np.zeros(block.total.size) for _ in weights]
        for level in self._concordant:
            agreed = [a + b for a, b in zip(agreed, level.sums(block.counts, opening), strict=True)]
        if self._tied is not None:
            tied = self._tied.sums(block.counts, opening)
            agreed = [a + b / 2 for a, b in zip(agreed, tied, strict=True)]
        comparable = self._comparable.sums(block.counts, opening)
        return [
            np.divide(a, c, out=np.full(a.size, np.nan), where=c > 0) for a, c in zip(agreed, comparable, strict=True)
        ]


def uno_weights(block: Block) -> Matrix:
    """Squared inverse of G at each event; zero where it is not known."""
    g, known = block.row_weights
    return np.where(known, 1 / np.square(g), 0.0)


def antolini_indices(
    time: FloatArray,
    event: BoolArray,
    survival: FloatArray,
    times: Vector,
    interpolation: Interpolation,
    counts: npt.NDArray[np.float32],
) -> Vector:
    """Antolini's concordance of every resample, rows in time order, counts of shape (b, n).

    Which row of a pair the curves put first is the same in every resample: a matrix of events and later rows, worked
    out a few events at a time, and multiplied with the counts of all resamples. The entries are 0, 1/2 and 1 and the
    sums below 2^24, so that single precision is exact.
    """
    keys = sortable_time(time, event)
    ends = np.append(np.flatnonzero(starts_run(keys))[1:], keys.size)
    outlasting = np.repeat(ends, np.diff(np.append(0, ends)))
    agreed, comparable = np.zeros(counts.shape[0]), np.zeros(counts.shape[0])
    total = counts.sum(axis=1, dtype=np.float64)
    before = running_sums(counts.astype(np.float64))
    events = np.flatnonzero(event)
    left = left_column(times, time[events])
    for k in np.unique(left):
        own = events[left == k]
        share = fraction(times, time[own], left[left == k]) if interpolation == "linear" else np.zeros(own.size)
        first = int(own[0])
        base, following = _two_columns(survival[first:], times, int(k))
        step = max(1, _BLOCK // base.size)
        for start in range(0, own.size, step):
            part, s = own[start : start + step], share[start : start + step, None]
            score = (1 - s) * base + s * following if s.any() else np.broadcast_to(base, (part.size, base.size))
            mine = score[np.arange(part.size), part - first][:, None]
            order = (score > mine).astype(np.float32) + 0.5 * (score == mine).astype(np.float32)
            order[np.arange(first, keys.size) < outlasting[part][:, None]] = 0.0
            weight = counts[:, part].astype(np.float64)
            agreed += np.einsum("bi,bi->b", product(counts[:, first:], order.T), weight)
            comparable += np.einsum("bi,bi->b", total[:, None] - before[:, outlasting[part]], weight)
    return np.asarray(np.divide(agreed, comparable, out=np.full(agreed.size, np.nan), where=comparable > 0))


def _two_columns(survival: FloatArray, times: Vector, k: int) -> tuple[Vector, Vector]:
    """Curves at grid time k and at the next one; k = -1 stands for time 0."""
    return column(survival, k, 1.0), column(survival, min(k + 1, times.size - 1), 1.0)
