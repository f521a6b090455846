"""Rows as training uses them: which make which batch, and which process holds them."""

import atexit
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from xcal._checks import as_numpy, fail
from xcal._devices import Processes
from xcal.calibration.subgroups import FeatureMaker
from xcal.data.features import pieces
from xcal.data.survival import SurvivalData


def digest(*pieces: bytes) -> str:
    """Return a short name for some bytes."""
    seen = hashlib.sha256()
    for piece in pieces:
        seen.update(len(piece).to_bytes(8, "little"))
        seen.update(piece)
    return seen.hexdigest()[:32]


def tensor_digest(tensors: Iterable[Tensor]) -> str:
    """Return a short name for the contents, shapes and types of some tensors, read one after another."""
    seen = hashlib.sha256()
    for tensor in tensors:
        values = tensor.detach().cpu().contiguous()
        seen.update(f"{values.dtype} {tuple(values.shape)}".encode())
        seen.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return seen.hexdigest()[:32]


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


def seen_alike(rows: SurvivalData, *, entry: bool, lower: bool) -> SurvivalData:
    """Write out times of entry, and lower ends, that say nothing, where other rows have some."""
    if entry and rows.entry is None:
        rows = rows.replaced(entry=0 * rows.time)
    return rows.replaced(lower=rows.time) if lower and rows.lower is None else rows


def in_type(rows: SurvivalData, dtype: torch.dtype) -> SurvivalData:
    """Turn times and weights of rows on a device into the type that models compute in."""
    given = {name: getattr(rows, name) for name in ("time", "entry", "lower", "weights")}
    return rows.replaced(**{name: None if one is None else one.to(dtype) for name, one in given.items()})


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
    edges: Tensor | None = None  # of the bins of its penalty, where every batch has its own
    cause: Tensor | None = None
    entry: Tensor | None = None
    lower: Tensor | None = None

    def starts(self, chosen: slice) -> "Batch":
        """Keep some of the S sets."""
        return self._each(lambda values: values[chosen])

    def beside_models(self) -> "Batch":
        """Put (S, b) beside models (S, L): every lambda of a seed sees the same rows."""
        return self._each(lambda values: values.unsqueeze(1))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        given = (self.x, self.time, self.event, self.weights, self.row_features, self.cause, self.entry, self.lower)
        x, time, event, weights, features, *seen = (cast(Any, None if one is None else change(one)) for one in given)
        return Batch(x, time, event, weights, features, self.whole, self.edges, *seen)

    def of_several(self, there: Tensor, whole: int) -> "Batch":
        """Return the batch as the part of one of `whole` rows; those that are not `there` get weight zero."""
        counted = there.to(self.time.dtype)
        return replace(self, weights=counted if self.weights is None else self.weights * counted, whole=whole)


def take(
    rows: SurvivalData, index: Tensor | slice, x: Tensor | None = None, row_features: Tensor | None = None
) -> Batch:
    """Pick rows by index; an index of shape (S, b) gives S sets of b rows. Features at hand (`x`) need not be read."""
    if x is None:
        if isinstance(rows.x, Tensor):
            x = _take(rows.x, index)
        else:
            x = rows.x[index] if isinstance(index, slice) else rows.x.select(index).to(rows.x.device)
    others = (rows.weights, row_features, rows.cause, rows.entry, rows.lower)
    weights, picked, *seen = (None if one is None else _take(one, index) for one in others)
    return Batch(x, _take(rows.time, index), _take(rows.event, index), weights, picked, None, None, *seen)


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
    if not rows.plain:
        # In one piece of three columns, which is no weight.
        none = torch.full_like(rows.time, -1.0)
        yield torch.stack([none if one is None else one.to(none) for one in (rows.cause, rows.entry, rows.lower)], 1)


def _take(values: Tensor, index: Tensor | slice) -> Tensor:
    if isinstance(index, slice):
        return values[index]
    # Much faster than indexing with a tensor, which can do more.
    return values.index_select(0, index.reshape(-1)).view(*index.shape, *values.shape[1:])


# --- Which rows make which batch: a function of seed and epoch alone.
# Lambdas of one seed see the same batches, so that seeds are paired across lambdas, and a model sees the same batches
# whatever is trained beside it, and whether or not training was resumed.

