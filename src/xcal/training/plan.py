"""How the work of a training step is cut into pieces for threads (`xcal._threads`).

A piece is a part of a stack's models, or some rows of a large network's batch. How work is cut follows from its size
and from torch's number of threads, and not from how busy the machine is: the results are the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

from xcal._threads import MOST_WORKERS, usable_threads
from xcal.training.stack import CPU_LAMBDAS

# Multiplications of a forward pass that are worth a thread's attention, some two milliseconds of training: handing
# work over takes a tenth of one. `python -m benchmarks.busy` shows what this does.
_WORTH_A_THREAD = 2e7

# Multiplications from which single operations take so long that threads wait little for each other.
_WORTH_ALL_CORES = 1e9


@dataclass(frozen=True)
class Plan:
    """How the work of a step is cut.

    Attributes
    ----------
    workers : int
        Pieces that are worked on at a time.
    together : int
        Lambdas of one seed in a piece.
    row_pieces : int
        Pieces of the batch of a model that is trained alone.
    operations : int
        Threads that torch splits each single operation among.
    """

    workers: int = 1
    together: int = CPU_LAMBDAS
    row_pieces: int = 1
    operations: int = 1


def planned(n_seeds: int, n_lambdas: int, work: float, *, row_wise: Callable[[], bool]) -> Plan:
    """Cut the work of a step on a CPU.

    Small work is done by one thread. On a few cores threads take whole pieces. On many, where Python cannot keep all
    threads busy with pieces, operations are split, and half of the cores are left alone unless the work is large: a
    thread that finds its core taken can then move to another.

    Parameters
    ----------
    n_seeds, n_lambdas
        Models that are trained together.
    work
        Multiplications of one model's forward pass over a batch.
    row_wise
        Whether the network treats every row on its own; asked only where it matters.
    """
    threads, models = usable_threads(), n_seeds * n_lambdas
    if threads == 1 or models * work < 2 * _WORTH_A_THREAD:
        return Plan()
    if threads > MOST_WORKERS:
        return Plan(operations=threads if models * work >= _WORTH_ALL_CORES else threads // 2)
    # Two pieces for each thread: one that is held up by another program then has less to do than the others.
    if models == 1:
        if not row_wise():
            return Plan(operations=threads)
        return Plan(threads, row_pieces=int(min(2 * threads, work / _WORTH_A_THREAD)))
    per_seed = -(-2 * threads // n_seeds)
    together = max(-(-n_lambdas // per_seed), int(-(-_WORTH_A_THREAD // work)))
    return Plan(threads, together=min(together, CPU_LAMBDAS))
