r"""The X-CAL penalty: soft D-calibration of a batch, with its gradient by formula.

With zeta_ij the membership of row i in bin j, |I_j| the bin's width and R_ij = zeta_ij - |I_j|,

    bound     sum_j (mean_i R_ij)^2                                     (the paper's upper bound on a batch)
    unbiased  sum_j ((sum_i R_ij)^2 - sum_i R_ij^2) / (M (M - 1))       (the U-statistic of the squared mean)

and the gradient in F_i is sum_j (2 / M) (mean_i R_ij) zeta'_ij for the bound. Autograd through these formulas keeps
several n x B arrays; here value and gradient are computed together, a few rows at a time, so that extra memory is a
constant number of (..., n) buffers whatever the number of bins.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from xcal._torch_private import apply, in_transform, kernels_usable
from xcal.calibration import fused
from xcal.calibration.row_weights import by_kind, group_weights, in_units_of_the_largest, ones
from xcal.calibration.small_batch import is_small_default, small_default
from xcal.calibration.softbins import SoftBins

# Elements of one block of rows x bins (times models): on a CPU small enough to stay in cache, on a GPU large enough
# that launching a kernel costs less than running it.
BLOCK = {"cpu": 1 << 19, "cuda": 1 << 22}


def _blocks(u: Tensor, columns: int) -> list[slice]:
    """Row blocks of bounded size. A compiler fuses the whole expression itself, so it gets one block."""
    n = u.shape[-1]
    if torch.compiler.is_compiling():
        return [slice(0, n)]
    models = max(1, u.numel() // max(1, n))
    rows = max(1, BLOCK.get(u.device.type, 1 << 20) // (models * columns))
    return [slice(start, min(start + rows, n)) for start in range(0, n, rows)]


def _sum_rows(weight: Tensor, values: Tensor) -> Tensor:
    """Weighted sum over rows: (..., G, n) and (..., n, P) give (..., G, P).

    A matrix product is fastest where operations run one by one; a compiler would have to build its operand in memory.
    """
    if torch.compiler.is_compiling():
        return (weight.unsqueeze(-1) * values.unsqueeze(-3)).sum(-2)
    return product(weight, values)


def product(first: Tensor, second: Tensor) -> Tensor:
    """Matrix product that autocast does not round, also where it surrounds only the backward pass.

    Gradients are enabled here for second derivatives alone. Autocast leaves float64 as it is, and a context that
    switches it off ends before the backward pass of a product.
    """
    if torch.is_grad_enabled():
        return (first.double() @ second.double()).to(first.dtype)
    return first @ second


@dataclass(frozen=True, eq=False)
class RowSums:
    """Weighted sums over rows, all that the penalty knows of them: by group G, and P features of `SoftBins`.

    Those of several sets of rows add up.
    """

    features: Tensor  # (..., G, P)
    weight: Tensor  # (..., G)
    own: Tensor  # of squared weights times squared residuals, (..., G); unbiased only
    square: Tensor  # of squared weights, (..., G); unbiased only
    kept: tuple[Tensor | None, Tensor | None] = (None, None)  # features of the rows, where one block holds all


def row_sums(
    u: Tensor, event: Tensor, weight: Tensor, labels: Tensor | None, edges: Tensor, spec: SoftBins, n_groups: int
) -> RowSums:
    """Sum over rows, some of them at a time."""
    total = square = sums = own = u.new_zeros(())
    kept: tuple[Tensor | None, Tensor | None] = (None, None)
    if _use_kernels(u, labels, spec):
        sums = fused.sum_features(u, event, weight, edges, spec.scale(edges.shape[0] - 1), spec.cumulative)
        return RowSums(sums.unsqueeze(-2), weight.sum(-1, keepdim=True), own, square)
    blocks = _blocks(u, edges.shape[0])
    for rows in blocks:
        part, happened = u[..., rows], event[..., rows]
        w = group_weights(weight[..., rows], None if labels is None else labels[..., rows], n_groups)
        seen, unseen = by_kind(w, spec.events(part, happened).unsqueeze(-2))
        events, censored = spec.event_features(part, edges), spec.censored_features(part, edges)
        sums = sums + _sum_rows(seen, events) + _sum_rows(unseen, censored)
        total = total + w.sum(-1)
        if spec.estimator == "unbiased":
            row_square = spec.residual(spec.features(part, happened, edges), edges).square().sum(-1)
            own = own + (w.square() * row_square.unsqueeze(-2)).sum(-1)
            square = square + w.square().sum(-1)
        kept = (events, censored) if len(blocks) == 1 else (None, None)
    return RowSums(sums, total, own, square, kept)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of every group: penalty, mean residual R of each bin, total weight, and one over the share of pairs."""

    value: Tensor
    mean: Tensor
    total: Tensor
    inverse: Tensor | None  # unbiased only
    features: tuple[Tensor | None, Tensor | None]  # of events and of censored rows, kept where one block holds all


