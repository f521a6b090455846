"""`read_model`: what any model, or curves as numbers or functions, say about rows; which libraries can be read."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import (
    FloatArray,
    as_cause_names,
    as_choice,
    as_event,
    as_number,
    as_numpy,
    as_probability,
    as_time,
    check_same_length,
    fail,
)
from xcal.calibration.penalty import full_precision
from xcal.interop.predictions import (
    BETWEEN,
    ModelPredictions,
    ReadsItself,
    Rows,
    WholeLaw,
    check_fitted,
    check_predictions,
    checked_incidence,
    class_name,
    count_rows,
    event_free,
    from_own_times,
    models_by_cause,
    names_of,
    of_causes,
    past_the_end,
    put_together,
    take_rows,
)
from xcal.metrics.inputs import INTERPOLATIONS, Interpolation, Vector, as_curves, as_time_grid

# --- Which libraries' models can be read, and what each gives. A model is recognised by its class, without an import.

Reader = Callable[[Any, Any, Rows], Any]


@dataclass(frozen=True)
class Library:
    """One library whose models can be read.

    Attributes
    ----------
    name : str
    models : str
        Which of its models, in words.
    gives : str
        What is read from them: curves, F at the observed time, likelihood.
    modules : tuple of str
        A model belongs here if its class, or a base of it, is one of these or lies within one.
    """

    name: str
    models: str
    gives: str
    modules: tuple[str, ...]


# By the name of its reader in `xcal.interop.readers`, which is imported when it is needed.
_BUILT_IN = {
    "read_xcal": Library("xcal", "SurvivalModel, SurvivalPath", "exact curves, exact F, likelihood", ()),
    "read_recalibrated": Library(
        "xcal, recalibrated",
        "Recalibrated, over a model of any library here",
        "what the model inside gives, recalibrated",
        (),
    ),
    "read_lifelines": Library(
        "lifelines",
        "CoxPHFitter, AFT fitters, every regression fitter; CoxTimeVaryingFitter; AalenJohansenFitter",
        "Cox and Aalen: step curves at the model's times; parametric models: exact curves, exact F, likelihood; "
        "CoxTimeVaryingFitter: hazards along the rows of a person; Aalen-Johansen: the incidence of one cause",
        ("lifelines",),
    ),
    "read_scikit_survival": Library(
        "scikit-survival",
        "Cox, Coxnet, trees, forests, boosting, stacking; pipelines and searches that end in one of them",
        "step curves at the model's event times",
        ("sksurv",),
    ),
    "read_pycox": Library(
        "pycox",
        "every model with predict_surv_df, also model.interpolate(...); DeepHit with its causes",
        "Cox models: step curves; discrete models: curves on their grid, straight in between",
        ("pycox",),
    ),
    "read_torchsurv": Library(
        "torchsurv",
        "a torch network inside xcal.interop.TorchsurvWeibull or TorchsurvCox",
        "Weibull: exact curves, exact F, likelihood; Cox: step curves by Breslow's estimator",
        ("xcal.interop.readers",),
    ),
    "read_xgboost": Library(
        "XGBoost",
        "Booster, XGBRegressor or XGBModel with objective survival:aft",
        "exact curves, exact F, likelihood",
        ("xgboost",),
    ),
    "read_hazardous": Library(
        "hazardous",
        "SurvivalBoost, of one kind of event or of several causes",
        "curves, or the incidence of each cause, on its time grid, straight in between",
        ("hazardous",),
    ),
    "read_hazard": Library(
        "hazard function",
        "a function of X and times inside xcal.interop.HazardFunction",
        "hazards along the rows of a person; exact curves, exact F, likelihood",
        ("xcal.interop.predictions.HazardFunction",),
    ),
    "read_comprisk": Library(
        "comprisk",
        "CompetingRiskForest; FineGrayRegression and its penalized form, of one cause",
        "the incidence of each cause, or of one: step curves",
        ("comprisk",),
    ),
}
_KNOWN: dict[str, tuple[Library, Reader | str]] = {library.name: (library, name) for name, library in _BUILT_IN.items()}


def register(name: str, read: Reader, *, modules: Iterable[str], models: str = "", gives: str = "curves") -> None:
    """Teach `xcal.audit` and `read_model` to read another library's models.

    Parameters
    ----------
    name : str
        Name of the library. A name that is there already is replaced.
    read : callable
        ``read(model, X, rows)``. `rows` has `time`, `event`, `n` and ``grid()``, times at which curves are wanted.
        It returns a `ModelPredictions`, or any form of curves that `read_model` takes: a data frame, a list of
        functions, or a pair ``(survival, times)``.
    modules : sequence of str
        Modules of the library's classes, ``("mylibrary",)`` for all of them.
    models, gives : str
        What `supported` shows.

    Examples
    --------
    >>> from xcal.interop.reading import register, unregister
    >>> register("mine", lambda model, X, rows: (model.curves(X), model.times), modules=("mylibrary",))
    >>> unregister("mine")
    """
    if not isinstance(name, str) or not name:
        fail("name", "the name of a library", repr(name))
    if not callable(read):
        fail("read", "a function of model, X and rows", type(read).__name__)
    places = (modules,) if isinstance(modules, str) else tuple(modules)
    if not places or not all(isinstance(place, str) and place for place in places):
        fail("modules", "names of modules", repr(places))
    _KNOWN[name] = (Library(name, models or f"models of {name}", gives, places), read)


def unregister(name: str) -> None:
    """Forget a library that was registered."""
    if name not in _KNOWN:
        fail("name", f"one of {', '.join(_KNOWN)}", repr(name))
    del _KNOWN[name]


def supported() -> Any:
    """Table of the libraries whose models can be read, as a pandas DataFrame: models, and what is read of them.

    Besides, any object with a method ``predict_survival_function`` or ``predict_cumulative_incidence``, a mapping of
    causes to models of one cause each, and plain predictions: survival curves as an array with ``times=``, a data frame
    or a list of functions, the incidence of each cause, F at the observed times, or risks at one horizon.

    Examples
    --------
    >>> from xcal.interop import supported
    >>> "lifelines" in supported().index
    True
    """
    import pandas as pd

    lines = [library for library, _ in _KNOWN.values()]
    return pd.DataFrame(
        {"models": [line.models for line in lines], "gives": [line.gives for line in lines]},
        index=pd.Index([line.name for line in lines], name="library"),
    )


def find_reader(model: Any) -> Reader | None:
    """Find the function that reads this model; None for a class of no known library."""
    places = [f"{base.__module__}.{base.__qualname__}" for base in type(model).__mro__]
    found = [
        reader
        for place in places
        for library, reader in _KNOWN.values()
        if any(place == module or place.startswith(f"{module}.") for module in library.modules)
    ]
    # Models of xcal are built on this package, which knows them by what they can be asked.
    found += [_KNOWN["xcal, recalibrated"][1]] if isinstance(model, ReadsItself) else []
    found += [_KNOWN["xcal"][1]] if isinstance(model, WholeLaw) else []
    reader = found[0] if found else None
    return getattr(import_module("xcal.interop.readers"), reader) if isinstance(reader, str) else reader


# --- Survival curves in a data frame: which side holds the times.
# Libraries disagree. lifelines and pycox give times x rows, with the times in the index; tables are mostly rows x
# times. The labels decide; where both sides could hold the times, the frame is refused and never guessed.


def is_frame(values: Any) -> bool:
    """Whether this is a pandas or polars data frame."""
    return hasattr(values, "columns") and type(values).__module__.split(".")[0] in {"pandas", "polars"}


def curves_of_frame(frame: Any, n: int, times: Any = None, *, name: str = "survival") -> tuple[FloatArray, Vector]:
    """Read survival curves of `n` rows: array of shape (n, m), and the m times.

    Parameters
    ----------
    frame : pandas or polars data frame
        Rows x times with the times as column names (numbers, or text that is a number), or times x rows with the times
        as index.
    n : int
        Rows, as many as y has.
    times : array-like, optional
        The times, where the labels do not say them: then the frame is rows x times.

    Examples
    --------
    >>> import pandas as pd
    >>> curves_of_frame(pd.DataFrame([[0.9, 0.5], [0.8, 0.7], [1.0, 0.9]], columns=[1.0, 2.0]), 3)[1]
    array([1., 2.])
    >>> curves_of_frame(pd.DataFrame([[0.9, 0.8, 1.0], [0.5, 0.7, 0.9]], index=[1.0, 2.0]), 3)[0].shape
    (3, 2)
    """
    if type(frame).__name__ == "LazyFrame":
        fail(name, "a data frame with its rows", "a LazyFrame: call .collect() first")
    values = as_numpy(name, frame.to_numpy())
    across, down = as_times(list(frame.columns)), as_times(list(getattr(frame, "index", [])))
    shape = f"shape {values.shape}"
    if times is not None:
        asked = as_numpy("times", times).astype(np.float64)
        return _by_given_times(name, values, asked, n)
    by_row = across is not None and values.shape[0] == n
    by_column = down is not None and values.shape[1] == n
    if by_row and by_column:
        advice = "give times= with an array of shape (rows, times)"
        fail(name, f"a data frame whose labels tell rows from times ({advice})", f"{shape} with times on both sides")
    if by_row and across is not None:
        return values, across
    if by_column and down is not None:
        return values.T, down
    wanted = f"{n} rows with increasing times as column names, or {n} columns with increasing times as index"
    fail(name, wanted, f"{shape}, columns {_some(frame.columns)}")


def as_times(labels: list[Any]) -> Vector | None:
    """Labels as increasing times of zero or more; None if they are none."""
    if not labels or any(isinstance(label, bool | tuple) for label in labels):
        return None
    try:
        times = np.asarray([float(label) for label in labels])
    except (TypeError, ValueError):
        return None
    fits = np.isfinite(times).all() and times[0] >= 0 and (np.diff(times) > 0).all()
    return times if fits else None


def _by_given_times(name: str, values: npt.NDArray[Any], times: Vector, n: int) -> tuple[FloatArray, Vector]:
    """Orient by shape alone: the user said what the times are."""
    by_row, by_column = values.shape == (n, times.size), values.shape == (times.size, n)
    if by_column and not by_row:
        return values.T, times
    if by_row and (not by_column or times.size == n):
        return values, times  # a square frame is rows x times, as an array is
    fail(name, f"shape ({n}, {times.size}), rows x times, or its transpose", f"shape {values.shape}")


def _some(labels: Any) -> str:
    shown = [str(label) for label in list(labels)[:3]]
    return ", ".join(shown) + (", ..." if len(labels) > 3 else "")


# --- Survival curves as functions: scikit-survival's step functions, xcal's curves, or anything that can be called.


def is_functions(values: Any) -> bool:
    """Whether this is a list or an array of functions."""
    if isinstance(values, np.ndarray):
        return values.dtype == object and values.ndim == 1 and values.size > 0 and callable(values[0])
    return isinstance(values, Sequence) and len(values) > 0 and callable(values[0])


def curves_of_functions(functions: Any, rows: Rows) -> tuple[FloatArray, Vector, Interpolation]:
    """Read functions of time at their own points, or at the times that were asked for.

    A step function (``StepFunction`` of scikit-survival) is read at all of its steps, so that "previous" gives its
    value at every time. Other functions are smooth: they are called at a grid and read along straight lines.
    """
    steps = all(type(function).__name__ == "StepFunction" for function in functions)
    times = _points(functions, rows) if steps or rows.times is not None else _within(functions, rows.grid())
    survival = np.empty((len(functions), times.size))
    for row, function in enumerate(functions):
        if not callable(function):
            fail("survival", "functions of time in every row", type(function).__name__, row)
        values = _held(function, times) if steps else as_numpy("survival", function(times))
        if values.shape != times.shape:
            fail("survival", f"functions that give {times.size} values for {times.size} times", values.shape, row)
        survival[row] = values
    return survival, times, "previous" if steps else "linear"


def _held(step: Any, times: Vector) -> FloatArray:
    """Read a step function by its own steps: 1 before the first, as survival is, and the last value past the end.

    A call of scikit-survival's own refuses times past the end, and gives the first value before the first step.
    """
    passed = np.searchsorted(np.asarray(step.x), times, side="right") - 1
    values = step.a * np.asarray(step.y, dtype=np.float64) + step.b
    return np.where(passed < 0, 1.0, values[np.maximum(passed, 0)])


def _points(functions: Any, rows: Rows) -> Vector:
    """All steps of all functions, or the times that were asked for."""
    if rows.times is not None:
        return rows.times
    first = np.asarray(functions[0].x, dtype=np.float64)
    if all(function.x is functions[0].x for function in functions):
        return first
    return np.unique(np.concatenate([np.asarray(function.x, dtype=np.float64) for function in functions]))


def end_of_functions(functions: Any) -> float | None:
    """Return the last time that every function covers; None where they do not say what they cover."""
    ends = [function.domain[1] for function in functions if getattr(function, "domain", None) is not None]
    return float(min(ends)) if ends else None


def _within(functions: Any, grid: Vector) -> Vector:
    """Those times of the grid that every function covers, where the functions say what they cover."""
    end = end_of_functions(functions)
    inside = grid if end is None else grid[grid <= end]
    if inside.size == 0:
        fail("survival", "functions that cover the times of y", f"an end at time {end:g}")
    return inside


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


def read_incidence(
    cif: Any, rows: Rows, *, times: Any = None, interpolation: Interpolation | None = None
) -> ModelPredictions:
    """Cumulative incidence of each cause: an array, a mapping of causes to curves, or one estimate for all rows.

    Parameters
    ----------
    cif
        Array of shape (n, causes, m), the causes 1, 2, ... in order, with `times`; a mapping of the names or numbers of
        causes to arrays or data frames of one curve for each row; or the pair of times and incidences that
        scikit-survival's ``cumulative_incidence_competing_risks`` returns, whose first line is their sum.
    times, interpolation
        As for `read_curves`.
    """
    names: tuple[str, ...] = ()
    how: Interpolation = "linear"
    if isinstance(cif, tuple) and len(cif) in (2, 3) and times is None:
        times, lines = as_numpy("cif", cif[0]), as_numpy("cif", cif[1])
        if lines.ndim != 2 or len(lines) < 2 or not np.allclose(lines[0], lines[1:].sum(axis=0), atol=1e-6):
            expected = "times, and incidences of shape (1 + causes, times) of which the first line is the sum"
            fail("cif", expected, f"shape {lines.shape}")
        values, how = np.broadcast_to(lines[1:], (rows.n, *lines[1:].shape)), "previous"
    elif isinstance(cif, Mapping):
        if not cif:
            fail("cif", "the incidence of at least one cause", "an empty mapping")
        names = tuple(str(name) for name in cif)
        found = [_of_one_cause(f"cif[{name!r}]", one, rows.n, times) for name, one in cif.items()]
        times = found[0][1]
        for name, (curves, own) in zip(cif, found, strict=True):
            if curves.shape != found[0][0].shape or not np.array_equal(own, times):
                fail(f"cif[{name!r}]", f"the times of cif[{next(iter(cif))!r}]", f"{own.size} times from {own[0]:g}")
        values = np.stack([curves for curves, _ in found], axis=1)
    else:
        values = as_numpy("cif", cif)
        if times is None:
            fail("times", "the times of the last dimension of cif", "None")
        if values.ndim != 3 or len(values) != rows.n:
            expected = (
                f"shape ({rows.n}, causes, times) (of one cause: a mapping of it to an array of shape (rows, times))"
            )
            fail("cif", expected, f"shape {values.shape}")
    names = names or names_of(values)
    incidence, points = checked_incidence("cif", values, times)
    if interpolation is not None:
        how = as_choice("interpolation", interpolation, INTERPOLATIONS)
    reading = (
        f"The incidence of each cause was given at {points.size:,} times, from {points[0]:g} to {points[-1]:g}.",
        *of_causes(names, rows),
        BETWEEN[how],
        past_the_end(float(points[-1]), rows.time),
    )
    return ModelPredictions(
        "incidences",
        "none",
        rows.n,
        survival=event_free(incidence, names, rows),
        times=points,
        interpolation=how,
        reading=reading,
        end=float(points[-1]),
        incidence=incidence,
        causes=names,
    )


def _of_one_cause(name: str, curves: Any, n: int, times: Any) -> tuple[FloatArray, Vector]:
    """Read the curves of one cause, shape (n, m), and their times."""
    if is_frame(curves):
        return curves_of_frame(curves, n, times, name=name)
    array = as_numpy(name, curves)
    if times is None:
        fail("times", f"the times of the columns of {name}", "None")
    if array.ndim != 2 or len(array) != n:
        fail(name, f"shape ({n}, times), one curve for each row", f"shape {array.shape}")
    return array, as_numpy("times", times).astype(np.float64)


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


def read_model(
    model: Any,
    X: Any = None,
    *,
    time: Any,
    event: Any,
    times: Any = None,
    horizons: Any = (),
    causes: Any = (),
    entry: Any = None,
) -> ModelPredictions:
    """Read what a fitted model of any library, or a set of survival curves, says about rows.

    Parameters
    ----------
    model
        A fitted model of a library that `supported` lists, also as the last step of a scikit-learn pipeline or inside
        a search; any object with `predict_survival_function`; or survival curves themselves: an array of shape
        (rows, times) with `times`, a data frame, or a list of functions. Of several causes also a mapping of their
        names, or a list in their order, of models of one cause each: incidences as they are, and survival models that
        were fitted with the other causes as censored put together into incidences. What was read before, a
        `ModelPredictions` of these rows, is checked and returned.
    X
        Features of the rows, as the model takes them; None for curves.
    time, event : array-like of shape (n,)
        Outcomes: they say at which times the model is asked.
    times : array-like of shape (m,), optional
        Times of the columns of an array of curves; for a model, times at which its curves are kept.
    horizons : array-like, optional
        Times at which single risks will be read off the curves.
    causes : sequence of str, optional
        Names of the causes that the events of these rows may have. A model that knows fewer gives no survival.
    entry : array-like of shape (n,), optional
        Of rows of people whose covariates change: the time from which each row has its covariates. Models that were
        made for such rows then give `hazard`, the cumulative hazard from there to the time.

    Returns
    -------
    ModelPredictions
        Checked: as many rows as outcomes, probabilities in [0, 1], curves that do not rise. `reading` says how the
        curves were obtained and are read.

    Examples
    --------
    >>> curves = [[0.9, 0.6], [0.8, 0.3], [1.0, 0.7]]
    >>> found = read_model(curves, time=[1.0, 2.0, 3.0], event=[1, 1, 0], times=[1.0, 2.0])
    >>> found.n, found.interpolation
    (3, 'linear')
    >>> print(found.reading[2])
    The curves end at time 2; past it they keep their last value. Rows past it count as censored there in D-calibration.
    """
    seen = as_time(time)
    points = None if times is None else as_time_grid("times", times)
    happened, at = as_event(event, seen.size, reference="time"), np.asarray(horizons, dtype=np.float64)
    start = None if entry is None else as_time(entry, seen.size, reference="time", name="entry").astype(np.float64)
    rows = Rows(seen, happened, points, at, as_cause_names(causes) if len(causes) else (), start)
    if isinstance(model, ModelPredictions):  # read before
        return check_predictions(model, rows.n)
    of_each = None if is_functions(model) else models_by_cause(model, _is_model)
    if of_each is None and is_plain(model):
        return check_predictions(read_curves(model, rows, times=times), rows.n)
    # A network predicts what it was trained to predict, also inside a training loop with autocast.
    with full_precision(torch.device("cpu")), full_precision(torch.device("cuda")):
        found = _read(model, X, rows) if of_each is None else put_together(of_each, X, rows, _read)
    return check_predictions(found, rows.n)


def _read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read one model."""
    model, X = _innermost(model, X)
    reader = find_reader(model) or _by_method(model)
    if X is None and class_name(model) not in _OF_NOBODY:
        fail("X", f"the features of the rows, as {class_name(model)} takes them", "None")
    held = None if X is None else count_rows(X)
    if held is not None and held != rows.n:
        fail("X", f"{rows.n} rows, as many as y has", held)
    try:
        return _as_predictions(reader(model, X, rows), model, rows)
    except KeyError as missing:  # how data frames tell a column that they do not have
        fail("X", f"the columns that {class_name(model)} was fitted with", missing)


