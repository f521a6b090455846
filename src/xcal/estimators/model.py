"""The model of one weight (`SurvivalModel`), what it shares with a path of weights, and a pipeline of it."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from functools import wraps
from os import PathLike
from typing import Any, Literal, Self, get_args

import numpy as np
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from xcal._checks import BoolArray, FloatArray, Floats, as_choice, fail
from xcal.calibration import d_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.causes import CauseCalibration
from xcal.calibration.dcalibration import ties_caution, unit_starts
from xcal.calibration.significance import DCalibrationResult, Method
from xcal.data.surv import Outcome
from xcal.data.survival import SurvivalData
from xcal.distributions import SurvivalDistribution
from xcal.estimators.fitted import PredictingModel, combined
from xcal.estimators.fitting import fit_models, scored_by, trained
from xcal.estimators.inputs import read_judged_weights, read_observed, read_rows
from xcal.estimators.persistence import SavedEstimator, write_estimator
from xcal.estimators.settings import DEFAULTS, Settings, checked_lambda, checked_seeds, store_shared
from xcal.recalibration.predictor import SurvivalPredictor
from xcal.training.result import History, Progress

Ties = Literal["auto", "interval", "point"]


def interval_starts(ties: Ties, time: FloatArray, event: BoolArray, n_bins: int) -> Floats | None:
    """Start of the interval that each row's time ends; None if times stand for themselves.

    A model of tied times learns F at each of them: what had happened by then, of which what had happened by the time
    before is a part.
    """
    if ties == "point" or (ties == "auto" and ties_caution(time, event, bin_edges(n_bins)) is None):
        return None
    return unit_starts(time)


class NetworkPredictor(SurvivalPredictor):
    """A survival estimator that predicts with trained networks: `SurvivalModel` and `SurvivalPath`."""

    @abstractmethod
    def _predicting_model(self) -> PredictingModel:
        """Return the model to predict with; called on fitted estimators only."""

    def _asked(self, X: Any) -> tuple[PredictingModel, Any]:
        check_is_fitted(self)
        return self._predicting_model(), read_rows(self, X, reset=False)

    def _judged(self, X: Any, y: Any, sample_weight: Any, n: int) -> tuple[Outcome, Floats | None]:
        return self._as_fitted(read_observed(X, y, n)), read_judged_weights(X, sample_weight, n)

    def _as_fitted(self, outcome: Outcome) -> Outcome:
        """Check that outcomes have the causes that the model tells apart."""
        causes = self._predicting_model().causes
        if outcome.cause is None and causes:
            fail("y", f"causes of events: {', '.join(map(repr, causes))}", "events of one kind")
        if outcome.cause is not None and len(outcome.causes) > len(causes):
            got = f"the causes {', '.join(map(repr, outcome.causes))}"
            fail("y", f"the causes of the fit: {', '.join(map(repr, causes)) or 'none'}", got)
        return replace(outcome, causes=causes)

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether there is a model; the columns of X are known as soon as a fit has begun."""
        return hasattr(self, "fitted_")

    @property
    def last_time_(self) -> float:
        """Last time seen in training; what is predicted of later ones is extrapolated."""
        check_is_fitted(self)
        return float(self._predicting_model().grid[-1])

    @property
    def causes_(self) -> tuple[str, ...]:
        """Names of causes 1, 2, ... that the model tells apart; empty for events of one kind."""
        check_is_fitted(self)
        return self._predicting_model().causes

    def __sklearn_tags__(self) -> Tags:
        tags: Tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = True
        return tags

    def predict_distribution(self, X: Any) -> SurvivalDistribution:
        """Return the distribution of each row's time in the unit of the training times, in torch's float64.

        It is the law as it was fitted, at all times, as likelihoods and draws need it: its median, unlike
        `predict_median`, is finite also where it lies after `last_time_`, and so says what ``extrapolate=True`` says.
        """
        model, x = self._asked(X)
        return model.distribution(x)

    def predict_members(self, X: Any) -> tuple[SurvivalDistribution, ...]:
        """Return what `predict_distribution` averages: the distribution of each row by each network."""
        model, x = self._asked(X)
        return tuple(combined([member], model.recalibration).distribution(x) for member in model.members)

    def d_calibration(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        n_bins: int | None = None,
        method: Method = "uniform",
        ties: Ties = "auto",
    ) -> DCalibrationResult | CauseCalibration:
        """D-calibration on rows that were not trained on, with its noise floor and a p-value; of causes by cause.

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
        model, x = self._asked(X)
        outcome, weights = self._judged(X, y, sample_weight, len(x))
        bins = self.get_params()["calibration_bins"] if n_bins is None else n_bins
        return d_calibration_of(model, x, outcome, n_bins=bins, method=method, ties=ties, weights=weights)


def d_calibration_of(
    model: PredictingModel,
    x: Any,
    outcome: Outcome,
    *,
    n_bins: int,
    method: Method = "uniform",
    ties: Ties = "auto",
    clusters: Any = None,
    weights: Floats | None = None,
) -> DCalibrationResult | CauseCalibration:
    """D-calibration of a model on rows that were read; see `SurvivalModel.d_calibration`."""
    time, event = outcome.time, outcome.event
    groups = outcome.id if clusters is None else clusters
    rows = SurvivalData.trusted(x, None, None, weights, groups=groups).with_outcome(outcome)
    if not rows.plain:
        for name, known, allowed in (
            ("method", method != "uniform", "'uniform'"),
            ("ties", ties == "interval", "'point'"),
            ("sample_weight", weights is not None, "None"),
            ("clusters", clusters is not None and rows.cause is not None, "None"),
        ):
            if known:
                fail(name, f"{allowed} for rows that are seen in part, or of several causes", "another")
        return model.own(rows).calibration(rows, n_bins)
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


class SurvivalModel(NetworkPredictor):
    """A neural survival model whose probabilities are trained to be calibrated.

    Features are standardised and times scaled inside, so that neither their units nor those of the result matter. The
    weights are those of the epoch with the lowest objective + `xcal_lambda` times the amount by which D-calibration
    exceeds its noise, on validation rows.

    Parameters
    ----------
    distribution : {"mtlr", "categorical", "logistic-hazard", "lognormal", "weibull", "loglogistic"}
        Form of each row's distribution. The first three are free in form, piecewise over time bins.
    hidden : sequence of int
        Units of the hidden layers; ``()`` is a linear model.
    dropout : float
        Share of hidden units left out in training.
    objective : {"nll", "censored-crps", "scrps"}
        Negative log-likelihood, a CRPS that is proper under censoring (`xcal.objectives.CensoredCRPS`), or the survival
        CRPS of the X-CAL paper. That one is not proper: a censored row never pays for probability put after its time,
        so trained on 70 % censored rows it predicts risks 1.3 times too high.
    xcal_lambda : float
        Weight of the calibration penalty; 0 trains without it. `SurvivalPath` helps to choose it.
    seeds : int or sequence of int
        Networks to train, so many seeds counted from `random_state`, or these. The model is their mixture in equal
        parts: its F is the mean of theirs.
    interpolation : {"linear", "step"}
        How a discrete distribution is read within a time bin; the others do not use it.
    n_time_bins : int, optional
        Bins of a discrete distribution up to the last event time, with equally many events in each; tied event times
        can make them fewer. By default the square root of the number of events, at most 50.
    calibration : {"marginal", "conditional"}
        What the penalty asks for: calibration over all rows, or given the covariates (`xcal.conditional_calibration`,
        with its default features of the covariates). Epochs are chosen by D-calibration either way.
    calibration_bins : int
        Bins of D-calibration, in training and validation; 2 or more.
    epochs : int
        Passes over the training rows, at most.
    batch_size : int
        Rows of a batch. The penalty is a statistic of the batch: some hundreds at least if it is used.
    learning_rate, weight_decay : float
        Of the optimiser, AdamW.
    patience : int, optional
        Stop after this many epochs without improvement; None never stops early.
    penalty_schedule : {"constant", "anneal"}
        "anneal": the weight of the penalty rises from 0 to `xcal_lambda` over the first epochs (as many as `patience`,
        at most half of all) while its bins become sharper. For large weights, with which a network may otherwise stay
        at its start. Without a penalty it changes nothing. See `xcal.TrainingConfig`.
    penalty_temperature : float, optional
        Softness of the penalty's bins, in bin widths; with "anneal" that of the last epochs. By default 0.5. Sharper
        bins (0.1, with "anneal") bring D-calibration further down where *F* takes few values, as without
        interpolation, or where the weight is large; their gradient has more noise.
    validation_fraction : float
        Share of the rows that `fit` holds out to choose the epoch, unless it is given ``validation_data``.
    encode : {"auto"}, optional
        "auto": encode a data frame as it comes. Categories and text become columns of 0 and 1, dates days, missing
        numbers the median, with a column that says where they were missing. The encoding is learnt in `fit` and saved
        with the model. By default columns must be numbers, and the error shows the pipeline to write.
    random_state : int, RandomState or None
        Seed of the split, the initial weights, the batches and dropout. None: a new random seed for every fit.
    device : str
        Where to train: "cpu", "cuda", or "auto" for a GPU if there is one. Predictions are made on the CPU.
    distributed : {"auto"} or bool, optional
        Train together with the other processes that torchrun started, each of which calls `fit` with the same rows; see
        `xcal.training.fit_path`. All of them end with the same model.
    progress : bool or callable, optional
        As in `xcal.training.fit_path`: by default a bar if the standard error is a terminal.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if `fit` saw a data frame; later frames must have the same columns.
    last_time_ : float
        Last time seen in training. After it predictions are NaN, and quantiles infinite, unless they `extrapolate`.
    fitted_ : PredictingModel
        Networks (`members`), scaling, time edges, and the map of F if there is one (`recalibration`).
    best_epoch_ : int, or ndarray of shape (seeds,)
        Epoch, from 0, whose weights are kept.
    history_ : History
        Validation objective, D-calibration and total by epoch, ``(epochs, seeds)`` each. The total is the objective +
        `xcal_lambda` times the amount by which D-calibration exceeds its noise: the mean of what a perfect model scores
        on these rows and two standard deviations. Objective and total are in the network's unit of time, the median
        event time.
    edges_ : ndarray or None
        Time edges of a discrete distribution. The last bin lies after the last observed time.

    Examples
    --------
    >>> import numpy as np
    >>> from xcal import Surv
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> happens, leaves = rng.exponential(np.exp(X[:, 0])), rng.exponential(2.0, 200)
    >>> y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)
    >>> model = SurvivalModel(xcal_lambda=10, epochs=20).fit(X, y)
    >>> model.predict_survival_function(X[:2], times=[0.5, 1.0, 2.0]).shape
    (2, 3)
    """

    def __init__(
        self,
        distribution: str = DEFAULTS.distribution,
        hidden: Sequence[int] = DEFAULTS.hidden,
        *,
        dropout: float = DEFAULTS.dropout,
        objective: str = DEFAULTS.objective,
        xcal_lambda: float = 0.0,
        seeds: int | Sequence[int] = 1,
        interpolation: str = DEFAULTS.interpolation,
        n_time_bins: int | None = DEFAULTS.n_time_bins,
        calibration: str = DEFAULTS.calibration,
        calibration_bins: int = DEFAULTS.calibration_bins,
        epochs: int = DEFAULTS.epochs,
        batch_size: int = DEFAULTS.batch_size,
        learning_rate: float = DEFAULTS.learning_rate,
        weight_decay: float = DEFAULTS.weight_decay,
        patience: int | None = DEFAULTS.patience,
        penalty_schedule: str = DEFAULTS.penalty_schedule,
        penalty_temperature: float | None = DEFAULTS.penalty_temperature,
        validation_fraction: float = DEFAULTS.validation_fraction,
        encode: str | None = DEFAULTS.encode,
        random_state: Any = DEFAULTS.random_state,
        device: str = DEFAULTS.device,
        distributed: bool | str | None = DEFAULTS.distributed,
        progress: Progress = DEFAULTS.progress,
    ) -> None:
        self.xcal_lambda = xcal_lambda
        self.seeds = seeds
        store_shared(self, locals())

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, validation_data: Any = None) -> Self:
        """Train. A keyboard interrupt is passed on; the estimator is then fitted with the best weights until then.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
            Numbers without missing values, or with ``encode="auto"`` a data frame as it comes. `SurvivalData` brings
            times, events and weights along: ``fit(data)``. Also the path of a parquet file, with its columns named in
            `y`: ``fit("cohort.parquet", {"time": "months", "event": "died"})``.
        y : structured array, data frame, mapping or tuple
            ``Surv(time=..., event=...)``, a structured array as scikit-survival makes it, a data frame with the
            columns ``time`` and ``event``, or ``(time, event)``. Rows are taken by position; pandas objects whose
            indexes say otherwise are refused.
        sample_weight : array-like of shape (n,), optional
            Weights of the rows in objective and penalty, and in everything that judges on validation rows (floor, test,
            map of F), where they count as sampling weights. Time edges are placed without them.
        validation_data : tuple or SurvivalData, optional
            ``(X, y)``, ``(X, y, sample_weight)`` or `SurvivalData` to choose the epoch by. Without it a share of the
            rows is held out.
        """
        settings = Settings.of(self)
        path = fit_models(
            self,
            X,
            y,
            sample_weight,
            validation_data,
            settings=settings,
            lambdas=(checked_lambda(self.xcal_lambda),),
            seeds=checked_seeds(self.seeds, settings.seed()),
        )
        self._adopt(combined(trained(path.models)))
        path.pass_interrupt_on()
        return self

    def recalibrate(self, X: Any, y: Any = None, sample_weight: Any = None, *, n_pieces: int | None = None) -> Self:
        """Correct F after training by one increasing map for all rows, fitted to rows that did not train the model.

        The map is the Kaplan-Meier curve of F at the observed times (`xcal.recalibration`). It calibrates the model
        over all rows, not within subgroups, changes no order of risks at one level of F, and is saved with the model.
        A map that was there before is replaced.

        Parameters
        ----------
        X, y
            As in `fit`: rows that the model has not seen, some hundred events or more.
        sample_weight : array-like of shape (n,), optional
            Sampling weights of these rows, as in `d_calibration`.
        n_pieces : int, optional
            Straight lines that the map is made of, at most; by default by the number of events.

        Returns
        -------
        SurvivalModel
            The model itself.
        """
        _, x = self._asked(X)
        outcome, weights = self._judged(X, y, sample_weight, len(x))
        members = self.fitted_.members
        rows = SurvivalData.trusted(x, None, None, weights).with_outcome(outcome)
        if weights is not None and not rows.plain:
            fail("sample_weight", "None for rows that are seen in part, or of several causes", "weights")
        fitted = combined(members).own(rows).recalibration(rows, n_pieces=n_pieces)
        # Intervals too are made by rows that the model has not seen.
        return self._adopt(combined(scored_by(members, rows), fitted))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted model to one file, from which `xcal.load` makes it again, to the same bits.

        Tensors and JSON, nothing that could run. A `random_state` or `progress` that is an object is not kept.
        """
        check_is_fitted(self)
        found = self.fitted_.recalibration
        maps = {} if found is None else {self.fitted_.members[0].lam: found}
        write_estimator(path, self, self.fitted_.members, maps=maps)

    @classmethod
    def _from_saved(cls, saved: SavedEstimator) -> Self:
        model = cls(**saved.parameters)
        saved.set_features(model)
        return model._adopt(combined(saved.models, next(iter(saved.maps.values()), None)))

    def _adopt(self, fitted: PredictingModel) -> Self:
        """Become the estimator of a trained model."""
        members = fitted.members
        self.fitted_ = fitted
        self.best_epoch_ = members[0].best_epoch if len(members) == 1 else np.array([m.best_epoch for m in members])
        histories = {
            name: np.hstack([getattr(member.history, name) for member in members])
            for name in ("objective", "dcal", "total")
        }
        self.history_ = History(**histories)
        self.edges_ = fitted.outputs.edges
        return self

    def _predicting_model(self) -> PredictingModel:
        return self.fitted_


