"""Observed over expected events at several times, over chunks, processes or files."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from xcal._checks import BoolArray, FloatArray, as_number
from xcal.metrics.inputs import Vector, as_curves, as_outcome, as_time_grid
from xcal.metrics.observed_expected import ObservedExpected, ratio
from xcal.metrics.streaming.accumulator import Accumulator
from xcal.metrics.streaming.kaplan_meier import LIMIT, BoundedCurve, StreamingKaplanMeier
from xcal.metrics.streaming.sums import as_floats, unit_sums


@dataclass(frozen=True, eq=False)
class ObservedExpectedAt:
    """O/E at each time.

    Attributes
    ----------
    results : tuple of ObservedExpected
        One for each of `at`; NaN where no row was followed so long.
    error_bound : array, shape (m,)
        Largest distance of each value from that of the rows; zero where the times of all rows are known.
    """

    results: tuple[ObservedExpected, ...]
    error_bound: Vector = field(repr=False)


class StreamingObservedExpected(Accumulator):
    """Accumulate O/E at fixed times without holding the rows; see `observed_expected`.

    Its interval is the one called "greenwood" there: that of pseudo-values needs the rows.

    Parameters
    ----------
    at : array-like, shape (m,)
        Increasing times.
    level : float
        Coverage of the intervals.
    grid, limit
        Of the times, as in `StreamingKaplanMeier`.

    Examples
    --------
    >>> meter = StreamingObservedExpected([2])
    >>> _ = meter.update([[0.2], [0.2], [0.3], [0.3]], time=[1, 2, 3, 4], event=[1, 0, 1, 1])
    >>> meter.compute().results[0].value
    1.0
    """

    def __init__(self, at: Any, *, level: float = 0.95, grid: Any = None, limit: int = LIMIT) -> None:
        super().__init__()
        self.at = as_time_grid("at", at)
        self.level = as_number("level", level, above=0, below=1)
        self.curves = StreamingKaplanMeier(grid=grid, at=self.at, limit=limit)
        m = self.at.size
        # The parts are those of the curves, so that merge and state_dict have one copy of the rule.
        self._sums, self._cells = self.curves._sums, self.curves._cells
        self._sums |= {name: np.zeros(m, np.int64) for name in ("events", "followed")}
        self._sums["expected"] = np.zeros((2, m), np.int64)

    def load_state_dict(self, state: Any) -> Self:
        """Replace the state by one from `state_dict` of an accumulator with the same settings."""
        super().load_state_dict(state)
        self.curves._sums, self.curves._cells = self._sums, self._cells
        return self

    def _settings(self) -> tuple[Any, ...]:
        return self.at, self.level, *self.curves._settings()

    def update(self, probability: Any, *, time: Any, event: Any) -> Self:
        """Add rows: the probability of an event by each of `at`, shape (n, m), and the outcome."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        times_seen, happened = as_outcome(time, event, probability=probability)
        p, _ = as_curves("probability", probability, self.at, times_seen.size)
        self.add(p, times_seen, happened)
        return self

    def add(self, probability: FloatArray, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        self.curves.add(time, event)
        self._sums["expected"] += unit_sums(probability)
        for k, moment in enumerate(self.at):
            self._sums["events"][k] += np.count_nonzero(event & (time <= moment))
            self._sums["followed"][k] += np.count_nonzero(time >= moment)

    def compute(self) -> ObservedExpectedAt:
        """Return O/E of all rows seen so far."""
        self._need_rows()
        curve = self.curves.compute()
        expected = as_floats(self._sums["expected"]) / self.n
        observed = np.where(self._sums["followed"] > 0, 1 - curve.curve.at(self.at), np.nan)
        error = np.sqrt(curve.curve.variance(self.at))
        counted = zip(observed, expected, error, self.at, self._sums["events"], strict=True)
        results = tuple(ratio(float(o), float(e), float(s), float(t), int(d), self.level) for o, e, s, t, d in counted)
        return ObservedExpectedAt(results, _error_bound(curve, self.at, expected))


def _error_bound(curve: BoundedCurve, at: Vector, expected: Vector) -> Vector:
    """How far the curve can be off, over the expected share."""
    low, high = curve.bounds(at)
    value = curve.curve.at(at)
    off = np.maximum(high - value, value - low)
    bound: Vector = np.divide(off, expected, out=np.full(at.size, np.nan), where=expected > 0)
    return bound
