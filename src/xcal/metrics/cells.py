"""What metrics that merge are made of: sums in any order, and counts of rows by value in bounded memory."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, as_count, as_floats, fail
from xcal._kaplan_meier import sortable
from xcal.metrics.inputs import Integers, Vector

# --- Counts of rows by value in bounded memory: every distinct value while they are few, cells of values beyond.
# A float is read as a whole number in the same order (`sortable`). A cell of level k holds the values
# whose whole numbers agree in all but their last k bits, so cells are about equally wide in proportion. The level is
# the smallest at which no more than `limit` cells are filled: it depends on the rows alone, not on their order or on
# what was merged with what.

_MOST_LEVELS = 63
_DENSE = 1 << 20  # cells that are counted without sorting, at least


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Rows in cells of one value, in increasing order; ``low <= value <= high``, and both equal where it is known."""

    low: Vector
    high: Vector
    events: Integers
    censored: Integers

    @property
    def mixed(self) -> BoolArray:
        """Cells whose rows may have different values."""
        return np.asarray(self.low != self.high)


@dataclass(frozen=True, eq=False)
class PairCellCounts:
    """Rows in cells of two values: the filled cells of each axis, and the place on both axes of each filled pair."""

    low: tuple[Vector, Vector]
    high: tuple[Vector, Vector]
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


def values_of(keys: Integers) -> Vector:
    """Vector behind the whole numbers of `keys_of`."""
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

    def _ends(self, axis: int, keys: Integers) -> tuple[Vector, Vector]:
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


# --- The protocol of metrics that merge: update, merge, state_dict, load_state_dict, compute.

State = dict[str, npt.NDArray[Any]]


class Accumulator(ABC):
    """Rows in, numbers of bounded size kept, a metric out.

    A subclass puts what it keeps into `_sums`, whole numbers that are added up, and `_cells`, counts of rows in cells
    that grow coarser when there are too many. Both give the same result in any order of rows and merges.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Integers] = {}
        self._cells: dict[str, SparseCells] = {}

    @abstractmethod
    def compute(self) -> Any:
        """Return the metric of all rows seen so far."""

    @abstractmethod
    def _settings(self) -> tuple[Any, ...]:
        """Return what two accumulators must have in common to be merged."""

    @property
    def n(self) -> int:
        """Rows seen so far."""
        return int(self._sums["n"])

    @property
    def additive(self) -> bool:
        """Whether every array of the state has a fixed shape and merging is adding: so with fixed grids."""
        return not self._cells

    def merge(self, other: Self) -> Self:
        """Add what another accumulator with the same settings has seen."""
        if type(other) is not type(self) or _plain(other._settings()) != _plain(self._settings()):
            fail("other", f"a {type(self).__name__} with the same settings", repr(other))
        for name in self._sums:
            self._sums[name] += other._sums[name]
        for name, cells in self._cells.items():
            cells.merge(other._cells[name])
        return self

    def state_dict(self) -> State:
        """Return the state as arrays by name, to be written to a file or sent to another process."""
        state: State = {name: values.copy() for name, values in self._sums.items()}
        for name, cells in self._cells.items():
            state |= {f"{name}.{part}": values for part, values in cells.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Replace the state by one from `state_dict` of an accumulator with the same settings."""
        wanted = set(self.state_dict())
        if set(state) != wanted:
            fail("state", f"the entries {', '.join(sorted(wanted))}", ", ".join(sorted(map(str, state))))
        sums: dict[str, Integers] = {}
        for name, values in self._sums.items():
            given = np.asarray(state[name])
            if given.shape != values.shape or given.dtype.kind not in "iu":
                fail(f"state[{name!r}]", f"whole numbers of shape {values.shape}", f"{given.dtype} {given.shape}")
            sums[name] = given.astype(np.int64)
        loaded = {
            name: cells.loaded({part: state[f"{name}.{part}"] for part in cells.state_dict()}, f"state[{name!r}]")
            for name, cells in self._cells.items()
        }
        self._sums, self._cells = sums, loaded
        return self

    def _need_rows(self) -> None:
        if self.n == 0:
            name = type(self).__name__
            raise ValueError(f"{name}: expected at least one row before compute(), got none; call update() first")

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.n:,} rows"


