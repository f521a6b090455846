"""The penalty and the mean of rows that several processes hold, as if one process held them all."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from xcal._checks import fail
from xcal._devices import Group, Processes, World
from xcal._torch_private import apply, in_transform
from xcal.calibration.membership import SoftBins
from xcal.calibration.penalties import Moments, Seen, bins_and_slopes, moments, residuals, slope_of, value_of
from xcal.calibration.penalty import (
    BLOCK,
    RowSums,
    SmallRows,
    full_precision,
    gradient_wanted,
    in_full,
    in_units_of_the_largest,
    is_small_default,
    one_over_pairs,
    pick,
    power_of_the_largest,
    readable,
    residual_and_slope,
    row_gradient,
    row_sums,
    statistics,
)

# --- Sums over processes of which every process sees that all of them mean the same.
# Processes that add up different things would wait for each other without end, or get numbers that mean nothing: one
# of them has other bins than before, and the others have not. What a process means goes along with its sums, as a mark
# f and its square. If all marks are equal, the sums over P processes are P f and P f^2. If not, marks have a variance,
# and no process finds both: each of them sees it, in the same message. For that, messages of one group have one
# length, that of the longest so far. A process that means something new sends its mark alone, in that length, before
# anything else.

_MARKS = 1 << 20  # squares of marks add up exactly in float64, up to 8,192 processes


@dataclass
class _Said:
    """What the processes of a group have agreed on, and the length of their messages."""

    known: set[tuple[int, ...]] = field(default_factory=set)
    length: int = 0


_said: "WeakKeyDictionary[Any, _Said]" = WeakKeyDictionary()


def summing_alike(processes: Processes, values: Tensor, what: dict[str, int]) -> Callable[[], Tensor]:
    """Start to add up float64 `values` over all processes; the function that is returned waits for the sum.

    `what` says what the values mean, in numbers by name. If a number differs between processes, all of them refuse; not
    while a CUDA graph is recorded, when no number can be read.
    """
    meant = what | {"numbers to add up": values.numel()}
    numbers = tuple(meant.values())
    mark = zlib.crc32(repr(numbers).encode()) % _MARKS
    said = _said.setdefault(processes.group, _Said())
    if numbers not in said.known:
        if said.known:  # others may be at something that they know
            processes.summing(_message(values.new_zeros(0), mark, said.length))()
        processes.compare(meant)
        said.known.add(numbers)
        said.length = max(said.length, values.numel())
    finished = processes.summing(_message(values.flatten(), mark, said.length))

    def totals() -> Tensor:
        found = finished()
        expected = [processes.size * mark, processes.size * mark**2]
        if readable(found) and found[-2:].tolist() != expected:
            processes.compare(meant)
        return found[: values.numel()].view(values.shape)

    return totals


def _message(values: Tensor, mark: int, length: int) -> Tensor:
    """Values, zeros up to the common length, and the mark."""
    end = [0.0] * (length - values.numel()) + [float(mark), float(mark**2)]
    return torch.cat([values, values.new_tensor(end)])


class Exchange:
    """The one all-reduce of a step: sums (..., k) of any number of things go together, in float64.

    What they mean is compared at every call where the calls are those of a user's loop. In a loop of our own, which is
    the same on all processes, it is compared once (`own_loop`): on a GPU, a step would have to be waited for.
    """

    def __init__(self, processes: Processes, *along: Tensor, own_loop: bool = False) -> None:
        self._processes, self.along, self._own_loop = processes, along, own_loop
        self._what: dict[str, int] = {}

    def agree(self, what: dict[str, int]) -> None:
        """Take down what the sums mean, in numbers that must be the same on every process."""
        self._what = what
        if self._own_loop:
            self._processes.agree(what)

    def start(self, *parts: Tensor) -> None:
        """Send the sums of this process, and what goes `along` with them."""
        all_parts = (*parts, *self.along)
        self._widths = [part.shape[-1] for part in all_parts]
        sums = torch.cat(all_parts, dim=-1)
        if self._own_loop:
            self._finished = self._processes.summing(sums)
        else:
            self._finished = summing_alike(self._processes, sums, self._what)

    def totals(self) -> tuple[Tensor, ...]:
        """Wait for the sums over all processes: of the parts, and then of what went along."""
        pieces: tuple[Tensor, ...] = self._finished().split(self._widths, dim=-1)
        return pieces


class RowWeights:
    """Weights of this process's rows, and the power of two that they are in units of.

    Every process has a unit of its own, or none: a common one would take an all-reduce more.

    Attributes
    ----------
    rows : Tensor of shape (..., n) or None
        In the type of the values `u` beside them, the largest between 1 and 2; None where every row counts once.
    """

    def __init__(self, weights: Tensor | None, u: Tensor) -> None:
        self.rows: Tensor | None = None
        self._unit: Tensor | None = None
        if weights is not None and u.shape[-1] > 0:
            given = weights.detach()
            self.rows = in_units_of_the_largest(given, u.dtype).expand(u.shape)
            self._unit = torch.exp2(power_of_the_largest(given.double())).expand(*u.shape[:-1], 1)

    def or_ones(self, u: Tensor) -> Tensor:
        """Weights of all rows, ones where none were given."""
        return torch.ones_like(u) if self.rows is None else self.rows

    def sum(self, u: Tensor) -> Tensor:
        """Weight of all rows of `u`, (..., 1) in float64."""
        if self.rows is None:
            return torch.full((*u.shape[:-1], 1), float(u.shape[-1]), dtype=torch.float64, device=u.device)
        return self.out_of_unit(self.rows.sum(-1, keepdim=True))

    def out_of_unit(self, sums: Tensor, power: int = 1) -> Tensor:
        """Take sums (..., k) of weights, or of a power of them, out of this process's unit, in float64."""
        found = sums.double()
        if self._unit is not None:
            for _ in range(power):
                found = found * self._unit
        return found

    def in_unit(self, sums: Tensor) -> Tensor:
        """Put sums over all processes into this process's unit."""
        return sums if self._unit is None else sums / self._unit


