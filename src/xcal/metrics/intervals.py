"""Intervals: from the spread of resamples, and for distances from a perfect model what the noise allows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri

from xcal._checks import MANY, as_count, as_number, fail
from xcal.calibration.bins import Clusters
from xcal.metrics.inputs import Integers, Matrix, Vector

_DRAWS = 2000
_STEPS = 25  # halvings of an interval: to 3e-8 of its length
_FARTHEST = 500.0  # on any scale: beyond, a share is 0 or 1
Scale = tuple[Callable[[Any], Any], Callable[[Any], Any]]
# Scales on which a metric has no bounds, and is closer to normal; there and back.
PLAIN: Scale = (np.asarray, np.asarray)
SHARE: Scale = (logit, expit)
POSITIVE: Scale = (np.log, np.exp)
GAIN: Scale = (lambda gain: np.log1p(-gain), lambda lost: -np.expm1(lost))


@dataclass(frozen=True)
class Distance:
    """A distance from a perfect model, zero at best: what was observed, and what noise makes of that.

    Attributes
    ----------
    value : float
        As observed. Noise adds to it: a perfect model does not score zero.
    floor : float
        What a perfect model scores on average on as many rows.
    excess : float
        The true distance at which a value such as this one is as often exceeded as not; 0 if a perfect model often
        scores so much, and at most `value`.
    lower, upper : float
        Interval of the true distance. `upper` is never below `value`: a lucky value is no proof.
    """

    value: float
    floor: float
    excess: float
    lower: float
    upper: float


UNKNOWN_DISTANCE = Distance(*[float("nan")] * 5)


def true_distance(value: float, lengths: Callable[[float], Vector], level: float) -> Distance:
    """Return what is known of a distance, from how noise lengthens it.

    Parameters
    ----------
    value : float
        The distance observed.
    lengths : callable
        ``lengths(m)``: what would be observed in many draws of the noise if the true distance were m. It grows with m.
    level : float
        Coverage of the interval: it holds every m under which the observed value is neither among the largest nor
        among the smallest of the draws.
    """
    if not np.isfinite(value):
        return UNKNOWN_DISTANCE
    at_zero = lengths(0.0)

    def reached(m: float, share: float) -> bool:
        return bool(np.quantile(at_zero if m == 0 else lengths(m), share) >= value)

    return _least_reached(value, at_zero, reached, level)


def true_distance_by_counts(value: float, at_zero: Vector, below: Callable[[float], float], level: float) -> Distance:
    """Return what is known of a distance as `true_distance` does, where lengths are slower to find than to compare.

    Parameters
    ----------
    value : float
        The distance observed.
    at_zero : array, shape (draws,)
        What noise alone makes of a true distance of zero, in many draws.
    below : callable
        ``below(m)``: the share of the draws in which less than `value` would be observed if the true distance were m.
    level : float
        Coverage of the interval.
    """
    if not np.isfinite(value):
        return UNKNOWN_DISTANCE
    return _least_reached(value, at_zero, lambda m, share: below(m) <= share, level)


def _least_reached(value: float, at_zero: Vector, reached: Callable[[float, float], bool], level: float) -> Distance:
    """Return a distance from whether, under a true distance m, a quantile of the draws reaches what was observed."""
    tail = (1 - level) / 2
    most = float(2 * value + 4 * at_zero.max(initial=0.0) + np.finfo(float).tiny)

    def where(share: float) -> float:
        """Smallest m whose quantile reaches the observed value."""
        low, high = 0.0, most
        if reached(0.0, share):
            return 0.0
        for _ in range(_STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if reached(middle, share) else (middle, high)
        return high

    # Noise can shorten a quantile where the curve crosses the diagonal; no more than was observed is claimed.
    excess, lower = min(where(0.5), value), min(where(1 - tail), value)
    return Distance(float(value), float(at_zero.mean()), float(excess), float(lower), float(max(where(tail), value)))


def true_square(value: float, along: Vector, squares: Vector, level: float) -> Distance:
    """Return what is known of a squared length, from draws of the noise of the vector whose length it is.

    Parameters
    ----------
    value : float
        The squared length observed.
    along, squares : arrays, shape (draws,)
        Of each draw of the noise, its component along the vector observed, and its squared length. Draws with NaN, in
        which the vector was not determined, are left out.
    level : float
        Coverage.
    """
    known = np.isfinite(along) & np.isfinite(squares)
    if not known.any():
        return UNKNOWN_DISTANCE
    a, s = along[known], squares[known]

    def lengths(m: float) -> Vector:
        return np.asarray(np.sqrt(np.maximum(m * m + 2 * m * a + s, 0.0)))

    found = true_distance(float(np.sqrt(value)), lengths, level)
    return Distance(float(value), float(s.mean()), found.excess**2, found.lower**2, found.upper**2)


def even_square(value: float, floor: float, dimensions: int, level: float) -> Distance:
    """Return what is known of a squared length whose noise is the same in so many dimensions, `floor` in all.

    By formula in place of resamples: the part of the noise along the vector is normal, the rest chi-squared.
    """
    rng = np.random.default_rng(0)
    along = rng.normal(size=_DRAWS) * (floor / dimensions) ** 0.5
    beside = rng.chisquare(dimensions - 1, size=_DRAWS) * floor / dimensions if dimensions > 1 else np.zeros(_DRAWS)
    return true_square(value, along, np.square(along) + beside, level)


def uneven_square(deviation: Vector, residuals: Matrix, level: float) -> Distance:
    """Return what is known of the squared length of a mean, by normal noise with the covariance of its terms.

    `deviation` is the mean, and `residuals`, shape (terms, dimensions), are independent terms that add up to it.
    """
    noise = np.random.default_rng(0).normal(size=(_DRAWS, deviation.size)) @ _root(residuals.T @ residuals)
    length = float(deviation @ deviation)
    return true_square(length, noise @ unit(deviation), np.square(noise).sum(axis=1), level)


def _root(covariance: Matrix) -> Matrix:
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T)


def unit(vector: Vector) -> Vector:
    """Return the direction of a vector, of length 1; zero where it has none."""
    length = float(np.sqrt(np.square(vector).sum()))
    return vector / length if length > 0 else np.zeros_like(vector)


def resampled_rows(n: int, clusters: Clusters | None, generator: np.random.Generator) -> Integers:
    """Draw rows with replacement, as many as there are; or whole clusters with replacement, as many as there are.

    Clusters are drawn by their place in the order of the labels. Clusters of one row each, labelled in the order of the
    rows, give the same draws as no clusters.
    """
    if clusters is None:
        return generator.integers(n, size=n)
    order = np.argsort(clusters.codes, kind="stable")
    sizes = np.bincount(clusters.codes, minlength=clusters.count)
    first = np.cumsum(sizes) - sizes
    drawn = generator.integers(clusters.count, size=clusters.count)
    # Place of each drawn row within its cluster: 0, 1, ..., and again for the next one.
    before = np.repeat(np.cumsum(sizes[drawn]) - sizes[drawn], sizes[drawn])
    place = np.arange(before.size) - before
    rows: Integers = order[np.repeat(first[drawn], sizes[drawn]) + place]
    return rows


def check_bootstrap(n_bootstrap: Any, level: Any, generator: Any) -> None:
    """Check what a function with bootstrap intervals was asked for."""
    as_count("n_bootstrap", n_bootstrap, at_least=0, at_most=MANY)
    as_number("level", level, above=0, below=1)
    if n_bootstrap and not isinstance(generator, np.random.Generator):
        fail("generator", "a numpy.random.Generator when n_bootstrap is set", type(generator).__name__)


def resampled_interval(
    value: float, draws: Sequence[float] | Vector, level: float, scale: Scale = PLAIN
) -> tuple[float, float]:
    """Return the interval of a metric: so many standard errors around its value, these from resamples.

    AUC and concordances on the log-odds scale, Brier scores on the log scale, the scaled Brier score on that of what is
    left of the error. Percentiles of 100 resamples hold the truth in .88 to .95 of small samples where these hold it in
    .92 to .97 (docs/metrics.md). Where the scale has no value, as for an AUC of 1, percentiles.
    """
    drawn = np.asarray(draws, dtype=np.float64)
    drawn = drawn[np.isfinite(drawn)]
    if drawn.size < 2 or not np.isfinite(value):
        return percentile_interval(drawn, level)
    there, back = scale
    with np.errstate(divide="ignore", invalid="ignore"):
        centre, spread = there(value), np.std(there(drawn), ddof=1)
    if not (np.isfinite(centre) and np.isfinite(spread)):
        return percentile_interval(drawn, level)
    ends = back(centre + float(ndtri((1 + level) / 2)) * spread * np.array([-1.0, 1.0]))
    return float(min(ends)), float(max(ends))


def resampled_intervals(values: Vector, draws: Sequence[Vector] | Matrix, level: float) -> tuple[Vector, Vector]:
    """Return such an interval at each point of a curve; `draws` have shape (resamples, points)."""
    ends = [resampled_interval(float(v), own, level) for v, own in zip(values, np.transpose(draws), strict=True)]
    lower, upper = np.transpose(ends)
    return lower, upper


def percentile_interval(draws: Sequence[float] | Vector, level: float) -> tuple[float, float]:
    """Percentile interval over the resamples in which the metric was defined."""
    defined = [value for value in draws if np.isfinite(value)]
    if not defined:
        return float("nan"), float("nan")
    lower, upper = np.quantile(defined, [(1 - level) / 2, (1 + level) / 2])
    return float(lower), float(upper)


def times_as_many(lower: float, upper: float, width: float, scale: Scale = PLAIN) -> float:
    """Return how many times as many rows like these make an interval so wide.

    Errors shrink with the root of the number of rows, on the scale on which the interval is even. NaN where there is no
    interval; 0 where it can never be so wide.

    Examples
    --------
    >>> round(times_as_many(0.8, 1.2, 0.2), 6), round(times_as_many(0.8, 1.25, 0.2, POSITIVE), 2)
    (4.0, 5.0)
    """
    there, back = scale
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = float(there(lower)), float(there(upper))
    if not (np.isfinite(low) and np.isfinite(high)):
        return float("nan")
    middle, reach = (low + high) / 2, (high - low) / 2

    def too_wide(half: float) -> float:
        return float(back(middle + half) - back(middle - half)) - width

    most = 2 * reach + width
    while too_wide(most) <= 0:
        if most > _FARTHEST:
            return 0.0
        most *= 2
    return (reach / float(brentq(too_wide, 0.0, most, xtol=1e-14))) ** 2
