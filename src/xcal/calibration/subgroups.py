"""Covariates, random features that see every smooth subgroup, and the search for the one most off."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from xcal._checks import MANY, BoolArray, Floats, as_count, as_number, as_numpy, fail, first_row, is_missing
from xcal.calibration.bins import Edges
from xcal.calibration.histogram import edges_like, locate, rest
from xcal.data.features import column_kind

# Each is a column of indicators: so many of some ten thousand rows fit into the memory.
MOST_LABELS = 5_000


@dataclass(frozen=True, eq=False)
class Column:
    """One covariate: its numbers, or for a category the number of each row's label among `labels`."""

    name: str
    values: npt.NDArray[np.float64]
    labels: tuple[str, ...] | None = None

    def take(self, rows: npt.NDArray[Any] | slice) -> "Column":
        """Keep some rows."""
        return Column(self.name, self.values[rows], self.labels)

    def cuts(self, n: int) -> npt.NDArray[np.float64]:
        """Return numbers that cut the rows into n parts of about equal size, fewer where values are equal.

        They are quantiles to a hundredth of what nine rows in ten span: a person reads 1.27 more easily than 1.26839,
        and no row's own value is told.

        Examples
        --------
        >>> Column("age", np.linspace(18.1234, 90.5678, 500)).cuts(4)
        array([36.1, 54.3, 72.4])
        >>> Column("grade", np.repeat([1.0, 2.0, 3.0], 50)).cuts(4)
        array([1., 2., 3.])
        """
        found = np.quantile(self.values, np.arange(1, n) / n, method="lower")
        span = float(np.subtract(*np.quantile(self.values, [0.95, 0.05]))) or float(np.ptp(self.values))
        if span > 0:
            digits = -math.floor(math.log10(span / 100))
            found = np.array([round(float(cut), digits) for cut in found])
        return np.unique(found)


def as_columns(X: Any, n: int | None = None) -> tuple[Column, ...]:
    """Read a data frame (pandas or polars) or an array, (n, p), into columns.

    Text, categories and booleans become categories; everything else must be finite numbers. Columns that were read
    before are taken as they are. Without `n` any number of rows will do.
    """
    if isinstance(X, tuple) and all(isinstance(column, Column) for column in X):
        columns: tuple[Column, ...] = X
    elif hasattr(X, "columns") and not isinstance(X, np.ndarray):
        names = [str(name) for name in X.columns]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            fail("X", "columns with different names", f"{twice!r} more than once")
        columns = tuple(_as_column(str(name), X[name]) for name in X.columns)
    else:
        array = as_numpy("X", X)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2:
            fail("X", "one row per prediction and one column per covariate", f"shape {array.shape}")
        columns = tuple(_as_column(f"x{k}", array[:, k]) for k in range(array.shape[1]))
    if not columns:
        fail("X", "at least one column", "none")
    for column in columns:
        if n is not None and column.values.size != n:
            fail("X", f"{n} rows, one per row of cdf", f"{column.values.size} in column {column.name!r}")
    return columns


def _as_column(name: str, values: Any) -> Column:
    kind, array = column_kind(values), np.asarray(values)
    if kind == "date":
        fail("X", f"numbers or categories in column {name!r}", "dates: give the days since some day")
    if kind == "duration" or array.dtype.kind == "c":
        fail("X", f"numbers or categories in column {name!r}", f"type {array.dtype}")
    if kind == "number":
        if array.dtype == object:
            array = np.array([np.nan if is_missing(value) else value for value in array.tolist()])
        numbers = array.astype(np.float64)
        bad = ~np.isfinite(numbers)
        if bad.any():
            row = first_row(bad)
            fail("X", f"finite numbers in column {name!r} (fill missing values first)", numbers[row], row)
        return Column(name, numbers)
    listed = array.tolist()
    missing = np.array([is_missing(label) for label in listed], dtype=np.bool_)
    if missing.any():
        row = first_row(missing)
        fail("X", f"a label in every row of column {name!r}", listed[row], row)
    labels, codes = np.unique(np.array([str(label) for label in listed]), return_inverse=True)
    if labels.size > MOST_LABELS:
        expected = f"at most {MOST_LABELS:,} categories in column {name!r} (leave out what names single rows)"
        fail("X", expected, f"{labels.size:,}")
    return Column(name, codes.astype(np.float64), tuple(str(label) for label in labels))


