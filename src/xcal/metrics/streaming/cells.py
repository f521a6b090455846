"""Counts of rows by value in bounded memory: every distinct value while they are few, cells of values beyond.

A float is read as a whole number in the same order (`xcal._ordering.sortable`). A cell of level k holds the values
whose whole numbers agree in all but their last k bits, so cells are about equally wide in proportion. The level is the
smallest at which no more than `limit` cells are filled: it depends on the rows alone, not on their order or on what
was merged with what.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, fail
from xcal._ordering import sortable

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MOST_LEVELS = 63
_DENSE = 1 << 20  # cells that are counted without sorting, at least


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Rows in cells of one value, in increasing order; ``low <= value <= high``, and both equal where it is known."""

    low: Floats
    high: Floats
    events: Integers
    censored: Integers

    @property
    def mixed(self) -> BoolArray:
        """Cells whose rows may have different values."""
        return np.asarray(self.low != self.high)


@dataclass(frozen=True, eq=False)
class PairCellCounts:
    """Rows in cells of two values: the filled cells of each axis, and the place on both axes of each filled pair."""

    low: tuple[Floats, Floats]
    high: tuple[Floats, Floats]
    place: tuple[Integers, Integers]
    events: Integers
    censored: Integers

    @property
    def mixed(self) -> tuple[BoolArray, BoolArray]:
        """Cells of each axis whose rows may have different values."""
        first, second = (np.asarray(low != high) for low, high in zip(self.low, self.high, strict=True))
        return first, second


def keys_of(values: npt.NDArray[Any]) -> Integers:
    """Whole numbers in the order of the floats."""
    return np.asarray(sortable(values.astype(np.float64, copy=False)))


def values_of(keys: Integers) -> Floats:
    """Floats behind the whole numbers of `keys_of`."""
    flip = (keys >> 63) & np.iinfo(np.int64).max
    return np.asarray((keys ^ flip).view(np.float64))


