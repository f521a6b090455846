"""The published code's likelihood: a floor under S, and censored rows of the last bin counted as events."""

import torch
from torch import Tensor

from xcal.distributions.base import SurvivalDistribution
from xcal.objectives._rows import check_rows
from xcal.objectives.joint import RowTerms, gives_cdf, has_formula, negative_likelihood

# The published code took log(1 - F + 1e-4) for a censored row.
FLOOR = 1e-4


def counted_as_event(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
    """Return the event indicator that the published code used.

    In the step reading a censored row of the last bin, where S is 0, counts as an event, here and in D-calibration.
    """
    return event | dist.exhausted(time) if dist.read_in_steps else event


def log_likelihood(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
    """Log-likelihood as published, one value per row; arguments are not checked."""
    counted = counted_as_event(dist, time, event)
    return torch.where(counted, dist.log_prob(time), torch.log(dist.survival(time) + FLOOR))


def _published_nll_and_cdf(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
    """`published_nll` and F of every row, from the distribution's own way to compute both together."""
    counted = counted_as_event(dist, time, event)
    together, cdf = dist.log_likelihood_and_cdf(time, counted, floor=FLOOR)
    return -together, cdf


def _published_nll_terms(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> RowTerms | None:
    counted = counted_as_event(dist, time, event)
    return negative_likelihood(dist.likelihood_by_formula(time, counted, floor=FLOOR))


@has_formula(_published_nll_terms)
@gives_cdf(_published_nll_and_cdf)
def published_nll(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> Tensor:
    """Negative log-likelihood as published, one value per row: ``nll(..., as_published=True)`` as an objective.

    Parameters
    ----------
    dist
        Distribution of shape ``(..., n)``.
    time
        Shape ``(n,)`` or ``(..., n)``.
    event
        Boolean, True where the event happened, same shape as `time`.

    Returns
    -------
    Tensor
        Shape ``(..., n)``.

    Examples
    --------
    >>> from xcal.distributions import Weibull
    >>> dist = Weibull(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]))
    >>> published_nll(dist, torch.tensor([2.0, 30.0]), torch.tensor([True, False]))
    tensor([2.0000, 9.2103])
    """
    check_rows(dist, time, event)
    return -log_likelihood(dist, time, event)
