"""Recalibration: what can be done after training, on any model's F values."""

from typing import TYPE_CHECKING, Any

from xcal.recalibration.maps import GroupedRecalibration, IsotonicRecalibration, KaplanMeierRecalibration, Recalibration
from xcal.recalibration.published import BetaRecalibration, CiPOTRecalibration, ConformalQuantiles

if TYPE_CHECKING:
    from xcal.recalibration.estimator import Recalibrated

__all__ = [
    "BetaRecalibration",
    "CiPOTRecalibration",
    "ConformalQuantiles",
    "GroupedRecalibration",
    "IsotonicRecalibration",
    "KaplanMeierRecalibration",
    "Recalibrated",
    "Recalibration",
]


def __getattr__(name: str) -> Any:
    """Import the estimator when it is asked for: the maps need no scikit-learn."""
    if name == "Recalibrated":
        from xcal.recalibration.estimator import Recalibrated

        return Recalibrated
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
