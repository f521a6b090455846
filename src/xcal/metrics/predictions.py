"""Predictions and outcomes as every metric of `evaluate` reads them, and their likelihood."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Self, get_args

import numpy as np

from xcal._checks import (
    MANY,
    BoolArray,
    FloatArray,
    as_choice,
    as_count,
    as_floats,
    as_probability,
    as_weights,
    check_same_length,
    effective_units,
    fail,
    first_row,
)
from xcal._kaplan_meier import KaplanMeier
from xcal.calibration.bins import N_BINS, Clusters, as_clusters
from xcal.calibration.significance import Method as DMethod
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.cells import EXPONENTS, Accumulator, as_fraction, float_sums
from xcal.metrics.curves import INTERPOLATIONS, Interpolation, at_own_time, at_point
from xcal.metrics.inputs import Integers, Vector, as_curves, as_row_weights, as_score, as_time_point
from xcal.metrics.times import as_censoring


@dataclass(frozen=True)
class MeanNLL:
    """Mean negative log-likelihood; smaller is better.

    Attributes
    ----------
    value : float
        Mean over the rows; infinite where the model held one of them to be impossible.
    standard_error : float
        Of the mean; NaN for one row or an infinite mean.
    n : int
        Rows.
    """

    value: float
    standard_error: float
    n: int


def mean_nll(nll: Any, *, weights: Any = None) -> MeanNLL:
    r"""Average the negative log-likelihoods of rows.

    .. math:: \frac1n \sum_i \ell_i, \qquad \ell_i = -\log f(T_i) \text{ (event)}, \quad -\log S(T_i) \text{ (censored)}

    Parameters
    ----------
    nll : array-like, shape (n,)
        Minus the log of the density at an event, minus the log of the survival probability at a censoring: one value
        per row, as `xcal.objectives.nll` gives. Values of two models can be compared only if both are of densities in
        the same unit of time. Positive infinity is an answer (the model held the row to be impossible), NaN is none.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row; the standard error is then design-based.

    Returns
    -------
    MeanNLL

    Examples
    --------
    >>> mean_nll([1.0, 2.0, 3.0]).value
    2.0
    """
    values = as_nll(nll)
    w = None if weights is None else effective_units(as_weights("weights", weights, values.size, reference="nll"))
    mean = float(values.mean() if w is None else w @ values / w.sum())
    error = float("nan")
    if values.size > 1 and np.isfinite(mean):
        error = float(values.std(ddof=1) / values.size**0.5)
        if w is not None:
            error = float(np.sqrt(np.square(w * (values - mean)).sum()) / w.sum())
    return MeanNLL(mean, error, values.size)


def as_nll(nll: Any) -> Vector:
    """One negative log-likelihood per row: numbers, or infinity for a row that the model held to be impossible."""
    values: Vector = as_floats("nll", nll).astype(np.float64, copy=False)
    bad = np.isnan(values) | (values == -np.inf)
    if bad.any():
        row = first_row(bad)
        fail("nll", "numbers, or infinity for an impossible row", values[row], row)
    return values


# --- Mean negative log-likelihood over chunks, processes or files.


class StreamingMeanNLL(Accumulator):
    """Accumulate the mean negative log-likelihood; see `mean_nll`. Sums are exact, whatever the order of the rows.

    Examples
    --------
    >>> StreamingMeanNLL().update([1.0, 2.0]).merge(StreamingMeanNLL().update([3.0])).compute()
    MeanNLL(value=2.0, standard_error=0.5773502691896257, n=3)
    """

    def __init__(self) -> None:
        super().__init__()
        self._sums |= {"n": np.zeros((), np.int64), "impossible": np.zeros((), np.int64)}
        self._sums |= {name: np.zeros((2, EXPONENTS), np.int64) for name in ("values", "squares")}

    def _settings(self) -> tuple[Any, ...]:
        return ()

    def update(self, nll: Any) -> Self:
        """Add rows: one negative log-likelihood each; infinity where the model held the row to be impossible."""
        if np.size(nll) == 0:
            return self
        values = as_nll(nll)
        # A square past the largest float is as good as impossible: the standard error is then not known.
        possible = np.abs(values) < 1e150
        self._sums["n"] += values.size
        self._sums["impossible"] += np.count_nonzero(~possible)
        self._sums["values"] += float_sums(values[possible])
        self._sums["squares"] += float_sums(np.square(values[possible]))
        return self

    def compute(self) -> MeanNLL:
        """Return the mean of all rows seen so far, and its standard error."""
        self._need_rows()
        n = self.n
        if self._sums["impossible"] > 0:
            return MeanNLL(float("inf"), float("nan"), n)
        total = as_fraction(self._sums["values"])
        if n == 1:
            return MeanNLL(float(total), float("nan"), 1)
        # In whole numbers, so that nothing is lost where the mean is large beside the spread.
        spread = max(Fraction(0), as_fraction(self._sums["squares"]) - total**2 / n) / (n - 1)
        return MeanNLL(float(total / n), float(np.sqrt(float(spread / n))), n)


# --- Predictions and outcomes as every metric of `evaluate` reads them: checked once, derived from curves where
# needed.

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

    def take(self, rows: Integers) -> "Predictions":
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
    def outcome(self) -> Outcome:
        """Times and events."""
        return Outcome(self.time, self.event)

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
    n_bins: int = N_BINS,
    d_calibration_method: DMethod = "uniform",
    clusters: Any = None,
    weights: Any = None,
) -> Predictions:
    """Check the arguments of `evaluate`, and derive from the survival curves what was not given beside them."""
    as_choice("d_calibration_method", d_calibration_method, get_args(DMethod))
    beside = {"cdf": cdf, "predicted_time": predicted_time, "survival": survival}
    outcome = as_outcome(time, event, beside={**beside, "clusters": clusters, "weights": weights})
    n = outcome.n
    _some_prediction(cdf, predicted_time, survival, times)
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    own = None if cdf is None else _own_cdf(cdf, n)
    score = None if predicted_time is None else as_score("predicted_time", predicted_time, n)
    curves, grid = (None, None) if survival is None else _falling_curves(survival, times, n)
    if censoring is not None:
        as_censoring(censoring, outcome)
    as_count("n_bins", n_bins, at_least=2, at_most=MANY)
    given = Predictions(
        time=outcome.time,
        event=outcome.event,
        cdf=own,
        cdf_event=outcome.event,
        predicted_time=score,
        survival=curves,
        times=grid,
        at=float(np.median(outcome.time[outcome.event if outcome.event.any() else slice(None)]))
        if at is None
        else as_time_point("at", at),
        interpolation=interpolation,
        censoring=censoring,
        n_bins=n_bins,
        d_calibration_method=d_calibration_method,
        clusters=None if clusters is None else as_clusters(clusters, n, reference="time"),
        weights=as_row_weights(weights, n),
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
