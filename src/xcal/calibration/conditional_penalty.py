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
    u: Tensor, event: Tensor, weight: Tensor, features: Tensor, edges: Tensor, spec: SoftBins
) -> tuple[Tensor, Tensor]:
    """Penalty of every model, (...), and its gradient in F, (..., n)."""
    total = weight.sum(-1, keepdim=True)
    share = (weight / total).unsqueeze(-1)
    happened = spec.events(u, event).unsqueeze(-1)
    events, censored = spec.event_features(u, edges), spec.censored_features(u, edges)
    # What a perfect model has is taken off each row before the rows are summed: features do not average to one.
    bins = torch.where(happened, events, censored) - ((1 - edges[1:-1]) if spec.cumulative else edges.diff())
    # From what is known already: sigmoids and quotients are most of the work.
    slopes = torch.where(happened, spec.event_slopes(u, edges, events), spec.censored_slopes(u, edges, censored))
    sums = _product(features.transpose(-1, -2), share * bins)  # (..., M, P)
    # With masses above edges the residual of bin j is a difference of two of them (`membership.bins_from_above`).
    mean = spec.residual_slope(sums)
    value = mean.square().sum((-2, -1))
    per_bin = 2 * (mean.diff(dim=-1) if spec.cumulative else mean)
    gradient = share.squeeze(-1) * (_product(features, per_bin) * slopes).sum(-1)
    if spec.estimator == "unbiased":
        length = features.square().sum(-1)
        residual, change = spec.residual_slope(bins), spec.residual_slope(slopes)
        squared = share.squeeze(-1).square() * length
        own = (squared * residual.square().sum(-1)).sum(-1)
        pairs = 1 - share.squeeze(-1).square().sum(-1)
        # One row makes no pair: nothing to estimate, value and gradient zero.
        enough = pairs > 8 * torch.finfo(u.dtype).eps
        inverse = torch.where(enough, 1 / torch.where(enough, pairs, 1.0), 0.0)
        value = (value - own) * inverse
        gradient = (gradient - 2 * squared * (residual * change).sum(-1)) * inverse.unsqueeze(-1)
    return value, gradient


def _product(shared: Tensor, values: Tensor) -> Tensor:
    """Matrix product of (..., a, b) and (..., b, P).

    Where all models (..., L) share a matrix (..., 1, a, b), their columns stand side by side in one product: a product
    for each model would copy the matrix for every one of them.
    """
    if shared.dim() < 3 or shared.dim() != values.dim() or shared.shape[-3] != 1 or values.shape[-3] == 1:
        return shared @ values
    models, columns = values.shape[-3], values.shape[-1]
    beside = values.transpose(-3, -2).flatten(-2)  # (..., b, L P)
    found = shared.squeeze(-3) @ beside
    return found.unflatten(-1, (models, columns)).transpose(-3, -2)


class _Conditional(torch.autograd.Function):
    """Only F has a gradient; it is computed with the value, and backward only scales it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        u: Tensor, event: Tensor, weight: Tensor, features: Tensor, edges: Tensor, spec: SoftBins, wanted: bool
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
    weight = torch.ones_like(u) if weights is None else in_units_of_the_largest(weights.detach(), u.dtype).expand_as(u)
    h = features.detach().to(u.dtype)
    value: Tensor
    value, _ = apply(_Conditional, u, event.expand(u.shape), weight, h, edges.to(u.dtype), spec, gradient_wanted(u))
    return value