def check_plain(values: Tensor) -> None:
    """Refuse what has no sum over processes: values within a function transform or a compiler."""
    if torch.compiler.is_compiling() or in_transform(values):
        fail("process_group", "None inside torch.compile and torch.func (leading dimensions are models)", "a group")


def no_rows() -> NoReturn:
    """Refuse a statistic of no rows, which every process sees."""
    fail("process_group", "at least one row of positive weight on some process", "none")


class _Known(torch.autograd.Function):
    """A value (...) whose gradient in the rows, (..., n) or one for all of them (..., 1), is known."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.shape = u.shape
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # The sums of all processes depend on F of every row, and only the first derivative is a sum over processes.
            fail("process_group", "None for a second derivative (create_graph=True)", "a group")
        (gradient,) = ctx.saved_tensors
        return (gradient * grad.unsqueeze(-1)).expand(ctx.shape), None, None


def with_gradient(u: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """Return a value with its gradient in `u`."""
    known: Tensor = apply(_Known, u, value, gradient)
    return known


class LocalMean:
    """What this process adds to the mean of all rows: `sums` (..., 2) of values and of weights, in float64."""

    def __init__(self, values: Tensor, weights: Tensor | None) -> None:
        self._values = in_full(values)
        with torch.no_grad(), full_precision(self._values.device):
            v = self._values.detach()
            self._weights = RowWeights(weights, v)
            weighted = v if self._weights.rows is None else self._weights.rows * v
            total = self._weights.out_of_unit(weighted.sum(-1, keepdim=True))
            self.sums = torch.cat([total, self._weights.sum(v)], dim=-1)

    def of_all(self, totals: Tensor, factor: int) -> Tensor:
        """Mean (...) from the sums over all processes; its gradient in this process's rows is taken `factor` times."""
        with torch.no_grad():
            total, weight = totals.split(1, dim=-1)
            if bool((weight <= 0).any()):
                no_rows()
            dtype, rows = self._values.dtype, self._weights.rows
            value = (total / weight).squeeze(-1).to(dtype)
            gradient = (factor / self._weights.in_unit(weight)).to(dtype)
            gradient = gradient if rows is None else rows * gradient
        return with_gradient(self._values, value, gradient)


