"""Survival data as users have it, and as the rest of the package wants it."""

from xcal.data.surv import Surv, time_and_event

__all__ = ["Surv", "time_and_event"]
