"""Accumulators that count rows by two values: cells that grow coarser as needed, or two fixed grids."""

from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, as_count, as_floats, fail
from xcal.metrics.streaming.accumulator import Accumulator
from xcal.metrics.streaming.cells import Floats, PairCellCounts, SparseCells
from xcal.metrics.streaming.grid_cells import GridAxis, grid_pair_cells


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


def as_grid(name: str, grid: Any) -> Floats:
    """Check the points of a grid: increasing numbers."""
    points: Floats = as_floats(f"grids, {name}", grid).astype(np.float64)
    if not (np.diff(points) > 0).all() or np.isnan(points).any():
        fail(f"grids, {name}", "increasing numbers", "others")
    return points
