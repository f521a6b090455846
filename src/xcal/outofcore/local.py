"""Pieces of work on this machine: in this process or in several."""

import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from xcal._worker_processes import end_with_parent
from xcal.metrics.streaming.accumulator import State
from xcal.outofcore.columns import Columns
from xcal.outofcore.passes import Pass
from xcal.outofcore.reading import Piece, batches

Work = tuple[Callable[[], Pass], list[Path], Columns]
Report = Callable[[int], None]


def piece_state(work: Work, piece: Piece, report: Report | None = None) -> State:
    """State of one pass over the rows of one piece; `report` is told the rows of each batch."""
    make, files, columns = work
    counted = make()
    for batch in batches(piece, files, columns):
        counted.update(batch)
        if report is not None:
            report(batch.n)
    return counted.state_dict()


def in_this_process(work: Work, pieces: dict[int, Piece], report: Report) -> Iterator[tuple[int, State]]:
    """Give the state of each piece, one after another."""
    for number, piece in pieces.items():
        yield number, piece_state(work, piece, report)


def in_processes(work: Work, pieces: dict[int, Piece], report: Report, processes: int) -> Iterator[tuple[int, State]]:
    """Give the state of each piece as it is finished.

    Processes are started anew, not forked: torch's threads do not survive a fork.
    """
    waiting = list(pieces)[::-1]
    running: dict[Future[State], int] = {}
    with ProcessPoolExecutor(processes, get_context("spawn"), _start, (work,)) as pool:
        try:
            while waiting or running:
                # One more than there are processes, so that none waits for this one; no more, as each is a state.
                while waiting and len(running) <= processes:
                    number = waiting.pop()
                    running[pool.submit(_run, pieces[number])] = number
                completed = wait(running, return_when=FIRST_COMPLETED).done
                # What is finished counts, also where another piece has failed at the same time.
                for done in sorted(completed, key=lambda future: future.exception() is not None):
                    number = running.pop(done)
                    state = done.result()
                    report(pieces[number].rows)
                    yield number, state
        except BrokenProcessPool:
            raise ChildProcessError(
                "a worker process died (no memory left? try fewer --processes): what is finished is kept, run the same "
                "command again to resume"
            ) from None
        finally:
            for future in running:
                future.cancel()


_work: Work | None = None


def _start(work: Work) -> None:
    """Prepare a worker. Ctrl-C is for the first process, which lets the pieces at work come to their end."""
    import torch

    end_with_parent()
    global _work  # noqa: PLW0603 - one for each process: sent once, not with every piece
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    _work = work


def _run(piece: Piece) -> Any:
    assert _work is not None
    return piece_state(_work, piece)
