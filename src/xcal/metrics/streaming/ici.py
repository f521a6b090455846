"""Integrated calibration index over chunks, processes or files."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from xcal._checks import BoolArray, FloatArray
from xcal.metrics.ici import IntegratedCalibrationIndex, index_of_counts
from xcal.metrics.inputs import as_count, as_outcome, as_row_probability, as_time_point
from xcal.metrics.streaming.pair_table import PairAccumulator

# Different rows (time, event, prediction) kept by default: 8 megabytes.
LIMIT = 1 << 18


@dataclass(frozen=True, eq=False)
class GriddedICI:
    """ICI of rows whose times and predictions were moved to their cells.

    Attributes
    ----------
    index : IntegratedCalibrationIndex
        That of the moved rows, exactly: of a model that gives its probabilities in steps.
    resolution : float
        Farthest that a prediction was moved; zero where none was.
    exact : bool
        Whether no prediction and no time was moved. Then `index` is that of `integrated_calibration_index`.
    """

    index: IntegratedCalibrationIndex
    resolution: float
    exact: bool


class StreamingICI(PairAccumulator):
    """Accumulate the integrated calibration index on a grid; see `integrated_calibration_index`.

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

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=2000)
    >>> meter = StreamingICI(at=1.0).update(1 - np.exp(-rate), time=rng.exponential(1 / rate), event=np.ones(2000))
    >>> meter.compute().exact, meter.compute().index.value < 0.03
    (True, True)
    """

    def __init__(
        self, *, at: float, n_knots: int = 3, grids: tuple[Any, Any] | None = None, limit: int = LIMIT
    ) -> None:
        self.at = as_time_point("at", at)
        super().__init__(grids, limit, [self.at])
        self.n_knots = as_count("n_knots", n_knots, at_least=3)
        self._sums["followed"] = np.zeros((), np.int64)

    def _settings(self) -> tuple[Any, ...]:
        return *super()._settings(), self.at, self.n_knots

    def update(self, probability: Any, *, time: Any, event: Any) -> Self:
        """Add rows: probability of an event by `at`, and the outcome."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        times_seen, happened = as_outcome(time, event)
        self.add(as_row_probability("probability", probability, times_seen.size), times_seen, happened)
        return self

    def add(self, probability: FloatArray, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        self._sums["followed"] += np.count_nonzero(time >= self.at)
        self._count(time, probability, event)

    def compute(self) -> GriddedICI:
        """Return the index of all rows seen so far; NaN where no row was followed until `at`."""
        self._need_rows()
        cells = self._pair_cells()
        low, high = np.maximum(cells.low[1], 0.0), np.minimum(cells.high[1], 1.0)
        middle = np.where(low == high, low, (low + high) / 2)
        # A time beyond the last point of a grid is only later than all others.
        times = np.where(cells.mixed[0], np.maximum(cells.low[0], 0.0), cells.high[0])
        p, time = np.tile(middle[cells.place[1]], 2), np.tile(times[cells.place[0]], 2)
        counts = np.concatenate([cells.events, cells.censored])
        filled = counts > 0
        event = np.repeat([True, False], cells.events.size)[filled]
        known = bool(self._sums["followed"] > 0)
        index = index_of_counts(
            p[filled], time[filled], event, counts[filled].astype(np.float64), self.at, self.n_knots, known=known
        )
        used = np.unique(cells.place[1])
        resolution = float(np.max((high - low)[used] / 2, initial=0.0))
        return GriddedICI(index, resolution, not any(axis.any() for axis in cells.mixed))
