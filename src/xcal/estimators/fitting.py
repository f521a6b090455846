"""Training behind both estimators: a model is a path of one."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from xcal._checks import fail
from xcal.calibration import d_calibration
from xcal.estimators.fitted import FittedModel
from xcal.estimators.inputs import Table, check_events, read_table, read_validation, split_table
from xcal.estimators.scaling import Outputs, Standardizer
from xcal.estimators.settings import OBJECTIVES, Settings
from xcal.metrics import kaplan_meier
from xcal.networks import MLP
from xcal.training import History, PathResult, Rows, fit_path
from xcal.training.stack import MakeNetwork


@dataclass(frozen=True, eq=False)
class TrainedPath:
    """Models of all lambdas and seeds, and the rows that they were validated on."""

    models: tuple[FittedModel, ...]
    validation: Table


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
    target_dcal: float | None = None,
) -> TrainedPath:
    """Check the data, scale it, train, and put every model together with its scaling."""
    table = read_table(estimator, X, y, sample_weight)
    if validation_data is None:
        check_events(table, needed=2)
        # All seeds of a path share the split, so that their values can be compared.
        train, validation = split_table(table, settings.validation_fraction, settings.seed())
    else:
        check_events(table, needed=1)
        train, validation = table, read_validation(estimator, validation_data)
    penalised = target_dcal is not None or max(lambdas) > 0
    if penalised and train.n < settings.calibration_bins:
        fail("calibration_bins", f"at most {train.n}, the number of rows to train on", settings.calibration_bins)
    standardizer, outputs = Standardizer.of(train), Outputs.of(train, settings)
    rows = [_rows(part, standardizer, outputs) for part in (train, validation)]
    family = outputs.family()
    make_network = network_maker(settings, train.x.shape[1], family.n_outputs, family.initial(*_outcome(rows[0])))
    options: dict[str, Any] = {"lambdas": lambdas} if target_dcal is None else {"target_dcal": target_dcal}
    result = fit_path(
        make_network,
        family,
        *rows,
        seeds=seeds,
        objective=OBJECTIVES[settings.objective],
        calibration_bins=settings.calibration_bins,
        config=settings.training_config(),
        device=settings.where(),
        progress=settings.progress,
        dcal_floor=_floor(validation, settings.calibration_bins),
        **options,
    )
    _report(result)
    models = tuple(_fitted(result, index, standardizer, outputs) for index in range(result.n_models))
    return TrainedPath(models, validation)


def _floor(validation: Table, n_bins: int) -> float:
    """D-calibration that a perfect model would score on the validation rows; below it differences are noise.

    Without covariates the Kaplan-Meier curve is such a model.
    """
    curve = kaplan_meier(time=validation.time, event=validation.event)
    cdf = np.clip(1.0 - curve.at(validation.time), 0.0, 1.0)
    return d_calibration(cdf, validation.event, n_bins=n_bins, p_value=None).floor


def network_maker(settings: Settings, n_inputs: int, n_outputs: int, start: torch.Tensor) -> MakeNetwork:
    """Return a function that makes a network whose first predictions are near the Kaplan-Meier curve."""

    def make() -> MLP:
        network = MLP(n_inputs, n_outputs, hidden=settings.hidden, dropout=settings.dropout)
        with torch.no_grad():
            network.output.bias.copy_(start)
            # Start near the distribution of the times as a whole, with small differences between rows.
            network.output.weight.mul_(0.1)
        return network

    return make


def _rows(table: Table, standardizer: Standardizer, outputs: Outputs) -> Rows:
    return Rows(standardizer(table.x).astype(np.float32), table.time / outputs.time_scale, table.event, table.weights)


def _outcome(rows: Rows) -> tuple[Any, Any]:
    return rows.time, rows.event


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


def _report(result: PathResult) -> None:
    """Say what went wrong in training; a path of which nothing can be used is an error."""
    if result.interrupted:
        warnings.warn("training was interrupted; the best weights until then are kept", UserWarning, stacklevel=4)
    if (result.best_epoch < 0).all():
        fail("fit", "a finite loss in the first epoch (try a smaller learning_rate)", f"{result!r}")
    if result.failures:
        told = "; ".join(
            f"lambda {result.lambdas[f.model]:g}, seed {result.seeds[f.model]}: {f}" for f in result.failures
        )
        warnings.warn(f"some models stopped early: {told}", ConvergenceWarning, stacklevel=4)
