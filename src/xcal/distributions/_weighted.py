"""Likelihood and F of every row from bin masses in one pass: what a training step asks of a discrete distribution."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from xcal._torch_private import apply, in_transform, kernels_usable

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


# --- Likelihood and F of every row from bin masses in one pass: what a training step asks of a discrete distribution.
# With masses p = softmax(logits), own bin k and the share a_j of each bin after the row's time,
#
#     S = sum_j a_j p_j,     F = 1 - S,     likelihood = p_k of an event, S of a censored row,
#
#     d log p_k / d logit_j = [j = k] - p_j,
#     d log S / d logit_j = p_j (a_j / S - 1),
#     d F / d logit_j = p_j (S - a_j).
#
# One array of masses and one of shares serve values and gradients; autograd through the separate formulas of `_bins`
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
