"""Random effects across sites: the mean of a value over hospitals, how much they differ, and what a new one may show.

Each site has a value y_i (O/E, slope, AUC) and its standard error s_i. The values of the sites themselves are taken to
be normal around a mean with variance tau², on a scale on which that is plausible (logarithm of O/E, log-odds of AUC):

    y_i ~ N(mu, s_i² + tau²)

tau² is the restricted maximum likelihood estimate, the error of the mean that of Hartung, Knapp, Sidik and Jonkman, and
the interval for a new site the one that Debray and others (BMJ 2017;356:i6460) advise for prediction models.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtri
from scipy.stats import chi2
from scipy.stats import t as student

from xcal._checks import as_floats, as_number, as_row, check_same_length, fail, first_row
from xcal.metrics.inputs import Vector
from xcal.metrics.intervals import PLAIN, Scale

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
