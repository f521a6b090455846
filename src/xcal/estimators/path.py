"""`SurvivalPath`: every weight and seed in one run, and the choice among them."""

import warnings
from collections.abc import Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from xcal._checks import fail
from xcal.estimators.fitted import FittedModel
from xcal.estimators.fitting import fit_models
from xcal.estimators.model import SurvivalModel
from xcal.estimators.persistence import SavedEstimator, write_estimator
from xcal.estimators.plotting import plot_frontier
from xcal.estimators.prediction import SurvivalPredictor
from xcal.estimators.selection import Selection, cannot_judge, choose, frontier, summarise, when_needed
from xcal.estimators.settings import DEFAULTS, LAMBDAS, SHARED, Settings, checked_seeds, checked_target
from xcal.training.arguments import checked_lambdas
from xcal.training.progress import Progress


class SurvivalPath(SurvivalPredictor):
    """One model for every weight of the calibration penalty and every seed, trained in one run.

    How much likelihood or concordance is calibration worth? The path shows the choices that the data offer
    (`frontier_`, `plot`), and `select` makes one.

    Parameters
    ----------
    lambdas : sequence of float
        Weights of the calibration penalty.
    seeds : int or sequence of int
        Models for each weight: so many seeds counted from `random_state`, or these.
    target_dcal : float, optional
        Instead of `lambdas`: the D-calibration to reach. Each seed finds its weight by dual ascent, in one run.
    distribution, hidden, dropout, objective, interpolation, n_time_bins, calibration_bins, epochs, batch_size, \
learning_rate, weight_decay, patience, validation_fraction, random_state, device, progress
        As in `SurvivalModel`. All models share the split into training and validation rows.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        As in `SurvivalModel`.
    frontier_ : DataFrame
        One line for each model, its values on the validation rows: lambda, seed, nll (in the unit of the times), dcal,
        dcal_floor (what a perfect model would score on average), dcal_p (Akritas' test of a perfect model),
        concordance, total (objective + lambda times the amount by which dcal exceeds its noise level, by which epochs
        are chosen, in the network's unit of time; see `SurvivalModel`), best_epoch. The rest is the same for all seeds
        of a lambda: nll_gap_se, the standard error over rows of its distance to the lowest mean nll; dcal_gap_se, that
        of the distance of its mean dcal to the smallest lambda's; and the standard deviations over seeds nll_sd,
        dcal_sd, concordance_sd (NaN with one seed). As epochs were chosen on these rows, dcal is a little too good:
        judge the chosen model by `d_calibration` on fresh rows.
    fitted_ : tuple of FittedModel
        In the order of `frontier_`.
    selection_ : Selection
        What ``select()`` chose, and why: `lam`, `rule` and `reason`, a sentence.
    selected_ : int
        Line of the model that the path predicts with: the one that ``select()`` returns.

    Examples
    --------
    >>> from xcal import Surv
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 3))
    >>> happens, leaves = rng.exponential(np.exp(X[:, 0])), rng.exponential(2.0, 300)
    >>> y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)
    >>> path = SurvivalPath(lambdas=(0, 10, 100), seeds=2, epochs=10).fit(X, y)
    >>> path.frontier_[["lambda", "seed"]].to_numpy().tolist()
    [[0.0, 0.0], [10.0, 0.0], [100.0, 0.0], [0.0, 1.0], [10.0, 1.0], [100.0, 1.0]]
    >>> path.select(rule="one_standard_error").xcal_lambda in (0, 10, 100)
    True
    """

    def __init__(
        self,
        lambdas: Sequence[float] = LAMBDAS,
        seeds: int | Sequence[int] = 3,
        *,
        target_dcal: float | None = None,
        distribution: str = DEFAULTS.distribution,
        hidden: Sequence[int] = DEFAULTS.hidden,
        dropout: float = DEFAULTS.dropout,
        objective: str = DEFAULTS.objective,
        interpolation: str = DEFAULTS.interpolation,
        n_time_bins: int | None = DEFAULTS.n_time_bins,
        calibration_bins: int = DEFAULTS.calibration_bins,
        epochs: int = DEFAULTS.epochs,
        batch_size: int = DEFAULTS.batch_size,
        learning_rate: float = DEFAULTS.learning_rate,
        weight_decay: float = DEFAULTS.weight_decay,
        patience: int | None = DEFAULTS.patience,
        validation_fraction: float = DEFAULTS.validation_fraction,
        random_state: Any = DEFAULTS.random_state,
        device: str = DEFAULTS.device,
        progress: Progress = DEFAULTS.progress,
    ) -> None:
        self.lambdas = lambdas
        self.seeds = seeds
        self.target_dcal = target_dcal
        self.distribution = distribution
        self.hidden = hidden
        self.dropout = dropout
        self.objective = objective
        self.interpolation = interpolation
        self.n_time_bins = n_time_bins
        self.calibration_bins = calibration_bins
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, validation_data: Any = None) -> Self:
        """Train all models; arguments and interrupts as in `SurvivalModel.fit`.

        Warns if the validation rows cannot show whether the smallest weight is off, which is then kept.
        """
        settings = Settings.of(self)
        lambdas, target = checked_lambdas(self.lambdas), None
        if len(set(lambdas)) < len(lambdas):
            fail("lambdas", "different weights", repr(lambdas))
        if self.target_dcal is not None:
            target = checked_target(self.target_dcal)
            if tuple(lambdas) != LAMBDAS:
                fail("lambdas", "its default with target_dcal, which finds the weight itself", repr(self.lambdas))
        path = fit_models(
            self,
            X,
            y,
            sample_weight,
            validation_data,
            settings=settings,
            lambdas=lambdas,
            seeds=checked_seeds(self.seeds, settings.seed()),
            target_dcal=target,
        )
        table = frontier(path.models, path.validation, settings.calibration_bins, one_group=target is not None)
        if target is None:
            selection = _when_needed(table, cannot_judge(path.validation, settings.calibration_bins))
        else:
            selection = _by_target(table, target)
        self._adopt(path.models, table, selection)
        path.pass_interrupt_on()
        return self

    def select(
        self,
        *,
        max_dcal: float | None = None,
        max_concordance_drop: float | None = None,
        rule: str | None = None,
    ) -> SurvivalModel:
        """Return the model that one rule chooses, by means over the seeds on the validation rows.

        Of the chosen lambda it is the seed with the lowest total: objective + lambda times the amount by which
        D-calibration exceeds its noise level.

        Parameters
        ----------
        max_dcal
            Of the weights whose D-calibration is at most this, the one with the lowest NLL.
        max_concordance_drop
            Of the weights whose concordance is at most this far below the best one, that with the lowest D-calibration.
        rule : {"when_needed", "one_standard_error"}
            "when_needed", the default if nothing else is given: the smallest weight, 0 as a rule, unless the validation
            rows show that it is off (Akritas' test, p < .05). Then, of the weights whose D-calibration is lower by more
            than two standard errors and whose NLL is at most one standard error above the lowest, the smallest that the
            same test does not find off; if it finds all of them off, the one with the lowest D-calibration.
            `selection_` says in words what was decided. With `target_dcal` the default is the seed with the lowest NLL
            among those that reached the target.

            "one_standard_error": the largest weight whose NLL is at most one standard error above the lowest, whether
            the model needs it or not. The error is that of the difference over the validation rows. The fewer they are,
            the larger it is, and the larger the weight: on few rows this rule costs concordance.

        Returns
        -------
        SurvivalModel
            Fitted. Its `random_state` is the seed.
        """
        check_is_fitted(self)
        if max_dcal is None and max_concordance_drop is None and rule in (None, self.selection_.rule):
            return self._as_model(self.selected_)
        lam = choose(self.frontier_, max_dcal=max_dcal, max_concordance_drop=max_concordance_drop, rule=rule)
        return self.model(lam)

    def model(self, lam: float, seed: int | None = None) -> SurvivalModel:
        """Return the fitted model of a weight, and of a seed or else the seed with the lowest total."""
        check_is_fitted(self)
        return self._as_model(self._line(lam, seed))

    def summary(self) -> pd.DataFrame:
        """Means over seeds of the frontier's values, and their standard deviations, by lambda."""
        check_is_fitted(self)
        return summarise(self.frontier_)

    def plot(self, ax: Any = None) -> Any:
        """Draw D-calibration against concordance, one point per weight; returns the matplotlib axes."""
        check_is_fitted(self)
        return plot_frontier(self.frontier_, ax)

    def save(self, path: str | PathLike[str]) -> None:
        """Write all models and the frontier to one file; see `SurvivalModel.save`."""
        check_is_fitted(self)
        extra = {"frontier": self.frontier_.to_dict("list"), "selection": asdict(self.selection_)}
        write_estimator(path, self, self.fitted_, extra)

    @classmethod
    def _from_saved(cls, saved: SavedEstimator) -> Self:
        path = cls(**saved.parameters)
        saved.set_features(path)
        table = pd.DataFrame(saved.extra["frontier"])
        known = saved.extra.get("selection")
        selection = _as_before(path, table) if known is None else Selection(**known)
        return path._adopt(saved.models, table, selection)

    def _adopt(self, models: tuple[FittedModel, ...], table: pd.DataFrame, selection: Selection) -> Self:
        self.fitted_ = models
        self.frontier_ = table
        self.selection_ = selection
        if self.target_dcal is None:
            self.selected_ = self._line(selection.lam)
        else:
            self.selected_ = _nearest_to(table, float(self.target_dcal))
        return self

    def _line(self, lam: float, seed: int | None = None) -> int:
        table = self.frontier_
        found = np.flatnonzero((table["lambda"] == lam) & ((seed is None) | (table["seed"] == seed)))
        if found.size == 0:
            known = ", ".join(f"{value:g}" for value in sorted(set(table["lambda"])))
            fail("lam", f"one of {known} with a seed of the path", f"{lam}, seed {seed}")
        totals = table["total"].to_numpy()[found]
        return int(found[0] if np.isnan(totals).all() else found[np.nanargmin(totals)])

    def _as_model(self, line: int) -> SurvivalModel:
        fitted = self.fitted_[line]
        shared = {name: getattr(self, name) for name in SHARED if name != "random_state"}
        model = SurvivalModel(**shared, xcal_lambda=fitted.lam, random_state=fitted.seed)
        model.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_
        return model._adopt(fitted)

    def _predicting_model(self) -> FittedModel:
        return self.fitted_[self.selected_]


