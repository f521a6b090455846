"""Which rows make which batch: a function of seed and epoch alone.

Lambdas of one seed see the same batches, so that seeds are paired across lambdas, and a model sees the same batches
whatever is trained beside it, and whether or not training was resumed.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

# What a stream of random numbers is for; two uses of one seed and epoch must not share numbers.
ORDER, DROPOUT, PIECES = 0, 1, 2


def derived_seed(epoch: int, use: int, seeds: Sequence[int]) -> int:
    """Seed of one stream of random numbers of one epoch."""
    state = np.random.SeedSequence([use, epoch, *seeds]).generate_state(1, np.uint64)
    return int(state[0])


def batch_shape(n: int, batch_size: int) -> tuple[int, int]:
    """Return batches of an epoch and rows of each; all are equally large (see `TrainingConfig.batch_size`).

    Examples
    --------
    >>> batch_shape(1999, 1000)
    (2, 999)
    """
    batches = -(-n // batch_size)
    return batches, n // batches


def epoch_order(n: int, batch_size: int, seeds: Sequence[int], epoch: int) -> Tensor:
    """Row indices ``(batches, S, rows)`` of one epoch.

    Drawn on the CPU, so that a GPU trains on the same batches.

    Examples
    --------
    >>> epoch_order(10, 4, seeds=(0, 1), epoch=0).shape
    torch.Size([3, 2, 3])
    """
    batches, rows = batch_shape(n, batch_size)
    orders = []
    for seed in seeds:
        generator = torch.Generator().manual_seed(derived_seed(epoch, ORDER, [seed]))
        orders.append(torch.randperm(n, generator=generator)[: batches * rows].view(batches, rows))
    return torch.stack(orders, dim=1)
