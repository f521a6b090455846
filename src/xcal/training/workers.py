"""Threads that share the work of an epoch, each with whole pieces of it.

A piece is a part of a stack's models, or some rows of a large network's batch. One thread works on it from beginning to
end, so that threads meet once or twice per step and not at every operation: where other programs use the cores too,
little time is lost by waiting. What is computed depends on how the work is cut (`Plan`), which follows from its size
and from torch's number of threads, and not on which thread did it or how busy the machine was.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

from xcal._threads import one_thread
from xcal.training.stack import CPU_LAMBDAS

Item = TypeVar("Item")
Result = TypeVar("Result")

# Multiplications of a forward pass that are worth a thread's attention, some two milliseconds of training: handing
# work over takes a tenth of one. `python -m benchmarks.busy` shows what this does.
_WORTH_A_THREAD = 2e7


@dataclass(frozen=True)
class Plan:
    """How the work of a step is cut.

    Attributes
    ----------
    threads : int
        Pieces that are worked on at a time.
    together : int
        Lambdas of one seed in a piece.
    row_pieces : int
        Pieces of the batch of a model that is trained alone.
    split_operations : bool
        Leave it to torch to split single operations, for a large network that is trained alone and whose rows cannot be
        separated.
    """

    threads: int = 1
    together: int = CPU_LAMBDAS
    row_pieces: int = 1
    split_operations: bool = False


def planned(n_seeds: int, n_lambdas: int, work: float, *, row_wise: Callable[[], bool]) -> Plan:
    """Cut the work of a step on a CPU.

    Parameters
    ----------
    n_seeds, n_lambdas
        Models that are trained together.
    work
        Multiplications of one model's forward pass over a batch.
    row_wise
        Whether the network treats every row on its own; asked only where it matters.
    """
    threads = torch.get_num_threads()
    if threads == 1 or n_seeds * n_lambdas * work < 2 * _WORTH_A_THREAD:
        return Plan()
    # Two pieces for each thread: one that is held up by another program then has less to do than the others.
    if n_seeds * n_lambdas == 1:
        if not row_wise():
            return Plan(split_operations=True)
        return Plan(threads, row_pieces=int(min(2 * threads, work / _WORTH_A_THREAD)))
    per_seed = -(-2 * threads // n_seeds)
    together = max(-(-n_lambdas // per_seed), int(-(-_WORTH_A_THREAD // work)))
    return Plan(threads, together=min(together, CPU_LAMBDAS))


class Workers:
    """Does pieces of work side by side, or one after another where there is one thread.

    Parameters
    ----------
    count
        Threads. With one, work is done by the caller.
    """

    def __init__(self, count: int = 1) -> None:
        self._pool = None
        if count > 1:
            self._pool = ThreadPoolExecutor(count, "xcal", initializer=torch.set_num_threads, initargs=(1,))

    def map(self, function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
        """Results in the order of the items."""
        if self._pool is None or len(items) == 1:
            return [function(item) for item in items]
        return list(self._pool.map(function, items))

    def close(self) -> None:
        """Wait for what is being worked on and end the threads."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@contextmanager
def working(plan: Plan) -> Iterator[Workers]:
    """Threads for a while, during which an operation of the calling thread takes one thread too."""
    if plan.split_operations:
        yield Workers()
        return
    workers = Workers(plan.threads)
    try:
        with one_thread():
            yield workers
    finally:
        workers.close()
