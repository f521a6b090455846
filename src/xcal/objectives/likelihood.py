"""The censored negative log-likelihood."""

import torch
from torch import Tensor

from xcal._checks import as_flag, fail
from xcal._extensions import published
from xcal.distributions.base import SurvivalDistribution
from xcal.objectives._rows import check_rows
from xcal.objectives.joint import RowTerms, gives_cdf, has_formula, negative_likelihood


def _nll_and_cdf(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> tuple[Tensor, Tensor]:
    """`nll` and F of every row, from the distribution's own way to compute both together."""
    log_likelihood, cdf = dist.log_likelihood_and_cdf(time, event)
    return -log_likelihood, cdf


def _nll_terms(dist: SurvivalDistribution, time: Tensor, event: Tensor) -> RowTerms | None:
    return negative_likelihood(dist.likelihood_by_formula(time, event))


@has_formula(_nll_terms)
@gives_cdf(_nll_and_cdf)
def nll(
    dist: SurvivalDistribution,
    time: Tensor,
    event: Tensor,
    *,
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
        Boolean, True where the event happened, same shape as `time`.
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
    check_rows(dist, time, event)
    density = as_flag("density", density)
    if as_flag("as_published", as_published):
        if density:
            fail("density", "False with as_published: the published likelihood is by bin mass", True)
        log_likelihood: Tensor = published("log-likelihood")(dist, time, event)
        return -log_likelihood
    observed = dist.log_density(time) if density else dist.log_prob(time)
    return -torch.where(event, observed, dist.log_censored(time))
