"""The published code where it departs from the paper's equations: likelihood, survival CRPS, families, ranking.

This module exists to reproduce the paper's tables, and for nothing else; `paper/docs/fidelity.md` lists the
differences. Three public options of xcal lead here, by the entry points of this package: ``nll(...,
as_published=True)``, ``survival_crps(..., as_published=True)``, and the families "lognormal-published" and
"weibull-published".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor
from torch.nn.functional import softplus

from xcal._checks import fail
from xcal.distributions.base import Family, SurvivalDistribution, split_zero
from xcal.distributions.families import LOG_SCALE_LIMIT
from xcal.distributions.parametric import LogNormal, Weibull, ndtr
from xcal.objectives import RowTerms, check_rows, gives_cdf, has_formula, negative_likelihood

__all__ = [
    "FLOOR",
    "PublishedLogNormalFamily",
    "PublishedWeibullFamily",
    "Shifted",
    "counted_as_event",
    "published_nll",
    "published_survival_crps",
    "ranking_time",
]

# Modules that these had before; a fingerprint of a run knows them by it (`xcal.training.checkpoint`).
FORMER_MODULES = {
    "Shifted": "xcal.published.shifted",
    "PublishedLogNormalFamily": "xcal.published.families",
    "PublishedWeibullFamily": "xcal.published.families",
    "counted_as_event": "xcal.published.likelihood",
    "log_likelihood": "xcal.published.likelihood",
    "published_nll": "xcal.published.likelihood",
    "trapezoid_survival_crps": "xcal.published.crps",
    "published_survival_crps": "xcal.published.crps",
    "ranking_time": "xcal.published.ranking",
}


@final
class Shifted(SurvivalDistribution):
    """Another distribution read at ``time + shift``: density, cdf and survival of `base`, all a little later.

    The published code added 1e-4 to the time in the density and the cdf of its continuous models; this is that
    offset, and it exists for nothing else. F at time zero is ``base.cdf(shift)``, not exactly 0, and times are
    quantiles and draws of `base` minus the shift.

    Parameters
    ----------
    base
        The distribution to read.
    shift
        Offset added to every time, in the unit of the times.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> base = Weibull(torch.tensor([1.0]), torch.tensor([1.0]))
    >>> Shifted(base, 1e-4).log_survival(torch.tensor([0.5]))
    tensor([-0.5001])
    """

    def __init__(self, base: SurvivalDistribution, shift: float) -> None:
        self.base = base
        self.shift = shift

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the distribution inside."""
        return self.base.batch_shape

    def _later(self, time: Tensor) -> Tensor:
        """``time + shift``; whole numbers become numbers of the type of `base` first."""
        if not time.is_floating_point():
            time = time.to(self.base.example.dtype)
        return time + self.shift

    def log_prob(self, time: Tensor) -> Tensor:
        """``base.log_prob(time + shift)``."""
        return self.base.log_prob(self._later(time))

    def log_density(self, time: Tensor) -> Tensor:
        """``base.log_density(time + shift)``."""
        return self.base.log_density(self._later(time))

    def log_survival(self, time: Tensor) -> Tensor:
        """``base.log_survival(time + shift)``."""
        return self.base.log_survival(self._later(time))

    def log_censored(self, time: Tensor) -> Tensor:
        """``base.log_censored(time + shift)``."""
        return self.base.log_censored(self._later(time))

    def cdf(self, time: Tensor) -> Tensor:
        """``base.cdf(time + shift)``."""
        return self.base.cdf(self._later(time))

    def hazard(self, time: Tensor) -> Tensor:
        """``base.hazard(time + shift)``."""
        return self.base.hazard(self._later(time))

    def quantile(self, p: float | Tensor) -> Tensor:
        """``base.quantile(p) - shift``."""
        return self.base.quantile(p) - self.shift

    @property
    def mean(self) -> Tensor:
        """``base.mean - shift``."""
        return self.base.mean - self.shift

    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draws of `base`, minus the shift."""
        return self.base.sample(generator, shape) - self.shift

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of ``base.cdf(z + shift)^2`` for z from 0 to `time`."""
        later = self._later(torch.clamp(time, min=0))
        return self.base.squared_cdf_below(later) - self.base.squared_cdf_below(torch.full_like(later, self.shift))

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of ``base.survival(z + shift)^2`` for z from `time` to infinity."""
        return self.base.squared_survival_above(self._later(time), needed)

    @property
    def read_in_steps(self) -> bool:
        """As `base` says."""
        return self.base.read_in_steps

    def exhausted(self, time: Tensor) -> Tensor:
        """``base.exhausted(time + shift)``."""
        return self.base.exhausted(self._later(time))


def unshifted(dist: SurvivalDistribution) -> SurvivalDistribution:
    """Return the distribution inside a `Shifted` one, and any other as it is."""
    return dist.base if isinstance(dist, Shifted) else dist


# ----------------------------------------------------------------------------------------------------------------------
# The families of the published code, with its constants.


# Time offset, and the log-normal scale's shift, ceiling and floor.
_TIME_SHIFT = 1e-4
_SOFTPLUS_SHIFT = 0.5
_LOG_SCALE_MAX = 10.0
_SCALE_FLOOR = 1e-4


@final
@dataclass(frozen=True)
class PublishedLogNormalFamily(Family):
    """As published: scale ``exp(min(softplus(raw) - 0.5, 10)) + 1e-4``, so never below 0.607, and times 1e-4 later."""

    n_outputs: ClassVar[int] = 2

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        log_scale = torch.clamp(softplus(raw[..., 1]) - _SOFTPLUS_SHIFT, max=_LOG_SCALE_MAX)
        scale = torch.exp(log_scale) + _SCALE_FLOOR
        return Shifted(LogNormal(raw[..., 0], torch.log(scale)), _TIME_SHIFT)

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Zeros: the published code had no initial values of its own."""
        return torch.zeros(self.n_outputs, dtype=torch.float64)


