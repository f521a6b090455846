"""Models of lifelines.

The baseline of its Cox model (and of Aalen's) is known at the training times only, a step function. lifelines itself
draws straight lines through the cumulative hazard when it is asked for other times; here it is asked at its own times,
and the steps are read as steps. Its parametric models know every time.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from xcal._checks import BoolArray, FloatArray, fail
from xcal.distributions import LogLogistic, LogNormal, SurvivalDistribution, Weibull
from xcal.interop.fitted import refuse_unfitted
from xcal.interop.gathering import BETWEEN, class_name, from_distribution, from_own_times
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows
from xcal.metrics.inputs import Vector

# Rows of which a parametric model is asked F and the hazard at the observed times, at once: the answer is square.
_SQUARE = 200
# Beyond so many rows that takes minutes; F is then read off the curves, and there is no likelihood.
_MOST_SQUARES = 20_000

# log T = location + scale * error: two percentiles give both. The first is that at which the error is 0, the second
# that at which it is 1, as probabilities of survival.
_NORMAL_ABOVE_ONE = 0.15865525393145707
_AFT: dict[str, tuple[float, float]] = {
    "LogNormalAFTFitter": (0.5, _NORMAL_ABOVE_ONE),
    "WeibullAFTFitter": (float(np.exp(-1.0)), float(np.exp(-np.e))),
    "LogLogisticAFTFitter": (0.5, float(1.0 / (1.0 + np.e))),
}


def read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted regression model of lifelines."""
    if not any(base.__name__ == "RegressionFitter" for base in type(model).__mro__):
        fail("model", "a regression model of lifelines, which predicts a curve for each row", class_name(model))
    if not hasattr(model, "params_") and not hasattr(model, "cumulative_hazards_"):
        refuse_unfitted(model, "call model.fit(df, duration_col, event_col) first")
    if not hasattr(X, "iloc"):
        fail("X", "a pandas data frame with the columns that the lifelines model was fitted on", type(X).__name__)
    # Labels of rows do not matter, but lifelines joins strata by them: they must be different.
    table = X.reset_index(drop=True)
    aft = next((name for name in (base.__name__ for base in type(model).__mro__) if name in _AFT), None)
    if aft is not None:
        return from_distribution(class_name(model), "lifelines", _aft_distribution(model, table, aft), rows)
    names = {base.__name__ for base in type(model).__mro__}
    steps = getattr(model, "baseline_estimation_method", "") == "breslow" or "AalenAdditiveFitter" in names
    return _steps(model, table, rows) if steps else _parametric(model, table, rows)


def _aft_distribution(model: Any, table: Any, name: str) -> Callable[[slice], SurvivalDistribution]:
    """Distributions of an accelerated failure time model, from two of its percentiles for each row."""
    centre, above = _AFT[name]

    def distribution(part: slice) -> SurvivalDistribution:
        log_times = [
            np.log(np.asarray(model.predict_percentile(table.iloc[part], p=p), dtype=np.float64))
            for p in (centre, above)
        ]
        location = torch.from_numpy(log_times[0])
        scale = torch.from_numpy(log_times[1] - log_times[0])
        if name == "LogNormalAFTFitter":
            return LogNormal(location, torch.log(scale))
        family = Weibull if name == "WeibullAFTFitter" else LogLogistic
        return family(torch.exp(location), 1 / scale)

    return distribution


def _steps(model: Any, table: Any, rows: Rows) -> ModelPredictions:
    own = np.asarray(model.predict_survival_function(table.iloc[:1]).index, dtype=np.float64)

    def predict(part: slice) -> FloatArray:
        frame = model.predict_survival_function(table.iloc[part].reset_index(drop=True))
        # Strata come one after the other: the columns are put back into the order of the rows.
        return np.asarray(frame.reindex(columns=range(frame.shape[1])).to_numpy(dtype=np.float64).T)

    name = class_name(model)
    origin = f"Curves were read from lifelines' {name} at its own {own.size:,} times, those of the training rows."
    return from_own_times(name, "lifelines", predict, own, rows, "previous", origin)


def _parametric(model: Any, table: Any, rows: Rows) -> ModelPredictions:
    """Read a model that has a hazard at every time."""
    grid = rows.grid()
    pieces = [
        model.predict_survival_function(table.iloc[part], times=grid).to_numpy().T for part in rows.parts(grid.size)
    ]
    survival = np.concatenate(pieces)
    reading = [
        f"Curves were read from lifelines' {class_name(model)}, exact at {grid.size} times, the horizons among them.",
        BETWEEN["linear"],
    ]
    cdf = loss = None
    if rows.n <= _MOST_SQUARES:
        with_hazard = _gives_hazard(model, table)
        cdf, loss = _at_own_times(model, table, rows.time, rows.event, with_hazard=with_hazard)
        reading.append("F at a row's observed time and the likelihood are exact, from the model's hazard.")
        if loss is None:
            why = "the hazard is negative at an event" if with_hazard else "lifelines gives no hazard of it"
            reading[-1] = f"F at a row's observed time is exact. There is no likelihood: {why}."
    else:
        why = f"there are more than {_MOST_SQUARES:,} rows"
        reading.append(f"F at a row's observed time is read off the curves, and there is no likelihood: {why}.")
    return ModelPredictions(
        class_name(model),
        "lifelines",
        rows.n,
        survival=survival,
        times=grid,
        cdf=cdf,
        nll=loss,
        reading=tuple(reading),
    )


def _at_own_times(
    model: Any, table: Any, time: FloatArray, event: BoolArray, *, with_hazard: bool
) -> tuple[Vector, Vector | None]:
    """F and negative log-likelihood of each row: the diagonal of what lifelines gives for rows times times.

    The hazard of a spline may be negative where there were few training rows; then there is no likelihood.
    """
    cdf, loss, defined = np.empty(time.size), np.empty(time.size), with_hazard
    for start in range(0, time.size, _SQUARE):
        part = slice(start, min(start + _SQUARE, time.size))
        points, place = np.unique(time[part], return_inverse=True)
        diagonal = (place, np.arange(place.size))
        few = table.iloc[part]
        accumulated = model.predict_cumulative_hazard(few, times=points).to_numpy()[diagonal]
        cdf[part] = -np.expm1(-accumulated)
        if not with_hazard:
            continue
        hazard = model.predict_hazard(few, times=points).to_numpy()[diagonal]
        at_event = np.where(event[part], hazard, 1.0)
        defined = defined and bool((at_event >= 0).all())
        with np.errstate(divide="ignore", invalid="ignore"):  # an event where the hazard is 0 has an infinite loss
            loss[part] = accumulated - np.log(at_event)
    return cdf, loss if defined else None


def _gives_hazard(model: Any, table: Any) -> bool:
    """Whether `predict_hazard` takes several times; that of some models, piecewise ones for instance, fails."""
    times = [1.0, 2.0, 3.0]
    try:
        return bool(model.predict_hazard(table.iloc[:2], times=times).shape == (3, min(2, len(table))))
    # What its models raise where they take one time only, or have no hazard.
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return False
