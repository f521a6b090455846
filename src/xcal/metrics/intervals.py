"""Intervals: from the spread of resamples, for distances from a perfect model what the noise allows, across sites."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri
from scipy.stats import chi2
from scipy.stats import t as student

from xcal._checks import as_floats, as_number, as_row, check_same_length, fail, first_row
from xcal.metrics.inputs import Matrix, Vector

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


# --- Random effects across sites: the mean of a value, how much the sites differ, and what a new one may show.
# Each site has a value y_i (O/E, slope, AUC) and its standard error s_i. The values of the sites are taken to be normal
# around a mean with variance tau², on a scale on which that is plausible (logarithm of O/E, log-odds of AUC):
#
#     y_i ~ N(mu, s_i² + tau²)
#
# tau² is the restricted maximum likelihood estimate, the error of the mean that of Hartung, Knapp, Sidik and Jonkman,
# and the interval for a new site the one that Debray and others (BMJ 2017;356:i6460) advise for prediction models.

# Sites from which the spread of a new one can be told at all: its t distribution has two degrees of freedom fewer.
FEWEST_FOR_NEW_SITE = 3


@dataclass(frozen=True)
class AcrossSites:
    """A value across sites.

    Attributes
    ----------
    n_sites : int
        Sites that have a value with an error.
    mean, lower, upper : float
        Mean over sites and its interval.
    tau2 : float
        Variance between sites beyond chance, on the scale on which they were averaged.
    i2 : float
        Share of the variance of the values that is not chance, from 0 to 1.
    p_value : float
        Of Cochran's test that all sites are alike.
    new_lower, new_upper : float
        Prediction interval: where the value of a new site is expected. NaN with fewer than three sites.
    """

    n_sites: int
    mean: float
    lower: float
    upper: float
    tau2: float
    i2: float
    p_value: float
    new_lower: float
    new_upper: float


def random_effects(values: Any, errors: Any, *, level: float = 0.95, scale: Scale = PLAIN) -> AcrossSites:
    r"""Return the mean of a value over sites, how much the sites differ, and the interval for a new site.

    .. math:: \hat\mu = \frac{\sum w_i y_i}{\sum w_i}, \quad w_i = \frac{1}{s_i^2 + \tau^2}, \qquad
              \hat\mu \pm t_{k-2} \sqrt{\tau^2 + \frac{\sum w_i (y_i - \hat\mu)^2}{(k-1) \sum w_i}}

    Parameters
    ----------
    values : array-like, shape (k,)
        One per site, as people read them.
    errors : array-like, shape (k,)
        Standard errors above 0, on the scale on which values are averaged.
    level : float
        Coverage of both intervals.
    scale : pair of functions
        To the scale on which values are averaged, and back: `xcal.metrics.intervals.POSITIVE` for ratios, `SHARE` for
        AUC. By default values are averaged as they are.

    References
    ----------
    Debray, Damen, Snell and others. A guide to systematic review and meta-analysis of prediction model performance.
    BMJ 2017;356:i6460.

    Examples
    --------
    >>> found = random_effects([1.1, 0.8, 1.4, 1.0], [0.1, 0.1, 0.15, 0.12])
    >>> f"{found.mean:.2f} ({found.lower:.2f} to {found.upper:.2f}), I2 {found.i2:.0%}"
    '1.06 (0.67 to 1.45), I2 77%'
    """
    to, back = scale
    level = as_number("level", level, above=0, below=1)
    s: Vector = as_floats("errors", as_row("errors", errors)).astype(np.float64)
    plain: Vector = as_floats("values", as_row("values", values)).astype(np.float64)
    check_same_length("errors", s, "values", plain.size)
    if plain.size < 2:
        fail("values", "those of two sites or more", f"{plain.size}")
    bad = ~(np.isfinite(s) & (s > 0))
    if bad.any():
        fail("errors", "finite standard errors above 0", s[first_row(bad)], first_row(bad))
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.asarray(to(plain))
    if not np.isfinite(y).all():
        row = first_row(~np.isfinite(y))
        fail("values", "values that are finite on the scale on which they are averaged", plain[row], row)
    k, variance = y.size, s**2
    tau2 = _restricted_likelihood(y, variance)
    weight = 1 / (variance + tau2)
    mean = float(weight @ y / weight.sum())
    error = float(np.sqrt(weight @ (y - mean) ** 2 / ((k - 1) * weight.sum())))
    reach = float(student.ppf((1 + level) / 2, k - 1)) * error
    new = np.nan
    if k >= FEWEST_FOR_NEW_SITE:
        new = float(student.ppf((1 + level) / 2, k - 2)) * float(np.sqrt(tau2 + error**2))
    one = 1 / variance
    q = float(one @ (y - one @ y / one.sum()) ** 2)
    # The variance of a typical site's chance (Higgins and Thompson 2002).
    typical = (k - 1) * one.sum() / (one.sum() ** 2 - one @ one)
    ends = (float(back(mean + side)) for side in (0.0, -reach, reach, -new, new))
    middle, lower, upper, new_lower, new_upper = ends
    return AcrossSites(
        k, middle, lower, upper, tau2, float(tau2 / (tau2 + typical)), float(chi2.sf(q, k - 1)), new_lower, new_upper
    )


def _restricted_likelihood(y: Vector, variance: Vector) -> float:
    """Return the tau² at which the slope of the restricted likelihood is 0; 0 if it falls from the start."""

    def slope(tau2: float) -> float:
        weight = 1 / (variance + tau2)
        mean = weight @ y / weight.sum()
        return float(weight**2 @ (y - mean) ** 2 - weight.sum() + weight @ weight / weight.sum())

    if slope(0.0) <= 0:
        return 0.0
    above = float(y.var()) + float(variance.max())
    while slope(above) > 0:
        above *= 2
    return float(brentq(slope, 0.0, above, xtol=1e-14, rtol=1e-13))


def error_of_interval(lower: float, upper: float, level: float, scale: Scale) -> float:
    """Return the standard error that an interval stands for, on the scale on which it is even."""
    low, high = (float(scale[0](end)) for end in (lower, upper))
    return (high - low) / (2 * float(ndtri((1 + level) / 2)))
