"""Networks trained once more, as long as those of a path were: on all rows, or to judge one weight on all rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from xcal.data import SurvivalData
from xcal.estimators.candidates import fitted_map, joined, measured, measured_table
from xcal.estimators.fitted import FittedModel, combined
from xcal.estimators.fitting import train_on, trained
from xcal.estimators.settings import Settings
from xcal.recalibration import KaplanMeierRecalibration


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """One weight on all rows, each by networks that have not seen it.

    Attributes
    ----------
    table : DataFrame
        Two lines of `candidates`: the weight as it is, and recalibrated.
    map : KaplanMeierRecalibration
        Fitted to all rows.
    n : int
        How many rows they are.
    """

    table: pd.DataFrame
    map: KaplanMeierRecalibration
    n: int


def cross_fitted(rows: SurvivalData, members: Sequence[FittedModel], settings: Settings, n_folds: int) -> CrossFitted:
    """Measure one weight on all rows of a path, and fit its map of F to them.

    The validation rows are a fifth of all, and show five times less; a map of them has five times the noise. So the
    networks are trained once more for each fold, as long as those of the path were, and every row is measured by the
    networks of the other folds. The map is then used with the networks of the path, which were made in the same way
    from nearly as many rows.
    """
    lam = members[0].lam
    folds = rows.folds(n_folds, seed=0)
    networks = [trained_as(members, rows[fold.train], settings) for fold in folds]
    trained_folds = list(zip(folds, networks, strict=True))
    plain = joined([(fold.test, measured(lam, combined(models), rows[fold.test])) for fold, models in trained_folds])
    # Each row's map, too, is one of the other folds.
    mapped = joined(
        [
            (fold.test, measured(lam, combined(models, fitted_map(plain, rows, fold.train)), rows[fold.test]))
            for fold, models in trained_folds
        ]
    )
    table = measured_table([plain, mapped], rows, settings.calibration_bins, conditional=settings.conditional)
    return CrossFitted(table, fitted_map(plain, rows, np.arange(rows.n)), rows.n)


def trained_as(members: Sequence[FittedModel], rows: SurvivalData, settings: Settings) -> tuple[FittedModel, ...]:
    """Train the same seeds on other rows, for as many epochs as they took; an interrupt is passed on."""
    # The epochs are known, so that no rows are needed to stop by: the rows to train on stand in for them.
    epochs = max(1, round(float(np.mean([member.best_epoch + 1 for member in members]))))
    config = settings.training_config()
    rising = config.rising_epochs if config.penalty_schedule == "anneal" else None
    config = replace(config, epochs=epochs, patience=None, anneal_epochs=rising)
    seeds = [member.seed for member in members]
    options = {"lambdas": (members[0].lam,), "seeds": seeds, "config": config, "progress": False}
    result, models = train_on(rows, rows, settings, **options)
    if result.interrupted:
        raise KeyboardInterrupt("interrupted while the networks of a choice were trained once more")
    return trained(models)


def both(one: SurvivalData, other: SurvivalData) -> SurvivalData:
    """Put the rows of two parts together."""
    weights = None
    if one.weights is not None and other.weights is not None:
        weights = np.concatenate([one.weights, other.weights])
    x, time, event = (np.concatenate([getattr(part, name) for part in (one, other)]) for name in ("x", "time", "event"))
    return SurvivalData.trusted(x, time, event, weights)
