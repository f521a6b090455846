"""The time by which the published code ranked rows in the concordance."""

from torch import Tensor

from xcal._checks import fail
from xcal.distributions.base import SurvivalDistribution
from xcal.distributions.lognormal import LogNormal
from xcal.published.shifted import unshifted


def ranking_time(dist: SurvivalDistribution) -> Tensor:
    """Predicted time of every row, ``(..., n)``, as published.

    The mean over bin mid-points for discrete models, the mode for the log-normal, the median for the Weibull.
    """
    if not isinstance(dist, SurvivalDistribution):
        fail("dist", "a SurvivalDistribution", type(dist).__name__)
    base = unshifted(dist)
    if base.bins is not None:
        return base.bins.midpoint_mean
    return base.mode if isinstance(base, LogNormal) else dist.median
