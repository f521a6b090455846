"""Quantiles of one value over chunks, processes or files: cuts of risk groups, points of grids."""

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import as_count
from xcal._kaplan_meier import Vector
from xcal.metrics.inputs import as_score
from xcal.metrics.streaming.accumulator import Accumulator
from xcal.metrics.streaming.cells import CellCounts, SparseCells
from xcal.metrics.streaming.kaplan_meier import LIMIT


class StreamingQuantiles(Accumulator):
    """Accumulate the distribution of one value; order statistics are exact up to `limit` distinct values.

    Beyond that each is the smallest value of its cell, which is below it by about the width of a cell in proportion.

    Examples
    --------
    >>> meter = StreamingQuantiles().update([5.0, 1.0]).update([3.0])
    >>> meter.compute([0, 1, 2])
    array([1., 3., 5.])
    """

    def __init__(self, *, limit: int = LIMIT) -> None:
        super().__init__()
        self.limit = as_count("limit", limit, at_least=1)
        self._sums["n"] = np.zeros((), dtype=np.int64)
        self._cells["values"] = SparseCells(1, self.limit)

    def _settings(self) -> tuple[Any, ...]:
        return (self.limit,)

    def update(self, values: Any) -> Self:
        """Add values; infinite ones are in order, NaN is not."""
        if np.size(values) == 0:
            return self
        self.add(as_score("values", values, np.size(values)))
        return self

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add values that were checked."""
        self._sums["n"] += values.size
        self._cells["values"].add((values,), np.ones(values.size, np.bool_))

    def compute(self, ranks: Any = (0,)) -> Vector:
        """Return the values at these ranks; rank 0 is that of the smallest."""
        self._need_rows()
        cells = self.cells()
        return np.asarray(cells.low[np.searchsorted(np.cumsum(cells.events), np.asarray(ranks), side="right")])

    def cells(self) -> CellCounts:
        """Return the counts behind the quantiles."""
        return self._cells["values"].cells()

    @property
    def exact(self) -> bool:
        """Whether every value is known."""
        return not self.cells().mixed.any()

    def spread(self, k: int) -> Vector:
        """Return up to k increasing values that divide the rows into parts of about equal size."""
        return np.unique(self.compute(np.arange(1, k + 1) * (self.n - 1) // k))