# What a stream of random numbers is for; two uses of one seed and epoch must not share numbers.
ORDER, DROPOUT, PIECES, EDGES = 0, 1, 2, 3


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


def epoch_edges(n_bins: int, batches: int, epoch: int) -> Tensor:
    """Random edges of the bins of every batch of an epoch, ``(batches, n_bins + 1)``, the same for all models.

    Examples
    --------
    >>> edges = epoch_edges(20, batches=3, epoch=0)
    >>> edges.shape, bool((edges.diff() >= 0).all()), edges[:, 0].tolist(), edges[:, -1].tolist()
    (torch.Size([3, 21]), True, [0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
    """
    generator = torch.Generator().manual_seed(derived_seed(epoch, EDGES, []))
    inner = torch.rand(batches, n_bins - 1, dtype=torch.float64, generator=generator)
    ends = torch.tensor([0.0, 1.0], dtype=torch.float64).expand(batches, 2)
    return torch.cat([inner, ends], dim=1).sort(dim=1).values


# --- Training on several processes: who takes part, and which rows are whose.
# Every process holds a part of the rows, neighbours in the table, and has the whole path of models. Batches are drawn
# from all rows by seed and epoch, as on one process; a process works on the rows of a batch that it holds. Sums over
# these rows, of gradients, of the penalty's bins and of validation, are added up over processes. So the batches, and
# all results but for rounding, do not depend on how many processes there are.

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
    """Return whether torchrun, or something that sets the same variables, started this process."""
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
    """

    rows: Tensor  # numbers among the rows of this process
    there: Tensor  # whether a row counts
    places: Tensor  # where the row stands in the whole batch
    whole: int  # rows of each whole batch

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
    """Training on several processes, as one of them sees it."""

    processes: Processes
    held: slice  # training rows of this process, among those of all
    n_train: int  # of all processes
    n_validation: int
    # Short names of the contents of all rows, to train and to validate on, and of the features of the conditional
    # penalty. All processes must call it together.
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


# --- The rows of each process of a distributed run, from the rows of all or from its own.

_MIX = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)  # odd numbers, of the generator splitmix64
Features = tuple[Tensor | None, Tensor | None]  # of the rows to train and to validate on


@dataclass(frozen=True, eq=False)
class _Held:
    """Rows of this process on its device, which of all rows they are, how many there are, and a name for all."""

    rows: SurvivalData
    place: slice
    n: int
    digest: Callable[[], str]


def placed(
    train: SurvivalData,
    validation: SurvivalData,
    device: torch.device,
    conditional: FeatureMaker | None,
    processes: Processes | None,
    *,
    local: bool,
) -> tuple[SurvivalData, SurvivalData, Features, Across | None]:
    """Put the rows on the device, with the features of the penalty; of several processes each has a part of them.

    With `local` rows each process was given its own, and all of them together are the rows in the order of processes;
    otherwise each was given all of them, and keeps its part.
    """
    if processes is None:
        both = prepared("train", train, device), prepared("validation", validation, device)
        if conditional is None:
            return *both, (None, None), None
        return *both, (features_of(both[0], conditional), features_of(both[1], conditional)), None
    features: Features = (None, None)
    more = {}
    if local:
        # Some processes may have rows that entered late, and others none.
        told = processes.gathered([(rows.entry is not None, rows.lower is not None) for rows in (train, validation)])
        late, between = (any(any(one[k] for one in rows) for rows in told) for k in (0, 1))
        train, validation = (seen_alike(rows, entry=late, lower=between) for rows in (train, validation))
        if conditional is not None:
            fail("conditional", 'None with distributed="shards": features are made from the rows of all', "a maker")
        held = [_local("train", train, device, processes), _local("validation", validation, device, processes)]
    else:
        whole = [prepared("train", train, train.device), prepared("validation", validation, validation.device)]
        held = [_part("train", whole[0], device, processes), _part("validation", whole[1], device, processes)]
        if conditional is not None:
            made = [features_of(rows, conditional) for rows in whole]
            features = (made[0][held[0].place].to(device), made[1][held[1].place].to(device))
            more = {"row features": lambda: tensor_digest(made)}
    names = {"train": held[0].digest, "validation": held[1].digest, **more}

    def digests() -> dict[str, str]:
        return {name: processes.from_first(find) if not local else find() for name, find in names.items()}

    across = Across(processes, held[0].place, held[0].n, held[1].n, digests)
    return held[0].rows, held[1].rows, features, across


def _part(name: str, whole: SurvivalData, device: torch.device, processes: Processes) -> _Held:
    """Keep the part of this process."""
    if whole.n < processes.size:
        fail(name, f"at least one row for each of {processes.size} processes", f"{whole.n} rows")
    place = processes.part(whole.n)
    return _Held(whole[place].to(device), place, whole.n, lambda: tensor_digest(contents(whole)))


def _local(name: str, own: SurvivalData, device: torch.device, processes: Processes) -> _Held:
    """Check rows that this process alone has, together with the other processes; `prepared` does it for all rows."""
    event = as_numpy(f"{name}.event", own.event)
    weights = None if own.weights is None else as_numpy(f"{name}.weights", own.weights)
    counts = np.ones(event.size, dtype=bool) if weights is None else weights > 0
    told = (
        int(counts.sum()),
        int((event & counts).sum()),
        None if weights is None else float(weights[counts].sum()),
        tuple(own.x.shape[1:]),
        str(own.x.dtype).removeprefix("torch."),
    )
    everyone = processes.gathered(told)
    numbers, events, sums, *kinds = zip(*everyone, strict=True)
    if min(numbers) == 0:
        fail(name, "at least one row of positive weight on every process", f"none on process {numbers.index(0)}")
    if sum(events) == 0:
        fail(f"{name}.event", "at least one event on some process", "censored rows only")
    if any(len(set(kind)) > 1 for kind in kinds) or len({total is None for total in sums}) > 1:
        fail(name, "rows of one shape and type on every process, all with weights or none", f"{everyone}")
    # Named by the weights as they were given: their mean has other last digits where rows are divided otherwise.
    named = (own if counts.all() else own[counts]).to(device)
    scaled = named if weights is None else named.replaced(weights=named.weights / (sum(sums) / sum(numbers)))
    placed, start = in_type(scaled, scaled.x.dtype), sum(numbers[: processes.rank])
    return _Held(placed, slice(start, start + placed.n), sum(numbers), lambda: _joint_digest(named, start, processes))


def _joint_digest(rows: SurvivalData, start: int, processes: Processes) -> str:
    """Name the rows of all processes, however they are divided: a sum over rows of a hash of number and contents."""
    total, seen, column = torch.zeros(1, dtype=torch.int64), 0, 0
    for piece in contents(rows):
        if seen == rows.n:
            seen, column = 0, column + 1  # the next of features, times, events, weights and what else is known
        values = piece.detach().cpu().contiguous().reshape(piece.shape[0], -1)
        total += _row_hashes(values.view(torch.uint8).numpy(), start + seen, column)
        seen += piece.shape[0]
    return f"{int(processes.total(total)) & (2**64 - 1):016x} by row"


def _row_hashes(rows: np.ndarray, first: int, column: int) -> int:
    """Sum of the hashes of some rows of bytes, whose numbers are counted from `first`; modulo 2^64, as int64."""
    words = np.zeros((rows.shape[0], -(-rows.shape[1] // 8) * 8), dtype=np.uint8)
    words[:, : rows.shape[1]] = rows
    with np.errstate(over="ignore"):
        places = np.arange(1, words.shape[1] // 8 + 1, dtype=np.uint64) + np.uint64(column << 32)
        by_word = _mixed(places) | np.uint64(1)
        by_row = _mixed(np.arange(first + 1, first + 1 + rows.shape[0], dtype=np.uint64)) | np.uint64(1)
        found = (_mixed(words.view(np.uint64) * by_word).sum(1, dtype=np.uint64) * by_row).sum(dtype=np.uint64)
    return int(found.view(np.int64))


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Scatter 64-bit numbers, by the steps of splitmix64."""
    z = numbers + np.uint64(_MIX[0])
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX[1])
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX[2])
    mixed: np.ndarray = z ^ (z >> np.uint64(31))
    return mixed
