"""xcal: survival models whose probabilities can be trusted."""

from xcal.calibration import (
    DCalibration,
    DCalibrationResult,
    GroupedDCalibration,
    XCALLoss,
    d_calibration,
    xcal_penalty,
)

__all__ = [
    "DCalibration",
    "DCalibrationResult",
    "GroupedDCalibration",
    "XCALLoss",
    "__version__",
    "d_calibration",
    "xcal_penalty",
]
__version__ = "0.1.0"
