"""Recalibration: what can be done after training, on any model's F values."""

from xcal.recalibration.kaplan_meier import KaplanMeierRecalibration

__all__ = ["KaplanMeierRecalibration"]
