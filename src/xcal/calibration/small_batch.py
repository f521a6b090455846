"""The default penalty on a batch that fits the cache: value and gradient in the fewest operations."""

import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

from xcal._torch_private import in_transform
from xcal.calibration.membership import one_over_rest
from xcal.calibration.softbins import SoftBins


def is_small_default(u: Tensor, labels: Tensor | None, edges: Tensor, spec: SoftBins, most: int) -> bool:
    """Whether it is the default penalty on a batch that fits the cache, outside compilation and function transforms.

    `most` elements, rows times bins times models, fit it.
    """
    if labels is not None or not spec.cumulative or spec.estimator != "bound" or u.is_cuda:
        return False
    if torch.compiler.is_compiling() or in_transform(u):
        return False
    return u.numel() * edges.shape[0] <= most


def small_default(
    u: Tensor, event: Tensor, weight: Tensor | None, edges: Tensor, scale: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Penalty and gradient in the fewest operations.

    On a thousand rows, starting an operation costs as much as its arithmetic.

    The same formulas as in `penalty.statistics` and `penalty.row_gradient`, which every other penalty takes, and as in
    `membership`: `happened` is `partition_above`, `later` is `exact_above`, and the two slopes are `sigmoid_slope` and
    `exact_slope`. Tests hold them together.
    """
    inner = edges[1:-1]
    rest = 1 - inner
    inverse = one_over_rest(u, inner)
    happened = (u.unsqueeze(-1) - inner).mul_(scale).sigmoid_()
    later = (rest * inverse).clamp_(max=1.0)
    # lerp with a weight of exactly 0 or 1 is a choice, and the fastest one between arrays of rows x bins.
    seen = event.to(u.dtype).unsqueeze(-1)
    features = torch.lerp(later, happened, seen)
    share = 1 / u.shape[-1] if weight is None else weight / weight.sum(-1, keepdim=True)
    above = features.mean(-2) if isinstance(share, float) else (share.unsqueeze(-2) @ features).squeeze(-2)
    residual = pad(above.sub_(rest), (1, 1)).diff(dim=-1)
    slope = residual.diff(dim=-1).mul_(-2.0).unsqueeze(-1)
    event_slope = torch.addcmul(happened, happened, happened, value=-1).mul_(scale)
    later_slope = threshold(later.neg_(), -1.0, 0.0).mul_(inverse.neg_())
    gradient = (torch.lerp(later_slope, event_slope, seen) @ slope).squeeze(-1) * share
    return torch.linalg.vecdot(residual, residual).unsqueeze(-1), gradient
