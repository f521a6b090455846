"""Brier score and its integral over chunks, processes or files, given the censoring curve."""

import math
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from xcal._checks import BoolArray, FloatArray, fail
from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.brier import BrierScore, IntegratedBrierScore, integrated, squared_errors
from xcal.metrics.censoring import as_censoring, censoring_survival
from xcal.metrics.inputs import Vector, as_curves, as_outcome, as_time_grid
from xcal.metrics.streaming.accumulator import Accumulator
from xcal.metrics.streaming.kaplan_meier import BoundedCurve
from xcal.metrics.streaming.sums import as_floats, unit_sums

_BLOCK = 1 << 15  # predictions worked on at a time, as in `xcal.metrics.brier`


@dataclass(frozen=True, eq=False)
class BoundedBrier:
    """Brier scores, their integral, and how far the censoring curve can have put them off.

    Attributes
    ----------
    score : BrierScore
    integrated : IntegratedBrierScore
        NaN with fewer than two times.
    error_bound : array, shape (m,)
        Largest distance of each score from that with the censoring curve of the rows; zero where that is exact.
    integrated_error_bound : float
    """

    score: BrierScore
    integrated: IntegratedBrierScore
    error_bound: Vector = field(repr=False)
    integrated_error_bound: float


class StreamingBrier(Accumulator):
    """Accumulate the Brier score without holding the rows; see `brier_score`.

    The weights need the censoring curve, so there are two passes over the rows: `StreamingKaplanMeier` first, then
    this. Given the curve, the sums are exact.

    Parameters
    ----------
    times : array-like, shape (m,)
        Increasing times of the survival probabilities.
    censoring : BoundedCurve or KaplanMeier
        ``StreamingKaplanMeier(at=times).compute("censoring")`` of the same rows, or a curve of the training rows.
    left_limit : bool
        As in `brier_score`.

    Examples
    --------
    >>> from xcal.metrics.streaming import StreamingKaplanMeier
    >>> time, event = [1.5, 2.5, 3], [1, 0, 1]
    >>> curve = StreamingKaplanMeier(at=[1, 2]).update(time=time, event=event).compute("censoring")
    >>> meter = StreamingBrier([1, 2], curve)
    >>> _ = meter.update([[0.9, 0.5], [0.8, 0.6], [0.9, 0.8]], time=time, event=event)
    >>> meter.compute().score.values.round(4)
    array([0.02, 0.15])
    """

    def __init__(self, times: Any, censoring: BoundedCurve | KaplanMeier, *, left_limit: bool = True) -> None:
        super().__init__()
        self.times, self.left_limit = as_time_grid("times", times), left_limit
        self.bounds = censoring if isinstance(censoring, BoundedCurve) else None
        given: Any = censoring.curve if isinstance(censoring, BoundedCurve) else censoring
        if given is None:
            fail("censoring", "a curve of the censorings, of a first pass or of the training rows", None)
        self.censoring = as_censoring(given, np.empty(0), np.empty(0, np.bool_))
        positive = self.censoring.survival[self.censoring.survival > 0]
        # A power of two that no weight exceeds: dividing by it is exact.
        self._scale = 2.0 ** math.ceil(math.log2(1 / float(np.min(positive, initial=1.0))))
        m = self.times.size
        self._sums |= {"n": np.zeros((), np.int64), "outlasting": np.zeros(m, np.int64)}
        self._sums |= {name: np.zeros((2, m), np.int64) for name in ("alive", "dead")}

    def _settings(self) -> tuple[Any, ...]:
        return self.times, self.left_limit, self.censoring.times, self.censoring.survival

    def update(self, survival: Any, *, time: Any, event: Any) -> Self:
        """Add rows: survival probabilities at `times`, shape (n, m), and the outcome."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        times_seen, happened = as_outcome(time, event, survival=survival)
        curves, _ = as_curves("survival", survival, self.times, times_seen.size)
        self.add(curves, times_seen, happened)
        return self

    def add(self, survival: FloatArray, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        g, _ = censoring_survival(self.censoring, time, left_limit=self.left_limit)
        weight = event / g / self._scale
        self._sums["n"] += time.size
        step = max(1, _BLOCK // self.times.size)
        for start in range(0, time.size, step):
            rows = slice(start, start + step)
            outlasting, passed = squared_errors(survival[rows], self.times, time[rows])
            self._sums["alive"] += unit_sums(outlasting)
            self._sums["dead"] += unit_sums(passed * weight[rows, None])
            self._sums["outlasting"] += (time[rows, None] > self.times).sum(axis=0)

    def compute(self) -> BoundedBrier:
        """Return the scores of all rows seen so far; NaN where nobody is under observation any more or G is zero."""
        self._need_rows()
        g, known = censoring_survival(self.censoring, self.times, left_limit=False)
        estimable = known & (self._sums["outlasting"] > 0)
        total = as_floats(self._sums["dead"], self._scale) + as_floats(self._sums["alive"]) / g
        values = np.where(estimable, total / self.n, np.nan)
        score = BrierScore(self.times, values, estimable, self.n)
        bound = self._error_bound(values)
        whole = integrated(score)
        # An average of the scores is off by no more than the largest of them.
        off = float(np.max(bound[estimable], initial=0.0))
        return BoundedBrier(score, whole, bound, off)

    def _error_bound(self, values: Vector) -> Vector:
        """Every weight is off by a factor within the range of the curve, and so is a sum of positive terms."""
        if self.bounds is None:
            return np.zeros(values.size)
        ratios = np.array([self.bounds.relative_range(t) for t in self.times])
        return np.asarray(values * np.maximum(ratios[:, 1] - 1, 1 - ratios[:, 0]))
