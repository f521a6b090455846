"""Metrics that merge: update with chunks, merge what several processes or files have seen, compute at the end.

All have `update`, `merge`, `state_dict`, `load_state_dict` and `compute`, and a state of bounded size. The result does
not depend on the order of rows and merges. `xcal.DCalibration` is the same for D-calibration.
"""

from xcal.metrics.brier import BoundedBrier, StreamingBrier
from xcal.metrics.cells import Accumulator
from xcal.metrics.concordance import BoundedConcordance, StreamingConcordance
from xcal.metrics.cox_ici_streaming import GriddedCoxICI, StreamingCoxICI
from xcal.metrics.observed_expected import ObservedExpectedAt, StreamingObservedExpected
from xcal.metrics.one_calibration import BoundedOneCalibration, StreamingOneCalibration
from xcal.metrics.predictions import StreamingMeanNLL
from xcal.metrics.times import BoundedCurve, StreamingKaplanMeier, StreamingQuantiles

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
