"""Families: from raw network outputs to a distribution.

A family says how many raw outputs a network must give for each row, turns them into a distribution, and gives initial
values for them from the training times. `FAMILIES` maps names to functions that make the family, with the edges where
it needs them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
import torch
from scipy import special
from torch import Tensor

from xcal._checks import as_choice, as_count, fail
from xcal._imports import published
from xcal.distributions.base import Family, SurvivalDistribution, location_and_scale
from xcal.distributions.causes import CauseFamily
from xcal.distributions.discrete import MTLR, Categorical, DiscreteFamily, LogisticHazard
from xcal.distributions.parametric import LogLogistic, LogNormal, Weibull

# exp(80) and exp(-80) are finite in float32, and so are products of a few of exp(20). Nothing else is clamped.
LOG_SCALE_LIMIT = 80.0
_LOG_SHAPE_LIMIT = 20.0


class _LocationFamily(Family):
    """Base of the families whose first raw output is a location on the scale of log-time."""

    n_outputs: ClassVar[int] = 2

    def scaled(self, raw: Tensor, factor: float) -> SurvivalDistribution:
        """Return the distribution of `factor` times the time: the location is moved."""
        return self.distribution(raw + raw.new_tensor([math.log(factor), 0.0]))


@final
@dataclass(frozen=True)
class LogNormalFamily(_LocationFamily):
    """Location and log-scale as they come.

    Examples
    --------
    >>> family = LogNormalFamily()
    >>> family.distribution(torch.tensor([[0.0, 0.0]])).median
    tensor([1.])
    """

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        log_scale = torch.clamp(raw[..., 1], -_LOG_SHAPE_LIMIT, _LOG_SHAPE_LIMIT)
        return LogNormal(raw[..., 0], log_scale)

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Probability plot on normal paper."""
        loc, scale = location_and_scale(time, event, entry, lower, special.ndtri)
        return torch.tensor([loc, np.log(scale)], dtype=torch.float64)


@final
@dataclass(frozen=True)
class WeibullFamily(_LocationFamily):
    """Log-scale and log-concentration, both free."""

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        return Weibull(*_scale_and_shape(raw))

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Probability plot on Weibull paper."""
        loc, scale = location_and_scale(time, event, entry, lower, lambda p: np.log(-np.log1p(-p)))
        return torch.tensor([loc, -np.log(scale)], dtype=torch.float64)


@final
@dataclass(frozen=True)
class LogLogisticFamily(_LocationFamily):
    """Log-scale and log-concentration, both free."""

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        return LogLogistic(*_scale_and_shape(raw))

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Probability plot on logistic paper."""
        loc, scale = location_and_scale(time, event, entry, lower, special.logit)
        return torch.tensor([loc, -np.log(scale)], dtype=torch.float64)


@final
@dataclass(frozen=True, eq=False)
class CategoricalFamily(DiscreteFamily):
    """One logit for each bin between `edges`.

    Examples
    --------
    >>> family = CategoricalFamily(edges=[0.0, 1.0, 2.0, 4.0], interpolation="step")
    >>> family.n_outputs
    3
    """

    @property
    def n_outputs(self) -> int:
        """Number of bins."""
        return self.edges.shape[0] - 1

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        return Categorical(raw, self.grid(raw), self.interpolation)

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Log of the Kaplan-Meier share of each bin."""
        return torch.from_numpy(self.log_shares(time, event, entry, lower))


@final
@dataclass(frozen=True, eq=False)
class MTLRFamily(DiscreteFamily):
    """One score for each bin between `edges` but the last."""

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        return MTLR(raw, self.grid(raw), self.interpolation)

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Scores whose reversed cumulative sum is the log of the Kaplan-Meier shares, up to a constant."""
        logits = self.log_shares(time, event, entry, lower)
        return torch.from_numpy(logits[:-1] - logits[1:])


@final
@dataclass(frozen=True, eq=False)
class LogisticHazardFamily(DiscreteFamily):
    """One logit of the hazard for each bin between `edges` but the last."""

    by_hazards: ClassVar[bool] = True

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        return LogisticHazard(raw, self.grid(raw), self.interpolation)

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Logits of the Kaplan-Meier share of each bin among those who reach it."""
        share = np.exp(self.log_shares(time, event, entry, lower))
        later = share[::-1].cumsum()[::-1][1:]
        return torch.from_numpy(np.log(share[:-1] / later))


def _published(name: str) -> Family:
    # The families of the paper's code belong to another package; they are offered here by name.
    made: Family = published(name)()
    return made


FAMILIES: dict[str, Callable[..., Family]] = {
    "mtlr": MTLRFamily,
    "categorical": CategoricalFamily,
    "logistic-hazard": LogisticHazardFamily,
    "lognormal": LogNormalFamily,
    "lognormal-published": partial(_published, "lognormal-published"),
    "weibull": WeibullFamily,
    "weibull-published": partial(_published, "weibull-published"),
    "loglogistic": LogLogisticFamily,
}
# Those of the estimators. The published ones have constants in units of time, which scaling would change.
DISCRETE = tuple(name for name, made in FAMILIES.items() if isinstance(made, type) and issubclass(made, DiscreteFamily))
CONTINUOUS = tuple(name for name, made in FAMILIES.items() if isinstance(made, type) and name not in DISCRETE)


def family(
    name: str, *, edges: Any = None, interpolation: str | None = None, causes: int = 1, end: float | None = None
) -> Family:
    """Make a family by name.

    Parameters
    ----------
    name
        One of `FAMILIES`.
    edges
        Time edges, for the discrete families and only for them.
    interpolation
        ``"step"`` or ``"linear"`` (the default), for the discrete families and only for them.
    causes
        How many causes an event may have: bins times causes for "categorical" (the head of DeepHit) and "mtlr", a
        hazard for each cause in each bin for "logistic-hazard", and at all times for the continuous ones. With 1 the
        family is the one that knows no causes.
    end
        With causes and a continuous family, the last time of the survival CRPS, which needs one.

    Examples
    --------
    >>> family("weibull").n_outputs
    2
    >>> family("mtlr", edges=[0.0, 1.0, 2.0, 4.0]).n_outputs
    2
    >>> family("mtlr", edges=[0.0, 1.0, 2.0, 4.0], causes=2).n_outputs
    5
    """
    as_choice("name", name, FAMILIES)
    if as_count("causes", causes, at_least=1) > 1:
        as_choice("name", name, (*DISCRETE, *CONTINUOUS))
        return CauseFamily(family(name, edges=edges, interpolation=interpolation), causes, end)
    kind = FAMILIES[name]
    if name in DISCRETE:
        if edges is None:
            fail("edges", f"time edges, which the {name} family needs (see quantile_edges)", None)
        return kind(edges, "linear" if interpolation is None else interpolation)
    if edges is not None or interpolation is not None:
        fail("edges", f"no edges and no interpolation: the {name} family is continuous", "some")
    return FAMILIES[name]()


def _scale_and_shape(raw: Tensor) -> tuple[Tensor, Tensor]:
    scale = torch.exp(torch.clamp(raw[..., 0], -LOG_SCALE_LIMIT, LOG_SCALE_LIMIT))
    return scale, torch.exp(torch.clamp(raw[..., 1], -_LOG_SHAPE_LIMIT, _LOG_SHAPE_LIMIT))
