"""Metrics for survival predictions: numbers in, small frozen results out.

Predictions and outcomes come as arrays, `time` and `event` always by keyword; no model is needed.
"""

from xcal._deprecation import deprecated_names
from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.brier import BrierScore, IntegratedBrierScore, brier_score, integrated_brier_score
from xcal.metrics.concordance import Concordance, concordance_index
from xcal.metrics.evaluation import Evaluation, Score, evaluate
from xcal.metrics.ici import IntegratedCalibrationIndex, integrated_calibration_index
from xcal.metrics.kaplan_meier import kaplan_meier
from xcal.metrics.km_calibration import KMCalibration, km_calibration
from xcal.metrics.one_calibration import OneCalibration, one_calibration
from xcal.metrics.quantile_slope import QuantileSlope, quantile_slope
from xcal.metrics.registry import ENTRIES

METRICS: tuple[str, ...] = tuple(ENTRIES)
"""Names that `evaluate` accepts in `metrics`."""

__all__ = [
    "METRICS",
    "BrierScore",
    "Concordance",
    "Evaluation",
    "IntegratedBrierScore",
    "IntegratedCalibrationIndex",
    "KMCalibration",
    "KaplanMeier",
    "OneCalibration",
    "QuantileSlope",
    "Score",
    "brier_score",
    "concordance_index",
    "evaluate",
    "integrated_brier_score",
    "integrated_calibration_index",
    "kaplan_meier",
    "km_calibration",
    "one_calibration",
    "quantile_slope",
]

__getattr__ = deprecated_names(
    __name__,
    {"CalibrationSlope": "xcal.metrics.QuantileSlope", "calibration_slope": "xcal.metrics.quantile_slope"},
    removed_in="0.2.0",
)
