"""Survival data as users have it, and as the rest of the package wants it."""

from xcal.data.parquet import MappedTable, map_parquet
from xcal.data.surv import Surv, time_and_event

__all__ = ["MappedTable", "Surv", "map_parquet", "time_and_event"]
