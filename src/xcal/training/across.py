"""Training on several processes: who takes part, and which rows are whose.

Every process holds a part of the rows, neighbours in the table, and has the whole path of models. Batches are drawn
from all rows by seed and epoch, as on one process; a process works on the rows of a batch that it holds. Sums over
these rows, of gradients, of the penalty's bins and of validation, are added up over processes. So the batches, and all
results but for rounding, do not depend on how many processes there are.
"""

import atexit
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from xcal._checks import fail
from xcal._processes import Processes
from xcal.training.fingerprint import digest

# False or None: this process alone. "auto": with others, if there are any. "shards": the same, with rows of its own.
Distributed = Literal["auto", "shards"] | bool | None

_dist: Any = dist  # torch's stubs do not know all of its names

# What torchrun tells each process.
_TOLD = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# A process that has not answered for so long is taken for lost. Reading and checking a large table takes minutes.
_PATIENCE = timedelta(minutes=15)


def found_processes(distributed: Distributed) -> Processes | None:
    """Return the processes to train with, initialised if torchrun started them; None if this one trains alone."""
    if distributed is None or distributed is False:
        return None
    if distributed is not True and not (isinstance(distributed, str) and distributed in ("auto", "shards")):
        fail("distributed", 'None, True, False, "auto" or "shards"', repr(distributed))
    if not dist.is_available():
        if distributed == "auto":
            return None
        fail("distributed", "a torch with torch.distributed", "one without it")
    if not dist.is_initialized():
        if not launched():
            if distributed == "auto":
                return None
            fail("distributed", "processes started by torchrun, or torch.distributed initialised", "one on its own")
        _initialise()
        atexit.register(_end)
    return Processes.of("world", "distributed")


def _initialise() -> None:
    """Find the other processes that torchrun started."""
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        store, rank, size = next(iter(_dist.rendezvous("env://", timeout=_PATIENCE)))
        if os.environ.get("LOCAL_WORLD_SIZE") == str(size):
            # On one machine torchrun keeps one store for all its restarts: the addresses of the processes before must
            # not be taken for those of now.
            store = _dist.PrefixStore(f"xcal-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)
    except RuntimeError as error:
        where = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        raise ConnectionError(
            f"process {os.environ['RANK']} of {os.environ['WORLD_SIZE']} did not find the others at {where}: one of "
            "them ended, or was not started. Look for the first error of the run"
        ) from error


def launched() -> bool:
    """Whether torchrun, or something that sets the same variables, started this process."""
    return all(os.environ.get(name) for name in _TOLD)


def _end() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def own_device(device: torch.device) -> torch.device:
    """Assign each process of a machine its own GPU, where GPUs are asked for without a number."""
    if device.type != "cuda" or device.index is not None:
        return device
    number = int(os.environ.get("LOCAL_RANK", dist.get_rank()))
    own = torch.device("cuda", number % torch.cuda.device_count())
    torch.cuda.set_device(own)  # where NCCL takes and leaves what it sends
    return own


@dataclass(frozen=True, eq=False)
class OwnBatches:
    """The rows of each batch of an epoch that this process holds, (batches, S, width) each.

    A batch of which it holds fewer than `width` rows is filled up with rows that do not count.

    Attributes
    ----------
    rows : Tensor
        Row numbers among those of this process.
    there : bool Tensor
        Whether a row counts.
    places : Tensor
        Where the row stands in the whole batch.
    whole : int
        Rows of each whole batch.
    """

    rows: Tensor
    there: Tensor
    places: Tensor
    whole: int

    @classmethod
    def of(cls, order: Tensor, held: slice) -> "OwnBatches":
        """Pick the rows that are `held` from the batches of all rows, ``(batches, S, whole)``.

        Examples
        --------
        >>> own = OwnBatches.of(torch.tensor([[[4, 0, 3, 1]], [[2, 5, 6, 7]]]), slice(3, 6))
        >>> own.rows.tolist(), own.there.tolist()
        ([[[1, 0]], [[2, 2]]], [[[True, True]], [[True, False]]])
        """
        mine = (order >= held.start) & (order < held.stop)
        # At least one row, so that networks need not know what to do with none.
        width = max(1, int(mine.sum(-1).max()))
        places = torch.argsort(mine, dim=-1, descending=True, stable=True)[..., :width]
        there = mine.gather(-1, places)
        # Filled up with the batch's first row of this process: if that is not finite, neither is the batch.
        places = torch.where(there, places, places[..., :1])
        rows = (order.gather(-1, places) - held.start).clamp(0, held.stop - held.start - 1)
        return cls(rows, there, places, order.shape[-1])


@dataclass(frozen=True, eq=False)
class Across:
    """Training on several processes, as one of them sees it.

    Attributes
    ----------
    processes : Processes
    held : slice
        Training rows of this process, among those of all.
    n_train, n_validation : int
        Rows of all processes.
    digests : function
        Short names of the contents of all rows, to train and to validate on, and of the features of the conditional
        penalty. All processes must call it together.
    """

    processes: Processes
    held: slice
    n_train: int
    n_validation: int
    digests: Callable[[], dict[str, str]]

    def own(self, order: Tensor) -> OwnBatches:
        """Pick this process's rows from the batches of an epoch."""
        return OwnBatches.of(order, self.held)

    def check_same(self, settings: dict[str, Any]) -> None:
        """Refuse to train if the processes were not given the same thing to do."""
        own = {name: digest(json.dumps(value, default=repr).encode()) for name, value in settings.items()}
        everyone = self.processes.gathered(own)
        differing = [name for name in own if len({told[name] for told in everyone}) > 1]
        if differing:
            fail("distributed", "the same arguments on every process", f"another {', '.join(differing)} on some")

    def same_start(self, tensors: list[Tensor]) -> None:
        """Write the first process's values into those of all others."""
        for values in tensors:
            dist.broadcast(values, group=self.processes.group, group_src=0)

    def summed(self, *parts: Tensor) -> list[Tensor]:
        """Sum each part over processes, all in one go; in the type of the first."""
        total = self.processes.total(torch.cat([part.reshape(-1).to(parts[0].dtype) for part in parts]))
        pieces = total.split([part.numel() for part in parts])
        return [piece.view(part.shape) for piece, part in zip(pieces, parts, strict=True)]
