"""Equal mixtures of distributions, as several seeds of one model make them."""

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from xcal._checks import fail
from xcal.distributions._pieces import integral
from xcal.distributions.base import SurvivalDistribution, as_level
from xcal.distributions.categorical import Categorical
from xcal.distributions.discrete import DiscreteDistribution

# Halvings of the interval in which a quantile lies; a step of Newton's method finishes the work.
_HALVINGS = 48
# Levels between whose quantiles F of each component is smooth and not steep.
_TAILS = tuple(10.0**k for k in range(-12, 0))
_LEVELS = (*_TAILS, 0.25, 0.5, 0.75, *(1 - share for share in _TAILS))


def mixture(components: Sequence[SurvivalDistribution]) -> SurvivalDistribution:
    """Mix distributions of the same rows in equal parts: the mean of their F, of their S and of their densities.

    Discrete components on the same edges, read in the same way, make a `Categorical` with the mean of the masses.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> one, other = (Weibull(torch.tensor([scale]), torch.tensor([1.0])) for scale in (1.0, 4.0))
    >>> mixture([one, other]).survival(torch.tensor([2.0])), (one.survival(torch.tensor([2.0])) + 0.6065) / 2
    (tensor([0.3709]), tensor([0.3709]))
    """
    if not isinstance(components, Sequence) or not all(isinstance(one, SurvivalDistribution) for one in components):
        fail("components", "a list of distributions", repr(components))
    if len(components) == 0:
        fail("components", "at least one distribution", "none")
    first = components[0]
    if len(components) == 1:
        return first
    if isinstance(first, DiscreteDistribution):
        return _mixed_bins(components)
    return Mixture(components)


def _mixed_bins(components: Sequence[SurvivalDistribution]) -> Categorical:
    first = components[0]
    assert isinstance(first, DiscreteDistribution)
    masses = []
    for place, other in enumerate(components):
        alike = isinstance(other, DiscreteDistribution) and other.interpolation == first.interpolation
        if not isinstance(other, DiscreteDistribution) or not alike or not torch.equal(other.edges, first.edges):
            fail(f"components[{place}]", "the time bins of the first, read in the same way", repr(other))
        masses.append(other.log_mass)
    together = torch.logsumexp(torch.stack(torch.broadcast_tensors(*masses)), dim=0) - math.log(len(masses))
    return Categorical(together, first.edges, first.interpolation)


@final
class Mixture(SurvivalDistribution):
    """Equal mixture of continuous distributions of the same rows. Make it with `mixture`.

    For predictions: quantiles are found by halving, and the integrals of the survival CRPS by quadrature between
    quantiles of the components, to about nine digits.
    """

    def __init__(self, components: Sequence[SurvivalDistribution]) -> None:
        for place, component in enumerate(components):
            if component.bins is not None:
                fail(f"components[{place}]", "a continuous distribution (mixture() mixes bins)", repr(component))
        self.components = tuple(components)

    @property
    def batch_shape(self) -> torch.Size:
        """Shape of the components."""
        shape: torch.Size = torch.broadcast_shapes(*(component.batch_shape for component in self.components))
        return shape

    @property
    def example(self) -> Tensor:
        """That of a component: the median of a mixture is a search."""
        return self.components[0].example

    def _stack(self, method: str, *arguments: Tensor) -> Tensor:
        return torch.stack(torch.broadcast_tensors(*(getattr(c, method)(*arguments) for c in self.components)))

    def _log_mean(self, logs: Tensor) -> Tensor:
        return torch.logsumexp(logs, dim=0) - math.log(len(self.components))

    def log_prob(self, time: Tensor) -> Tensor:
        """Log of the mean density."""
        return self._log_mean(self._stack("log_prob", time))

    def log_survival(self, time: Tensor) -> Tensor:
        """Log of the mean survival, from the logarithms."""
        return self._log_mean(self._stack("log_survival", time))

    def cdf(self, time: Tensor) -> Tensor:
        """Mean of F."""
        return self._stack("cdf", time).mean(0)

    def survival(self, time: Tensor) -> Tensor:
        """Mean of S."""
        return self._stack("survival", time).mean(0)

    def hazard(self, time: Tensor) -> Tensor:
        """Mean of the hazards, each weighted by the survival of its component."""
        logs = self._stack("log_survival", time)
        gone = torch.isneginf(logs).all(0)
        share = torch.softmax(torch.where(gone, 0.0, logs), dim=0)
        hazards = self._stack("hazard", time)
        return (share * torch.where(share > 0, hazards, 0.0)).sum(0)

    def quantile(self, p: float | Tensor) -> Tensor:
        """Time at which F is `p`, between the quantiles of the components."""
        level = as_level(p, self.components[0].mean)
        ends = torch.stack(torch.broadcast_tensors(*(c.quantile(level) for c in self.components)))
        with torch.no_grad():
            low, high = ends.amin(0), ends.amax(0)
            for _ in range(_HALVINGS):
                middle = low + (high - low) / 2
                below = self.cdf(middle) < level
                low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        # One step of Newton's method, which also carries the gradient. Where there is nothing to divide by, none.
        density = torch.exp(self.log_prob(high))
        usable = (density > 0) & torch.isfinite(density) & torch.isfinite(high)
        step = (self.cdf(torch.where(usable, high, 1.0)) - level) / torch.where(usable, density, 1.0)
        return torch.where(usable, high - step, high)

    @property
    def mean(self) -> Tensor:
        """Mean of the means."""
        return torch.stack(torch.broadcast_tensors(*(c.mean for c in self.components))).mean(0)

    @torch.no_grad()
    def sample(self, generator: torch.Generator, shape: tuple[int, ...] = ()) -> Tensor:
        """Draw a component for each time, and from it the time."""
        draws = torch.stack([component.sample(generator, shape) for component in self.components])
        chosen = torch.randint(len(self.components), draws.shape[1:], generator=generator, device=draws.device)
        return torch.gather(draws, 0, chosen.unsqueeze(0)).squeeze(0)

    def squared_cdf_below(self, time: Tensor) -> Tensor:
        """Integral of F^2 from 0 to `time`, by quadrature."""
        end = torch.clamp(time, min=0)
        return integral(lambda z: self.cdf(z).square(), torch.zeros_like(end), end, self._points())

    def squared_survival_above(self, time: Tensor, needed: Tensor | None = None) -> Tensor:
        """Integral of S^2 from `time` on, by quadrature as far as any component has a chance of 1e-12 to reach."""
        points = self._points()
        start = torch.clamp(time, min=0)
        return integral(lambda z: self.survival(z).square(), start, points[-1].expand(start.shape), points)

    def _points(self) -> Tensor:
        """Quantiles of all components, in order."""
        with torch.no_grad():
            found = [component.quantile(p) for component in self.components for p in _LEVELS]
            return torch.stack(torch.broadcast_tensors(*found)).sort(dim=0).values
