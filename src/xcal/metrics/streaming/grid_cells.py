"""Counts of rows on fixed grids: arrays of a fixed shape, which are merged by adding them."""

from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray
from xcal.metrics.streaming.cells import CellCounts, Floats, Integers, PairCellCounts


class GridAxis:
    """Cells of one value: up to each point of the grid, the point included, and one cell beyond the last.

    A cell whose rows all lie on its point is exact; so rows that do not are counted too.
    """

    def __init__(self, points: Floats) -> None:
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

    def ends(self, between: Integers) -> tuple[Floats, Floats]:
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
