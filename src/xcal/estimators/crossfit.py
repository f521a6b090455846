"""Networks trained once more, as long as those of a path were: on all rows, or for a map of F from all rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from xcal.data import SurvivalData
from xcal.estimators.fitted import FittedModel, combined
from xcal.estimators.fitting import TrainedPath, train_on, trained
from xcal.estimators.settings import Settings
from xcal.recalibration import KaplanMeierRecalibration


def cross_fitted_map(
    path: TrainedPath, members: Sequence[FittedModel], settings: Settings, n_folds: int
) -> KaplanMeierRecalibration | None:
    """Fit the map of one weight to all rows; None if training was interrupted.

    A map of the validation rows has their noise, and a fifth of the rows has five times that of all of them. So the
    networks are trained once more for each fold, as long as those of the path were, and the map is fitted to the F of
    every row by the networks of the other folds. It is then used with the networks of the path, which were made in the
    same way from nearly as many rows.
    """
    rows = joined(path.train, path.validation)
    cdf = np.empty(rows.n)
    for fold in rows.folds(n_folds, seed=0):
        rest = rows[fold.test]
        models = trained_as(members, rows[fold.train], settings)
        if not models:
            return None
        cdf[fold.test] = combined(models).cdf_at_own(rest.x, rest.time)
    return KaplanMeierRecalibration.fit(cdf, rows.event)


def trained_as(members: Sequence[FittedModel], rows: SurvivalData, settings: Settings) -> tuple[FittedModel, ...]:
    """Train the same seeds on other rows, for as many epochs as they took; nothing if it was interrupted."""
    # The epochs are known, so that no rows are needed to stop by: the rows to train on stand in for them.
    epochs = max(1, round(float(np.mean([member.best_epoch + 1 for member in members]))))
    config = settings.training_config()
    rising = config.rising_epochs if config.penalty_schedule == "anneal" else None
    config = replace(config, epochs=epochs, patience=None, anneal_epochs=rising)
    seeds = [member.seed for member in members]
    options = {"lambdas": (members[0].lam,), "seeds": seeds, "config": config, "progress": False}
    result, models = train_on(rows, rows, settings, **options)
    return () if result.interrupted else trained(models)


def joined(one: SurvivalData, other: SurvivalData) -> SurvivalData:
    """Put the rows of two parts together."""
    weights = None
    if one.weights is not None and other.weights is not None:
        weights = np.concatenate([one.weights, other.weights])
    x, time, event = (np.concatenate([getattr(part, name) for part in (one, other)]) for name in ("x", "time", "event"))
    return SurvivalData.trusted(x, time, event, weights)
