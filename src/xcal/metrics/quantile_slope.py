"""Slope and intercept of the calibration curve over the quantiles of F.

Not the calibration slope of clinical prediction models, which is the coefficient of a Cox regression on the linear
predictor, log(-log S).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal._checks import as_event, as_probability, as_weights, check_rows, effective_units, fail, first_row
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.metrics.inputs import Vector


@dataclass(frozen=True, eq=False)
class QuantileSlope:
    """Line of best fit through the calibration curve.

    Attributes
    ----------
    slope, intercept : float
        Least-squares line through the points of the curve; 1 and 0 for a calibrated model. They can also come from a
        curve that bends both ways, so look at the curve or at D-calibration too.
    slope_through_origin : float
        Slope of the best line without an intercept.
    levels : array, shape (m,)
        The probabilities rho.
    observed : array, shape (m,)
        Share of rows whose event came at a time with F <= rho; NaN at levels that the follow-up does not reach.
    n, n_events : int
        Rows, and rows with an event.
    """

    slope: float
    intercept: float
    slope_through_origin: float
    levels: Vector
    observed: Vector
    n: int
    n_events: int


def quantile_slope(cdf: Any, *, event: Any, levels: Any = None, weights: Any = None) -> QuantileSlope:
    r"""Slope of the calibration curve over the model's quantiles, with the curve and its intercept.

    The X-CAL paper's appendix calls it calibration slope. It is not the slope of that name in clinical prediction
    models, a Cox regression on the linear predictor :math:`\log(-\log S)`: this one takes the probabilities of all
    times together.

    For each level :math:`\rho` the curve gives the share of rows whose event came before the model's own
    :math:`\rho`-quantile, that is with :math:`F(T_i | x_i) \le \rho`. A calibrated model has the diagonal as its curve.

    A row censored at F = u is only known to have its event at a larger value of F. The curve is therefore one minus the
    Kaplan-Meier estimate with F(T_i | x_i) in the place of time. For a calibrated model, F at the event is uniform and
    independent of x, and so of F at the censoring, which is what Kaplan-Meier asks for. Without censoring it is the
    plain share.

    Parameters
    ----------
    cdf : array-like, shape (n,)
        F at each row's observed time.
    event : array-like, shape (n,)
        True where the event happened.
    levels : array-like, shape (m,), optional
        Probabilities, strictly increasing; by default 0.1, 0.2, ..., 0.9. The ends 0 and 1 are left out because every
        curve passes through them.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of the curve.

    Returns
    -------
    QuantileSlope
        Levels above the largest `cdf` of a row are not observed unless that row had an event; they are NaN in the
        curve and take no part in the fit. With fewer than two levels left, slope and intercept are NaN.

    Examples
    --------
    >>> import numpy as np
    >>> u = (np.arange(1000) + 0.5) / 1000
    >>> result = quantile_slope(u, event=np.ones(1000))
    >>> round(result.slope, 6), abs(round(result.intercept, 6))
    (1.0, 0.0)
    """
    check_rows({"cdf": cdf, "event": event, "weights": weights})
    u = as_probability("cdf", cdf)
    happened = as_event(event, u.size)
    rho = _as_levels(levels)
    w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
    curve = fit_kaplan_meier(u, happened, weights=w)
    observed = 1 - curve.at(rho)
    # Without any event the curve is flat at zero and says nothing.
    observed[((rho > u.max()) & (curve.survival[-1] > 0)) | (not happened.any())] = np.nan
    seen = np.isfinite(observed)
    x, y = rho[seen], observed[seen]
    slope = intercept = origin = float("nan")
    if x.size >= 2:
        centred = x - x.mean()
        slope = float(centred @ y / (centred @ centred))
        intercept = float(y.mean() - slope * x.mean())
        origin = float(x @ y / (x @ x))
    return QuantileSlope(slope, intercept, origin, rho, observed, u.size, int(np.count_nonzero(happened)))


def _as_levels(levels: Any) -> Vector:
    if levels is None:
        return np.arange(1, 10) / 10
    rho = as_probability("levels", levels).astype(np.float64)
    falls = np.diff(rho) <= 0
    if falls.any():
        row = first_row(falls) + 1
        fail("levels", "strictly increasing probabilities", f"{rho[row]} after {rho[row - 1]}", row)
    return rho
