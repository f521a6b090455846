"""Work of a study in several processes, and its records: JSON lines that the same command completes."""

import json
import time as clock
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def read_lines(path: Path) -> list[Any]:
    """Return the lines of a record; none if there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def append_line(path: Path, line: Any) -> None:
    """Add a line to a record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def side_by_side(
    work: Callable[[_Task], _Result], tasks: Iterable[_Task], workers: int, minutes: float = float("inf")
) -> Iterator[tuple[_Task, _Result]]:
    """Yield each task and its result, as they are done; after so many minutes none is begun any more.

    With one worker in this process, else in fresh ones: forked ones may hang where threads have been used.
    """
    start, left = clock.perf_counter(), iter(tasks)
    if workers == 1:
        for task in left:
            if clock.perf_counter() - start > 60 * minutes:
                return
            yield task, work(task)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running: dict[Future[_Result], _Task] = {pool.submit(work, task): task for task in islice(left, workers)}
        while running:
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                if clock.perf_counter() - start < 60 * minutes:
                    running.update((pool.submit(work, task), task) for task in islice(left, 1))
                yield running.pop(future), future.result()
