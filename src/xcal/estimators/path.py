"""`SurvivalPath`: weights of the penalty and seeds, what it chose among them, and what can be chosen instead."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from html import escape
from itertools import product
from os import PathLike
from pathlib import Path
from textwrap import fill
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from xcal._checks import MIN_CELL, as_choice, as_count, as_flag, check_rows, effective_units, fail
from xcal.estimators.decision import Choices, Chosen, Decision, PathSoFar, trained_as
from xcal.estimators.fitted import FittedModel, PredictingModel, combined
from xcal.estimators.fitting import fit_models
from xcal.estimators.inputs import read_rows, read_table
from xcal.estimators.model import NetworkPredictor, SurvivalModel
from xcal.estimators.persistence import SavedEstimator, write_estimator
from xcal.estimators.selection import (
    Selection,
    check_rule,
    choose,
    largest_within_one_error,
    summarise,
    with_untrained,
)
from xcal.estimators.settings import (
    AVERAGE,
    DEFAULTS,
    LAMBDAS,
    PATHS,
    SHARED,
    Settings,
    checked_seeds,
    checked_target,
    store_shared,
)
from xcal.training.path import checked_lambdas
from xcal.training.result import Progress


class SurvivalPath(NetworkPredictor):
    """Models for every weight of the calibration penalty and every seed, trained as far as they are needed.

    How much likelihood or concordance is calibration worth? The path shows the choices that the data offer
    (`frontier_`, `plot`), and `select` makes one.

    First the smallest weight is trained, 0 as a rule, and judged. Only if it is off, and a map of F does not correct
    it, `fit` trains the larger weights. `model`, `plot`, `report`, and `select` with another rule train them when they
    are asked for; so the path keeps the rows of `fit` in memory. A path that was saved, copied or pickled has no rows.

    Parameters
    ----------
    lambdas : sequence of float
        Weights of the calibration penalty.
    seeds : int or sequence of int
        Models for each weight: so many seeds counted from `random_state`, or these.
    path : {"when_needed", "always"}
        "always" trains all weights in one run of `fit`.
    average : bool
        Whether the model of a weight is the mixture of all its seeds, in equal parts, or the seed with the lowest
        `total` alone.
    cross_fit : int
        Folds in which networks are trained once more, so that all rows judge the smallest weight where the validation
        rows have fewer than 500 events, and so that the map of F is fitted to all rows if `select` recalibrates: each
        row by networks that have not seen it. 0: the validation rows judge alone, and a map has their noise; so it is
        with ``validation_data`` too.
    target_dcal : float, optional
        Instead of `lambdas`: the D-calibration to reach. Each seed finds its weight by dual ascent, in one run.
    calibration : {"marginal", "conditional"}
        What the penalty asks for, as in `SurvivalModel`. `frontier_` and `candidates_` have both measures.
    distribution, hidden, dropout, objective, interpolation, n_time_bins, calibration_bins, epochs, batch_size, \