@final
@dataclass(frozen=True)
class PublishedWeibullFamily(Family):
    """As published: scale ``1 + exp(raw)``, concentration ``1 + sigmoid(raw)`` in (1, 2), and times 1e-4 later.

    The published network had no intercept in the scale; here that is for the network to decide.
    """

    n_outputs: ClassVar[int] = 2

    def _make(self, raw: Tensor) -> SurvivalDistribution:
        scale = 1.0 + torch.exp(torch.clamp(raw[..., 0], max=LOG_SCALE_LIMIT))
        return Shifted(Weibull(scale, 1.0 + torch.sigmoid(raw[..., 1])), _TIME_SHIFT)

    def initial(self, time: Any, event: Any, *, entry: Any = None, lower: Any = None) -> Tensor:
        """Zeros: the published code had no initial values of its own."""
        return torch.zeros(self.n_outputs, dtype=torch.float64)


# ----------------------------------------------------------------------------------------------------------------------
# The published code's likelihood: a floor under S, and censored rows of the last bin counted as events.


# The published code took log(1 - F + 1e-4) for a censored row.
FLOOR = 1e-4


def counted_as_event(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
    """Return the event indicator that the published code used.

    In the step reading a censored row of the last bin, where S is 0, counts as an event, here and in D-calibration.
    """
    return event | dist.exhausted(time) if dist.read_in_steps else event


def log_likelihood(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
    """Log-likelihood as published, one value per row; arguments are not checked."""
    counted = counted_as_event(dist, time, event)
    return torch.where(counted, dist.log_prob(time), torch.log(dist.survival(time) + FLOOR))


def _published_nll_and_cdf(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
    """`published_nll` and F of every row, from the distribution's own way to compute both together."""
    counted = counted_as_event(dist, time, event)
    together, cdf = dist.log_likelihood_and_cdf(time, counted, floor=FLOOR)
    return -together, cdf


def _published_nll_terms(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> RowTerms | None:
    counted = counted_as_event(dist, time, event)
    return negative_likelihood(dist.likelihood_by_formula(time, counted, floor=FLOOR))


@has_formula(_published_nll_terms)
@gives_cdf(_published_nll_and_cdf)
def published_nll(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
    """Negative log-likelihood as published, one value per row: ``nll(..., as_published=True)`` as an objective.

    Parameters
    ----------
    dist
        Distribution of shape ``(..., n)``.
    time
        Shape ``(n,)`` or ``(..., n)``.
    event
        Boolean, True where the event happened, same shape as `time`.

    Returns
    -------
    Tensor
        Shape ``(..., n)``.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> dist = Weibull(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]))
    >>> published_nll(dist, torch.tensor([2.0, 30.0]), torch.tensor([True, False]))
    tensor([2.0000, 9.2103])
    """
    check_rows(dist, time, event)
    return -log_likelihood(dist, time, event)


# ----------------------------------------------------------------------------------------------------------------------
# The published code's survival CRPS, which it had for the log-normal only.
#
# It departs from the definition twice: 32 trapezoids stand for each integral, and the right tail, mapped by w = 1 / z,
# integrates ``(1 - F)^2 / w`` where the change of variables asks for ``(1 - F)^2 / w^2``. At loc = 1, scale = 0.5, y =
# 2 it gives 0.199; the definition gives 0.490.


_POINTS = 32
# Published offsets: the first grid point, and what is added to each time before it is inverted.
_OFFSET = 1e-4


def _trapezoid(loc: Tensor, scale: Tensor, end: Tensor, weight: Callable[[Tensor], Tensor]) -> Tensor:
    grid = torch.linspace(_OFFSET, 1.0, _POINTS, dtype=loc.dtype, device=loc.device)
    z = end.unsqueeze(-1) * grid
    safe, at_zero = split_zero(z, z)
    cdf = torch.where(at_zero, 0.0, ndtr((torch.log(safe) - loc.unsqueeze(-1)) / scale.unsqueeze(-1)))
    value = cdf.square() * weight(z)
    return torch.trapezoid(value, z.expand(value.shape), dim=-1)


def trapezoid_survival_crps(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
    """Survival CRPS by the published rule, one value per row; a `Shifted` log-normal without its shift.

    The published survival CRPS did not use the offset of the times.
    """
    base = unshifted(dist)
    if not isinstance(base, LogNormal):
        fail("as_published", "a log-normal distribution, the only one published code scores", type(base).__name__)
    below = _trapezoid(base.loc, base.scale, time, torch.ones_like)
    above = _trapezoid(-base.loc, base.scale, 1.0 / (time + _OFFSET), lambda z: 1.0 / (z + _OFFSET))
    return torch.where(event, below + above, below)


def published_survival_crps(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
    """Survival CRPS as published, one value per row: ``survival_crps(..., as_published=True)`` as an objective.

    Parameters
    ----------
    dist
        Log-normal distribution of shape ``(..., n)``.
    time
        Shape ``(n,)`` or ``(..., n)``; finite.
    event
        Boolean, True where the event happened, same shape as `time`.

    Returns
    -------
    Tensor
        Shape ``(..., n)``.

    Examples
    --------
    >>> dist = LogNormal(torch.tensor([1.0]), torch.tensor([0.5]).log())
    >>> published_survival_crps(dist, torch.tensor([2.0]), torch.tensor([True]))
    tensor([0.1989])
    """
    check_rows(dist, time, event)
    return trapezoid_survival_crps(dist, time, event)


# ----------------------------------------------------------------------------------------------------------------------
# The time by which the published code ranked rows in the concordance.


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
