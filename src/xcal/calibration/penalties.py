"""Penalties beside the marginal one: of calibration given the covariates, and of rows that are seen in part.

The first is `conditional_calibration` softened, with its gradient by formula.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad, softplus

from xcal._checks import fail
from xcal._torch_private import apply, kernels_usable
from xcal.calibration.membership import SATURATED, SoftBins, exact_above
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


# --- The penalty of rows that are seen in part: from an entry on, between two times, or with one of several causes.
#
# One formula covers them, and plain right censoring too. A cell is a bin of F, or with causes a bin of the all-cause F
# times a cause. With O what was observed of a row and E the condition on which it came under observation,
#
#     s_cell = mean over rows of P(cell | O) - P(cell | E),
#
# zero on average for a true model. The penalty is the sum of the squares, with an event shared softly among the bins as
# in `membership`; the value by which epochs are chosen shares it exactly.
#
# What a row tells of a cell is written as mass above an edge: bins are differences of it, as in `membership`. With
# L_k(u) what the model leaves to cause k when its all-cause F has come to u, the mass of cause k above the edge e is
#
#     of a row that is known to have come to u     L_k(max(e, u)) / sum of L(u)     (censored at u, or entered there)
#     of an event of cause k at u                  sigma((u - e) / T), or 1 where u >= e
#     of an event between l and u                  the mean of that between l and u
#
# Without causes L(u) = 1 - u, and the first line is `exact_above`.


@dataclass(frozen=True, eq=False)
class Seen:
    """What is known of rows beside F at their time and whether the event happened; None where nothing is.

    Attributes
    ----------
    entry : Tensor of shape (..., n) or None
        F at the time from which each row was under observation.
    lower : Tensor of shape (..., n) or None
        F at the earlier end of the interval that holds an event, F itself where the time is known.
    cause : int64 Tensor of shape (n,) or (..., n), or None
        The cause of each event, 1, 2, ...; 0 for a censored row.
    steps : Tensor of shape (..., n, causes, points) or None
        What each cause adds to F from point to point, as `SurvivalDistribution.incidence_steps` gives it. Between two
        points all causes rise in proportion to F.
    beyond : bool
        Whether the last cause is none, but what lies beyond the end of the curves. It is one cell.
    """

    entry: Tensor | None = None
    lower: Tensor | None = None
    cause: Tensor | None = None
    steps: Tensor | None = None
    beyond: bool = False

    def double(self) -> "Seen":
        """Return it in float64."""
        entry, lower, steps = (None if one is None else one.double() for one in (self.entry, self.lower, self.steps))
        return Seen(entry, lower, self.cause, steps, self.beyond)


def check_default(spec: SoftBins) -> None:
    """Refuse the memberships of the paper, which are there for plain rows."""
    if not spec.cumulative:
        expected = "membership='partition' and censored='exact' for rows that are seen in part"
        fail("membership, censored", expected, f"{spec.membership!r}, {spec.censored!r}")


def residuals(cdf: Tensor, event: Tensor, known: Seen, edges: Tensor, spec: SoftBins, *, exact: bool = False) -> Tensor:
    """Return P(cell | observed) - P(cell | entry) of every row, (..., n, cells), softly or, in float64, exactly.

    Cells are the bins, for each cause. Edges are read in the type of F, and a value on an edge is above it.
    """
    edges = edges.to(cdf.dtype)
    if exact:
        edges, cdf, known = edges.double(), cdf.double(), known.double()
    event = event.unsqueeze(-1).unsqueeze(-1)
    seen = _event_above(cdf, known.lower, edges, spec, exact=exact).unsqueeze(-2)
    if known.steps is None:
        given = 1 - edges[1:-1] if known.entry is None else exact_above(known.entry, edges)
        above = torch.where(event, seen, exact_above(cdf, edges).unsqueeze(-2)) - given.unsqueeze(-2)
        return -pad(above, (1, 1)).diff(dim=-1).squeeze(-2)
    assert known.cause is not None
    left = _Left(known.steps)
    held = 1 - 1e-12 if exact else SATURATED
    start = torch.zeros_like(cdf) if known.entry is None else known.entry
    causes = torch.arange(1, known.steps.shape[-2] + 1, device=cdf.device)
    own = (known.cause.unsqueeze(-1) == causes).to(cdf.dtype).unsqueeze(-1)
    observed = torch.where(event, pad(seen, (1, 0), value=1.0) * own, left.above(cdf, edges, held))
    above = observed - left.above(start, edges, held)
    cells = -pad(above, (0, 1)).diff(dim=-1)
    if not known.beyond:
        return cells.flatten(-2)
    return torch.cat([cells[..., :-1, :].flatten(-2), above[..., -1, :1]], dim=-1)


def _event_above(cdf: Tensor, lower: Tensor | None, edges: Tensor, spec: SoftBins, *, exact: bool) -> Tensor:
    """Mass above each inner edge of an event, (..., n, B - 1): where its F is, or evenly between two."""
    inner, u = edges[1:-1], cdf.unsqueeze(-1)
    if exact:
        at = (u >= inner).to(cdf.dtype)
        if lower is None:
            return at
        start = lower.unsqueeze(-1)
        width = u - start
        some = width > 0
        share = (u - torch.maximum(start, inner)) / torch.where(some, width, 1.0)
        return torch.where(some, torch.clamp(share, 0.0, 1.0), at)
    per_unit = spec.scale(edges.shape[0] - 1)
    at = torch.sigmoid((u - inner) * per_unit)
    if lower is None:
        return at
    # The mean of a sigmoid over an interval, in units of its temperature. Short ones: two nodes of Gauss and Legendre.
    end, start = (u - inner) * per_unit, (lower.unsqueeze(-1) - inner) * per_unit
    width = (u - lower.unsqueeze(-1)) * per_unit
    short = width < 0.5
    safe = torch.where(short, 1.0, width)
    middle, reach = (end + start) / 2, width / (2 * math.sqrt(3))
    two = (torch.sigmoid(middle - reach) + torch.sigmoid(middle + reach)) / 2
    return torch.where(short, two, (softplus(end) - softplus(start)) / safe)


class _Left:
    """What each cause has left when the all-cause F has come to a level, read along straight lines."""

    def __init__(self, steps: Tensor) -> None:
        # From the far end, so that what is small keeps its digits.
        self._after = steps.flip(-1).cumsum(-1).flip(-1) - steps
        self._level = steps.sum(-2).cumsum(-1)
        width = steps.sum(-2)
        some = width > 0
        self._share = steps / torch.where(some, width, 1.0).unsqueeze(-2)
        self._search = self._level.detach().contiguous()

    def at(self, level: Tensor) -> Tensor:
        """Return it at levels (..., n, m) of each row, (..., n, causes, m)."""
        level = level.expand(*self._level.shape[:-1], level.shape[-1])
        index = torch.searchsorted(self._search, level.detach().contiguous()).clamp(max=self._level.shape[-1] - 1)
        end = self._level.gather(-1, index)
        index = index.unsqueeze(-2).expand(*index.shape[:-1], self._share.shape[-2], index.shape[-1])
        rest = self._share.gather(-1, index) * torch.clamp(end - level, min=0.0).unsqueeze(-2)
        return self._after.gather(-1, index) + rest

    def above(self, level: Tensor, edges: Tensor, held: float) -> Tensor:
        """Return the mass above each edge but the last of a row that has come to a level, (..., n, causes, B).

        Where next to nothing is left the shares of the causes are noise, and their slopes without bound: the level is
        `held` below 1.
        """
        level = torch.clamp(level, max=held).unsqueeze(-1)
        left = self.at(torch.cat([level, torch.maximum(level, edges[1:-1])], dim=-1))
        whole = left[..., :1].sum(-2, keepdim=True)
        return left / torch.where(whole > 0, whole, 1.0)


def mean_square(values: Tensor, weights: Tensor | None, spec: SoftBins) -> Tensor:
    """Penalty (...) of residuals (..., n, cells): squared means over rows, summed over cells."""
    if weights is None:
        weights = values.new_ones(values.shape[:-1])
    total = weights.sum(-1)
    share = weights / total.unsqueeze(-1)
    value = (share.unsqueeze(-1) * values).sum(-2).square().sum(-1)
    if spec.estimator == "bound":
        return value
    squares = share.square()
    own = (squares * values.square().sum(-1)).sum(-1)
    return (value - own) * one_over_pairs(squares.sum(-1), values.dtype)


def part_penalty(
    cdf: Tensor, event: Tensor, known: Seen, edges: Tensor, spec: SoftBins, weights: Tensor | None = None
) -> Tensor:
    """X-CAL penalty of rows that are seen in part, (...), without any look at the values."""
    u = in_full(cdf)
    found = residuals(u, event.expand(u.shape), known, edges, spec)
    return mean_square(found, None if weights is None else weights.detach().to(u.dtype).expand(u.shape), spec)


# --- From curves of an own loop.


def part_of_curves(
    incidence: Tensor, times: Tensor, time: Tensor, cause: Tensor, entry: Tensor | None
) -> tuple[Tensor, Tensor, Seen]:
    """Return F at the observed times, whether an event was seen, and what is known beside, from incidences.

    Incidences (..., n, causes, m) are read along straight lines between `times`, from 0 at time 0. Rows observed longer
    than the last of them are censored there.
    """
    curves = in_full(incidence)
    grid = times.to(curves)
    steps = torch.cat([curves[..., :1], curves.diff(dim=-1)], dim=-1).clamp(min=0.0)
    total = steps.sum(-2).cumsum(-1)
    rest = torch.clamp(1 - total[..., -1:], min=0.0).unsqueeze(-2)
    steps = torch.cat([pad(steps, (0, 1)), pad(rest, (steps.shape[-1], 0))], dim=-2)

    def level(at: Tensor) -> Tensor:
        """F along straight lines at one time of each row."""
        at = torch.minimum(at.to(curves), grid[-1])
        right = torch.searchsorted(grid, at.contiguous()).clamp(max=grid.shape[0] - 1)
        end, start = grid[right], torch.where(right > 0, grid[(right - 1).clamp(min=0)], 0.0)
        done = torch.where(end > start, (at - start) / torch.where(end > start, end - start, 1.0), 1.0)
        known = pad(total, (1, 0))
        low, high = (_pick(known, place) for place in (right, right + 1))
        return low + (high - low) * done

    seen = (cause > 0) & (time <= times[-1])
    cause = torch.where(seen, cause, 0)
    u = torch.clamp(level(time), max=1.0)
    known = Seen(None if entry is None else level(entry), None, cause, steps, beyond=True)
    return u, seen, known


def _pick(values: Tensor, index: Tensor) -> Tensor:
    """Entry of `values` (..., n, m) at an index of each row."""
    index = index.expand(values.shape[:-1]).unsqueeze(-1)
    return values.gather(-1, index).squeeze(-1)
