"""Training behind both estimators: a model is a path of one."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from xcal._checks import fail, first_row
from xcal.calibration.subgroups import Column
from xcal.data.features import MappedFeatures, pieces
from xcal.data.surv import Outcome
from xcal.data.survival import SurvivalData
from xcal.estimators.fitted import FittedModel, Outputs, Own, Standardizer, in_own_memory
from xcal.estimators.inputs import (
    check_events,
    check_no_event_at_zero,
    read_table,
    read_validation,
    warn_of_few_events,
)
from xcal.estimators.settings import FEATURES, OBJECTIVES, Settings
from xcal.metrics.pseudo_values import found_censoring
from xcal.networks import MLP, start_near
from xcal.recalibration.predictor import ConformalScores
from xcal.training.path import fit_path, usual_penalty
from xcal.training.result import History, PathResult

# --- Training.


@dataclass(frozen=True, eq=False)
class TrainedPath:
    """Models of all lambdas and seeds, the rows that they saw, and whether training was interrupted.

    `split` says whether the validation rows were drawn from those given to `fit`; `dcal_floor` is what epochs are
    chosen above.
    """

    models: tuple[FittedModel, ...]
    train: SurvivalData
    validation: SurvivalData
    split: bool
    interrupted: bool
    dcal_floor: float

    def pass_interrupt_on(self) -> None:
        """Raise the keyboard interrupt that ended training, now that what was trained is kept.

        Cross-validation and other callers must see it: they would otherwise go on with the next fit.
        """
        if self.interrupted:
            raise KeyboardInterrupt("interrupted; the estimator is fitted with the best weights until then")


def fit_models(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    validation_data: Any,
    *,
    settings: Settings,
    lambdas: Sequence[float],
    seeds: Sequence[int],
    later: Sequence[float] = (),
    target_dcal: float | None = None,
    checkpoint: str | PathLike[str] | None = None,
    validation_clusters: Any = None,
) -> TrainedPath:
    """Check the data, scale it, train, and put every model together with its scaling.

    The rows are checked for the weights that may be trained `later`, too.
    """
    train, validation = _parts(estimator, X, y, sample_weight, validation_data, validation_clusters, settings)
    penalised = target_dcal is not None or max([*lambdas, *later]) > 0
    if penalised and train.n < settings.calibration_bins:
        fail("calibration_bins", f"at most {train.n}, the number of rows to train on", settings.calibration_bins)
    floor = _floor(validation, settings.calibration_bins, penalised=penalised)
    if target_dcal is not None and target_dcal < floor.mean:
        # Only luck can reach it: the weight would grow without end, and the model with it be ruined.
        scores = (
            f"at least {floor.mean:.2g}, what a perfect model scores on average on the {validation.n} validation rows"
        )
        fail("target_dcal", f"{scores} (give more rows, or fewer calibration_bins)", f"{target_dcal:g}")
    options: dict[str, Any] = {"lambdas": lambdas} if target_dcal is None else {"target_dcal": target_dcal}
    options["checkpoint"] = checkpoint
    result, models = train_on(train, validation, settings, seeds=seeds, dcal_floor=floor.upper, **options)
    _report(result, target_dcal)
    models = _scored(models, train, validation)
    return TrainedPath(models, train, validation, validation_data is None, result.interrupted, floor.upper)


def fit_further(
    path: TrainedPath,
    lambdas: Sequence[float],
    seeds: Sequence[int],
    settings: Settings,
    checkpoint: Path | None = None,
) -> TrainedPath:
    """Train more weights on the rows of a path; an interrupt keeps what was trained, and is told."""
    options: dict[str, Any] = {"seeds": seeds, "dcal_floor": path.dcal_floor, "checkpoint": checkpoint}
    result, models = train_on(path.train, path.validation, settings, lambdas=lambdas, **options)
    if result.interrupted and not result.history.epochs:
        return replace(path, interrupted=True)
    _warn_of_failures(result)
    models = _scored(models, path.train, path.validation)
    return replace(path, models=(*path.models, *models), interrupted=result.interrupted)


def train_on(
    train: SurvivalData, validation: SurvivalData, settings: Settings, **options: Any
) -> tuple[PathResult, tuple[FittedModel, ...]]:
    """Scale checked rows by those to train on, and train; `options` are those of `fit_path`."""
    standardizer, outputs = Standardizer.of(train), Outputs.of(train, settings)
    rows = [_scaled(part, standardizer, outputs) for part in (train, validation)]
    family = outputs.family()
    seen = {name: own for name in ("entry", "lower") if (own := getattr(rows[0], name)) is not None}
    start = family.initial(rows[0].time, rows[0].event if rows[0].cause is None else rows[0].cause, **seen)
    sizes = train.x.shape[1], family.n_outputs

    def make_network() -> MLP:
        # In the type of the rows: torch's default type, which a program may have changed, would draw other weights.
        network = MLP(*sizes, hidden=settings.hidden, dropout=settings.dropout, dtype=torch.float32)
        start_near(network.output, start)  # the Kaplan-Meier curve
        return network

    # On a CPU, networks of one weight are faster one after another: none of them gains from its neighbours.
    several = len(options.get("lambdas", ())) > 1 or settings.where().type != "cpu"
    fixed: dict[str, Any] = {
        "mode": "auto" if several else "sequential",
        "config": settings.training_config(),
        "progress": settings.progress,
        "penalty": usual_penalty(conditional=settings.conditional, temperature=settings.penalty_temperature),
        "conditional": FEATURES if settings.conditional else None,
        "distributed": settings.distributed,
    }
    result = fit_path(
        make_network,
        family,
        *rows,
        objective=OBJECTIVES[settings.objective](rows[0]),
        calibration_bins=settings.calibration_bins,
        device=settings.where(),
        **(fixed | options),
    )
    return result, tuple(_fitted(result, index, standardizer, outputs) for index in range(result.n_models))


# Validation rows, and rows of each kind for the model of their censoring, from which intervals are made at most; and
# columns that their censoring may depend on.
_MOST_SCORED, _MOST_COLUMNS = 10_000, 50


def _scored(models: tuple[FittedModel, ...], train: SurvivalData, validation: SurvivalData) -> tuple[FittedModel, ...]:
    """Give the models what intervals are made of: F at the events of rows that did not train them, but chose epochs."""
    if isinstance(validation.x, MappedFeatures):
        return models  # a file of any size
    rows = validation[np.unique(np.linspace(0, validation.n - 1, _MOST_SCORED).astype(int))]
    if not rows.event.any():
        return models
    more = None
    if not isinstance(train.x, MappedFeatures):
        more = train[np.unique(np.linspace(0, train.n - 1, _MOST_SCORED).astype(int))]
    return scored_by(models, rows, more)


def scored_by(
    models: tuple[FittedModel, ...], rows: SurvivalData, more: SurvivalData | None = None
) -> tuple[FittedModel, ...]:
    """Give models what intervals are made of by these rows; others may tell `more` about the censoring.

    Not by rows that are seen in part, or have causes.
    """
    if not rows.plain:
        return models
    seen = [rows] if more is None else [more, rows]
    x, time, event = (np.concatenate([getattr(part, name) for part in seen]) for name in ("x", "time", "event"))
    wide = x.shape[1] > _MOST_COLUMNS
    columns = () if wide else tuple(Column(str(k), own) for k, own in enumerate(x.T) if np.ptp(own) > 0)
    risk = models[0].risk(x) if wide else np.zeros(time.size)
    uncensored = found_censoring(columns, risk, Outcome(time, event)).before(time)[-rows.n :]

    def given(model: FittedModel) -> FittedModel:
        if model.best_epoch < 0:
            return model
        cdf = model.cdf_at_own(rows.x, rows.time)
        return replace(model, own_scores=ConformalScores.of(cdf, rows.event, uncensored, rows.weights))

    return tuple(given(model) for model in models)


def trained(models: Sequence[FittedModel]) -> tuple[FittedModel, ...]:
    """Models with a finished epoch, of which there is at least one: only they are averaged."""
    return tuple(model for model in models if model.best_epoch >= 0)


def _parts(
    estimator: Any, X: Any, y: Any, sample_weight: Any, validation_data: Any, clusters: Any, settings: Settings
) -> tuple[SurvivalData, SurvivalData]:
    """Read and check the rows to train on and those to validate on."""
    table = read_table(estimator, X, y, sample_weight)
    check_events(table, discrete=settings.discrete, split=validation_data is None)
    warn_of_few_events(table)
    if not settings.discrete:
        check_no_event_at_zero(table, "y")
    if settings.conditional and not table.plain:
        fail("calibration", "'marginal' for rows that are seen in part, or of several causes", "'conditional'")
    if validation_data is None:
        # All seeds of a path share the split, so that their values can be compared.
        share = settings.validation_fraction
        train, validation = table.split((1 - share, share), seed=settings.seed())
        return train, validation
    validation = read_validation(estimator, validation_data, clusters)
    if (validation.cause is None) != (table.cause is None) or len(validation.causes) > len(table.causes):
        expected = f"the causes of y: {', '.join(map(repr, table.causes)) or 'none'}"
        fail("validation_data", expected, ", ".join(map(repr, validation.causes)) or "none")
    validation = validation.replaced(causes=table.causes)
    if not settings.discrete:
        check_no_event_at_zero(validation, "validation_data")
    return table, validation


# D-calibration of the Kaplan-Meier curve on its own rows, as a multiple of the floor. Times without ties give less
# than 2 however few they are; more than this is the work of ties.
_MOST_BY_TIES = 10.0


@dataclass(frozen=True)
class _Floor:
    """D-calibration that a perfect model scores on some rows: its mean, and two standard deviations above it."""

    mean: float
    upper: float


def _floor(validation: SurvivalData, n_bins: int, *, penalised: bool) -> _Floor:
    """D-calibration that a perfect model scores on the validation rows; differences below its upper end are noise.

    Without covariates the Kaplan-Meier curve is such a model. The score is about a chi-squared variable with n_bins - 1
    degrees of freedom, scaled to have the floor as its mean. Two standard deviations are added: the lowest of many
    epochs would otherwise be one that the noise of these rows happens to favour. Unequal weights make it larger.
    """
    plain = {} if validation.cause is not None else {"p_value": None}
    measured = Own.perfect(validation).calibration(validation.replaced(groups=None), n_bins, **plain)
    if penalised and measured.value > _MOST_BY_TIES * measured.floor:
        warnings.warn(
            f"the times take few distinct values ({np.unique(validation.time).size} among {validation.n} validation "
            f"rows): even their Kaplan-Meier curve scores a D-calibration of {measured.value:.2g} where noise gives "
            f"{measured.floor:.2g}, so neither D-calibration nor the penalty can be trusted. Use finer times, fewer "
            "calibration_bins, or no penalty (xcal_lambda=0)",
            UserWarning,
            stacklevel=4,
        )
    mean = measured.floor
    return _Floor(mean, mean * (1 + 2 * math.sqrt(2 / (n_bins - 1))))


def _scaled(table: SurvivalData, standardizer: Standardizer, outputs: Outputs) -> SurvivalData:
    """Rows in the units of the network. They were checked before; only the range of float32 may be left now."""

    def in_scale(rows: Any) -> Any:
        with np.errstate(over="ignore"):
            return standardizer(rows).astype(np.float32)

    in_file = isinstance(table.x, MappedFeatures)
    x = table.x.changed(in_scale) if in_file else in_scale(table.x)
    names = ("time", "entry", "lower")
    times: dict[str, Any] = {
        name: None if (own := getattr(table, name)) is None else own / outputs.time_scale for name in names
    }
    with np.errstate(over="ignore"):
        infinite = np.concatenate([~np.isfinite(piece).all(1) for piece in (pieces(x) if in_file else (x,))])
        bad = {"X": infinite, "y": ~np.isfinite(times["time"].astype(np.float32))}
    for name, rows in bad.items():
        if rows.any():
            values = "features" if name == "X" else "times"
            fail(
                name, f"{values} within the range of float32 in the scale of the training rows", "more", first_row(rows)
            )
    return table.replaced(x=x if in_file else in_own_memory(x), **times)


def _fitted(result: PathResult, index: int, standardizer: Standardizer, outputs: Outputs) -> FittedModel:
    network = result.network(index).cpu().double().requires_grad_(False)
    history = result.history
    column = slice(index, index + 1)
    return FittedModel(
        standardizer,
        outputs,
        network,
        float(result.lambdas[index]),
        int(result.seeds[index]),
        int(result.best_epoch[index]),
        History(history.objective[:, column], history.dcal[:, column], history.total[:, column]),
    )


def _report(result: PathResult, target_dcal: float | None) -> None:
    """Warn of what went wrong in training; a path of which nothing can be used is an error."""
    if result.interrupted and not result.history.epochs:
        raise KeyboardInterrupt("interrupted in the first epoch: the estimator is not fitted")
    if (result.best_epoch < 0).all():
        fail("fit", "a finite loss in the first epoch (try a smaller learning_rate)", f"{result!r}")
    _warn_of_failures(result)
    lowest = float(np.nanmin(result.best().dcal))
    if target_dcal is not None and lowest > target_dcal:
        warnings.warn(
            f"no seed reached target_dcal={target_dcal:g}: the lowest D-calibration on the validation rows is "
            f"{lowest:.3g}. Train for more epochs or ask for less",
            ConvergenceWarning,
            stacklevel=4,
        )


def _warn_of_failures(result: PathResult) -> None:
    if result.failures:
        told = "; ".join(
            f"lambda {result.lambdas[f.model]:g}, seed {result.seeds[f.model]}: {f}" for f in result.failures
        )
        warnings.warn(f"some models stopped early: {told}", ConvergenceWarning, stacklevel=5)
