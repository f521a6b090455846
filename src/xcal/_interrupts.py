"""Ctrl-C waits while modules are imported: a module whose import was cut short lacks parts for good."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interrupts_wait() -> Iterator[None]:
    """Let an interrupt that comes within the block be raised at its end.

    Libraries cannot be imported twice in one process. After an import of torch was cut short, every later one fails,
    and with it everything that needs torch; the same holds for what torch imports when it is first used.
    """
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    # Other threads get no interrupts and may not say what a signal does; None is a handler that is not Python's.
    waits = threading.current_thread() is threading.main_thread() and handler is not None
    if waits:
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        if waits:
            signal.signal(signal.SIGINT, handler)
    if came:
        signal.raise_signal(signal.SIGINT)
