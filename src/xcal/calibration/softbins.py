"""Which soft D-calibration is meant: how events and censored rows are shared among bins, and how a batch is summed."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from xcal._checks import as_choice, as_number, fail
from xcal.calibration import membership as soft

Membership = Literal["partition", "product"]
Censored = Literal["exact", "soft"]
Estimator = Literal["bound", "unbiased"]


# One over anything smaller is no number; every sigmoid is a step long before.
_LEAST = 1e-100


@dataclass(frozen=True)
class SoftBins:
    """Which soft D-calibration is meant. `temperature` is in units of the mean bin width; see `xcal_penalty`.

    A temperature that changes while a model is trained is a tensor of one number. It is read at every step, by a
    recorded CUDA graph too, so that whoever fills it anew changes the penalty.
    """

    membership: Membership = "partition"
    temperature: float | Tensor | None = None
    gamma: float | None = None
    censored: Censored = "exact"
    estimator: Estimator = "bound"

    def __post_init__(self) -> None:
        for name, known in (("membership", Membership), ("censored", Censored), ("estimator", Estimator)):
            as_choice(name, getattr(self, name), get_args(known))
        uses_gamma = self.membership == "product" or self.censored == "soft"
        self._default("gamma", 1e4, uses_gamma, "membership='product' or censored='soft'")
        self._default("temperature", 0.5, self.membership == "partition", "membership='partition'")

    def _default(self, name: str, default: float, used: bool, user: str) -> None:
        value = getattr(self, name)
        if value is None:
            object.__setattr__(self, name, default if used else None)
        elif not used:
            fail(name, f"None, as only {user} uses it", value)
        elif isinstance(value, Tensor):
            # Its value is not looked at: it may be filled later, and on a GPU reading it would wait for all steps.
            if value.numel() != 1 or not value.is_floating_point() or value.is_meta or value.layout != torch.strided:
                fail(
                    name,
                    "a number, or a floating-point tensor of one number",
                    f"shape {tuple(value.shape)}, {value.dtype}",
                )
        else:
            number = as_number(name, value, above=0)
            if number < _LEAST:
                fail(name, f"a number of {_LEAST:g} or more", value)
            object.__setattr__(self, name, number)

    @property
    def cumulative(self) -> bool:
        """Whether both terms are differences of a mass above the edges, so that rows can be summed before the bins."""
        return self.membership == "partition" and self.censored == "exact"

    @property
    def fusable(self) -> bool:
        """Whether `fused` has a kernel for it: the default penalty and the paper's, as batch bounds."""
        return self.estimator == "bound" and (self.membership, self.censored) in {
            ("partition", "exact"),
            ("product", "soft"),
        }

    def scale(self, n_bins: int) -> float | Tensor:
        """Slope of the sigmoid: gamma, or one over the temperature in units of F; a tensor if the temperature is."""
        if self.membership == "product":
            assert self.gamma is not None
            return self.gamma
        assert self.temperature is not None
        return n_bins / self.temperature

    def events(self, u: Tensor, event: Tensor) -> Tensor:
        """Rows that contribute as events: the published code adds censored ones that are all but certain."""
        return event if self.censored == "exact" else event | (u > soft.SATURATED)

    def event_features(self, u: Tensor, edges: Tensor) -> Tensor:
        """Mass of an event at u above each inner edge if `cumulative`, else in each bin."""
        scale = self.scale(edges.shape[0] - 1)
        if self.membership == "product":
            return soft.product(u, edges, scale)
        above = soft.partition_above(u, edges, 1 / scale)
        return above if self.cumulative else _bins(above, edges)

    def censored_features(self, u: Tensor, edges: Tensor) -> Tensor:
        """Return the same for a row censored at F = u."""
        if self.censored == "soft":
            assert self.gamma is not None
            return soft.soft_censored(u, edges, self.gamma)
        above = soft.exact_above(u, edges)
        return above if self.cumulative else _bins(above, edges)

    def event_slopes(self, u: Tensor, edges: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the derivative of `event_features` in u; features that are `known` save the sigmoids."""
        scale = self.scale(edges.shape[0] - 1)
        if self.membership == "product":
            return soft.product(u, edges, scale, derivative=True)
        if self.cumulative and known is not None:
            return soft.sigmoid_slope(known, 1 / scale)
        slope = soft.partition_above(u, edges, 1 / scale, derivative=True)
        return slope if self.cumulative else soft.bins_from_above(slope)

    def censored_slopes(self, u: Tensor, edges: Tensor, known: Tensor | None = None) -> Tensor:
        """Return the derivative of `censored_features` in u; features that are `known` save the quotients."""
        if self.censored == "soft":
            assert self.gamma is not None
            return soft.soft_censored(u, edges, self.gamma, derivative=True)
        above = known if self.cumulative and known is not None else soft.exact_above(u, edges)
        slope = soft.exact_slope(above, u, edges)
        return slope if self.cumulative else soft.bins_from_above(slope)

    def features(self, u: Tensor, event: Tensor, edges: Tensor) -> Tensor:
        """Return the features of every row, whichever kind it is."""
        happened, later = self.event_features(u, edges), self.censored_features(u, edges)
        return torch.where(self.events(u, event).unsqueeze(-1), happened, later)

    def slopes(self, u: Tensor, event: Tensor, edges: Tensor) -> Tensor:
        """Return the derivative of `features` in u."""
        happened, later = self.event_slopes(u, edges), self.censored_slopes(u, edges)
        return torch.where(self.events(u, event).unsqueeze(-1), happened, later)

    def residual(self, features: Tensor, edges: Tensor) -> Tensor:
        """Turn features, or weighted means of them, into R of the paper: mass of each bin less its width."""
        if self.cumulative:
            return soft.bins_from_above(features - (1 - edges[1:-1]))
        return features - edges.diff()

    def residual_slope(self, derivatives: Tensor) -> Tensor:
        """Turn derivatives of the features into those of the residual."""
        return soft.bins_from_above(derivatives) if self.cumulative else derivatives


def _bins(above: Tensor, edges: Tensor) -> Tensor:
    """Mass in each bin from that above each inner edge."""
    return soft.bins_from_above(above - (1 - edges[1:-1])) + edges.diff()


def soft_membership(cdf: Tensor, event: Tensor, edges: Tensor, spec: SoftBins) -> Tensor:
    """Membership of every row in every bin, (..., n, B), to look at; the penalty never builds it whole.

    The arguments are trusted, as those of `unchecked_penalty` are.
    """
    return spec.residual(spec.features(cdf, event, edges), edges) + edges.diff()
