"""`Recalibrated`: any survival model, corrected after training."""

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Protocol, Self, runtime_checkable

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from xcal._checks import MANY, BoolArray, Floats, as_count, as_numpy, as_time, check_same_length, fail
from xcal._files import OneOf, parse_json, read, shown, write_whole
from xcal.calibration import cause_calibration, d_calibration
from xcal.calibration.bins import N_BINS
from xcal.calibration.significance import DCalibrationResult
from xcal.calibration.significance import Method as DMethod
from xcal.calibration.subgroups import Column as Covariate
from xcal.calibration.subgroups import as_columns
from xcal.data.surv import Outcome
from xcal.data.survival import SurvivalData, outcome_of
from xcal.interop.predictions import ModelPredictions, Rows, WholeLaw, count_rows, take_rows
from xcal.interop.reading import read_model
from xcal.metrics.pseudo_values import found_censoring
from xcal.recalibration.maps import DIGITS, KaplanMeierRecalibration, folds_that_differ
from xcal.recalibration.predictor import ConformalScores, SurvivalPredictor
from xcal.recalibration.published import DEFAULT_PIECES, even_levels
from xcal.recalibration.reading import (
    Column,
    RowNumbers,
    check_each_row_once,
    folds,
    labels_of,
    last_time,
    model_quantiles,
    read_own,
    read_shares,
    refit,
    survival_at,
)
from xcal.recalibration.registry import (
    METHODS,
    Adjustment,
    Corrected,
    HeldOut,
    MapOfF,
    Method,
    as_method,
)

# --- What a recalibration is fitted to: F, and what else a method asks, of rows that the model has not seen.


@dataclass(frozen=True)
class Asked:
    """What is asked of a model about rows that it has not seen: a method, its two settings, the times of its curves."""

    method: Method
    n_pieces: int | None
    group_column: Column | None
    times: Floats | None = None

    def of(self, model: Any, table: Any, outcome: Outcome, uncensored: Floats) -> HeldOut:
        """Ask a model; `uncensored` is the probability of each row to be followed until its time."""
        (time, entered, low), event = _times(outcome), outcome.event
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
        cdf, nobody = own.cdf, np.zeros(time.size, dtype=bool)
        entry, lower = (
            None if at is None else np.minimum(read_own(model, table, at, nobody).cdf, cdf) for at in (entered, low)
        )
        if lower is not None:  # past the end of a curve no more is known than that the event is after the lower end
            cdf = np.where(event & ~own.event, lower, cdf)
        cause = shares = None
        if outcome.cause is not None:
            cause, shares = np.where(own.event, outcome.cause, 0), read_shares(model, table, time, outcome.causes)
        beside: dict[str, Any] = {"entry": entry, "lower": lower, "cause": cause, "shares": shares}
        return HeldOut(time, event, cdf, own.event, uncensored, quantiles, groups, curves, self.times, **beside)

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
    off = folds_that_differ([(part.cdf, part.event) for part in parts])
    if off:
        _tell(off, parts, at_random)
    kept = [k for k in range(len(parts)) if k not in off or not at_random]
    back = np.argsort(np.concatenate([tested[k] for k in kept]))

    def joined(name: str) -> Any:
        values = [getattr(parts[k], name) for k in kept]
        return None if values[0] is None else np.concatenate(values)[back]

    names = [one.name for one in fields(HeldOut) if one.name != "times"]
    return HeldOut(**{name: joined(name) for name in names}, times=parts[0].times)


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


def followed(model: Any, table: Any, outcome: Outcome) -> Floats:
    """Probability of each row to be followed until its observed time, by what its censoring depends on.

    That is looked for among the risk by the model and the columns of a table; those with missing values are left out.
    Of rows that are seen in part, or have causes, nothing is made that asks for it.
    """
    time, event = _times(outcome)[0], outcome.event
    if outcome.cause is not None or outcome.entry is not None or outcome.lower is not None:
        return np.ones(time.size)
    risk = 1 - survival_at(model, table, np.array([float(np.median(time[event]))]))[:, 0]
    x = table.x if isinstance(table, SurvivalData) else table
    columns: list[Covariate] = []
    if isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype.kind in "fiub":
        columns = [Covariate(f"x{k}", np.asarray(x[:, k], dtype=np.float64)) for k in range(x.shape[1])]
    elif hasattr(x, "columns"):
        for name in x.columns:
            with suppress(ValueError):  # what cannot be read as numbers or categories
                columns.extend(as_columns(x[[name]]))
    known = [column for column in columns if np.isfinite(column.values).all() and np.ptp(column.values) > 0]
    return found_censoring(known, np.round(risk, DIGITS), outcome).before(time)


