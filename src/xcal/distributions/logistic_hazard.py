"""Logistic hazards over time bins."""

from typing import Any, final

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from xcal.distributions.discrete import DiscreteDistribution, as_logits


@final
class LogisticHazard(DiscreteDistribution):
    """Bin masses from K - 1 conditional probabilities: one for each bin but the last, of an event in it if reached.

    With ``h_k = sigmoid(logits_k)``, bin k has the mass ``h_k (1 - h_1) ... (1 - h_{k-1})`` and the last bin what is
    left. Known as logistic hazard, nnet-survival or discrete-time survival (Brown 1975; Gensheimer and Narasimhan 2019;
    Kvamme and Borgan 2021).

    Parameters
    ----------
    logits
        Shape ``(..., n, K - 1)``.
    edges
        K + 1 increasing edges. Anything but a tensor is checked; a tensor is taken as it is (make it with `as_edges`
        or `quantile_edges`).
    interpolation
        ``"step"`` or ``"linear"``; see `DiscreteDistribution`.

    Examples
    --------
    >>> LogisticHazard(torch.zeros(1, 2), [0.0, 1.0, 2.0, 3.0]).log_mass.exp()
    tensor([[0.5000, 0.2500, 0.2500]])
    """

    def __init__(self, logits: Tensor, edges: Any, interpolation: str = "linear") -> None:
        self.hazard_logits = as_logits("logits", logits)
        # log(1 - h), summed over the bins passed: nothing before the first.
        passed = torch.cumsum(logsigmoid(-self.hazard_logits), dim=-1)
        start = torch.zeros_like(passed[..., :1])
        reached = torch.cat([start, passed], dim=-1)
        happened = torch.cat([logsigmoid(self.hazard_logits), start], dim=-1)
        super().__init__(reached + happened, edges, interpolation)
