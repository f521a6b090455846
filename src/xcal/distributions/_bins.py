"""Bin masses on a grid of edges: where a time falls, how a cdf is read off, the likelihood of rows and its gradient."""

import math
import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor

from xcal._checks import MANY, as_count, as_event, as_numpy, as_time, fail
from xcal._torch_private import apply, in_transform, kernels_usable


class Grid:
    """K bins between K + 1 increasing edges: where a time falls, whatever the masses are.

    Bin k is ``(e_k, e_{k+1}]``. Times outside the grid belong to the nearest bin: the first also holds everything at
    or before ``e_0``, the last everything after ``e_K``.

    Parameters
    ----------
    edges
        Shape ``(K + 1,)``.

    Attributes
    ----------
    ends, width, per_width : Tensor
        End of each bin, its length, and one over that, ``(K,)``: made once, as every step of training asks for them.
    """

    def __init__(self, edges: Tensor) -> None:
        self.edges, self.ends = edges, edges[1:]
        self.width = self.ends - edges[:-1]
        self.per_width = self.width.reciprocal()

    def like(self, values: Tensor) -> "Grid":
        """Return the grid in the dtype and on the device of some values."""
        if self.edges.dtype == values.dtype and self.edges.device == values.device:
            return self
        return Grid(self.edges.to(dtype=values.dtype, device=values.device))

    def index(self, time: Tensor) -> Tensor:
        """Bin of each time: how many inner edges lie strictly below it.

        All edges are searched, not the slice of inner ones, whose offset torch.compile drops on a GPU (pytorch issue
        160964).
        """
        edges_below = torch.bucketize(time.detach().to(self.edges.dtype).contiguous(), self.edges)
        return edges_below.sub_(1).clamp_(0, self.edges.shape[0] - 2)


@dataclass(frozen=True, eq=False)
class Bins:
    """Bins of a grid, with a log-mass each.

    Parameters
    ----------
    log_mass
        Shape ``(..., n, K)``, normalised.
    grid
        Of K bins, same dtype and device.
    """

    log_mass: Tensor
    grid: Grid

    @property
    def edges(self) -> Tensor:
        """Edges of the grid, ``(K + 1,)``."""
        return self.grid.edges

    def index(self, time: Tensor) -> Tensor:
        """Bin of each time."""
        return self.grid.index(time)

    def index_of_level(self, p: Tensor) -> Tensor:
        """First bin by whose end at least a share `p` has had the event."""
        return (self.cdf_at_end()[..., :-1] < p.unsqueeze(-1)).sum(dim=-1)

    def index_of_left(self, left: Tensor) -> Tensor:
        """First bin by whose end at most a share `left` is without the event."""
        return (self.survival_at_end()[..., :-1] > left.unsqueeze(-1)).sum(dim=-1)

    def take(self, values: Tensor, index: Tensor) -> Tensor:
        """Pick one bin's entry of `values` ``(..., n, K)`` for each row."""
        # Not torch.broadcast_shapes, which imports sympy at its first call.
        index = torch.broadcast_tensors(index, values[..., 0])[0]
        values = values.expand(*index.shape, values.shape[-1])
        return torch.gather(values, -1, index.unsqueeze(-1)).squeeze(-1)

    @property
    def mass(self) -> Tensor:
        """Probability of each bin."""
        return torch.exp(self.log_mass)

    @property
    def width(self) -> Tensor:
        """Length of each bin, ``(K,)``."""
        return self.grid.width

    @property
    def midpoint_mean(self) -> Tensor:
        """Sum of mass times the middle of the bin."""
        return (self.mass * (self.edges[1:] + self.edges[:-1]) / 2.0).sum(dim=-1)

    def cdf_at_end(self) -> Tensor:
        """Mass up to and including each bin. The last is exactly 1; the clamp only removes rounding above 1."""
        inner = torch.clamp(torch.cumsum(self.mass[..., :-1], dim=-1), max=1.0)
        return torch.cat([inner, torch.ones_like(self.log_mass[..., :1])], dim=-1)

    def cdf_at_start(self) -> Tensor:
        """Mass before each bin; exactly 0 for the first."""
        return torch.cat([torch.zeros_like(self.log_mass[..., :1]), self.cdf_at_end()[..., :-1]], dim=-1)

    def log_mass_after(self, index: Tensor) -> Tensor:
        """Log-mass of all bins after the given one, as a log-sum-exp of the tail; -inf after the last.

        One masked sum for each row: ten times as fast, gradient included, as ``logcumsumexp`` over all tails.
        """
        last = (index == self.log_mass.shape[-1] - 1).unsqueeze(-1)
        bins = torch.arange(self.log_mass.shape[-1], device=self.log_mass.device)
        # The sum of an empty tail would have a NaN gradient; it gets all bins and is replaced below.
        kept = torch.where((bins > index.unsqueeze(-1)) | last, self.log_mass, -math.inf)
        tail = torch.clamp(torch.logsumexp(kept, dim=-1), max=0.0)
        return torch.where(last.squeeze(-1), -math.inf, tail)

    def survival_at_end(self) -> Tensor:
        """Mass of all later bins, summed from the far end: small values keep their digits."""
        tail = torch.cumsum(self.mass[..., 1:].flip(-1), dim=-1).flip(-1)
        return torch.cat([torch.clamp(tail, max=1.0), torch.zeros_like(self.log_mass[..., :1])], dim=-1)

    def survival_at_start(self) -> Tensor:
        """Mass of each bin and all later ones; exactly 1 for the first."""
        return torch.cat([torch.ones_like(self.log_mass[..., :1]), self.survival_at_end()[..., :-1]], dim=-1)


