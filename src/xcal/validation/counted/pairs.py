"""Concordance of resamples: weights of Uno's pairs, and Antolini's index. `metrics.pairs.CountedPairs` has the rest."""

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal._ordering import sortable_time, starts_run
from xcal.metrics.curves import Interpolation, column, fraction, left_column
from xcal.metrics.inputs import Vector
from xcal.metrics.running_sums import running_sums
from xcal.validation.counted.block import Block, Matrix, product

# Numbers compared at a time, and summed by one matrix product.
_BLOCK = 1 << 19


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
    counts: npt.NDArray[np.float32] | npt.NDArray[np.float64],
) -> Vector:
    """Antolini's concordance of every resample, rows in time order, counts of shape (b, n).

    Which row of a pair the curves put first is the same in every resample: a matrix of events and later rows, worked
    out a few events at a time, and multiplied with the counts of all resamples. The entries are 0, 1/2 and 1 and the
    sums below 2^24, so that single precision is exact; counts that are weights come in double precision.
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
            order = (score > mine).astype(counts.dtype) + 0.5 * (score == mine).astype(counts.dtype)
            order[np.arange(first, keys.size) < outlasting[part][:, None]] = 0.0
            weight = counts[:, part].astype(np.float64)
            agreed += np.einsum("bi,bi->b", product(counts[:, first:], order.T), weight)
            comparable += np.einsum("bi,bi->b", total[:, None] - before[:, outlasting[part]], weight)
    return np.asarray(np.divide(agreed, comparable, out=np.full(agreed.size, np.nan), where=comparable > 0))


def _two_columns(survival: FloatArray, times: Vector, k: int) -> tuple[Vector, Vector]:
    """Curves at grid time k and at the next one; k = -1 stands for time 0."""
    return column(survival, k, 1.0), column(survival, min(k + 1, times.size - 1), 1.0)
