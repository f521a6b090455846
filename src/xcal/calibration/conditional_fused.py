"""The conditional penalty on a GPU: two matrix products and three kernels around them.

One operation at a time it takes about sixty small kernels, which cost more than their arithmetic. It covers the default
membership (masses above edges); everything else, and every machine without Triton, takes the plain torch of
`conditional_penalty`, its twin.

With s_j the sum over rows of features times the mass above edge j, the mean residual of a bin is a difference of two
neighbours, so that the value is the sum of s_j (2 s_j - s_(j-1) - s_(j+1)), and twice that bracket its slope in s_j.
"""

import torch
from torch import Tensor

from xcal._torch_private import kernels_usable
from xcal.calibration.fused import _columns, _flat
from xcal.calibration.penalty import one_over_pairs
from xcal.calibration.softbins import SoftBins

_TILE = 2048  # numbers of a tile, rows or features times edges
_FEATURES = 64


def usable(u: Tensor, spec: SoftBins) -> bool:
    """Whether the kernels can be used: not for a second derivative, as they cannot be differentiated themselves."""
    return spec.cumulative and u.shape[-1] > 0 and not torch.is_grad_enabled() and kernels_usable(u)


def value_and_gradient(
    u: Tensor, event: Tensor, weight: Tensor | None, features: Tensor, edges: Tensor, spec: SoftBins
) -> tuple[Tensor, Tensor]:
    """Penalty of every model, (...), and its gradient in F, (..., n); `conditional_penalty` has the same in torch."""
    h = _matrices(u, features)
    share = None if weight is None else weight / weight.sum(-1, keepdim=True)
    value, own, gradient = _launched(u, event, share, h, edges, spec)
    if spec.estimator == "bound":
        return value, gradient
    if share is None:
        # The kernels have divided the gradient by the share of pairs, which is a number.
        return (value - own) * _one_over_pairs(u.shape[-1]), gradient
    pairs = one_over_pairs(share.square().sum(-1), u.dtype)
    return (value - own) * pairs, gradient * pairs.unsqueeze(-1)


def _launched(
    u: Tensor, event: Tensor, share: Tensor | None, h: Tensor, edges: Tensor, spec: SoftBins
) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of squares of every model, (...), the part of every row with itself in it, and the gradient, (..., n)."""
    n, bins = u.shape[-1], edges.shape[0] - 1
    models, columns = u.numel() // n, _columns(bins)
    # Equal shares are one number, which the kernels multiply with at the end.
    equal = 1 / n if share is None else 1.0
    unbiased, scale = spec.estimator == "unbiased", spec.scale(bins)
    own_share, share_step = (u, 0) if share is None else _flat(u, share)
    own_event, event_step = _flat(u, event)
    rows = max(16, _TILE // columns)
    programs, tiles = -(-n // rows), -(-h.shape[-1] // _FEATURES)
    given = (u.contiguous(), own_event.view(torch.uint8), own_share, torch.linalg.vector_norm(h, dim=-1))
    steps = (n, event_step, share_step, models // h.shape[0], bins, scale, equal)
    options = {"WEIGHTED": share is not None, "IN_MEMORY": isinstance(scale, Tensor), "COLUMNS": columns, "ROWS": rows}
    above = u.new_empty(h.shape[0], models // h.shape[0] * (bins - 1), n)
    value, own, out = u.new_empty(models, tiles), u.new_empty(models, programs), u.new_empty(u.shape)
    inverse = _one_over_pairs(n) if unbiased and share is None else 1.0
    from xcal.calibration.kernels import conditional_backward, conditional_forward, conditional_middle

    with torch.cuda.device(u.device):
        conditional_forward[(programs, models)](*given, edges, above, own, *steps, **options)
        sums = above @ h
        slopes, size = torch.empty_like(sums), {"COLUMNS": columns, "FEATURES": _FEATURES}
        conditional_middle[(tiles, models)](sums, slopes, value, h.shape[-1], bins - 1, equal, **size)
        inner = slopes @ h.transpose(-1, -2)
        conditional_backward[(programs, models)](
            *given, inner, edges, out, *steps, inverse, UNBIASED=unbiased, **options
        )
    return value.sum(1).view(u.shape[:-1]), own.sum(1).view(u.shape[:-1]), out


def _one_over_pairs(n: int) -> float:
    """One over the share of pairs of different rows, for equal weights; zero for one row, which makes no pair."""
    return n / (n - 1) if n > 1 else 0.0


def _matrices(u: Tensor, features: Tensor) -> Tensor:
    """Features as one matrix for some models that follow each other, (matrices, n, M)."""
    shape, own = features.shape[-2:], features.shape[:-2]
    if own.numel() == 1:
        return features.reshape(1, *shape)
    if len(own) == u.dim() - 1 and own[-1] == 1 and own[:-1] == u.shape[:-2]:
        return features.reshape(-1, *shape)
    return features.expand(*u.shape[:-1], *shape).reshape(-1, *shape)
