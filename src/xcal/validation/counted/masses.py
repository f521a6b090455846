"""Bin masses of D-calibration, and the average curve beside Kaplan-Meier, of resamples."""

import numpy as np

from xcal._checks import BoolArray, FloatArray
from xcal.calibration.histogram import heaviest
from xcal.metrics.curves import Interpolation, fraction, left_column
from xcal.metrics.inputs import Vector
from xcal.metrics.km_calibration import event_points
from xcal.metrics.pit_histogram import BinShares
from xcal.validation.counted.block import Block, Indices, Matrix, Timeline, kaplan_meier_product, product, share_lost

_BLOCK = 1 << 18  # predictions worked on at a time


def uniform_masses(block: Block, bins: BinShares) -> Matrix:
    """Masses of the "uniform" estimator: the mean share of the rows in each bin, shape (b, bins)."""
    return np.asarray(product(block.counts, bins.shares) / block.total[:, None])


class CountedRedistribution:
    """Masses of Kaplan-Meier redistribution: `calibration.histogram.redistributed` on rows that count."""

    def __init__(self, bins: BinShares, event: BoolArray, scale: FloatArray) -> None:
        self._order = np.lexsort((~event, scale))
        self._event, ordered = event[self._order], scale[self._order]
        self._first_of_tie = np.searchsorted(ordered, ordered, side="left")
        self._shares = bins.shares[self._order]

    def masses(self, block: Block) -> Matrix:
        """Masses of every resample, shape (b, bins)."""
        counts = block.counts.take(self._order, axis=1)
        uncensored = kaplan_meier_product(np.where(self._event, 0.0, share_lost(counts, block.least)))
        own = uncensored.take(self._first_of_tie, axis=1) * block.total[:, None]
        # G is zero only after the last row drawn, where nothing counts.
        weight = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
        stop = self._stop(block, counts, weight * (block.total / block.effective)[:, None])
        after = np.arange(counts.shape[1]) >= stop[:, None]
        at_stop = np.append(weight, np.zeros((stop.size, 1)), axis=1)[np.arange(stop.size), stop]
        weight = np.where(after, at_stop[:, None], np.where(self._event, weight, 0.0))
        return product(counts * weight, self._shares)

    def _stop(self, block: Block, counts: Matrix, weight: Matrix) -> Indices:
        """First row at which redistribution stops, as `calibration.histogram.horizon` says."""
        n = counts.shape[1]
        limit = np.array([heaviest(float(rows)) for rows in block.effective])
        heavy = (weight > limit[:, None]) & (counts > 0)
        first_heavy = np.where(heavy.any(axis=1), np.argmax(heavy, axis=1), n)
        happened = (counts > 0) & self._event
        last_event = np.where(happened.any(axis=1), n - np.argmax(happened[:, ::-1], axis=1), 0)
        stop = np.minimum(first_heavy, last_event)
        # The next row drawn says what each of the rest carries.
        drawn = (counts > 0) & (np.arange(n) >= stop[:, None])
        return np.asarray(np.where(drawn.any(axis=1), np.argmax(drawn, axis=1), n))


class CountedCurve:
    """Average predicted less Kaplan-Meier curve at the events, scaled so that the sum of squares is the integral."""

    def __init__(self, line: Timeline, survival: FloatArray, times: Vector, interpolation: Interpolation) -> None:
        self._survival = survival
        points = event_points(line.time, line.event, times)
        self.defined = points.size >= 2
        if not self.defined:
            return
        left = left_column(times, points)
        self._left = left + 1  # the curves get a column of ones in front, for time 0
        self._next = np.minimum(left + 2, times.size)
        self._share = fraction(times, points, left) if interpolation == "linear" else np.zeros(points.size)
        self._passed = np.searchsorted(line.time, points, side="right")
        gaps = np.diff(points)
        self._scale = np.sqrt((np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2 / points[-1])

    def deviations(self, block: Block) -> Matrix:
        """Scaled deviations of every resample, shape (b, points)."""
        n, m = self._survival.shape
        average = np.zeros((block.total.size, m))
        step = max(1, _BLOCK // m)
        for start in range(0, n, step):
            rows = slice(start, start + step)
            average += product(block.counts[:, rows], self._survival[rows].astype(np.float64))
        average = np.append(np.ones((block.total.size, 1)), average / block.total[:, None], axis=1)
        predicted = (1 - self._share) * average[:, self._left] + self._share * average[:, self._next]
        return np.asarray(self._scale * (predicted - block.survival[:, self._passed]))
