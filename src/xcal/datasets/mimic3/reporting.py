"""How a step says how far it is."""

from collections.abc import Callable

# Called with what is being done, how much of it is done, and how much there is to do (None: not known).
Report = Callable[[str, int, int | None], None]


def silent(doing: str, done: int, total: int | None) -> None:
    """Report nothing."""
