"""Models of scikit-survival: step functions at the event times of the training rows."""

from typing import Any

import numpy as np

from xcal._checks import FloatArray, fail
from xcal.interop.fitted import check_fitted
from xcal.interop.gathering import class_name, from_own_times
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows, take_rows


def read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted model of scikit-survival that has `predict_survival_function`."""
    check_fitted(model)
    if not hasattr(model, "predict_survival_function"):
        advice = "its model has only a risk score, which is no probability"
        if class_name(model).startswith("Coxnet"):
            advice = "fit it with fit_baseline_model=True"
        elif "Boosting" in class_name(model):
            advice = 'it needs loss="coxph"'
        fail("model", f"a model with predict_survival_function ({advice})", class_name(model))
    own = np.asarray(_functions(model, take_rows(X, slice(0, 1)))[0].x, dtype=np.float64)
    at_once = hasattr(model, "unique_times_")

    def predict(part: slice) -> FloatArray:
        chosen = take_rows(X, part)
        if at_once:
            return np.asarray(model.predict_survival_function(chosen, return_array=True))
        # A step function holds its values as y, times a and plus b.
        return np.stack([step.a * np.asarray(step.y) + step.b for step in _functions(model, chosen)])

    name = class_name(model)
    origin = (
        f"Curves were read from scikit-survival's {name} at its own {own.size:,} times, those of the training rows."
    )
    return from_own_times(name, "scikit-survival", predict, own, rows, "previous", origin)


def _functions(model: Any, X: Any) -> Any:
    return model.predict_survival_function(X)
