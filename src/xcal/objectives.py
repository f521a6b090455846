"""Training objectives, one value per row; the caller reduces."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from xcal._checks import MANY, as_count, as_event, as_flag, as_numpy, as_time, as_weights, fail
from xcal._checks import check_rows as check_index
from xcal._imports import published
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.distributions._bins import LikelihoodByFormula
from xcal.distributions.base import SurvivalDistribution, can_broadcast

__all__ = ["CensoredCRPS", "gives_cdf", "nll", "survival_crps"]


def check_rows(dist: SurvivalDistribution, time: Tensor, event: Tensor, **others: Tensor | None) -> None:
    """Check that times and events, and `others` that there are, are tensors with one entry for each row.

    Values are not looked at, so that the objectives compile.
    """
    if not isinstance(dist, SurvivalDistribution):
        fail("dist", "a SurvivalDistribution", type(dist).__name__)
    times = {"time": time, **{name: values for name, values in others.items() if values is not None}}
    for name, values in times.items():
        if not isinstance(values, Tensor) or not values.is_floating_point():
            fail(name, "a floating-point tensor", values.dtype if isinstance(values, Tensor) else type(values).__name__)
    kinds = (torch.bool, torch.int64) if dist.n_causes > 1 else (torch.bool,)
    if not isinstance(event, Tensor) or event.dtype not in kinds:
        got = event.dtype if isinstance(event, Tensor) else type(event).__name__
        by_cause = f", or causes of type int64, from 0 (censored) to {dist.n_causes}" if len(kinds) > 1 else ""
        fail("event", f"a boolean tensor, True meaning that the event happened{by_cause}", got)
    if time.device != event.device:
        fail("event", f"the device of time, {time.device}", event.device)
    wanted = tuple(dist.batch_shape)
    for name, values in {**times, "event": event}.items():
        shape = tuple(values.shape)
        # A column of times against a row of distributions would make an n x n table without a word.
        fits = can_broadcast(dist.batch_shape, values.shape) and len(shape) <= len(wanted)
        if not fits or shape[-1:] != wanted[-1:]:
            hint = ": squeeze(-1)?" if shape[-1:] == (1,) and shape[:-1] == wanted else ""
            expected = f"{wanted[-1:]}" + (f" or {wanted}" if len(wanted) > 1 else "")
            fail(name, f"shape {expected}, one value for each row of the distribution{hint}", shape)


# --- Objectives that give F together with their value.
# A training step needs two things of every row: the objective, and F for the penalty. Where both come from the same
# intermediate results, one function that returns both saves work. An objective declares such a function itself, with
# `gives_cdf`; training asks `with_cdf` and knows no objective by name.

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
    """Objective and F of every row, (..., n), and the way back from them."""

    objective: Tensor
    cdf: Tensor
    # Turns the gradient in the objective, and that in F or None, into pairs of a tensor with a graph and the gradient
    # in it.
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
    return _declaring(_FORMULA, terms)


def _declaring(attribute: str, together: Callable[..., Any]) -> Callable[[_Declaring], _Declaring]:
    """Return a decorator that declares a function for the object that it decorates, and for no other."""

    def declare(objective: _Declaring) -> _Declaring:
        try:
            setattr(objective, attribute, _Declaration(objective, together))
        except AttributeError:
            # Methods of an object, frozen dataclasses, classes with slots.
            fail("objective", "a function, or an object that takes attributes", type(objective).__name__)
        return objective

    return declare


def check_takes(objective: Objective, names: Sequence[str]) -> None:
    """Check that an objective takes by name what else is known of the rows, such as their entry."""
    try:
        known = inspect.signature(objective).parameters.values()
    except (TypeError, ValueError):  # of what is not written in Python nobody knows
        return
    lacking = [name for name in names if name not in {one.name for one in known}]
    if lacking and not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known):
        expected = f"one that takes {' and '.join(lacking)} by name, as nll does, for rows that are seen in part"
        fail("objective", expected, getattr(objective, "__name__", type(objective).__name__))


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
    return _declaring(DECLARATION, together)


def with_cdf(objective: Objective) -> ObjectiveAndCdf:
    """Return a function for an objective's values and F: the declared one, or the two asked one after the other."""
    declared = _declared(objective, DECLARATION)
    if declared is not None:
        return declared

    def one_after_the_other(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
        return objective(dist, time, event), dist.cdf(time)

    return one_after_the_other


def _nll_and_cdf(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
    """`nll` and F of every row, from the distribution's own way to compute both together."""
    log_likelihood, cdf = dist.log_likelihood_and_cdf(time, event)
    return -log_likelihood, cdf


@has_formula(lambda dist, time, event: negative_likelihood(dist.likelihood_by_formula(time, event)))
@gives_cdf(_nll_and_cdf)
def nll(
    dist: SurvivalDistribution,
    time: Tensor,
    event: Tensor,
    *,
    entry: Tensor | None = None,
    lower: Tensor | None = None,
    density: bool = False,
    as_published: bool = False,
) -> Tensor:
    """Negative log-likelihood, one value per row.

    An event contributes its log-density, under a discrete distribution the log-mass of its bin. A censored row
    contributes the log-probability of outliving its time; where a discrete distribution leaves no mass after that
    time, the log-mass of its last bin (`DiscreteDistribution.log_censored`).

    Values are not checked, so that the objective compiles: a NaN time gives NaN, an event at time zero gives +inf
    where the density there is 0 (log-normal; Weibull and log-logistic with a concentration above 1).

    Parameters
    ----------
    dist
        Distribution of shape ``(..., n)``.
    time
        Shape ``(n,)`` or ``(..., n)``.
    event
        Boolean, True where the event happened, same shape as `time`. Of a distribution with causes the cause, int64: 1,
        2, ... or 0 for a censored row.
    entry
        Times from which rows were under observation, 0 from the start: ``log S(entry)`` is taken off. A bin that holds
        both `entry` and `time` counts with what it has after `entry`. Read in steps that is nothing, and such a row
        tells nothing: 0.
    lower
        Of events that are known to lie in (lower, time], the earlier end: ``-log(F(time) - F(lower))``. Where the two
        are equal the time is known, and of a censored row `lower` is not looked at.
    density
        Divide the mass of a discrete distribution's bin by its width, which makes its likelihood comparable with that
        of a continuous distribution. No effect on a continuous one.
    as_published
        The published code's likelihood: ``log(S + 1e-4)`` for censored rows, bin masses, and in the step reading a
        censored row of the last bin counted as an event. To reproduce the paper's tables only; for training give
        `xcal_paper.published.published_nll`, which computes F in the same pass.

    Returns
    -------
    Tensor
        Shape ``(..., n)``.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> dist = Weibull(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]))
    >>> nll(dist, torch.tensor([2.0, 3.0]), torch.tensor([True, False]))
    tensor([2., 3.])
    """
    check_rows(dist, time, event, entry=entry, lower=lower)
    density = as_flag("density", density)
    if as_flag("as_published", as_published):
        if density:
            fail("density", "False with as_published: the published likelihood is by bin mass", True)
        if entry is not None or lower is not None:
            fail("entry, lower", "None with as_published, which does not know them", "times")
        log_likelihood: Tensor = published("log-likelihood")(dist, time, event)
        return -log_likelihood
    if lower is not None and event.dtype != torch.bool:
        fail("lower", "None beside causes", "times")
    value = dist.log_event(time, event, density=density)
    if lower is not None:
        between = lower < time
        # Another start where there is none: the logarithm of an empty interval has no gradient.
        start = torch.where(between, lower, torch.zeros_like(lower))
        value = torch.where(between, dist.log_between(start, time), value)
    censored = dist.log_censored(time)
    if entry is None:
        return -torch.where(event > 0, value, censored)
    share, reached = dist.share_after_entry(time, entry), dist.log_censored(entry)
    some = share > 0
    if not density:
        log_share = torch.log(torch.where(some, share, 1.0))
        value = value + (log_share if lower is None else torch.where(lower < time, 0.0, log_share))
    value = torch.where(some, value - reached, 0.0)
    return -torch.where(event > 0, value, torch.clamp(censored - reached, max=0.0))


def survival_crps(dist: SurvivalDistribution, time: Tensor, event: Tensor, *, as_published: bool = False) -> Tensor:
    """Survival CRPS (Avati et al. 2018; x-cal, appendix on survival CRPS), one value per row.

    ``int_0^y F(z)^2 dz + event * int_y^inf (1 - F(z))^2 dz``, in the unit of the times: a censored row counts only
    the probability put before its time. Exact for the discrete distributions; for the continuous ones by a fixed
    quadrature with a relative error below 1e-7. The value for an event is infinite under a log-logistic distribution
    with a concentration of 1/2 or less.

    It is not proper where rows are censored: such a row never pays for probability put after its time, so that the best
    score is that of curves that fall too fast (`python -m studies.scores`). `CensoredCRPS` is proper.

    Parameters
    ----------
    dist
        Distribution of shape ``(..., n)``.
    time
        Shape ``(n,)`` or ``(..., n)``; finite. Values are not checked; a NaN time gives NaN.
    event
        Boolean, True where the event happened, same shape as `time`. Of a distribution with causes the cause, int64;
        the integrals are then those of ``sum_k (1{event of cause k by z} - F_k(z))^2``, up to the last time edge or the
        `end` of the family.
    as_published
        The published code's 32-point trapezoid with its wrong right tail, for the log-normal only. To reproduce the
        paper's tables only.

    Returns
    -------
    Tensor
        Shape ``(..., n)``.

    Examples
    --------
    >>> import torch
    >>> from xcal.distributions import LogNormal
    >>> dist = LogNormal(torch.tensor([1.0]), torch.tensor([0.5]).log())
    >>> time, event = torch.tensor([2.0]), torch.tensor([True])
    >>> survival_crps(dist, time, event)
    tensor([0.4904])
    """
    check_rows(dist, time, event)
    if as_flag("as_published", as_published):
        crps: Tensor = published("survival-crps")(dist, time, event)
        return crps
    return dist.survival_crps(time, event)


# Thresholds at which F is judged.
NODES = 50


@dataclass(frozen=True, eq=False)
class CensoredCRPS:
    r"""A CRPS that is proper under censoring: an objective that is made from the rows to train on, by `of`.

    .. math:: \int_0^\tau w(z) \, (1\{y \le z\} - F(z))^2 \, dz

    with w(z) = 1 while the row is observed, at z < y, and after an event :math:`G(z-) / G(y-)`, the probability that a
    row observed until y would have been observed until z; after a censoring 0. So an event pays for what it is seen to
    do after its time as often as a row that is still event-free then is there to pay, and the mean of the score is
    smallest at the true F. G is the Kaplan-Meier curve of the censoring. Where censoring depends on the covariates it
    is another for each row and the score no longer proper; `nll` needs no G.

    The integral is a sum over thresholds z, each of which has a proper score of its own. For events of causes it is the
    sum over causes of (1{an event of cause k by z} - F_k(z)) squared.

    Attributes
    ----------
    nodes, widths : Tensor of shape (k,)
        Thresholds, and the stretch of time for which each stands.
    observed : Tensor of shape (k,)
        Probability of being observed until each threshold.
    censorings, uncensored : Tensor of shape (m,) and (m + 1,)
        Times of censorings, and G before the first, between them, and after the last.

    References
    ----------
    Jonkers, Van Wallendael, Duchateau, Van Hoecke (2026), Proper Scoring Rules for Right-Censored Survival Data,
    arXiv 2606.06393: the marginalised CRPS. Written from its abstract; thresholds and ties are ours.

    Examples
    --------
    >>> from xcal.distributions import LogNormal
    >>> time, event = torch.tensor([0.5, 1.0, 2.0, 3.0]), torch.tensor([True, False, True, True])
    >>> objective = CensoredCRPS.of(time, event)
    >>> objective(LogNormal(torch.zeros(4), torch.zeros(4)), time, event).shape
    torch.Size([4])
    """

    nodes: Tensor
    widths: Tensor
    observed: Tensor
    censorings: Tensor
    uncensored: Tensor

    @classmethod
    def of(cls, time: Any, event: Any, *, weights: Any = None, n_nodes: int = NODES) -> Self:
        """Make the objective from outcomes, those of the rows to train on.

        Parameters
        ----------
        time, event : array-like of shape (n,)
            Outcomes, in the unit of the distributions.
        weights : array-like of shape (n,), optional
            Sampling weights.
        n_nodes : int
            Thresholds, at quantiles of the observed times.
        """
        check_index({"time": time, "event": event, "weights": weights})
        seen, codes = as_time(time).astype(np.float64), as_numpy("event", event)
        # An event of any cause: causes are numbers from 1 on.
        happened = as_event(np.minimum(codes, 1) if codes.dtype.kind in "iu" else codes, seen.size, reference="time")
        levels = (np.arange(as_count("n_nodes", n_nodes, at_least=1, at_most=MANY)) + 0.5) / n_nodes
        nodes = np.unique(np.quantile(seen, levels, method="inverted_cdf"))
        borders = np.concatenate([[0.0], (nodes[1:] + nodes[:-1]) / 2, [seen.max()]])
        w = None if weights is None else as_weights("weights", weights, seen.size, reference="time")
        curve = fit_kaplan_meier(seen, happened, "censoring", weights=w)
        steps = curve.counts > 0
        uncensored = np.append(1.0, curve.survival[steps])
        found = (nodes, np.diff(borders), curve.before(nodes), curve.times[steps], uncensored)
        return cls(*(torch.from_numpy(np.ascontiguousarray(values)) for values in found))

    def to(self, device: torch.device | str) -> "CensoredCRPS":
        """Return the objective with its tensors on a device."""
        return CensoredCRPS(*(values.to(device) for values in vars(self).values()))

    def __call__(self, dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
        """Return the score of each row, (..., n); the arguments are those of `survival_crps`."""
        check_rows(dist, time, event)
        shape = torch.broadcast_shapes(dist.batch_shape, time.shape)

        def along(values: Tensor) -> Tensor:
            return values.to(time.dtype).view(-1, *(1 for _ in shape))

        z, happened = along(self.nodes), event > 0
        if event.dtype == torch.bool:
            own, cdf = happened.unsqueeze(-1), dist.cdf(z.expand(-1, *shape)).unsqueeze(-1)
        else:
            own = event.unsqueeze(-1) == torch.arange(1, dist.n_causes + 1, device=event.device)
            cdf = dist.cumulative_incidence(z.expand(-1, *shape))
        # A row that is censored at z is known to be event-free there.
        by_then = happened & (time <= z)
        still = ~by_then & (time >= z)
        left = self.uncensored.to(time.dtype)[torch.bucketize(time, self.censorings.to(time.dtype))]
        weight = torch.where(by_then, along(self.observed) / torch.where(left > 0, left, 1.0), still.to(time.dtype))
        error = ((by_then.unsqueeze(-1) & own).to(time.dtype) - cdf).square().sum(-1)
        return torch.where(time.isnan(), time, (along(self.widths) * weight * error).sum(0))
