"""`Recalibrated`: any survival model, corrected after training."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from xcal._checks import (
    MANY,
    BoolArray,
    as_count,
    as_flag,
    as_floats,
    as_number,
    as_row,
    as_time,
    check_same_length,
    fail,
    first_row,
)
from xcal.calibration import d_calibration
from xcal.calibration.bins import N_BINS
from xcal.calibration.significance import DCalibrationResult
from xcal.calibration.significance import Method as DMethod
from xcal.distributions import RecalibratedDistribution, SurvivalDistribution
from xcal.distributions.composed import SurvivorDistribution
from xcal.interop import ModelPredictions, Rows, read_model
from xcal.interop.predictions import SeveralLaws, WholeLaw
from xcal.metrics import concordance_index
from xcal.metrics.curves import MeanTime, means_known, read_after, read_before, unseen_as_inf, unseen_as_nan
from xcal.recalibration.maps import Floats, KaplanMeierRecalibration, PiecewiseRecalibration, squared_distance
from xcal.recalibration.published import DEFAULT_PIECES, even_levels
from xcal.recalibration.reading import (
    RowNumbers,
    check_each_row_once,
    chosen_rows,
    folds,
    last_time,
    n_rows,
    read_outcome,
    read_own,
    refit,
    survival_at,
)
from xcal.recalibration.registry import (
    AT_ONCE,
    Column,
    HeldOut,
    MapOfF,
    Method,
    as_method,
    labels_of,
    model_quantiles,
    write_recalibrated,
)

# Where the end of a recalibrated model comes from, for the warning: `Recalibrated.times_` says which of both.
SEEN = "seen in training or recalibration"


@dataclass(frozen=True, eq=False, repr=False)
class RecalibratedCurve:
    """S of one row after recalibration: call it with a time or an array of times.

    Attributes
    ----------
    x, y : ndarray of shape (m,)
        Times from 0 to the last one seen in the fit, and S at each of them, for drawing. A call asks the model again.
    """

    x: Floats
    y: Floats
    _estimator: Any = field(repr=False)
    _row: Any = field(repr=False)

    @property
    def domain(self) -> tuple[float, float]:
        """Times that the data covered; a call after them gives NaN, or extrapolates if it is asked to."""
        return float(self.x[0]), float(self.x[-1])

    def __call__(self, times: Any, *, extrapolate: bool = False) -> Any:
        """S at `times`; a number for a number, an array for an array.

        After the end it is NaN, with a warning, unless it is to `extrapolate`.
        """
        survival = self._estimator.predict_survival_function(self._row, times, extrapolate=True)[0]
        if not as_flag("extrapolate", extrapolate):
            asked = np.atleast_1d(np.asarray(times, dtype=np.float64))
            survival = unseen_as_nan(survival, asked, self.domain[1], stacklevel=3, seen=SEEN)
        return float(survival[0]) if np.ndim(times) == 0 else survival

    def __repr__(self) -> str:
        return f"RecalibratedCurve({self.x.size} points on [{self.domain[0]:g}, {self.domain[1]:g}])"


# --- What a recalibration is fitted to: F, and what else a method asks, of rows that the model has not seen.

# A fold is not trusted if the map of its F lies so many times further from that of the other folds than chance puts it
# (in mean squares), and so far (the root of it) that it matters. Of 5,300 fits of Cox models that did converge, to 60
# to 1,000 rows in five folds, none came above 9.5; where lifelines did not converge on NACD, folds had 17 to 109.
_TIMES_CHANCE = 12.0
_MATTERS = 0.1


@dataclass(frozen=True)
class Asked:
    """What is asked of a model about rows that it has not seen: a method, its two settings, the times of its curves."""

    method: Method
    n_pieces: int | None
    group_column: Column | None
    times: Floats | None = None

    def of(self, model: Any, table: Any, time: Floats, event: BoolArray) -> HeldOut:
        """Ask a model."""
        own = read_own(model, table, time, event)
        quantiles = groups = None
        if self.method.asks_quantiles:
            pieces = (
                DEFAULT_PIECES
                if self.n_pieces is None
                else as_count("n_pieces", self.n_pieces, at_least=2, at_most=MANY)
            )
            quantiles = model_quantiles(model, table, even_levels(pieces), float(time.max()))
        if self.method.asks_groups:
            groups = np.asarray(labels_of(table, self.group_column))
            check_same_length("groups", groups, "y", time.size)
        curves = None if self.times is None else 1 - survival_at(model, table, self.times)
        return HeldOut(time, event, own.cdf, own.event, quantiles, groups, curves, self.times)

    def with_times(self, model: Any, table: Any, time: Floats, event: BoolArray) -> "Asked":
        """Choose the times at which curves are asked for, if the method needs curves; `model` is the one to be used."""
        choose = self.method.curve_times
        return self if choose is None else replace(self, times=choose(model, table, time, event))


def pooled(parts: Sequence[HeldOut], tested: Sequence[RowNumbers], *, at_random: bool) -> HeldOut:
    """Put the answers of the folds together, in the order of the rows; `tested` has the row numbers of each part.

    A fold whose F are far from those of the others is left out, with a warning that names it: the model has not
    converged there, and a map of such F would spoil all predictions. Folds that were not made `at_random` may differ
    for reasons of their own: they are named, and kept.
    """
    check_each_row_once(np.concatenate(tested), sum(part.time.size for part in parts))
    off = _folds_that_differ(parts)
    if off:
        _tell(off, parts, at_random)
    kept = [k for k in range(len(parts)) if k not in off or not at_random]
    back = np.argsort(np.concatenate([tested[k] for k in kept]))

    def joined(name: str) -> Any:
        values = [getattr(parts[k], name) for k in kept]
        return None if values[0] is None else np.concatenate(values)[back]

    names = ("time", "happened", "cdf", "event", "quantiles", "groups", "curves")
    return HeldOut(**{name: joined(name) for name in names}, times=parts[0].times)


def _folds_that_differ(parts: Sequence[HeldOut]) -> dict[int, float]:
    """Find the folds whose F are not distributed as those of the others, the furthest first, with their distance.

    F of the fold's rows goes through the Kaplan-Meier map of the other folds. If their models are alike, the map of the
    result is no change, but for noise: with m events in the fold and M in the others the mean squared distance is
    (1 / m + 1 / M) / 6, that of two empirical distribution functions. One fold is taken away at a time, as it counts
    among the others when those are judged.
    """
    left, off = list(range(len(parts))), {}
    while len(left) > 1:
        found = {k: _distance(parts[k], [parts[j] for j in left if j != k]) for k in left}
        worst = max(found, key=lambda k: found[k][0])
        times_chance, distance = found[worst]
        if times_chance <= _TIMES_CHANCE or distance <= _MATTERS:
            break
        off[worst] = distance
        left.remove(worst)
    return off


def _distance(part: HeldOut, others: Sequence[HeldOut]) -> tuple[float, float]:
    """Mean squared distance of a fold from the others over that of chance, and its root."""
    cdf, event = (np.concatenate([getattr(other, name) for other in others]) for name in ("cdf", "event"))
    m, rest = int(part.event.sum()), int(event.sum())
    if m == 0 or rest == 0:
        return 0.0, 0.0
    common = KaplanMeierRecalibration.fit(cdf, event)
    found = squared_distance(KaplanMeierRecalibration.fit(common.cdf(part.cdf), part.event))
    return found / ((1 / m + 1 / rest) / 6), float(np.sqrt(found))


def _tell(off: dict[int, float], parts: Sequence[HeldOut], at_random: bool) -> None:
    """Warn of folds that differ, or refuse where they are no exception."""
    told = ", ".join(f"{k + 1} ({parts[k].time.size} rows, by {off[k]:.2f})" for k in sorted(off))
    which = f"fold {told}" if len(off) == 1 else f"folds {told}"
    if at_random and 2 * len(off) >= len(parts):
        advice = "look at its convergence; penalise it, leave out columns, or give it more rows"
        fail("model", f"a model that is trained alike in each of {len(parts)} folds ({advice})", f"other F in {which}")
    what = "left out of the map" if at_random else "kept, as these folds were not made at random"
    warnings.warn(
        f"recalibration: F at the observed times differs between the {len(parts)} folds by far more than chance in "
        f"{which}. Has the model converged there? The rows are {what}",
        UserWarning,
        stacklevel=5,
    )


def as_table(X: Any) -> Any:
    """Rows that can be counted and sliced."""
    return np.asarray(X) if isinstance(X, list) else X


# G at its middle is known to about 0.5 / sqrt(events): 0.11 here.
FEW_EVENTS = 20


class Recalibrated(BaseEstimator):
    """A survival model of any library, recalibrated on rows that it has not seen.

    Parameters
    ----------
    model
        A model that `xcal.audit` reads: of xcal, lifelines, scikit-survival, pycox, torchsurv, XGBoost (AFT) or
        hazardous, also at the end of a scikit-learn pipeline, or any object with `predict_survival_function`. Fitted,
        unless `cv` is given.
    method : {"km", "auto", "isotonic", "beta", "ksp", "cipot", "csd", "groups", "risk", "dr-isr", "temperature"}
        How: see the table on the page "Recalibration after training".
    cv : int or splitter of scikit-learn, optional
        None: `model` is fitted, and `fit` is given rows that it has **not** seen. Otherwise cross-fitting: a fresh copy
        of `model` is trained on all folds but one and predicts that one, until every row has an F from a model that
        did not see it. The map is fitted to these F, and the model that predicts is trained on all rows. It is honest
        in that no row's F comes from a model trained on it. The map belongs to models that had fewer rows, a share
        1 - 1/cv, than the one it is used with, which is a little better than they were. A fold in which the model has
        not converged, so that its F are far from those of the others, is left out of the map, with a warning; folds of
        a splitter, which may differ for reasons of their own, are kept.
    n_pieces : int, optional
        For "km", "groups", "cipot" and "csd": straight lines of the map. By default the method's own number.
    group_column : str or int, optional
        For "groups": the column of X that holds the group of each row. For `SurvivalData` also None: its groups.
    fit_model : callable, optional
        For `cv` with a library whose models are not trained by ``fit(X, y)``: a function of X and y that returns a
        fitted model. y is ``Surv(time=..., event=...)``.
    random_state : int
        Seed of the folds, where `cv` is a number.

    Attributes
    ----------
    model_
        The model that predicts.
    adjustment_ : MapOfF or ShiftedQuantiles
        What was fitted; ``adjustment_.map`` is the map G, ``adjustment_.shifts`` those of "csd".
    held_out_ : HeldOut
        The rows it was fitted to: F at the observed times by models that have not seen them. With `cv` all rows, but
        for those of a fold that was left out. Not in a loaded estimator.
    times_ : ndarray
        Times up to the end, where curves are drawn and over which `predict` takes the mean of F. The end is the last
        time that the model knows of: that of its training rows (models of xcal), or of its curves (those of Cox models
        end); for a model that does not say, the last time seen in `fit`.

    Examples
    --------
    A Weibull model of lifelines, fitted to some rows and recalibrated on others:

    >>> import pandas as pd
    >>> from lifelines import WeibullAFTFitter
    >>> from xcal import Surv
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=600)
    >>> rows = pd.DataFrame({"x": x, "time": rng.lognormal(0.5 * x, 0.7), "event": 1.0})
    >>> model = WeibullAFTFitter().fit(rows[:300], "time", "event")
    >>> X, y = rows[["x"]], Surv(time=rows["time"], event=rows["event"])
    >>> recalibrated = Recalibrated(model).fit(X[300:450], y[300:450])
    >>> recalibrated.adjustment_.map
    KaplanMeierRecalibration(11 pieces, from 150 rows with 150 events)
    >>> recalibrated.predict_survival_function(X[450:], times=[1.0, 2.0]).shape
    (150, 2)
    """

    def __init__(
        self,
        model: Any,
        method: str = "km",
        *,
        cv: Any = None,
        n_pieces: int | None = None,
        group_column: Column | None = None,
        fit_model: Callable[[Any, Any], Any] | None = None,
        random_state: int = 0,
    ) -> None:
        self.model = model
        self.method = method
        self.cv = cv
        self.n_pieces = n_pieces
        self.group_column = group_column
        self.fit_model = fit_model
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the map, and with `cv` the model.

        Parameters
        ----------
        X
            Features, as the model takes them; `SurvivalData` brings its outcomes along.
        y
            ``Surv(time=..., event=...)`` or a data frame with the columns time and event.
        """
        method = as_method(self.method, self.n_pieces, self.group_column)
        asked = Asked(method, self.n_pieces, self.group_column)
        X = X.tocsr() if issparse(X) else X  # of the sparse forms the one whose rows can be picked
        time, event = read_outcome(X, y)
        if not event.any():
            fail("y", "at least one event", f"none: all {event.size} rows are censored")
        if self.cv is None:
            # scikit-learn's FrozenEstimator keeps a model fitted when it is cloned.
            model = self.model.estimator if type(self.model).__name__ == "FrozenEstimator" else self.model
            table = as_table(X)
            held_out = asked.with_times(model, table, time, event).of(model, table, time, event)
        else:
            model, held_out = self._cross_fitted(asked, X, time, event)
        adjustment = method.fit(held_out, self.n_pieces, self.group_column)
        _warn_of_few(int(held_out.event.sum()))
        self.model_, self.adjustment_, self.held_out_ = model, adjustment, held_out
        end = last_time(model, as_table(X), time)
        seen = np.minimum(np.append(time, end), end)
        self.times_ = Rows(seen, np.append(event & (time <= end), False)).grid()
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(model, name):
                setattr(self, name, getattr(model, name))
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is something to predict with."""
        return hasattr(self, "adjustment_")

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        # Rows go to the model as they come: sparse ones are welcome where it takes them. Only scikit-learn's say so.
        if isinstance(self.model, BaseEstimator):
            tags.input_tags.sparse = get_tags(self.model).input_tags.sparse
        return tags

    def predict(self, X: Any) -> Floats:
        """Risk of each row, ``(n,)``: the mean of F' from 0 to the end, the last of `times_`.

        It is taken along straight lines between `times_`. The higher, the sooner the event is expected.
        """
        times = np.append(0.0, self._fitted().times_)
        return np.asarray(np.trapezoid(self._cdf(X, times, extrapolate=True), times, axis=1) / times[-1])

    def predict_survival_function(
        self, X: Any, times: Any = None, *, after: Any = None, extrapolate: bool = False
    ) -> npt.NDArray[Any]:
        """Probability of no event until each of `times`, ``(n, m)``; without `times` an array of n curves to call.

        With `after`, one time or one per row: given that the row has come this far without the event. After the end,
        the last of `times_`, it is NaN, with a warning. With `extrapolate` it is what the model says there,
        recalibrated; a curve that ends, as that of a Cox model, keeps its last value.
        """
        if times is not None:
            return 1 - self._cdf(X, times, extrapolate, after)
        if after is not None:
            fail("times", "times at which to predict, beside after", "None")
        grid = np.append(0.0, self._fitted().times_)
        survival = 1 - self._cdf(X, grid, extrapolate=True)
        curves = np.empty(len(survival), dtype=object)
        for row, values in enumerate(survival):
            curves[row] = RecalibratedCurve(grid, values, self, chosen_rows(X, np.array([row])))
        return curves

    def predict_cdf(self, X: Any, times: Any, *, after: Any = None, extrapolate: bool = False) -> Floats:
        """Probability of an event by each of `times`, ``(n, m)``; NaN after the end.

        `after` and `extrapolate` as in `predict_survival_function`.
        """
        return self._cdf(X, times, extrapolate, after)

    def predict_own_cdf(self, X: Any, time: Any = None) -> Floats:
        """F' of each row at its observed time, ``(n,)``: what D-calibration and a PIT histogram take.

        `time` is not given where X is `SurvivalData`. Times after the end are answered too, as rows were observed
        there: by the model's law, or at the end of the curves of a model that says no more.
        """
        if time is None:
            seen, _ = read_outcome(X, None)
        else:
            seen = as_time(time).astype(np.float64)
        fitted = self._fitted()
        own, _ = fitted.adjustment_.own(fitted.model_, as_table(X), seen, np.zeros(seen.size, dtype=bool))
        return own

    def predict_quantile(self, X: Any, p: Any, *, after: Any = None, extrapolate: bool = False) -> Floats:
        """Time by which a share `p` of rows like these has had the event, ``(n,)``, or ``(n, m)`` for an array `p`.

        With `after`, of rows that have come this far; the time is counted from the start. Infinity where it lies after
        the end, the last of `times_`, with a warning. With `extrapolate` it is what the model says, recalibrated: still
        infinity where the curve of a model ends before it gets there.
        """
        values = self._quantiles(X, p, extrapolate, after)
        return values[:, 0] if np.ndim(p) == 0 else values

    def predict_median(self, X: Any, *, after: Any = None, extrapolate: bool = False) -> Floats:
        """Time by which half of rows like these have had the event, ``(n,)``; see `predict_quantile`."""
        return self._quantiles(X, 0.5, extrapolate, after)[:, 0]

    def predict_expectation(self, X: Any, *, after: Any = None, extrapolate: bool = False) -> MeanTime:
        """Mean time of the event of rows like these, counted from the start; see `SurvivalModel.predict_expectation`.

        NaN, with a warning, where more than 1 % of such rows outlive the end, the last of `times_`. With `extrapolate`
        it is the mean of the model's law, recalibrated, for a model that has one: that of other models stays NaN.
        """
        fitted = self._fitted()
        end = float(fitted.times_[-1])
        reached = read_after(after, n_rows(X))
        found = self._mean_time(X, reached, None)
        if as_flag("extrapolate", extrapolate) and self._map_of_law() is not None:
            return found
        left = 1 - self._cdf(X, [end], True, after)[:, 0]
        left = left if reached is None else np.where(reached < end, left, 1.0)
        return found.where(means_known(left, end, stacklevel=3, seen=SEEN))

    def predict_rmst(self, X: Any, horizon: float, *, after: Any = None, extrapolate: bool = False) -> MeanTime:
        """Mean of the time until the event or `horizon`, whichever is first; see `SurvivalModel.predict_rmst`.

        Of a model without a law of its own the curve is taken along straight lines between `times_`.
        """
        stop = as_number("horizon", horizon, above=0)
        found = self._mean_time(X, read_before(after, n_rows(X), stop), stop)
        if as_flag("extrapolate", extrapolate):
            return found
        end = np.array([stop])
        seen = unseen_as_nan(np.zeros(1), end, float(self._fitted().times_[-1]), stacklevel=3, seen=SEEN)
        return found.where(np.isfinite(seen))

    def _map_of_law(self) -> PiecewiseRecalibration | None:
        """Return the map, where the recalibrated model is a distribution: a law behind one map of straight lines."""
        fitted = self._fitted()
        own = fitted.adjustment_.map if isinstance(fitted.adjustment_, MapOfF) else None
        return own if isinstance(own, PiecewiseRecalibration) and isinstance(fitted.model_, WholeLaw) else None

    def _mean_time(self, X: Any, after: Floats | None, horizon: float | None) -> MeanTime:
        """Mean of the time until the event or the horizon, and those of the networks of a model that has several."""
        table, own = as_table(X), self._map_of_law()
        if own is None:
            value = self._mean_of_curves(table, after, horizon)
            return MeanTime.of_networks(value, value[None])
        fitted = self._fitted()

        def mean(law: SurvivalDistribution, reached: Floats | None) -> Floats:
            law = RecalibratedDistribution(law, own.knots, own.levels)
            law = law if reached is None else SurvivorDistribution(law, torch.from_numpy(reached))
            if horizon is None:
                return np.asarray(law.mean.numpy())
            return np.asarray(law.restricted_mean(torch.full(law.batch_shape, horizon, dtype=torch.float64)).numpy())

        whole, networks = [], []
        for start in range(0, n_rows(table), AT_ONCE):
            rows = np.arange(start, min(start + AT_ONCE, n_rows(table)))
            some, reached = chosen_rows(table, rows), None if after is None else after[rows]
            whole.append(mean(fitted.model_.predict_distribution(some), reached))
            members = fitted.model_.predict_members(some) if isinstance(fitted.model_, SeveralLaws) else ()
            networks.append(np.array([mean(member, reached) for member in members]).reshape(len(members), rows.size))
        return MeanTime.of_networks(np.concatenate(whole), np.concatenate(networks, axis=1))

    def _mean_of_curves(self, X: Any, after: Floats | None, horizon: float | None) -> Floats:
        """Area under each curve along straight lines between `times_`, up to the horizon or the end."""
        grid = np.append(0.0, self._fitted().times_)
        stop = float(grid[-1]) if horizon is None else horizon
        grid = np.append(grid[grid < stop], stop)
        survival = 1 - self._cdf(X, grid, True, after)
        if after is None:
            return np.asarray(np.trapezoid(survival, grid, axis=1))
        # S is 1 until `after`, and falls from there on.
        return np.asarray(after + np.trapezoid(survival, np.maximum(grid, after[:, None]), axis=1))

    def _cdf(self, X: Any, times: Any, extrapolate: bool, after: Any = None) -> Floats:
        asked = as_time(as_row("times", times), name="times").astype(np.float64)
        fitted = self._fitted()
        values = fitted.adjustment_.cdf(fitted.model_, as_table(X), asked)
        reached = read_after(after, len(values))
        if reached is not None:
            left = 1 - self._reached(X, reached)[:, None]
            survived = np.divide(1 - values, left, out=np.full(values.shape, np.nan), where=left > 0)
            values = np.where(asked > reached[:, None], 1 - survived, 0.0 * left)
        if as_flag("extrapolate", extrapolate):
            return values
        return unseen_as_nan(values, asked, float(fitted.times_[-1]), stacklevel=4, seen=SEEN)

    def _reached(self, X: Any, after: Floats) -> Floats:
        """F' of each row at the time that it has come to."""
        fitted = self._fitted()
        return fitted.adjustment_.own(fitted.model_, as_table(X), after, np.zeros(after.size, dtype=bool))[0]

    def _quantiles(self, X: Any, p: Any, extrapolate: bool, after: Any = None) -> Floats:
        levels = as_floats("p", as_row("p", p)).astype(np.float64)
        bad = ~((levels > 0) & (levels < 1))
        if bad.any():
            fail("p", "shares between 0 and 1", levels[first_row(bad)], first_row(bad))
        fitted = self._fitted()
        end = float(fitted.times_[-1])
        reached = read_after(after, n_rows(X))
        if reached is not None:
            gone = self._reached(X, reached)[:, None]
            levels = gone + levels * (1 - gone)
        values = fitted.adjustment_.quantile(fitted.model_, as_table(X), levels, end)
        values = values if reached is None else np.maximum(values, reached[:, None])
        return values if as_flag("extrapolate", extrapolate) else unseen_as_inf(values, end, stacklevel=4, seen=SEEN)

    def nll(self, X: Any, y: Any = None) -> Floats:
        """Negative log-likelihood of each row, ``(n,)``: density at an event, survival at a censoring.

        For models that have a density: those of xcal, AFT models of lifelines and XGBoost, torchsurv's Weibull.
        """
        fitted = self._fitted()
        time, event = read_outcome(X, y)
        _, loss = fitted.adjustment_.own(fitted.model_, as_table(X), time, event)
        if loss is None:
            fail("model", "a model with a density", f"{type(fitted.model_).__name__}, whose curves have steps or lines")
        return loss

    def score(self, X: Any, y: Any = None) -> float:
        """Harrell's concordance of `predict` with times and events; 0.5 is chance, 1 a perfect order."""
        risk = self.predict(X)
        time, event = read_outcome(X, y)
        return concordance_index(time=time, event=event, risk=risk).value

    def d_calibration(
        self, X: Any, y: Any = None, *, n_bins: int = N_BINS, method: DMethod = "uniform", groups: Any = None
    ) -> Any:
        """D-calibration on rows that neither trained the model nor the map; arguments as of `xcal.d_calibration`."""
        fitted = self._fitted()
        time, event = read_outcome(X, y)
        known = read_own(fitted.model_, as_table(X), time, event).event
        cdf = self.predict_own_cdf(X, None if y is None else time)
        result: DCalibrationResult = d_calibration(cdf, known, n_bins=n_bins, method=method, time=time, groups=groups)
        return result

    def predictions(self, X: Any, rows: Rows) -> ModelPredictions:
        """Return what `xcal.audit` reads: curves, F at the observed times and the likelihood, after recalibration."""
        fitted = self._fitted()
        table = as_table(X)
        found = read_model(
            fitted.model_, table, time=rows.time, event=rows.event, times=rows.times, horizons=rows.horizons
        )
        changed = fitted.adjustment_.predictions(fitted.model_, found, table, rows)
        n, events = self.adjustment_.counts
        sentence = f"The model is recalibrated by the method {self.method!r} on {n:,} rows with {events:,} events."
        return replace(
            changed,
            model=f"{found.model}, recalibrated",
            reading=(*found.reading, sentence),
            # The order of the model inside may be another: a map bends its curves.
            risk_score=self.predict(X),
            end=float(fitted.times_[-1]),
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write a recalibrated model of xcal to one file, from which `xcal.load` makes it again; nothing in it runs."""
        write_recalibrated(path, self._fitted())

    def _cross_fitted(self, asked: Asked, X: Any, time: Floats, event: BoolArray) -> tuple[Any, HeldOut]:
        """Every row's F from a model trained on other folds, and the model trained on all rows."""
        cut = list(folds(self.cv, event, as_count("random_state", self.random_state, at_least=0)))
        models = [refit(self.model, chosen_rows(X, own), time[own], event[own], self.fit_model) for own, _ in cut]
        final = refit(self.model, X, time, event, self.fit_model)
        asked = asked.with_times(final, as_table(X), time, event)
        tested = [test for _, test in cut]
        parts = [
            asked.of(fresh, as_table(chosen_rows(X, test)), time[test], event[test])
            for fresh, test in zip(models, tested, strict=True)
        ]
        held_out = pooled(parts, tested, at_random=isinstance(self.cv, int | np.integer))
        return final, held_out

    def _fitted(self) -> Self:
        check_is_fitted(self)
        return self


def _warn_of_few(n_events: int) -> None:
    if n_events < FEW_EVENTS:
        warnings.warn(
            f"recalibration: {n_events} events are few: the map is known to about {0.5 / np.sqrt(n_events):.2f} at its "
            f"middle (0.5 over the root of the number of events; no warning from {FEW_EVENTS} on)",
            UserWarning,
            stacklevel=3,
        )
