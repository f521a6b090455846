"""How long the rows were followed: reverse Kaplan-Meier."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier
from xcal.metrics.inputs import as_outcome, as_row_weights


@dataclass(frozen=True, eq=False)
class FollowUp:
    """Distribution of the follow-up.

    Attributes
    ----------
    median, lower_quartile, upper_quartile : float
        Times by which a half, a quarter and three quarters of the rows would have been censored, had they had no event;
        NaN where the curve does not come down that far.
    longest : float
        Largest time of a row.
    curve : KaplanMeier
        Share of the rows still under observation, events set aside.
    """

    median: float
    lower_quartile: float
    upper_quartile: float
    longest: float
    curve: KaplanMeier = field(repr=False)


def follow_up(*, time: Any, event: Any, weights: Any = None) -> FollowUp:
    """Follow-up by reverse Kaplan-Meier: the censoring is the event, and an event ends the observation of it.

    The plain median of the times is too short where events end the follow-up of many rows.

    Parameters
    ----------
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row.

    Returns
    -------
    FollowUp

    References
    ----------
    Schemper, Smith (1996), Controlled Clinical Trials 17(4):343-346.

    Examples
    --------
    >>> follow_up(time=[1, 2, 3, 4, 5], event=[1, 0, 0, 0, 0]).median
    3.0
    """
    times_seen, happened = as_outcome(time, event, weights=weights)
    curve = fit_kaplan_meier(times_seen, happened, "censoring", as_row_weights(weights, times_seen.size))
    return FollowUp(
        median=_first_at_or_below(curve, 0.5),
        lower_quartile=_first_at_or_below(curve, 0.75),
        upper_quartile=_first_at_or_below(curve, 0.25),
        longest=float(times_seen.max()),
        curve=curve,
    )


def _first_at_or_below(curve: KaplanMeier, share: float) -> float:
    """Return the first time at which the curve is at or below a share; a hair of rounding does not decide."""
    reached = np.flatnonzero(curve.survival <= share * (1 + 1e-12))
    return float(curve.times[reached[0]]) if reached.size else float("nan")
