"""Random features: functions of the covariates that together see every smooth subgroup."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from xcal.calibration.covariates import Column

Floats = npt.NDArray[np.float64]

# Rows that fix the scale of the columns and the bandwidth; more would change neither.
_REFERENCE_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class Scale:
    """A column on the scale of the kernel: normal scores of its ranks, or one indicator per category.

    Ranks make the result the same for a column and its logarithm, and keep a few extreme rows from hiding the others.
    Two rows of different categories are as far apart as two rows drawn at random are in a numeric column: at squared
    distance two.
    """

    reference: Floats | None  # sorted values of a numeric column
    spread: float  # standard deviation of its scores
    n_labels: int

    @property
    def width(self) -> int:
        """Number of columns it gives."""
        return 1 if self.reference is not None else self.n_labels

    def __call__(self, values: Floats) -> Floats:
        """Give the scaled column, (n, width)."""
        if self.reference is None:
            return np.eye(self.n_labels)[values.astype(np.int64)]
        below = np.searchsorted(self.reference, values, side="left")
        through = np.searchsorted(self.reference, values, side="right")
        middle = (below + through + 1) / 2 / (self.reference.size + 1)
        scores = np.asarray(ndtri(middle)) / (self.spread or 1.0)
        return scores[:, None]


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """Features h_1..h_M of a row with sum of squares one, whose products average to a Gaussian kernel of two rows.

    h = (cos(w'z), sin(w'z)) / sqrt(M / 2) with M / 2 random frequencies w (Rahimi and Recht 2007) and z the scaled
    columns.
    """

    scales: tuple[Scale, ...]
    frequencies: Floats  # (columns, M / 2)
    bandwidth: float

    def __call__(self, columns: Sequence[Column]) -> Floats:
        """Features of rows, (n, M)."""
        phase = _scaled(self.scales, columns) @ self.frequencies
        both = np.concatenate([np.cos(phase), np.sin(phase)], axis=1)
        return np.asarray(both / np.sqrt(self.frequencies.shape[1]))


def random_features(
    columns: Sequence[Column], n_features: int, bandwidth: float | None, rng: np.random.Generator
) -> RandomFeatures:
    """Draw features for rows like these; the default bandwidth is the median distance between two of them."""
    n = columns[0].values.size
    rows = np.arange(n) if n <= _REFERENCE_ROWS else np.sort(rng.choice(n, _REFERENCE_ROWS, replace=False))
    some = [column.take(rows) for column in columns]
    scales = tuple(_scale(column) for column in some)
    scaled = _scaled(scales, some)
    if bandwidth is None:
        one, other = scaled[rng.permutation(rows.size)], scaled
        bandwidth = float(np.sqrt(np.median(np.square(one - other).sum(axis=1)))) or 1.0
    frequencies = rng.standard_normal((scaled.shape[1], n_features // 2)) / bandwidth
    return RandomFeatures(scales, frequencies, bandwidth)


def _scale(column: Column) -> Scale:
    if column.labels is not None:
        return Scale(None, 1.0, len(column.labels))
    reference = np.sort(column.values)
    scores = Scale(reference, 1.0, 0)(column.values)
    return Scale(reference, float(scores.std()), 0)


def _scaled(scales: Sequence[Scale], columns: Sequence[Column]) -> Floats:
    return np.concatenate([scale(column.values) for scale, column in zip(scales, columns, strict=True)], axis=1)
