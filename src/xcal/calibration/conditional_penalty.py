r"""The penalty of conditional calibration: `conditional_calibration` softened, with its gradient by formula.

With h_m the features of a row, R_ij its soft residual (`penalty`) and w_i its weight, of sum W,

    bound     sum_mj (sum_i w_i h_m(x_i) R_ij / W)^2
    unbiased  the same less its diagonal, sum_i w_i^2 |h(x_i)|^2 sum_j R_ij^2 / W^2, over the share of pairs

and the gradient in F_i of the bound is (2 w_i / W) sum_mj h_m(x_i) A_mj R'_ij with A the sum in brackets: two matrix
products, H'R and H A. X-CAL is h = 1, and its subgroups are indicators.
"""

from typing import Any

import torch
from torch import Tensor

from xcal._torch_private import apply
from xcal.calibration.penalty import full_precision, gradient_wanted, in_units_of_the_largest
from xcal.calibration.softbins import SoftBins


def _value_and_gradient(
    u: Tensor, event: Tensor, weight: Tensor | None, features: Tensor, edges: Tensor, spec: SoftBins
) -> tuple[Tensor, Tensor]:
    """Penalty of every model, (...), and its gradient in F, (..., n)."""
    happened = spec.events(u, event).unsqueeze(-1)
    events, censored = spec.event_features(u, edges), spec.censored_features(u, edges)
    # What a perfect model has is taken off each row before the rows are summed: features do not average to one.
    bins = torch.where(happened, events, censored) - ((1 - edges[1:-1]) if spec.cumulative else edges.diff())
    # From what is known already: sigmoids and quotients are most of the work.
    slopes = torch.where(happened, spec.event_slopes(u, edges, events), spec.censored_slopes(u, edges, censored))
    share = 1 / max(1, u.shape[-1]) if weight is None else weight / weight.sum(-1, keepdim=True)
    if isinstance(share, float):
        sums = _sum_rows(features, bins) * share  # (..., M, P)
    else:
        sums = _sum_rows(features, share.unsqueeze(-1) * bins)
    # With masses above edges the residual of bin j is a difference of two of them (`membership.bins_from_above`).
    mean = spec.residual_slope(sums)
    value = mean.square().sum((-2, -1))
    per_bin = 2 * (mean.diff(dim=-1) if spec.cumulative else mean)
    gradient = share * (_of_rows(features, per_bin) * slopes).sum(-1)
    if spec.estimator == "unbiased":
        residual, change = spec.residual_slope(bins), spec.residual_slope(slopes)
        squared = share * share * features.square().sum(-1)
        own = (squared * residual.square().sum(-1)).sum(-1)
        inverse = _inverse_pairs(share, u)
        value = (value - own) * inverse
        gradient = gradient - 2 * squared * (residual * change).sum(-1)
        gradient = gradient * (inverse if isinstance(inverse, float) else inverse.unsqueeze(-1))
    return value, gradient


def _inverse_pairs(share: Tensor | float, u: Tensor) -> Tensor | float:
    """One over the share of pairs of different rows; zero where one row has all the weight and there is no pair."""
    if isinstance(share, float):
        return 0.0 if share == 1 else 1 / (1 - share)
    pairs = 1 - share.square().sum(-1)
    enough = pairs > 8 * torch.finfo(u.dtype).eps
    return torch.where(enough, 1 / torch.where(enough, pairs, 1.0), 0.0)


def _sum_rows(features: Tensor, values: Tensor) -> Tensor:
    """H'R: (..., n, M) and (..., n, P) give (..., M, P)."""
    return _product(values, features)


def _of_rows(features: Tensor, values: Tensor) -> Tensor:
    """H A: (..., n, M) and (..., M, P) give (..., n, P)."""
    return _product(values, features.transpose(-1, -2))


def _product(values: Tensor, matrix: Tensor) -> Tensor:
    """Product of the matrix of the features, (..., b, a), transposed, and values (..., b, P): (..., a, P).

    Computed as the transpose of values' times matrix: with few columns P that is nearly twice as fast on a CPU. Where
    all models (..., L) share a matrix (..., 1, b, a), their columns stand side by side in one product: a product for
    each model would copy the matrix for every one of them.
    """
    shared = matrix.dim() >= 3 and matrix.dim() == values.dim() and matrix.shape[-3] == 1 != values.shape[-3]
    if not shared:
        return (values.transpose(-1, -2) @ matrix).transpose(-1, -2)
    models, columns = values.shape[-3], values.shape[-1]
    rows = values.transpose(-1, -2).flatten(-3, -2)  # (..., L P, b)
    found: Tensor = (rows @ matrix.squeeze(-3)).unflatten(-2, (models, columns))  # (..., L, P, a)
    return found.transpose(-1, -2)


class _Conditional(torch.autograd.Function):
    """Only F has a gradient; it is computed with the value, and backward only scales it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        u: Tensor, event: Tensor, weight: Tensor | None, features: Tensor, edges: Tensor, spec: SoftBins, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        with full_precision(u):
            value, gradient = _value_and_gradient(u, event, weight, features, edges, spec)
        return value, gradient if wanted else u.new_zeros(())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        u, event, weight, features, edges, spec, _ = inputs
        _, gradient = output
        ctx.mark_non_differentiable(gradient)
        ctx.save_for_backward(u, event, weight, features, edges, gradient)
        ctx.spec = spec

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *unused: Any) -> tuple[Tensor | None, ...]:
        u, event, weight, features, edges, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            # A second derivative is wanted (create_graph): the gradient has to depend on F again.
            with full_precision(u):
                _, gradient = _value_and_gradient(u, event, weight, features, edges, ctx.spec)
        return gradient * grad.unsqueeze(-1), None, None, None, None, None, None


def unchecked_conditional_penalty(
    cdf: Tensor, event: Tensor, features: Tensor, edges: Tensor, spec: SoftBins, weights: Tensor | None = None
) -> Tensor:
    """Soft conditional calibration without any look at the values: the function for inside a training loop.

    Parameters
    ----------
    cdf : Tensor of shape (..., n)
        F at each row's own time, in [0, 1]. Leading dimensions are models.
    event : bool Tensor of shape (n,) or (..., n)
    features : Tensor of shape (n, M) or (..., n, M)
        Functions of the covariates; constants to the gradient.
    edges : Tensor of shape (B + 1,)
    spec : SoftBins
    weights : Tensor of shape (n,) or (..., n), optional

    Returns
    -------
    Tensor of shape (...)
    """
    u = cdf.float() if cdf.dtype in (torch.float16, torch.bfloat16) else cdf
    weight = None if weights is None else in_units_of_the_largest(weights.detach(), u.dtype).expand_as(u)
    h = features.detach().to(u.dtype)
    value: Tensor
    value, _ = apply(_Conditional, u, event.expand(u.shape), weight, h, edges.to(u.dtype), spec, gradient_wanted(u))
    return value
