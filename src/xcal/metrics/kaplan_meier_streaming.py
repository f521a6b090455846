"""Kaplan-Meier curves and quantiles over chunks, processes or files, each with how far it can be off."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, as_choice, as_count, fail
from xcal._kaplan_meier import KaplanMeier, Of, curve_of_counts, product_limit
from xcal.data.surv import as_outcome
from xcal.metrics.cells import Accumulator, CellCounts, GridAxis, SparseCells, grid_cells, grid_counts
from xcal.metrics.inputs import Vector, as_score, as_time_grid

# Distinct times, or cells of times, that are kept by default: two megabytes.
LIMIT = 1 << 16


@dataclass(frozen=True, eq=False)
class BoundedCurve:
    """A Kaplan-Meier curve and the range in which that of the rows lies.

    Attributes
    ----------
    curve : KaplanMeier
        Where rows at several times share a cell, half of those that leave for the other reason count as gone before
        (the actuarial rule), and the curve falls at the beginning of the cell.
    lower, upper : arrays, shape (m,)
        Least and largest value that the curve of the rows can have at the end of each cell.
    exact : bool
        Whether the time of every row is known. Then `curve` is that of `kaplan_meier`.
    """

    curve: KaplanMeier
    lower: Vector = field(repr=False)
    upper: Vector = field(repr=False)
    exact: bool

    @property
    def error_bound(self) -> float:
        """Largest distance between this curve and that of the rows, at the ends of the cells."""
        off = np.maximum(self.upper - self.curve.survival, self.curve.survival - self.lower)
        return float(np.max(off, initial=0.0))

    def bounds(self, t: Any) -> tuple[Vector, Vector]:
        """Range of the curve of the rows at t, where t is one of the times that no cell reaches across."""
        passed = np.searchsorted(self.curve.times, np.asarray(t, dtype=np.float64), side="right")
        first = passed > 0
        return np.where(first, self.lower[passed - 1], 1.0), np.where(first, self.upper[passed - 1], 1.0)

    def relative_range(self, t: float) -> tuple[float, float]:
        """Least and largest ratio of the value used to that of the rows, at any time up to t and at t itself.

        Within a cell of several times the curve of the rows lies between its largest value before the cell and its
        least value at the end.
        """
        if self.exact:
            return 1.0, 1.0
        passed = int(np.searchsorted(self.curve.times, t, side="right"))
        used, low = self.curve.survival[:passed], self.lower[:passed]
        high = np.concatenate([[1.0], self.upper[:passed]])[:passed]
        some = low > 0
        least = float(np.min(used / high, initial=1.0))
        most = float(np.max(used[some] / low[some], initial=1.0)) if some.all() else float("inf")
        return least, most


class StreamingKaplanMeier(Accumulator):
    """Accumulate Kaplan-Meier curves without holding the rows.

    Exact while there are at most `limit` distinct times, or while all times lie on `grid`. Beyond that rows are
    counted in cells, and the result says in which range the curve of the rows lies.

    Parameters
    ----------
    grid : array-like, optional
        Fixed increasing times. Cells then end at these times, and the state is an array of a fixed shape.
    at : array-like, optional
        Times at which the curve is to be read. No cell reaches across them. On a grid they must be points of it.
    limit : int
        Distinct times kept without a grid. Beyond that they share cells of equal width in proportion.

    Examples
    --------
    >>> meter = StreamingKaplanMeier()
    >>> _ = meter.update(time=[1, 2], event=[1, 1]).merge(StreamingKaplanMeier().update(time=[2, 3], event=[0, 1]))
    >>> meter.compute().curve.at([1, 2, 3])
    array([0.75, 0.5 , 0.  ])
    >>> meter.compute("censoring").curve.at([2, 3])
    array([0.5, 0.5])
    """

    def __init__(self, *, grid: Any = None, at: Any = (), limit: int = LIMIT) -> None:
        super().__init__()
        self.at = as_time_grid("at", at) if np.size(at) else np.empty(0)
        self.limit = as_count("limit", limit, at_least=1)
        self.grid = None if grid is None else as_time_grid("grid", grid)
        self._sums["n"] = np.zeros((), dtype=np.int64)
        if self.grid is None:
            self._cells["times"] = SparseCells(1, self.limit, self.at)
            return
        missing = ~np.isin(self.at, self.grid)
        if missing.any():
            fail("at", "points of the grid", self.at[missing][0])
        self._axis = GridAxis(self.grid)
        self._sums |= {
            "counts": np.zeros((2, self._axis.size), np.int64),
            "between": np.zeros(self._axis.size, np.int64),
        }

    def _settings(self) -> tuple[Any, ...]:
        return self.at, self.limit, "none" if self.grid is None else self.grid

    def update(self, *, time: Any, event: Any) -> Self:
        """Add rows: observed times, and whether the event happened."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        outcome = as_outcome(time, event)
        self.add(outcome.time, outcome.event)
        return self

    def add(self, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        self._sums["n"] += time.size
        if self.grid is None:
            self._cells["times"].add((time,), event)
            return
        place = self._axis.place(time)
        self._sums["counts"] += grid_counts(self._axis, place, event)
        self._sums["between"] += self._axis.between(time, place)

    def cells(self) -> CellCounts:
        """Return the counts behind the curves."""
        if self.grid is None:
            return self._cells["times"].cells()
        found = grid_cells(self._axis, self._sums["counts"], self._sums["between"])
        # No time is below zero.
        return CellCounts(np.maximum(found.low, 0.0), found.high, found.events, found.censored)

    def compute(self, of: Of = "event") -> BoundedCurve:
        """Return the curve of the events, or that of the censorings, of all rows seen so far."""
        as_choice("of", of, ("event", "censoring"))
        self._need_rows()
        return bounded_curve(self.cells(), of)


def bounded_curve(cells: CellCounts, of: Of = "event") -> BoundedCurve:
    """Curve of counts in cells, and its range.

    Let r rows be at risk at the beginning of a cell, d of them have the event in it and c be censored. Each event takes
    the factor 1 - 1 / m with m at risk just before it. The earlier the censored rows leave, the smaller m: the cell's
    factor lies between (r - c - d) / (r - c), all censored first, and (r - d) / r, all events first. At a single time
    events come first.
    """
    events, censored = cells.events.astype(np.float64), cells.censored.astype(np.float64)
    mixed = cells.mixed
    curve = curve_of_counts(cells.low, events, censored, of, mixed=mixed)
    if not mixed.any():
        return BoundedCurve(curve, curve.survival, curve.survival, True)
    counts, others = (events, censored) if of == "event" else (censored, events)
    at_risk = np.cumsum((events + censored)[::-1])[::-1]
    single = 0.0 if of == "event" else 1.0
    ends = []
    for gone in (1.0, 0.0):
        left = at_risk - np.where(mixed, gone, single) * others
        ends.append(product_limit(counts, left))
    return BoundedCurve(curve, ends[0], ends[1], False)


# --- Quantiles of one value over chunks, processes or files: cuts of risk groups, points of grids.


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
