"""Sums over processes of which every process sees that all of them mean the same.

Processes that add up different things would wait for each other without end, or get numbers that mean nothing: one of
them has other bins than before, and the others have not. What a process means goes along with its sums, as a mark f and
its square. If all marks are equal, the sums over P processes are P f and P f^2. If not, marks have a variance, and no
process finds both: each of them sees it, in the same message. For that, messages of one group have one length, that of
the longest so far. A process that means something new sends its mark alone, in that length, before anything else.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from xcal._processes import Processes
from xcal.calibration.loss_checks import readable

_MARKS = 1 << 20  # squares of marks add up exactly in float64, up to 8,192 processes


@dataclass
class _Said:
    """What the processes of a group have agreed on, and the length of their messages."""

    known: set[tuple[int, ...]] = field(default_factory=set)
    length: int = 0


_said: "WeakKeyDictionary[Any, _Said]" = WeakKeyDictionary()


def summing_alike(processes: Processes, values: Tensor, what: dict[str, int]) -> Callable[[], Tensor]:
    """Start to add up float64 `values` over all processes; the function that is returned waits for the sum.

    `what` says what the values mean, in numbers by name. If a number differs between processes, all of them refuse; not
    while a CUDA graph is recorded, when no number can be read.
    """
    meant = what | {"numbers to add up": values.numel()}
    numbers = tuple(meant.values())
    mark = zlib.crc32(repr(numbers).encode()) % _MARKS
    said = _said.setdefault(processes.group, _Said())
    if numbers not in said.known:
        if said.known:  # others may be at something that they know
            processes.summing(_message(values.new_zeros(0), mark, said.length))()
        processes.compare(meant)
        said.known.add(numbers)
        said.length = max(said.length, values.numel())
    finished = processes.summing(_message(values.flatten(), mark, said.length))

    def totals() -> Tensor:
        found = finished()
        expected = [processes.size * mark, processes.size * mark**2]
        if readable(found) and found[-2:].tolist() != expected:
            processes.compare(meant)
        return found[: values.numel()].view(values.shape)

    return totals


def _message(values: Tensor, mark: int, length: int) -> Tensor:
    """Values, zeros up to the common length, and the mark."""
    end = [0.0] * (length - values.numel()) + [float(mark), float(mark**2)]
    return torch.cat([values, values.new_tensor(end)])
