r"""The penalty of rows that several processes hold, as if one process held them all.

The penalty of a batch is a function of sums over its rows: B numbers per model and group, or 2 more for the unbiased
estimator (M x B with M features). Each process adds up its own rows, one all-reduce adds up the processes, and no row
leaves its process. With the sums A of all rows held constant, the penalty's slope in F of a row depends on that row and
on A alone. So every process knows the whole penalty, and its gradient in its own rows.

DistributedDataParallel, Lightning and Accelerate average the gradients of processes. The gradient of one penalty is the
sum over processes, so that the gradient here is multiplied by their number first.
"""

import zlib
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor

from xcal._checks import fail
from xcal._processes import Group, Processes, World
from xcal._torch_private import in_transform
from xcal.calibration.conditional_penalty import Moments, bins_and_slopes, moments, slope_of, value_of
from xcal.calibration.penalty import RowSums, full_precision, gradient_wanted, pick, row_gradient, row_sums, statistics
from xcal.calibration.row_weights import in_units_of_the_largest, power_of_the_largest
from xcal.calibration.softbins import SoftBins


@dataclass(frozen=True, eq=False)
class LocalRows:
    """Rows of this process: F, events and weights (..., n), and what the penalty is to know of them.

    `weights` may all be zero here, and n may be zero: other processes have rows.
    """

    cdf: Tensor
    event: Tensor
    weights: Tensor | None = None
    labels: Tensor | None = None
    n_groups: int = 1
    features: Tensor | None = None


def penalty_across(
    rows: LocalRows, edges: Tensor, spec: SoftBins, processes: Processes, *, averaged: bool = True
) -> Tensor:
    """Return the penalty of the rows of all processes, (...), the same value on each of them; NaN if there are none.

    Its gradient is that in the rows of this process, times the number of processes if gradients will be `averaged`.
    """
    _check_plain(rows.cdf)
    u = rows.cdf.float() if rows.cdf.dtype in (torch.float16, torch.bfloat16) else rows.cdf
    wanted = gradient_wanted(u)
    edge = edges.to(u.dtype)
    with torch.no_grad(), full_precision(u):
        weight, unit = _weights(rows.weights, u)
        processes.agree(_shared_numbers(rows, edges, spec))
        whole = replace(rows, cdf=u.detach(), event=rows.event.expand(u.shape), weights=weight)
        one = _average if rows.features is None else _conditional
        value, gradient = one(whole, unit, edge, spec, processes, wanted)
    return _with_gradient(u, value.to(u.dtype), gradient, processes.size if averaged else 1)


def mean_across_processes(values: Tensor, weights: Any = None, *, process_group: Group | World = "world") -> Tensor:
    """Mean over the rows of all processes of one value per row, for a loss whose gradients are averaged.

    A plain ``values.mean()`` under DistributedDataParallel is the mean of the means of processes: if one of them has
    fewer rows, each of its rows counts more. Here every row counts the same, and a process without rows takes part.

    Parameters
    ----------
    values : Tensor of shape (..., n)
        One value for each row of this process, such as the negative log-likelihood. n may be zero.
    weights : Tensor of shape (n,) or (..., n), optional
        Row weights; constants to the gradient.
    process_group
        A group of `torch.distributed`, or "world" for all processes.

    Returns
    -------
    Tensor of shape (...)
        The same value on every process. After gradients are averaged over processes, as DistributedDataParallel
        does, every parameter has the gradient of this one mean.

    Examples
    --------
    >>> import torch.distributed as dist
    >>> store = dist.HashStore()
    >>> dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    >>> mean_across_processes(torch.tensor([1.0, 2.0, 6.0]))
    tensor(3.)
    >>> dist.destroy_process_group()
    """
    processes = Processes.of(process_group)
    _check_plain(values)
    v = values.float() if values.dtype in (torch.float16, torch.bfloat16) else values
    given = None if weights is None else torch.as_tensor(weights, device=v.device)
    if given is not None and tuple(given.shape) not in {tuple(v.shape), tuple(v.shape[-1:])}:
        fail("weights", f"shape {tuple(v.shape)}, as values", f"shape {tuple(given.shape)}")
    with torch.no_grad(), full_precision(v):
        weight, unit = _weights(given, v)
        sums = torch.stack([(weight * v.detach()).sum(-1), weight.sum(-1)], dim=-1)
        mean, weight_of_all = processes.total(_times(sums, unit)).split(1, dim=-1)
        if bool((weight_of_all <= 0).any()):
            _no_rows()
        value = (mean / weight_of_all).squeeze(-1).to(v.dtype)
        gradient = weight * (1 / _over(weight_of_all, unit)).to(v.dtype)
    return _with_gradient(v, value, gradient, processes.size)


