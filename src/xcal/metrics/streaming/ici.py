"""The calibration index by a Cox model (`cox_ici`) over chunks, processes or files.

Its sums can be formed without holding the rows; pseudo-values, behind `integrated_calibration_index`, need all of them.
"""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal.metrics.cox_ici import CoxICI, SmoothCurve, fitted_curve, index_of_curve
from xcal.metrics.inputs import Vector, as_count, as_outcome, as_row_probability, as_time_point
from xcal.metrics.streaming.cells import PairCellCounts
from xcal.metrics.streaming.pair_table import PairAccumulator

# Different rows (time, event, prediction) kept by default: 8 megabytes.
LIMIT = 1 << 18


@dataclass(frozen=True, eq=False)
class GriddedCoxICI:
    """ICI of rows whose times and predictions were moved to their cells.

    Attributes
    ----------
    index : CoxICI
        That of the moved rows, exactly: of a model that gives its probabilities in steps.
    resolution : float
        Farthest that a prediction was moved; zero where none was.
    exact : bool
        Whether no prediction and no time was moved. Then `index` is that of `cox_ici`.
    curve : SmoothCurve
        What was fitted to the moved rows.
    """

    index: CoxICI
    resolution: float
    exact: bool
    curve: SmoothCurve = field(repr=False)


class StreamingCoxICI(PairAccumulator):
    """Accumulate the calibration index by a Cox model on a grid; see `cox_ici`.

    Rows are counted by time and prediction, exactly up to `limit` different rows. Beyond that predictions and times are
    moved to the middles of cells, and the smooth curve is fitted to the counts.

    Parameters
    ----------
    at : float
        The time.
    n_knots : int
        Knots of the spline.
    grids : tuple of two arrays, optional
        Fixed times and probabilities; the state is then a table of a fixed shape. `at` must be one of the times.
    limit : int
        Different rows kept without grids.
    knots : array, optional
        Of the spline, on the scale of log(-log(1 - p)); by default quantiles of the moved predictions.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=2000)
    >>> meter = StreamingCoxICI(at=1.0).update(1 - np.exp(-rate), time=rng.exponential(1 / rate), event=np.ones(2000))
    >>> meter.compute().exact, meter.compute().index.value < 0.03
    (True, True)
    """

    def __init__(
        self,
        *,
        at: float,
        n_knots: int = 3,
        grids: tuple[Any, Any] | None = None,
        limit: int = LIMIT,
        knots: Vector | None = None,
    ) -> None:
        self.at = as_time_point("at", at)
        super().__init__(grids, limit, [self.at])
        self.n_knots = as_count("n_knots", n_knots, at_least=3)
        self.knots = knots
        self._sums["followed"] = np.zeros((), np.int64)

    def _settings(self) -> tuple[Any, ...]:
        return *super()._settings(), self.at, self.n_knots, "none" if self.knots is None else self.knots

    def update(self, probability: Any, *, time: Any, event: Any) -> Self:
        """Add rows: probability of an event by `at`, and the outcome."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        times_seen, happened = as_outcome(time, event, probability=probability)
        self.add(as_row_probability("probability", probability, times_seen.size), times_seen, happened)
        return self

    def add(
        self,
        probability: FloatArray,
        time: FloatArray,
        event: BoolArray,
        place: npt.NDArray[np.intp] | None = None,
    ) -> None:
        """Add rows that were checked; `place` is `time_place` of an accumulator with the same grid of times."""
        self._sums["followed"] += np.count_nonzero(time >= self.at)
        self._count(time, probability, event, place)

    def compute(self) -> GriddedCoxICI:
        """Return the index of all rows seen so far; NaN where no row was followed until `at`."""
        self._need_rows()
        cells = self._pair_cells()
        known = bool(self._sums["followed"] > 0)
        p, time, event, counts = _moved_rows(cells)
        rough = bool(cells.mixed[0].any())
        curve = fitted_curve(p, time, event, self.at, self.n_knots, counts, knots=self.knots, rough=rough)
        index = index_of_curve(p, counts, curve, self.at, known=known)
        low, high = _within_unit(cells)
        used = np.unique(cells.place[1])
        resolution = float(np.max((high - low)[used] / 2, initial=0.0))
        return GriddedCoxICI(index, resolution, not any(axis.any() for axis in cells.mixed), curve)


def _within_unit(cells: PairCellCounts) -> tuple[Vector, Vector]:
    """Smallest and largest probability of each cell."""
    return np.maximum(cells.low[1], 0.0), np.minimum(cells.high[1], 1.0)


def _moved_rows(cells: PairCellCounts) -> tuple[Vector, Vector, BoolArray, Vector]:
    """Predictions at the middles of their cells, times, events, and how often each counts.

    Where rows at several times share a cell, half of the censored ones leave before the events (the actuarial rule).
    """
    low, high = _within_unit(cells)
    middle = np.where(low == high, low, (low + high) / 2)[cells.place[1]]
    mixed = cells.mixed[0][cells.place[0]]
    # The order of the times is what counts, and that the events of a cell come after the time before it.
    time = np.maximum(cells.low[0], 0.0)[cells.place[0]]
    early = np.where(mixed, cells.censored / 2, 0.0)
    before = np.maximum(np.nextafter(time, -np.inf), 0.0)
    counts = np.concatenate([cells.events, cells.censored - early, early])
    filled = counts > 0
    event = np.repeat([True, False, False], time.size)
    return (
        np.tile(middle, 3)[filled],
        np.concatenate([time, time, before])[filled],
        event[filled],
        counts[filled],
    )
