"""The conditional penalty on a GPU: two matrix products, and three kernels around them.

One operation at a time it takes eighty small ones, which cost more than their arithmetic. It covers what `fit_path`
trains with: masses above edges, pairs of rows, no weights. Everything else, and every machine without Triton, takes the
plain torch of `conditional_penalty`, its twin. For the first batch of each shape the two are compared: a Triton or a
GPU on which the kernels are wrong costs time, and not a wrong model.

With s_j the sum over rows of a feature times the mass above edge j, the residual of a bin is a difference of two
neighbours. So the sum of squares is that of s_j (2 s_j - s_(j-1) - s_(j+1)), and twice the bracket its slope in s_j.
"""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from xcal._torch_private import kernels_usable
from xcal.calibration.fused import _columns, _flat
from xcal.calibration.softbins import SoftBins

_TILE = 1024  # numbers of a tile, rows times edges: small ones, as a batch has to keep a whole GPU busy
_MIDDLE = 4096  # the same of features times edges, where a model is one program
_BINS = 1024  # at most; a row of a tile has all of them
# What may lie between kernels and plain torch: rounding is about a hundredth of it.
_TOLERANCE = 1e-3

Found = tuple[Tensor, Tensor]
# Whether the kernels gave what plain torch gave, by the shape of what they were given.
_agreed: dict[tuple[Any, ...], bool] = {}


def usable(u: Tensor, weight: Tensor | None, edges: Tensor, spec: SoftBins) -> bool:
    """Whether the kernels can be used: not for a second derivative, as they cannot be differentiated themselves."""
    covered = spec.cumulative and spec.estimator == "unbiased" and weight is None
    covered = covered and 2 <= edges.shape[0] - 1 <= _BINS
    return covered and u.numel() > 0 and not torch.is_grad_enabled() and kernels_usable(u)


def compared_once(
    u: Tensor, event: Tensor, features: Tensor, edges: Tensor, spec: SoftBins, plain: Callable[[], Found]
) -> Found:
    """Penalty and gradient by the kernels; by `plain` where the two differ, or cannot be compared.

    They are compared at the first batch of a shape. While a CUDA graph is recorded nothing can be.
    """
    models, sizes = (u.shape[:-1], features.shape[:-2]), (features.shape[-1], edges.shape[0] - 1)
    shape = (u.device, *models, *sizes, u.shape[-1] % _TILE == 0, isinstance(spec.scale(sizes[1]), Tensor))
    if shape in _agreed:
        return value_and_gradient(u, event, features, edges, spec) if _agreed[shape] else plain()
    wanted = plain()
    recorded = u.is_cuda and torch.cuda.is_current_stream_capturing()
    if recorded or not all(bool(part.isfinite().all()) for part in wanted):
        return wanted
    found = value_and_gradient(u, event, features, edges, spec)
    _agreed[shape] = _near(found, wanted)
    if _agreed[shape]:
        return found
    warnings.warn(
        "the kernels of the conditional penalty and plain torch differ on this machine: plain torch is used, which is "
        "slower. Please report this, with your GPU and your versions of torch and Triton",
        RuntimeWarning,
        stacklevel=2,
    )
    return wanted


def _near(found: Found, wanted: Found) -> bool:
    """Whether values and gradients agree. A value is a difference of two sums, each of the order of one over n."""
    units = wanted[0].abs().amax() + 1 / wanted[1].shape[-1], wanted[1].abs().amax()
    pairs = zip(found, wanted, units, strict=True)
    return all(bool(((one - other).abs() <= _TOLERANCE * unit).all()) for one, other, unit in pairs)


def value_and_gradient(u: Tensor, event: Tensor, features: Tensor, edges: Tensor, spec: SoftBins) -> Found:
    """Penalty of every model, (...), and its gradient in F, (..., n); `conditional_penalty` has the same in torch."""
    from xcal.calibration.kernels import conditional_backward, conditional_forward, conditional_middle

    h, n, bins = _matrices(u, features), u.shape[-1], edges.shape[0] - 1
    models, columns, scale = u.numel() // n, _columns(bins), spec.scale(bins)
    event, event_step = _flat(u, event)
    tile = max(1, _TILE // columns)
    programs, per_matrix = -(-n // tile), models // h.shape[0]
    # A sum over pairs of rows is divided by their number; one row makes no pair.
    per_pair = 1 / (n * (n - 1)) if n > 1 else 0.0
    rows = (u.contiguous(), event.view(torch.uint8), torch.linalg.vector_norm(h, dim=-1), edges)
    sizes = (n, event_step, per_matrix, bins, scale)
    options = {"IN_MEMORY": isinstance(scale, Tensor), "COLUMNS": columns, "ROWS": tile}
    above, own = u.new_empty(h.shape[0], per_matrix * (bins - 1), n), u.new_empty(models, programs)
    value, gradient = u.new_empty(u.shape[:-1]), u.new_empty(u.shape)
    with torch.cuda.device(u.device):
        conditional_forward[(programs, models)](*rows, above, own, *sizes, **options)
        sums = above @ h
        slopes = torch.empty_like(sums)
        conditional_middle[(models,)](
            sums, own, slopes, value, h.shape[-1], bins - 1, programs, per_pair,
            COLUMNS=columns, FEATURES=max(1, _MIDDLE // columns), PROGRAMS=64,
        )  # fmt: skip
        pull = slopes @ h.transpose(-1, -2)
        conditional_backward[(programs, models)](*rows, pull, gradient, *sizes, per_pair, **options)
    return value, gradient


def _matrices(u: Tensor, features: Tensor) -> Tensor:
    """Features as one matrix for some models that follow each other, (matrices, n, M)."""
    shape, own = features.shape[-2:], features.shape[:-2]
    if own.numel() == 1:
        return features.reshape(1, *shape)
    if len(own) == u.dim() - 1 and own[-1] == 1 and own[:-1] == u.shape[:-2]:
        return features.reshape(-1, *shape)
    return features.expand(*u.shape[:-1], *shape).reshape(-1, *shape)
