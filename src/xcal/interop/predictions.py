"""What a survival model of any library says about rows: the one form that everything here reads."""

from dataclasses import dataclass

import numpy as np

from xcal._checks import FloatArray, fail, first_row
from xcal.metrics.curves import Interpolation
from xcal.metrics.inputs import Vector

# A million curves at once would take their memory twice over.
_ROWS_AT_ONCE = 50_000
# Survival curves may rise by this much from one time to the next: rounding, in float32 too.
ROUNDING = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class ModelPredictions:
    """Predictions for n rows, checked; what the model does not give is None.

    Attributes
    ----------
    model, library : str
        Names for people, as in "CoxPHFitter" and "lifelines"; "survival curves" and "none" for plain numbers.
    n : int
        Rows.
    survival, times : arrays of shape (n, m) and (m,), or None
        Survival probabilities on increasing times.
    interpolation : {"linear", "previous"}
        How the curves are read between two of `times`: as in `xcal.metrics`.
    risk, risk_horizon : array of shape (n,) and float, or None
        Probability of an event by the one time `risk_horizon`, for a model that gives no more than this.
    cdf : array of shape (n,), or None
        F at each row's observed time, where the model gives it exactly; else it is read off the curves. Where there are
        curves too, a row whose time lies past the last of `times` counts as censored there: the model says no more.
    nll : array of shape (n,), or None
        Negative log-likelihood of each row (density at an event, survival at a censoring), where there is a density.
    risk_score : array of shape (n,), or None
        Order of the rows by the model itself, larger for an earlier event: what its `score` goes by. None for a model
        that has none; rows are then ordered by the area under their curves.
    reading : tuple of str
        Sentences for the report: how the curves were obtained, how they are read between the times, and what happens
        past the last of them.
    end : float, or None
        Last time that the model knows of: the last one of its training rows, or of its own curves. None for a model
        that gives a law for all times and does not say how long its training rows were followed.
    """

    model: str
    library: str
    n: int
    survival: FloatArray | None = None
    times: Vector | None = None
    interpolation: Interpolation = "linear"
    risk: Vector | None = None
    risk_horizon: float | None = None
    cdf: Vector | None = None
    nll: Vector | None = None
    risk_score: Vector | None = None
    reading: tuple[str, ...] = ()
    end: float | None = None


def check_predictions(found: ModelPredictions, n: int) -> ModelPredictions:
    """Refuse predictions that cannot be of these `n` rows, or are no probabilities; give them back otherwise."""
    who = f"predictions of {found.model}"
    if found.n != n:
        fail(who, f"one for each of the {n} rows of y", f"{found.n} rows")
    if found.survival is not None and found.times is not None:
        advice = "for risks pass 1 - risk"
        if found.library != "none":
            advice = "if the model allows that, pass curves: numpy.minimum.accumulate(curves, axis=1) with times="
        _check_curves(who, found.survival, found.times, advice)
    for name, values in (("cdf", found.cdf), ("risk", found.risk)):
        if values is not None:
            bad = ~((values >= 0) & (values <= 1))
            if bad.any():
                fail(f"{name}, {who}", "probabilities in [0, 1]", values[first_row(bad)], first_row(bad))
    if found.nll is not None and np.isnan(found.nll).any():
        fail(f"nll, {who}", "a likelihood of each row", "nan", first_row(np.isnan(found.nll)))
    return found


def _check_curves(who: str, survival: FloatArray, times: Vector, advice: str) -> None:
    # NaN makes both comparisons false, so one pass over extrema catches everything.
    if not (survival.min() >= 0 and survival.max() <= 1):
        flat = first_row((~((survival >= 0) & (survival <= 1))).ravel())
        row, column = divmod(flat, times.size)
        got = f"{survival[row, column]} at time {times[column]:g}"
        fail(who, "survival probabilities in [0, 1]", got, row)
    for start in range(0, len(survival), _ROWS_AT_ONCE):
        rises = np.diff(survival[start : start + _ROWS_AT_ONCE], axis=1) > ROUNDING
        if not rises.any():
            continue
        row, column = (int(i) for i in np.argwhere(rises)[0])
        row += start
        got = f"{survival[row, column + 1]:g} at time {times[column + 1]:g} after {survival[row, column]:g}"
        fail(who, f"survival curves, which never rise ({advice})", got, row)
