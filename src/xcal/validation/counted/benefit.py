"""Net benefit of resamples."""

import numpy as np

from xcal.metrics.inputs import Vector
from xcal.metrics.net_benefit import benefit
from xcal.metrics.running_sums import running_sums
from xcal.validation.counted.block import Block, Matrix, Timeline


class CountedBenefit:
    """Net benefit at one time for several thresholds."""

    def __init__(self, line: Timeline, risk: Vector, thresholds: Vector, at: float) -> None:
        self._risk, self._thresholds = risk, thresholds
        self._by_then = line.event & (line.time <= at)

    def values(self, block: Block) -> Matrix:
        """Net benefit of every resample at every threshold, shape (b, k)."""
        values = np.zeros((block.total.size, self._thresholds.size))
        for k, threshold in enumerate(self._thresholds):
            # Found anew for each block: kept for every threshold, they would fill the memory with many rows.
            rows = np.flatnonzero(self._risk >= threshold)
            if not rows.size:
                continue
            counts, events = block.counts.take(rows, axis=1), np.flatnonzero(self._by_then[rows])
            before = running_sums(counts)
            # Where nobody is left nothing was drawn, and zero over anything is zero.
            at_risk = np.maximum(before[:, -1:] - before.take(events, axis=1), block.least)
            observed = 1 - np.prod(1 - counts.take(events, axis=1) / at_risk, axis=1)
            values[:, k] = benefit(before[:, -1] / block.total, observed, threshold)
        return values
