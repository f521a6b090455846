"""The rows of a survival data set as tensors, checked once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal._checks import as_event, as_floats, as_numpy, as_time, check_same_length, fail, first_row
from xcal.training.host import HostFeatures, checked_host_features


@dataclass(frozen=True, eq=False)
class Rows:
    """Covariates, times and events of one set of rows; tensors or arrays.

    Parameters
    ----------
    x : (n, ...)
        Covariates, floating point: one vector, image or other array a row. Their type, float32 or float64, is the type
        that everything is computed in. A memory-mapped array (``np.load(path, mmap_mode="r")``) stays in its file:
        batches are read while the one before is trained on.
    time : (n,)
        Observed times: finite, zero or larger.
    event : (n,)
        True or 1 where the event happened, False or 0 where the row is censored.
    weights : (n,), optional
        Row weights, finite, zero or larger. Only their ratios matter; a row of weight zero is left out.

    Examples
    --------
    >>> Rows(x=torch.zeros(3, 2), time=[1.0, 2.0, 3.0], event=[1, 0, 1]).on("data", torch.device("cpu")).n
    3
    """

    x: Any
    time: Any
    event: Any
    weights: Any = None

    def on(self, name: str, device: torch.device) -> "TensorRows":
        """Check everything, in the words of the argument `name`, and move it to the device."""
        x = _checked_covariates(f"{name}.x", self.x)
        n = x.shape[0]
        time = as_time(self.time, n, reference=f"{name}.x", name=f"{name}.time")
        event = as_event(self.event, n, reference=f"{name}.x", name=f"{name}.event")
        weights = None if self.weights is None else _checked_weights(f"{name}.weights", self.weights, n)
        kept = slice(None) if weights is None else np.flatnonzero(weights > 0)
        if not event[kept].any():
            fail(f"{name}.event", "at least one event", "censored rows only")
        tensors = TensorRows(
            x,
            torch.as_tensor(time, dtype=x.dtype),
            torch.as_tensor(event),
            None if weights is None else torch.as_tensor(weights / weights[kept].mean(), dtype=x.dtype),
        )
        if weights is not None and not (weights > 0).all():
            tensors = tensors.only(torch.as_tensor(kept, device=x.device))
        return tensors.to(device)


@dataclass(frozen=True, eq=False)
class TensorRows:
    """Checked rows on one device. Weights, where there are any, are above zero and have mean one.

    Covariates may stay in a file (`HostFeatures`); everything else is on the device.
    """

    x: Tensor | HostFeatures
    time: Tensor
    event: Tensor
    weights: Tensor | None

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.time.shape[0]

    def take(self, index: Tensor | slice, x: Tensor | None = None) -> "Batch":
        """Rows by index; an index of shape (S, b) gives S sets of b rows. Covariates at hand need not be read."""
        weights = None if self.weights is None else _take(self.weights, index)
        if x is None:
            if isinstance(self.x, Tensor):
                x = _take(self.x, index)
            else:
                x = self.x[index] if isinstance(index, slice) else self.x.select(index).to(self.x.device)
        return Batch(x, _take(self.time, index), _take(self.event, index), weights)

    def stream(self, order: Tensor) -> Iterator[Tensor] | None:
        """Covariates of the batches of an epoch, read ahead; None where they are on the device anyway."""
        return None if isinstance(self.x, Tensor) else self.x.stream(order)

    def only(self, kept: Tensor) -> "TensorRows":
        """Rows by number, for good."""
        weights = None if self.weights is None else self.weights[kept]
        x = self.x[kept] if isinstance(self.x, Tensor) else self.x.only(kept)
        return TensorRows(x, self.time[kept], self.event[kept], weights)

    def to(self, device: torch.device) -> "TensorRows":
        """Move everything to a device."""
        weights = None if self.weights is None else self.weights.to(device)
        return TensorRows(self.x.to(device), self.time.to(device), self.event.to(device), weights)

    def tensors(self) -> Iterator[Tensor]:
        """Everything that the rows hold, piece by piece where they are in a file."""
        yield from [self.x] if isinstance(self.x, Tensor) else self.x.pieces()
        yield from [self.time, self.event]
        if self.weights is not None:
            yield self.weights


@dataclass(frozen=True, eq=False)
class Batch:
    """Some rows, all of them on the device: (b, ...), or S sets of them, (S, b, ...)."""

    x: Tensor
    time: Tensor
    event: Tensor
    weights: Tensor | None

    def starts(self, chosen: slice) -> "Batch":
        """Keep some of the S sets."""
        weights = None if self.weights is None else self.weights[chosen]
        return Batch(self.x[chosen], self.time[chosen], self.event[chosen], weights)


def _take(values: Tensor, index: Tensor | slice) -> Tensor:
    if isinstance(index, slice):
        return values[index]
    # Much faster than indexing with a tensor, which can do more.
    return values.index_select(0, index.reshape(-1)).view(*index.shape, *values.shape[1:])


def _checked_covariates(name: str, values: Any) -> Tensor | HostFeatures:
    if isinstance(values, np.memmap):
        return checked_host_features(name, values)
    x = values.detach() if isinstance(values, Tensor) else torch.as_tensor(as_numpy(name, values))
    if x.dtype not in (torch.float32, torch.float64):
        fail(name, "float32 or float64 covariates", f"dtype {x.dtype}")
    if x.ndim < 2:
        fail(name, "shape (n, ...), a row for each subject", f"shape {tuple(x.shape)}")
    if x.shape[0] == 0:
        fail(name, "at least one row", "none")
    bad = ~torch.isfinite(x.reshape(x.shape[0], -1)).all(1)
    if bool(bad.any()):
        row = int(bad.nonzero()[0])
        value = x[row].flatten()
        fail(name, "finite covariates", float(value[~torch.isfinite(value)][0]), row)
    return x


def _checked_weights(name: str, values: Any, n: int) -> Any:
    weights = as_floats(name, values)
    check_same_length(name, weights, name.replace("weights", "x"), n)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        fail(name, "finite weights, zero or larger", weights[first_row(bad)], first_row(bad))
    if not weights.sum() > 0:
        fail(name, "a positive sum", weights.sum())
    return weights.astype(np.float64)
