"""The two common penalties on a GPU, each pass in one kernel.

Run one operation at a time, the penalty spends its time on starting kernels and on moving arrays of rows x bins. These
Triton kernels read each F once and keep memberships in registers. They cover the default penalty and the paper's;
everything else, and every machine without Triton, takes the blocks of plain torch in `penalty`, which give the same
numbers.
"""

import torch
from torch import Tensor

from xcal.calibration.membership import SATURATED

_ROWS = 128  # rows of one tile; times the bins, padded to a power of two, one tile fits the registers of a block
_PROGRAMS = 1056  # enough to fill a large GPU, few enough that their partial sums cost nothing


def _flat(u: Tensor, values: Tensor) -> tuple[Tensor, int]:
    """Rows of every model one after another, and how far to step from one model to the next."""
    if values.ndim == 1 or values.shape[:-1].numel() == 1:
        return values.contiguous(), 0
    return values.expand(u.shape).contiguous(), u.shape[-1]


def _columns(bins: int) -> int:
    return max(16, 1 << (bins - 1).bit_length())


def sum_features(
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
    from xcal.calibration.kernels import forward

    with torch.cuda.device(u.device):
        forward[(programs, models)](
            u.contiguous(), event.view(torch.uint8), weight, edges, out, n, event_step, weight_step, bins, scale,
            SATURATED, CUMULATIVE=cumulative, IN_MEMORY=isinstance(scale, Tensor), COLUMNS=columns, ROWS=_ROWS,
        )  # fmt: skip
    return out.sum(1)[:, :used].view(*u.shape[:-1], used)


def row_gradient(
    u: Tensor, event: Tensor, weight: Tensor, edges: Tensor, slope: Tensor, scale: float | Tensor, cumulative: bool
) -> Tensor:
    """Weight times the inner product of each row's feature derivatives with `slope` (..., P): (..., n)."""
    n, bins = u.shape[-1], edges.shape[0] - 1
    models = u.numel() // n
    out = torch.empty_like(u, memory_format=torch.contiguous_format)
    event, event_step = _flat(u, event)
    weight, weight_step = _flat(u, weight)
    from xcal.calibration.kernels import backward

    with torch.cuda.device(u.device):
        backward[(-(-n // _ROWS), models)](
            u.contiguous(), event.view(torch.uint8), weight, edges, slope.contiguous(), out, n, event_step, weight_step,
            bins, slope.shape[-1], scale, SATURATED, CUMULATIVE=cumulative, IN_MEMORY=isinstance(scale, Tensor),
            COLUMNS=_columns(bins), ROWS=_ROWS,
        )  # fmt: skip
    return out
