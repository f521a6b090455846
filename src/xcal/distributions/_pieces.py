"""Integrals over time, piece by piece between quantiles: for distributions that are made of others."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

_roots, _weights = np.polynomial.legendre.leggauss(16)
_NODES, _WEIGHTS = (_roots + 1.0) / 2.0, _weights / 2.0


def integral(function: Callable[[Tensor], Tensor], start: Tensor, stop: Tensor, points: Tensor) -> Tensor:
    """Integrate a function of times ``(..., n)`` from `start` to `stop`, zero where they are in the other order.

    `points` ``(k, ..., n)`` ascend along the first dimension. Between neighbours the function is smooth, and sixteen
    nodes each are enough; outside of `start` and `stop` they do not count.
    """
    nodes = torch.as_tensor(_NODES, dtype=points.dtype, device=points.device)
    weights = torch.as_tensor(_WEIGHTS, dtype=points.dtype, device=points.device)
    upper = torch.maximum(start, stop)
    shape = torch.broadcast_shapes(points.shape[1:], upper.shape)
    inner = torch.minimum(torch.maximum(points.expand(-1, *shape), start), upper)
    ends = torch.cat([start.expand(shape).unsqueeze(0), inner, upper.expand(shape).unsqueeze(0)])
    total = torch.zeros(shape, dtype=points.dtype, device=points.device)
    for left, right in pairwise(ends):
        width = right - left
        for node, weight in zip(nodes, weights, strict=True):
            total = total + weight * width * function(left + node * width)
    return total
