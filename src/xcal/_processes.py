"""Several processes that work on one thing, by `torch.distributed`: which they are, and sums over all of them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from xcal._checks import fail

Result = TypeVar("Result")

# A group of `torch.distributed`, or the word for all processes of the run.
Group = Any
World = Literal["world"]

# What the processes of a group have told each other before that they agree on.
_agreed: "WeakKeyDictionary[Any, set[tuple[int, ...]]]" = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Processes:
    """The processes of a group, and which of them this one is.

    Attributes
    ----------
    group
        A group of `torch.distributed`.
    rank, size : int
        Number of this process in the group, from 0, and number of processes.
    """

    group: Group
    rank: int
    size: int

    @classmethod
    def of(cls, group: Group | World, name: str = "process_group") -> "Processes":
        """Return the processes of a group, or say why there are none; `name` is the argument that it came by."""
        ready = dist.is_available() and dist.is_initialized()
        if isinstance(group, str):
            if group != "world":
                fail(name, 'a group of torch.distributed, "world" or None', repr(group))
            if not ready:
                expected = "processes that know of each other: call torch.distributed.init_process_group first"
                fail(name, expected, "'world' in a process on its own")
            group = dist.group.WORLD
        if not dist.is_available() or not isinstance(group, dist.ProcessGroup):
            fail(name, 'a group of torch.distributed, "world" or None', type(group).__name__)
        if not ready or dist.get_rank(group) < 0:
            fail(name, "a group that is initialised and has this process in it", "another")
        return cls(group, dist.get_rank(group), dist.get_world_size(group))

    @property
    def first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """Rows of this process, neighbours, out of `n`.

        Examples
        --------
        >>> [Processes(None, rank, 3).part(10) for rank in range(3)]
        [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
        """
        return slice(n * self.rank // self.size, n * (self.rank + 1) // self.size)

    def total(self, values: Tensor) -> Tensor:
        """Sum over all processes, the same bits on each of them. A constant to the gradient."""
        return self.summing(values.detach().clone(memory_format=torch.contiguous_format))()

    def summing(self, values: Tensor) -> Callable[[], Tensor]:
        """Start to add up over all processes, in place; the function that is returned waits for the sum.

        What is done in between costs no time while the others are waited for.
        """
        with _told(self):
            work = dist.all_reduce(values, group=self.group, async_op=True)

        def finished() -> Tensor:
            with _told(self):
                work.wait()
            return values

        return finished

    def gathered(self, values: Any) -> list[Any]:
        """Return small things of all processes, in the order of their numbers."""
        everyone: list[Any] = [None] * self.size
        with _told(self):
            dist.all_gather_object(everyone, values, group=self.group)
        return everyone

    def agree(self, what: dict[str, int]) -> None:
        """Refuse to go on if a number differs between processes; asked once for each set of numbers.

        Sums of arrays of different shapes would wait for each other without end, or add what does not belong together.
        """
        numbers = tuple(what.values())
        known = _agreed.setdefault(self.group, set())
        if numbers not in known:
            self.compare(what)
            known.add(numbers)

    def compare(self, what: dict[str, int]) -> None:
        """Ask all processes for their numbers, and refuse to go on if one differs."""
        everyone = self.gathered(tuple(what.values()))
        for place, name in enumerate(what):
            found = [numbers[place] for numbers in everyone]
            if len(set(found)) > 1:
                fail(name, "the same number on every process", ", ".join(map(str, found)))

    def from_first(self, make: Callable[[], Result]) -> Result:
        """Return what the first process makes, on every process. Its error is raised on every process too."""
        box: list[Any] = [None, None]
        if self.first:
            try:
                box[0] = make()
            except Exception as error:  # whatever it is: the others would wait for an answer that never comes
                box[1] = error
        with _told(self):
            dist.broadcast_object_list(box, group=self.group, group_src=0)
        if box[1] is not None:
            raise box[1]
        made: Result = box[0]
        return made


@contextmanager
def _told(processes: Processes) -> Iterator[None]:
    """Turn what a backend raises when another process is gone, or too slow, into one sentence."""
    try:
        yield
    except RuntimeError as error:
        raise ConnectionError(
            f"process {processes.rank} of {processes.size} lost the others: one of them ended, or did not answer in "
            "time. Look for the first error of the run; with a checkpoint, run the same command again to resume"
        ) from error
