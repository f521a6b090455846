"""Bin masses on a grid of edges: where a time falls, and the sums below and above it."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Bins:
    """K bins between K + 1 increasing edges, with a log-mass each.

    Bin k is ``(e_k, e_{k+1}]``. Times outside the grid belong to the nearest bin: the first also holds everything at
    or before ``e_0``, the last everything after ``e_K``.

    Parameters
    ----------
    log_mass
        Shape ``(..., n, K)``, normalised.
    edges
        Shape ``(K + 1,)``, same dtype and device.
    """

    log_mass: Tensor
    edges: Tensor

    def index(self, time: Tensor) -> Tensor:
        """Bin of each time: how many inner edges lie strictly below it."""
        return torch.bucketize(time.detach().to(self.edges.dtype), self.edges[1:-1])

    def index_of_level(self, p: Tensor) -> Tensor:
        """First bin by whose end at least a share `p` has had the event."""
        return (self.cdf_at_end()[..., :-1] < p.unsqueeze(-1)).sum(dim=-1)

    def take(self, values: Tensor, index: Tensor) -> Tensor:
        """Pick one bin's entry of `values` ``(..., n, K)`` for each row."""
        return torch.take_along_dim(values, index.unsqueeze(-1), dim=-1).squeeze(-1)

    @property
    def mass(self) -> Tensor:
        """Probability of each bin."""
        return torch.exp(self.log_mass)

    @property
    def width(self) -> Tensor:
        """Length of each bin, ``(K,)``."""
        return self.edges[1:] - self.edges[:-1]

    def cdf_at_end(self) -> Tensor:
        """Mass up to and including each bin. The last is exactly 1; the clamp only removes rounding above 1."""
        inner = torch.clamp(torch.cumsum(self.mass[..., :-1], dim=-1), max=1.0)
        return torch.cat([inner, torch.ones_like(self.log_mass[..., :1])], dim=-1)

    def cdf_at_start(self) -> Tensor:
        """Mass before each bin; exactly 0 for the first."""
        return torch.cat([torch.zeros_like(self.log_mass[..., :1]), self.cdf_at_end()[..., :-1]], dim=-1)

    def log_survival_at_start(self) -> Tensor:
        """Log-mass of each bin and all later ones, as a log-sum-exp of the tail; exactly 0 for the first."""
        tail = torch.logcumsumexp(self.log_mass[..., 1:].flip(-1), dim=-1).flip(-1)
        return torch.cat([torch.zeros_like(self.log_mass[..., :1]), torch.clamp(tail, max=0.0)], dim=-1)

    def log_survival_at_end(self) -> Tensor:
        """Log-mass of all later bins; -inf, nothing, for the last."""
        none = torch.full_like(self.log_mass[..., :1], -math.inf)
        return torch.cat([self.log_survival_at_start()[..., 1:], none], dim=-1)

    def survival_at_end(self) -> Tensor:
        """Mass of all later bins, summed from the far end: small values keep their digits."""
        tail = torch.cumsum(self.mass[..., 1:].flip(-1), dim=-1).flip(-1)
        return torch.cat([torch.clamp(tail, max=1.0), torch.zeros_like(self.log_mass[..., :1])], dim=-1)

    def survival_at_start(self) -> Tensor:
        """Mass of each bin and all later ones; exactly 1 for the first."""
        return torch.cat([torch.ones_like(self.log_mass[..., :1]), self.survival_at_end()[..., :-1]], dim=-1)


def before(values: Tensor) -> Tensor:
    """Sum of the entries of all earlier bins, for each bin."""
    return torch.cat([torch.zeros_like(values[..., :1]), torch.cumsum(values[..., :-1], dim=-1)], dim=-1)


def after(values: Tensor) -> Tensor:
    """Sum of the entries of all later bins, for each bin."""
    return before(values.flip(-1)).flip(-1)
