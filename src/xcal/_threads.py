"""How threads are used: one for each operation, several for whole pieces of work.

torch splits an operation among its threads and waits for the last of them. Where other programs use the cores too, the
last one is often not running, and an operation of microseconds takes as long as the scheduler lets others have their
turn. Here one thread does an operation, and where there is much to do, threads take whole pieces of it: they meet once
or twice per piece. What is computed does not depend on which thread did it, or on how many there are.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Self, TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def one_thread() -> Iterator[None]:
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
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Workers:
    """Does pieces of work side by side, or one after another where there is one thread.

    Parameters
    ----------
    count
        Threads; by default as many as torch may use. With one, work is done by the caller.
    split_operations
        Let torch split the caller's operations as it is set to.

    Examples
    --------
    >>> with Workers(2) as workers:
    ...     workers.map(lambda k: k * k, range(4))
    [0, 1, 4, 9]
    """

    def __init__(self, count: int | None = None, *, split_operations: bool = False) -> None:
        self.count = torch.get_num_threads() if count is None else count
        self.split_operations = split_operations
        self._pool: ThreadPoolExecutor | None = None
        self._inside = ExitStack()

    def __enter__(self) -> Self:
        if not self.split_operations:
            self._inside.enter_context(one_thread())
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