class SparseCells:
    """Counts of events and censored rows by one value, or by two, in at most `limit` cells.

    Parameters
    ----------
    n_axes : {1, 2}
    limit : int
        Cells kept.
    breaks : array
        Values of the first axis that no cell reaches across: a value up to a break, the break included, never shares a
        cell with one beyond it.
    kept : int
        Where the second value is a label, such as the number of a group: how many there are. Cells hold one label.
    """

    def __init__(self, n_axes: int, limit: int, breaks: npt.ArrayLike = (), *, kept: int = 0) -> None:
        # The coarsest cells are one or two on each axis, for each stretch and label.
        self.limit = max(limit, 4 * (np.size(breaks) + 1) * max(kept, 1))
        self._kept = kept
        # First key of each stretch between breaks.
        stretch = keys_of(np.asarray(breaks, dtype=np.float64)) + 1
        self._starts = np.concatenate([[np.iinfo(np.int64).min], np.sort(stretch)])
        self.keys = np.empty((n_axes, 0), dtype=np.int64)
        self.counts = np.empty((2, 0), dtype=np.int64)
        self.level = 0
        self.moved = np.zeros(n_axes, dtype=np.bool_)
        self._waiting: list[tuple[Integers, Integers]] = []

    def add(self, values: tuple[npt.NDArray[Any], ...], event: BoolArray) -> None:
        """Count rows, given by one array for each axis."""
        keys = np.array([keys_of(axis) for axis in values])
        self._wait(*self._distinct(keys, np.array([event, ~event], dtype=np.int64)))

    def merge(self, other: "SparseCells") -> None:
        """Add what another table with the same settings has counted."""
        other._settle()
        self._settle()
        self.moved |= other.moved
        self._raise_to(max(self.level, other.level))
        self._wait(*self._distinct(other.keys, other.counts))
        self._settle()

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Keys, counts, level, and which axes have moved values.

        Keys and counts can be hundreds of megabytes. They are not copied, and nobody can write to them.
        """
        self._settle()
        return {
            "keys": _read_only(self.keys),
            "counts": _read_only(self.counts),
            "level": np.array(self.level, dtype=np.int64),
            "moved": self.moved.astype(np.int64),
        }

    def loaded(self, state: Mapping[str, Any], name: str) -> "SparseCells":
        """Return a table with the same settings and this state."""
        keys, counts = np.asarray(state["keys"]), np.asarray(state["counts"])
        fits = keys.ndim == 2 and keys.shape[0] == self.keys.shape[0] and counts.shape == (2, keys.shape[1])
        if not fits or keys.dtype != np.int64 or counts.dtype != np.int64 or keys.shape[1] > self.limit:
            fail(name, f"keys and counts of at most {self.limit} cells", f"shapes {keys.shape} and {counts.shape}")
        level = int(state["level"])
        if not 0 <= level <= _MOST_LEVELS:
            fail(f"{name}, level", f"a whole number from 0 to {_MOST_LEVELS}", level)
        new = SparseCells(self.keys.shape[0], self.limit, kept=self._kept)
        new._starts = self._starts
        new.keys, new.counts, new.level = _own(keys), _own(counts), level
        new.moved = np.asarray(state["moved"]).astype(np.bool_)
        return new

    def cells(self) -> CellCounts:
        """Return the filled cells of a table of one value."""
        self._settle()
        low, high = self._ends(0, self.keys[0])
        return CellCounts(low, high, self.counts[0], self.counts[1])

    def pair_cells(self, most: int | None = None) -> PairCellCounts:
        """Return the filled cells of a table of two values, made coarser until both axes have `most` cells or fewer."""
        self._settle()
        table = self
        while most is not None and max(np.unique(axis).size for axis in table.keys) > most:
            table = table.loaded(table.state_dict(), "cells")
            table._raise_to(table.level + 1)
        first, first_place = np.unique(table.keys[0], return_inverse=True)
        second, second_place = np.unique(table.keys[1], return_inverse=True)
        ends = [table._ends(axis, keys) for axis, keys in enumerate((first, second))]
        return PairCellCounts(
            (ends[0][0], ends[1][0]),
            (ends[0][1], ends[1][1]),
            (first_place.astype(np.int64), second_place.astype(np.int64)),
            table.counts[0],
            table.counts[1],
        )

    def _wait(self, keys: Integers, counts: Integers) -> None:
        """Keep counted cells until they are worth sorting in."""
        self._waiting.append((keys, counts))
        if sum(keys.shape[1] for keys, _ in self._waiting) > self.limit:
            self._settle()

    def _settle(self) -> None:
        """Sort in what waits, and coarsen the cells if there are too many."""
        if not self._waiting:
            return
        keys = np.concatenate([self.keys, *(keys for keys, _ in self._waiting)], axis=1)
        counts = np.concatenate([self.counts, *(counts for _, counts in self._waiting)], axis=1)
        self._waiting = []
        self.keys, self.counts = self._distinct(keys, counts)
        if self.keys.shape[1] > self.limit:
            self._raise_to(self._fitting_level())

    def _fitting_level(self) -> int:
        """Find the smallest level at which the cells are few enough; the number of cells falls with the level."""
        low, high = self.level + 1, _MOST_LEVELS
        while low < high:
            middle = (low + high) // 2
            if _count_distinct(self._cell_numbers(self.keys, middle)) <= self.limit:
                high = middle
            else:
                low = middle + 1
        return low

    def _raise_to(self, level: int) -> None:
        if level > self.level:
            self.level = level
            self.keys, self.counts = self._distinct(self.keys, self.counts)

    def _distinct(self, keys: Integers, counts: Integers) -> tuple[Integers, Integers]:
        """Add up the counts of each cell of the present level, cells in increasing order."""
        if keys.shape[1] == 0:
            return keys, counts
        number, size = _combined(self._cell_numbers(keys, self.level))
        if size <= max(_DENSE, 4 * number.size):
            summed = np.array([np.bincount(number, kind, minlength=size) for kind in counts])
            some = np.zeros(size, dtype=np.int64)
            some[number] = np.arange(number.size)
            filled = np.flatnonzero(np.bincount(number, minlength=size))
            summed, some = summed[:, filled], some[filled]
        else:
            _, some, place = np.unique(number, return_index=True, return_inverse=True)
            summed = np.array([np.bincount(place, kind, minlength=some.size) for kind in counts])
        self._mark_moved(keys)
        return self._coarse(keys[:, some]), summed.astype(np.int64)

    def _mark_moved(self, keys: Integers) -> None:
        """Note which axes have a value that its cell does not stand for exactly."""
        if self.level and not self.moved.all():
            self.moved |= (keys != self._coarse(keys)).any(axis=1)

    def _cell_numbers(self, keys: Integers, level: int) -> Integers:
        """Whole numbers in the order of the cells, different for different cells.

        Both the bits that count and the stretch grow with the value; their sum grows where either does.
        """
        number = keys >> self._shifts(level)
        if self._starts.size > 1:
            number[0] += np.searchsorted(self._starts, keys[0], side="right")
        return number

    def _shifts(self, level: int) -> Integers:
        """Bits that do not count on each axis, shape (axes, 1)."""
        shifts = np.full((self.keys.shape[0], 1), level, dtype=np.int64)
        if self._kept:
            shifts[1] = 0
        return shifts

    def _coarse(self, keys: Integers) -> Integers:
        """Smallest key of the cell."""
        shifts = self._shifts(self.level)
        coarse = (keys >> shifts) << shifts
        if self._starts.size > 1:
            stretch = np.searchsorted(self._starts, keys[0], side="right") - 1
            np.maximum(coarse[0], self._starts[stretch], out=coarse[0])
        return coarse

    def _ends(self, axis: int, keys: Integers) -> tuple[Floats, Floats]:
        """Smallest and largest value of cells, given by their smallest keys."""
        if not self.moved[axis]:
            return values_of(keys), values_of(keys)
        last = ((keys >> self.level) << self.level) + ((1 << self.level) - 1)
        if axis == 0 and self._starts.size > 1:
            following = np.append(self._starts, np.iinfo(np.int64).max)[
                np.searchsorted(self._starts, keys, side="right")
            ]
            last = np.minimum(last, following - 1)
        # Past the largest float come keys of infinity and of nothing.
        last = np.minimum(last, keys_of(np.array([np.inf]))[0])
        return values_of(keys), values_of(last)


def _read_only(values: Integers) -> Integers:
    """Return a view that cannot be written to; the arrays of a table are replaced, never written to."""
    view = values.view()
    view.flags.writeable = False
    return view


def _own(values: Integers) -> Integers:
    """Copy an array that somebody else may write to."""
    return values.copy() if values.flags.writeable else values


def _combined(numbers: Integers) -> tuple[Integers, int]:
    """Join the numbers of all axes to one, zero or larger; and what lies beyond the largest."""
    joined, size = _from_zero(numbers[0])
    for axis in numbers[1:]:
        following, width = _from_zero(axis)
        if size * width >= 1 << 62:
            # Ranks instead: as many as there are rows at most, on either axis.
            _, joined = np.unique(joined, return_inverse=True)
            _, following = np.unique(following, return_inverse=True)
            size, width = int(joined.max()) + 1, int(following.max()) + 1
        joined, size = joined * width + following, size * width
    return joined, size


def _from_zero(numbers: Integers) -> tuple[Integers, int]:
    first, last = int(numbers.min()), int(numbers.max())
    if last - first >= 1 << 62:  # would not fit: ranks keep the order
        found, place = np.unique(numbers, return_inverse=True)
        return place.astype(np.int64), found.size
    return numbers - first, last - first + 1


def _count_distinct(numbers: Integers) -> int:
    joined, size = _combined(numbers)
    if size <= max(_DENSE, 4 * joined.size):
        return int(np.count_nonzero(np.bincount(joined, minlength=size)))
    return int(np.unique(joined).size)
