"""Survival distributions: parameters of shape ``(..., n)`` in, stable log-likelihoods and probabilities out."""

from xcal.distributions._bins import as_edges, quantile_edges
from xcal.distributions.base import Family, SurvivalDistribution
from xcal.distributions.composed import RecalibratedDistribution, mixture
from xcal.distributions.discrete import MTLR, Categorical, LogisticHazard
from xcal.distributions.families import FAMILIES, family
from xcal.distributions.parametric import LogLogistic, LogNormal, Weibull

__all__ = [
    "FAMILIES",
    "MTLR",
    "Categorical",
    "Family",
    "LogLogistic",
    "LogNormal",
    "LogisticHazard",
    "RecalibratedDistribution",
    "SurvivalDistribution",
    "Weibull",
    "as_edges",
    "family",
    "mixture",
    "quantile_edges",
]
