"""What a path decides by itself once it is trained: which rows judge, and what they say."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from xcal.estimators.candidates import Candidates, Maps, candidates
from xcal.estimators.choices import by_weight
from xcal.estimators.crossfit import CrossFitted, both, cross_fitted
from xcal.estimators.fitted import FittedModel
from xcal.estimators.fitting import TrainedPath
from xcal.estimators.selection import Selection, cannot_judge, when_needed
from xcal.estimators.settings import Settings

# With fewer validation events than these the smallest weight is judged on all rows, by cross-fitting: an error that
# new rows would show can hide from so few.
FEW_EVENTS = 500


@dataclass(frozen=True, eq=False)
class Decision:
    """The choice of a path, and the values that it was made by.

    Attributes
    ----------
    selection : Selection
    candidates : DataFrame
        All candidates on the validation rows.
    cross_fitted : DataFrame or None
        The smallest weight on all rows, as it is and recalibrated, if it was judged on them.
    maps : mapping
        Map of F for each weight that has one.
    doubt : str or None
        Why nothing could be judged, if so.
    """

    selection: Selection
    candidates: pd.DataFrame
    cross_fitted: pd.DataFrame | None
    maps: Maps
    doubt: str | None


def decide(path: TrainedPath, table: pd.DataFrame, settings: Settings, *, folds: int, average: bool) -> Decision:
    """Choose by the default rule of `SurvivalPath.select`; `table` is the frontier."""
    rows, n_bins = path.validation, settings.calibration_bins
    doubt = cannot_judge(rows, n_bins)
    found = candidates(
        by_weight(path.models, table, average=average),
        rows,
        n_bins,
        recalibrate=doubt is None,
        conditional=settings.conditional,
    )
    may_train = path.split and folds > 0 and not path.interrupted
    first, on_all = min(found.members), None
    if may_train and np.count_nonzero(rows.event) < FEW_EVENTS:
        on_all = _on_all_rows(path, found.members[first], settings, folds)
    if on_all is None:
        selection, maps = when_needed(found.table, doubt), dict(found.maps)
    else:
        selection, maps = _judged_on_all(on_all, found, doubt), {**found.maps, first: on_all.map}
        doubt = None
    if selection.recalibrated and may_train and (on_all is None or selection.lam != first):
        better = cross_fitted(both(path.train, path.validation), found.members[selection.lam], settings, folds)
        maps[selection.lam] = better.map
    return Decision(selection, found.table, None if on_all is None else on_all.table, maps, doubt)


def _on_all_rows(
    path: TrainedPath, members: Sequence[FittedModel], settings: Settings, folds: int
) -> CrossFitted | None:
    """Measure one weight on all rows, unless even they cannot show whether it is calibrated."""
    rows = both(path.train, path.validation)
    if cannot_judge(rows, settings.calibration_bins) is not None:
        return None
    return cross_fitted(rows, members, settings, folds)


def _judged_on_all(on_all: CrossFitted, found: Candidates, doubt: str | None) -> Selection:
    """Ask all rows whether the smallest weight is off and whether a map corrects it, else the validation rows."""
    judge = f"all {on_all.n:,} cross-fitted rows"
    selection = when_needed(on_all.table, judge=judge)
    if selection.recalibrated or selection.at_floor:
        return selection
    # It is off, and a map does not correct it: the larger weights were measured on the validation rows alone.
    further = when_needed(found.table, doubt)
    return further if further.recalibrated or further.lam != selection.lam else selection
