"""Observed over expected events by one time: calibration in the large."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from scipy.special import ndtri

from xcal._checks import as_number, fail
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration.clusters import Clusters, sum_of_squares
from xcal.metrics.inputs import (
    Vector,
    as_choice,
    as_outcome,
    as_row_probability,
    as_row_weights,
    as_time_point,
    mean_of,
)
from xcal.metrics.pseudo_values import jackknife

Interval = Literal["robust", "greenwood", "poisson"]


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
    interval: Interval = "robust",
    outside: Literal["nan", "raise", "clip"] = "nan",
    weights: Any = None,
) -> ObservedExpected:
    r"""Return O/E at one time, the observed probability by Kaplan-Meier.

    .. math:: \frac{O}{E} = \frac{1 - S_{KM}(t)}{\frac1n \sum_i p_i}, \qquad
              \frac{O}{E} \exp\Big(\pm z \, \frac{s}{O}\Big)

    with s the error of O. It assumes that censoring does not depend on the covariates; `xcal.audit` tests that, and
    corrects for it.

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
    interval : {"robust", "greenwood", "poisson"}
        Where s comes from. "robust": the spread of pseudo-values less O/E times the predictions, which knows that rows
        with a high risk were expected to have the event. "greenwood": Kaplan-Meier's variance, the expected value taken
        as known. "poisson": s / O is one over the root of the number of events by t, as in the published guideline; it
        is 1.1 to 2.4 times too wide, the more so the more of the rows have their event.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or take the last value of the Kaplan-Meier curve.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of both means. "robust" and "greenwood" are then design-based;
        "poisson" counts events and is refused.

    Returns
    -------
    ObservedExpected
        NaN where every prediction is zero.

    References
    ----------
    McLernon, Giardiello, Van Calster and others (2023), Annals of Internal Medicine 176(1):105-114, for the ratio and
    the interval "poisson"; van Geloven and others (2022), BMJ 377:e069249, for "greenwood".

    Examples
    --------
    >>> result = observed_expected([0.2, 0.2, 0.3, 0.3], at=2, time=[1, 2, 3, 4], event=[1, 0, 1, 1])
    >>> result.value
    1.0
    """
    times_seen, happened = as_outcome(time, event, probability=probability, weights=weights)
    p = as_row_probability("probability", probability, times_seen.size)
    moment, level = as_time_point("at", at), as_number("level", level, above=0, below=1)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    as_choice("interval", interval, get_args(Interval))
    last = float(times_seen.max())
    if moment > last and outside == "raise":
        fail("at", f"a time within the follow-up, at most {last}", moment)
    w = as_row_weights(weights, times_seen.size)
    if w is not None and interval == "poisson":
        fail("interval", "'robust' or 'greenwood' with weights, as 'poisson' counts events", repr(interval))
    curve = fit_kaplan_meier(times_seen, happened, weights=w)
    observed = 1 - float(curve.at(moment))
    if moment > last and outside == "nan":
        observed = float("nan")
    events, expected = int(np.count_nonzero(happened & (times_seen <= moment))), mean_of(p, w)
    if interval == "poisson":
        error = observed / max(events, 1) ** 0.5
    elif interval == "greenwood":
        error = float(curve.variance(moment)) ** 0.5
    else:
        error = error_of_mean(jackknife(times_seen, happened, moment, weights=w), observed, p, weights=w)
    return ratio(observed, expected, error, moment, events, level)


def error_of_mean(
    values: Vector, observed: float, p: Vector, clusters: Clusters | None = None, weights: Vector | None = None
) -> float:
    """Return the standard error of O as a part of O/E: of the mean of pseudo-values less O/E times the predictions."""
    expected = mean_of(p, weights)
    left = values - observed / expected * p if expected > 0 else values - observed
    left = left - mean_of(left, weights)
    if weights is None:
        return float(sum_of_squares(left, clusters) ** 0.5) / values.size
    return float(sum_of_squares(weights * left, clusters) ** 0.5 / weights.sum())


def ratio(observed: float, expected: float, error: float, at: float, events: int, level: float) -> ObservedExpected:
    """Return O/E with its interval from the error of what was observed; none without an event."""
    value = observed / expected if expected > 0 else float("nan")
    factor = float(np.exp(ndtri((1 + level) / 2) * error / observed)) if events and observed > 0 else float("nan")
    return ObservedExpected(value, value / factor, value * factor, observed, expected, at, events)
