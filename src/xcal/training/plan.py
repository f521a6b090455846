"""How the work of a training step is cut into pieces for threads (`xcal._threads`).

A piece is a part of a stack's models, or some rows of a large network's batch. How it is cut follows from its size and
from torch's number of threads, and not from how busy the machine is: the results are the same bits.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from xcal._threads import Workers
from xcal.training.stack import CPU_LAMBDAS

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

    def workers(self) -> Workers:
        """Threads for this work."""
        return Workers(self.threads, split_operations=self.split_operations)


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
