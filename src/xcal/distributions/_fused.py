"""`_weighted` on a GPU: one kernel per pass, where single operations would need forty."""

import torch
from torch import Tensor

_ELEMENTS = 4096  # of one tile, rows times bins padded to a power of two
_MOST_BINS = 1024


def fits(logits: Tensor) -> bool:
    """Whether a row of bins fits the registers of a block."""
    return logits.shape[-1] <= _MOST_BINS


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
        self.rows, self.n, self.bins = logits.numel() // bins, n, bins
        self.per_start = max(1, self.rows // max(1, shared[:starts].numel()))
        self.columns = max(16, 1 << (bins - 1).bit_length())
        self.tile = max(1, _ELEMENTS // self.columns)
        self.grid = (-(-self.rows // self.tile),)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return self.logits, self.after, self.own, self.pointed

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.rows, self.n, self.per_start, self.bins


def values(logits: Tensor, after: Tensor, own: Tensor, pointed: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Log-likelihood and F of every row, ``(..., n)``."""
    from xcal.distributions._kernels import forward

    at = _Layout(logits, after, own, pointed)
    log_likelihood, cdf = logits.new_empty(logits.shape[:-1]), logits.new_empty(logits.shape[:-1])
    with torch.cuda.device(logits.device):
        forward[at.grid](
            *at.inputs, log_likelihood, cdf, *at.sizes, floor, FLOORED=floor > 0, COLUMNS=at.columns, ROWS=at.tile
        )
    return log_likelihood, cdf


def gradient(
    logits: Tensor, after: Tensor, own: Tensor, pointed: Tensor, floor: float, grad: Tensor, grad_cdf: Tensor
) -> Tensor:
    """Gradient in the logits."""
    from xcal.distributions._kernels import backward

    at = _Layout(logits, after, own, pointed)
    out = torch.empty_like(at.logits)
    upstream = (grad.expand(logits.shape[:-1]).contiguous(), grad_cdf.expand(logits.shape[:-1]).contiguous())
    with torch.cuda.device(logits.device):
        backward[at.grid](
            *at.inputs, *upstream, out, *at.sizes, floor, FLOORED=floor > 0, COLUMNS=at.columns, ROWS=at.tile
        )
    return out
