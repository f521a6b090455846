"""The readers: one for each library, from its model to `ModelPredictions`. No library is imported here."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal._checks import BoolArray, FloatArray, as_event, as_numpy, as_time, fail, first_row
from xcal.distributions import LogLogistic, LogNormal, SurvivalDistribution, Weibull
from xcal.interop.predictions import (
    BETWEEN,
    HazardFunction,
    ModelPredictions,
    Rows,
    check_fitted,
    class_name,
    from_distribution,
    from_own_times,
    names_of,
    refuse_unfitted,
    take_rows,
)
from xcal.metrics.inputs import Interpolation, Vector

# --- Networks trained with torchsurv.
# torchsurv has losses and no models: a network is a plain torch module, and nothing in it says what its output means.
# These two say it.


@dataclass(frozen=True, eq=False)
class TorchsurvWeibull:
    """A network that was trained with `torchsurv.loss.weibull`: its outputs are log scale and log shape.

    Parameters
    ----------
    network : torch.nn.Module
        From features to (n, 2), or (n, 1) for a shape of 1.
    """

    network: Any


@dataclass(frozen=True, eq=False)
class TorchsurvCox:
    """A network that was trained with `torchsurv.loss.cox`: its output is the log relative hazard.

    Parameters
    ----------
    network : torch.nn.Module
        From features to (n,) or (n, 1).
    X, time, event
        The training rows, from which `torchsurv.loss.cox.baseline_survival_function` estimates Breslow's baseline.
    """

    network: Any
    X: Any
    time: Any
    event: Any


ORDERED = "For concordance, rows are ordered by the model's own risk: the mean of F until the end of its training."


def read_xcal(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted `SurvivalModel` or `SurvivalPath`; the path predicts with the model that it selected."""
    check_fitted(model)
    found = from_distribution(
        class_name(model), "xcal", lambda part: model.predict_distribution(take_rows(X, part)), rows, model.causes_
    )
    return replace(found, end=model.last_time_, risk_score=model.predict(X), reading=(*found.reading, ORDERED))


