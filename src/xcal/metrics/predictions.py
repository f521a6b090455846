"""Predictions and outcomes as every metric of `evaluate` reads them: checked once, derived from curves where needed."""

from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from xcal._checks import MANY, BoolArray, FloatArray, as_probability, check_same_length, effective_units, fail
from xcal._kaplan_meier import KaplanMeier
from xcal.calibration.clusters import Clusters, as_clusters
from xcal.calibration.results import Method as DMethod
from xcal.metrics.censoring import as_censoring
from xcal.metrics.curves import INTERPOLATIONS, Interpolation, at_own_time, at_point
from xcal.metrics.inputs import (
    Vector,
    as_choice,
    as_count,
    as_curves,
    as_outcome,
    as_row_weights,
    as_score,
    as_time_point,
)

# Survival curves may rise by this much from one time to the next: rounding, in float32 too.
_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Predictions:
    """Checked predictions and outcomes; what was not given and cannot be derived is None."""

    time: FloatArray
    event: BoolArray
    cdf: FloatArray | None
    cdf_event: BoolArray  # event, unless F at it was not to be had: past the end of a grid a row counts as censored
    predicted_time: FloatArray | None
    survival: FloatArray | None
    times: Vector | None
    at: float
    interpolation: Interpolation
    censoring: KaplanMeier | None
    n_bins: int
    d_calibration_method: DMethod
    clusters: Clusters | None = None
    weights: Vector | None = None

    def take(self, rows: npt.NDArray[np.int64]) -> "Predictions":
        """Keep the chosen rows, repeated where a row is chosen more than once."""
        return replace(
            self,
            time=self.time[rows],
            event=self.event[rows],
            cdf=None if self.cdf is None else self.cdf[rows],
            cdf_event=self.cdf_event[rows],
            predicted_time=None if self.predicted_time is None else self.predicted_time[rows],
            survival=None if self.survival is None else self.survival[rows],
            clusters=None if self.clusters is None else self.clusters.of_rows(rows),
            weights=None if self.weights is None else effective_units(self.weights[rows]),
        )

    @property
    def probability(self) -> Vector:
        """Predicted probability of an event by `at`."""
        assert self.survival is not None
        assert self.times is not None
        # A survival curve given in float32 may leave [0, 1] by a rounding when it is interpolated.
        return np.clip(1 - at_point(self.survival, self.times, self.at, self.interpolation), 0.0, 1.0)


def read_predictions(
    *,
    time: Any,
    event: Any,
    cdf: Any = None,
    predicted_time: Any = None,
    survival: Any = None,
    times: Any = None,
    at: Any = None,
    interpolation: Interpolation = "linear",
    censoring: KaplanMeier | None = None,
    n_bins: int = 10,
    d_calibration_method: DMethod = "uniform",
    clusters: Any = None,
    weights: Any = None,
) -> Predictions:
    """Check the arguments of `evaluate`, and derive from the survival curves what was not given beside them."""
    as_choice("d_calibration_method", d_calibration_method, get_args(DMethod))
    seen, happened = as_outcome(
        time, event, cdf=cdf, predicted_time=predicted_time, survival=survival, clusters=clusters, weights=weights
    )
    _some_prediction(cdf, predicted_time, survival, times)
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    own = None if cdf is None else _own_cdf(cdf, seen.size)
    score = None if predicted_time is None else as_score("predicted_time", predicted_time, seen.size)
    curves, grid = (None, None) if survival is None else _falling_curves(survival, times, seen.size)
    if censoring is not None:
        as_censoring(censoring, seen, happened)
    as_count("n_bins", n_bins, at_least=2, at_most=MANY)
    given = Predictions(
        time=seen,
        event=happened,
        cdf=own,
        cdf_event=happened,
        predicted_time=score,
        survival=curves,
        times=grid,
        at=_median_event_time(seen, happened) if at is None else as_time_point("at", at),
        interpolation=interpolation,
        censoring=censoring,
        n_bins=n_bins,
        d_calibration_method=d_calibration_method,
        clusters=None if clusters is None else as_clusters(clusters, seen.size, reference="time"),
        weights=as_row_weights(weights, seen.size),
    )
    return _completed(given)


def _completed(given: Predictions) -> Predictions:
    """Read F and the predicted time off the curves where they were not given beside them."""
    curves, grid = given.survival, given.times
    if curves is None or grid is None:
        return given
    if given.cdf is None:
        own = np.clip(1 - at_own_time(curves, grid, given.time, given.interpolation), 0.0, 1.0)
        given = replace(given, cdf=own, cdf_event=given.event & (given.time <= grid[-1]))
    if given.predicted_time is None:
        given = replace(given, predicted_time=restricted_mean(curves, grid, given.interpolation))
    return given


def _some_prediction(cdf: Any, predicted_time: Any, survival: Any, times: Any) -> None:
    if (survival is None) != (times is None):
        fail("survival, times", "both or neither", "only one of them")
    if cdf is None and predicted_time is None and survival is None:
        fail("cdf, predicted_time, survival", "at least one kind of prediction", "none")


def _own_cdf(cdf: Any, n: int) -> FloatArray:
    own = as_probability("cdf", cdf)
    check_same_length("cdf", own, "time", n)
    return own


def _median_event_time(time: FloatArray, event: BoolArray) -> float:
    """Median of the event times; without any event, of all times."""
    return float(np.median(time[event] if event.any() else time))


def _falling_curves(survival: Any, times: Any, n: int) -> tuple[FloatArray, Vector]:
    """Survival curves and their times. Curves that rise are refused, unless by a rounding.

    A curve that rises is one of event probabilities, or has its columns in the wrong order.
    """
    curves, grid = as_curves("survival", survival, times, n)
    rises = np.diff(curves, axis=1) > _ROUNDING
    if rises.any():
        row, before = (int(i) for i in np.argwhere(rises)[0])
        rise = f"{curves[row, before + 1]} after {curves[row, before]}"
        fail("survival", "curves that do not rise", rise, (row, before + 1))
    return curves, grid


def restricted_mean(survival: FloatArray, times: Vector, interpolation: Interpolation) -> Vector:
    """Area under each curve from 0 to the last time of the grid."""
    widths = np.diff(times, prepend=0.0)
    # Weight of every column: a value that is held reaches to the right, a line to both sides. The rest is the curve's
    # start at 1.
    after = np.append(widths[1:], 0.0)
    if interpolation == "previous":
        return np.asarray(widths[0] + survival @ after)
    return np.asarray(widths[0] / 2 + survival @ ((widths + after) / 2))
