"""What is shown while an audit resamples."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from xcal._checks import fail
from xcal.training.progress import shape_of_bar

Report = Callable[[int, int], None]
Progress = bool | Report | None

_EXPECTED = "True, False, None or a function of (done, total)"


@contextmanager
def shown_progress(progress: Progress, what: str = "rows") -> Iterator[Report | None]:
    """Yield a function of (done, total), or None for silence.

    True shows a bar, False does not, None shows one if the standard error is a terminal.
    """
    if callable(progress):
        _check_arguments(progress)
        yield progress
        return
    if progress is False:
        yield None
        return
    if progress is not None and progress is not True:
        fail("progress", _EXPECTED, repr(progress))
    from tqdm import tqdm

    # disable=None: off unless the standard error is a terminal.
    shown: dict[str, Any] = {"disable": None if progress is None else False, "leave": False, **shape_of_bar()}
    with tqdm(desc="resampling", unit=f" {what}", unit_scale=True, **shown) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report


def _check_arguments(progress: Report) -> None:
    """Refuse a function that does not take two numbers, before anything is computed."""
    try:
        signature = inspect.signature(progress)
    except (TypeError, ValueError):  # some functions of C do not say what they take
        return
    try:
        signature.bind(0, 0)
    except TypeError:
        fail("progress", _EXPECTED, f"{progress!r}, which takes {signature}")
