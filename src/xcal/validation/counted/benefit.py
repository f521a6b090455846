"""Net benefit of resamples."""

import numpy as np

from xcal.metrics.inputs import Vector
from xcal.metrics.net_benefit import benefit
from xcal.validation.counted.block import Block, Matrix, Timeline, share_lost


class CountedBenefit:
    """Net benefit at one time for several thresholds."""

    def __init__(self, line: Timeline, risk: Vector, thresholds: Vector, at: float) -> None:
        self._thresholds = thresholds
        self._passed = line.passed(at)
        # Rows at or above each threshold, in time order, and which of those that come by the time are events.
        self._above = [np.flatnonzero(risk >= threshold) for threshold in thresholds]
        self._events = [np.flatnonzero(line.event[rows] & (rows < self._passed)) for rows in self._above]

    def values(self, block: Block) -> Matrix:
        """Net benefit of every resample at every threshold, shape (b, k)."""
        values = np.zeros((block.total.size, self._thresholds.size))
        for k, (rows, events) in enumerate(zip(self._above, self._events, strict=True)):
            if not rows.size:
                continue
            counts = block.counts.take(rows, axis=1)
            lost = share_lost(counts).take(events, axis=1)
            observed = 1 - np.prod(1 - lost, axis=1)
            values[:, k] = benefit(counts.sum(axis=1) / block.total, observed, self._thresholds[k])
        return values
