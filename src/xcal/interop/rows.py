"""The rows that a model is asked about, and at which times its curves are kept."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from xcal._checks import BoolArray, FloatArray, fail
from xcal.metrics.inputs import Vector

# Rows times columns that are kept of a model's curves, and the fewest columns however many rows there are.
MOST_CELLS = 2_000_000
FEWEST_COLUMNS = 50
# Columns of a curve that has a value at every time.
SMOOTH_COLUMNS = 200
# Rows times columns that are asked of a library at once.
_AT_ONCE = 10_000_000


@dataclass(frozen=True, eq=False)
class Rows:
    """Outcomes of the rows, and the times that matter; checked before.

    Attributes
    ----------
    time, event : arrays of shape (n,)
    times : array of shape (m,), optional
        Times that the user asked for; by default the reader of the library chooses.
    horizons : array of shape (h,)
        Times at which single risks will be read: the curves are exact there.
    """

    time: FloatArray
    event: BoolArray
    times: Vector | None = None
    horizons: Vector = field(default_factory=lambda: np.empty(0))

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.time.size)

    @property
    def most_columns(self) -> int:
        """Number of times that a curve of each row may have without filling the memory."""
        return max(FEWEST_COLUMNS, MOST_CELLS // self.n)

    def grid(self) -> Vector:
        """Choose times at which to ask a model that knows every time: those of the user, or where the outcomes lie.

        Half of them are quantiles of the event times, half are spread evenly up to the last time of the rows.
        """
        if self.times is not None:
            return self.times
        half = min(SMOOTH_COLUMNS, self.most_columns) // 2
        last = float(self.time.max())
        seen = self.time[self.event] if self.event.any() else self.time
        quantiles = np.quantile(seen, (np.arange(half) + 0.5) / half)
        spread = np.linspace(0.0, last, half + 1)[1:]
        grid: Vector = np.unique(np.concatenate([quantiles, spread, self.horizons]).astype(np.float64))
        return grid[grid > 0] if last > 0 else grid

    def kept_columns(self, own: Vector) -> npt.NDArray[np.int64]:
        """Which of a model's own times to keep: all, or evenly many with the last and those beside a horizon."""
        if own.size <= self.most_columns:
            return np.arange(own.size)
        evenly = np.linspace(0, own.size - 1, self.most_columns).round().astype(np.int64)
        left = np.searchsorted(own, self.horizons, side="right") - 1
        beside = np.clip(np.concatenate([left, left + 1]), 0, own.size - 1)
        return np.unique(np.concatenate([evenly, beside]))

    def parts(self, columns: int) -> Iterator[slice]:
        """Rows in pieces, so that no more than a bounded number of values is held at once."""
        step = max(1, _AT_ONCE // max(1, columns))
        return (slice(start, min(start + step, self.n)) for start in range(0, self.n, step))


def count_rows(X: Any) -> int | None:
    """Return the number of rows of a table, array, tensor or tuple of them; None for what does not say."""
    if isinstance(X, tuple):
        return count_rows(X[0]) if X else 0
    if hasattr(X, "num_row"):  # XGBoost's DMatrix
        return int(X.num_row())
    shape = getattr(X, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(X) if hasattr(X, "__len__") else None


def take_rows(X: Any, part: slice) -> Any:
    """Pick neighbouring rows of a table, array, tensor or tuple of them."""
    if isinstance(X, tuple):
        return tuple(take_rows(values, part) for values in X)
    if issparse(X):
        return X.tocsr()[part]  # of the sparse forms the one whose rows can be picked
    try:
        return X.iloc[part] if hasattr(X, "iloc") else X[part]
    except (TypeError, IndexError, KeyError):
        fail("X", "rows of features: a table or an array", type(X).__name__)
