"""The penalty of conditional calibration: `conditional_calibration` softened, with its gradient by formula."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from xcal._torch_private import apply, kernels_usable
from xcal.calibration.membership import SoftBins
from xcal.calibration.penalty import (
    _columns,
    _flat,
    full_precision,
    gradient_wanted,
    in_full,
    in_units_of_the_largest,
    one_over_pairs,
    product,
)

# --- The conditional penalty on a GPU: two matrix products, and three kernels around them.
# One operation at a time it takes eighty small ones, which cost more than their arithmetic. It covers what `fit_path`
# trains with: masses above edges, pairs of rows, no weights. Everything else, and every machine without Triton, takes
# the plain torch below, its twin. For the first batch of each shape the two are compared: a Triton
# or a GPU on which the kernels are wrong costs time, and not a wrong model.
#
# With s_j the sum over rows of a feature times the mass above edge j, the residual of a bin is a difference of two
# neighbours. So the sum of squares is that of s_j (2 s_j - s_(j-1) - s_(j+1)), and twice the bracket its slope in s_j.

_TILE = 1024  # numbers of a tile, rows times edges: small ones, as a batch has to keep a whole GPU busy
_MIDDLE = 4096  # the same of features times edges, where a model is one program
_BINS = 1024  # at most; a row of a tile has all of them
# What may lie between kernels and plain torch: rounding is about a hundredth of it.
_TOLERANCE = 1e-3
Found = tuple[Tensor, Tensor]
# Whether the kernels gave what plain torch gave, by the shape of what they were given.
_agreed: dict[tuple[Any, ...], bool] = {}


def conditional_kernels_usable(u: Tensor, weight: Tensor | None, edges: Tensor, spec: SoftBins) -> bool:
    """Return whether the kernels can be used: not for a second derivative, as they have no gradient themselves."""
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
    """Return whether values and gradients agree. A value is a difference of two sums, each of the order of 1 / n."""
    units = wanted[0].abs().amax() + 1 / wanted[1].shape[-1], wanted[1].abs().amax()
    pairs = zip(found, wanted, units, strict=True)
    return all(bool(((one - other).abs() <= _TOLERANCE * unit).all()) for one, other, unit in pairs)


def value_and_gradient(u: Tensor, event: Tensor, features: Tensor, edges: Tensor, spec: SoftBins) -> Found:
    """Penalty of every model, (...), and its gradient in F, (..., n); `_plainly` has the same in torch."""
    from xcal._kernels import conditional_backward, conditional_forward, conditional_middle

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


# --- The penalty of conditional calibration: `conditional_calibration` softened, with its gradient by formula.
# With h_m the features of a row, R_ij its soft residual (`penalty`) and w_i its weight, of sum W,
#
#     bound     sum_mj (sum_i w_i h_m(x_i) R_ij / W)^2
#     unbiased  the same less its diagonal, sum_i w_i^2 |h(x_i)|^2 sum_j R_ij^2 / W^2, over the share of pairs
#
# and the gradient in F_i of the bound is (2 w_i / W) sum_mj h_m(x_i) A_mj R'_ij with A the sum in brackets: two matrix
# products, H'R and H A. X-CAL is h = 1, and its subgroups are indicators.


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows with their shares of the weight, all that the penalty knows of them.

    Those of several sets of rows add up.
    """

    sums: Tensor  # of features times residuals, (..., M, P)
    own: Tensor  # of every row with itself, (...); unbiased only
    square: Tensor  # of squared shares, (...); unbiased only
    lengths: Tensor | None = None  # squared, of the features of every row, (..., n): no sum, but the gradient needs it


def bins_and_slopes(u: Tensor, event: Tensor, edges: Tensor, spec: SoftBins) -> tuple[Tensor, Tensor]:
    """Return what each row has in each bin, or above each edge, less what a perfect model has, and its derivative in F.

    Both are (..., n, P). What a perfect model has is taken off each row before the rows are summed: features do not
    average to one.
    """
    happened = spec.events(u, event).unsqueeze(-1)
    events, censored = spec.event_features(u, edges), spec.censored_features(u, edges)
    bins = torch.where(happened, events, censored) - ((1 - edges[1:-1]) if spec.cumulative else edges.diff())
    # From what is known already: sigmoids and quotients are most of the work.
    slopes = torch.where(happened, spec.event_slopes(u, edges, events), spec.censored_slopes(u, edges, censored))
    return bins, slopes


def moments(share: Tensor, features: Tensor, bins: Tensor, spec: SoftBins) -> Moments:
    """Sum over rows of shares (..., n), or one for all rows, features (..., n, M) and bins (..., n, P)."""
    same = share.dim() == 0
    # H'R of `_product`, (..., M, P)
    sums = _product(bins, features) * share if same else _product(share.unsqueeze(-1) * bins, features)
    own = square = share.new_zeros(())
    lengths = None
    if spec.estimator == "unbiased":
        lengths = features.square().sum(-1)
        squared = share.square() * lengths
        own = (squared * spec.residual_slope(bins).square().sum(-1)).sum(-1)
        square = share if same else share.square().sum(-1)  # n rows with a share of 1/n each
    return Moments(sums, own, square, lengths)


