"""Metrics for survival predictions: numbers in, small frozen results out.

Predictions and outcomes come as arrays, `time` and `event` always by keyword; no model is needed.
"""

from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.auc import CumulativeDynamicAUC, cumulative_dynamic_auc
from xcal.metrics.brier import BrierScore, IntegratedBrierScore, brier_score, integrated_brier_score
from xcal.metrics.calibration_curve import CalibrationCurve, calibration_curve
from xcal.metrics.calibration_slope import CalibrationSlope, calibration_slope
from xcal.metrics.concordance import Concordance, concordance_index
from xcal.metrics.cox_calibration import CoxCalibration, cox_calibration
from xcal.metrics.cox_ici import CoxICI, cox_ici
from xcal.metrics.evaluation import evaluate
from xcal.metrics.evaluation_result import Evaluation, Score
from xcal.metrics.follow_up import FollowUp, follow_up
from xcal.metrics.ici import IntegratedCalibrationIndex, integrated_calibration_index
from xcal.metrics.kaplan_meier import kaplan_meier
from xcal.metrics.km_calibration import KMCalibration, km_calibration
from xcal.metrics.likelihood import MeanNLL, mean_nll
from xcal.metrics.net_benefit import DecisionCurve, NetBenefit, decision_curve, net_benefit
from xcal.metrics.observed_expected import ObservedExpected, observed_expected
from xcal.metrics.one_calibration import OneCalibration, one_calibration
from xcal.metrics.pp_curve import PPCurve, pp_curve
from xcal.metrics.quantile_slope import QuantileSlope, quantile_slope
from xcal.metrics.registry import ENTRIES
from xcal.metrics.risk_distribution import RiskDistribution, risk_distribution
from xcal.metrics.scaled_brier import ScaledBrierScore, scaled_brier_score

METRICS: tuple[str, ...] = tuple(ENTRIES)
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
