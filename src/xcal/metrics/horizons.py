"""Times at which single risks are looked at: chosen where the rows support them, or checked."""

import math
from typing import Any

import numpy as np

from xcal._checks import BoolArray, FloatArray, as_floats, as_row, fail, first_row
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration.tied_times import are_coarse
from xcal.metrics.inputs import Vector

# A share of the rows, and a number of them, that must still be under observation at a horizon that is chosen here.
SUPPORTED_SHARE, SUPPORTED_ROWS = 0.05, 10
# Events by a horizon that is chosen here: the time of the fifth event out of twenty is an accident of these rows.
SUPPORTED_EVENTS = 20
# First digits of numbers that are easy to read.
_READABLE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)


def supported_until(time: FloatArray, event: BoolArray) -> float:
    """Return the last time at which enough rows are still under observation; half of the rows where there are few."""
    enough = min(max(SUPPORTED_ROWS, SUPPORTED_SHARE * time.size), time.size / 2)
    curve = fit_kaplan_meier(time, event)
    return float(curve.times[curve.at_risk >= enough][-1])


def default_horizons(time: FloatArray, event: BoolArray, end: float = np.inf, points: Vector | None = None) -> Vector:
    """Quartiles of the event times within the follow-up that enough rows support, as readable numbers.

    Of few events not all three: those by which 20 events have happened, or the last.

    `end` is where the model's curves end. Of times in whole units the horizons are such times. `points`, if there are
    any, are the few times for which risks were predicted: those within the follow-up that rows support.

    Examples
    --------
    >>> time = np.arange(1.0, 1001.0) + 0.5
    >>> default_horizons(time, np.full(1000, True))
    array([250., 500., 700.])
    """
    limit = min(supported_until(time, event), end)
    if points is not None and (points <= limit).any():
        return np.asarray(points[points <= limit])
    seen = time[event & (time <= limit)]
    if seen.size == 0:
        seen = np.array([limit])
    levels = [level for level in (0.25, 0.5, 0.75) if level * seen.size >= SUPPORTED_EVENTS] or [0.75]
    quartiles = np.quantile(seen, levels)
    if are_coarse(time, event):
        recorded = np.unique(time[(time > 0) & (time <= limit)])
        if recorded.size:
            return np.unique([recorded[np.argmin(np.abs(recorded - t))] for t in quartiles]).astype(np.float64)
    found = np.unique([rounded(float(t), at_most=limit) for t in quartiles])
    return found[found > 0] if (found > 0).any() else np.array([limit])


def rounded(t: float, *, at_most: float) -> float:
    """Return the readable number that is closest in proportion, and not past `at_most`.

    Examples
    --------
    >>> rounded(0.96, at_most=2.0), rounded(481.0, at_most=1000.0), rounded(96.0, at_most=99.0)
    (1.0, 500.0, 90.0)
    """
    if t <= 0:
        return t
    power = math.floor(math.log10(t))
    near = [float(f"{step * 10.0**exponent:.12g}") for exponent in (power, power + 1) for step in _READABLE]
    allowed = [number for number in near if number <= at_most] or [t]
    return min(allowed, key=lambda number: abs(math.log(number / t)))


def read_horizons(horizons: Any, time: FloatArray) -> Vector:
    """Check horizons that were asked for: increasing, after 0, and not past the last time of the rows."""
    found: Vector = as_floats("horizons", as_row("horizons", horizons)).astype(np.float64)
    bad = ~(np.isfinite(found) & (found > 0))
    if bad.any():
        fail("horizons", "finite times above 0", found[first_row(bad)], first_row(bad))
    last = float(time.max())
    if found.max() > last:
        fail("horizons", f"times within the follow-up, whose last time is {last:g}", f"{found.max():g}")
    return np.unique(found)


def check_covered(horizons: Vector, end: float) -> None:
    """Refuse a horizon past the end of the curves: the model says nothing about it."""
    if horizons.size and horizons[-1] > end:
        fail("horizons", f"times that the model's curves cover, which end at {end:g}", f"{horizons[-1]:g}")
