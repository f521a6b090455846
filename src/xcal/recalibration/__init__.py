"""Recalibration: what can be done after training, on any model's F values."""

from typing import TYPE_CHECKING, Any

from xcal.recalibration.average import AveragedRecalibration
from xcal.recalibration.by_row import IsotonicSurface, RiskRecalibration, TemperatureRecalibration
from xcal.recalibration.maps import GroupedRecalibration, IsotonicRecalibration, KaplanMeierRecalibration, Recalibration
from xcal.recalibration.published import BetaRecalibration, CiPOTRecalibration, ConformalQuantiles, KSPRecalibration

if TYPE_CHECKING:
    from xcal.recalibration.estimator import Recalibrated

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
    "Recalibrated",
    "Recalibration",
    "RiskRecalibration",
    "TemperatureRecalibration",
]


def __getattr__(name: str) -> Any:
    """Import the estimator when it is asked for: the maps need no scikit-learn."""
    if name == "Recalibrated":
        from xcal.recalibration.estimator import Recalibrated

        return Recalibrated
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
