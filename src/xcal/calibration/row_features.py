"""Random features: functions of the covariates that together see every smooth subgroup."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from xcal._checks import MANY, as_count, as_number, fail, first_row
from xcal.calibration.covariates import Column, as_columns

Floats = npt.NDArray[np.float64]

# Rows that fix the scale of the columns and the bandwidth; more would change neither.
_REFERENCE_ROWS = 10_000
# The bandwidth, as a multiple of the median distance between two rows; `studies.conditional_rules` compares others.
BANDWIDTH = 0.7


@dataclass(frozen=True, eq=False)
class Scale:
    """A column on the scale of the kernel: normal scores of its ranks, or one indicator per category.

    Ranks make the result the same for a column and its logarithm, and keep a few extreme rows from hiding the others.
    Two rows of different categories are as far apart as two rows drawn at random are in a numeric column: at squared
    distance two.
    """

    reference: Floats | None  # sorted values of a numeric column
    spread: float  # standard deviation of its scores
    labels: tuple[str, ...] | None = None  # of a category
    name: str | None = None  # of the column

    def __call__(self, values: Floats) -> Floats:
        """Return the scaled column: one column of numbers, or one for each label."""
        if self.reference is None:
            indicators = np.zeros((values.size, len(self.labels or ())))
            indicators[np.arange(values.size), values.astype(np.int64)] = 1.0
            return indicators
        below = np.searchsorted(self.reference, values, side="left")
        through = np.searchsorted(self.reference, values, side="right")
        middle = (below + through + 1) / 2 / (self.reference.size + 1)
        scores = np.asarray(ndtri(middle)) / (self.spread or 1.0)
        return scores[:, None]

    def read(self, column: Column) -> Column:
        """Return a column of other rows as the numbers that its labels have here.

        Columns of a data frame must have the same names in the same order; those of an array have none (`x0`, `x1`).
        """
        if self.name is not None and column.name != self.name and not (_unnamed(column.name) or _unnamed(self.name)):
            fail("X", f"column {self.name!r} in its place, as the fitted rows have", repr(column.name))
        if (column.labels is None) != (self.labels is None):
            kinds = "numbers", "categories"
            fail("X", f"{kinds[self.labels is not None]} in column {column.name!r}", kinds[column.labels is not None])
        if self.labels is None or column.labels is None:
            return column
        number = {label: k for k, label in enumerate(self.labels)}
        for code, label in enumerate(column.labels):
            if label not in number:
                expected = f"labels that the fitted rows have in column {column.name!r}"
                fail("X", expected, repr(label), first_row(column.values == code))
        codes = np.array([number[label] for label in column.labels], dtype=np.float64)
        return Column(column.name, codes[column.values.astype(np.int64)], self.labels)


@dataclass(frozen=True, eq=False)
class RandomFeatures:
    """Features h_1..h_M of a row with sum of squares one, whose products average to a Gaussian kernel of two rows.

    h = (cos(w'z), sin(w'z)) / sqrt(M / 2) with M / 2 random frequencies w (Rahimi and Recht 2007) and z the scaled
    columns. `KernelFeatures.fit` makes them.
    """

    scales: tuple[Scale, ...]
    frequencies: Floats  # (columns, M / 2)
    bandwidth: float

    def __repr__(self) -> str:
        """Return what they are, without the numbers."""
        return f"<{2 * self.frequencies.shape[1]} features of {len(self.scales)} columns>"

    def __call__(self, columns: Sequence[Column]) -> Floats:
        """Features of rows, (n, M)."""
        phase = _scaled(self.scales, columns) @ self.frequencies
        both = np.concatenate([np.cos(phase), np.sin(phase)], axis=1)
        return np.asarray(both / np.sqrt(self.frequencies.shape[1]))

    def of(self, X: Any) -> Floats:
        """Features of any rows, (n, M), on the scales of the rows that were fitted."""
        columns = as_columns(X)
        if len(columns) != len(self.scales):
            fail("X", f"{len(self.scales)} columns, as the fitted rows have", len(columns))
        return self([scale.read(column) for scale, column in zip(self.scales, columns, strict=True)])


class FeatureMaker(Protocol):
    """Anything that makes features of rows from their covariates: `KernelFeatures`, or a class of your own."""

    def of(self, X: Any) -> npt.NDArray[Any]:
        """Features of rows, (n, M)."""


@dataclass(frozen=True)
class KernelFeatures:
    """Which random features: their number, the bandwidth of the kernel and the seed.

    Parameters
    ----------
    n_features : int
        An even number: a cosine and a sine for each frequency.
    bandwidth : float, optional
        On the scaled columns; by default 0.7 times the median distance between two rows.
    seed : int

    Examples
    --------
    >>> X = np.arange(6.0).reshape(3, 2)
    >>> KernelFeatures(n_features=4).of(X).shape
    (3, 4)

    Of other rows on the same scale, such as the batches of a loop:

    >>> KernelFeatures(n_features=4).fit(X).of(X[:1]).shape
    (1, 4)
    """

    n_features: int = 128
    bandwidth: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if as_count("n_features", self.n_features, at_least=2, at_most=MANY) % 2:
            fail("n_features", "an even number: a cosine and a sine for each frequency", self.n_features)
        if self.bandwidth is not None:
            as_number("bandwidth", self.bandwidth, above=0)
        as_count("seed", self.seed, at_least=0)

    def draw(self, columns: Sequence[Column]) -> RandomFeatures:
        """Draw the features for rows like these."""
        if not columns[0].values.size:
            fail("X", "at least one row", "none")
        return random_features(columns, self.n_features, self.bandwidth, np.random.default_rng(self.seed))

    def fit(self, X: Any) -> RandomFeatures:
        """Fix the scale of the columns and the bandwidth by these rows; its method ``of`` is for any rows."""
        return self.draw(as_columns(X))

    def of(self, X: Any) -> Floats:
        """Features of rows, (n, n_features), from a data frame or an array of covariates."""
        columns = as_columns(X)
        return self.draw(columns)(columns)


def random_features(
    columns: Sequence[Column],
    n_features: int,
    bandwidth: float | None,
    rng: np.random.Generator,
    *,
    narrower: float = BANDWIDTH,
) -> RandomFeatures:
    """Draw features for rows like these; the default bandwidth is `narrower` times the median distance of two."""
    n = columns[0].values.size
    rows = np.arange(n) if n <= _REFERENCE_ROWS else np.sort(rng.choice(n, _REFERENCE_ROWS, replace=False))
    some = [column.take(rows) for column in columns]
    scales = tuple(_scale(column) for column in some)
    scaled = _scaled(scales, some)
    if bandwidth is None:
        one, other = scaled[rng.permutation(rows.size)], scaled
        bandwidth = narrower * float(np.sqrt(np.median(np.square(one - other).sum(axis=1)))) or 1.0
    frequencies = rng.standard_normal((scaled.shape[1], n_features // 2)) / bandwidth
    return RandomFeatures(scales, frequencies, bandwidth)


def _scale(column: Column) -> Scale:
    if column.labels is not None:
        return Scale(None, 1.0, column.labels, column.name)
    reference = np.sort(column.values)
    scores = Scale(reference, 1.0)(column.values)
    return Scale(reference, float(scores.std()), name=column.name)


def _unnamed(name: str) -> bool:
    """Whether a column has the name that those of an array are given."""
    return name[:1] == "x" and name[1:].isdigit()


def _scaled(scales: Sequence[Scale], columns: Sequence[Column]) -> Floats:
    return np.concatenate([scale(column.values) for scale, column in zip(scales, columns, strict=True)], axis=1)
