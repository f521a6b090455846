"""The default penalty on a batch that fits the cache: value and gradient in the fewest operations."""

from typing import NamedTuple

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


class SmallRows(NamedTuple):
    """The rows of a small batch, (..., n, P): mass above the inner edges, and what its slopes are made of.

    The same formulas as in `membership`: `happened` is `partition_above`, `later` is `exact_above`, and the two slopes
    are `sigmoid_slope` and `exact_slope`. Tests hold them together.
    """

    features: Tensor
    happened: Tensor
    later: Tensor
    inverse: Tensor
    seen: Tensor
    rest: Tensor  # what a perfect model has above each inner edge, (P,)
    scale: float | Tensor

    @classmethod
    def of(cls, u: Tensor, event: Tensor, inner: Tensor, scale: float | Tensor) -> "SmallRows":
        """Share every row among the bins between the `inner` edges."""
        rest = 1 - inner
        inverse = one_over_rest(u, inner)
        happened = (u.unsqueeze(-1) - inner).mul_(scale).sigmoid_()
        later = (rest * inverse).clamp_(max=1.0)
        # lerp with a weight of exactly 0 or 1 is a choice, and the fastest one between arrays of rows x bins.
        seen = event.to(u.dtype).unsqueeze(-1)
        return cls(torch.lerp(later, happened, seen), happened, later, inverse, seen, rest, scale)

    def slopes(self) -> Tensor:
        """Return the derivative of the features in F. It takes the place of what it is made of: once only."""
        event_slope = torch.addcmul(self.happened, self.happened, self.happened, value=-1).mul_(self.scale)
        later_slope = threshold(self.later.neg_(), -1.0, 0.0).mul_(self.inverse.neg_())
        return torch.lerp(later_slope, event_slope, self.seen)


def residual_and_slope(above: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    """Mean residual of each bin, its sign turned, (..., B), and the penalty's slope in the mean `above`, (..., P, 1).

    As in `penalty.statistics` and `penalty.row_gradient`, which every other penalty takes. `above` is overwritten.
    """
    residual = pad(above.sub_(rest), (1, 1)).diff(dim=-1)
    return residual, residual.diff(dim=-1).mul_(-2.0).unsqueeze(-1)


def small_default(
    u: Tensor, event: Tensor, weight: Tensor | None, edges: Tensor, scale: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Penalty and gradient in the fewest operations.

    On a thousand rows, starting an operation costs as much as its arithmetic.
    """
    rows = SmallRows.of(u, event, edges[1:-1], scale)
    share = 1 / u.shape[-1] if weight is None else weight / weight.sum(-1, keepdim=True)
    features = rows.features
    above = features.mean(-2) if isinstance(share, float) else (share.unsqueeze(-2) @ features).squeeze(-2)
    residual, slope = residual_and_slope(above, rows.rest)
    gradient = (rows.slopes() @ slope).squeeze(-1) * share
    return torch.linalg.vecdot(residual, residual).unsqueeze(-1), gradient
