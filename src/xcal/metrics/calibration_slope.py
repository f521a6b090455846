"""Calibration slope and intercept at one time, by a regression of pseudo-values: nothing is assumed about hazards.

The form by a Cox regression over the whole follow-up stands in `cox_calibration`, the quantile slope of the X-CAL paper
in `quantile_slope`.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from xcal._checks import as_number, fail
from xcal.calibration.clusters import Clusters, sum_of_squares
from xcal.metrics.cox import log_hazard
from xcal.metrics.inputs import Vector, as_choice, as_outcome, as_row_probability, as_row_weights, as_time_point
from xcal.metrics.pseudo_values import jackknife

Matrix = npt.NDArray[np.float64]
_STEPS, _HALVINGS, _CLOSE = 100, 30, 1e-8
_ROUNDING = 1e-12  # of a sum of squares, as a share of it


@dataclass(frozen=True)
class CalibrationSlope:
    """Slope and intercept of what happened by one time on what was predicted, on the complementary log-log scale.

    Attributes
    ----------
    slope, slope_lower, slope_upper : float
        1 for a calibrated model; below 1 where risks are too extreme, above 1 where they are not spread widely enough.
        NaN where the rows do not determine it: no event by `at`, equal predictions, or no solution.
    intercept, intercept_lower, intercept_upper : float
        With the slope held at 1: 0 for a calibrated model, above 0 where it predicts too little.
    at : float
        The time.
    n_events : int
        Events by `at`.
    """

    slope: float
    slope_lower: float
    slope_upper: float
    intercept: float
    intercept_lower: float
    intercept_upper: float
    at: float
    n_events: int


def calibration_slope(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    level: float = 0.95,
    outside: Literal["nan", "raise", "clip"] = "nan",
    weights: Any = None,
) -> CalibrationSlope:
    r"""Return calibration slope and intercept at one time.

    With :math:`\theta_i` the jackknife pseudo-value of the event by t and :math:`x_i = \log(-\log(1 - p_i))`, least
    squares of

    .. math:: \theta_i \approx 1 - \exp(-\exp(a + b x_i)), \qquad \theta_i \approx 1 - \exp(-\exp(a_0 + x_i)).

    b is the slope and :math:`a_0` the intercept. Errors are robust (sandwich), intervals Wald's.

    It assumes that censoring does not depend on the covariates, and nothing about hazards. `xcal.audit` tests the
    former, and corrects for it.

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
        When `at` is after the largest of `time`: give NaN, refuse, or take what was observed by then.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row; the errors are then design-based (sandwich). Equal weights change
        nothing.

    Returns
    -------
    CalibrationSlope

    References
    ----------
    van Geloven, Giardiello, Bonneville and others (2022), BMJ 377:e069249.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=4000)
    >>> time, event = rng.exponential(np.exp(-x)), np.ones(4000)
    >>> too_extreme = 1 - np.exp(-np.exp(2 * x))
    >>> round(calibration_slope(too_extreme, at=1.0, time=time, event=event).slope, 1)
    0.5
    """
    times_seen, happened = as_outcome(time, event, probability=probability, weights=weights)
    p = as_row_probability("probability", probability, times_seen.size)
    moment, level = as_time_point("at", at), as_number("level", level, above=0, below=1)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    last = float(times_seen.max())
    if moment > last and outside == "raise":
        fail("at", f"a time within the follow-up, at most {last}", moment)
    events = int(np.count_nonzero(happened & (times_seen <= moment)))
    known = events > 0 and not (moment > last and outside == "nan")
    w = as_row_weights(weights, times_seen.size)
    observed = jackknife(times_seen, happened, moment, weights=w) if known else None
    return slope_of(p, observed, moment, events, level, weights=w)


def slope_of(
    p: Vector,
    observed: Vector | None,
    at: float,
    n_events: int,
    level: float,
    clusters: Clusters | None = None,
    weights: Vector | None = None,
) -> CalibrationSlope:
    """Return slope and intercept of checked predictions and pseudo-values; NaN where these are None."""
    z = float(ndtri((1 + level) / 2))
    ends = [
        (value, value - z * error, value + z * error)
        for value, error in (
            (v, sum_of_squares(i, clusters) ** 0.5) for v, i in slope_and_intercept(p, observed, weights)
        )
    ]
    return CalibrationSlope(*ends[0], *ends[1], at, n_events)


def slope_and_intercept(
    p: Vector, observed: Vector | None, weights: Vector | None = None
) -> tuple[tuple[float, Vector], tuple[float, Vector]]:
    """Return slope and intercept, each with the influence of every row on it; NaN where they are not determined."""
    unknown = (float("nan"), np.full(p.size, np.nan))
    if observed is None:
        return unknown, unknown
    x = log_hazard(p)
    found = _regression(observed, x, np.ones((p.size, 1)), weights)
    intercept = unknown if found is None else (float(found[0][0]), found[1][:, 0])
    # Centred, so that Gauss and Newton's method starts in a well-conditioned place.
    with_slope = np.column_stack([np.ones(p.size), x - x.mean()])
    found = _regression(observed, x, with_slope, weights) if np.ptp(x) > 0 else None
    return (unknown if found is None else (1 + float(found[0][1]), found[1][:, 1])), intercept


def _regression(observed: Vector, offset: Vector, x: Matrix, weights: Vector | None) -> tuple[Vector, Matrix] | None:
    """Return the coefficients beside an offset and every row's influence on them, by least squares; None without any.

    Gauss and Newton's method with halved steps.
    """
    root = np.ones(observed.size) if weights is None else np.sqrt(weights)
    coefficients = np.zeros(x.shape[1])
    left, slope = _left(observed, offset, root)
    for _ in range(_STEPS):
        design = slope[:, None] * x
        try:
            bread = np.linalg.inv(design.T @ design)
        except np.linalg.LinAlgError:
            return None
        step, loss = bread @ (design.T @ left), float(left @ left)
        for halving in range(_HALVINGS):
            trial = coefficients + step / 2**halving
            left, slope = _left(observed, offset + x @ trial, root)
            if float(left @ left) <= loss * (1 + _ROUNDING):
                break
        coefficients = trial
        if np.abs(step).max() < _CLOSE:
            return coefficients, (design * left[:, None]) @ bread
    return None


def _left(observed: Vector, eta: Vector, root: Vector) -> tuple[Vector, Vector]:
    """Return what the mean 1 - exp(-exp(eta)) leaves of the pseudo-values, and the slope of the mean.

    Both times the roots of the weights, with which weighted least squares are plain ones.
    """
    hazard = np.exp(np.minimum(eta, 50.0))
    return root * (observed + np.expm1(-hazard)), root * (hazard * np.exp(-hazard))
