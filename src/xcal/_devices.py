"""Devices, threads and processes that torch computes on."""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self, TypeVar
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch import Tensor

from xcal._checks import fail

# --- How threads are used: one for each operation, a few for whole pieces of work.
# torch splits an operation among its threads and waits for the last of them. Where other programs use the cores too,
# the last one is often not running, and an operation of microseconds takes as long as the scheduler lets others have
# their turn. Here one thread does an operation, and where there is much to do, threads take whole pieces of it: they
# meet once or twice per piece. What is computed does not depend on which thread did it, or on how many there are.
#
# torch has one setting for threads that use it for the first time: one that begins while `one_thread` holds keeps one
# thread for its operations. Nothing else of torch's setting outlasts the block.
#
# Python runs one thread at a time between operations, so that more than a few of them hinder each other: four threads
# train a path 1.8 times as fast as one, sixteen no faster than two. Where there are more cores, torch's way is taken.

Item = TypeVar("Item")
Result = TypeVar("Result")

# Threads that Python can keep busy with pieces of work.
MOST_WORKERS = 4

# Where Linux says how much processor time a container may use: microseconds, and the period that they are counted in.
_LIMITS = (
    ("/sys/fs/cgroup/cpu.max",),
    ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"),
)


def usable_threads() -> int:
    """Return the number of threads that torch is set to, or that a container's limit of processor time allows.

    torch counts the cores of the machine. A container that may use two of sixty-four has sixty-four threads wait for
    their share of two.
    """
    return max(1, math.ceil(min(torch.get_num_threads(), _container_limit())))


@cache
def _container_limit() -> float:
    """Cores' worth of time that this process may use; infinity if nothing limits it."""
    for files in _LIMITS:
        try:
            quota, period = " ".join(Path(file).read_text() for file in files).split()
            return float(quota) / float(period) if float(quota) > 0 else math.inf
        except (OSError, ValueError):  # no such file, or "max"
            continue
    return math.inf


@contextmanager
def operation_threads(count: int) -> Iterator[None]:
    """Let torch use so many threads for an operation of the calling thread, and leave its setting as it was."""
    before = torch.get_num_threads()
    if before == count:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> Any:
    """Let torch use one thread for each operation of the calling thread, and leave its setting as it was.

    Examples
    --------
    >>> before = torch.get_num_threads()
    >>> with one_thread():
    ...     torch.get_num_threads()
    1
    >>> torch.get_num_threads() == before
    True
    """
    return operation_threads(1)


class Workers:
    """Does pieces of work side by side, or one after another where there is one thread.

    Parameters
    ----------
    count
        Threads; by default as many as are of use. With one, work is done by the caller.
    operations
        Threads for each operation of the caller.

    Examples
    --------
    >>> with Workers(2) as workers:
    ...     workers.map(lambda k: k * k, range(4))
    [0, 1, 4, 9]
    """

    def __init__(self, count: int | None = None, *, operations: int = 1) -> None:
        self.count = min(usable_threads(), MOST_WORKERS) if count is None else count
        self.operations = operations
        self._pool: ThreadPoolExecutor | None = None
        self._inside = ExitStack()

    def __enter__(self) -> Self:
        self._inside.enter_context(operation_threads(self.operations))
        return self

    def __exit__(self, *_: Any) -> None:
        """Wait for what is being worked on and end the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._inside.close()

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Results in the order of the items."""
        if self.count == 1 or len(items) == 1:
            return [function(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.count, "xcal", initializer=torch.set_num_threads, initargs=(1,))
        return list(self._pool.map(function, items))


def devices() -> list[str]:
    """Names of the devices of this machine that models can be trained on.

    Sums over bins are taken in float64, which Apple's GPUs do not have.
    """
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None or accelerator.type == "mps":
        return ["cpu"]
    return ["cpu", *(f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count()))]


def best_device() -> torch.device:
    """Return the GPU if there is one that torch can use, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def as_device(value: Any, *, also: tuple[str, ...] = (), name: str = "device") -> torch.device:
    """Check that a device is one of this machine's; `also` are words that the caller understands besides.

    Examples
    --------
    >>> as_device("cpu")
    device(type='cpu')
    """
    known = devices()
    try:
        device = torch.device(value)
    except (RuntimeError, TypeError, ValueError, OverflowError):
        device = None
    # A name without a number is the first device of its kind, or the one that torch was told to use. CPUs have none.
    kinds = {one.split(":")[0] for one in known}
    there = device is not None and (
        str(device) in known or (device.type in kinds and (device.index is None or device.type == "cpu"))
    )
    if device is None or not there:
        fail(name, f"a device of this machine ({', '.join([*known, *also])})", repr(value))
    return device


# --- Several processes that work on one thing, by `torch.distributed`: which they are, and sums over all of them.

# A group of `torch.distributed`, or the word for all processes of the run.
Group = Any
World = Literal["world"]

# What the processes of a group have told each other before that they agree on.
_agreed: "WeakKeyDictionary[Any, set[tuple[int, ...]]]" = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Processes:
    """The processes of a group, and which of them this one is."""

    group: Group  # a group of `torch.distributed`
    # rank, size: number of this process in the group, from 0, and number of processes
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
