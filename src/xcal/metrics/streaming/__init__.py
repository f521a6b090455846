"""Metrics that merge: update with chunks, merge what several processes or files have seen, compute at the end.

All have `update`, `merge`, `state_dict`, `load_state_dict` and `compute`, and a state of bounded size. The result does
not depend on the order of rows and merges. `xcal.DCalibration` is the same for D-calibration.
"""

from xcal.metrics.streaming.accumulator import Accumulator
from xcal.metrics.streaming.brier import BoundedBrier, StreamingBrier
from xcal.metrics.streaming.concordance import BoundedConcordance, StreamingConcordance
from xcal.metrics.streaming.ici import GriddedCoxICI, StreamingCoxICI
from xcal.metrics.streaming.kaplan_meier import BoundedCurve, StreamingKaplanMeier
from xcal.metrics.streaming.likelihood import StreamingMeanNLL
from xcal.metrics.streaming.observed_expected import ObservedExpectedAt, StreamingObservedExpected
from xcal.metrics.streaming.one_calibration import BoundedOneCalibration, StreamingOneCalibration
from xcal.metrics.streaming.quantiles import StreamingQuantiles

__all__ = [
    "Accumulator",
    "BoundedBrier",
    "BoundedConcordance",
    "BoundedCurve",
    "BoundedOneCalibration",
    "GriddedCoxICI",
    "ObservedExpectedAt",
    "StreamingBrier",
    "StreamingConcordance",
    "StreamingCoxICI",
    "StreamingKaplanMeier",
    "StreamingMeanNLL",
    "StreamingObservedExpected",
    "StreamingOneCalibration",
    "StreamingQuantiles",
]
