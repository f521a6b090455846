"""Survival data as users have it, and as the rest of the package wants it."""

from xcal.data.parquet import map_parquet
from xcal.data.surv import Surv, time_and_event
from xcal.data.survival import Fold, SurvivalData

__all__ = ["Fold", "Surv", "SurvivalData", "map_parquet", "time_and_event"]
