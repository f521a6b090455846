"""Probability-probability plot of F at the observed times, with a band."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import kolmogi

from xcal._checks import MANY, as_event, as_number, as_probability, check_rows
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.metrics.inputs import Vector, as_count


@dataclass(frozen=True, eq=False, repr=False)
class PPCurve:
    """Probability-probability plot: the distribution of F at the observed times (Kaplan-Meier) against the diagonal."""

    predicted: Vector  # grid of probabilities, 0 to 1
    observed: Vector  # share of rows with F up to there
    lower: Vector  # simultaneous band of `observed`
    upper: Vector


def pp_curve(cdf: Any, *, event: Any, level: float = 0.95, n_points: int = 101) -> PPCurve:
    r"""Share of rows whose event came before the model's own quantile, at every level, with a simultaneous band.

    The curve is one minus Kaplan-Meier with F in the place of time; a calibrated model has the diagonal. The band is
    that of Hall and Wellner,

    .. math:: \hat S(u) \pm \frac{k}{\sqrt n} \hat S(u) (1 + n \hat\sigma^2(u)), \qquad
              \hat\sigma^2(u) = \sum_{u_j \le u} \frac{d_j}{r_j (r_j - d_j)}

    with k from Kolmogorov's distribution: without censoring it is Kolmogorov's band. It holds the whole curve with at
    least the given probability, more where the follow-up does not reach 1.

    Parameters
    ----------
    cdf : array-like, shape (n,)
        F at each row's observed time.
    event : array-like, shape (n,)
        True where the event happened.
    level : float
        Coverage of the band.
    n_points : int
        Points of the grid from 0 to 1.

    Returns
    -------
    PPCurve
        NaN beyond the largest F of a row, unless every row had its event by then; the band is cut at 0 and 1.

    References
    ----------
    Hall, Wellner (1980), Biometrika 67(1):133-143.

    Examples
    --------
    >>> u = (np.arange(100) + 0.5) / 100
    >>> curve = pp_curve(u, event=np.ones(100))
    >>> abs(curve.observed - curve.predicted).max().round(3)
    np.float64(0.0)
    """
    check_rows({"cdf": cdf, "event": event})
    u = as_probability("cdf", cdf)
    happened = as_event(event, u.size)
    as_number("level", level, above=0, below=1)
    grid = np.linspace(0, 1, as_count("n_points", n_points, at_least=2, at_most=MANY))
    curve = fit_kaplan_meier(u, happened)
    survival = curve.at(grid)
    left = curve.at_risk - curve.counts
    terms = np.divide(curve.counts, curve.at_risk * left, out=np.zeros_like(left), where=left > 0)
    variance = np.append(0.0, np.cumsum(terms))[np.searchsorted(curve.times, grid, side="right")]
    reach = float(kolmogi(1 - level)) / np.sqrt(u.size) * survival * (1 + u.size * variance)
    # Where the curve has come down to zero its own variance says nothing; the band keeps its last width.
    ended = survival <= 0
    if ended.any() and not ended.all():
        reach[ended] = reach[~ended][-1]
    unseen = (grid > u.max()) & (curve.survival[-1] > 0)
    observed = np.where(unseen, np.nan, 1 - survival)
    return PPCurve(grid, observed, np.maximum(observed - reach, 0.0), np.minimum(observed + reach, 1.0))
