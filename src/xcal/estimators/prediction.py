"""What both estimators predict, and how they are scored."""

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from xcal._checks import BoolArray, as_choice, as_flag, as_floats, as_row, fail, first_row
from xcal.calibration import DCalibrationResult, d_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.dcalibration import ties_caution, unit_starts
from xcal.calibration.significance import Method
from xcal.distributions import SurvivalDistribution
from xcal.estimators.fitted import PredictingModel
from xcal.estimators.inputs import Floats, read_judged_weights, read_outcome, read_rows, read_times
from xcal.metrics import concordance_index
from xcal.metrics.curves import unseen_as_inf, unseen_as_nan

# --- A survival curve as an object that can be called, as scikit-survival's scorers want it.


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalCurve:
    """S of one row: call it with a time or an array of times.

    Attributes
    ----------
    x, y : ndarray of shape (m,)
        Times from 0 to the last observed one, and S at each of them, for drawing. A call does not read these points but
        the distribution itself.
    """

    x: Floats
    y: Floats
    _raw: Tensor = field(repr=False)
    _model: PredictingModel = field(repr=False)

    @property
    def domain(self) -> tuple[float, float]:
        """Times that the data covered; a call after them gives NaN, or extrapolates if it is asked to."""
        return float(self.x[0]), float(self.x[-1])

    def __call__(self, times: Any, *, extrapolate: bool = False) -> Any:
        """S at `times`; a number for a number, an array for an array.

        After the last time seen in training it is NaN, with a warning, unless it is to `extrapolate`.
        """
        asked = read_times(times)
        raw = self._raw.unsqueeze(-2)
        distribution = self._model.read(raw.expand(*raw.shape[:-2], asked.size, -1))
        survival = distribution.survival(torch.from_numpy(asked)).numpy()
        if not extrapolate:
            survival = unseen_as_nan(survival, asked, self.domain[1], stacklevel=3)
        return float(survival[0]) if np.ndim(times) == 0 else survival

    def __repr__(self) -> str:
        return f"SurvivalCurve({self.x.size} points on [{self.domain[0]:g}, {self.domain[1]:g}])"


# --- Times of few distinct values: the interval that each of them stands for.


Ties = Literal["auto", "interval", "point"]


def interval_starts(ties: Ties, time: Floats, event: BoolArray, n_bins: int) -> Floats | None:
    """Start of the interval that each row's time ends; None if times stand for themselves.

    A model of tied times learns F at each of them: what had happened by then, of which what had happened by the time
    before is a part.
    """
    if ties == "point" or (ties == "auto" and ties_caution(time, event, bin_edges(n_bins)) is None):
        return None
    return unit_starts(time)


# --- What both estimators predict, and how they are scored.


