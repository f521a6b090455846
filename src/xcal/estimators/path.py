"""`SurvivalPath`: every weight and seed, trained in one run; `trained_choice` has what is done with it afterwards."""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Self

import pandas as pd

from xcal._checks import as_count, as_flag, fail
from xcal.estimators.decision import Decision, decide
from xcal.estimators.fitting import TrainedPath, fit_models
from xcal.estimators.persistence import SavedEstimator
from xcal.estimators.selection import Selection, as_candidates, by_target, frontier
from xcal.estimators.settings import AVERAGE, DEFAULTS, LAMBDAS, Settings, checked_seeds, checked_target
from xcal.estimators.trained_choice import TrainedChoice
from xcal.training.arguments import checked_lambdas
from xcal.training.progress import Progress


class SurvivalPath(TrainedChoice):
    """One model for every weight of the calibration penalty and every seed, trained in one run.

    How much likelihood or concordance is calibration worth? The path shows the choices that the data offer
    (`frontier_`, `plot`), and `select` makes one.

    Parameters
    ----------
    lambdas : sequence of float
        Weights of the calibration penalty.
    seeds : int or sequence of int
        Models for each weight: so many seeds counted from `random_state`, or these.
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
        One line for each model, its values on the validation rows: lambda, seed, nll (in the unit of the times), dcal,
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
        `xcal.conditional_calibration`. Without enough events to judge by, nothing is recalibrated.
    cross_fitted_ : DataFrame or None
        The smallest weight in the same columns, as it is and recalibrated, on all rows, each by networks that have not
        seen it, and its concordance within the folds; None where the validation rows judged. See `cross_fit`.
    fitted_ : tuple of FittedModel
        In the order of `frontier_`.
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
        self.average = average
        self.cross_fit = cross_fit
        self.target_dcal = target_dcal
        self.distribution = distribution
        self.hidden = hidden
        self.dropout = dropout
        self.objective = objective
        self.interpolation = interpolation
        self.n_time_bins = n_time_bins
        self.calibration = calibration
        self.calibration_bins = calibration_bins
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.penalty_schedule = penalty_schedule
        self.penalty_temperature = penalty_temperature
        self.validation_fraction = validation_fraction
        self.encode = encode
        self.random_state = random_state
        self.device = device
        self.distributed = distributed
        self.progress = progress

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
        """Train all models; arguments and interrupts as in `SurvivalModel.fit`.

        With `validation_clusters`, one label per row of `validation_data`, rows with the same label (those of one
        patient, say) may depend on each other: floor, test and errors behind ``select()`` count clusters. They are for
        the marginal penalty.

        With a folder `checkpoint`, the state of training is written there now and then, and a fit that finds its own
        state there resumes from it (`xcal.training.fit_path`).

        Warns if the rows cannot show whether the smallest weight is off, which is then kept.
        """
        settings = Settings.of(self)
        as_flag("average", self.average)
        folds = as_count("cross_fit", self.cross_fit, at_least=0)
        if folds == 1:
            fail("cross_fit", "0, or 2 or more folds", "1")
        lambdas, target = self._weights()
        if validation_clusters is not None and (validation_data is None or settings.conditional):
            got = "none" if validation_data is None else "calibration='conditional'"
            fail("validation_clusters", "validation_data beside it, and calibration='marginal'", got)
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
            checkpoint=checkpoint,
            validation_clusters=validation_clusters,
        )
        try:
            table, decision = self._decided(path, settings, folds, target)
        except KeyboardInterrupt:  # what was trained is kept: the choice is made again, without further training
            path = replace(path, interrupted=True)
            table, decision = self._decided(path, settings, folds, target)
        if decision.doubt is not None and len(lambdas) > 1:
            warnings.warn(
                f"the path predicts with lambda {decision.selection.lam:g}, its smallest: {decision.doubt}. Give "
                "it more rows, or choose by another rule of select",
                UserWarning,
                stacklevel=2,
            )
        self._adopt(path.models, table, decision)
        path.pass_interrupt_on()
        return self

    def _decided(
        self, path: TrainedPath, settings: Settings, folds: int, target: float | None
    ) -> tuple[pd.DataFrame, Decision]:
        """Return the frontier of what was trained, and the choice from it."""
        table = frontier(path.models, path.validation, settings.calibration_bins, one_group=target is not None)
        if target is not None:
            return table, Decision(by_target(table, target), as_candidates(table), None, {}, None)
        return table, decide(path, table, settings, folds=folds, average=self.average)

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
        decision = Decision(Selection(**saved.extra["selection"]), lines, judged, saved.maps, None)
        return path._adopt(saved.models, table, decision)
