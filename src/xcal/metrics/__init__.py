"""Metrics for survival predictions: numbers in, small frozen results out.

Predictions and outcomes come as arrays, `time` and `event` always by keyword; no model is needed.
"""

from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.brier import BrierScore, IntegratedBrierScore, brier_score, integrated_brier_score
from xcal.metrics.concordance import Concordance, concordance_index
from xcal.metrics.evaluation import Evaluation, Score, evaluate
from xcal.metrics.ici import IntegratedCalibrationIndex, integrated_calibration_index
from xcal.metrics.kaplan_meier import kaplan_meier
from xcal.metrics.km_calibration import KMCalibration, km_calibration
from xcal.metrics.one_calibration import OneCalibration, one_calibration
from xcal.metrics.quantile_slope import CalibrationSlope, calibration_slope
from xcal.metrics.registry import ENTRIES

METRICS: tuple[str, ...] = tuple(ENTRIES)
"""Names that `evaluate` accepts in `metrics`."""

__all__ = [
    "METRICS",
    "BrierScore",
    "CalibrationSlope",
    "Concordance",
    "Evaluation",
    "IntegratedBrierScore",
    "IntegratedCalibrationIndex",
    "KMCalibration",
    "KaplanMeier",
    "OneCalibration",
    "Score",
    "brier_score",
    "calibration_slope",
    "concordance_index",
    "evaluate",
    "integrated_brier_score",
    "integrated_calibration_index",
    "kaplan_meier",
    "km_calibration",
    "one_calibration",
]
