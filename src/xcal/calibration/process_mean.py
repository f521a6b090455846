"""Mean of one value per row over the rows of several processes."""

from typing import Any

import torch
from torch import Tensor

from xcal._checks import fail
from xcal._processes import Group, Processes, World
from xcal.calibration.penalty import full_precision
from xcal.calibration.process_sums import RowWeights, check_plain, in_full, no_rows, with_gradient


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
    """Mean over the rows of all processes of one value per row, for a loss whose gradients are averaged.

    A plain ``values.mean()`` under DistributedDataParallel is the mean of the means of processes: if one of them has
    fewer rows, each of its rows counts more. Here every row counts the same, and a process without rows takes part.
    `XCALLoss.with_mean` gives the mean and the penalty at the price of one.

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
