"""Metrics that merge: update with chunks, merge what several processes or files have seen, compute at the end.

All have `update`, `merge`, `state_dict`, `load_state_dict` and `compute`, and a state of bounded size. The result does
not depend on the order of rows and merges. `xcal.DCalibration` is the same for D-calibration.
"""

from xcal.metrics.concordance import StreamingConcordance
from xcal.metrics.cox_ici_streaming import StreamingCoxICI
from xcal.metrics.errors import StreamingBrier, StreamingMeanNLL
from xcal.metrics.kaplan_meier_streaming import StreamingKaplanMeier, StreamingQuantiles
from xcal.metrics.observed_expected import StreamingObservedExpected
from xcal.metrics.one_calibration import StreamingOneCalibration

__all__ = [
    "StreamingBrier",
    "StreamingConcordance",
    "StreamingCoxICI",
    "StreamingKaplanMeier",
    "StreamingMeanNLL",
    "StreamingObservedExpected",
    "StreamingOneCalibration",
    "StreamingQuantiles",
]
