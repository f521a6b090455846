"""D-calibration, measured and optimised. Usable alone: numbers in, numbers out; torch, numpy and scipy only."""

from xcal.calibration.bins import bin_edges
from xcal.calibration.penalty import SoftBins, XCALLoss, soft_membership, unchecked_penalty, xcal_penalty

__all__ = ["SoftBins", "XCALLoss", "bin_edges", "soft_membership", "unchecked_penalty", "xcal_penalty"]
