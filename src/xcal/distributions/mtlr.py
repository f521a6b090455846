"""Multi-task logistic regression over time bins."""

from typing import Any, final

import torch
from torch import Tensor

from xcal.distributions.discrete import DiscreteDistribution, as_logits


@final
class MTLR(DiscreteDistribution):
    """Bin masses from K - 1 scores (x-cal, appendix on models; Yu et al. 2011).

    The unnormalised log-mass of bin k < K is the sum of scores k, ..., K - 1, and that of bin K is 0: a reversed
    cumulative sum, then a softmax against a final 0.

    Parameters
    ----------
    scores
        Shape ``(..., n, K - 1)``.
    edges
        K + 1 increasing edges. Anything but a tensor is checked; a tensor is taken as it is (make it with `as_edges`
        or `quantile_edges`).
    interpolation
        ``"step"`` (the paper's NI) or ``"linear"`` (its I); see `DiscreteDistribution`.

    Examples
    --------
    >>> dist = MTLR(torch.tensor([[0.0, 1.0]]), [0.0, 1.0, 2.0, 3.0])
    >>> dist.log_mass.exp()
    tensor([[0.4223, 0.4223, 0.1554]])
    """

    def __init__(self, scores: Tensor, edges: Any, interpolation: str = "linear") -> None:
        self.scores = as_logits("scores", scores)
        sums = torch.cumsum(self.scores.flip(-1), dim=-1).flip(-1)
        logits = torch.cat([sums, torch.zeros_like(sums[..., :1])], dim=-1)
        super().__init__(logits, edges, interpolation)