def statistics(rows: RowSums, edges: Tensor, spec: SoftBins, *, grouped: bool, dtype: torch.dtype) -> Statistics:
    """Penalty of every group from the sums over its rows; `dtype` is the type that these were computed in."""
    total = rows.weight
    if grouped:
        # A group without rows has share zero; what it is divided by does not matter.
        total = torch.where(total > 0, total, 1.0)
    mean = spec.residual(rows.features / total.unsqueeze(-1), edges)
    value = mean.square().sum(-1)
    inverse = None
    if spec.estimator == "unbiased":
        inverse = one_over_pairs(rows.square / total.square(), dtype)
        value = (value - rows.own / total.square()) * inverse
    return Statistics(value, mean, total, inverse, rows.kept)


def one_over_pairs(own: Tensor, dtype: torch.dtype) -> Tensor:
    """One over the share of pairs of different rows, M (M - 1) / M^2 for equal weights, from that of equal ones.

    One row makes no pair: nothing to estimate, value and gradient zero. Rounding may leave its share of pairs a few
    units in the last place off zero.
    """
    pairs = 1 - own
    enough = pairs > 8 * torch.finfo(dtype).eps
    return torch.where(enough, 1 / torch.where(enough, pairs, 1.0), 0.0)


def row_gradient(
    u: Tensor, event: Tensor, weight: Tensor, labels: Tensor | None, edges: Tensor, spec: SoftBins, at: Statistics
) -> Tensor:
    """Gradient in F of each row's own group's penalty, (..., n)."""
    scale = 2 / at.total
    if at.inverse is not None:
        scale = scale * at.inverse
    per_bin = at.mean * scale.unsqueeze(-1)
    # Chain rule through bins = differences of the mass above each edge.
    slope = per_bin.diff(dim=-1) if spec.cumulative else per_bin
    if _use_kernels(u, labels, spec):
        sharpness = spec.scale(edges.shape[0] - 1)
        return fused.row_gradient(u, event, weight, edges, slope.squeeze(-2), sharpness, spec.cumulative)
    events, censored = at.features
    pieces = []
    for rows in _blocks(u, edges.shape[0]):
        part, happened, w = u[..., rows], event[..., rows], weight[..., rows]
        label = None if labels is None else labels[..., rows]
        seen, unseen = by_kind(w, spec.events(part, happened))
        piece = seen * _row_product(spec.event_slopes(part, edges, events), slope, label)
        piece = piece + unseen * _row_product(spec.censored_slopes(part, edges, censored), slope, label)
        if spec.estimator == "unbiased":
            slopes = spec.slopes(part, happened, edges)
            residual = spec.residual(spec.features(part, happened, edges), edges)
            own = (residual * spec.residual_slope(slopes)).sum(-1)
            piece = piece - w.square() * own * pick(scale / at.total, label)
        pieces.append(piece)
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=-1)


def _statistics(
    u: Tensor, event: Tensor, weight: Tensor, labels: Tensor | None, edges: Tensor, spec: SoftBins, n_groups: int
) -> Statistics:
    sums = row_sums(u, event, weight, labels, edges, spec, n_groups)
    return statistics(sums, edges, spec, grouped=labels is not None, dtype=u.dtype)


def _use_kernels(u: Tensor, labels: Tensor | None, spec: SoftBins) -> bool:
    """Whether the GPU kernels can be used: not for a second derivative, as they cannot be differentiated themselves."""
    return labels is None and spec.fusable and not torch.is_grad_enabled() and kernels_usable(u)


def full_precision(device: torch.device) -> AbstractContextManager[Any]:
    """Switch autocast off where it is on; switching costs more than half the arithmetic of a small batch."""
    if torch.is_autocast_enabled(device.type):
        return torch.autocast(device.type, enabled=False)
    return nullcontext()


