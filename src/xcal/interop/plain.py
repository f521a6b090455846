"""Predictions that come as numbers: survival curves, F at the observed times, or risks at one time."""

from typing import Any

import numpy as np

from xcal._checks import as_number, as_numpy, as_probability, check_same_length, fail
from xcal.interop.frames import curves_of_frame, is_frame
from xcal.interop.gathering import BETWEEN, past_the_end
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows
from xcal.interop.step_functions import curves_of_functions, end_of_functions, is_functions
from xcal.metrics.curves import INTERPOLATIONS, Interpolation
from xcal.metrics.inputs import as_choice, as_curves


def is_plain(values: Any) -> bool:
    """Whether this is a prediction and not a model: a frame, an array, a tensor, or a list."""
    return (
        is_frame(values)
        or isinstance(values, np.ndarray | list | tuple)
        or (hasattr(values, "detach") and hasattr(values, "shape"))
    )


def read_curves(
    survival: Any,
    rows: Rows,
    *,
    times: Any = None,
    interpolation: Interpolation | None = None,
    model: str = "survival curves",
    library: str = "none",
) -> ModelPredictions:
    """Survival curves of each row, as an array with `times`, a data frame, or functions.

    `interpolation` is "linear" unless said, and "previous" for step functions.
    """
    how: Interpolation = "linear"
    functions = is_functions(survival)
    if functions:
        curves, points, how = curves_of_functions(survival, rows)
    elif is_frame(survival):
        curves, points = curves_of_frame(survival, rows.n, times)
    else:
        array = as_numpy("survival", survival)
        if array.ndim == 1:
            fail(
                "survival",
                "curves of shape (rows, times) (one value per row: cdf=, F at the observed time, or risk=)",
                f"shape {array.shape}",
            )
        if times is None:
            fail("times", "the times of the columns of survival", "None")
        curves, points = array, times
    curves, points = as_curves("survival", curves, points, rows.n)
    if interpolation is not None:
        how = as_choice("interpolation", interpolation, INTERPOLATIONS)
    reading = (
        f"Survival curves were given at {points.size:,} times, from {points[0]:g} to {points[-1]:g}, and start at 1.",
        BETWEEN[how],
        past_the_end(float(points[-1]), rows.time),
    )
    end = end_of_functions(survival) if functions else float(points[-1])
    return ModelPredictions(
        model, library, rows.n, survival=curves, times=points, interpolation=how, reading=reading, end=end
    )


def read_cdf(cdf: Any, rows: Rows) -> ModelPredictions:
    """F of each row at its observed time, and nothing else."""
    values = as_probability("cdf", cdf)
    check_same_length("cdf", values, "y", rows.n)
    reading = ("F at each row's observed time was given, and nothing else: there are no risks at a horizon.",)
    own = values.astype(np.float64, copy=False)
    return ModelPredictions("F at the observed times", "none", rows.n, cdf=own, reading=reading)


def read_risk(risk: Any, horizon: Any, rows: Rows) -> ModelPredictions:
    """Risk of each row at one time, and nothing else."""
    at = as_number("horizons", horizon, above=0)
    values = as_numpy("risk", risk)
    if values.ndim == 1 and values.size and np.isfinite(values).all() and 1 < values.max() <= 100 and values.min() >= 0:
        row = int(np.argmax(values > 1))
        fail("risk", "probabilities in [0, 1] (percent? divide by 100)", values[row], row)
    checked = as_probability("risk", risk)
    check_same_length("risk", checked, "y", rows.n)
    reading = (f"The risk of an event by time {at:g} was given, and nothing about other times.",)
    own = checked.astype(np.float64, copy=False)
    return ModelPredictions(f"risks at {at:g}", "none", rows.n, risk=own, risk_horizon=at, reading=reading)
