"""What is shown while an audit resamples."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from xcal._checks import fail

Report = Callable[[int, int], None]
Progress = bool | Report | None


@contextmanager
def shown_progress(progress: Progress, what: str = "resamples") -> Iterator[Report | None]:
    """Give a function of (done, total), or None for silence.

    True shows a bar, False does not, None shows one if the standard error is a terminal.
    """
    if callable(progress):
        yield progress
        return
    if progress is False:
        yield None
        return
    if progress is not None and progress is not True:
        fail("progress", "True, False, None or a function of (done, total)", repr(progress))
    from tqdm import tqdm

    # disable=None: off unless the standard error is a terminal.
    with tqdm(unit=f" {what}", disable=None if progress is None else False, leave=False) as bar:

        def report(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield report