learning_rate, weight_decay, patience, penalty_schedule, penalty_temperature, validation_fraction, encode, \
random_state, device, progress
        As in `SurvivalModel`. All models share the split into training and validation rows.
    distributed : {"auto"} or bool, optional
        As in `SurvivalModel`.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str
    last_time_ : float
        As in `SurvivalModel`.
    frontier_ : DataFrame
        One line for each model, its values on the validation rows; models that were not trained stand at the end, with
        NaN. Columns: lambda, seed, nll (in the unit of the times), dcal,
        dcal_floor (what a perfect model would score on average), dcal_p (Akritas' test of a perfect model),
        conditional (conditional calibration K, less what noise gives: zero on average for a model that is right for
        every row), concordance, total (objective + lambda times the amount by which dcal exceeds its noise level, by
        which epochs are chosen, in the network's unit of time; see `SurvivalModel`), best_epoch. The rest is the same
        for all seeds of a lambda: nll_gap_se, the standard error over rows of its distance to the lowest mean nll;
        dcal_gap_se, that of the distance of its mean dcal to the smallest lambda's; and the standard deviations over
        seeds nll_sd, dcal_sd, concordance_sd (NaN with one seed). As epochs were chosen on these rows, dcal is a little
        too good: judge the chosen model by `d_calibration` on fresh rows.
    candidates_ : DataFrame
        What `select` chooses among, measured on the validation rows as the model that it would return: one line for
        each weight, seeds averaged (see `average`), and one for each weight after recalibration, whose map of F is
        fitted to these rows and measured by cross-fitting (its concordance by the one map that is kept: a map hardly
        changes the order of rows, and those of different folds cannot be compared). Columns lambda, recalibrated, nll,
        dcal, dcal_floor, dcal_p, conditional, concordance as in `frontier_`; nll_gap_se and dcal_gap_se, standard
        errors over rows of the distance to the first line, the smallest weight as it is. With
        ``calibration="conditional"`` also conditional_gap_se and conditional_p, the test of
        `xcal.conditional_calibration`. Without enough events to judge by, nothing is recalibrated. Weights that were
        not trained stand at the end, with NaN.
    cross_fitted_ : DataFrame or None
        The smallest weight in the same columns, as it is and recalibrated, on all rows, each by networks that have not
        seen it, and its concordance within the folds; None where the validation rows judged. See `cross_fit`.
    untrained_ : tuple of float
        Weights that were not trained.
    fitted_ : tuple of FittedModel
        What was trained, in the order of `frontier_`.
    selection_ : Selection
        What ``select()`` chose, and why: `lam`, `recalibrated`, `rule` and `reason`, a sentence.
    selected_ : int
        Line of `frontier_` of the chosen weight: its seed with the lowest total.

    Examples
    --------
    >>> import numpy as np
    >>> from xcal import Surv
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> happens, leaves = rng.exponential(np.exp(X[:, 0])), rng.exponential(2.0, 300)
    >>> y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)
    >>> path = SurvivalPath(lambdas=(0, 10, 100), seeds=2, path="always", epochs=10).fit(X, y)
    >>> path.frontier_[["lambda", "seed"]].to_numpy().tolist()
    [[0.0, 0.0], [10.0, 0.0], [100.0, 0.0], [0.0, 1.0], [10.0, 1.0], [100.0, 1.0]]
    >>> path.select(rule="one_standard_error").xcal_lambda in (0, 10, 100)
    True
    """

    # Kept by `store_shared`.
    distribution: str
    calibration_bins: int
    random_state: Any

    def __init__(
        self,
        lambdas: Sequence[float] = LAMBDAS,
        seeds: int | Sequence[int] = 3,
        *,
        path: str = PATHS[0],
        average: bool = AVERAGE,
        cross_fit: int = 5,
        target_dcal: float | None = None,
        distribution: str = DEFAULTS.distribution,
        hidden: Sequence[int] = DEFAULTS.hidden,
        dropout: float = DEFAULTS.dropout,
        objective: str = DEFAULTS.objective,
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
        self.lambdas = lambdas
        self.seeds = seeds
        self.path = path
        self.average = average
        self.cross_fit = cross_fit
        self.target_dcal = target_dcal
        store_shared(self, locals())

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        validation_data: Any = None,
        *,
        validation_clusters: Any = None,
        checkpoint: str | PathLike[str] | None = None,
    ) -> Self:
        """Train what is needed; arguments and interrupts as in `SurvivalModel.fit`.

        With `validation_clusters`, one label per row of `validation_data`, rows with the same label (those of one
        patient, say) may depend on each other: floor, test and errors behind ``select()`` count clusters. They are for
        the marginal penalty.

        With a folder `checkpoint`, the state of training is written there now and then, that of weights trained after
        the first into its folder "further", and a fit that finds its own state there resumes from it
        (`xcal.training.fit_path`).

        Warns if the rows cannot show whether the smallest weight is off, which is then kept.
        """
        settings = Settings.of(self)
        as_flag("average", self.average)
        as_choice("path", self.path, PATHS)
        folds = as_count("cross_fit", self.cross_fit, at_least=0)
        if folds == 1:
            fail("cross_fit", "0, or 2 or more folds", "1")
        lambdas, target = self._weights()
        if validation_clusters is not None and (validation_data is None or settings.conditional):
            got = "none" if validation_data is None else "calibration='conditional'"
            fail("validation_clusters", "validation_data beside it, and calibration='marginal'", got)
        seeds = checked_seeds(self.seeds, settings.seed())
        first = lambdas if self.path == "always" or target is not None else [min(lambdas)]
        trained = fit_models(
            self,
            X,
            y,
            sample_weight,
            validation_data,
            settings=settings,
            lambdas=first,
            later=lambdas,
            seeds=seeds,
            target_dcal=target,
            checkpoint=checkpoint,
            validation_clusters=validation_clusters,
        )
        so_far = PathSoFar(trained, settings, lambdas, seeds, target, folds, self.average)
        try:
            table, decision = so_far.decided()
            if so_far.untrained and not decision.settled and not trained.interrupted:
                so_far = so_far.further(so_far.untrained, None if checkpoint is None else Path(checkpoint) / "further")
                table, decision = so_far.decided(decision)
        except KeyboardInterrupt:  # what was trained is kept: the choice is made again, without further training
            so_far = so_far.interrupted()
            table, decision = so_far.decided()
        if decision.doubt is not None and len(lambdas) > 1:
            warnings.warn(
                f"the path predicts with lambda {decision.selection.lam:g}, its smallest: {decision.doubt}. Give "
                "it more rows, or choose by another rule of select",
                UserWarning,
                stacklevel=2,
            )
        self._adopt(so_far, table, decision)
        return self

    def select(
        self,
        *,
        max_dcal: float | None = None,
        max_concordance_drop: float | None = None,
        rule: str | None = None,
    ) -> SurvivalModel:
        """Return the model that one rule chooses by the values of `candidates_`: a weight, recalibrated or not.

        It is the mixture of all seeds of that weight, or with ``average=False`` the seed with the lowest total,
        objective + lambda times the amount by which D-calibration exceeds its noise level.

        Parameters
        ----------
        max_dcal
            Of the candidates whose D-calibration is at most this, the one with the lowest NLL.
        max_concordance_drop
            Of the candidates whose concordance is at most this far below the best, that with the lowest D-calibration.
        rule : {"when_needed", "one_standard_error"}
            "when_needed", the default if nothing else is given: the smallest weight, 0 as a rule, unless the rows that
            judge (see `cross_fit`) show that it is off (Akritas' test, p < .05). Then the same weight recalibrated, if
            its D-calibration is lower and its NLL at most one standard error higher. Only where it is not, another
            candidate: of those whose D-calibration is lower by more than two standard errors, and whose NLL is at most
            one higher, the smallest step that the same test does not find off; if it finds all of them off, the one
            with the lowest D-calibration. With ``calibration="conditional"`` the candidates, the recalibrated one among
            them, go by the value and the test of `xcal.conditional_calibration`. `selection_` says in words what was
            decided. With `target_dcal` the default is the seed with the lowest NLL among those that reached the target.

            "one_standard_error": the largest weight whose NLL is at most one standard error above the lowest, by means
            over seeds, whether the model needs it or not. The error is that of the difference over the validation rows.
            The fewer they are, the larger it is, and the larger the weight: on few rows this rule costs concordance.

        Returns
        -------
        SurvivalModel
            Fitted. Of one seed, its `random_state` is the seed; `seeds` has several.
        """
        check_is_fitted(self)
        if max_dcal is None and max_concordance_drop is None and rule in (None, self.selection_.rule):
            return self._as_model(self._choices.selected())
        check_rule(max_dcal, max_concordance_drop, rule)
        self._train(self.untrained_, "select")
        if max_dcal is None and max_concordance_drop is None and rule == "one_standard_error":
            return self.model(largest_within_one_error(self.frontier_))
        lam, recalibrated = choose(
            self.candidates_, max_dcal=max_dcal, max_concordance_drop=max_concordance_drop, rule=rule
        )
        return self.model(lam, recalibrated=recalibrated)

    def model(self, lam: float, seed: int | None = None, *, recalibrated: bool = False) -> SurvivalModel:
        """Return the fitted model of a weight: of one seed if it is given, else of all (see `average`).

        With `recalibrated` it has the map of F that was fitted to the validation rows; see `candidates_`. A weight that
        was not trained is trained now.
        """
        check_is_fitted(self)
        self._train([own for own in self.untrained_ if own == lam], "lam")
        return self._as_model(self._choices.chosen(lam, seed, recalibrated=recalibrated))

    def refit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SurvivalModel:
        """Train what ``select()`` chose once more, on all these rows, for as many epochs as it took on a part of them.

        Give it the rows of `fit`: those that were held out then are learnt from too. The map of F, if one was chosen,
        is kept. Nothing is left to judge the model by; the values of `candidates_` are those of the model before.
        """
        check_is_fitted(self)
        members, recalibration = self._choices.selected()
        model = self._as_model((members, recalibration))
        models = trained_as(members, read_table(model, X, y, sample_weight), Settings.of(self))
        return model._adopt(combined(models, recalibration))

    def summary(self) -> pd.DataFrame:
        """Means over seeds of the frontier's values, and their standard deviations, by lambda; NaN if not trained."""
        check_is_fitted(self)
        return summarise(self.frontier_)

    def plot(self, ax: Any = None) -> Any:
        """Draw D-calibration against concordance, one point per weight, and one per weight after recalibration.

        Each is the model of all its networks, with the networks alone as small dots beside it.
        Weights that were not trained are trained first, but for a path without its rows, whose title names them.
        Returns the matplotlib axes.
        """
        check_is_fitted(self)
        from xcal.estimators.frontier_page import not_trained, plot_frontier

        if self._so_far is not None:
            self._train(self.untrained_, "plot")
        drawn = plot_frontier(self._choices.frontier, self._decision.candidates, ax)
        if self.untrained_:
            drawn.set_title(fill(not_trained(self.untrained_), 70), fontsize="small")
        return drawn

    def report(
        self,
        path: str | PathLike[str],
        X: Any = None,
        y: Any = None,
        *,
        horizons: Any = None,
        time_unit: str = "",
        clusters: Any = None,
        min_cell: int = MIN_CELL,
        patients: Any = None,
        train: bool = True,
    ) -> Path:
        """Write the frontier as a page to choose on: one HTML file that needs no network.

        On top stands what ``select()`` chose and why. D-calibration is drawn against concordance, likelihood and IBS,
        one point for each line of `candidates_`, with the spread over seeds and the floor of a perfect model. A click
        on a point, or the slider, picks a model, and everything below follows: the histogram of F and its
        distribution, calibration curves at the horizons, mean survival curves of rows of low, middle and high risk, and
        all values. No single row can be read off the page, unless `patients` asks for it.

        Parameters
        ----------
        path
            The file; written whole or not at all.
        X, y
            Rows to measure all models on, as in `fit`. Those that no model was trained on are the
            fairest; those given to `fit` as ``validation_data`` are the ones that `candidates_` was measured on.
            Of more than 10,000 rows, so many are drawn at random, and the page says so. Of several causes the page is
            about the first event, whatever its cause.
        horizons : number or array-like, optional
            Times at which risks are compared with what happened; by default quartiles of the event times, as readable
            numbers. After the last time seen in training the models extrapolate, and the page says so.
        time_unit : str
            Unit of the times in words, such as "months".
        clusters : array-like of shape (n,), optional
            Rows with the same label, those of one patient for instance, may depend on each other: floor and test of
            D-calibration count clusters. Bands in the pictures count rows.
        min_cell : int
            Rows below which a bin of a histogram or a risk group is merged with its neighbours, as in `xcal.audit`.
        patients : sequence of int, optional
            Up to three rows of `X`, by position, whose own survival curves are drawn in place of the means, with the
            time and the event of each. Whoever has the page then has these.
        train : bool
            Whether weights that were not trained are trained first. Without it, or without the rows of `fit`, the page
            names them.

        Returns
        -------
        Path
            The file.
        """
        check_is_fitted(self)
        if X is None:
            fail("X", "rows to measure the models on, with their y: report(path, X, y)", "None")
        from xcal.estimators import frontier_page as page

        check_rows({"X": X, "clusters": clusters})
        x = read_rows(self, X, reset=False)
        outcome, weights = self._judged(X, y, None, len(x))
        outcome = outcome.limited("y", causes=True)
        outcome = replace(outcome, time=outcome.time.astype(np.float64), cause=None, causes=())  # all of them together
        if weights is not None and effective_units(weights) is not None:
            fail("X", "rows of equal weight: this page takes no weights (xcal.audit does)", "SurvivalData with weights")
        end = float(self.fitted_[0].outputs.grid[-1])
        rows = page.given_rows(X, x, outcome, horizons, end=end, clusters=clusters, min_cell=min_cell)
        shown = page.read_patients(patients, x, outcome)
        if as_flag("train", train) and self._so_far is not None:
            self._train(self.untrained_, "report")
        measured = page.measure_frontier(self._choices.lines(), self._choices.networks(), rows, time_unit, shown)
        words = f"SurvivalPath, {self.distribution}"
        report = page.FrontierReport(measured, self.selection_, self.candidates_, words, time_unit, self.untrained_)
        return page.write_frontier(report, Path(path))

    def save(self, path: str | PathLike[str]) -> None:
        """Write what was trained, and its values, to one file; see `SurvivalModel.save`. Rows are not written."""
        check_is_fitted(self)
        extra = {
            "frontier": self._choices.frontier.to_dict("list"),
            "candidates": self._decision.candidates.to_dict("list"),
            "selection": asdict(self.selection_),
        }
        if self.cross_fitted_ is not None:
            extra["cross_fitted"] = self.cross_fitted_.to_dict("list")
        write_estimator(path, self, self.fitted_, extra, self._choices.maps)

    def _repr_html_(self) -> str:
        """Return scikit-learn's diagram, and of a fitted path what it chose, why, and from what."""
        diagram = str(estimator_html_repr(self))
        if not self.__sklearn_is_fitted__():
            return diagram
        numbers = {name: "{:.3g}".format for name in self.candidates_.select_dtypes("number").columns}
        table = self.candidates_.to_html(index=False, formatters=numbers, border=0)
        return f"{diagram}<p>Chosen: {escape(self.selection_.reason)}.</p>{table}"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return what a notebook shows; scikit-learn's setting ``display="text"`` is kept."""
        plain = {"text/plain": repr(self)}
        return plain | {"text/html": self._repr_html_()} if get_config()["display"] == "diagram" else plain

    def _adopt(self, so_far: PathSoFar, table: pd.DataFrame, decision: Decision) -> None:
        """Take over what was trained; an interrupt of it is passed on."""
        left = so_far.untrained
        self._so_far = so_far.interrupted(False) if left else None  # nobody needs the rows any more
        self._take(so_far.path.models, table, decision, left, so_far.seeds)
        so_far.path.pass_interrupt_on()

    def _take(
        self,
        models: tuple[FittedModel, ...],
        table: pd.DataFrame,
        decision: Decision,
        untrained: tuple[float, ...],
        seeds: Iterable[int],
    ) -> Self:
        target = None if self.target_dcal is None else float(self.target_dcal)
        self._choices = Choices(models, table, decision.maps, decision.selection, self.average, target)
        self._decision, self.untrained_, self.fitted_ = decision, untrained, models
        lambdas, of = zip(*product(untrained, seeds), strict=True) if untrained else ((), ())
        self.frontier_ = with_untrained(table, {"lambda": lambdas, "seed": of})
        self.candidates_ = with_untrained(decision.candidates, {"lambda": self.untrained_})
        self.cross_fitted_ = decision.cross_fitted
        self.selection_ = decision.selection
        self.selected_ = self._choices.line_of_selection
        return self

    def _train(self, lambdas: Sequence[float], name: str) -> None:
        """Train weights that were not trained yet; `name` is the argument that asks for them."""
        if not lambdas:
            return
        if self._so_far is None:
            weights = ", ".join(f"{lam:g}" for lam in lambdas)
            fail(
                name,
                "weights that were trained, as a path that was saved, copied or pickled has no rows to train others on "
                "(fit it again with path='always')",
                f"lambda {weights}",
            )
        # Who asks may be one of several processes that have trained together.
        alone = replace(self._so_far, settings=replace(self._so_far.settings, distributed=None))
        so_far = alone.further(lambdas)
        table, decision = so_far.decided(self._decision)
        self._adopt(so_far, table, replace(decision, selection=self.selection_))

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle has: everything but the rows of `fit`."""
        state: dict[str, Any] = super().__getstate__()
        return state | {"_so_far": None} if "_so_far" in state else state

    def _as_model(self, chosen: Chosen) -> SurvivalModel:
        members, recalibration = chosen
        shared = {name: getattr(self, name) for name in SHARED if name != "random_state"}
        first = members[0]
        if len(members) == 1:
            own: dict[str, Any] = {"random_state": first.seed}
        else:
            # With these a model fitted anew has the split of the path, and its seeds.
            split = self.random_state if isinstance(self.random_state, int | np.integer) else first.seed
            own = {"random_state": split, "seeds": tuple(member.seed for member in members)}
        model = SurvivalModel(**shared, xcal_lambda=first.lam, **own)
        model.n_features_in_ = self.n_features_in_
        for name in ("feature_names_in_", "encoding_"):
            if hasattr(self, name):
                setattr(model, name, getattr(self, name))
        return model._adopt(combined(members, recalibration))

    def _predicting_model(self) -> PredictingModel:
        return combined(*self._choices.selected())

    def _weights(self) -> tuple[list[float], float | None]:
        """Check the weights and the target, of which one is given at most."""
        lambdas = checked_lambdas(self.lambdas)
        if len(set(lambdas)) < len(lambdas):
            fail("lambdas", "different weights", repr(lambdas))
        if self.target_dcal is None:
            return lambdas, None
        target = checked_target(self.target_dcal)
        if tuple(lambdas) != LAMBDAS:
            fail("lambdas", "its default with target_dcal, which finds the weight itself", repr(self.lambdas))
        return lambdas, target

    @classmethod
    def _from_saved(cls, saved: SavedEstimator) -> Self:
        path = cls(**saved.parameters)
        saved.set_features(path)
        table, lines = (pd.DataFrame(saved.extra[name]) for name in ("frontier", "candidates"))
        on_all = saved.extra.get("cross_fitted")
        judged = None if on_all is None else pd.DataFrame(on_all)
        decision = Decision(Selection(**saved.extra["selection"]), lines, judged, saved.maps, None, settled=True)
        path._so_far = None
        known, seeds = set(table["lambda"]), dict.fromkeys(int(seed) for seed in table["seed"])
        lambdas = [] if path.target_dcal is not None else checked_lambdas(path.lambdas)
        left = tuple(lam for lam in lambdas if lam not in known)
        return path._take(saved.models, table, decision, left, seeds)