def mean_across_processes(values: Tensor, weights: Any = None, *, process_group: Group | World = "world") -> Tensor:
    r"""Mean over the rows of all processes of one value per row, for a loss whose gradients are averaged.

    A plain ``values.mean()`` under DistributedDataParallel is the mean of the means of processes: if one of them has
    fewer rows, each of its rows counts more. Here every row counts the same, and a process without rows takes part.
    `XCALLoss.with_mean` gives the mean and the penalty at the price of one.

    .. math:: \frac{\sum_p \sum_i w_{pi} v_{pi}}{\sum_p \sum_i w_{pi}}

    over the rows i of every process p.

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
    if not isinstance(values, Tensor) or values.ndim == 0:
        shown = "a tensor of no dimension" if isinstance(values, Tensor) else type(values).__name__
        fail("values", "a tensor, one value for each row of this process", shown)
    check_plain(values)
    given = None if weights is None else torch.as_tensor(weights, device=values.device)
    if given is not None and tuple(given.shape) not in {tuple(values.shape), tuple(values.shape[-1:])}:
        fail("weights", f"shape {tuple(values.shape)}, as values", f"shape {tuple(given.shape)}")
    local = LocalMean(values, given)
    return local.of_all(processes.total(local.sums), processes.size)


# --- The penalty of rows that several processes hold, as if one process held them all.
# The penalty of a batch is a function of sums over its rows: B numbers per model and group, or 2 more for the unbiased
# estimator (M x B with M features). Each process adds up its own rows, one all-reduce adds up the processes, and no
# row leaves its process. With the sums A of all rows held constant, the penalty's slope in F of a row depends on that
# row and on A alone. So every process knows the whole penalty, and its gradient in its own rows.
#
# DistributedDataParallel, Lightning and Accelerate average the gradients of processes. The gradient of one penalty is
# the sum over processes, so that the gradient here is multiplied by their number first.


@dataclass(frozen=True, eq=False)
class LocalRows:
    """Rows of this process: F, events and weights (..., n), and what the penalty is to know of them.

    `weights` may all be zero here, and n may be zero: other processes have rows. `seen` is what is known of rows that
    are seen in part.
    """

    cdf: Tensor
    event: Tensor
    weights: Tensor | None = None
    labels: Tensor | None = None
    n_groups: int = 1
    features: Tensor | None = None
    seen: Seen | None = None


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
    if rows.seen is not None:
        return _in_part(replace(rows, cdf=u), rows.seen, edges, spec, processes, exchange, averaged)
    wanted = gradient_wanted(u)
    with torch.no_grad(), full_precision(u.device):
        exchange.agree(_shared_numbers(rows, edges, spec, len(exchange.along)))
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


def _in_part(
    rows: LocalRows,
    part: Seen,
    edges: Tensor,
    spec: SoftBins,
    processes: Processes,
    exchange: Exchange,
    averaged: bool,
) -> Tensor:
    """Rows that are seen in part: the penalty (...), its gradient known in the residuals of the rows here."""
    u = rows.cdf
    with full_precision(u.device):
        own = residuals(u, rows.event.expand(u.shape), part, edges, spec)
    with torch.no_grad(), full_precision(u.device):
        exchange.agree(_shared_numbers(rows, edges, spec, len(exchange.along)) | {"cells": own.shape[-1]})
        weights, found = RowWeights(rows.weights, u), own.detach()
        weight = weights.or_ones(u)
        squares, lengths = weight.square(), found.square().sum(-1)
        parts = [weights.out_of_unit((weight.unsqueeze(-1) * found).sum(-2)), weights.sum(u)]
        both = torch.stack([(squares * lengths).sum(-1), squares.sum(-1)], dim=-1)
        exchange.start(*parts, weights.out_of_unit(both, power=2))
        sums, total, both, *_ = exchange.totals()
        mean = sums / total
        value, slope = mean.square().sum(-1), 2 * mean.unsqueeze(-2).to(u.dtype)
        share = (weight / weights.in_unit(total)).to(u.dtype).unsqueeze(-1)
        inverse = torch.ones_like(value)
        if spec.estimator == "unbiased":
            same, square = (both / total.square()).unbind(-1)
            inverse = one_over_pairs(square, u.dtype)
            value = (value - same) * inverse
            slope = slope - 2 * share * found
        gradient = share * slope * inverse.to(u.dtype)[..., None, None]
        if averaged:
            gradient.mul_(processes.size)
    return with_gradient(own.flatten(-2), value.to(u.dtype), gradient.flatten(-2))


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
