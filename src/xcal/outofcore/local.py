"""Pieces of work on this machine: in this process or in several."""

from collections.abc import Callable, Iterator
from pathlib import Path

from xcal._worker_processes import Report, WorkerProcesses
from xcal.metrics.streaming.accumulator import State
from xcal.outofcore.columns import Columns
from xcal.outofcore.passes import Pass
from xcal.outofcore.reading import Piece, batches

Work = tuple[Callable[[], Pass], list[Path], Columns]
Workers = WorkerProcesses[Work, Piece, State]


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
    """Yield the state of each piece, one after another."""
    for number, piece in pieces.items():
        yield number, piece_state(work, piece, report)


def in_processes(workers: Workers, work: Work, pieces: dict[int, Piece], report: Report) -> Iterator[tuple[int, State]]:
    """Yield the state of each piece as it is finished."""
    numbers = list(pieces)
    for place, state in workers.results(work, list(pieces.values()), report):
        yield numbers[place], state
