"""D-calibration, measured and optimised. Usable alone: numbers in, numbers out; torch, numpy and scipy only."""

from xcal.calibration.annealing import Annealing
from xcal.calibration.bins import bin_edges
from xcal.calibration.conditional import ConditionalCalibrationResult, conditional_calibration
from xcal.calibration.conditional_sums import ConditionalCalibration
from xcal.calibration.dcalibration import d_calibration
from xcal.calibration.loss import XCALLoss, xcal_penalty
from xcal.calibration.loss_results import MeanAndPenalty, PenaltySlopes
from xcal.calibration.penalty import unchecked_penalty
from xcal.calibration.process_mean import mean_across_processes
from xcal.calibration.results import DCalibrationResult, GroupedDCalibration
from xcal.calibration.row_features import KernelFeatures
from xcal.calibration.softbins import SoftBins, soft_membership
from xcal.calibration.streaming import DCalibration

__all__ = [
    "Annealing",
    "ConditionalCalibration",
    "ConditionalCalibrationResult",
    "DCalibration",
    "DCalibrationResult",
    "GroupedDCalibration",
    "KernelFeatures",
    "MeanAndPenalty",
    "PenaltySlopes",
    "SoftBins",
    "XCALLoss",
    "bin_edges",
    "conditional_calibration",
    "d_calibration",
    "mean_across_processes",
    "soft_membership",
    "unchecked_penalty",
    "xcal_penalty",
]
