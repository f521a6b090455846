"""A trained path: what it chose, what can be chosen instead, how it is shown and kept."""

from dataclasses import asdict
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn import get_config
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted

from xcal._checks import MIN_CELL, check_rows, effective_units, fail
from xcal.estimators.choices import Choices, Chosen
from xcal.estimators.crossfit import trained_as
from xcal.estimators.decision import Decision
from xcal.estimators.features import read_rows
from xcal.estimators.fitted import FittedModel, PredictingModel, combined
from xcal.estimators.inputs import read_judged_weights, read_outcome, read_table
from xcal.estimators.model import SurvivalModel
from xcal.estimators.persistence import write_estimator
from xcal.estimators.plotting import plot_frontier
from xcal.estimators.prediction import SurvivalPredictor
from xcal.estimators.selection import Selection, choose, largest_within_one_error, summarise
from xcal.estimators.settings import SHARED, Settings


class TrainedChoice(SurvivalPredictor):
    """Interface of a path that was trained: everything here asks what `fit` has left, and trains nothing but `refit`.

    The attributes are those of `SurvivalPath`.
    """

    average: bool
    calibration_bins: int
    distribution: str
    random_state: Any
    target_dcal: float | None
    n_features_in_: int
    fitted_: tuple[FittedModel, ...]
    frontier_: pd.DataFrame
    candidates_: pd.DataFrame
    cross_fitted_: pd.DataFrame | None
    selection_: Selection
    selected_: int
    _choices: Choices

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
            judge (see `cross_fit`) show that it is off (Akritas' test, p < .05). Then, of the candidates whose
            D-calibration is lower by more than two standard errors and whose NLL is at most one standard error higher,
            the smallest step that the same test does not find off: the recalibrated smallest weight, then the other
            weights in their order; if it finds all of them off, the one with the lowest D-calibration. With
            ``calibration="conditional"`` the same by the value and the test of `xcal.conditional_calibration`.
            `selection_` says in words what was decided. With `target_dcal` the default is the seed with the lowest NLL
            among those that reached the target.

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
        if max_dcal is None and max_concordance_drop is None and rule == "one_standard_error":
            return self.model(largest_within_one_error(self.frontier_))
        lam, recalibrated = choose(
            self.candidates_, max_dcal=max_dcal, max_concordance_drop=max_concordance_drop, rule=rule
        )
        return self.model(lam, recalibrated=recalibrated)

    def model(self, lam: float, seed: int | None = None, *, recalibrated: bool = False) -> SurvivalModel:
        """Return the fitted model of a weight: of one seed if it is given, else of all (see `average`).

        With `recalibrated` it has the map of F that was fitted to the validation rows; see `candidates_`.
        """
        check_is_fitted(self)
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
        """Means over seeds of the frontier's values, and their standard deviations, by lambda."""
        check_is_fitted(self)
        return summarise(self.frontier_)

    def plot(self, ax: Any = None) -> Any:
        """Draw D-calibration against concordance, one point per weight, and one per weight after recalibration.

        Returns the matplotlib axes.
        """
        check_is_fitted(self)
        return plot_frontier(self.frontier_, self.candidates_, ax)

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
            Rows to measure all models on, as in `fit`. A path keeps no rows. Those that no model was trained on are the
            fairest; those given to `fit` as ``validation_data`` are the ones that `candidates_` was measured on.
            Of more than 10,000 rows, so many are drawn at random, and the page says so.
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

        Returns
        -------
        Path
            The file.
        """
        check_is_fitted(self)
        if X is None:
            fail("X", "rows to measure the models on, with their y: report(path, X, y), as a path keeps none", "None")
        from xcal.estimators.frontier.page import FrontierReport, write_frontier
        from xcal.estimators.frontier.values import given_rows, measure_frontier, read_patients
        from xcal.metrics.pit_histogram import N_BINS

        check_rows({"X": X, "clusters": clusters})
        x = read_rows(self, X, reset=False)
        time, event = read_outcome(X, y, len(x))
        weights = read_judged_weights(X, None, len(x))
        if weights is not None and effective_units(weights) is not None:
            fail("X", "rows of equal weight: this page takes no weights (xcal.audit does)", "SurvivalData with weights")
        end = float(self.fitted_[0].outputs.grid[-1])
        rows = given_rows(x, time, event, horizons, n_bins=N_BINS, end=end, clusters=clusters, min_cell=min_cell)
        shown = read_patients(patients, x, time, event)
        measured = measure_frontier(self._choices.lines(), self._choices.networks(), rows, shown)
        words = f"SurvivalPath, {self.distribution}"
        return write_frontier(FrontierReport(measured, self.selection_, self.candidates_, words, time_unit), Path(path))

    def save(self, path: str | PathLike[str]) -> None:
        """Write all models and the frontier to one file; see `SurvivalModel.save`."""
        check_is_fitted(self)
        extra = {
            "frontier": self.frontier_.to_dict("list"),
            "candidates": self.candidates_.to_dict("list"),
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

    def _adopt(self, models: tuple[FittedModel, ...], table: pd.DataFrame, decision: Decision) -> Self:
        target = None if self.target_dcal is None else float(self.target_dcal)
        self._choices = Choices(models, table, decision.maps, decision.selection, self.average, target)
        self.fitted_ = models
        self.frontier_ = table
        self.candidates_ = decision.candidates
        self.cross_fitted_ = decision.cross_fitted
        self.selection_ = decision.selection
        self.selected_ = self._choices.line_of_selection
        return self

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
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        if hasattr(self, "encoding_"):
            model.encoding_ = self.encoding_
        return model._adopt(combined(members, recalibration))

    def _predicting_model(self) -> PredictingModel:
        return combined(*self._choices.selected())