def _plain(settings: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make settings comparable: arrays by their bytes."""
    return tuple(item.tobytes() if isinstance(item, np.ndarray) else item for item in settings)


# --- Sums that do not depend on the order of what is added: whole numbers, in two or more pieces of 64 bits.
# Sums of floats differ in their last digits with the order of the rows, the size of the chunks and the number of
# processes. Here every value is first written as whole numbers, and those are added. The sum is then the same to the
# last bit, whatever was merged with what, and a sum over processes (``all_reduce``) is one of whole numbers.

# A value in [0, 1] is hi / 2**31 + lo / 2**62. Sums of either are exact in float64 up to 2**22 rows at a time, and in
# int64 up to 2**32 rows in all.
_LIMB = 2.0**31
_ROWS = 1 << 21
# Exponents of float64 numbers, as `np.frexp` gives them, from the smallest to the largest.
_FIRST, _LAST = -1073, 1024
_HALF = 2.0**27  # a significand of 53 bits is written as hi * 2**27 + lo
EXPONENTS = _LAST - _FIRST + 1


def unit_sums(values: npt.NDArray[Any]) -> Integers:
    """Sum over the rows of values in [0, 1]: shape (2, ...) for values of shape (n, ...).

    A value is rounded to a multiple of 2**-62, which is exact for float32 numbers above 2**-38.

    Examples
    --------
    >>> sums_as_floats(unit_sums(np.array([0.25, 0.5])))
    array(0.75)
    """
    total = np.zeros((2, *values.shape[1:]), dtype=np.int64)
    for start in range(0, values.shape[0], _ROWS):
        for place, limb in enumerate(_limbs(values[start : start + _ROWS])):
            total[place] += limb.sum(axis=0).astype(np.int64)
    return total


def unit_sums_by_bin(bins: npt.NDArray[np.intp], values: npt.NDArray[Any], n_bins: int) -> Integers:
    """Sum of values in [0, 1] in each bin, shape (2, n_bins)."""
    total = np.zeros((2, n_bins), dtype=np.int64)
    for start in range(0, values.shape[0], _ROWS):
        rows = slice(start, start + _ROWS)
        for place, limb in enumerate(_limbs(values[rows])):
            total[place] += np.bincount(bins[rows], limb, minlength=n_bins).astype(np.int64)
    return total


def sums_as_floats(total: Integers, scale: float = 1.0) -> Vector:
    """Return sums as floats, each rounded once; `scale` is what the values were divided by."""
    high, low = total.astype(object)
    # Python's division of whole numbers is rounded correctly, whatever their size.
    found = np.asarray((high * 2**31 + low) / 2**62, dtype=np.float64)
    return np.asarray(found * scale)


def _limbs(values: npt.NDArray[Any]) -> tuple[Vector, Vector]:
    scaled = values.astype(np.float64) * _LIMB
    high = np.floor(scaled)
    scaled -= high
    scaled *= _LIMB
    return high, np.rint(scaled)


def float_sums(values: Vector) -> Integers:
    """Sum of any finite floats: for each exponent the sum of the significands, shape (2, EXPONENTS).

    Examples
    --------
    >>> exact = float_sums(np.array([1e300, 1.0, -1e300]))
    >>> as_fraction(exact)
    Fraction(1, 1)
    """
    total = np.zeros((2, EXPONENTS), dtype=np.int64)
    for start in range(0, values.size, _ROWS):
        significand, exponent = np.frexp(values[start : start + _ROWS])
        whole = significand * 2.0**53
        high = np.floor(whole / _HALF)
        bins = exponent - _FIRST
        total[0] += np.bincount(bins, high, minlength=EXPONENTS).astype(np.int64)
        total[1] += np.bincount(bins, whole - high * _HALF, minlength=EXPONENTS).astype(np.int64)
    return total


def as_fraction(total: Integers) -> Fraction:
    """Sum of floats as the exact number that it is."""
    whole = 0
    for place in np.flatnonzero(total.any(axis=0)):
        whole += (int(total[0, place]) * 2**27 + int(total[1, place])) << int(place)
    return Fraction(whole, 2 ** (53 - _FIRST))


# --- Counts of rows on fixed grids: arrays of a fixed shape, which are merged by adding them.


class GridAxis:
    """Cells of one value: up to each point of the grid, the point included, and one cell beyond the last.

    A cell whose rows all lie on its point is exact; so rows that do not are counted too.
    """

    def __init__(self, points: Vector) -> None:
        self.points = points
        self.size = points.size + 1
        self._high = np.append(points, np.inf)

    def place(self, values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """Cell of each value."""
        return np.searchsorted(self.points, values.astype(np.float64, copy=False), side="left")

    def between(self, values: npt.NDArray[Any], place: npt.NDArray[np.intp]) -> Integers:
        """Rows of each cell that do not lie on its point."""
        off = place[values != self._high[place]]
        return np.bincount(off, minlength=self.size).astype(np.int64)

    def ends(self, between: Integers) -> tuple[Vector, Vector]:
        """Smallest and largest value of each cell, equal where all rows lie on the point."""
        low = np.append(-np.inf, np.nextafter(self.points, np.inf))
        return np.where(between == 0, self._high, low), self._high


def grid_counts(axis: GridAxis, place: npt.NDArray[np.intp], event: BoolArray) -> Integers:
    """Events and censored rows of each cell, shape (2, cells)."""
    return np.array([np.bincount(place[rows], minlength=axis.size) for rows in (event, ~event)], dtype=np.int64)


def grid_cells(axis: GridAxis, counts: Integers, between: Integers) -> CellCounts:
    """Return the filled cells of a grid."""
    low, high = axis.ends(between)
    filled = counts.any(axis=0)
    return CellCounts(low[filled], high[filled], counts[0][filled], counts[1][filled])


def grid_pair_cells(
    axes: tuple[GridAxis, GridAxis], counts: Integers, between: tuple[Integers, Integers]
) -> PairCellCounts:
    """Return the filled cells of two grids; `counts` has shape (2, cells of the first, cells of the second)."""
    ends = [axis.ends(off) for axis, off in zip(axes, between, strict=True)]
    first, second = np.nonzero(counts.any(axis=0))
    return PairCellCounts(
        (ends[0][0], ends[1][0]),
        (ends[0][1], ends[1][1]),
        (first.astype(np.int64), second.astype(np.int64)),
        counts[0][first, second],
        counts[1][first, second],
    )


# --- Accumulators that count rows by two values: cells that grow coarser as needed, or two fixed grids.


class PairAccumulator(Accumulator):
    """Counts of events and censored rows by time and by one number of the prediction."""

    def __init__(
        self, grids: tuple[Any, Any] | None, limit: int, breaks: npt.ArrayLike = (), *, labels: int = 0
    ) -> None:
        super().__init__()
        self.limit = as_count("limit", limit, at_least=1)
        self._sums["n"] = np.zeros((), dtype=np.int64)
        self._axes: tuple[GridAxis, GridAxis] | None = None
        if grids is None:
            self._cells["pairs"] = SparseCells(2, self.limit, breaks, kept=labels)
            return
        first, second = (GridAxis(as_grid(name, grid)) for name, grid in zip(("times", "values"), grids, strict=True))
        self._axes = first, second
        self._sums |= {
            "pairs": np.zeros((2, first.size, second.size), np.int64),
            "between_times": np.zeros(first.size, np.int64),
            "between_values": np.zeros(second.size, np.int64),
        }

    def _settings(self) -> tuple[Any, ...]:
        return self.limit, *(() if self._axes is None else (axis.points for axis in self._axes))

    def time_place(self, time: npt.NDArray[Any]) -> npt.NDArray[np.intp] | None:
        """Cell of each time on the grid, for accumulators that share it; None without grids."""
        return None if self._axes is None else self._axes[0].place(time)

    def _count(
        self,
        time: npt.NDArray[Any],
        values: npt.NDArray[Any],
        event: BoolArray,
        place: npt.NDArray[np.intp] | None = None,
    ) -> None:
        self._sums["n"] += time.size
        if self._axes is None:
            self._cells["pairs"].add((time, values), event)
            return
        first, second = self._axes
        rows, columns = first.place(time) if place is None else place, second.place(values)
        flat = self._sums["pairs"].reshape(-1)
        np.add.at(flat, ((~event) * first.size + rows) * second.size + columns, 1)
        self._sums["between_times"] += first.between(time, rows)
        self._sums["between_values"] += second.between(values, columns)

    def _pair_cells(self, most: int | None = None) -> PairCellCounts:
        if self._axes is None:
            return self._cells["pairs"].pair_cells(most)
        between = self._sums["between_times"], self._sums["between_values"]
        return grid_pair_cells(self._axes, self._sums["pairs"], between)


def as_grid(name: str, grid: Any) -> Vector:
    """Check the points of a grid: increasing numbers."""
    points: Vector = as_floats(f"grids, {name}", grid).astype(np.float64)
    if not (np.diff(points) > 0).all() or np.isnan(points).any():
        fail(f"grids, {name}", "increasing numbers", "others")
    return points
