"""From what a library predicts to `ModelPredictions`: a distribution per row, or curves on the model's own times."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from xcal._checks import FloatArray
from xcal.distributions import DiscreteDistribution, SurvivalDistribution
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows
from xcal.metrics.curves import Interpolation, at_own_time, at_point
from xcal.metrics.inputs import Vector
from xcal.metrics.small_cells import rounded_time
from xcal.objectives import nll

BETWEEN: dict[Interpolation, str] = {
    "linear": "Between two of these times a curve is read along a straight line.",
    "previous": "Between two of these times a curve keeps the value of the earlier one, as a step function does.",
}


def past_the_end(last: float, time: FloatArray) -> str:
    """Return what happens after the last time of the curves."""
    rule = f"The curves end at time {rounded_time(last):g}; past it they keep their last value"
    if not (time > last).any():
        return f"{rule}, which no row needs."
    return f"{rule}. Rows past it count as censored there in D-calibration."


def from_distribution(
    model: str, library: str, distribution_of: Callable[[slice], SurvivalDistribution], rows: Rows
) -> ModelPredictions:
    """Read a model that gives a distribution for each row: exact curves, exact F, and the likelihood.

    Parameters
    ----------
    model, library
        Names.
    distribution_of
        From a slice of the rows to their distribution, in the unit of the times.
    rows
        What is asked.
    """
    grid = rows.grid()
    survival, cdf, loss = np.empty((rows.n, grid.size)), np.empty(rows.n), np.empty(rows.n)
    points = torch.from_numpy(np.ascontiguousarray(grid)).unsqueeze(1)
    discrete = False
    for part in rows.parts(grid.size):
        distribution = distribution_of(part)
        discrete = discrete or isinstance(distribution, DiscreteDistribution)
        time = torch.from_numpy(rows.time[part].astype(np.float64))
        event = torch.from_numpy(np.ascontiguousarray(rows.event[part]))
        with torch.no_grad():
            survival[part] = distribution.survival(points.expand(-1, time.numel())).T.numpy()
            cdf[part] = distribution.cdf(time).numpy()
            loss[part] = nll(distribution, time, event, density=True).numpy()
    density = "the mass of its time bin over the bin's width" if discrete else "the density"
    reading = (
        f"{model} gives a whole distribution for each row: F at the observed time is exact, and so is the likelihood "
        f"({density} at an event, survival at a censoring).",
        f"Survival curves are kept at {grid.size} times, the horizons among them, and are exact there.",
        BETWEEN["linear"],
    )
    return ModelPredictions(model, library, rows.n, survival=survival, times=grid, cdf=cdf, nll=loss, reading=reading)


def from_own_times(
    model: str,
    library: str,
    predict: Callable[[slice], FloatArray],
    own: Vector,
    rows: Rows,
    interpolation: Interpolation,
    origin: str,
) -> ModelPredictions:
    """Read a model whose curves have values at times of its own, `own`.

    Where that is too much to hold, or the user asked for other times, rows are read in parts: F at the observed time
    comes from the whole curve, and fewer columns are kept.

    Parameters
    ----------
    predict
        From a slice of the rows to S of shape (rows, own times).
    origin
        The first sentence of `reading`: how the curves were obtained.
    """
    asked = rows.times
    kept = rows.kept_columns(own)
    if asked is None and kept.size == own.size:
        survival = np.concatenate([predict(part) for part in rows.parts(own.size)])
        sentences = (origin, BETWEEN[interpolation], past_the_end(float(own[-1]), rows.time))
        return ModelPredictions(
            model,
            library,
            rows.n,
            survival=survival,
            times=own,
            interpolation=interpolation,
            reading=sentences,
            end=float(own[-1]),
        )
    times = own[kept] if asked is None else asked
    survival, cdf = np.empty((rows.n, times.size)), np.empty(rows.n)
    for part in rows.parts(own.size):
        whole = predict(part)
        cdf[part] = np.clip(1 - at_own_time(whole, own, rows.time[part], interpolation), 0.0, 1.0)
        survival[part] = whole[:, kept] if asked is None else _at_each(whole, own, times, interpolation)
    which = "of these" if asked is None else "that were asked for"
    reading = (
        origin,
        f"{times.size:,} times {which} are kept; F at a row's observed time is read from the whole curve.",
        BETWEEN[interpolation],
        past_the_end(float(times[-1]), rows.time),
    )
    return ModelPredictions(
        model,
        library,
        rows.n,
        survival=survival,
        times=times,
        interpolation=interpolation,
        cdf=cdf,
        reading=reading,
        end=float(own[-1]),
    )


def _at_each(whole: FloatArray, own: Vector, times: Vector, interpolation: Interpolation) -> FloatArray:
    return np.stack([at_point(whole, own, float(t), interpolation) for t in times], axis=1)


def class_name(model: Any) -> str:
    """Name of a model's class, for people."""
    return type(model).__name__
