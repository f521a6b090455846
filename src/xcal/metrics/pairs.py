"""Weights of concordant, tied and comparable pairs of rows under right censoring."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import BoolArray, FloatArray
from xcal._devices import one_thread
from xcal._kaplan_meier import Indices, is_event_key, sortable, sortable_time, stable_sort, starts_run
from xcal.data.surv import Outcome
from xcal.metrics.inputs import Integers, Interpolation, Matrix, Vector, column, fraction, left_column, running_sums

# --- Count concordant pairs by array operations alone: O(n log n) time, O(n) memory, no compiled extension.
# The rows stand in time order and carry the rank of their prediction, a permutation of 0..n-1. A pair is concordant
# when the later row has the larger rank. Ranks are read digit by digit, the leading digit first. At every digit the
# rows stand in buckets by the digits before it and keep their time order within a bucket; a pair is counted at the
# digit where its two ranks first differ. That leaves, for one small alphabet, the pairs of a bucket with a later,
# larger
# digit:
#
# * both rows in the same chunk of 64 rows: compare the chunk with itself shifted by 1, 2, ..., one byte per row;
# * rows in different chunks: one histogram of digits per chunk, summed cumulatively over digits and chunks.
#
# The last digit has 256 values and buckets of 256 rows, so the bucket itself is the chunk. Bytes matter: a comparison
# of
# a million bytes takes some 40 microseconds, and everything a chunk needs stays in the processor's cache.

IntVector = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Weights = Vector | npt.NDArray[np.bool_]
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


def _rebucket(digits: Bytes, size: int) -> Integers:
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


# --- Weights of concordant, tied and comparable pairs of rows under right censoring.
# A pair is comparable when it is known which of the two events came first: the earlier row has an event, and the other
# row's time is larger, or equal and censored (a row censored at t was still event-free at t). Two events at the same
# time are not comparable, and neither is any pair whose earlier row is censored.


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


def pair_weights(outcome: Outcome, score: FloatArray, weight: FloatArray | None = None) -> PairWeights:
    """Compare every event with all rows known to outlast it, in O(n log n) time and O(n) memory.

    Parameters
    ----------
    outcome : Outcome
        Of n rows.
    score : array, shape (n,)
        The prediction, larger meaning a later event; a pair is concordant when the row that outlasts the event has the
        larger score, and tied when the scores are equal.
    weight : array, shape (n,), optional
        What each pair of an event counts for; 1 if not given. Ignored on censored rows, which open no pair.

    Examples
    --------
    >>> import numpy as np
    >>> outcome = Outcome(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    >>> pair_weights(outcome, np.array([1.0, 5.0, 0.5]))
    PairWeights(concordant=1.0, tied=0.0, comparable=2.0)
    """
    by_score, sorted_rank = _rank(score)
    # Sort the rows by time, those of one time by decreasing score with events first: so a row censored at t follows
    # the events at t, and two events at t never stand in concordant order.
    arranged = by_score[::-1]
    keys, order = stable_sort(sortable_time(outcome.time, outcome.event)[arranged])
    starts_tie = starts_run(keys)  # a tie: the rows of one time that are all events or all censored
    weights: Weights = is_event_key(keys)
    if weight is not None:
        weights = weights * weight[arranged[order]].astype(np.float64)
    comparable = _comparable_weight(starts_tie, weights)
    rank, tied = (outcome.n - 1 - order).astype(np.int32), 0.0
    del by_score, arranged, keys, order  # 24 bytes per row less while the pairs are counted
    if sorted_rank is not None:
        rank, tied = _break_ties(sorted_rank[rank], starts_tie, weights)
    return PairWeights(dominated_weight(rank, weights), tied, comparable)


def weighted_pairs(outcome: Outcome, score: FloatArray, rows: Vector, weight: FloatArray | None = None) -> PairWeights:
    """`pair_weights` of rows with weights `rows`, of which a pair counts the product of two."""
    order = outcome.order()
    opens = np.ones((1, outcome.n)) if weight is None else weight[order][None].astype(np.float64)
    pairs = CountedPairs(outcome.take(order), score[order].astype(np.float64))
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

    events: IntVector
    others: IntVector
    begin: IntVector
    end: IntVector

    def sums(self, counts: Matrix, weights: list[Matrix]) -> list[Vector]:
        """Sum of weight times the counts of the stretch, over the events."""
        running = running_sums(counts.take(self.others, axis=1))
        found = running.take(self.end, axis=1) - running.take(self.begin, axis=1)
        return [np.einsum("bi,bi->b", weight.take(self.events, axis=1), found) for weight in weights]


class CountedPairs:
    """Pairs of rows in time order, by the order of their scores, where rows count several times or have weights.

    A row with a time of entry is at risk of the events after it only. The pairs with the events before are taken away
    again: those of a second row with the same score, censored at its entry, that counts as much below zero.

    Ranks of the scores are read bit by bit, the leading bit first. At each bit the rows stand in buckets by the bits
    before it, in time order within a bucket; a pair is counted at the bit where its two ranks first differ, when the
    later row has a one there and the earlier a zero. Which rows these are does not depend on the counts. So each bit
    leaves, for one set of counts, one cumulative sum of the counts of its ones and two look-ups per event: O(n log n),
    nothing sorted.
    """

    def __init__(self, outcome: Outcome, score: FloatArray) -> None:
        self._double: Integers | None = None
        if outcome.entry is not None:
            time = np.append(outcome.time, outcome.entry)
            both = Outcome(time, np.append(outcome.event, np.zeros(outcome.n, dtype=np.bool_)))
            self._double = both.order()
            outcome, score = both.take(self._double), np.append(score, score)[self._double]
        event, keys = outcome.event, sortable_time(outcome.time, outcome.event)
        self._tie = np.cumsum(starts_run(keys)) - 1
        _, rank = np.unique(score, return_inverse=True)
        self._event = event
        bits = int(rank.max()).bit_length()
        self._concordant = [self._level(rank >> (bit + 1), (rank >> bit) & 1) for bit in range(bits)]
        everybody = np.ones(outcome.n, dtype=np.int64)
        self._comparable = self._later(np.zeros(outcome.n, dtype=np.int64), everybody, event)
        self._tied = self._later(rank, everybody, event) if np.unique(rank).size < outcome.n else None

    def _level(self, bucket: Integers, bit: Integers) -> _Comparison:
        """Pairs of one bit: events with a zero, and rows after them with a one."""
        return self._later(bucket, bit, self._event & (bit == 0))

    def _later(self, bucket: Integers, counted: Integers, events: BoolArray) -> _Comparison:
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
        if self._double is not None:
            weights = [np.append(one, one, axis=1)[:, self._double] for one in weights]
            counts = np.append(counts, -counts, axis=1)[:, self._double]
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


# --- Pairs for Antolini's time-dependent concordance: predictions compared at the time of the earlier event.

# From this many events on one column of the grid, counting all their pairs at once in O(n log n) is quicker than
# comparing event by event.
_MANY_EVENTS = 192


def antolini_weights(
    outcome: Outcome,
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
    outcome : Outcome
        Of n rows.
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
    keys, order = stable_sort(sortable_time(outcome.time, outcome.event))
    outlasting = first_outlasting(keys)
    opens = np.flatnonzero((outcome.event & (outcome.time < tau))[order])
    total = PairWeights(0.0, 0.0, 0.0)
    if opens.size == 0:
        return total
    moments = outcome.time[order][opens].astype(np.float64)
    for block in _runs(left_column(times, moments)):
        events, at = opens[block], moments[block]
        left = left_column(times, at)
        base = sign * column(curves, int(left[0]), start)
        if interpolation == "previous":
            total += _events_on_one_score(outcome, base, order, events, outlasting, rows)
            continue
        following = sign * column(curves, min(int(left[0]) + 1, times.size - 1), start)
        share = fraction(times, at, left)
        for part in _runs(at):
            score = (1 - share[part[0]]) * base + share[part[0]] * following
            total += _events_on_one_score(outcome, score, order, events[part], outlasting, rows)
    return total


def _runs(values: npt.NDArray[Any]) -> list[Integers]:
    """IntVector of each run of equal values."""
    return np.split(np.arange(values.size), np.flatnonzero(starts_run(values))[1:])


def first_outlasting(keys: Integers) -> Integers:
    """For each row in time order, where the rows begin that outlast it: after all rows with its own key."""
    starts = np.flatnonzero(starts_run(keys))
    ends = np.append(starts[1:], keys.size)
    return np.repeat(ends, ends - starts)


def _events_on_one_score(
    outcome: Outcome,
    score: Vector,
    order: Integers,
    block: Integers,
    outlasting: Integers,
    rows: Vector | None,
) -> PairWeights:
    """Pairs of the events at the places `block` of the time order, all compared on the same scores."""
    if rows is not None:
        return _weighted_events(score[order], rows[order], block, outlasting)
    if block.size >= _MANY_EVENTS:
        weight = np.zeros(outcome.n)
        weight[order[block]] = 1.0
        return pair_weights(outcome, score, weight)
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


def _weighted_events(score: Vector, weights: Vector, block: Integers, outlasting: Integers) -> PairWeights:
    """Pairs of events of weighted rows, which stand in time order."""
    concordant = tied = comparable = 0.0
    for place in block:
        others, counts = score[outlasting[place] :], weights[place] * weights[outlasting[place] :]
        concordant += float(counts[others > score[place]].sum())
        tied += float(counts[others == score[place]].sum())
        comparable += float(counts.sum())
    return PairWeights(concordant, tied, comparable)
