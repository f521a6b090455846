"""Exact calibration in torch, for many models at once and on their device.

D-calibration is the uniform estimator of `histogram`. Conditional calibration is the value of `conditional_sums`, from
sums that can be added up over rows.
"""

import torch
from torch import Tensor

from xcal.calibration.censored import mass_of_bins
from xcal.calibration.membership import bins_from_above, exact_above


def bin_sums(cdf: Tensor, event: Tensor, edges: Tensor, weights: Tensor | None = None) -> Tensor:
    """Events, censored rows and their 1 / (1 - F), summed by bin: (K, 3, B) in float64 from F values (K, n).

    The sums of `histogram.BinSums`, and its rules for edges: a value on an edge belongs to the bin on its right, and
    edges are read in the type of the F values.
    """
    edge = edges.to(cdf.dtype)
    bins = torch.bucketize(cdf.contiguous(), edge[1:-1].contiguous(), right=True)
    weight = cdf.new_ones(cdf.shape[-1], dtype=torch.float64) if weights is None else weights
    happened, censored = torch.where(event, weight, 0.0), torch.where(event, 0.0, weight)
    # As in `censored.rest`: F held at the left edge of the last bin keeps the inverse finite.
    inverse = censored / (1 - torch.minimum(cdf.double(), edge[-2].double()))
    sources = torch.stack([happened.expand(cdf.shape), censored.expand(cdf.shape), inverse], dim=1)
    sums = sources.new_zeros(cdf.shape[0], 3, edges.shape[0] - 1)
    return sums.scatter_add_(2, bins.unsqueeze(1).expand(sources.shape), sources)


def uniform_histogram(sums: Tensor, edges: Tensor) -> Tensor:
    """Mass of each bin, (K, B): a censored row spreads evenly over [F, 1], the estimator of Haider et al."""
    happened, censored, inverse = sums.unbind(1)
    earlier = inverse.cumsum(-1) - inverse
    return mass_of_bins(happened, censored, inverse, earlier, edges) / (happened + censored).sum(-1, keepdim=True)


def feature_sums(
    cdf: Tensor, event: Tensor, features: Tensor, edges: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the sums behind conditional calibration, in float64, from F values (K, n) and features of the rows (n, M).

    Features times residuals above each inner edge, (K, M, B - 1), and the products of every row with itself, (K,). The
    rules for edges are those of `bin_sums`.
    """
    edge = edges.to(cdf.dtype)
    weight = cdf.new_ones(cdf.shape[-1], dtype=torch.float64) if weights is None else weights
    happened = (cdf.unsqueeze(-1) >= edge[1:-1]).double()
    above = torch.where(event.unsqueeze(-1), happened, exact_above(cdf.double(), edge.double()))
    above -= 1 - edges[1:-1]
    h = weight.unsqueeze(-1) * features.double()
    own = (h.square().sum(-1) * bins_from_above(above).square().sum(-1)).sum(-1)
    return torch.einsum("nm,knp->kmp", h, above), own


def conditional_value(sums: Tensor, own: Tensor, pairs: Tensor) -> Tensor:
    """Conditional calibration of every model, (K,), from `feature_sums` of all rows and the weight of their pairs.

    One row makes no pair, and has the value zero.
    """
    value = bins_from_above(sums).square().sum((-2, -1)) - own
    return torch.where(pairs > 0, value / torch.where(pairs > 0, pairs, 1.0), 0.0)
