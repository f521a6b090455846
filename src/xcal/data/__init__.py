"""Survival data as users have it, and as the rest of the package wants it."""

from xcal.data.parquet import map_parquet
from xcal.data.surv import Surv
from xcal.data.survival import SurvivalData

__all__ = ["Surv", "SurvivalData", "map_parquet"]
