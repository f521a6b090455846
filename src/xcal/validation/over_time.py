"""Curves over time: outcomes, mean prediction, rows at risk, censoring, Brier score."""

from typing import Any

import numpy as np
from scipy.special import ndtri

from xcal._kaplan_meier import fit_kaplan_meier
from xcal.metrics.brier import brier_score
from xcal.metrics.censoring import as_censoring, censoring_survival
from xcal.metrics.curves import at_point
from xcal.metrics.inputs import Vector, mean_of
from xcal.metrics.small_cells import reached
from xcal.validation.at_horizon import observed_values
from xcal.validation.measurements import OverTime
from xcal.validation.rows import Rows

_POINTS, _CORRECTED_POINTS = 101, 21


def over_time(rows: Rows, level: float) -> OverTime:
    """Everything at 101 equally spaced times from 0 to the last that enough rows have reached.

    One column of predictions at a time.
    """
    times = np.linspace(0.0, reached(rows.time, rows.min_cell), _POINTS)
    curve = fit_kaplan_meier(rows.time, rows.event, weights=rows.weights)
    survived = curve.at(times)
    low, high = curve.interval(times, level)
    observed = 1 - survived
    if rows.censoring_model is not None and rows.survival is not None:
        observed, low, high = _corrected(rows, times, level)
    predicted, brier = np.full(times.size, np.nan), np.full(times.size, np.nan)
    censoring = as_censoring(rows.censoring, rows.time, rows.event, rows.weights)
    given: dict[str, Any] = {"time": rows.time, "event": rows.event, "weights": rows.weights, "censoring": censoring}
    if rows.survival is not None and rows.times is not None:
        for k in np.flatnonzero(times <= rows.times[-1]):
            survival = np.clip(at_point(rows.survival, rows.times, float(times[k]), rows.interpolation), 0.0, 1.0)
            predicted[k] = 1 - mean_of(survival, rows.weights)
            brier[k] = brier_score(survival, times[k], **given).values[0]
    return OverTime(
        times=times,
        observed=observed,
        observed_lower=1 - high,
        observed_upper=1 - low,
        predicted=predicted,
        at_risk=(rows.n - np.searchsorted(rows.time, times, side="left")).astype(np.int64),
        uncensored=censoring.at(times) if rows.censoring is None else _own_censoring(rows, times),
        brier=brier,
        brier_null=_null_brier(rows, times, survived),
    )


def _corrected(rows: Rows, times: Vector, level: float) -> tuple[Vector, Vector, Vector]:
    """Return the observed risk, and the ends of the interval of survival, by doubly robust pseudo-values.

    At some of the times, and along straight lines between them; NaN past the end of the curves.
    """
    assert rows.times is not None
    at = np.linspace(0.0, min(float(rows.times[-1]), float(rows.time[-1])), _CORRECTED_POINTS)
    mean, reach = np.zeros(at.size), np.zeros(at.size)
    for k, t in enumerate(at[1:], 1):
        values = observed_values(rows, float(t), rows.seen[0])
        mean[k], reach[k] = values.mean(), float(ndtri((1 + level) / 2)) * values.std() / rows.n**0.5
    # What has happened stays: an estimate that falls is noise.
    mean = np.clip(np.maximum.accumulate(mean), 0.0, 1.0)
    ends = [np.clip(1 - mean + side * reach, 0.0, 1.0) for side in (-1, 1)]
    observed, low, high = (np.where(times <= at[-1], np.interp(times, at, y), np.nan) for y in (mean, *ends))
    return observed, low, high


def _own_censoring(rows: Rows, times: Vector) -> Vector:
    """Share of these rows not yet censored, where the weights come from training rows."""
    return fit_kaplan_meier(rows.time, rows.event, "censoring", rows.weights).at(times)


def _null_brier(rows: Rows, times: Vector, survival: Vector) -> Vector:
    """Brier score of one curve for everybody: the two sums of its formula need no rows times times."""
    censoring = as_censoring(rows.censoring, rows.time, rows.event, rows.weights)
    one = np.ones(rows.n) if rows.weights is None else rows.weights
    total = np.append(0.0, np.cumsum(one))
    g_row, _ = censoring_survival(censoring, rows.time, left_limit=True)
    g_time, known = censoring_survival(censoring, times, left_limit=False)
    passed = np.searchsorted(rows.time, times, side="right")
    dead = np.append(0.0, np.cumsum(one * rows.event / g_row))[passed]
    alive = (total[-1] - total[passed]) / g_time
    score = (dead * survival**2 + alive * (1 - survival) ** 2) / total[-1]
    return np.where(known & (times < rows.time[-1]), score, np.nan)