class _XCAL(torch.autograd.Function):
    """Penalty of every group, (..., G), of F values (..., n). Only F has a gradient.

    The gradient is computed with the value, from the same memberships, and backward only scales it.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(
        u: Tensor,
        event: Tensor,
        weight: Tensor | None,
        labels: Tensor | None,
        edges: Tensor,
        spec: SoftBins,
        n_groups: int,
        wanted: bool,
    ) -> tuple[Tensor, Tensor]:
        with full_precision(u.device):
            if wanted and is_small_default(u, labels, edges, spec, BLOCK["cpu"]):
                return small_default(u, event, weight, edges, spec.scale(edges.shape[0] - 1))
            weight = ones(u, event) if weight is None else weight
            at = _statistics(u, event, weight, labels, edges, spec, n_groups)
            gradient = row_gradient(u, event, weight, labels, edges, spec, at) if wanted else u.new_zeros(())
        return at.value, gradient

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        u, event, weight, labels, edges, spec, n_groups, _ = inputs
        _, gradient = output
        ctx.mark_non_differentiable(gradient)
        ctx.save_for_backward(u, event, weight, labels, edges, gradient)
        ctx.spec, ctx.n_groups = spec, n_groups

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *unused: Any) -> tuple[Tensor | None, ...]:
        u, event, weight, labels, edges, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            # A second derivative is wanted (create_graph): the gradient has to depend on F again.
            weight = ones(u, event) if weight is None else weight
            with full_precision(u.device):
                at = _statistics(u, event, weight, labels, edges, ctx.spec, ctx.n_groups)
                gradient = row_gradient(u, event, weight, labels, edges, ctx.spec, at)
        return gradient * pick(grad, labels), None, None, None, None, None, None, None


def gradient_wanted(u: Tensor) -> bool:
    """Whether a backward pass may follow; within a function transform or a compiler it always may."""
    if not torch.is_grad_enabled():
        return False
    return u.requires_grad or torch.compiler.is_compiling() or in_transform(u)


def pick(per_group: Tensor, labels: Tensor | None) -> Tensor:
    """Value of each row's own group: (..., G) and labels (..., n) give (..., n)."""
    if labels is None:
        return per_group
    return torch.take_along_dim(per_group, labels.expand(*per_group.shape[:-1], labels.shape[-1]), dim=-1)


def _row_product(values: Tensor, per_group: Tensor, labels: Tensor | None) -> Tensor:
    """For each row the inner product of (..., n, P) with its own group's row of (..., G, P)."""
    if labels is None:
        if torch.compiler.is_compiling():
            return (values * per_group).sum(-1)
        return product(values, per_group.transpose(-1, -2)).squeeze(-1)
    index = labels.unsqueeze(-1).expand(*values.shape[:-1], 1)
    own = torch.take_along_dim(per_group, index, dim=-2)
    return (values * own).sum(-1)


def unchecked_penalty(
    cdf: Tensor,
    event: Tensor,
    edges: Tensor,
    spec: SoftBins,
    weights: Tensor | None = None,
    labels: Tensor | None = None,
    n_groups: int = 1,
) -> Tensor:
    """X-CAL penalty without any look at the values: the function for inside a training loop.

    Parameters
    ----------
    cdf : Tensor of shape (..., n)
        F at each row's observed time, in [0, 1].
    event : bool Tensor of shape (n,) or (..., n)
    edges : Tensor of shape (B + 1,)
    spec : SoftBins
    weights : Tensor of shape (n,) or (..., n), optional
        Row weights, constants to the gradient.
    labels : int64 Tensor of shape (n,) or (..., n), optional
        Group of each row, 0 to n_groups - 1.
    n_groups : int

    Returns
    -------
    Tensor of shape (...)
    """
    u = cdf.float() if cdf.dtype in (torch.float16, torch.bfloat16) else cdf
    weight = None if weights is None else in_units_of_the_largest(weights.detach(), u.dtype)
    value: Tensor
    value, _ = apply(_XCAL, u, event, weight, labels, edges.to(u.dtype), spec, n_groups, gradient_wanted(u))
    if labels is None:
        return value.squeeze(-1)
    share = group_weights(ones(u, event) if weight is None else weight, labels, n_groups).sum(-1)
    return (value * (share / share.sum(-1, keepdim=True))).sum(-1)


@torch.no_grad()
def penalty_and_slope(
    cdf: Tensor, event: Tensor, edges: Tensor, spec: SoftBins, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`unchecked_penalty`, (...), and its gradient in F, (..., n), for a caller who does without autograd."""
    u = cdf.float() if cdf.dtype in (torch.float16, torch.bfloat16) else cdf
    weight = None if weights is None else in_units_of_the_largest(weights, u.dtype)
    value, slope = _XCAL.forward(u, event, weight, None, edges.to(u.dtype), spec, 1, True)
    return value.squeeze(-1), slope.to(cdf.dtype)
