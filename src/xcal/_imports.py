"""Imports: Ctrl-C and the garbage collector wait, and what other packages add is found by entry points."""

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

# --- While modules are imported, Ctrl-C waits: a module whose import was cut short lacks parts for good. So does the
# garbage collector: it would walk again and again through objects that stay, a fifth of the time of our imports.


@contextmanager
def importing() -> Iterator[None]:
    """Let an interrupt that comes within the block be raised at its end, and the garbage collector wait until then.

    Libraries cannot be imported twice in one process. After an import of torch was cut short, every later one fails,
    and with it everything that needs torch; the same holds for what torch imports when it is first used.
    """
    came: list[int] = []
    handler = signal.getsignal(signal.SIGINT)
    # Other threads get no interrupts and may not say what a signal does; None is a handler that is not Python's.
    waits = threading.current_thread() is threading.main_thread() and handler is not None
    if waits:
        signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
        if waits:
            signal.signal(signal.SIGINT, handler)
    if came:
        signal.raise_signal(signal.SIGINT)


# --- What other packages add to xcal, found by their entry points: xcal imports none of them by name.
# `xcal.commands` adds commands to the command line (`xcal.cli.app`). `xcal.published` holds the published code of the
# X-CAL paper, to which ``as_published=True`` and the families with ``-published`` lead; the package xcal_paper, in the
# folder ``paper`` of the repository, fills both.

COMMANDS, PUBLISHED = "xcal.commands", "xcal.published"


def extensions(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, by name."""
    return tuple(sorted(entry_points(group=group), key=lambda one: one.name))


@cache
def published(name: str) -> Any:
    """Return a part of the published code by its name.

    Raises
    ------
    ImportError
        The package that has it is not installed.
    """
    for found in extensions(PUBLISHED):
        if found.name == name:
            return found.load()
    raise ImportError(
        f"{name}: expected the package xcal_paper, which holds the published code of the X-CAL paper, got none "
        "installed: pip install -e paper, in the repository of xcal"
    )


@cache
def extending_packages() -> frozenset[str]:
    """Return the names of the packages that extend xcal."""
    return frozenset(found.module.partition(".")[0] for group in (COMMANDS, PUBLISHED) for found in extensions(group))