def _when_needed(table: pd.DataFrame, doubt: str | None) -> Selection:
    """Choose by the default rule, and warn the caller of `fit` if the validation rows cannot show anything."""
    selection = when_needed(table, doubt)
    if doubt is not None and table["lambda"].nunique() > 1:
        warnings.warn(
            f"the path predicts with lambda {selection.lam:g}, its smallest: {doubt}. Give it more rows, or choose by "
            "another rule of select",
            UserWarning,
            stacklevel=3,
        )
    return selection


def _nearest_to(table: pd.DataFrame, target: float) -> int:
    """Line of the lowest NLL among seeds at or below the target, else of the lowest D-calibration."""
    reached = table["dcal"] <= target
    return int(table.loc[reached, "nll"].idxmin() if reached.any() else table["dcal"].idxmin())


def _by_target(table: pd.DataFrame, target: float) -> Selection:
    line = table.loc[_nearest_to(table, target)]
    what = "the seed with the lowest NLL of those that reached" if line["dcal"] <= target else "the seed closest to"
    reason = f"lambda {line['lambda']:.4g}: {what} the target of {target:g}, with a D-calibration of {line['dcal']:.2g}"
    return Selection(float(line["lambda"]), "target_dcal", reason)


def _as_before(path: SurvivalPath, table: pd.DataFrame) -> Selection:
    """Choose for a file of an earlier version what that version chose; the values of the default rule are unknown."""
    table[["dcal_p", "dcal_gap_se"]] = np.nan
    if path.target_dcal is not None:
        return _by_target(table, float(path.target_dcal))
    lam = choose(table, rule="one_standard_error")
    reason = f"lambda {lam:g}: the largest whose NLL is at most one standard error above the lowest"
    return Selection(lam, "one_standard_error", reason)
