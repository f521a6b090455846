"""The loss, compiled where that works."""

import logging
from collections.abc import Callable

import torch
from torch import Tensor

from xcal.training.problem import Problem
from xcal.training.rows import Batch
from xcal.training.stack import Stack

LossFunction = Callable[[Tensor, Batch], Tensor]

_log = logging.getLogger("xcal.training")


def compiled_loss(problem: Problem, stack: Stack, batch: Batch) -> LossFunction:
    """Compile objective and penalty, or say in one log line why not and return the plain loss.

    The network is left as it is: its time goes into matrix products, which a compiler does not make faster. Forward and
    backward are both tried here, on a batch of the shape that all batches have, because a missing compiler shows only
    when it is needed.
    """
    try:
        compiled: LossFunction = torch.compile(problem.loss, dynamic=False)
        with torch.no_grad():
            raw = stack.forward(batch.x, training=False)
        raw.requires_grad_()
        torch.autograd.grad(compiled(raw, batch).sum(), raw)
    except Exception as error:  # whatever a compiler chain can raise, training does not depend on it
        reason = str(error).strip().split("\n", 1)[0]
        _log.warning("the loss is not compiled: %s: %s", type(error).__name__, reason)
        return problem.loss
    return compiled
