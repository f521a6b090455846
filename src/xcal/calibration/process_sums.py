"""What penalty and mean of several processes share: weights of rows, one all-reduce, a gradient that is known."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from xcal._checks import fail
from xcal._processes import Processes
from xcal._torch_private import apply, in_transform
from xcal.calibration.process_message import summing_alike
from xcal.calibration.row_weights import in_units_of_the_largest, power_of_the_largest


class Exchange:
    """The one all-reduce of a step: sums (..., k) of any number of things go together, in float64.

    What they mean is compared at every call where the calls are those of a user's loop. In a loop of our own, which is
    the same on all processes, it is compared once (`own_loop`): on a GPU, a step would have to be waited for.
    """

    def __init__(self, processes: Processes, *along: Tensor, own_loop: bool = False) -> None:
        self._processes, self._along, self._own_loop = processes, along, own_loop
        self._what: dict[str, int] = {}

    @property
    def n_along(self) -> int:
        """How many other things go along with the parts."""
        return len(self._along)

    def agree(self, what: dict[str, int]) -> None:
        """Return what the sums mean, in numbers that must be the same on every process."""
        self._what = what
        if self._own_loop:
            self._processes.agree(what)

    def start(self, *parts: Tensor) -> None:
        """Send the sums of this process, and what goes `along` with them."""
        all_parts = (*parts, *self._along)
        self._widths = [part.shape[-1] for part in all_parts]
        sums = torch.cat(all_parts, dim=-1)
        if self._own_loop:
            self._finished = self._processes.summing(sums)
        else:
            self._finished = summing_alike(self._processes, sums, self._what)

    def totals(self) -> tuple[Tensor, ...]:
        """Wait for the sums over all processes: of the parts, and then of what went along."""
        pieces: tuple[Tensor, ...] = self._finished().split(self._widths, dim=-1)
        return pieces


class RowWeights:
    """Weights of this process's rows, and the power of two that they are in units of.

    Every process has a unit of its own, or none: a common one would take an all-reduce more.

    Attributes
    ----------
    rows : Tensor of shape (..., n) or None
        In the type of the values `u` beside them, the largest between 1 and 2; None where every row counts once.
    """

    def __init__(self, weights: Tensor | None, u: Tensor) -> None:
        self.rows: Tensor | None = None
        self._unit: Tensor | None = None
        if weights is not None and u.shape[-1] > 0:
            given = weights.detach()
            self.rows = in_units_of_the_largest(given, u.dtype).expand(u.shape)
            self._unit = torch.exp2(power_of_the_largest(given.double())).expand(*u.shape[:-1], 1)

    def or_ones(self, u: Tensor) -> Tensor:
        """Weights of all rows, ones where none were given."""
        return torch.ones_like(u) if self.rows is None else self.rows

    def sum(self, u: Tensor) -> Tensor:
        """Weight of all rows of `u`, (..., 1) in float64."""
        if self.rows is None:
            return torch.full((*u.shape[:-1], 1), float(u.shape[-1]), dtype=torch.float64, device=u.device)
        return self.out_of_unit(self.rows.sum(-1, keepdim=True))

    def out_of_unit(self, sums: Tensor, power: int = 1) -> Tensor:
        """Take sums (..., k) of weights, or of a power of them, out of this process's unit, in float64."""
        found = sums.double()
        if self._unit is not None:
            for _ in range(power):
                found = found * self._unit
        return found

    def in_unit(self, sums: Tensor) -> Tensor:
        """Put sums over all processes into this process's unit."""
        return sums if self._unit is None else sums / self._unit


def check_plain(values: Tensor) -> None:
    """Refuse what has no sum over processes: values within a function transform or a compiler."""
    if torch.compiler.is_compiling() or in_transform(values):
        fail("process_group", "None inside torch.compile and torch.func (leading dimensions are models)", "a group")


def in_full(values: Tensor) -> Tensor:
    """Half precision as float32, which sums are taken in under autocast too."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def no_rows() -> NoReturn:
    """Refuse a statistic of no rows, which every process sees."""
    fail("process_group", "at least one row of positive weight on some process", "none")


class _Known(torch.autograd.Function):
    """A value (...) whose gradient in the rows, (..., n) or one for all of them (..., 1), is known."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        ctx.shape = u.shape
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():
            # The sums of all processes depend on F of every row, and only the first derivative is a sum over processes.
            fail("process_group", "None for a second derivative (create_graph=True)", "a group")
        (gradient,) = ctx.saved_tensors
        return (gradient * grad.unsqueeze(-1)).expand(ctx.shape), None, None


def with_gradient(u: Tensor, value: Tensor, gradient: Tensor) -> Tensor:
    """Return a value with its gradient in `u`."""
    known: Tensor = apply(_Known, u, value, gradient)
    return known
