"""Covariates that stay in a file: memory-mapped, read a batch ahead, never whole in memory."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal._checks import fail

_DTYPES = {np.dtype(np.float32): torch.float32, np.dtype(np.float64): torch.float64}
_CHUNK = 1 << 24  # numbers looked at in one go, while checking


class HostFeatures:
    """Covariates ``(n, ...)`` of a memory-mapped array, as far as training needs them to be a tensor.

    Parameters
    ----------
    array
        Memory-mapped float32 or float64.
    device
        Where batches go.
    kept
        Row numbers of the array, where not all are used.
    """

    def __init__(self, array: Any, device: torch.device, kept: Any = None) -> None:
        self.array, self.device, self.kept = array, device, kept
        self.shape = torch.Size((array.shape[0] if kept is None else len(kept), *array.shape[1:]))
        self.dtype = _DTYPES[array.dtype]

    def __getitem__(self, rows: slice) -> Tensor:
        where = rows if self.kept is None else self.kept[rows]
        return torch.from_numpy(np.array(self.array[where])).to(self.device)

    def only(self, kept: Tensor) -> "HostFeatures":
        """Keep some rows; nothing is read."""
        return HostFeatures(self.array, self.device, kept.cpu().numpy())

    def to(self, device: torch.device) -> "HostFeatures":
        """Send batches to another device; nothing is read."""
        return HostFeatures(self.array, device, self.kept)

    def select(self, index: Tensor) -> Tensor:
        """Read the rows of an index ``(S, b)``, in page-locked memory where they go to a GPU."""
        numbers = index.cpu().numpy().reshape(-1)
        if self.kept is not None:
            numbers = self.kept[numbers]
        found = torch.from_numpy(self.array[numbers]).view(*index.shape, *self.shape[1:])
        return found.pin_memory() if self.device.type == "cuda" else found

    def stream(self, order: Tensor) -> Iterator[Tensor]:
        """Batches ``(S, b, ...)`` on the device in the given order, the next one always being read meanwhile."""
        indices = order.cpu()
        with ThreadPoolExecutor(max_workers=1) as reader:
            ahead: Future[Tensor] = reader.submit(self.select, indices[0])
            for number in range(len(indices)):
                x = ahead.result()
                if number + 1 < len(indices):
                    ahead = reader.submit(self.select, indices[number + 1])
                yield x.to(self.device, non_blocking=True)

    def pieces(self) -> Iterator[Tensor]:
        """All rows, read piece by piece."""
        step = self._step()
        return (self[start : start + step] for start in range(0, self.shape[0], step))

    def _step(self) -> int:
        return max(1, _CHUNK // max(1, self.shape[1:].numel()))


def checked_host_features(name: str, array: Any) -> HostFeatures:
    """Check a memory-mapped array as covariates in memory are checked, piece by piece."""
    if array.dtype not in _DTYPES:
        fail(name, "float32 or float64 covariates", f"dtype {array.dtype}")
    if array.ndim < 2:
        fail(name, "shape (n, ...), a row for each subject", f"shape {array.shape}")
    if array.shape[0] == 0:
        fail(name, "at least one row", "none")
    features = HostFeatures(array, torch.device("cpu"))
    step = features._step()
    for start in range(0, array.shape[0], step):
        piece = np.asarray(array[start : start + step]).reshape(min(step, array.shape[0] - start), -1)
        bad = ~np.isfinite(piece).all(1)
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            fail(name, "finite covariates", piece[row][~np.isfinite(piece[row])][0], start + row)
    return features
