"""Survival data as users have it, and as the rest of the package wants it."""

from xcal._deprecation import deprecated_names
from xcal.data.parquet import map_parquet
from xcal.data.partition import Fold
from xcal.data.surv import Surv, time_and_event
from xcal.data.survival import SurvivalData

__all__ = ["Fold", "Surv", "SurvivalData", "map_parquet", "time_and_event"]

__getattr__ = deprecated_names(__name__, {"MappedTable": "xcal.data.SurvivalData"}, removed_in="0.2.0")
