"""What a step minimises, and where its gradient enters the graph of the networks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from xcal.training.rows import Batch


@dataclass(frozen=True, eq=False)
class Loss:
    """Loss of every model, (S, L), and the tensors from which autograd goes on to the networks.

    Attributes
    ----------
    value : Tensor
        Without gradient.
    ends : sequence of Tensor
        What the networks' outputs were turned into.
    slopes : sequence of Tensor, optional
        Gradient of the sum of all losses in each of them; None if they are that sum.
    """

    value: Tensor
    ends: Sequence[Tensor]
    slopes: Sequence[Tensor] | None = None

    @classmethod
    def from_slopes(cls, value: Tensor, *slopes: tuple[Tensor, Tensor]) -> "Loss":
        """Make a loss of tensors, each with its gradient; one without a graph (an objective of zero) is left out."""
        used = [(end, slope) for end, slope in slopes if end.requires_grad]
        return cls(value, [end for end, _ in used], [slope for _, slope in used])

    def gradient(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the gradient of the sum of all losses in some tensors; zero in one that has no part in it."""
        return torch.autograd.grad(self.ends, inputs, self.slopes, materialize_grads=True)


# Of raw outputs, a batch and lambdas.
LossValues = Callable[[Tensor, Batch, Tensor], Tensor]
LossFunction = Callable[[Tensor, Batch, Tensor], Loss]


def by_autograd(values: LossValues) -> LossFunction:
    """Make a loss of a function that returns its values with their graph."""

    def loss(raw: Tensor, batch: Batch, lambdas: Tensor) -> Loss:
        found = values(raw, batch, lambdas)
        return Loss(found.detach(), [found.sum()])

    return loss