def _average(
    rows: LocalRows, unit: Tensor | None, edges: Tensor, spec: SoftBins, processes: Processes, wanted: bool
) -> tuple[Tensor, Tensor]:
    """Calibration on average or within groups: value (...) and gradient (..., n)."""
    u, weight = rows.cdf, _given(rows.weights)
    local = _local_sums(rows, weight, edges, spec)
    unbiased, columns = spec.estimator == "unbiased", local.features.shape[-1]
    parts = [_times(local.features.flatten(-2), unit), _times(local.weight, unit)]
    if unbiased:
        parts += [_times(_times(part, unit), unit) for part in (local.own, local.square)]
    total = processes.total(torch.cat(parts, dim=-1))
    groups = rows.n_groups
    sums, *others = total.split([groups * columns] + [groups] * (len(parts) - 1), dim=-1)
    own, square = others[1:] if unbiased else (local.own, local.square)
    joint = RowSums(sums.unflatten(-1, (groups, columns)), others[0], own, square)
    at = statistics(joint, edges.double(), spec, grouped=rows.labels is not None, dtype=u.dtype)
    share = None if rows.labels is None else others[0] / others[0].sum(-1, keepdim=True)
    value = at.value.squeeze(-1) if share is None else (at.value * share).sum(-1)
    if not wanted or u.numel() == 0:
        return value, torch.zeros_like(u)
    # In the unit of this process's weights, and in the type of its rows, as for rows of one process.
    here = replace(
        at,
        mean=at.mean.to(u.dtype),
        total=_over(at.total, unit).to(u.dtype),
        inverse=None if at.inverse is None else at.inverse.to(u.dtype),
        features=local.kept,
    )
    gradient = row_gradient(u, rows.event, weight, rows.labels, edges, spec, here)
    return value, gradient if share is None else gradient * pick(share.to(u.dtype), rows.labels)


def _local_sums(rows: LocalRows, weight: Tensor, edges: Tensor, spec: SoftBins) -> RowSums:
    """Add up the rows of this process, each sum of its full shape; zeros if there are none."""
    u, groups = rows.cdf, rows.n_groups
    if u.numel() > 0:
        found = row_sums(u, rows.event, weight, rows.labels, edges, spec, groups)
        small = {name: getattr(found, name).expand(*u.shape[:-1], groups) for name in ("weight", "own", "square")}
        return replace(found, **small)
    none = u.new_zeros(*u.shape[:-1], groups)
    columns = edges.shape[0] - (2 if spec.cumulative else 1)
    return RowSums(u.new_zeros(*none.shape, columns), none, none, none)


