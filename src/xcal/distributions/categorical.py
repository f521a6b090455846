"""The categorical distribution over time bins."""

from typing import Any, final

from torch import Tensor

from xcal.distributions.discrete import DiscreteDistribution, as_logits


@final
class Categorical(DiscreteDistribution):
    """Bin masses ``softmax(logits)``.

    Parameters
    ----------
    logits
        Shape ``(..., n, K)``.
    edges
        K + 1 increasing edges. Anything but a tensor is checked; a tensor is taken as it is (make it with `as_edges`
        or `quantile_edges`).
    interpolation
        ``"step"`` (the paper's NI) or ``"linear"`` (its I); see `DiscreteDistribution`.

    Examples
    --------
    >>> import torch
    >>> logits = torch.zeros(1, 4)
    >>> time = torch.tensor([1.5])
    >>> Categorical(logits, [0.0, 1.0, 2.0, 4.0, 8.0], interpolation="step").cdf(time)
    tensor([0.5000])
    >>> Categorical(logits, [0.0, 1.0, 2.0, 4.0, 8.0], interpolation="linear").cdf(time)
    tensor([0.3750])
    """

    def __init__(self, logits: Tensor, edges: Any, interpolation: str = "linear") -> None:
        self.logits = as_logits("logits", logits)
        super().__init__(self.logits, edges, interpolation)