def value_of(at: Moments, spec: SoftBins, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
    """Penalty of every model, (...), the mean by feature and bin, (..., M, B), and one over the share of pairs."""
    # With masses above edges the residual of bin j is a difference of two of them (`membership.bins_from_above`).
    mean = spec.residual_slope(at.sums)
    value = mean.square().sum((-2, -1))
    if spec.estimator == "bound":
        return value, mean, None
    inverse = one_over_pairs(at.square, dtype)
    return (value - at.own) * inverse, mean, inverse


def slope_of(
    share: Tensor,
    features: Tensor,
    lengths: Tensor | None,
    bins: Tensor,
    slopes: Tensor,
    mean: Tensor,
    inverse: Tensor | None,
    spec: SoftBins,
) -> Tensor:
    """Gradient in F, (..., n), from the derivatives `slopes` of the bins; `lengths` are those of `Moments`."""
    per_bin = 2 * (mean.diff(dim=-1) if spec.cumulative else mean)
    gradient = share * (_product(per_bin, features.transpose(-1, -2)) * slopes).sum(-1)
    if inverse is None or lengths is None:
        return gradient
    squared = share.square() * lengths
    own = (spec.residual_slope(bins) * spec.residual_slope(slopes)).sum(-1)
    return (gradient - 2 * squared * own) * inverse.unsqueeze(-1)


def _value_and_gradient(
    u: Tensor, event: Tensor, weight: Tensor | None, features: Tensor, edges: Tensor, spec: SoftBins
) -> tuple[Tensor, Tensor]:
    """Penalty of every model, (...), and its gradient in F, (..., n)."""
    if conditional_kernels_usable(u, weight, edges, spec):
        plain = partial(_plainly, u, event, weight, features, edges, spec)
        return compared_once(u, event, features, edges, spec, plain)
    return _plainly(u, event, weight, features, edges, spec)


def _plainly(
    u: Tensor, event: Tensor, weight: Tensor | None, features: Tensor, edges: Tensor, spec: SoftBins
) -> tuple[Tensor, Tensor]:
    """Penalty and gradient by operations of torch."""
    share = u.new_full((), 1 / max(1, u.shape[-1])) if weight is None else weight / weight.sum(-1, keepdim=True)
    bins, slopes = bins_and_slopes(u, event, edges, spec)
    at = moments(share, features, bins, spec)
    value, mean, inverse = value_of(at, spec, u.dtype)
    return value, slope_of(share, features, at.lengths, bins, slopes, mean, inverse, spec)


def _product(values: Tensor, matrix: Tensor) -> Tensor:
    """Product of the matrix of the features, (..., b, a), transposed, and values (..., b, P): (..., a, P).

    Computed as the transpose of values' times matrix: with few columns P that is nearly twice as fast on a CPU. Where
    all models (..., L) share a matrix (..., 1, b, a), their columns stand side by side in one product: a product for
    each model would copy the matrix for every one of them.
    """
    shared = matrix.dim() >= 3 and matrix.dim() == values.dim() and matrix.shape[-3] == 1 != values.shape[-3]
    if not shared:
        return product(values.transpose(-1, -2), matrix).transpose(-1, -2)
    models, columns = values.shape[-3], values.shape[-1]
    rows = values.transpose(-1, -2).flatten(-3, -2)  # (..., L P, b)
    found: Tensor = product(rows, matrix.squeeze(-3)).unflatten(-2, (models, columns))  # (..., L, P, a)
    return found.transpose(-1, -2)


class _Conditional(torch.autograd.Function):
    """Only F has a gradient; it is computed with the value, and backward only scales it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        u: Tensor, event: Tensor, weight: Tensor | None, features: Tensor, edges: Tensor, spec: SoftBins, wanted: bool
    ) -> tuple[Tensor, Tensor]:
        with full_precision(u.device):
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
            with full_precision(u.device):
                _, gradient = _value_and_gradient(u, event, weight, features, edges, ctx.spec)
        return gradient * grad.unsqueeze(-1), None, None, None, None, None, None


def unchecked_conditional_penalty(
    cdf: Tensor, event: Tensor, features: Tensor, edges: Tensor, spec: SoftBins, weights: Tensor | None = None
) -> Tensor:
    """Soft conditional calibration without any look at the values: the function for inside a training loop.

    Parameters
    ----------
    cdf : Tensor of shape (..., n)
        F at each row's observed time, in [0, 1]. Leading dimensions are models.
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
    u = in_full(cdf)
    weight = None if weights is None else in_units_of_the_largest(weights.detach(), u.dtype).expand_as(u)
    h = features.detach().to(u.dtype)
    value: Tensor
    value, _ = apply(_Conditional, u, event.expand(u.shape), weight, h, edges.to(u.dtype), spec, gradient_wanted(u))
    return value


@torch.no_grad()
def conditional_penalty_and_slope(
    cdf: Tensor, event: Tensor, features: Tensor, edges: Tensor, spec: SoftBins, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """`unchecked_conditional_penalty`, (...), and its gradient in F, (..., n), for a caller without autograd."""
    u = in_full(cdf)
    weight = None if weights is None else in_units_of_the_largest(weights, u.dtype).expand_as(u)
    h = features.to(u.dtype)
    with full_precision(u.device):
        value, slope = _value_and_gradient(u, event.expand(u.shape), weight, h, edges.to(u.dtype), spec)
    return value, slope.to(cdf.dtype)
