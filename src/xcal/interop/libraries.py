"""Which libraries' models can be read, and what each gives. A model is recognised by its class, without an import."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from xcal._checks import fail
from xcal.interop.rows import Rows

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


# A reader that is a text is the module of ours that holds the function `read`, imported when it is needed.
_KNOWN: dict[str, tuple[Library, Reader | str]] = {}


def _built_in(name: str, models: str, gives: str, modules: tuple[str, ...], home: str) -> None:
    _KNOWN[name] = (Library(name, models, gives, modules), f"xcal.interop.{home}")


_built_in(
    "xcal",
    "SurvivalModel, SurvivalPath",
    "exact curves, exact F, likelihood",
    ("xcal.estimators",),
    "from_xcal",
)
_built_in(
    "xcal, recalibrated",
    "Recalibrated, over a model of any library here",
    "what the model inside gives, recalibrated",
    ("xcal.recalibration",),
    "from_recalibrated",
)
_built_in(
    "lifelines",
    "CoxPHFitter, AFT fitters, every regression fitter",
    "Cox and Aalen: step curves at the model's times; parametric models: exact curves, exact F, likelihood",
    ("lifelines",),
    "from_lifelines",
)
_built_in(
    "scikit-survival",
    "Cox, Coxnet, trees, forests, boosting, stacking; pipelines and searches that end in one of them",
    "step curves at the model's event times",
    ("sksurv",),
    "from_scikit_survival",
)
_built_in(
    "pycox",
    "every model with predict_surv_df, also model.interpolate(...)",
    "Cox models: step curves; discrete models: curves on their grid, straight in between",
    ("pycox",),
    "from_pycox",
)
_built_in(
    "torchsurv",
    "a torch network inside xcal.interop.TorchsurvWeibull or TorchsurvCox",
    "Weibull: exact curves, exact F, likelihood; Cox: step curves by Breslow's estimator",
    ("xcal.interop.torchsurv_models",),
    "from_torchsurv",
)
_built_in(
    "XGBoost",
    "Booster, XGBRegressor or XGBModel with objective survival:aft",
    "exact curves, exact F, likelihood",
    ("xgboost",),
    "from_xgboost",
)
_built_in(
    "hazardous",
    "SurvivalBoost with one kind of event",
    "curves on its time grid, straight in between",
    ("hazardous",),
    "from_hazardous",
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
                    found: Reader = import_module(reader).read
                    return found
                return reader
    return None
