"""A saved model as a form: one field per column, and the curve of the patient whose values are filled in."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import as_number, fail

_POINTS = 61
_FEWEST = 3  # networks of which a range says something


@dataclass(frozen=True)
class Field:
    """One field: a column, its kind, what it holds at first, and the labels it may have; empty for unknown."""

    name: str
    kind: str  # "number", "category" or "date"
    value: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Calculated:
    """A survival curve, the range of the networks behind it, and the call that gives it.

    Attributes
    ----------
    times, survival : list of float
        The curve.
    lower, upper : list of float or None
        Lowest and highest survival among the networks, which were trained from different seeds; None where they are
        fewer than three.
    median : float or None
        Time by which half of such patients have had the event; None where the curve does not come down so far.
    notes : list of str
        What the model says of the values.
    call : str
        The same in Python.
    """

    times: list[float]
    survival: list[float]
    lower: list[float] | None
    upper: list[float] | None
    median: float | None
    notes: list[str]
    call: str


def read_model(path: Path) -> Any:
    """Read a model that predicts by columns with names."""
    from xcal import load

    try:
        model = load(path)
    except ValueError as error:
        fail("file", "a model that xcal saved", str(error).partition("got ")[2].replace(str(path), path.name))
    fields_of(model)
    return model


def fields_of(model: Any) -> list[Field]:
    """Return the fields of a model, with the value that stands for a missing number."""
    encoding = getattr(model, "encoding_", None)
    if encoding is not None:
        return [Field(one.name, one.kind, _at_first(one), tuple(one.categories)) for one in encoding.columns]
    inner = getattr(model, "model_", model)
    if inner is not model:
        return fields_of(inner)
    names = [str(name) for name in getattr(model, "feature_names_in_", ())]
    if not names:
        names = [f"x{k}" for k in range(int(getattr(model, "n_features_in_", 0)))]
    if not names:
        fail("file", "a model whose columns are known", "one that does not say what it was trained on")
    return [Field(name, "number", "0") for name in names]


def _at_first(code: Any) -> str:
    """Return what stands for a missing value, to a day of the month that tells no row."""
    import pandas as pd

    if code.kind == "number":
        return f"{code.fill:.3g}"
    return "" if code.kind == "category" else f"{pd.Timestamp(code.origin) + pd.Timedelta(days=code.fill):%Y-%m}-01"


def calculate(model: Any, values: Mapping[str, Any], name: str) -> Calculated:
    """Return the curve of a patient."""
    import pandas as pd

    row = {one.name: _read(one, values.get(one.name)) for one in fields_of(model)}
    inside = getattr(model, "model_", model)
    named = any(hasattr(one, name) for one in (model, inside) for name in ("encoding_", "feature_names_in_"))
    X: Any = pd.DataFrame([row]) if named else np.array([list(row.values())], dtype=np.float64)
    times = np.linspace(0.0, float(model.last_time_), _POINTS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        survival = np.asarray(model.predict_survival_function(X, times))[0]
        median = float(np.asarray(model.predict_median(X))[0])
        members = _members(model, X, times)
    given = ", ".join(f"{key!r}: {_written(value)}" for key, value in row.items())
    call = [
        "import numpy as np, pandas as pd, xcal\n",
        f"model = xcal.load({name!r})",
        f"row = pd.DataFrame([{{{given}}}]){'' if named else '.to_numpy()'}",
        f"model.predict_survival_function(row, times=np.linspace(0, model.last_time_, {_POINTS}))",
    ]
    return Calculated(
        times=times.tolist(),
        survival=survival.tolist(),
        lower=None if members is None else members.min(axis=0).tolist(),
        upper=None if members is None else members.max(axis=0).tolist(),
        median=median if np.isfinite(median) else None,
        notes=list(dict.fromkeys(str(one.message).splitlines()[0] for one in caught)),
        call="\n".join(call),
    )


def _members(model: Any, X: Any, times: Any) -> Any:
    """Return the survival of each network, shape (networks, times); None where there are few, or other ones."""
    if not hasattr(model, "predict_members"):
        return None
    found = model.predict_members(X)
    if len(found) < _FEWEST:
        return None
    import torch

    at = torch.as_tensor(times)
    return np.stack([one.survival(at).numpy().reshape(-1)[: len(times)] for one in found])


def _read(one: Field, value: Any) -> Any:
    """Read what was filled in; nothing is a missing value."""
    import pandas as pd

    text = "" if value is None else str(value).strip()
    if one.kind == "category":
        return text or None
    if one.kind == "date":
        found = pd.to_datetime(text or None, errors="coerce")
        if text and found is pd.NaT:
            fail(one.name, "a date such as 2024-12-31", repr(text[:40]))
        return found
    if not text:
        return np.nan
    try:
        number = float(text.replace(",", "."))
    except ValueError:
        fail(one.name, "a number", repr(text[:40]))
    return as_number(one.name, number)


def _written(value: Any) -> str:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return "None"
    return repr(value) if isinstance(value, str | float) else f"pd.Timestamp({str(value)[:10]!r})"