def _conditional(
    rows: LocalRows, unit: Tensor | None, edges: Tensor, spec: SoftBins, processes: Processes, wanted: bool
) -> tuple[Tensor, Tensor]:
    """Calibration given features of the rows: value (...) and gradient (..., n)."""
    u, weight, h = rows.cdf, _given(rows.weights), _given(rows.features).detach().to(rows.cdf.dtype)
    bins, slopes = bins_and_slopes(u, rows.event, edges, spec)
    local = moments(weight, h, bins, spec)
    unbiased, shape = spec.estimator == "unbiased", local.sums.shape[-2:]
    parts = [_times(local.sums.flatten(-2), unit), _times(weight.sum(-1, keepdim=True), unit)]
    if unbiased:
        parts += [_times(_times(part.unsqueeze(-1), unit), unit) for part in (local.own, local.square)]
    total = processes.total(torch.cat(parts, dim=-1))
    sums, (whole, *others) = total[..., : shape.numel()], total[..., shape.numel() :].unbind(-1)
    own, square = (part / whole.square() for part in others) if unbiased else (local.own, local.square)
    joint = Moments((sums / whole.unsqueeze(-1)).unflatten(-1, shape), own, square)
    value, mean, inverse = value_of(joint, spec, u.dtype)
    if not wanted:
        return value, torch.zeros_like(u)
    share = weight * (1 / _over(whole.unsqueeze(-1), unit)).to(u.dtype)
    inverse = None if inverse is None else inverse.to(u.dtype)
    return value, slope_of(share, h, bins, slopes, mean.to(u.dtype), inverse, spec)


def _weights(weights: Tensor | None, u: Tensor) -> tuple[Tensor, Tensor | None]:
    """Row weights (..., n) in the type of F, and the power of two that they are in units of, (..., 1) in float64.

    Every process has a unit of its own, or none: a common one would take an all-reduce more.
    """
    if weights is None:
        return torch.ones_like(u), None
    if u.shape[-1] == 0:
        return torch.zeros_like(u), None
    given = weights.detach()
    unit = torch.exp2(power_of_the_largest(given.double()))
    return in_units_of_the_largest(given, u.dtype).expand(u.shape), unit.expand(*u.shape[:-1], 1)


def _times(sums: Tensor, unit: Tensor | None) -> Tensor:
    """Take sums out of this process's unit of weight, in float64."""
    return sums.double() if unit is None else sums.double() * unit


def _over(sums: Tensor, unit: Tensor | None) -> Tensor:
    """Put sums over all processes into this process's unit of weight."""
    return sums if unit is None else sums / unit


def _given(values: Tensor | None) -> Tensor:
    assert values is not None
    return values


def _check_plain(values: Tensor) -> None:
    """Refuse what has no sum over processes: values within a function transform or a compiler."""
    if torch.compiler.is_compiling() or in_transform(values):
        fail("process_group", "None inside torch.compile and torch.func (leading dimensions are models)", "a group")


def check_any_rows(value: Tensor) -> None:
    """Refuse a penalty of no rows, which is NaN; every process sees the same one, and all of them refuse it."""
    if bool(value.detach().isnan().any()):
        _no_rows()


def _no_rows() -> NoReturn:
    fail("process_group", "at least one row of positive weight on some process", "none")


def _shared_numbers(rows: LocalRows, edges: Tensor, spec: SoftBins) -> dict[str, int]:
    """Return what all processes must agree on, by the names of the arguments.

    Temperature and gamma are left out: they may change from step to step, and what is new has to be asked for.
    """
    kinds = (spec.membership, spec.censored, spec.estimator)
    return {
        "n_bins": edges.shape[0] - 1,
        "n_groups": rows.n_groups,
        "features": 0 if rows.features is None else rows.features.shape[-1],
        "cdf (number of models)": rows.cdf.shape[:-1].numel(),
        "settings of the penalty": zlib.crc32(repr(kinds).encode()),
        # Those on a GPU are not asked: it would have to be waited for.
        "edges": 0 if edges.is_cuda else zlib.crc32(edges.numpy().tobytes()),
    }


class _Known(torch.autograd.Function):
    """A value (...) whose gradient in the rows (..., n) is known; backward only scales it."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # The sums of all processes depend on F of every row, and only the first derivative is a sum over processes.
            fail("process_group", "None for a second derivative (create_graph=True)", "a group")
        (gradient,) = ctx.saved_tensors
        return gradient * grad.unsqueeze(-1), None, None


def _with_gradient(u: Tensor, value: Tensor, gradient: Tensor, factor: int) -> Tensor:
    known: Tensor = _Known.apply(u, value, gradient * factor)
    return known