class SurvivalPredictor(BaseEstimator):
    """Interface of a fitted survival estimator: everything follows from the one model that it predicts with."""

    @abstractmethod
    def _predicting_model(self) -> PredictingModel:
        """Return the model to predict with; called on fitted estimators only."""

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a model; the columns of X are known as soon as a fit has begun."""
        return hasattr(self, "fitted_")

    @property
    def last_time_(self) -> float:
        """Last time seen in training; what is predicted of later ones is extrapolated."""
        check_is_fitted(self)
        return float(self._predicting_model().outputs.grid[-1])

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def predict(self, X: Any) -> Floats:
        """Risk of each row; the higher, the sooner the event is expected.

        It is the mean of F from 0 to the last time seen in training, a number from 0 to 1 without unit: one less the
        restricted mean survival time as a share of that time. Unlike the median it is known, and tells rows apart, also
        where most rows outlive the study.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData

        Returns
        -------
        ndarray of shape (n,)
        """
        model, x = self._read(X)
        return model.risk(x)

    def predict_survival_function(self, X: Any, times: Any = None, *, extrapolate: bool = False) -> npt.NDArray[Any]:
        """Probability of no event until each of `times`.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
        times : array-like of shape (m,), optional
            Zero or larger.
        extrapolate : bool
            What to say of times after the last one seen in training: by default NaN, with a warning; if True, what the
            distribution says there, of which no row told anything.

        Returns
        -------
        ndarray of shape (n, m)
            Without `times` an array of n `SurvivalCurve`, which can be called with times and have the points ``x``,
            ``y``: the form in which scikit-survival and its scorers want it.
        """
        if times is not None:
            asked = read_times(times)
            model, x = self._read(X)
            return self._seen(model.survival(x, asked), asked, extrapolate)
        model, x = self._read(X)
        grid, raw = model.outputs.grid, model.raw(x)
        curves = np.empty(len(x), dtype=object)
        for row, values in enumerate(model.survival_of(raw, grid)):
            curves[row] = SurvivalCurve(grid, values, raw[..., row, :], model)
        return curves

    def predict_cdf(self, X: Any, times: Any, *, extrapolate: bool = False) -> Floats:
        """Probability of an event by each of `times`, ``(n, m)``; NaN after the last time seen in training.

        `extrapolate` as in `predict_survival_function`.
        """
        asked = read_times(times)
        model, x = self._read(X)
        return self._seen(model.cdf(x, asked), asked, extrapolate)

    def predict_quantile(self, X: Any, p: Any, *, extrapolate: bool = False) -> Floats:
        """Time by which a share `p` of rows like these has had the event.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
        p : float or array-like of shape (m,)
            Between 0 and 1.
        extrapolate : bool
            What to say of a time after the last one seen in training: by default infinity, "later than anybody was
            seen", with a warning; if True, what the distribution says.

        Returns
        -------
        ndarray of shape (n,), or (n, m) if `p` is an array
        """
        levels = as_floats("p", as_row("p", p)).astype(np.float64)
        bad = ~((levels > 0) & (levels < 1))
        if bad.any():
            fail("p", "shares between 0 and 1", levels[first_row(bad)], first_row(bad))
        model, x = self._read(X)
        values = model.quantile(x, levels)
        if not as_flag("extrapolate", extrapolate):
            values = unseen_as_inf(values, self.last_time_, stacklevel=3)
        return values[:, 0] if np.ndim(p) == 0 else values

    def predict_median(self, X: Any, *, extrapolate: bool = False) -> Floats:
        """Time by which half of rows like these have had the event, ``(n,)``; infinite after the last time seen."""
        model, x = self._read(X)
        values = model.quantile(x, np.array([0.5]))[:, 0]
        return values if as_flag("extrapolate", extrapolate) else unseen_as_inf(values, self.last_time_, stacklevel=3)

    def predict_distribution(self, X: Any) -> SurvivalDistribution:
        """Return the distribution of each row's time in the unit of the training times, in torch's float64.

        It is the law as it was fitted, at all times: its median, unlike `predict_median`, is finite also where it lies
        after `last_time_`, and so says what ``extrapolate=True`` says.
        """
        model, x = self._read(X)
        return model.distribution(x)

    def score(self, X: Any, y: Any = None) -> float:
        """Harrell's concordance of `predict` with times and events; 0.5 is chance, 1 a perfect order.

        `X` and `y` are as in `fit`. The weights of `SurvivalData` count.
        """
        model, x = self._read(X)
        time, event = read_outcome(X, y, len(x))
        weights = read_judged_weights(X, None, len(x))
        return concordance_index(time=time, event=event, risk=model.risk(x), weights=weights).value

    def d_calibration(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        n_bins: int | None = None,
        method: Method = "uniform",
        ties: Ties = "auto",
    ) -> DCalibrationResult:
        """D-calibration on rows that were not trained on, with its noise floor and a p-value.

        Parameters
        ----------
        X, y
            As in `fit`.
        sample_weight : array-like of shape (n,), optional
            Sampling weights of these rows, all above zero: `weights` of `xcal.d_calibration`. `SurvivalData` brings its
            own.
        n_bins : int, optional
            By default the number of bins that was trained with, ``calibration_bins``, 20 unless set.
            `xcal.d_calibration` and `xcal.evaluate` take 10, the number with which others report: give ``n_bins=10``
            to compare with them.
        method : {"uniform", "km", "ipcw"}
            What a censored row contributes; see `xcal.d_calibration`.
        ties : {"auto", "interval", "point"}
            What a time stands for that many rows share: "interval", the time since the one before (a month, where times
            are whole months), over which each event's F is drawn evenly; "point", itself. "auto" takes the interval if
            most events share their time and a single time holds the mass of half a bin.
        """
        model, x = self._read(X)
        time, event = read_outcome(X, y, len(x))
        weights = read_judged_weights(X, sample_weight, len(x))
        bins = self.get_params()["calibration_bins"] if n_bins is None else n_bins
        return d_calibration_of(model, x, time, event, n_bins=bins, method=method, ties=ties, weights=weights)

    def _seen(self, values: Floats, times: Floats, extrapolate: bool) -> Floats:
        if as_flag("extrapolate", extrapolate):
            return values
        return unseen_as_nan(values, times, self.last_time_, stacklevel=4)

    def _read(self, X: Any) -> tuple[PredictingModel, Any]:
        check_is_fitted(self)
        return self._predicting_model(), read_rows(self, X, reset=False)


def d_calibration_of(
    model: PredictingModel,
    x: Any,
    time: Floats,
    event: BoolArray,
    *,
    n_bins: int,
    method: Method = "uniform",
    ties: Ties = "auto",
    clusters: Any = None,
    weights: Floats | None = None,
) -> DCalibrationResult:
    """D-calibration of a model on rows that were read; see `SurvivalPredictor.d_calibration`."""
    starts = interval_starts(as_choice("ties", ties, get_args(Ties)), time, event, n_bins)
    own, before = model.cdf_at_own(x, time), None if starts is None else model.cdf_at_own(x, starts)
    seen = time if method == "ipcw" else None
    return d_calibration(
        own,
        event,
        n_bins=n_bins,
        method=method,
        time=seen,
        cdf_before=before,
        clusters=clusters,
        weights=weights,
    )
