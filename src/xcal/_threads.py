"""How threads are used: one for each operation, a few for whole pieces of work.

torch splits an operation among its threads and waits for the last of them. Where other programs use the cores too, the
last one is often not running, and an operation of microseconds takes as long as the scheduler lets others have their
turn. Here one thread does an operation, and where there is much to do, threads take whole pieces of it: they meet once
or twice per piece. What is computed does not depend on which thread did it, or on how many there are.

torch has one setting for threads that use it for the first time: one that begins while `one_thread` holds keeps one
thread for its operations. Nothing else of torch's setting outlasts the block.

Python runs one thread at a time between operations, so that more than a few of them hinder each other: four threads
train a path 1.8 times as fast as one, sixteen no faster than two. Where there are more cores, torch's way is taken.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Self, TypeVar

import torch

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
