"""Loss and network, compiled where that works."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from xcal.networks._layers import has_convolutions
from xcal.training.loss import LossValues
from xcal.training.randomness import shared_numbers
from xcal.training.rows import Batch
from xcal.training.stack import Stack

_log = logging.getLogger("xcal.training")


def compiled_loss(loss: LossValues, stack: Stack, batch: Batch, lambdas: Tensor) -> LossValues:
    """Compile objective and penalty, or say in one log line why not and return the plain loss.

    Forward and backward are both tried here, on a batch of the shape that all batches have, because a missing compiler
    shows only when it is needed.
    """
    try:
        compiled: LossValues = torch.compile(loss, dynamic=False)
        with torch.no_grad():
            part = stack.parts[0]
            few = batch.starts(part.starts)
            raw = stack.forward(few.x, training=False, part=part)
        raw.requires_grad_()
        torch.autograd.grad(compiled(raw, few, lambdas[part.starts, part.lambdas]).sum(), raw)
    except Exception as error:  # whatever a compiler chain can raise, training does not depend on it
        _log.warning("the loss is not compiled: %s", _reason(error))
        return loss
    return compiled


def network_gains(stack: Stack) -> bool:
    """Whether compiling the network pays: around convolutions activation, pooling and gradients become one pass each.

    Dense layers are matrix products, which a compiler does not make faster.
    """
    return stack.n_models == 1 and has_convolutions(stack.template)


def compile_network(stack: Stack, batch: Batch) -> None:
    """Compile a lone network, or say in one log line why not."""
    try:
        compiled = torch.compile(stack.template, dynamic=False)
        stack.template.train()
        with shared_numbers(), preserved(stack):
            torch.autograd.grad(compiled(batch.x[0]).sum(), list(stack.leaves.values()), allow_unused=True)
    except Exception as error:  # whatever a compiler chain can raise, training does not depend on it
        _log.warning("the network is not compiled: %s", _reason(error))
        return
    stack.compiled = compiled


@contextmanager
def preserved(stack: Stack) -> Iterator[None]:
    """Leave running means and the like as they were."""
    before = stack.snapshot()
    try:
        yield
    finally:
        stack.load(before)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: " + str(error).strip().split("\n", 1)[0]
