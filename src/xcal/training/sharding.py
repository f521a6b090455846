"""The rows of each process of a distributed run, from the rows of all or from its own."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from xcal._checks import as_numpy, fail
from xcal._processes import Processes
from xcal.calibration.row_features import FeatureMaker
from xcal.data import SurvivalData
from xcal.training.across import Across
from xcal.training.fingerprint import tensor_digest
from xcal.training.rows import contents, features_of, in_type, prepared

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
    """Put the rows on the device, with the features of the penalty; of several processes each has a part of them."""
    if processes is not None:
        return _sharded(train, validation, device, processes, local=local, conditional=conditional)
    both = prepared("train", train, device), prepared("validation", validation, device)
    features = (
        (None, None) if conditional is None else (features_of(both[0], conditional), features_of(both[1], conditional))
    )
    return *both, features, None


def _sharded(
    train: SurvivalData,
    validation: SurvivalData,
    device: torch.device,
    processes: Processes,
    *,
    local: bool,
    conditional: FeatureMaker | None,
) -> tuple[SurvivalData, SurvivalData, Features, Across]:
    """Return this process's rows to train and to validate on, the features of the penalty, and its part in the whole.

    With `local` rows each process was given its own, and all of them together are the rows in the order of processes;
    otherwise each was given all of them, and keeps its part.
    """
    features: Features = (None, None)
    more = {}
    if local:
        if conditional is not None:
            fail("conditional", 'None with distributed="shards": features are made from the rows of all', "a maker")
        held = [_local(name, rows, device, processes) for name, rows in _named(train, validation)]
    else:
        whole = [prepared(name, rows, rows.device) for name, rows in _named(train, validation)]
        held = [_part(name, rows, device, processes) for name, rows in _named(*whole)]
        if conditional is not None:
            made = [features_of(rows, conditional) for rows in whole]
            features = (made[0][held[0].place].to(device), made[1][held[1].place].to(device))
            more = {"row features": lambda: tensor_digest(made)}
    names = {"train": held[0].digest, "validation": held[1].digest, **more}

    def digests() -> dict[str, str]:
        return {name: processes.from_first(find) if not local else find() for name, find in names.items()}

    across = Across(processes, held[0].place, held[0].n, held[1].n, digests)
    return held[0].rows, held[1].rows, features, across


def _named(train: SurvivalData, validation: SurvivalData) -> list[tuple[str, SurvivalData]]:
    return [("train", train), ("validation", validation)]


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
            seen, column = 0, column + 1  # the next of features, times, events and weights
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