def as_table(X: Any) -> Any:
    """Rows that can be counted and sliced."""
    return np.asarray(X) if isinstance(X, list) else X


# Resamples behind a band.
_RESAMPLES = 50

# G at its middle is known to about 0.5 / sqrt(events): 0.11 here.
FEW_EVENTS = 20


class Recalibrated(SurvivalPredictor):
    """A survival model of any library, recalibrated on rows that it has not seen.

    Parameters
    ----------
    model
        A model that `xcal.audit` reads: of xcal, lifelines, scikit-survival, pycox, torchsurv, XGBoost (AFT) or
        hazardous, also at the end of a scikit-learn pipeline, or any object with `predict_survival_function`. Fitted,
        unless `cv` is given.
    method : {"auto", "km", "isotonic", "beta", "ksp", "cipot", "csd", "groups", "risk", "dr-isr", "temperature"}
        How: see the table on the page "Recalibration after training". "auto" leaves a model that is right nearly as it
        is. Of rows that enter late, have events between two times or of several causes it is "km".
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
    method_ : str
        The method that was used.
    adjustment_ : MapOfF or ShiftedQuantiles
        What was fitted; ``adjustment_.map`` is the map G, ``adjustment_.shifts`` those of "csd".
    scores_ : ConformalScores
        What intervals are made of.
    held_out_ : HeldOut
        The rows it was fitted to: F at the observed times by models that have not seen them. With `cv` all rows, but
        for those of a fold that was left out. Not in a loaded estimator.
    causes_ : tuple of str
        Names of the causes, where there are several.
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
    AveragedRecalibration(1.00 beta, from 150 rows with 150 events)
    >>> recalibrated.predict_survival_function(X[450:], times=[1.0, 2.0]).shape
    (150, 2)
    """

    def __init__(
        self,
        model: Any,
        method: str = "auto",
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
            ``Surv(time=..., event=...)`` or a data frame with the columns time and event. With "auto" and "km" rows may
            enter late, have events between two times, or events of several causes, all of which the model has to know:
            incidences are then recalibrated by cause.
        """
        method = as_method(self.method, self.n_pieces, self.group_column)
        X = X.tocsr() if issparse(X) else X  # of the sparse forms the one whose rows can be picked
        outcome = _outcome(X, y)
        plain = outcome.cause is None and outcome.entry is None and outcome.lower is None
        if not plain and method.name == "auto":
            method = METHODS["km"]
        if not plain and not method.knows_parts:
            expected = "'km' for rows that enter late, with events between two times or of several causes"
            fail("method", expected, repr(self.method))
        event = outcome.event
        if not event.any():
            fail("y", "at least one event", f"none: all {event.size} rows are censored")
        asked = Asked(method, self.n_pieces, self.group_column)
        if self.cv is None:
            # scikit-learn's FrozenEstimator keeps a model fitted when it is cloned.
            model = self.model.estimator if type(self.model).__name__ == "FrozenEstimator" else self.model
            table = as_table(X)
            asked = asked.with_times(model, table, _times(outcome)[0], event)
            held_out = asked.of(model, table, outcome, followed(model, table, outcome))
        else:
            if outcome.id is not None:
                fail("cv", "None for several rows of one person, which must stay together", repr(self.cv))
            model, held_out = self._cross_fitted(asked, X, outcome)
        adjustment = method.fit(held_out, self.n_pieces, self.group_column)
        _warn_of_few(int(held_out.event.sum()))
        self.model_, self.method_, self.adjustment_, self.held_out_ = model, method.name, adjustment, held_out
        self.causes_: tuple[str, ...] = outcome.causes
        self.__dict__.pop("_draws", None)
        # Intervals are made of rows of which all is known.
        self.scores_: ConformalScores | None = None
        if plain:
            self.scores_ = ConformalScores.of(held_out.cdf, held_out.event, held_out.uncensored)
        time = _times(outcome)[0]
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

    @property
    def last_time_(self) -> float:
        """The end, the last of `times_`; what is predicted of later times is extrapolated."""
        return float(self._fitted().times_[-1])

    def _asked(self, X: Any) -> tuple[Corrected, Any]:
        fitted = self._fitted()
        times = np.append(0.0, fitted.times_)
        resampled = self._resampled if hasattr(fitted, "held_out_") else None
        adjusted = Corrected(fitted.model_, fitted.adjustment_, times, fitted.scores_, resampled, fitted.causes_)
        return adjusted, as_table(X)

    def _resampled(self) -> list[Adjustment]:
        """Return what the method fits to resamples of the held-out rows; made once."""
        if not hasattr(self, "_draws"):
            method, rows = METHODS[self.method_], self.held_out_
            rng, n = np.random.default_rng(0), rows.time.size
            drawn: list[Adjustment] = []
            while len(drawn) < _RESAMPLES:
                chosen = rows.take(rng.integers(0, n, n))
                if chosen.event.any():
                    drawn.append(method.fit(chosen, self.n_pieces, self.group_column))
            self._draws = drawn
        return self._draws

    def _judged(self, X: Any, y: Any, sample_weight: Any, n: int) -> tuple[Outcome, None]:
        return _outcome(X, y), None

    def predict_own_cdf(self, X: Any, time: Any = None) -> Floats:
        """F' of each row at its observed time, ``(n,)``: what D-calibration and a PIT histogram take.

        `time` is not given where X is `SurvivalData`. Times after the end are answered too, as rows were observed
        there: by the model's law, or at the end of the curves of a model that says no more.
        """
        seen = (_outcome(X, None).time if time is None else as_time(time)).astype(np.float64)
        fitted = self._fitted()
        own, _ = fitted.adjustment_.own(fitted.model_, as_table(X), seen, np.zeros(seen.size, dtype=bool))
        return own

    def nll(self, X: Any, y: Any = None) -> Floats:
        """Negative log-likelihood of each row, ``(n,)``: density at an event, survival at a censoring.

        For models that have a density: those of xcal, AFT models of lifelines and XGBoost, torchsurv's Weibull. Of rows
        of delayed entry it is that given survival to it, of an event between two times the probability of that, and of
        several causes that of the cause too.
        """
        fitted = self._fitted()
        outcome, table = _outcome(X, y), as_table(X)
        (time, entry, lower), event, nobody = _times(outcome), outcome.event, np.zeros(outcome.n, dtype=bool)

        def own(at: Floats, event: BoolArray) -> tuple[Floats, Floats | None]:
            return fitted.adjustment_.own(fitted.model_, table, at, event)

        cdf, loss = own(time, event)
        if loss is None:
            fail("model", "a model with a density", f"{type(fitted.model_).__name__}, whose curves have steps or lines")
        if lower is not None:
            with np.errstate(divide="ignore"):
                inside = -np.log(np.maximum(cdf - own(lower, nobody)[0], 0.0))
            loss = np.where(event & (lower < time), inside, loss)
        if outcome.cause is not None:
            shares = read_shares(fitted.model_, table, time, outcome.causes)
            if isinstance(fitted.adjustment_, MapOfF) and isinstance(fitted.adjustment_.map, KaplanMeierRecalibration):
                shares = fitted.adjustment_.map.shares(read_own(fitted.model_, table, time, event).cdf, shares)
            own_share = shares[np.arange(outcome.n), np.maximum(outcome.cause, 1) - 1]
            loss = loss - np.where(event, np.log(own_share), 0.0)
        if entry is not None:
            come = own(entry, nobody)[1]
            loss = loss if come is None else loss - come
        return loss

    def d_calibration(
        self, X: Any, y: Any = None, *, n_bins: int = N_BINS, method: DMethod = "uniform", groups: Any = None
    ) -> Any:
        """D-calibration on rows that neither trained the model nor the map; arguments as of `xcal.d_calibration`.

        Of several causes D-calibration by cause, a `xcal.calibration.CauseCalibration`.
        """
        fitted = self._fitted()
        outcome, table = _outcome(X, y), as_table(X)
        (time, entry, lower), nobody = _times(outcome), np.zeros(outcome.n, dtype=bool)
        if outcome.cause is not None:
            if groups is not None:
                fail("groups", "None for rows of several causes", "a value")
            times = fitted.times_[fitted.times_ > 0]
            curves = fitted.adjustment_.incidence(fitted.model_, table, times, fitted.causes_)
            return cause_calibration(curves, times, time=time, cause=outcome.cause, entry=entry, n_bins=n_bins)

        def at(when: Any) -> Any:
            return None if when is None else fitted.adjustment_.own(fitted.model_, table, when, nobody)[0]

        known, cdf, start = read_own(fitted.model_, table, time, outcome.event).event, at(time), at(lower)
        if start is not None:  # as in the fit, of rows past the end of a curve
            cdf = np.where(outcome.event & ~known, start, cdf)
        start, come = (None if values is None else np.minimum(values, cdf) for values in (start, at(entry)))
        given: dict[str, Any] = {"n_bins": n_bins, "method": method, "groups": groups}
        given |= {"time": time} if start is None and come is None else {"cdf_entry": come, "cdf_lower": start}
        result: DCalibrationResult = d_calibration(cdf, known, **given)
        return result

    def predictions(self, X: Any, rows: Rows) -> ModelPredictions:
        """Return what `xcal.audit` reads: curves, F at the observed times and the likelihood, after recalibration."""
        fitted = self._fitted()
        table = as_table(X)
        found = read_model(
            *(fitted.model_, table),
            **{"time": rows.time, "event": rows.event, "times": rows.times, "horizons": rows.horizons},
            causes=rows.causes,
        )
        changed = fitted.adjustment_.predictions(fitted.model_, found, table, rows)
        n, events = self.adjustment_.counts
        sentence = f"The model is recalibrated by the method {self.method_!r} on {n:,} rows with {events:,} events."
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

    def _cross_fitted(self, asked: Asked, X: Any, outcome: Outcome) -> tuple[Any, HeldOut]:
        """Every row's F from a model trained on other folds, and the model trained on all rows."""
        time, event = _times(outcome)[0], outcome.event
        cut = list(folds(self.cv, event, as_count("random_state", self.random_state, at_least=0)))
        models = [refit(self.model, take_rows(X, own), outcome.take(own), self.fit_model) for own, _ in cut]
        final = refit(self.model, X, outcome, self.fit_model)
        asked, uncensored = asked.with_times(final, as_table(X), time, event), followed(final, as_table(X), outcome)
        tested = [test for _, test in cut]
        parts = [
            asked.of(fresh, as_table(take_rows(X, test)), outcome.take(test), uncensored[test])
            for fresh, test in zip(models, tested, strict=True)
        ]
        held_out = pooled(parts, tested, at_random=isinstance(self.cv, int | np.integer))
        return final, held_out

    def _fitted(self) -> Self:
        check_is_fitted(self)
        return self


def _outcome(X: Any, y: Any) -> Outcome:
    """Read the outcomes of rows of equal weight."""
    if isinstance(X, SurvivalData) and X.weights is not None and np.ptp(as_numpy("weights", X.weights)) > 0:
        fail("X", "rows of equal weight: of recalibrations SurvivalPath.fit alone takes weights", "other weights")
    found = outcome_of(X, y, count_rows(X), entry=True, intervals=True, people=True, causes=True)
    return found if len(found.causes) > 1 else replace(found, cause=None, causes=())


def _times(outcome: Outcome) -> tuple[Any, Any, Any]:
    """Return observed times, times of entry and lower ends of intervals in float64; None where there are none."""
    time, entry, lower = (
        None if one is None else one.astype(np.float64) for one in (outcome.time, outcome.entry, outcome.lower)
    )
    return time, entry, lower


def _warn_of_few(n_events: int) -> None:
    if n_events < FEW_EVENTS:
        warnings.warn(
            f"recalibration: {n_events} events are few: the map is known to about {0.5 / np.sqrt(n_events):.2f} at its "
            f"middle (0.5 over the root of the number of events; no warning from {FEW_EVENTS} on)",
            UserWarning,
            stacklevel=3,
        )


# --- Recalibrated models of xcal as files: the model's own file inside, and JSON; nothing that could run.
# The file is a safetensors file with one tensor, the bytes of the file that the model's `save` writes. Its metadata
# has four entries: format, version, header (JSON: method, parameters, map) and digest, the SHA-256 of header and
# tensor.

FORMAT, VERSION = "xcal-recalibrated", "1"
_EXPECTED = "a file that Recalibrated.save wrote"


@dataclass(frozen=True)
class _Header:
    method: Annotated[str, OneOf(METHODS)]
    cv: int | None
    n_pieces: int | None
    group_column: Column | None
    random_state: int
    times: tuple[float, ...]
    adjustment: Any
    scores: ConformalScores | None = None  # files of before intervals have none
    causes: tuple[str, ...] = ()


@runtime_checkable
class Saved(WholeLaw, Protocol):
    """A model of xcal that has a file."""

    def save(self, path: Any) -> None:
        """Write the model to a file that `xcal.load` reads."""
        ...


def write_recalibrated(path: str | os.PathLike[str], estimator: Any) -> None:
    """Write a fitted `Recalibrated` whose model is one of xcal to a new file, and move it into place."""
    model = estimator.model_
    if not isinstance(model, Saved):
        advice = "save the other library's model in its own way, and the map by adjustment_.content()"
        fail("save", f"a recalibrated model of xcal ({advice})", f"{type(model).__module__}.{type(model).__name__}")
    cv = estimator.cv
    header = json.dumps(
        {
            "method": estimator.method_,
            "cv": int(cv) if isinstance(cv, int | np.integer) else None,
            "n_pieces": estimator.n_pieces,
            "group_column": estimator.group_column,
            "random_state": int(estimator.random_state),
            "times": estimator.times_.tolist(),
            "adjustment": estimator.adjustment_.content(),
        }
        | ({"causes": list(estimator.causes_)} if estimator.causes_ else {})
        | ({} if estimator.scores_ is None else {"scores": estimator.scores_.content()})
    )
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "model"
        model.save(inside)
        content = np.frombuffer(inside.read_bytes(), dtype=np.uint8)
    metadata = {"format": FORMAT, "version": VERSION, "header": header, "digest": _digest(header, content)}
    write_whole(Path(path), in_order(save({"model": content}, metadata)))


def in_order(content: bytes) -> bytes:
    """Sort the metadata at the head of a file, which safetensors writes in random order: one model, one file."""
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    # The tensors after it start at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def is_recalibrated(path: str | os.PathLike[str]) -> bool:
    """Return whether this is a file of a recalibrated model; what is no safetensors file at all is not."""
    try:
        with safe_open(path, framework="numpy") as file:
            return (file.metadata() or {}).get("format") == FORMAT
    except (SafetensorError, UnicodeDecodeError):
        return False


def read_recalibrated(path: str | os.PathLike[str], load_model: Callable[[Path], Any]) -> Any:
    """Read a file that `write_recalibrated` wrote; `load_model` reads the file of the model inside.

    It is only read as data: what does not fit is refused with one error.
    """
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        whole = set(file.keys()) == {"model"} and file.get_slice("model").get_dtype() == "U8"
        content = file.get_tensor("model") if whole else np.empty(0, dtype=np.uint8)
    if not whole or metadata.get("version") != VERSION:
        fail("path", f"{_EXPECTED}, of version {VERSION}", f"{path}, of another kind or version")
    text = metadata.get("header", "")
    if metadata.get("digest") != _digest(text, content):
        fail("path", _EXPECTED, f"{path}, which was damaged: its checksum is wrong")
    try:
        header = read(_Header, parse_json("header", text), "header")
        times: Floats = np.asarray(header.times)
        if times.size == 0 or times[0] < 0 or (np.diff(times) <= 0).any():
            fail("times", "increasing times, zero or larger", shown(header.times))
        adjustment = METHODS[header.method].restore(header.adjustment, header.group_column)
    except (ValueError, TypeError, KeyError) as error:  # of an adjustment that is something else
        raise ValueError(f"path: expected {_EXPECTED}, got {path}, made by something else: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "model"
        inside.write_bytes(content.tobytes())
        model = load_model(inside)
    options = {name: getattr(header, name) for name in ("cv", "n_pieces", "group_column", "random_state")}
    estimator = Recalibrated(model, header.method, **options)
    estimator.model_, estimator.adjustment_, estimator.times_ = model, adjustment, times
    estimator.method_, estimator.scores_, estimator.causes_ = header.method, header.scores, header.causes
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(estimator, name, getattr(model, name))
    return estimator


def _digest(header: str, content: Any) -> str:
    digest = hashlib.sha256(f"{FORMAT} {VERSION} {header}".encode())
    digest.update(content.tobytes())
    return digest.hexdigest()
