"""Cox calibration slope and intercept: the weak calibration of clinical prediction models.

Not the quantile slope of the X-CAL paper, which stands in `quantile_slope`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from xcal._checks import BoolArray, FloatArray, as_number, fail
from xcal.metrics.cox import CoxFit, fit_cox, log_hazard, offset_hazard
from xcal.metrics.inputs import Vector, as_choice, as_outcome, as_row_probability, as_time_point

# A slope per standard deviation of x that is not known to within a thousand has run away: the events come in the exact
# order of the predictions, and the likelihood only levels off.
_LEAST_INFORMATION = 1e-6


@dataclass(frozen=True)
class CoxCalibration:
    """Slope and intercept of a Cox regression on the model's own log cumulative hazard.

    Attributes
    ----------
    slope, slope_lower, slope_upper : float
        Coefficient and its Wald interval: 1 for a calibrated model, below 1 where risks are too extreme (too high
        above the mean, too low below), above 1 where they are not spread enough. NaN where the rows do not
        determine it: no event, equal predictions, or a perfect separation.
    intercept, intercept_lower, intercept_upper : float
        Log of the factor on the cumulative hazards at `at`, the slope held at 1, and its Wald interval: 0 for a
        calibrated model, above 0 where it predicts too little. NaN without an event.
    at : float
        The time.
    n_events : int
        Events by `at`: those that took part.
    """

    slope: float
    slope_lower: float
    slope_upper: float
    intercept: float
    intercept_lower: float
    intercept_upper: float
    at: float
    n_events: int


def cox_calibration(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    level: float = 0.95,
    outside: Literal["nan", "raise", "clip"] = "nan",
) -> CoxCalibration:
    r"""Calibration slope and intercept on the scale :math:`x_i = \log(-\log(1 - p_i))`.

    Both use the rows as followed until t: events by t count, and others are censored at their observed time or at t.

    The slope is the coefficient b of a Cox regression, hazard :math:`\lambda_0(t) \exp(b x_i)`, with Efron's method
    for ties. For a model with proportional hazards x is its linear predictor plus a constant, and the slope is that on
    the linear predictor, whatever the time. For other models it belongs to the time.

    The intercept holds b at 1, with x as an offset: the log of the cumulative baseline hazard at t (Efron's
    estimator), which is zero if everybody's cumulative hazard at t is :math:`\exp(x_i)`, as the model says. Its
    exponential is the factor by which the model's cumulative hazards would have to be multiplied.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`. Probabilities below 1e-10, or as close to 1, are
        held there: they are infinite on the scale of x.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    level : float
        Coverage of the intervals.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or take the hazard reached by then.

    Returns
    -------
    CoxCalibration

    References
    ----------
    van Houwelingen (2000), Statistics in Medicine 19(24):3401-3415. Crowson, Atkinson, Therneau (2016), Statistical
    Methods in Medical Research 25(4):1692-1706.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=4000)
    >>> time, event = rng.exponential(np.exp(-x)), np.ones(4000)
    >>> too_extreme = 1 - np.exp(-np.exp(2 * x))
    >>> round(cox_calibration(too_extreme, at=1.0, time=time, event=event).slope, 1)
    0.5
    """
    times_seen, happened = as_outcome(time, event, probability=probability)
    p = as_row_probability("probability", probability, times_seen.size)
    moment, level = as_time_point("at", at), as_number("level", level, above=0, below=1)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    last = float(times_seen.max())
    if moment > last and outside == "raise":
        fail("at", f"a time within the follow-up, at most {last}", moment)
    happened = happened & (times_seen <= moment)
    followed, events = np.minimum(times_seen, moment), int(np.count_nonzero(happened))
    unknown = (float("nan"), float("nan"))
    slope = intercept = unknown
    if events and not (moment > last and outside == "nan"):
        x = log_hazard(p)
        slope = _slope(x, followed, happened)
        intercept = _intercept(x, followed, happened, moment)
    z = float(ndtri((1 + level) / 2))
    return CoxCalibration(
        slope[0],
        slope[0] - z * slope[1],
        slope[0] + z * slope[1],
        intercept[0],
        intercept[0] - z * intercept[1],
        intercept[0] + z * intercept[1],
        moment,
        events,
    )


def _slope(x: Vector, time: FloatArray, event: BoolArray) -> tuple[float, float]:
    """Coefficient of x and its standard error; NaN where the likelihood has no maximum."""
    spread = float(x.std())
    if spread == 0:
        return float("nan"), float("nan")
    # Centred and scaled, so that Newton's method starts in a well-conditioned place.
    return slope_of(fit_cox(((x - x.mean()) / spread)[:, None], time, event, float(time.max())), spread)


def slope_of(fit: CoxFit, spread: float) -> tuple[float, float]:
    """Coefficient of x and its standard error, from a fit to x over `spread`; NaN where there is no maximum."""
    information = float(fit.information[0, 0])
    if not fit.converged or not information > _LEAST_INFORMATION:
        return float("nan"), float("nan")
    return float(fit.coefficients[0]) / spread, information**-0.5 / spread


def _intercept(x: Vector, time: FloatArray, event: BoolArray, at: float) -> tuple[float, float]:
    """Log of the cumulative baseline hazard and its standard error by the delta method."""
    hazard, variance = offset_hazard(x, time, event, at)
    return float(np.log(hazard)), variance**0.5 / hazard
