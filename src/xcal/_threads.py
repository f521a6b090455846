"""How many threads torch may use for one operation.

torch splits an operation among its threads and waits for the last of them. Where other programs use the cores too, the
last one is often not running, and an operation of microseconds takes as long as the scheduler gives others their turn.
Small operations are therefore done by one thread. Training gives whole models to threads instead
(`xcal.training.workers`).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
