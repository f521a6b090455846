"""Count concordant pairs by array operations alone: O(n log n) time, O(n) memory, no compiled extension.

The rows stand in time order and carry the rank of their prediction, a permutation of 0..n-1. A pair is concordant
when the later row has the larger rank. Ranks are read digit by digit, the leading digit first. At every digit the
rows stand in buckets by the digits before it and keep their time order within a bucket; a pair is counted at the
digit where its two ranks first differ. That leaves, for one small alphabet, the pairs of a bucket with a later, larger
digit:

* both rows in the same chunk of 64 rows: compare the chunk with itself shifted by 1, 2, ..., one byte per row;
* rows in different chunks: one histogram of digits per chunk, summed cumulatively over digits and chunks.

The last digit has 256 values and buckets of 256 rows, so the bucket itself is the chunk. Bytes matter: a comparison of
a million bytes takes some 40 microseconds, and everything a chunk needs stays in the processor's cache.
"""

import numpy as np
import numpy.typing as npt
import torch

from xcal._threads import one_thread

IntVector = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Weights = npt.NDArray[np.float64] | npt.NDArray[np.bool_]

_LEAF_BITS = 8  # buckets of 256 ranks: a rank and a count within a bucket both fit one byte
_DIGIT_BITS = 6
_MAX_DIGITS = 256  # a digit is one byte
_CHUNK = 64
_BLOCK = 1 << 18  # bytes compared at a time: three such blocks fit a one-megabyte second-level cache
_SLAB = 1 << 14  # rows whose histograms are made at a time, for the same reason


@one_thread()
def dominated_weight(rank: IntVector, weight: Weights) -> float:
    """Sum of ``weight[i]`` over the pairs ``i < j`` with ``rank[i] < rank[j]``.

    Parameters
    ----------
    rank : int32 array, shape (n,)
        A permutation of 0..n-1.
    weight : float64 or bool array, shape (n,)
        What a pair counts for, decided by its earlier row; bool moves an eighth of the memory. Sums are taken in
        float64, so whole numbers are exact up to 2**53.

    Examples
    --------
    >>> import numpy as np
    >>> dominated_weight(np.array([1, 0, 2], dtype=np.int32), np.ones(3))
    2.0
    """
    n = rank.size
    if n <= 1 << _LEAF_BITS:
        return _within_chunks(rank.astype(np.uint8), weight, chunk=n)
    shifts = [_LEAF_BITS]
    while (n - 1) >> shifts[-1] >= _MAX_DIGITS:
        shifts.append(shifts[-1] + _DIGIT_BITS)
    rank, weight = _pad(rank, weight, multiple=1 << shifts[-1])
    total = 0.0
    size = rank.size
    for shift in reversed(shifts):
        n_digits = size >> shift
        digits = (rank >> shift).astype(np.uint8)
        if size < rank.size:  # above the digit stand the leading ones, equal throughout a bucket
            digits &= n_digits - 1
        total += _between_chunks(digits, weight, n_digits, size=size)
        total += _within_chunks(digits, weight, chunk=_CHUNK)
        order = _rebucket(digits, size)
        rank, weight = rank.take(order), weight.take(order)
        size = 1 << shift
    return total + _within_chunks(rank.astype(np.uint8), weight, chunk=size)


def _pad(rank: IntVector, weight: Weights, *, multiple: int) -> tuple[IntVector, Weights]:
    """Fill up to a whole number of buckets with rows that belong to no counted pair.

    They come first, so no row is earlier than they are, and they weigh nothing as the earlier row themselves.
    """
    n = rank.size
    missing = -n % multiple
    filler = np.arange(n, n + missing, dtype=np.int32)
    return np.concatenate([filler, rank]), np.concatenate([np.zeros(missing, dtype=weight.dtype), weight])


def _rebucket(digits: Bytes, size: int) -> npt.NDArray[np.int64]:
    """Order that sorts every bucket of `size` rows by digit and keeps the time order among equal digits."""
    order = np.argsort(digits.reshape(-1, size), axis=1, kind="stable")
    order += np.arange(0, digits.size, size)[:, None]
    return order.ravel()


def _within_chunks(digits: Bytes, weight: Weights, *, chunk: int) -> float:
    """Sum the weights of the pairs in one chunk whose later row has the larger digit."""
    digits, weight = digits.reshape(-1, chunk), weight.reshape(-1, chunk)
    total = 0.0
    step = max(1, _BLOCK // chunk)
    for start in range(0, digits.shape[0], step):
        # One row of `later` for each place in the chunk, so that a shift compares long contiguous stretches.
        values = np.ascontiguousarray(digits[start : start + step].T)
        later = np.zeros_like(values)  # fewer than 256 rows come later, so a byte never overflows
        larger = np.empty(values.shape, dtype=np.bool_)
        for shift in range(1, chunk):
            hit = larger[: chunk - shift]
            np.greater(values[shift:], values[:-shift], out=hit)
            np.add(later[:-shift], hit.view(np.uint8), out=later[:-shift])
        counts = np.ascontiguousarray(later.T).reshape(-1).astype(np.float64)
        total += float(np.dot(counts, weight[start : start + step].reshape(-1).astype(np.float64)))
    return total


def _between_chunks(digits: Bytes, weight: Weights, n_digits: int, *, size: int) -> float:
    """Sum the weights of the pairs in different chunks of one bucket whose later row has the larger digit."""
    total = 0.0
    step = min(size, _SLAB)
    first_cell = (np.arange(step // _CHUNK, dtype=np.int64) * n_digits).repeat(_CHUNK)
    for start in range(0, digits.size, step):
        if start % size == 0:
            earlier = torch.zeros(n_digits, dtype=torch.float64)  # weight of each digit in the chunks already passed
        rows = slice(start, start + step)
        cell = first_cell[: digits[rows].size] + digits[rows]
        n_cells = cell.size // _CHUNK * n_digits
        counts = np.bincount(cell, minlength=n_cells).reshape(-1, n_digits)
        weights = torch.from_numpy(np.bincount(cell, weights=weight[rows], minlength=n_cells)).view(-1, n_digits)
        passed = weights.cumsum(0).add_(earlier)
        smaller = (passed - weights).cumsum(1)[:, :-1]  # of the chunks before this one, all smaller digits together
        total += float(np.vdot(smaller.numpy(), counts[:, 1:]))
        earlier = passed[-1]
    return total
