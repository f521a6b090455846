"""Recalibration: what can be done after training, on any model's F values."""

from typing import TYPE_CHECKING, Any

from xcal.recalibration.base import Recalibration
from xcal.recalibration.beta import BetaRecalibration
from xcal.recalibration.cipot import CiPOTRecalibration
from xcal.recalibration.csd import ConformalQuantiles
from xcal.recalibration.grouped import GroupedRecalibration
from xcal.recalibration.isotonic import IsotonicRecalibration
from xcal.recalibration.kaplan_meier import KaplanMeierRecalibration

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
