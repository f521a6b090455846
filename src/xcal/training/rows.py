"""Rows as training uses them, and which of them make which batch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from xcal._checks import as_numpy, fail
from xcal.calibration.subgroups import FeatureMaker
from xcal.data.features import pieces
from xcal.data.survival import SurvivalData


def prepared(name: str, data: SurvivalData, device: torch.device) -> SurvivalData:
    """Rows to train or validate on, in the words of the argument `name`.

    On the device; times in the type of the features; weights, where there are any, above zero and of mean one.
    """
    event = as_numpy(f"{name}.event", data.event)
    weights = None if data.weights is None else as_numpy(f"{name}.weights", data.weights)
    counts = np.ones(event.size, dtype=bool) if weights is None else weights > 0
    if not (event & counts).any():
        fail(f"{name}.event", "at least one event", "censored rows only")
    if weights is not None:
        data = data.replaced(weights=weights / weights[counts].mean())
    if not counts.all():
        data = data[counts]
    placed = data.to(device)
    return in_type(placed, placed.x.dtype)


def in_type(rows: SurvivalData, dtype: torch.dtype) -> SurvivalData:
    """Turn times and weights of rows on a device into the type that models compute in."""
    weights = None if rows.weights is None else rows.weights.to(dtype)
    return rows.replaced(time=rows.time.to(dtype), weights=weights)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows, all of them on the device: (b, ...), or S sets of them, (S, b, ...).

    Beside `SurvivalData`, because a batch of training is one set of rows for each seed, is made thousands of times, and
    is nothing but the tensors that a recorded step reads.
    """

    x: Tensor
    time: Tensor
    event: Tensor
    weights: Tensor | None
    row_features: Tensor | None = None  # of the conditional penalty, (b, M) or (S, b, M)
    whole: int | None = None  # rows of the batch, where other processes have some of them

    def starts(self, chosen: slice) -> "Batch":
        """Keep some of the S sets."""
        weights = None if self.weights is None else self.weights[chosen]
        row_features = None if self.row_features is None else self.row_features[chosen]
        return Batch(self.x[chosen], self.time[chosen], self.event[chosen], weights, row_features, self.whole)

    def of_several(self, there: Tensor, whole: int) -> "Batch":
        """Return the batch as the part of one of `whole` rows; those that are not `there` get weight zero."""
        counted = there.to(self.time.dtype)
        return replace(self, weights=counted if self.weights is None else self.weights * counted, whole=whole)


def take(
    rows: SurvivalData, index: Tensor | slice, x: Tensor | None = None, row_features: Tensor | None = None
) -> Batch:
    """Pick rows by index; an index of shape (S, b) gives S sets of b rows. Features at hand (`x`) need not be read."""
    weights = None if rows.weights is None else _take(rows.weights, index)
    if x is None:
        if isinstance(rows.x, Tensor):
            x = _take(rows.x, index)
        else:
            x = rows.x[index] if isinstance(index, slice) else rows.x.select(index).to(rows.x.device)
    picked = None if row_features is None else _take(row_features, index)
    return Batch(x, _take(rows.time, index), _take(rows.event, index), weights, picked)


def features_of(rows: SurvivalData, maker: FeatureMaker) -> Tensor:
    """Features of the conditional penalty for every row, (n, M), on the device and in the type of the covariates."""
    x = rows.x
    parts = [x] if isinstance(x, Tensor) else list(pieces(x))
    columns = np.concatenate([part.reshape(part.shape[0], -1).cpu().numpy() for part in parts])
    made = np.asarray(maker.of(columns))
    if made.ndim != 2 or made.shape[0] != rows.n:
        fail("conditional", f"features of shape ({rows.n}, M) from its method `of`, for {rows.n} rows", f"{made.shape}")
    return torch.from_numpy(made).to(rows.time.device, x.dtype)


def stream(rows: SurvivalData, order: Tensor) -> Iterator[Tensor] | None:
    """Features of the batches of an epoch, read ahead; None where they are on the device anyway."""
    return None if isinstance(rows.x, Tensor) else rows.x.stream(order)


def contents(rows: SurvivalData) -> Iterator[Tensor]:
    """Everything that training sees of the rows, piece by piece where it is in a file."""
    yield from [rows.x] if isinstance(rows.x, Tensor) else pieces(rows.x)
    yield from [rows.time, rows.event]
    if rows.weights is not None:
        yield rows.weights


def _take(values: Tensor, index: Tensor | slice) -> Tensor:
    if isinstance(index, slice):
        return values[index]
    # Much faster than indexing with a tensor, which can do more.
    return values.index_select(0, index.reshape(-1)).view(*index.shape, *values.shape[1:])


# --- Which rows make which batch: a function of seed and epoch alone.
# Lambdas of one seed see the same batches, so that seeds are paired across lambdas, and a model sees the same batches
# whatever is trained beside it, and whether or not training was resumed.

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
