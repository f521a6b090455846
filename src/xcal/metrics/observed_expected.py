"""Observed over expected events by one time: calibration in the large."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from xcal._checks import as_number, fail
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.metrics.inputs import as_choice, as_outcome, as_row_probability, as_time_point


@dataclass(frozen=True)
class ObservedExpected:
    """Ratio of the observed to the mean predicted probability of an event by one time.

    Attributes
    ----------
    value : float
        Observed / expected: 1 for a model that is right on average, above 1 where it predicts too little.
    lower, upper : float
        Ends of the interval; NaN without an event by `at`.
    observed : float
        One minus Kaplan-Meier at `at`.
    expected : float
        Mean predicted probability.
    at : float
        The time.
    n_events : int
        Events by `at`.
    """

    value: float
    lower: float
    upper: float
    observed: float
    expected: float
    at: float
    n_events: int


def observed_expected(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    level: float = 0.95,
    outside: Literal["nan", "raise", "clip"] = "nan",
) -> ObservedExpected:
    r"""O/E at one time, the observed probability by Kaplan-Meier.

    .. math:: \frac{O}{E} = \frac{1 - S_{KM}(t)}{\frac1n \sum_i p_i}, \qquad
              \frac{O}{E} \exp\Big(\pm \frac{z}{\sqrt{d}}\Big)

    with d the events by t: the log of a Poisson count has variance 1 / d. The interval is the usual one; it takes the
    expected value as known.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    level : float
        Coverage of the interval.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or take the last value of the Kaplan-Meier curve.

    Returns
    -------
    ObservedExpected
        NaN where every prediction is zero.

    References
    ----------
    McLernon, Giardiello, Van Calster and others (2023), Annals of Internal Medicine 176(1):105-114.

    Examples
    --------
    >>> result = observed_expected([0.2, 0.2, 0.3, 0.3], at=2, time=[1, 2, 3, 4], event=[1, 0, 1, 1])
    >>> result.value
    1.0
    """
    times_seen, happened = as_outcome(time, event)
    p = as_row_probability("probability", probability, times_seen.size)
    moment, level = as_time_point("at", at), as_number("level", level, above=0, below=1)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    last = float(times_seen.max())
    if moment > last and outside == "raise":
        fail("at", f"a time within the follow-up, at most {last}", moment)
    observed = 1 - float(fit_kaplan_meier(times_seen, happened).at(moment))
    if moment > last and outside == "nan":
        observed = float("nan")
    expected, events = float(p.mean()), int(np.count_nonzero(happened & (times_seen <= moment)))
    return ratio(observed, expected, moment, events, level)


def ratio(observed: float, expected: float, at: float, events: int, level: float) -> ObservedExpected:
    """O/E of what was observed and expected, with its interval."""
    value = observed / expected if expected > 0 else float("nan")
    factor = float(np.exp(ndtri((1 + level) / 2) / np.sqrt(events))) if events else float("nan")
    return ObservedExpected(value, value / factor, value * factor, observed, expected, at, events)
