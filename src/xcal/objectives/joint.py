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
from xcal.distributions._weighted import LikelihoodByFormula
from xcal.distributions.base import SurvivalDistribution

Objective = Callable[[SurvivalDistribution, Tensor, Tensor], Tensor]
ObjectiveAndCdf = Callable[[SurvivalDistribution, Tensor, Tensor], tuple[Tensor, Tensor]]

_Declaring = TypeVar("_Declaring", bound=Callable[..., Tensor])
DECLARATION = "__xcal_gives_cdf__"  # the attribute that holds it


@dataclass(frozen=True, eq=False)
class _Declaration:
    """Which objective gives F, and the function by which it does."""

    objective: Any
    together: Callable[..., Any]


@dataclass(frozen=True, eq=False)
class RowTerms:
    """Objective and F of every row, (..., n), and the way back from them.

    Attributes
    ----------
    objective, cdf : Tensor
    back : callable
        Turns the gradient in the objective, and that in F or None, into pairs: a tensor with a graph, and the gradient
        in it.
    """

    objective: Tensor
    cdf: Tensor
    back: Callable[[Tensor, Tensor | None], list[tuple[Tensor, Tensor]]]


Terms = Callable[[SurvivalDistribution, Tensor, Tensor], RowTerms]
_FORMULA = "__xcal_by_formula__"  # the attribute that holds a function of distributions whose gradient is known


def negative_likelihood(found: LikelihoodByFormula | None) -> RowTerms | None:
    """Terms of minus the log-likelihood; None where its gradient is not known by formula."""
    if found is None:
        return None

    def back(slope: Tensor, cdf_slope: Tensor | None) -> list[tuple[Tensor, Tensor]]:
        return [(found.rows.logits, found.gradient(-slope, cdf_slope))]

    return RowTerms(-found.log_likelihood, found.cdf, back)


def has_formula(terms: Callable[[Any, Tensor, Tensor], RowTerms | None]) -> Callable[[_Declaring], _Declaring]:
    """Declare the terms of an objective whose gradient is known for some distributions; None for the others."""

    def declare(objective: _Declaring) -> _Declaring:
        setattr(objective, _FORMULA, _Declaration(objective, terms))
        return objective

    return declare


def with_slopes(objective: Objective) -> Terms:
    """Return a function for an objective's terms: by formula where that is known, else by autograd from both."""
    together, formula = with_cdf(objective), _declared(objective, _FORMULA)

    def terms(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> RowTerms:
        found: RowTerms | None = None if formula is None else formula(dist, time, event)
        if found is not None:
            return found
        rows, cdf = together(dist, time, event)

        def back(slope: Tensor, cdf_slope: Tensor | None) -> list[tuple[Tensor, Tensor]]:
            return [(rows, slope)] if cdf_slope is None else [(rows, slope), (cdf, cdf_slope)]

        return RowTerms(rows, cdf, back)

    return terms


def _declared(objective: Objective, attribute: str) -> Callable[..., Any] | None:
    """Return what was declared for this object and no other."""
    declared = getattr(objective, attribute, None)
    # functools.wraps copies a function's attributes to its wrapper, which may compute something else.
    return declared.together if isinstance(declared, _Declaration) and declared.objective is objective else None


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
    declared = _declared(objective, DECLARATION)
    if declared is not None:
        return declared

    def one_after_the_other(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        return objective(dist, time, event), dist.cdf(time)

    return one_after_the_other
