"""Which row goes into which part: random splits and folds, by event or by whole groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Fold:
    """Row numbers of one fold: `train` and `test` are disjoint, sorted, and together all rows."""

    train: IntArray
    test: IntArray


def split_by_event(event: BoolArray, fractions: Sequence[float], rng: np.random.Generator) -> IntArray:
    """Part of each row; every part has its share of the events and of the censored rows.

    Parts that could have an event each do: one without cannot be trained or validated on.
    """
    part = np.zeros(event.size, dtype=np.int64)
    for happened in (True, False):
        rows = rng.permutation(np.flatnonzero(event == happened))
        part[rows] = _parts_in_order(rows.size, fractions, none_empty=happened)
    return part


def split_at_random(n: int, fractions: Sequence[float], rng: np.random.Generator) -> IntArray:
    """Part of each row, whatever its event."""
    part = np.empty(n, dtype=np.int64)
    part[rng.permutation(n)] = _parts_in_order(n, fractions, none_empty=True)
    return part


def split_groups(groups: npt.NDArray[Any], fractions: Sequence[float], rng: np.random.Generator) -> IntArray:
    """Part of each row, all rows of a group in the same one.

    Groups are dealt in random order, each to the part that lacks most rows: no part gets more rows than its share and
    one group.
    """
    sizes, group = _sizes(groups)
    lacking = np.asarray(fractions, dtype=np.float64) * groups.size
    part_of_group = np.empty(sizes.size, dtype=np.int64)
    for number in rng.permutation(sizes.size):
        part_of_group[number] = np.argmax(lacking)
        lacking[part_of_group[number]] -= sizes[number]
    return part_of_group[group]


def folds_by_event(event: BoolArray, k: int, rng: np.random.Generator) -> IntArray:
    """Fold of each row; sizes differ by at most one row, and so do the numbers of events."""
    shuffled = rng.permutation(event.size)
    # Events first, then censored rows, each in random order, dealt like cards to the k folds in turn.
    order = np.concatenate([shuffled[event[shuffled]], shuffled[~event[shuffled]]])
    fold = np.empty(event.size, dtype=np.int64)
    fold[order] = np.arange(event.size) % k
    return fold


def folds_of_groups(groups: npt.NDArray[Any], k: int, rng: np.random.Generator) -> IntArray:
    """Fold of each row, all rows of a group in the same one; sizes differ by at most the largest group."""
    return split_groups(groups, [1 / k] * k, rng)


def _parts_in_order(size: int, fractions: Sequence[float], *, none_empty: bool) -> IntArray:
    """Part of each of `size` shuffled rows: the last part first, so that the first one takes what rounding leaves."""
    last = len(fractions) - 1
    sizes, before = np.zeros(last + 1, dtype=np.int64), 0
    for k, share in enumerate(np.cumsum(fractions[::-1])[:-1]):
        end = max(round(float(share) * size), before)
        if none_empty and size > last:
            end = min(max(end, before + 1), size - (last - k))
        sizes[last - k], before = end - before, end
    sizes[0] = size - before
    return np.repeat(np.arange(last, -1, -1), sizes[::-1])


def _sizes(groups: npt.NDArray[Any]) -> tuple[IntArray, IntArray]:
    """Rows of each group, and the number of each row's group."""
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    return sizes, group
