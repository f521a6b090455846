"""Models of pycox, by `predict_surv_df`: times x rows.

Its Cox models have Breslow's baseline, a step function. Its discrete models know the survival at their cuts only; it is
read along straight lines in between, as their own ``interpolate`` does by default. The curves of ``interpolate`` and of
PCHazard come on a finer grid and are read in the same way.
"""

from typing import Any

import numpy as np

from xcal._checks import FloatArray, fail
from xcal.interop.fitted import refuse_unfitted
from xcal.interop.gathering import class_name, from_own_times
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows, take_rows
from xcal.metrics.curves import Interpolation


def read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted model of pycox."""
    if not hasattr(model, "predict_surv_df"):
        fail("model", "a pycox model with predict_surv_df", class_name(model))
    cox = any(base.__name__ == "_CoxBase" for base in type(model).__mro__)
    if cox and not hasattr(model, "baseline_hazards_"):
        refuse_unfitted(model, "call model.compute_baseline_hazards() after fit")
    inner = getattr(model, "model", model) if class_name(model).startswith("Interpolate") else model
    if not cox and getattr(inner, "duration_index", None) is None:
        advice = f"{class_name(inner)}(net, duration_index=labtrans.cuts)"
        fail("model", f"a pycox model that knows its times ({advice})", "duration_index None")
    if any(base.__name__ == "DeepHit" for base in type(model).__mro__):
        fail("model", "a model of one kind of event", "pycox's DeepHit, a model of competing risks")
    table = _input(X)
    own = np.asarray(model.predict_surv_df(take_rows(table, slice(0, 1))).index, dtype=np.float64)

    def predict(part: slice) -> FloatArray:
        # float32 sums leave [0, 1] by a rounding.
        curves = model.predict_surv_df(take_rows(table, part)).to_numpy().T.astype(np.float64)
        return _without_rounding(curves)

    name = class_name(model)
    how: Interpolation = "previous" if cox else "linear"
    grid = "those of the training rows" if cox else "its grid"
    origin = f"Curves were read from pycox's {name} at its own {own.size:,} times, {grid}."
    return from_own_times(name, "pycox", predict, own, rows, how, origin)


# What a sum of float32 numbers up to 1 may be off by.
_FLOAT32 = 1e-5


def _without_rounding(curves: FloatArray) -> FloatArray:
    """Cut off what float32 added beyond 0 and 1; what is further off is left to be refused."""
    close = (curves > -_FLOAT32) & (curves < 1 + _FLOAT32)
    return np.where(close, np.clip(curves, 0.0, 1.0), curves)


def _input(X: Any) -> Any:
    """Return what pycox takes: float32 arrays, or tensors and tuples as they are."""
    if hasattr(X, "detach") or isinstance(X, tuple):
        return X
    values = X.to_numpy() if hasattr(X, "to_numpy") else np.asarray(X)
    try:
        return values.astype(np.float32)
    except (TypeError, ValueError):
        fail("X", "numbers, as pycox networks take them", f"dtype {values.dtype}")
