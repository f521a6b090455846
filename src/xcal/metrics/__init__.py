"""Metrics for survival predictions: numbers in, small frozen results out.

Predictions and outcomes come as arrays, `time` and `event` always by keyword; no model is needed.
"""

from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.auc import CumulativeDynamicAUC, cumulative_dynamic_auc
from xcal.metrics.brier import (
    BrierScore,
    IntegratedBrierScore,
    ScaledBrierScore,
    brier_score,
    integrated_brier_score,
    scaled_brier_score,
)
from xcal.metrics.calibration_curve import CalibrationCurve, RiskDistribution, calibration_curve, risk_distribution
from xcal.metrics.concordance import Concordance, concordance_index
from xcal.metrics.cox import CoxCalibration, CoxICI, cox_calibration, cox_ici
from xcal.metrics.curves import KMCalibration, km_calibration
from xcal.metrics.evaluation import Evaluation, Score, evaluate
from xcal.metrics.ici import IntegratedCalibrationIndex, integrated_calibration_index
from xcal.metrics.net_benefit import DecisionCurve, NetBenefit, decision_curve, net_benefit
from xcal.metrics.observed_expected import CalibrationSlope, ObservedExpected, calibration_slope, observed_expected
from xcal.metrics.one_calibration import OneCalibration, one_calibration
from xcal.metrics.pit import PPCurve, QuantileSlope, pp_curve, quantile_slope
from xcal.metrics.predictions import MeanNLL, mean_nll
from xcal.metrics.spec import METRICS as _TABLE
from xcal.metrics.times import FollowUp, follow_up, kaplan_meier

METRICS: tuple[str, ...] = tuple(_TABLE)
"""Names that `evaluate` accepts in `metrics`."""

__all__ = [
    "METRICS",
    "BrierScore",
    "CalibrationCurve",
    "CalibrationSlope",
    "Concordance",
    "CoxCalibration",
    "CoxICI",
    "CumulativeDynamicAUC",
    "DecisionCurve",
    "Evaluation",
    "FollowUp",
    "IntegratedBrierScore",
    "IntegratedCalibrationIndex",
    "KMCalibration",
    "KaplanMeier",
    "MeanNLL",
    "NetBenefit",
    "ObservedExpected",
    "OneCalibration",
    "PPCurve",
    "QuantileSlope",
    "RiskDistribution",
    "ScaledBrierScore",
    "Score",
    "brier_score",
    "calibration_curve",
    "calibration_slope",
    "concordance_index",
    "cox_calibration",
    "cox_ici",
    "cumulative_dynamic_auc",
    "decision_curve",
    "evaluate",
    "follow_up",
    "integrated_brier_score",
    "integrated_calibration_index",
    "kaplan_meier",
    "km_calibration",
    "mean_nll",
    "net_benefit",
    "observed_expected",
    "one_calibration",
    "pp_curve",
    "quantile_slope",
    "risk_distribution",
    "scaled_brier_score",
]
