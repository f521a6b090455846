"""The survival CRPS."""

from torch import Tensor

from xcal._checks import as_flag
from xcal._extensions import published
from xcal.distributions.base import SurvivalDistribution
from xcal.objectives._rows import check_rows


def survival_crps(dist: SurvivalDistribution, time: Tensor, event: Tensor, *, as_published: bool = False) -> Tensor:
    """Survival CRPS (Avati et al. 2018; x-cal, appendix on survival CRPS), one value per row.

    ``int_0^y F(z)^2 dz + event * int_y^inf (1 - F(z))^2 dz``, in the unit of the times: a censored row counts only
    the probability put before its time. Exact for the discrete distributions; for the continuous ones by a fixed
    quadrature with a relative error below 1e-7. The value for an event is infinite under a log-logistic distribution
    with a concentration of 1/2 or less.

    Parameters
    ----------
    dist
        Distribution of shape ``(..., n)``.
    time
        Shape ``(n,)`` or ``(..., n)``; finite. Values are not checked; a NaN time gives NaN.
    event
        Boolean, True where the event happened, same shape as `time`.
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