# --- Random features: functions of the covariates that together see every smooth subgroup.

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
    r"""Which random features: their number, the bandwidth of the kernel and the seed.

    .. math:: h(z) = \sqrt{2 / M} \, (\cos W z, \sin W z)

    with z the scaled columns and M / 2 frequencies, the rows of W, from a normal distribution: the product of two rows'
    features approximates a Gaussian kernel of the given bandwidth.

    Parameters
    ----------
    n_features : int
        An even number: a cosine and a sine for each frequency.
    bandwidth : float, optional
        On the scaled columns; by default 0.7 times the median distance between two rows.
    seed : int

    References
    ----------
    Rahimi, Recht (2007), Random Features for Large-Scale Kernel Machines, NeurIPS 20.

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
    """Return whether a column has the name that those of an array are given."""
    return name[:1] == "x" and name[1:].isdigit()


def _scaled(scales: Sequence[Scale], columns: Sequence[Column]) -> Floats:
    return np.concatenate([scale(column.values) for scale, column in zip(scales, columns, strict=True)], axis=1)


# --- Where a model is off: the subgroup with the largest residuals, searched on one half of the rows, tested on the
# other.
# A subgroup is one condition, or two joined by "and": a numeric column up to or above a cut, or a category. The search
# looks at two questions, each a contrast of the bins: are the observed F too high or too low (location), and do they
# lie too far out or too close to the middle (spread)? As the second half takes no part in the search, its p-value is
# that of one test.
#
# A sum over the rows of a subgroup is divided by the larger of two standard deviations: that of what was seen, and
# that which a right model expects. The first alone is near zero in a subgroup of early censored rows without any
# event, however few were expected, and the second alone in one where a single event came that nearly nobody expected.

Mask = BoolArray
SEARCHED_ROWS = 200_000  # more add nothing to what a person can act on; a tenth of them at most is searched
_CUTS = 16  # numeric columns are cut at the 1/16 to 15/16 quantiles
_FIRST = 12  # single conditions that are tried in pairs
_SMALLEST = 30  # rows of a subgroup in each half, or one in fifty if that is more
_NUMBERS = 1 << 24  # of masks that are held as floating-point numbers at a time
_GAIN = 4.0  # by how much a second condition must raise the squared z: a cut that finds nothing raises it by chance


@dataclass(frozen=True)
class Condition:
    """One condition on one column."""

    column: int
    words: str
    cut: float
    kind: str  # "up to", "above", "is"

    def holds(self, columns: Sequence[Column]) -> Mask:
        """Rows for which it is true."""
        values = columns[self.column].values
        if self.kind == "up to":
            return values <= self.cut
        return values > self.cut if self.kind == "above" else values == self.cut


@dataclass(frozen=True)
class Subgroup:
    """The subgroup with the largest excess, and its test on rows that were not searched."""

    description: str  # in words: "rows with age > 71 and stage = III: events come earlier than predicted"
    rule: str  # the conditions alone
    finding: str  # what the histogram of its rows in the half that was not searched shows
    n: int  # its rows among those looked at, in both halves
    # z, p_value: of the half that took no part in the search; two-sided, and honest: one test was made
    z: float
    p_value: float
    conditions: tuple[Condition, ...]
    n_tested: int  # its rows in that half
    tested: npt.NDArray[np.intp] = field(compare=False, repr=False)  # (n_tested,): their row numbers
    # mass, mass_error: (B,): share of F in each bin among these rows, and the standard error of each, by the same rule
    # as z
    mass: Floats = field(compare=False, repr=False)
    mass_error: Floats = field(compare=False, repr=False)

    def holds(self, columns: Sequence[Column]) -> Mask:
        """Rows of the subgroup."""
        return all_hold(self.conditions, columns)


def all_hold(conditions: Sequence[Condition], columns: Sequence[Column]) -> Mask:
    """Rows for which every condition is true."""
    return np.asarray(np.logical_and.reduce([condition.holds(columns) for condition in conditions]))


def contrasts(edges: Edges) -> Floats:
    """Location and spread of F, (B, 2), each with mean zero under a flat histogram."""
    middle, width = (edges[1:] + edges[:-1]) / 2 - 0.5, np.diff(edges)
    both = np.stack([middle, np.square(middle)], axis=1)
    return np.asarray(both - width @ both)


def expected_squares(cdf: npt.NDArray[np.floating], edges: Edges, shapes: Floats) -> Floats:
    r"""Variance of contrasts of the bins, (B, C), that a right model expects of a row up to its observed time, (n, C).

    While a row is watched, from F = 0 to its own F, its score is the mean of the contrast g over what is left,
    g(v..1), and jumps to g(v) at an event. Jumps are as likely as dv / (1 - v), so that the variance is the integral of
    (g(v) - g(v..1))^2 / (1 - v). Within a bin that difference is a constant over 1 - v. Whatever the censoring, the
    mean of these numbers is that of the squared scores, but they do not depend on whether an event came.
    """
    edge = edges_like(edges, cdf)
    u = cdf.astype(np.float64, copy=False)
    bins, above = locate(u, edge), 1 - edges
    of_bins = shapes * np.diff(edges)[:, None]
    after = of_bins.sum(axis=0) - np.cumsum(of_bins, axis=0)
    jumps = np.square(after - shapes * above[1:, None]) / 2
    jumps[-1] = 0.0  # a row in the last bin has its score
    inverse = 1 / np.square(above[:-1])
    before = np.concatenate([np.zeros((1, shapes.shape[1])), np.cumsum(jumps[:-1] * np.diff(inverse)[:, None], axis=0)])
    return np.asarray(before[bins] + jumps[bins] * (1 / np.square(rest(u, edge)) - inverse[bins])[:, None])


def masses(cdf: npt.NDArray[np.floating], residuals: Floats, edges: Edges, together: Floats) -> tuple[Floats, Floats]:
    """Share of F of some rows in each bin, or in bins taken together, (B, k) of 0 and 1, and its standard error."""
    own = residuals @ together
    variance = np.maximum(own.var(axis=0), expected_squares(cdf, edges, together).mean(axis=0))
    return own.mean(axis=0) + np.diff(edges) @ together, np.sqrt(variance / own.shape[0])


def find_subgroup(
    columns: Sequence[Column], cdf: npt.NDArray[np.floating], residuals: Floats, edges: Edges
) -> Subgroup | None:
    """Search the first half of the rows, test on the rest; None where no subgroup is large enough.

    The rows come in random order.
    """
    n = residuals.shape[0]
    scores, expected = residuals @ contrasts(edges), expected_squares(cdf, edges, contrasts(edges))
    half = min(n // 2, SEARCHED_ROWS // 10)
    here, there = ([column.take(rows) for column in columns] for rows in (slice(half), slice(half, None)))
    smallest = max(_SMALLEST, half // 50)
    found = _best_rule(here, scores[:half], expected[:half], smallest)
    if found is None:
        return None
    conditions, contrast = found
    inside = all_hold(conditions, there)
    z = _z(inside[None, :], scores[half:], expected[half:])[0, contrast]
    if not np.isfinite(z):
        return None
    tested = half + np.flatnonzero(inside)
    mass, error = masses(cdf[tested], residuals[tested], edges, np.eye(edges.size - 1))
    rule, finding = " and ".join(c.words for c in conditions), departure_in_words(mass, edges)
    return Subgroup(
        description=f"rows with {rule}: {finding}",
        rule=rule,
        finding=finding,
        n=int(all_hold(conditions, here).sum() + inside.sum()),
        z=float(z),
        p_value=float(2 * ndtr(-abs(z))),
        conditions=conditions,
        n_tested=tested.size,
        tested=tested,
        mass=mass,
        mass_error=error,
    )


def _best_rule(
    columns: Sequence[Column], scores: Floats, expected: Floats, smallest: int
) -> tuple[tuple[Condition, ...], int] | None:
    """Conditions and contrast with the largest squared z."""
    singles = [c for k, column in enumerate(columns) for c in _conditions(k, column, smallest)]
    if not singles:
        return None
    masks = np.array([c.holds(columns) for c in singles])
    rows = masks.sum(axis=1)
    # A condition that leaves out almost nobody is no subgroup.
    large = (rows >= smallest) & (masks.shape[1] - rows >= smallest)
    if not large.any():
        return None
    z2 = np.where(large[:, None], np.square(_z(masks, scores, expected)), -1.0)
    best, contrast = np.unravel_index(np.argmax(z2), z2.shape)
    value = float(z2[best, contrast])
    conditions: tuple[Condition, ...] = (singles[best],)
    for first in np.argsort(-z2.max(axis=1))[:_FIRST]:
        if not large[first]:
            continue
        both = masks & masks[first]
        allowed = (both.sum(axis=1) >= smallest) & np.array([c.column != singles[first].column for c in singles])
        pair = np.where(allowed[:, None], np.square(_z(both, scores, expected)), -1.0)
        second, of_pair = np.unravel_index(np.argmax(pair), pair.shape)
        if pair[second, of_pair] > value + (_GAIN if len(conditions) == 1 else 0.0):
            value, contrast = float(pair[second, of_pair]), of_pair
            conditions = (singles[first], singles[second])
    return conditions, int(contrast)


def _z(masks: Mask, scores: Floats, expected: Floats) -> Floats:
    """Sum of each contrast over the rows of each mask, in units of its standard deviation, (masks, contrasts)."""
    given, some = np.stack([scores, np.square(scores), expected], axis=1), max(1, _NUMBERS // max(1, masks.shape[1]))
    pieces = (masks[k : k + some].astype(np.float64) for k in range(0, masks.shape[0], some))
    sums, seen, right = np.concatenate([np.tensordot(piece, given, axes=1) for piece in pieces]).transpose(1, 0, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(sums / np.sqrt(np.maximum(seen, right)))


def _conditions(index: int, column: Column, smallest: int) -> list[Condition]:
    if column.labels is not None:
        # There may be thousands of labels, most of them too rare for a subgroup.
        rows = np.bincount(column.values.astype(np.intp), minlength=len(column.labels))
        often = [(k, label) for k, label in enumerate(column.labels) if rows[k] >= smallest]
        return [Condition(index, f"{column.name} = {label}", float(k), "is") for k, label in often]
    low, high = column.values.min(), column.values.max()
    # Of yes and no, written as 1 and 0, a person says which it is.
    two = bool(np.isin(column.values, (low, high)).all())
    cuts = np.unique([low]) if two else column.cuts(_CUTS)
    words = (f"= {low:.6g}", f"= {high:.6g}") if two else ("≤ {:.6g}", "> {:.6g}")
    return [
        Condition(index, f"{column.name} {sign.format(cut)}", float(cut), kind)
        for cut in cuts[(cuts >= low) & (cuts < high)]
        for sign, kind in zip(words, ("up to", "above"), strict=True)
    ]


def departure_in_words(mass: Floats, edges: Edges, *, least: float = 0.0) -> str:
    """Return what a histogram of F shows: its larger departure from flat, in location or in spread.

    "" where that is less than the share `least` of all squared departures, over the widths of the bins.

    Of a subgroup the contrast that was tested need not be the larger one: with censored rows the spread has the smaller
    noise, and a histogram that rises from left to right can be surest there.
    """
    shapes, width = contrasts(edges), np.diff(edges)
    size = np.sqrt(width @ np.square(shapes))
    # One bin has no shape, and two have no spread.
    location, spread = np.divide((mass - width) @ shapes, size, out=np.zeros(2), where=size > 1e-9)
    if location == spread == 0 or max(location**2, spread**2) < least * float((np.square(mass - width) / width).sum()):
        return ""
    if abs(location) >= abs(spread):
        return f"events come {'later' if location > 0 else 'earlier'} than predicted"
    return f"predicted distributions are too {'narrow (over-confident)' if spread > 0 else 'wide (under-confident)'}"
