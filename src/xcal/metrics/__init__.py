"""Metrics for survival predictions: numbers in, small frozen results out.

Predictions and outcomes come as arrays, `time` and `event` always by keyword; no model is needed.
"""

from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.auc import cumulative_dynamic_auc
from xcal.metrics.calibration_curve import calibration_curve, integrated_calibration_index, risk_distribution
from xcal.metrics.concordance import concordance_index
from xcal.metrics.cox import cox_calibration, cox_ici
from xcal.metrics.errors import brier_score, integrated_brier_score, mean_nll, scaled_brier_score
from xcal.metrics.evaluation import evaluate
from xcal.metrics.net_benefit import decision_curve, net_benefit
from xcal.metrics.observed import aalen_johansen, follow_up, kaplan_meier, turnbull
from xcal.metrics.observed_expected import calibration_slope, observed_expected
from xcal.metrics.one_calibration import one_calibration
from xcal.metrics.pit import km_calibration, pp_curve, quantile_slope
from xcal.metrics.rows import by_person

__all__ = [
    "KaplanMeier",
    "aalen_johansen",
    "brier_score",
    "by_person",
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
    "turnbull",
]