def read_recalibrated(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted `xcal.Recalibrated`."""
    check_fitted(model)
    found: ModelPredictions = model.predictions(X, rows)
    return found


# --- Models of lifelines.
# The baseline of its Cox model (and of Aalen's) is known at the training times only, a step function. lifelines itself
# draws straight lines through the cumulative hazard when it is asked for other times; here it is asked at its own
# times, and the steps are read as steps. Its parametric models know every time.

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


def read_lifelines(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted regression model of lifelines, or its Aalen-Johansen estimate, one curve for all rows."""
    if class_name(model) == "AalenJohansenFitter":
        return _aalen_johansen(model, rows)
    if class_name(model) == "CoxTimeVaryingFitter":
        return _time_varying(model, X, rows)
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


def _aalen_johansen(model: Any, rows: Rows) -> ModelPredictions:
    if not hasattr(model, "cumulative_density_"):
        refuse_unfitted(model, "call model.fit(durations, event_observed, event_of_interest) first")
    curve = model.cumulative_density_.iloc[:, 0]
    own, values = np.asarray(curve.index, dtype=np.float64), np.asarray(curve, dtype=np.float64)
    cause = str(curve.name).removeprefix("CIF_")
    origin = f"The incidence of cause {cause} is lifelines' Aalen-Johansen estimate, the same for all rows."

    def predict(part: slice) -> FloatArray:
        return np.broadcast_to(values, (part.stop - part.start, 1, own.size))

    return from_own_times("AalenJohansenFitter", "lifelines", predict, own, rows, "previous", origin, (cause,))


def _time_varying(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read the Cox model of rows whose covariates change: steps of its baseline, times the factor of each row."""
    if not hasattr(model, "baseline_cumulative_hazard_"):
        refuse_unfitted(model, "call model.fit(df, id_col, event_col, start_col, stop_col) first")
    if model.strata is not None:
        fail("model", "a CoxTimeVaryingFitter without strata, for which lifelines has one baseline", repr(model.strata))
    if not hasattr(X, "iloc"):
        fail("X", "a pandas data frame with the columns that the lifelines model was fitted on", type(X).__name__)
    curve = model.baseline_cumulative_hazard_.iloc[:, 0]
    own, level = np.asarray(curve.index, dtype=np.float64), np.asarray(curve, dtype=np.float64)
    log_factor = np.asarray(model.predict_log_partial_hazard(X.reset_index(drop=True)), dtype=np.float64)
    factor = np.exp(log_factor)

    def lived(t: FloatArray) -> Vector:
        return np.asarray(np.append(0.0, level)[np.searchsorted(own, t, side="right")])

    origin = f"Curves are lifelines' baseline hazard at its own {own.size:,} times, times the factor of each row."
    found = from_own_times(
        "CoxTimeVaryingFitter",
        "lifelines",
        lambda part: np.exp(-np.outer(factor[part], level)),
        *(own, rows, "previous", origin),
    )
    hazard = None if rows.entry is None else factor * (lived(rows.time) - lived(rows.entry))
    return replace(found, risk_score=log_factor, hazard=hazard)


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
    """Return whether `predict_hazard` takes several times; that of some models, piecewise ones for instance, fails."""
    times = [1.0, 2.0, 3.0]
    try:
        return bool(model.predict_hazard(table.iloc[:2], times=times).shape == (3, min(2, len(table))))
    # What its models raise where they take one time only, or have no hazard.
    except (AttributeError, NotImplementedError, TypeError, ValueError):
        return False


def read_scikit_survival(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted model of scikit-survival that has `predict_survival_function`."""
    check_fitted(model)
    if not hasattr(model, "predict_survival_function"):
        advice = "its model has only a risk score, which is no probability"
        if class_name(model).startswith("Coxnet"):
            advice = "fit it with fit_baseline_model=True"
        elif "Boosting" in class_name(model):
            advice = 'it needs loss="coxph"'
        fail("model", f"a model with predict_survival_function ({advice})", class_name(model))
    own = np.asarray(model.predict_survival_function(take_rows(X, slice(0, 1)))[0].x, dtype=np.float64)
    at_once = hasattr(model, "unique_times_")

    def predict(part: slice) -> FloatArray:
        chosen = take_rows(X, part)
        if at_once:
            return np.asarray(model.predict_survival_function(chosen, return_array=True))
        # A step function holds its values as y, times a and plus b.
        return np.stack([step.a * np.asarray(step.y) + step.b for step in model.predict_survival_function(chosen)])

    name = class_name(model)
    origin = (
        f"Curves were read from scikit-survival's {name} at its own {own.size:,} times, those of the training rows."
    )
    return from_own_times(name, "scikit-survival", predict, own, rows, "previous", origin)


# --- Models of pycox, by `predict_surv_df`: times x rows.
# Its Cox models have Breslow's baseline, a step function. Its discrete models know the survival at their cuts only; it
# is read along straight lines in between, as their own ``interpolate`` does by default. The curves of ``interpolate``
# and of PCHazard come on a finer grid and are read in the same way.


def read_pycox(model: Any, X: Any, rows: Rows) -> ModelPredictions:
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
    table = _input(X)
    own = np.asarray(model.predict_surv_df(take_rows(table, slice(0, 1))).index, dtype=np.float64)
    if any(base.__name__ == "DeepHit" for base in type(model).__mro__):
        return _deep_hit(model, table, own, rows)

    def predict(part: slice) -> FloatArray:
        # float32 sums leave [0, 1] by a rounding.
        curves = model.predict_surv_df(take_rows(table, part)).to_numpy().T.astype(np.float64)
        return _without_rounding(curves)

    name = class_name(model)
    how: Interpolation = "previous" if cox else "linear"
    grid = "those of the training rows" if cox else "its grid"
    origin = f"Curves were read from pycox's {name} at its own {own.size:,} times, {grid}."
    return from_own_times(name, "pycox", predict, own, rows, how, origin)


def _deep_hit(model: Any, table: Any, own: Vector, rows: Rows) -> ModelPredictions:
    def predict(part: slice) -> FloatArray:
        # causes x times x rows
        found = model.predict_cif(take_rows(table, part), numpy=True)
        return _without_rounding(np.asarray(found, dtype=np.float64).transpose(2, 0, 1))

    causes = names_of(predict(slice(0, 1)))
    origin = f"The incidence of each cause was read from pycox's DeepHit at its own {own.size:,} times, its grid."
    return from_own_times("DeepHit", "pycox", predict, own, rows, "linear", origin, causes)


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


# --- XGBoost's accelerated failure time models: log T = prediction + scale * error, with a known error.
# The objective, its error distribution and its scale are read from the model itself.


def read_xgboost(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a Booster, or one of XGBoost's scikit-learn models, with the objective survival:aft."""
    booster = model
    if hasattr(model, "get_booster"):
        check_fitted(model)
        booster = model.get_booster()
    if not hasattr(booster, "save_config"):
        fail("model", "an XGBoost Booster or XGBRegressor", class_name(model))
    objective = _objective(model, booster)
    if objective["name"] != "survival:aft":
        advice = "survival:cox gives only a relative risk, which is no probability"
        fail("model", f"an XGBoost model with objective survival:aft ({advice})", objective["name"])
    error = objective["aft_loss_param"]["aft_loss_distribution"]
    scale = float(objective["aft_loss_param"]["aft_loss_distribution_scale"])
    location = np.log(_predicted(model, X))

    def distribution(part: slice) -> SurvivalDistribution:
        centre = torch.from_numpy(location[part])
        spread = torch.full_like(centre, scale)
        if error == "normal":
            return LogNormal(centre, torch.log(spread))
        if error == "logistic":
            return LogLogistic(torch.exp(centre), 1 / spread)
        # "extreme": log T has the smallest extreme value distribution, T is Weibull.
        return Weibull(torch.exp(centre), 1 / spread)

    name = f"{class_name(model)} (AFT, {error})"
    return from_distribution(name, "XGBoost", distribution, rows)


def _objective(model: Any, booster: Any) -> Any:
    import xgboost

    try:
        trained = booster.num_boosted_rounds() > 0 and booster.num_features() > 0
    except xgboost.core.XGBoostError:  # a Booster without anything in it does not answer
        trained = False
    if not trained:
        refuse_unfitted(model, "train it first")
    return json.loads(booster.save_config())["learner"]["objective"]


def _predicted(model: Any, X: Any) -> FloatArray:
    """Predicted times, exp of the location, in float64."""
    import xgboost

    if isinstance(model, xgboost.Booster):
        table = X if isinstance(X, xgboost.DMatrix) else xgboost.DMatrix(X)
        values = model.predict(table)
    else:
        values = model.predict(X)
    return np.asarray(values, dtype=np.float64)


def read_torchsurv(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a network by what its outputs mean."""
    name = f"{class_name(model.network)} ({'Cox' if isinstance(model, TorchsurvCox) else 'Weibull'})"
    if isinstance(model, TorchsurvCox):
        return _cox(model, X, rows, name)
    return from_distribution(name, "torchsurv", lambda part: _weibull(model.network, take_rows(X, part)), rows)


def _outputs(network: Any, X: Any) -> Tensor:
    """Run a network in evaluation mode; outputs in float64, and the network is left in the mode that it was in."""
    parameter = next(network.parameters(), torch.zeros(()))
    values = X if isinstance(X, Tensor) else torch.as_tensor(np.asarray(X, dtype=np.float64))
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            outputs: Tensor = network(values.to(device=parameter.device, dtype=parameter.dtype))
    finally:
        network.train(training)
    return outputs.double().cpu()


def _weibull(network: Any, X: Any) -> SurvivalDistribution:
    outputs = _outputs(network, X)
    if outputs.ndim != 2 or outputs.shape[1] not in (1, 2):
        fail("network", "outputs of shape (rows, 2), log scale and log shape", tuple(outputs.shape))
    log_shape = outputs[:, 1] if outputs.shape[1] == 2 else torch.zeros(len(outputs), dtype=torch.float64)
    return Weibull(torch.exp(outputs[:, 0]), torch.exp(log_shape))


def _cox(model: TorchsurvCox, X: Any, rows: Rows, name: str) -> ModelPredictions:
    try:
        from torchsurv.loss.cox import baseline_survival_function
    except ImportError as error:
        raise ImportError("TorchsurvCox estimates the baseline with torchsurv: pip install torchsurv") from error
    time = as_time(model.time, name="TorchsurvCox time")
    event = as_event(model.event, time.size, reference="time", name="TorchsurvCox event")
    seen = torch.from_numpy(np.asarray(time, dtype=np.float64))
    hazards = _log_hazard(model.network, model.X)
    baseline: Any = baseline_survival_function(hazards, torch.from_numpy(np.array(event)), seen)
    own = baseline["time"].numpy().astype(np.float64)
    start: FloatArray = baseline["baseline_survival"].numpy()

    def predict(part: slice) -> FloatArray:
        relative = torch.exp(_log_hazard(model.network, take_rows(X, part))).numpy()
        return np.asarray(start[None, :] ** relative[:, None])

    origin = f"Curves are by Breslow's estimator on the {time.size:,} training rows, at their {own.size:,} times."
    return from_own_times(name, "torchsurv", predict, own, rows, "previous", origin)


def _log_hazard(network: Any, X: Any) -> Tensor:
    outputs = _outputs(network, X)
    if outputs.ndim == 2 and outputs.shape[1] == 1:
        return outputs[:, 0]
    if outputs.ndim != 1:
        fail("network", "outputs of shape (rows,) or (rows, 1), the log relative hazard", tuple(outputs.shape))
    return outputs


def read_hazardous(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted SurvivalBoost: survival curves of one kind of event, or incidences of several causes."""
    if not hasattr(model, "time_grid_"):
        refuse_unfitted(model)
    kinds = tuple(str(int(kind)) for kind in model.event_ids_ if kind != 0)
    several = len(kinds) > 1
    own = np.unique(np.asarray(model.time_grid_, dtype=np.float64))

    changes = []

    def predict(part: slice) -> FloatArray:
        if several:
            found = np.asarray(model.predict_cumulative_incidence(take_rows(X, part), times=own), dtype=np.float64)[
                :, 1:
            ]
            rising, change = _rising(found)
        else:
            curves = np.asarray(model.predict_survival_function(take_rows(X, part), times=own), dtype=np.float64)
            rising = np.minimum.accumulate(curves, axis=1)
            change = (curves - rising).max(axis=1)
        changes.append(change)
        return rising

    name = class_name(model)
    what = "The incidence of each cause was" if several else "Curves were"
    origin = f"{what} read from hazardous' {name} at the {own.size:,} times of its grid."
    found = from_own_times(name, "hazardous", predict, own, rows, "linear", origin, kinds if several else ())
    return replace(found, reading=(*found.reading, _said_of(np.concatenate(changes), several=several)))


def _rising(incidence: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return incidences that never fall and add up to at most 1, and the largest change of each row."""
    rising = np.maximum.accumulate(incidence, axis=2)
    rising = rising / np.maximum(rising[..., -1:].sum(axis=1, keepdims=True), 1.0)
    return rising, np.abs(rising - incidence).max(axis=(1, 2))


def _said_of(change: FloatArray, *, several: bool) -> str:
    """Return how many curves were changed: each time of the grid has its own classifier, so a curve may rise."""
    changed = int(np.count_nonzero(change > 0))
    if not changed:
        return "No incidence falls." if several else "No curve rises."
    if several:
        what = f"Incidences of {changed:,} of {change.size:,} rows fall somewhere, or add up to more than 1"
        return f"{what}: there the largest value so far is taken, and they are changed by {change.max():.2g} at most."
    what = f"{changed:,} of {change.size:,} curves rise somewhere, by {change.max():.2g} at most"
    return f"{what}: there the lowest value so far is taken in place of the model's own."


def read_comprisk(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted forest of comprisk, with all its causes, or a Fine-Gray regression of one cause."""
    name, forest = class_name(model), hasattr(model, "predict_cif")
    if not forest and not hasattr(model, "predict_cumulative_incidence"):
        fail("model", "a model of comprisk that predicts incidences", name)
    if not hasattr(model, "n_features_in_"):
        refuse_unfitted(model)
    # Step functions: exact at the times of these rows that matter most.
    own = np.asarray(model.unique_times_, dtype=np.float64) if forest else rows.grid()
    causes = tuple(str(k) for k in range(1, model.n_causes_ + 1)) if forest else (str(model.cause),)

    def predict(part: slice) -> FloatArray:
        if forest:
            return np.asarray(model.predict_cif(take_rows(X, part), times=own))
        return np.asarray(model.predict_cumulative_incidence(take_rows(X, part), times=own))[:, None]

    what = "The incidence of each cause was" if forest else f"The incidence of cause {causes[0]} was"
    origin = f"{what} read from comprisk's {name} at {own.size:,} times."
    return from_own_times(name, "comprisk", predict, own, rows, "previous", origin, causes)


# --- Hazard functions.

# Nodes of Gauss and Legendre within a piece, and pieces of the way from entry to time: as many as change nothing.
_NODES, _MOST_PIECES = 8, 512
_CLOSE, _FAR = 1e-6, 1e-3  # what twice as many pieces may change, and what they must not


def read_hazard(model: HazardFunction, X: Any, rows: Rows) -> ModelPredictions:
    """Read a hazard function: integrals along the rows, and curves where rows count from time 0."""
    if X is None:
        fail("X", "the features of the rows, as the hazard function takes them", "None")
    start = np.zeros(rows.n) if rows.entry is None else rows.entry.astype(np.float64)
    time = rows.time.astype(np.float64)
    hazard, loss = _integral(model, X, start, time), None
    if not model.cumulative:
        with np.errstate(divide="ignore"):  # an event where the hazard is 0 has an infinite loss
            loss = hazard - np.where(rows.event, np.log(_called(model, X, time)), 0.0)
    how = "differences of a cumulative hazard" if model.cumulative else "integrals of a hazard function"
    reading = (f"F at a row's observed time is exact: from {how}.",)
    if rows.entry is not None:
        return ModelPredictions("HazardFunction", "hazard function", rows.n, hazard=hazard, nll=loss, reading=reading)
    grid = rows.grid()
    edges = np.append(0.0, grid)
    steps = [_integral(model, X, *(np.full(rows.n, end) for end in edges[k : k + 2])) for k in range(grid.size)]
    return ModelPredictions(
        "HazardFunction",
        "hazard function",
        rows.n,
        survival=np.exp(-np.cumsum(steps, axis=0)).T,
        times=grid,
        cdf=-np.expm1(-hazard),
        nll=loss,
        reading=(*reading, f"Curves were read at {grid.size} times, the horizons among them.", BETWEEN["linear"]),
    )


def _integral(model: HazardFunction, X: Any, start: Vector, end: Vector) -> Vector:
    """Integrate the hazard of every row between two times, in ever more pieces until that changes nothing."""
    if model.cumulative:
        found = _called(model, X, end) - np.where(start > 0, _called(model, X, start), 0.0)
        if (falls := found < 0).any():
            row = first_row(falls)
            got = f"a fall by {-found[row]:g} from {start[row]:g} to {end[row]:g}"
            fail("model", "a cumulative hazard that never falls", got, row)
        return np.asarray(found)
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    before, pieces = np.full(start.size, np.inf), 1
    while True:
        half = (end - start) / (2 * pieces)
        found = np.zeros(start.size)
        for piece in range(pieces):
            for node, weight in zip(nodes, weights, strict=True):
                found += weight * half * _called(model, X, start + half * (2 * piece + 1 + node))
        off = np.abs(found - before) / (1 + found)
        if off.max() <= _CLOSE:
            return found
        if pieces == _MOST_PIECES:
            break
        before, pieces = found, 2 * pieces
    if off.max() > _FAR:
        row = int(np.argmax(off))
        expected = "a hazard that can be integrated over each row (or its integral, by cumulative=True)"
        fail(
            "model",
            expected,
            f"one that {_NODES * pieces:,} points from {start[row]:g} to {end[row]:g} do not show",
            row,
        )
    return found


def _called(model: HazardFunction, X: Any, t: Vector) -> Vector:
    """Ask the function, and check what it gives."""
    values = np.asarray(as_numpy("model", model.function(X, t)), dtype=np.float64)
    if values.shape != t.shape:
        fail("model", f"a function that gives {t.size} hazards, one for each row", f"shape {values.shape}")
    if (bad := ~((values >= 0) & np.isfinite(values))).any():
        row = first_row(bad)
        fail("model", "hazards of zero or more", f"{values[row]} at time {t[row]:g}", row)
    return values
