"""D-calibration, measured and optimised. Usable alone: numbers in, numbers out; torch, numpy and scipy only."""

from xcal.calibration.across_processes import mean_across_processes
from xcal.calibration.causes import cause_calibration
from xcal.calibration.conditional import ConditionalCalibration, ConditionalCalibrationResult, conditional_calibration
from xcal.calibration.dcalibration import d_calibration
from xcal.calibration.loss import XCALLoss, xcal_penalty
from xcal.calibration.membership import Annealing, SoftBins
from xcal.calibration.penalty import unchecked_penalty
from xcal.calibration.streaming import DCalibration
from xcal.calibration.subgroups import KernelFeatures

__all__ = [
    "Annealing",
    "ConditionalCalibration",
    "ConditionalCalibrationResult",
    "DCalibration",
    "KernelFeatures",
    "SoftBins",
    "XCALLoss",
    "cause_calibration",
    "conditional_calibration",
    "d_calibration",
    "mean_across_processes",
    "unchecked_penalty",
    "xcal_penalty",
]