def before(values: Tensor) -> Tensor:
    """Sum of the entries of all earlier bins, for each bin."""
    return torch.cat([torch.zeros_like(values[..., :1]), torch.cumsum(values[..., :-1], dim=-1)], dim=-1)


def after(values: Tensor) -> Tensor:
    """Sum of the entries of all later bins, for each bin."""
    return before(values.flip(-1)).flip(-1)


# --- Time edges of the discrete distributions.


def as_edges(edges: Any) -> Tensor:
    """Check time edges and give them as a tensor.

    Parameters
    ----------
    edges
        At least two finite numbers, zero or larger, strictly increasing also in single precision (in which most
        networks run; two edges that it cannot tell apart would make a bin of no width).

    Returns
    -------
    Tensor
        Shape ``(K + 1,)``. A floating-point tensor keeps its dtype and device, anything else becomes float64.

    Examples
    --------
    >>> as_edges([0, 1, 2.5])
    tensor([0.0000, 1.0000, 2.5000], dtype=torch.float64)
    """
    values = as_numpy("edges", edges)
    if values.ndim != 1 or values.size < 2:
        fail("edges", "a one-dimensional array of two or more edges", f"shape {values.shape}")
    bad = ~(np.isfinite(values) & (values >= 0))
    if bad.any():
        row = int(np.argmax(bad))
        fail("edges", "finite times, zero or larger", values[row], row)
    step = np.diff(values.astype(np.float32))
    if (step <= 0).any():
        row = int(np.argmax(step <= 0)) + 1
        fail("edges", f"a value larger than the one before, {values[row - 1]}, in float32 too", values[row], row)
    if isinstance(edges, Tensor) and edges.is_floating_point() and edges.element_size() >= 4:
        return edges.detach()
    return torch.from_numpy(values.astype(np.float64))


