"""The X-CAL penalty: soft D-calibration of a batch, with its gradient by formula."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import pad, threshold

from xcal._checks import MANY, as_count, check_rows, fail, refuse_masked
from xcal._torch_private import apply, in_transform, kernels_usable
from xcal.calibration.membership import SATURATED, SoftBins, one_over_rest


def readable(*tensors: Tensor | None) -> bool:
    """Return whether values can be read now: not while a graph is compiled or captured."""
    if torch.compiler.is_compiling():
        return False
    on_gpu = any(t is not None and t.is_cuda for t in tensors)
    return not (on_gpu and torch.cuda.is_current_stream_capturing())


def is_true(flag: Tensor) -> bool:
    """Read a flag; inside torch.func.vmap there is no single value to read, and nothing is refused."""
    try:
        return bool(flag)
    except RuntimeError:
        if in_transform(flag):
            return False
        raise


def refuse(name: str, expected: str, values: Tensor, bad: Tensor) -> None:
    """Raise if any value is bad, naming its row and, with several models, the model."""
    if is_true(bad.any()):
        where = tuple(int(i) for i in bad.nonzero()[0])
        value = values.expand(bad.shape)[where].item()
        if len(where) == 1:
            fail(name, expected, value, where[0])
        fail(name, expected, f"{value} in model {where[:-1]}", where[-1])


def _refuse_outside(name: str, values: Tensor) -> None:
    """Raise if any value lies outside [0, 1]. One pass over the values: NaN is its own smallest and largest."""
    if values.numel() == 0:
        return
    low, high = torch.aminmax(values.detach())
    if is_true(~((low >= 0) & (high <= 1))):
        refuse(name, "values in [0, 1]", values, ~((values >= 0) & (values <= 1)))


def as_tensor(name: str, values: Any, device: torch.device | None = None) -> Tensor:
    """Turn an array into a tensor, or say that it is none."""
    refuse_masked(name, values)
    if isinstance(values, Tensor) and (values.is_meta or values.layout != torch.strided):
        fail(name, "a tensor whose values can be read", f"one of layout {values.layout} on device {values.device}")
    try:
        # Through numpy: torch would read a pandas column by its index, not by its position.
        made = torch.as_tensor(values if isinstance(values, Tensor) else _forwards(values), device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name}: expected a tensor or an array of numbers, got {type(values).__name__}") from error
    if made.is_complex():
        fail(name, "real numbers", f"dtype {made.dtype}")
    return made


def _forwards(values: Any) -> npt.NDArray[Any]:
    """Return an array whose rows lie in memory one after the other: torch takes none that was turned round."""
    array = np.asarray(values)
    return array.copy() if any(step < 0 for step in array.strides) else array


def _check_shapes(cdf: Tensor, rows: dict[str, Tensor | None], *, alone: bool) -> None:
    if not cdf.is_floating_point():
        fail("cdf", "a floating-point tensor of probabilities", f"dtype {cdf.dtype}")
    if cdf.ndim == 0 or (cdf.numel() == 0 and (alone or cdf.shape[-1] > 0)):
        fail("cdf", "shape (..., n) with at least one row", f"shape {tuple(cdf.shape)}")
    for name, values in rows.items():
        if values is None:
            continue
        shape, wanted = tuple(values.shape), tuple(cdf.shape)
        if wanted[-1:] == (1,) and shape == wanted[:-1]:
            fail("cdf", f"rows in the last dimension, as {name} has them: cdf.squeeze(-1)?", f"shape {wanted}")
        if shape not in {wanted, wanted[-1:]}:
            fail(name, f"shape {wanted[-1:]}" + (f" or {wanted}" if cdf.ndim > 1 else ""), f"shape {shape}")
        # One penalty for each row: nobody wants n models of a single row that have events of their own.
        if name == "event" and wanted[-1:] == (1,) and max(shape) > 1:
            expected = "rows in the last dimension: cdf.squeeze(-1) and event.squeeze(-1)?"
            fail("cdf", expected, f"shape {wanted}, which is {cdf.numel()} models of one row")


def checked(
    cdf: Tensor, event: Any, weights: Any, groups: Any, n_groups: int | None, *, alone: bool = True
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, int]:
    """Everything the penalty needs of its arguments, checked once, with groups as labels from 0.

    Where the process is not `alone`, others may have the rows, the weight and the labels that it has not.
    """
    if not torch.compiler.is_compiling():  # what is compiled takes tensors, which have no index
        check_rows({"cdf": cdf, "event": event, "weights": weights, "groups": groups})
    cdf = as_tensor("cdf", cdf)
    event = as_tensor("event", event, cdf.device)
    weights = None if weights is None else as_tensor("weights", weights, cdf.device)
    groups = None if groups is None else as_tensor("groups", groups, cdf.device)
    _check_shapes(cdf, {"event": event, "weights": weights, "groups": groups}, alone=alone)
    if groups is not None and groups.is_floating_point():
        fail("groups", "integer labels, one per row", f"dtype {groups.dtype}")
    if groups is None and n_groups is not None:
        fail("n_groups", "None where there are no groups", n_groups)
    if n_groups is not None:
        n_groups = as_count("n_groups", n_groups, at_least=1, at_most=MANY)
    if readable(cdf, event, weights, groups):
        _refuse_outside("cdf", cdf)
        if event.dtype != torch.bool:
            wrong = (event != 0) & (event != 1)
            refuse("event", "True/False or 0/1, 1 meaning that the event happened", event, wrong)
        if weights is not None:
            refuse("weights", "finite weights, zero or larger", weights, ~((weights >= 0) & weights.isfinite()))
            if alone and is_true((weights.sum(-1) <= 0).any()):
                fail("weights", "a positive sum", "weights that are all zero")
        if groups is not None and n_groups is not None:
            refuse("groups", f"labels from 0 to {n_groups - 1}", groups, (groups < 0) | (groups >= n_groups))
    if groups is not None:
        if n_groups is None:
            if not alone:
                fail("n_groups", "a number, as every process sees only the labels of its own rows", None)
            if torch.compiler.is_compiling():
                fail("n_groups", "a number, as the labels cannot be counted while compiling", None)
            known, groups = torch.unique(groups, return_inverse=True)
            n_groups = known.shape[0]
        groups = groups.long()
    return cdf, event.bool(), weights, groups, n_groups or 1


# --- The two common penalties on a GPU, each pass in one kernel.
# Run one operation at a time, the penalty spends its time on starting kernels and on moving arrays of rows x bins.
# These Triton kernels read each F once and keep memberships in registers. They cover the default penalty and the
# paper's; everything else, and every machine without Triton, takes the blocks of plain torch below, which give the same
# numbers.

_ROWS = 128  # rows of one tile; times the bins, padded to a power of two, one tile fits the registers of a block
_PROGRAMS = 1056  # enough to fill a large GPU, few enough that their partial sums cost nothing


def _flat(u: Tensor, values: Tensor) -> tuple[Tensor, int]:
    """Rows of every model one after another, and how far to step from one model to the next."""
    if values.ndim == 1 or values.shape[:-1].numel() == 1:
        return values.contiguous(), 0
    return values.expand(u.shape).contiguous(), u.shape[-1]


def _columns(bins: int) -> int:
    return max(16, 1 << (bins - 1).bit_length())


def fused_sum_features(
    u: Tensor, event: Tensor, weight: Tensor, edges: Tensor, scale: float | Tensor, cumulative: bool
) -> Tensor:
    """Weighted sum over rows of the features of `SoftBins`: (..., n) to (..., P).

    A `scale` that is a tensor is read by the kernel when it runs: a recorded step follows it.
    """
    n, bins = u.shape[-1], edges.shape[0] - 1
    models = u.numel() // n
    used, columns = (bins - 1 if cumulative else bins), _columns(bins)
    programs = min(-(-n // _ROWS), max(1, _PROGRAMS // models))
    out = u.new_empty(models, programs, columns)
    event, event_step = _flat(u, event)
    weight, weight_step = _flat(u, weight)
    from xcal._kernels import penalty_forward

    with torch.cuda.device(u.device):
        penalty_forward[(programs, models)](
            u.contiguous(), event.view(torch.uint8), weight, edges, out, n, event_step, weight_step, bins, scale,
            SATURATED, CUMULATIVE=cumulative, IN_MEMORY=isinstance(scale, Tensor), COLUMNS=columns, ROWS=_ROWS,
        )  # fmt: skip
    return out.sum(1)[:, :used].view(*u.shape[:-1], used)


def fused_row_gradient(
    u: Tensor, event: Tensor, weight: Tensor, edges: Tensor, slope: Tensor, scale: float | Tensor, cumulative: bool
) -> Tensor:
    """Weight times the inner product of each row's feature derivatives with `slope` (..., P): (..., n)."""
    n, bins = u.shape[-1], edges.shape[0] - 1
    models = u.numel() // n
    out = torch.empty_like(u, memory_format=torch.contiguous_format)
    event, event_step = _flat(u, event)
    weight, weight_step = _flat(u, weight)
    from xcal._kernels import penalty_backward

    with torch.cuda.device(u.device):
        penalty_backward[(-(-n // _ROWS), models)](
            u.contiguous(), event.view(torch.uint8), weight, edges, slope.contiguous(), out, n, event_step, weight_step,
            bins, slope.shape[-1], scale, SATURATED, CUMULATIVE=cumulative, IN_MEMORY=isinstance(scale, Tensor),
            COLUMNS=_columns(bins), ROWS=_ROWS,
        )  # fmt: skip
    return out


# --- Weights of rows: their unit, and their parts by group and by kind of row.


def group_weights(weight: Tensor, labels: Tensor | None, n_groups: int) -> Tensor:
    """Row weights split by group: (..., n) to (..., G, n). Without groups G is one."""
    if labels is None:
        return weight.unsqueeze(-2)
    one = torch.arange(n_groups, device=labels.device).unsqueeze(-1) == labels.unsqueeze(-2)
    return weight.unsqueeze(-2) * one


def ones(u: Tensor, event: Tensor) -> Tensor:
    """Weights of rows that were given none."""
    return torch.ones_like(event, dtype=u.dtype)


def by_kind(weight: Tensor, happened: Tensor) -> tuple[Tensor, Tensor]:
    """Row weights of events and of censored rows.

    Weights of zero do what a choice between two arrays of rows x bins would do, in two vectors.
    """
    seen = weight * happened
    return seen, weight - seen


def in_units_of_the_largest(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Row weights in the type of F, the largest of each model between 1 and 2.

    The penalty does not depend on their unit, but sums of squares of them may leave the range of the type. The factor
    is a power of two, which rounds nothing, in two halves, each of which the type can hold.
    """
    if not weights.is_floating_point() or weights.element_size() < 4:
        weights = weights.to(dtype)
    power = power_of_the_largest(weights)
    half = torch.floor(power / 2)
    return (weights * torch.exp2(-half) * torch.exp2(half - power)).to(dtype)


def power_of_the_largest(weights: Tensor) -> Tensor:
    """Largest power of two below the largest weight of each model, as its logarithm, (..., 1)."""
    largest = weights.amax(-1, keepdim=True)
    return torch.floor(torch.log2(torch.where(largest > 0, largest, 1.0)))


# --- The default penalty on a batch that fits the cache: value and gradient in the fewest operations.


def is_small_default(u: Tensor, labels: Tensor | None, edges: Tensor, spec: SoftBins, most: int) -> bool:
    """Return whether it is the default penalty on a batch that fits the cache, outside compilation and transforms.

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

    As in `statistics` and `row_gradient`, which every other penalty takes. `above` is overwritten.
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


# --- The X-CAL penalty: soft D-calibration of a batch, with its gradient by formula.
# With zeta_ij the membership of row i in bin j, |I_j| the bin's width and R_ij = zeta_ij - |I_j|,
#
#     bound     sum_j (mean_i R_ij)^2                                     (the paper's upper bound on a batch)
#     unbiased  sum_j ((sum_i R_ij)^2 - sum_i R_ij^2) / (M (M - 1))       (the U-statistic of the squared mean)
#
# and the gradient in F_i is sum_j (2 / M) (mean_i R_ij) zeta'_ij for the bound. Autograd through these formulas keeps
# several n x B arrays; here value and gradient are computed together, a few rows at a time, so that extra memory is a
# constant number of (..., n) buffers whatever the number of bins.

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
        sums = fused_sum_features(u, event, weight, edges, spec.scale(edges.shape[0] - 1), spec.cumulative)
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
        return fused_row_gradient(u, event, weight, edges, slope.squeeze(-2), sharpness, spec.cumulative)
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
    """Return whether the GPU kernels can be used: not for a second derivative, as they have no gradient themselves."""
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


def in_full(values: Tensor) -> Tensor:
    """Half precision as float32, which sums are taken in under autocast too."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def gradient_wanted(u: Tensor) -> bool:
    """Return whether a backward pass may follow; within a function transform or a compiler it always may."""
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

    Examples
    --------
    >>> F, event, edges = torch.tensor([0.1, 0.4, 0.6, 0.9]), torch.ones(4, dtype=torch.bool), torch.linspace(0, 1, 3)
    >>> bool(unchecked_penalty(F, event, edges, SoftBins()) < 1e-6)  # as many rows on either side
    True
    """
    u = in_full(cdf)
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
    u = in_full(cdf)
    weight = None if weights is None else in_units_of_the_largest(weights, u.dtype)
    value, slope = _XCAL.forward(u, event, weight, None, edges.to(u.dtype), spec, 1, True)
    return value.squeeze(-1), slope.to(cdf.dtype)
