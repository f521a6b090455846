"""xcal: survival models whose probabilities can be trusted."""

from xcal.calibration import (
    DCalibration,
    DCalibrationResult,
    GroupedDCalibration,
    XCALLoss,
    d_calibration,
    xcal_penalty,
)
from xcal.distributions import FAMILIES, family
from xcal.metrics import Evaluation, concordance_index, evaluate
from xcal.objectives import nll, survival_crps

__all__ = [
    "FAMILIES",
    "DCalibration",
    "DCalibrationResult",
    "Evaluation",
    "GroupedDCalibration",
    "XCALLoss",
    "__version__",
    "concordance_index",
    "d_calibration",
    "evaluate",
    "family",
    "nll",
    "survival_crps",
    "xcal_penalty",
]
__version__ = "0.1.0"