def quantile_edges(time: Any, event: Any, n_bins: int) -> Tensor:
    """Edges that put equally many of the observed events into each bin.

    They are the percentiles 0, 100 / n_bins, ..., 100 of the uncensored training times, as in the paper. Tied
    percentiles (equal in single precision) are collapsed, with a warning that says how many bins remain.

    Parameters
    ----------
    time, event
        Training times and event indicators (True: the event happened), numpy or torch.
    n_bins
        Number of bins asked for.

    Returns
    -------
    Tensor
        float64, shape ``(K + 1,)`` with K at most `n_bins`.

    Examples
    --------
    >>> quantile_edges([1.0, 2.0, 3.0, 9.0], [True, True, True, False], n_bins=2)
    tensor([1., 2., 3.], dtype=torch.float64)
    """
    times = as_time(time).astype(np.float64)
    events = as_event(event, times.shape[0], reference="time")
    n_bins = as_count("n_bins", n_bins, at_least=1, at_most=MANY)
    if not events.any():
        fail("event", "at least one event, to place the edges", "none: every row is censored")
    values = np.percentile(times[events], np.arange(n_bins + 1) * 100.0 / n_bins)
    _, first = np.unique(values.astype(np.float32), return_index=True)
    values = values[first]
    if values.size < 2:
        fail("time", "at least two distinct event times, to place the edges", f"only {values[0]}")
    if values.size < n_bins + 1:
        warnings.warn(
            f"quantile_edges: {n_bins} bins asked for, {values.size - 1} remain: tied event times share an edge",
            UserWarning,
            stacklevel=2,
        )
    return torch.from_numpy(values)


# --- Two ways to read a cdf off bin masses: in steps (the paper's NI) or along straight lines (its I).
# Each reading is a set of pure functions of `Bins`, the same set in both. A time outside the edges is read as the
# nearest edge, with one exception: no event has happened at time zero, so F(0) = 0 in both readings.


@final
class StepReading:
    """F(t) is the mass of all bins up to and including the bin of t: a time counts as the end of its bin.

    So F is p_0 in the first bin, from just after zero on, and 1 in the whole last bin.
    """

    def cdf(self, bins: Bins, time: Tensor) -> Tensor:
        """Mass up to and including the bin."""
        value = bins.take(bins.cdf_at_end(), bins.index(time))
        return torch.where(time <= 0, 0.0, value)

    def log_survival(self, bins: Bins, time: Tensor) -> Tensor:
        """Log-mass of the later bins."""
        return torch.where(time <= 0, 0.0, bins.log_mass_after(bins.index(time)))

    def survival(self, bins: Bins, time: Tensor) -> Tensor:
        """Mass of the later bins."""
        value = bins.take(bins.survival_at_end(), bins.index(time))
        return torch.where(time <= 0, 1.0, value)

    def exhausted(self, grid: Grid, time: Tensor) -> Tensor:
        """Every time in the last bin."""
        return grid.index(time) == grid.width.shape[0] - 1

    def share_after(self, grid: Grid, time: Tensor) -> Tensor:
        """Whole bins: those after the one that holds `time`."""
        number = torch.arange(grid.width.shape[0], device=grid.edges.device)
        index = torch.where(time > 0, grid.index(time), -1)
        return (number > index.unsqueeze(-1)).to(grid.edges.dtype)

    def hazard(self, bins: Bins, time: Tensor) -> Tensor:
        """Probability of an event in the bin for those who reached it; 1 in the last bin."""
        index = bins.index(time)
        own = bins.take(bins.log_mass, index)
        return torch.sigmoid(own - bins.log_mass_after(index))

    def quantile(self, bins: Bins, p: Tensor) -> Tensor:
        """End of the first bin with F >= p."""
        return bins.edges[1:][bins.index_of_level(p)]

    def quantile_left(self, bins: Bins, left: Tensor) -> Tensor:
        """End of the first bin with S <= left."""
        return bins.edges[1:][bins.index_of_left(left)]

    def mean(self, bins: Bins) -> Tensor:
        """Sum of mass times the end of the bin."""
        return (bins.mass * bins.edges[1:]).sum(dim=-1)

    def squared_cdf_below(self, bins: Bins, time: Tensor) -> Tensor:
        """Rectangles; the first bin starts at zero, the last never ends."""
        index = bins.index(time)
        starts = torch.cat([torch.zeros_like(bins.edges[:1]), bins.edges[1:-1]])
        height = bins.cdf_at_end().square()
        whole = bins.take(before(height * (bins.edges[1:] - starts)), index)
        return whole + bins.take(height, index) * torch.clamp(time - starts[index], min=0.0)

    def squared_survival_above(self, bins: Bins, time: Tensor) -> Tensor:
        """Rectangles; nothing in the last bin, where S is 0."""
        index = bins.index(time)
        height = bins.survival_at_end().square()
        whole = bins.take(after(height * bins.width), index)
        return whole + bins.take(height, index) * (bins.edges[1:][index] - torch.clamp(time, min=0))


