"""`read_model`: what any model says about rows, and which libraries' models can be read."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

import numpy as np
import torch

from xcal._checks import as_event, as_row, as_time, fail
from xcal.calibration.penalty import full_precision
from xcal.interop.plain import is_frame, is_functions, is_plain, read_curves
from xcal.interop.predictions import ModelPredictions, Rows, check_fitted, check_predictions, class_name, count_rows
from xcal.metrics.inputs import Vector

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
        A model belongs here if the module of its class, or of a base of it, is one of these or lies within.
    """

    name: str
    models: str
    gives: str
    modules: tuple[str, ...]


# A reader that is a text is the name of a function of `xcal.interop.readers`, which is imported when it is needed.
_KNOWN: dict[str, tuple[Library, Reader | str]] = {}


def _built_in(name: str, models: str, gives: str, modules: tuple[str, ...], home: str) -> None:
    _KNOWN[name] = (Library(name, models, gives, modules), f"read_{home}")


_built_in(
    "xcal",
    "SurvivalModel, SurvivalPath",
    "exact curves, exact F, likelihood",
    ("xcal.estimators",),
    "xcal",
)


_built_in(
    "xcal, recalibrated",
    "Recalibrated, over a model of any library here",
    "what the model inside gives, recalibrated",
    ("xcal.recalibration",),
    "recalibrated",
)


_built_in(
    "lifelines",
    "CoxPHFitter, AFT fitters, every regression fitter",
    "Cox and Aalen: step curves at the model's times; parametric models: exact curves, exact F, likelihood",
    ("lifelines",),
    "lifelines",
)


_built_in(
    "scikit-survival",
    "Cox, Coxnet, trees, forests, boosting, stacking; pipelines and searches that end in one of them",
    "step curves at the model's event times",
    ("sksurv",),
    "scikit_survival",
)


_built_in(
    "pycox",
    "every model with predict_surv_df, also model.interpolate(...)",
    "Cox models: step curves; discrete models: curves on their grid, straight in between",
    ("pycox",),
    "pycox",
)


_built_in(
    "torchsurv",
    "a torch network inside xcal.interop.TorchsurvWeibull or TorchsurvCox",
    "Weibull: exact curves, exact F, likelihood; Cox: step curves by Breslow's estimator",
    ("xcal.interop.readers",),
    "torchsurv",
)


_built_in(
    "XGBoost",
    "Booster, XGBRegressor or XGBModel with objective survival:aft",
    "exact curves, exact F, likelihood",
    ("xgboost",),
    "xgboost",
)


_built_in(
    "hazardous",
    "SurvivalBoost with one kind of event",
    "curves on its time grid, straight in between",
    ("hazardous",),
    "hazardous",
)


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
    >>> from xcal.interop import register, unregister
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

    Besides, any object with a method ``predict_survival_function``, and plain predictions: survival curves as an array
    with ``times=``, a data frame or a list of functions, F at the observed times, or risks at one horizon.

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


def library_names() -> tuple[str, ...]:
    """Names of all libraries, in order."""
    return tuple(_KNOWN)


def find_reader(model: Any) -> Reader | None:
    """Find the function that reads this model; None for a class of no known library."""
    for place in (base.__module__ for base in type(model).__mro__):
        for library, reader in _KNOWN.values():
            if any(place == module or place.startswith(f"{module}.") for module in library.modules):
                if isinstance(reader, str):
                    found: Reader = getattr(import_module("xcal.interop.readers"), reader)
                    return found
                return reader
    return None


# --- `read_model`: what any model says about rows.


def read_model(
    model: Any, X: Any = None, *, time: Any, event: Any, times: Any = None, horizons: Any = ()
) -> ModelPredictions:
    """Read what a fitted model of any library, or a set of survival curves, says about rows.

    Parameters
    ----------
    model
        A fitted model of a library that `supported` lists, also as the last step of a scikit-learn pipeline or inside
        a search; any object with `predict_survival_function`; or survival curves themselves: an array of shape
        (rows, times) with `times`, a data frame, or a list of functions.
    X
        Features of the rows, as the model takes them; None for curves.
    time, event : array-like of shape (n,)
        Outcomes: they say at which times the model is asked.
    times : array-like of shape (m,), optional
        Times of the columns of an array of curves; for a model, times at which its curves are kept.
    horizons : array-like, optional
        Times at which single risks will be read off the curves.

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
    points = None if times is None else _increasing(times)
    rows = Rows(seen, as_event(event, seen.size, reference="time"), points, np.asarray(horizons, dtype=np.float64))
    if is_plain(model):
        return check_predictions(read_curves(model, rows, times=times), rows.n)
    model, X = _innermost(model, X)
    reader = find_reader(model) or _by_method(model)
    if X is None:
        fail("X", f"the features of the rows, as {class_name(model)} takes them", "None")
    held = count_rows(X)
    if held is not None and held != rows.n:
        fail("X", f"{rows.n} rows, as many as y has", held)
    try:
        # A network predicts what it was trained to predict, also inside a training loop with autocast.
        with full_precision(torch.device("cpu")), full_precision(torch.device("cuda")):
            found = reader(model, X, rows)
    except KeyError as missing:  # how data frames tell a column that they do not have
        fail("X", f"the columns that {class_name(model)} was fitted with", missing)
    return check_predictions(_as_predictions(found, model, rows), rows.n)


def _increasing(times: Any) -> Vector:
    points: Vector = as_time(as_row("times", times), name="times").astype(np.float64)
    if (np.diff(points) <= 0).any():
        row = int(np.argmax(np.diff(points) <= 0)) + 1
        fail("times", "strictly increasing times", f"{points[row]} after {points[row - 1]}", row)
    return points


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


def _by_method(model: Any) -> Reader:
    """Read any object with `predict_survival_function`."""
    if not callable(getattr(model, "predict_survival_function", None)):
        _refuse(model)

    def read(model: Any, X: Any, rows: Rows) -> Any:
        found = model.predict_survival_function(X)
        if is_frame(found) or is_functions(found):
            return found
        names = [name for name in ("unique_times_", "event_times_", "times_") if hasattr(model, name)]
        own = getattr(model, names[0]) if names else None
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
    known = ", ".join(dict.fromkeys(name.split(",")[0] for name in library_names()))
    fail(
        "model",
        f"a fitted model of {known}, an object with predict_survival_function, or survival curves "
        "(xcal.interop.register adds another library)",
        f"{type(model).__module__}.{class_name(model)}",
    )
