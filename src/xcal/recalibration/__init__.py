"""Recalibration: what can be done after training, on any model's F values."""

from xcal.recalibration.by_row import GroupedRecalibration, IsotonicSurface, RiskRecalibration, TemperatureRecalibration
from xcal.recalibration.maps import IsotonicRecalibration, KaplanMeierRecalibration, Recalibration
from xcal.recalibration.published import BetaRecalibration, CiPOTRecalibration, ConformalQuantiles, KSPRecalibration
from xcal.recalibration.registry import AveragedRecalibration

__all__ = [
    "AveragedRecalibration",
    "BetaRecalibration",
    "CiPOTRecalibration",
    "ConformalQuantiles",
    "GroupedRecalibration",
    "IsotonicRecalibration",
    "IsotonicSurface",
    "KSPRecalibration",
    "KaplanMeierRecalibration",
    "Recalibration",
    "RiskRecalibration",
    "TemperatureRecalibration",
]
