"""xcal: survival models whose probabilities can be trusted."""

from xcal.calibration import XCALLoss, xcal_penalty

__all__ = ["XCALLoss", "xcal_penalty"]
__version__ = "0.1.0"
