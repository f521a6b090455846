"""Objectives that give F together with their value.

A training step needs two things of every row: the objective, and F for the penalty. Where both come from the same
intermediate results, one function that returns both saves work. An objective declares such a function itself, with
`gives_cdf`; training asks `with_cdf` and knows no objective by name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from xcal._checks import fail
from xcal.distributions.base import SurvivalDistribution

Objective = Callable[[SurvivalDistribution, Tensor, Tensor], Tensor]
ObjectiveAndCdf = Callable[[SurvivalDistribution, Tensor, Tensor], tuple[Tensor, Tensor]]

_Declaring = TypeVar("_Declaring", bound=Callable[..., Tensor])
DECLARATION = "__xcal_gives_cdf__"  # the attribute that holds it


@dataclass(frozen=True, eq=False)
class _Declaration:
    """Which objective gives F, and the function by which it does."""

    objective: Any
    together: ObjectiveAndCdf


def gives_cdf(together: ObjectiveAndCdf) -> Callable[[_Declaring], _Declaring]:
    """Declare the function that returns an objective's values and F of the same rows.

    Parameters
    ----------
    together
        Takes the distribution, times and events, as the objective does without further arguments, and returns two
        tensors of shape ``(..., n)``: the objective's values and ``dist.cdf(time)``. Training calls it in place of the
        objective, so both must give the same values.

    Returns
    -------
    callable
        A decorator that returns the objective itself. The declaration holds for that object alone: a
        `functools.partial` of it, or a function that wraps it, is another objective and declares nothing.

    Examples
    --------
    >>> def brier_and_cdf(dist, time, event):
    ...     cdf = dist.cdf(time)
    ...     return (event.float() - cdf) ** 2, cdf
    >>> @gives_cdf(brier_and_cdf)
    ... def brier(dist, time, event):
    ...     return (event.float() - dist.cdf(time)) ** 2
    >>> with_cdf(brier) is brier_and_cdf
    True
    """
    if not callable(together):
        fail("together", "a function of a distribution, times and events", type(together).__name__)

    def declare(objective: _Declaring) -> _Declaring:
        try:
            setattr(objective, DECLARATION, _Declaration(objective, together))
        except AttributeError:
            # Methods of an object, frozen dataclasses, classes with slots.
            fail("objective", "a function, or an object that takes attributes", type(objective).__name__)
        return objective

    return declare


def with_cdf(objective: Objective) -> ObjectiveAndCdf:
    """Return a function for an objective's values and F: the declared one, or the two asked one after the other."""
    declared = getattr(objective, DECLARATION, None)
    # functools.wraps copies a function's attributes to its wrapper, which may compute something else.
    if isinstance(declared, _Declaration) and declared.objective is objective:
        return declared.together

    def one_after_the_other(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        return objective(dist, time, event), dist.cdf(time)

    return one_after_the_other
