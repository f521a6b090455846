"""What a recalibration is fitted to: F, and what else a method asks, of rows that the model has not seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal._checks import MANY, BoolArray, as_count, check_same_length
from xcal.recalibration.adjustments import Column, labels_of, model_quantiles
from xcal.recalibration.base import Floats
from xcal.recalibration.csd import DEFAULT_PIECES, even_levels
from xcal.recalibration.reading import read_own
from xcal.recalibration.refitting import Rows, check_each_row_once
from xcal.recalibration.registry import HeldOut, Method


@dataclass(frozen=True)
class Asked:
    """What is asked of a model about rows that it has not seen: a method, with its two settings."""

    method: Method
    n_pieces: int | None
    group_column: Column | None

    def of(self, model: Any, table: Any, time: Floats, event: BoolArray) -> HeldOut:
        """Ask a model."""
        own = read_own(model, table, time, event)
        quantiles = groups = None
        if self.method.asks_quantiles:
            pieces = (
                DEFAULT_PIECES
                if self.n_pieces is None
                else as_count("n_pieces", self.n_pieces, at_least=2, at_most=MANY)
            )
            quantiles = model_quantiles(model, table, even_levels(pieces), float(time.max()))
        if self.method.asks_groups:
            groups = np.asarray(labels_of(table, self.group_column))
            check_same_length("groups", groups, "y", time.size)
        return HeldOut(time, event, own.cdf, own.event, quantiles, groups)


def pooled(parts: Sequence[HeldOut], order: Rows, time: Floats, event: BoolArray) -> HeldOut:
    """Put the answers of all folds together; `order` has the row numbers of the parts, one after the other."""
    check_each_row_once(order, time.size)
    back = np.argsort(order)

    def joined(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if values[0] is None else np.concatenate(values)[back]

    own = {name: joined(name) for name in ("cdf", "event", "quantiles", "groups")}
    return HeldOut(time, event, **own)


def as_table(X: Any) -> Any:
    """Rows that can be counted and sliced."""
    return np.asarray(X) if isinstance(X, list) else X
