"""hazardous' SurvivalBoost: curves on its time grid."""

from dataclasses import replace
from typing import Any

import numpy as np

from xcal._checks import FloatArray, fail
from xcal.interop.fitted import refuse_unfitted
from xcal.interop.gathering import class_name, from_own_times
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows, take_rows


def read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted SurvivalBoost with one kind of event."""
    if not hasattr(model, "time_grid_"):
        refuse_unfitted(model)
    kinds = [int(kind) for kind in model.event_ids_ if kind != 0]
    if len(kinds) != 1:
        fail("model", "a SurvivalBoost of one kind of event", f"one of competing risks, with events {kinds}")
    own = np.unique(np.asarray(model.time_grid_, dtype=np.float64))

    rises = []

    def predict(part: slice) -> FloatArray:
        curves = np.asarray(model.predict_survival_function(take_rows(X, part), times=own), dtype=np.float64)
        falling = np.minimum.accumulate(curves, axis=1)
        rises.append((curves - falling).max(axis=1))
        return falling

    name = class_name(model)
    origin = f"Curves were read from hazardous' {name} at the {own.size:,} times of its grid."
    found = from_own_times(name, "hazardous", predict, own, rows, "linear", origin)
    return replace(found, reading=(*found.reading, _said_of(np.concatenate(rises))))


def _said_of(rise: FloatArray) -> str:
    """Return how many curves were changed: each time of the grid has its own classifier, so a curve may rise."""
    changed = int(np.count_nonzero(rise > 0))
    if not changed:
        return "No curve rises."
    what = f"{changed:,} of {rise.size:,} curves rise somewhere, by {rise.max():.2g} at most"
    return f"{what}: there the lowest value so far is taken in place of the model's own."
