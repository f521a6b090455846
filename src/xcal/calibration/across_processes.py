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

import torch
from torch import Tensor

from xcal._processes import Processes
from xcal.calibration.conditional_penalty import Moments, bins_and_slopes, moments, slope_of, value_of
from xcal.calibration.penalty import (
    BLOCK,
    RowSums,
    full_precision,
    gradient_wanted,
    pick,
    row_gradient,
    row_sums,
    statistics,
)
from xcal.calibration.process_mean import LocalMean
from xcal.calibration.process_sums import Exchange, RowWeights, check_plain, in_full, no_rows, with_gradient
from xcal.calibration.small_batch import SmallRows, is_small_default, residual_and_slope
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

    Its gradient is that in the rows of this process, times the number of processes if gradients will be `averaged`, as
    those of a user's loop are; those of our own loop are not.
    """
    return _penalty(rows, edges, spec, processes, Exchange(processes, own_loop=not averaged), averaged)


def mean_and_penalty_across(
    values: Tensor, rows: LocalRows, edges: Tensor, spec: SoftBins, processes: Processes
) -> tuple[Tensor, Tensor]:
    """Return the mean of `values` (..., n) and the penalty, both of the rows of all processes, by one all-reduce.

    Gradients are those of `mean_across_processes` and of `penalty_across`.
    """
    check_plain(values)
    local = LocalMean(values, rows.weights)
    exchange = Exchange(processes, local.sums)
    penalty = _penalty(rows, edges, spec, processes, exchange, True)
    return local.of_all(exchange.totals()[-1], processes.size), penalty


def _penalty(
    rows: LocalRows, edges: Tensor, spec: SoftBins, processes: Processes, exchange: Exchange, averaged: bool
) -> Tensor:
    check_plain(rows.cdf)
    u = in_full(rows.cdf)
    wanted = gradient_wanted(u)
    with torch.no_grad(), full_precision(u.device):
        exchange.agree(_shared_numbers(rows, edges, spec, exchange.n_along))
        whole = replace(rows, cdf=u.detach(), event=rows.event.expand(u.shape))
        edge = edges.to(u.dtype)
        if rows.features is not None:
            way = _conditional
        else:
            way = _small if wanted and is_small_default(u, rows.labels, edge, spec, BLOCK["cpu"]) else _average
        value, gradient = way(whole, RowWeights(rows.weights, u), edge, spec, exchange, wanted)
        if averaged and wanted:
            gradient.mul_(processes.size)
    return with_gradient(u, value.to(u.dtype), gradient)


def _small(
    rows: LocalRows, weights: RowWeights, edges: Tensor, spec: SoftBins, exchange: Exchange, wanted: bool
) -> tuple[Tensor, Tensor]:
    """Calibration on average of few rows: `small_default` of several processes, value (...) and gradient (..., n)."""
    u, w = rows.cdf, weights.rows
    at = SmallRows.of(u, rows.event, edges[1:-1], spec.scale(edges.shape[0] - 1))
    sums = at.features.sum(-2) if w is None else (w.unsqueeze(-2) @ at.features).squeeze(-2)
    exchange.start(weights.out_of_unit(sums), weights.sum(u))
    slopes = at.slopes()  # half of the work, while the sums are on their way
    above, total, *_ = exchange.totals()
    residual, slope = residual_and_slope(above / total, at.rest.double())
    slope = slope / weights.in_unit(total).unsqueeze(-1)
    gradient = (slopes @ slope.to(u.dtype)).squeeze(-1)
    return torch.linalg.vecdot(residual, residual), gradient if w is None else gradient * w


def _average(
    rows: LocalRows, weights: RowWeights, edges: Tensor, spec: SoftBins, exchange: Exchange, wanted: bool
) -> tuple[Tensor, Tensor]:
    """Calibration on average or within groups: value (...) and gradient (..., n)."""
    u, weight = rows.cdf, weights.or_ones(rows.cdf)
    local = _local_sums(rows, weight, edges, spec)
    unbiased, columns = spec.estimator == "unbiased", local.features.shape[-1]
    parts = [weights.out_of_unit(local.features.flatten(-2)), weights.out_of_unit(local.weight)]
    if unbiased:
        parts += [weights.out_of_unit(part, power=2) for part in (local.own, local.square)]
    exchange.start(*parts)
    sums, total, *others = exchange.totals()
    own, square = others[:2] if unbiased else (local.own, local.square)
    joint = RowSums(sums.unflatten(-1, (rows.n_groups, columns)), total, own, square)
    at = statistics(joint, edges.double(), spec, grouped=rows.labels is not None, dtype=u.dtype)
    share = None if rows.labels is None else total / total.sum(-1, keepdim=True)
    value = at.value.squeeze(-1) if share is None else (at.value * share).sum(-1)
    if not wanted or u.numel() == 0:
        return value, torch.zeros_like(u)
    # In the unit of this process's weights, and in the type of its rows, as for rows of one process.
    here = replace(
        at,
        mean=at.mean.to(u.dtype),
        total=weights.in_unit(at.total).to(u.dtype),
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
    rows: LocalRows, weights: RowWeights, edges: Tensor, spec: SoftBins, exchange: Exchange, wanted: bool
) -> tuple[Tensor, Tensor]:
    """Calibration given features of the rows: value (...) and gradient (..., n)."""
    assert rows.features is not None
    u, weight, h = rows.cdf, weights.or_ones(rows.cdf), rows.features.detach().to(rows.cdf.dtype)
    bins, slopes = bins_and_slopes(u, rows.event, edges, spec)
    local = moments(weight, h, bins, spec)
    unbiased, shape = spec.estimator == "unbiased", local.sums.shape[-2:]
    parts = [weights.out_of_unit(local.sums.flatten(-2)), weights.sum(u)]
    if unbiased:
        parts += [weights.out_of_unit(part.unsqueeze(-1), power=2) for part in (local.own, local.square)]
    exchange.start(*parts)
    sums, whole, *others = exchange.totals()
    own, square = (
        ((part / whole.square()).squeeze(-1) for part in others[:2]) if unbiased else (local.own, local.square)
    )
    value, mean, inverse = value_of(Moments((sums / whole).unflatten(-1, shape), own, square), spec, u.dtype)
    if not wanted:
        return value, torch.zeros_like(u)
    share = weight * (1 / weights.in_unit(whole)).to(u.dtype)
    inverse = None if inverse is None else inverse.to(u.dtype)
    return value, slope_of(share, h, local.lengths, bins, slopes, mean.to(u.dtype), inverse, spec)


def check_any_rows(value: Tensor) -> None:
    """Refuse a penalty of no rows, which is NaN; every process sees the same one, and all of them refuse it."""
    if bool(value.detach().isnan().any()):
        no_rows()


def _shared_numbers(rows: LocalRows, edges: Tensor, spec: SoftBins, n_along: int) -> dict[str, int]:
    """Return what all processes must agree on, by the names of the arguments.

    Temperature and gamma are left out: they may change from step to step, and what is new has to be asked for.
    """
    kinds = (spec.membership, spec.censored, spec.estimator)
    return {
        "n_bins": edges.shape[0] - 1,
        "n_groups": rows.n_groups,
        "features": 0 if rows.features is None else rows.features.shape[-1],
        "cdf (number of models)": rows.cdf.shape[:-1].numel(),
        "calls of with_mean": n_along,
        "settings of the penalty": zlib.crc32(repr(kinds).encode()),
        # Those on a GPU are not asked: it would have to be waited for.
        "edges": 0 if edges.is_cuda else zlib.crc32(edges.numpy().tobytes()),
    }
