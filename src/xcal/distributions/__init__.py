"""Survival distributions: parameters of shape ``(..., n)`` in, stable log-likelihoods and probabilities out."""

from xcal.distributions.base import SurvivalDistribution
from xcal.distributions.categorical import Categorical
from xcal.distributions.discrete import DiscreteDistribution
from xcal.distributions.edges import as_edges, quantile_edges
from xcal.distributions.families import FAMILIES, family
from xcal.distributions.family_base import Family
from xcal.distributions.logistic_hazard import LogisticHazard
from xcal.distributions.loglogistic import LogLogistic
from xcal.distributions.lognormal import LogNormal
from xcal.distributions.mixture import Mixture, mixture
from xcal.distributions.mtlr import MTLR
from xcal.distributions.recalibrated import RecalibratedDistribution
from xcal.distributions.weibull import Weibull

__all__ = [
    "FAMILIES",
    "MTLR",
    "Categorical",
    "DiscreteDistribution",
    "Family",
    "LogLogistic",
    "LogNormal",
    "LogisticHazard",
    "Mixture",
    "RecalibratedDistribution",
    "SurvivalDistribution",
    "Weibull",
    "as_edges",
    "family",
    "mixture",
    "quantile_edges",
]
