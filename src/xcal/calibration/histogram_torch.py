"""Exact D-calibration in torch: the uniform estimator of `histogram`, for many models at once and on their device."""

import torch
from torch import Tensor

from xcal.calibration.censored import mass_of_bins


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