@final
class LinearReading:
    """F rises in a straight line through each bin: 0 up to the first edge, 1 from the last edge on."""

    def _share(self, bins: Bins, time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Bin, and the shares of it before and after `time`; each from its own edge, so that neither cancels."""
        index = bins.index(time)
        width = bins.width[index]
        done = torch.clamp((time - bins.edges[:-1][index]) / width, 0.0, 1.0)
        left = torch.clamp((bins.edges[1:][index] - time) / width, 0.0, 1.0)
        return index, done, left

    def cdf(self, bins: Bins, time: Tensor) -> Tensor:
        """Mass of the earlier bins plus the share of this one; the clamp only removes rounding above 1."""
        index, done, _ = self._share(bins, time)
        value = bins.take(bins.cdf_at_start(), index) + bins.take(bins.mass, index) * done
        return torch.clamp(value, max=1.0)

    def log_survival(self, bins: Bins, time: Tensor) -> Tensor:
        """Log of the mass of the later bins plus what is left of this one."""
        index, _, left = self._share(bins, time)
        later, own = bins.log_mass_after(index), bins.take(bins.log_mass, index)
        at_end = left <= 0
        own = torch.where(at_end, -math.inf, own + torch.log(torch.where(at_end, 1.0, left)))
        # Two -inf terms would give a NaN gradient: they are replaced before they are added.
        empty = torch.isneginf(later) & at_end
        total = torch.logaddexp(torch.where(empty, 0.0, later), torch.where(empty, 0.0, own))
        total = torch.where(empty, -math.inf, torch.clamp(total, max=0.0))
        return torch.where(time <= bins.edges[0], 0.0, total)

    def survival(self, bins: Bins, time: Tensor) -> Tensor:
        """Mass of the later bins plus what is left of this one; the clamp only removes rounding above 1."""
        index, _, left = self._share(bins, time)
        value = bins.take(bins.survival_at_end(), index) + bins.take(bins.mass, index) * left
        return torch.clamp(value, max=1.0)

    def exhausted(self, grid: Grid, time: Tensor) -> Tensor:
        """Every time at or after the last edge."""
        return time.to(grid.edges.dtype) >= grid.edges[-1]

    def share_after(self, grid: Grid, time: Tensor) -> Tensor:
        """Straight lines through each bin, measured from its end."""
        left = grid.ends - time.to(grid.edges.dtype).unsqueeze(-1)
        return left.mul_(grid.per_width).clamp_(0.0, 1.0)

    def hazard(self, bins: Bins, time: Tensor) -> Tensor:
        """Density of the bin over survival; infinite from the last edge on."""
        index = bins.index(time)
        log_density = bins.take(bins.log_mass, index) - torch.log(bins.width)[index]
        return torch.exp(log_density - self.log_survival(bins, time))

    def quantile(self, bins: Bins, p: Tensor) -> Tensor:
        """Inverse of the straight line through the bin."""
        index = bins.index_of_level(p)
        mass = bins.take(bins.mass, index)
        share = (p - bins.take(bins.cdf_at_start(), index)) / torch.where(mass > 0, mass, 1.0)
        return bins.edges[:-1][index] + bins.width[index] * torch.clamp(share, 0.0, 1.0)

    def quantile_left(self, bins: Bins, left: Tensor) -> Tensor:
        """Inverse of the straight line of S, from its end."""
        index = bins.index_of_left(left)
        mass = bins.take(bins.mass, index)
        share = (left - bins.take(bins.survival_at_end(), index)) / torch.where(mass > 0, mass, 1.0)
        return bins.edges[1:][index] - bins.width[index] * torch.clamp(share, 0.0, 1.0)

    def mean(self, bins: Bins) -> Tensor:
        """Sum of mass times the middle of the bin."""
        return bins.midpoint_mean

    def squared_cdf_below(self, bins: Bins, time: Tensor) -> Tensor:
        """Integrals of squared straight lines: length (a^2 + a b + b^2) / 3 between heights a and b."""
        index, done, _ = self._share(bins, time)
        start, end = bins.cdf_at_start(), bins.cdf_at_end()
        whole = bins.take(before(bins.width * _mean_square(start, end)), index)
        first = bins.take(start, index)
        here = first + bins.take(bins.mass, index) * done
        part = bins.width[index] * done * _mean_square(first, here)
        return whole + part + torch.clamp(time - bins.edges[-1], min=0.0)

    def squared_survival_above(self, bins: Bins, time: Tensor) -> Tensor:
        """Integrals of squared straight lines, from the other side; before the first edge S is 1."""
        index, _, left = self._share(bins, time)
        start, end = bins.survival_at_start(), bins.survival_at_end()
        whole = bins.take(after(bins.width * _mean_square(start, end)), index)
        last = bins.take(end, index)
        here = last + bins.take(bins.mass, index) * left
        part = bins.width[index] * left * _mean_square(last, here)
        return whole + part + torch.clamp(bins.edges[0] - torch.clamp(time, min=0), min=0.0)


def _mean_square(a: Tensor, b: Tensor) -> Tensor:
    """Mean of the square of a straight line from height a to height b."""
    return (a * a + a * b + b * b) / 3.0


Reading = StepReading | LinearReading
READINGS: dict[str, Reading] = {"step": StepReading(), "linear": LinearReading()}


# --- Likelihood and F of every row from bin masses in one pass: what a training step asks of a discrete distribution.
# With masses p = softmax(logits), own bin k and the share a_j of each bin after the row's time,
#
#     S = sum_j a_j p_j,     F = 1 - S,     likelihood = p_k of an event, S of a censored row,
#
#     d log p_k / d logit_j = [j = k] - p_j,
#     d log S / d logit_j = p_j (a_j / S - 1),
#     d F / d logit_j = p_j (S - a_j).
#
# One array of masses and one of shares serve values and gradients; autograd through the formulas of the readings
# keeps and passes over eight. On a GPU each pass is one kernel.

# Below these a sum of masses may have lost digits to underflow.
_TINY = {torch.float32: 1e-30, torch.float64: 1e-290}
_LOG_SMALL = -65.0


class Rows(NamedTuple):
    """What the likelihood of rows is made of; see `likelihood_and_cdf`."""

    logits: Tensor
    after: Tensor
    own: Tensor
    pointed: Tensor
    floor: float = 0.0


class _LikelihoodAndCdf(torch.autograd.Function):
    """Log-likelihood and F, (..., n); the other outputs, masses and S, are kept for backward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        logits: Tensor, after: Tensor, own: Tensor, pointed: Tensor, floor: float
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        if _by_kernels(logits):
            log_likelihood, cdf = kernel_values(logits, after, own, pointed, floor)
            return log_likelihood, cdf, logits.new_empty(0), logits.new_empty(0)
        mass, survival, log_likelihood = _values(logits, after, own, pointed, floor)
        return log_likelihood, (1.0 - survival).clamp(min=0.0), mass, survival

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        logits, after, own, pointed, ctx.floor = inputs
        log_likelihood, _, mass, survival = output
        ctx.mark_non_differentiable(mass, survival)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, after, own, pointed, log_likelihood, mass, survival)

    @staticmethod
    def backward(ctx: Any, grad: Tensor | None, grad_cdf: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        logits, after, own, pointed, log_likelihood, mass, survival = ctx.saved_tensors
        grad = torch.zeros_like(log_likelihood) if grad is None else grad
        grad_cdf = torch.zeros_like(log_likelihood) if grad_cdf is None else grad_cdf
        rows = Rows(logits, after, own, pointed, ctx.floor)
        if torch.is_grad_enabled():
            # A second derivative is wanted: everything has to depend on the logits again.
            gradient = _gradient(rows, _values(*rows), grad, grad_cdf)
        elif _by_kernels(logits):
            gradient = kernel_gradient(*rows, grad, grad_cdf)
        else:
            gradient = _gradient(rows, (mass, survival, log_likelihood), grad, grad_cdf)
        return gradient, None, None, None, None


class LikelihoodByFormula:
    """Log-likelihood and F of every row without a graph, and their gradient, for a caller without autograd.

    `likelihood_and_cdf` on a CPU, in fewer steps; `rows` are its arguments.
    """

    @torch.no_grad()
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._known = _values(*rows)
        _, survival, self.log_likelihood = self._known
        self.cdf = (1.0 - survival).clamp_(min=0.0)

    @torch.no_grad()
    def gradient(self, grad: Tensor, grad_cdf: Tensor | None) -> Tensor:
        """Gradient in the logits, from that in the log-likelihood and, if there is one, in F."""
        grad_cdf = torch.zeros_like(grad) if grad_cdf is None else grad_cdf
        return _gradient(self.rows, self._known, grad, grad_cdf)


def _gradient(rows: Rows, known: tuple[Tensor, Tensor, Tensor], grad: Tensor, grad_cdf: Tensor) -> Tensor:
    """Gradient in the logits, given masses, S and log-likelihood."""
    logits, after, own, pointed, floor = rows
    mass, survival, log_likelihood = known
    at_bin = grad * pointed
    slope = -grad_cdf
    small = floor == 0 and (_cannot_look(logits) or log_likelihood.amin().item() < _LOG_SMALL)
    if not small:
        # A pointed row has no slope of S, but zero times the inverse of a mass that underflowed would be NaN.
        slope = slope + (grad - at_bin) * log_likelihood.masked_fill(pointed, 0.0).neg_().exp_()
    level = survival * slope + at_bin
    result = (after * slope.unsqueeze(-1)).sub_(level.unsqueeze(-1)).mul_(mass)
    if small:
        # S may be too small for its inverse: a p / S is the softmax over what is left of the bins.
        share = torch.softmax(_what_is_left(logits, after, pointed), dim=-1)
        result = result + (share - mass) * (grad - at_bin).unsqueeze(-1)
    return result.scatter_add_(-1, _column(own, result), at_bin.unsqueeze(-1))


def _values(logits: Tensor, after: Tensor, own: Tensor, pointed: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Masses, S and log-likelihood."""
    mass = torch.softmax(logits, dim=-1)
    survival = (mass * after).sum(-1)
    at_bin = mass.gather(-1, _column(own, mass)).squeeze(-1)
    likelihood = torch.where(pointed, at_bin, survival + floor if floor else survival)
    tiny = _TINY[logits.dtype]
    if not _cannot_look(logits) and likelihood.amin().item() >= tiny:
        log_likelihood = torch.log(likelihood)
        return mass, survival, log_likelihood if floor else log_likelihood.clamp(max=0.0)
    # Masses that underflow: the same in logarithms, relative to the largest term.
    small = likelihood < tiny
    log_mass = torch.log_softmax(logits, dim=-1)
    log_bin = log_mass.gather(-1, _column(own, log_mass)).squeeze(-1)
    tail = torch.logsumexp(_what_is_left(log_mass, after, pointed), dim=-1)
    precise = torch.where(pointed, log_bin, tail)
    log_likelihood = torch.where(small, precise, torch.log(torch.where(small, 1.0, likelihood)))
    return mass, survival, log_likelihood if floor else log_likelihood.clamp(max=0.0)


def _what_is_left(logits: Tensor, after: Tensor, pointed: Tensor) -> Tensor:
    """Add the log of each bin's share after the time; -inf for none.

    Nobody looks at the tail of a pointed row, which may be empty: it gets all bins, as an empty one has NaN gradients.
    """
    there = after > 0
    return torch.where(there | pointed.unsqueeze(-1), logits + torch.log(torch.where(there, after, 1.0)), -torch.inf)


def _column(own: Tensor, like: Tensor) -> Tensor:
    return own.unsqueeze(-1).expand(*like.shape[:-1], 1)


def _cannot_look(values: Tensor) -> bool:
    """Return whether a look at the values would stop a GPU or cannot be compiled; the general formula is used then."""
    return values.is_cuda or torch.compiler.is_compiling() or torch.is_grad_enabled() or in_transform(values)


def likelihood_and_cdf(
    logits: Tensor, after: Tensor, own: Tensor, pointed: Tensor, floor: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Log-likelihood and F of every row, for masses p = softmax(logits).

    Parameters
    ----------
    logits
        Shape ``(..., n, K)``.
    after
        Share of each bin after the row's time; broadcasts to ``(..., n, K)``.
    own
        Bin of each row, int64; broadcasts to ``(..., n)``.
    pointed
        Rows whose likelihood is the mass of their own bin; that of the others is S. Broadcasts to ``(..., n)``.
    floor
        Added to S in the likelihood, as the published code does.

    Returns
    -------
    tuple of Tensor
        Both of shape ``(..., n)``. Only the logits have a gradient.
    """
    log_likelihood, cdf, _, _ = apply(_LikelihoodAndCdf, logits, after, own, pointed, floor)
    return log_likelihood, cdf


# --- On a GPU: one kernel per pass, where single operations would need forty.

_ELEMENTS = 4096  # of one tile, rows times bins padded to a power of two
_MOST_BINS = 1024


def _by_kernels(logits: Tensor) -> bool:
    """Whether the kernels can be used: a row of bins fits the registers of a block."""
    return kernels_usable(logits) and logits.shape[-1] <= _MOST_BINS


class _Layout:
    """How rows of logits ``(..., n, K)`` find what belongs to their times, shared by the models of a start."""

    def __init__(self, logits: Tensor, after: Tensor, own: Tensor, pointed: Tensor) -> None:
        models, (n, bins) = logits.shape[:-2], logits.shape[-2:]
        shared = after.shape[:-2]
        shared = torch.Size([1] * (len(models) - len(shared)) + list(shared))
        # Starts first, then ones: (S, 1) beside (S, L). Anything else is written out in full.
        starts = next((k for k, size in enumerate(shared) if size == 1), len(shared))
        if shared[:starts] != models[:starts] or any(size != 1 for size in shared[starts:]):
            shared, starts = models, len(models)
            after = after.expand(*models, n, bins)
        self.logits, self.after = logits.contiguous(), after.contiguous()
        self.own = own.expand(*shared, n).contiguous()
        self.pointed = pointed.expand(*shared, n).contiguous().view(torch.uint8)
        self.rows = logits.numel() // bins
        self.per_start = max(1, self.rows // max(1, shared[:starts].numel()))
        self.columns = max(16, 1 << (bins - 1).bit_length())
        self.tile = max(1, _ELEMENTS // self.columns)
        self.grid = (-(-self.rows // self.tile),)

        self.inputs = (self.logits, self.after, self.own, self.pointed)
        self.sizes = (self.rows, n, self.per_start, bins)


def kernel_values(logits: Tensor, after: Tensor, own: Tensor, pointed: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Log-likelihood and F of every row, ``(..., n)``."""
    from xcal._kernels import weighted_forward

    at = _Layout(logits, after, own, pointed)
    log_likelihood, cdf = logits.new_empty(logits.shape[:-1]), logits.new_empty(logits.shape[:-1])
    with torch.cuda.device(logits.device):
        weighted_forward[at.grid](
            *at.inputs, log_likelihood, cdf, *at.sizes, floor, FLOORED=floor > 0, COLUMNS=at.columns, ROWS=at.tile
        )
    return log_likelihood, cdf


def kernel_gradient(
    logits: Tensor, after: Tensor, own: Tensor, pointed: Tensor, floor: float, grad: Tensor, grad_cdf: Tensor
) -> Tensor:
    """Gradient in the logits."""
    from xcal._kernels import weighted_backward

    at = _Layout(logits, after, own, pointed)
    out = torch.empty_like(at.logits)
    upstream = (grad.expand(logits.shape[:-1]).contiguous(), grad_cdf.expand(logits.shape[:-1]).contiguous())
    with torch.cuda.device(logits.device):
        weighted_backward[at.grid](
            *at.inputs, *upstream, out, *at.sizes, floor, FLOORED=floor > 0, COLUMNS=at.columns, ROWS=at.tile
        )
    return out