# Estimates of one curve for everybody, which take no features.
_OF_NOBODY = ("AalenJohansenFitter",)


def _innermost(model: Any, X: Any) -> tuple[Any, Any]:
    """Go through searches and pipelines of scikit-learn to the model at their end, with X as that model sees it."""
    while type(model).__module__.split(".")[0] == "sklearn":
        if type(model).__name__ == "Pipeline":
            check_fitted(model[-1])
            X, model = (model[:-1].transform(X) if len(model) > 1 else X), model[-1]
        elif hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            check_fitted(model)
            _refuse(model)
    return model, X


def _is_model(one: Any) -> bool:
    return find_reader(one) is not None or _predicts(one) != ""


def _predicts(model: Any) -> str:
    """Return the method by which an object of no known library predicts; "" if it has none."""
    known = ("predict_cumulative_incidence", "predict_survival_function")
    return next((name for name in known if callable(getattr(model, name, None))), "")


def _by_method(model: Any) -> Reader:
    """Read any object with `predict_survival_function`, or with `predict_cumulative_incidence` of several causes."""
    method = _predicts(model)
    if not method:
        _refuse(model)
    names = [name for name in ("unique_times_", "event_times_", "times_", "time_grid_") if hasattr(model, name)]
    own = getattr(model, names[0]) if names else None

    def read(model: Any, X: Any, rows: Rows) -> Any:
        if method == "predict_cumulative_incidence":
            grid = np.asarray(rows.grid() if own is None else own, dtype=np.float64)
            causes = names_of(np.asarray(model.predict_cumulative_incidence(take_rows(X, slice(0, 1)), grid)))
            origin = f"The incidence of each cause was asked of {class_name(model)} at {grid.size:,} times."
            return from_own_times(
                class_name(model),
                type(model).__module__.split(".")[0],
                lambda part: np.asarray(model.predict_cumulative_incidence(take_rows(X, part), grid)),
                *(grid, rows, "linear", origin, causes),
            )
        found = model.predict_survival_function(X)
        if is_frame(found) or is_functions(found):
            return found
        if own is None and rows.times is None:
            advice = "give times=, the times of the columns of what it predicts"
            fail("model", f"a predict_survival_function whose times are known ({advice})", "an array without times")
        return found, own if rows.times is None else rows.times

    return read


def _as_predictions(found: Any, model: Any, rows: Rows) -> ModelPredictions:
    """Turn what a reader gave into the one form."""
    if isinstance(found, ModelPredictions):
        return found
    name = class_name(model)
    library = type(model).__module__.split(".")[0]
    if isinstance(found, tuple) and len(found) == 2:
        return read_curves(found[0], rows, times=found[1], model=name, library=library)
    return read_curves(found, rows, model=name, library=library)


def _refuse(model: Any) -> NoReturn:
    """Raise the error of a model of no known library, with what can be done."""
    if any(base.__module__.startswith("torch.nn") for base in type(model).__mro__):
        fail(
            "model",
            "a model whose outputs have a meaning (a torch network: xcal.interop.TorchsurvWeibull(network), "
            "TorchsurvCox(network, X, time, event), or its survival curves with times=)",
            f"a bare {class_name(model)}",
        )
    known = ", ".join(dict.fromkeys(name.split(",")[0] for name in _KNOWN))
    fail(
        "model",
        f"a fitted model of {known}, an object with predict_survival_function, or survival curves "
        "(xcal.interop.register adds another library)",
        f"{type(model).__module__}.{class_name(model)}",
    )