def _of_last_step(name: str) -> Any:
    """Return a method of a pipeline that asks its last step, where that has it, about rows prepared by the others."""

    def check(pipeline: Any) -> bool:
        # An AttributeError of the last step says which method it does not have.
        getattr(pipeline.steps[-1][1], name)
        return True

    @wraps(getattr(SurvivalModel, name))
    def predicted(self: Pipeline, X: Any, *arguments: Any, **options: Any) -> Any:
        prepared = self[:-1].transform(X) if len(self.steps) > 1 else X
        return getattr(self.steps[-1][1], name)(prepared, *arguments, **options)

    return available_if(check)(predicted)


class SurvivalPipeline(Pipeline):
    """scikit-learn's `Pipeline` with the predictions of a survival estimator as its last step.

    A plain `Pipeline` has `predict` and `score` only. This one also has `predict_survival_function`, `predict_cdf`,
    `predict_quantile`, `predict_median`, `predict_expectation`, `predict_rmst`, `predict_interval`,
    `predict_lower_bound`, `predict_distribution` and `d_calibration`, each on rows as `fit` takes them, and sends the
    features of ``validation_data`` through the steps before the last.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from xcal import Surv, SurvivalModel
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 3)), Surv(time=rng.exponential(size=200), event=np.ones(200))
    >>> pipeline = make_survival_pipeline(StandardScaler(), SurvivalModel(epochs=2))
    >>> pipeline.fit(X[:150], y[:150], validation_data=(X[150:], y[150:])).predict_cdf(X, [1.0]).shape
    (200, 1)
    """

    def fit(self, X: Any, y: Any = None, validation_data: Any = None, **params: Any) -> Self:
        """Fit all steps; `validation_data` is ``(X, y)`` or ``(X, y, sample_weight)`` with X as it comes."""
        if validation_data is None:
            return super().fit(X, y, **params)  # type: ignore[no-any-return]  # scikit-learn has no types
        last = self.steps[-1][0]
        before = Pipeline(self.steps[:-1], memory=self.memory).fit(X, y)
        features, *others = validation_data
        prepared = (before.transform(features), *others)
        # As above: scikit-learn has no types.
        return super().fit(X, y, **params, **{f"{last}__validation_data": prepared})  # type: ignore[no-any-return]

    @property
    def last_time_(self) -> float:
        """As `SurvivalModel.last_time_`."""
        return float(self.steps[-1][1].last_time_)

    @property
    def causes_(self) -> tuple[str, ...]:
        """As `SurvivalModel.causes_`."""
        return tuple(getattr(self.steps[-1][1], "causes_", ()))

    predict_survival_function = _of_last_step("predict_survival_function")
    predict_cdf = _of_last_step("predict_cdf")
    predict_cumulative_incidence = _of_last_step("predict_cumulative_incidence")
    predict_quantile = _of_last_step("predict_quantile")
    predict_median = _of_last_step("predict_median")
    predict_expectation = _of_last_step("predict_expectation")
    predict_rmst = _of_last_step("predict_rmst")
    predict_interval = _of_last_step("predict_interval")
    predict_lower_bound = _of_last_step("predict_lower_bound")
    predict_distribution = _of_last_step("predict_distribution")
    d_calibration = _of_last_step("d_calibration")


def make_survival_pipeline(*steps: Any) -> SurvivalPipeline:
    """Return a `SurvivalPipeline` of these steps, named as scikit-learn's ``make_pipeline`` names them."""
    return SurvivalPipeline(make_pipeline(*steps).steps)
