"""What `DCalibration` keeps of the rows for Kaplan-Meier: every distinct F while they are few, a fine grid beyond."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import fail
from xcal.calibration.bins import Edges
from xcal.calibration.histogram import Array, Floats, bin_sums, edges_like, locate


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of rows by place on the scale of F, from left to right, none empty and none in two bins.

    `lower` and `upper` say where the rows of a cell lie: lower <= F < upper (<= 1 for the last), or both the F itself.
    """

    lower: Floats
    upper: Floats
    happened: Floats
    censored: Floats
    edges: Edges  # the bins, as numbers of the F values' own type

    @property
    def exact(self) -> bool:
        """Whether every row's F is known."""
        return bool((self.lower == self.upper).all())


@dataclass
class Tally:
    """Rows counted in bounded memory: exactly up to `limit` distinct F values, then on a grid of `limit` cells.

    Which of the two depends on the rows alone, not on their order or on how they were cut into chunks.
    """

    edges: Edges
    limit: int
    values: Floats = field(init=False)  # distinct F so far, ascending; empty once there is a grid
    counts: Floats = field(init=False)  # events and censored rows, (2, values), or (2, cells of the grid)
    on_grid: bool = field(init=False, default=False)
    single: bool = field(init=False, default=True)  # all F so far were float32

    def __post_init__(self) -> None:
        self.values, self.counts = np.empty(0), np.empty((2, 0))
        # Rows that wait to be sorted in, so that many small chunks do not sort all values again each time.
        self._waiting: list[tuple[Floats, npt.NDArray[np.bool_]]] = []

    def add(self, cdf: Array, event: npt.NDArray[np.bool_]) -> None:
        """Count rows."""
        single = bool(cdf.dtype == np.float32)
        self.single &= single
        # In pieces, so that a large chunk is not sorted whole before it turns out to need the grid.
        for start in range(0, cdf.size, self.limit):
            # Copies: the caller may write something else into these arrays.
            u, happened = cdf[start : start + self.limit].astype(np.float64), event[start : start + self.limit].copy()
            if self.on_grid:
                self._count(u, _by_kind(happened), single)
                continue
            self._waiting.append((u, happened))
            if sum(piece.size for piece, _ in self._waiting) > self.limit:
                self._settle()

    def merge(self, other: "Tally") -> None:
        """Add what another tally with the same settings has counted."""
        self._settle()
        other._settle()
        single = self.single
        self.single &= other.single
        if other.on_grid:
            self._to_grid(single)
            self.counts += other.counts
        elif self.on_grid:
            self._count(other.values, other.counts, other.single)
        else:
            self._insert(other.values, other.counts)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Distinct values or none, counts, and which of the two ways is used."""
        self._settle()
        marks = np.array([self.on_grid, self.single], dtype=np.int64)
        return {"values": self.values.copy(), "counts": self.counts.copy(), "marks": marks}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the state."""
        self._waiting = []
        on_grid, single = (bool(mark) for mark in state["marks"])
        cells = self._grid().size - 1 if on_grid else state["values"].size
        if state["counts"].shape != (2, cells) or cells > max(self.limit, self._grid().size):
            fail("state, counts", f"numbers of shape (2, {cells})", f"shape {state['counts'].shape}")
        self.values, self.counts = state["values"].astype(np.float64), state["counts"].astype(np.float64)
        self.on_grid, self.single = on_grid, single

    def cells(self) -> Cells:
        """Return the counts, without empty cells."""
        self._settle()
        edges = self._rounded(self.edges, self.single)
        if not self.on_grid:
            return Cells(self.values, self.values, self.counts[0], self.counts[1], edges)
        grid = self._rounded(self._grid(), self.single)
        filled = self.counts.any(axis=0)
        return Cells(grid[:-1][filled], grid[1:][filled], self.counts[0][filled], self.counts[1][filled], edges)

    def _settle(self) -> None:
        if self._waiting:
            u = np.concatenate([chunk for chunk, _ in self._waiting])
            event = np.concatenate([happened for _, happened in self._waiting])
            self._waiting = []
            self._insert(u, _by_kind(event))

    def _insert(self, u: Floats, counts: Floats) -> None:
        """Add counts at these F values; go to the grid if there are too many distinct ones."""
        counts = np.concatenate([self.counts, counts], axis=1)
        self.values, place = np.unique(np.concatenate([self.values, u]), return_inverse=True)
        self.counts = np.array([bin_sums(place, kind, self.values.size) for kind in counts])
        if self.values.size > self.limit:
            self._to_grid(self.single)

    def _to_grid(self, single: bool) -> None:
        if self.on_grid:
            return
        values, counts = self.values, self.counts
        self.values, self.on_grid = np.empty(0), True
        self.counts = np.zeros((2, self._grid().size - 1))
        self._count(values, counts, single)

    def _count(self, u: Floats, counts: Floats, single: bool) -> None:
        if u.size:
            place = locate(u, self._rounded(self._grid(), single))
            self.counts += [bin_sums(place, kind, self.counts.shape[1]) for kind in counts]

    def _grid(self) -> Edges:
        """Every bin edge is an edge of the grid, so that no cell is split between two bins."""
        return np.union1d(np.arange(self.limit + 1) / self.limit, self.edges)

    @staticmethod
    def _rounded(edges: Edges, single: bool) -> Edges:
        return edges_like(edges, np.empty(0, np.float32 if single else np.float64))


def _by_kind(event: npt.NDArray[np.bool_]) -> Floats:
    """One count per row: events, then censored rows, (2, n)."""
    return np.array([event, ~event], dtype=np.float64)
