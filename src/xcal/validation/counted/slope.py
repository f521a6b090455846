"""Calibration slope and intercept of resamples: a Cox model on rows that count.

The twin of `metrics.cox_calibration.cox_calibration`, for rows in clusters, whose intervals have no simple formula.
"""

import numpy as np

from xcal.metrics.cox import RiskSets, log_hazard
from xcal.metrics.cox_calibration import slope_of
from xcal.metrics.inputs import Vector
from xcal.validation.counted.block import Block, Timeline


class CountedSlope:
    """Slope and intercept on the log cumulative hazard at one time."""

    def __init__(self, line: Timeline, risk: Vector, at: float) -> None:
        # Followed until the time; the order of the rows, events first at one time, stays right.
        self._happened = line.event & (line.time <= at)
        self._sets = RiskSets(np.minimum(line.time, at), self._happened)
        self._at, self._x = at, log_hazard(risk)
        self._spread = float(self._x.std()) or 1.0
        self._scaled = ((self._x - self._x.mean()) / self._spread)[None]

    def values(self, block: Block) -> tuple[Vector, Vector]:
        """Slope and intercept of each resample; NaN where it does not determine them."""
        both = [
            self._of(counts) if last >= self._at and (counts[self._happened] > 0).any() else (np.nan, np.nan)
            for counts, last in zip(block.counts, block.last_time, strict=True)
        ]
        slope, intercept = np.array(both).T
        return slope, intercept

    def _of(self, counts: Vector) -> tuple[float, float]:
        fit = self._sets.fit(self._scaled, counts, self._at, np.zeros(1))
        hazard, _ = self._sets.offset_hazard(self._x, self._at, counts)
        return slope_of(fit, self._spread)[0], float(np.log(hazard))
