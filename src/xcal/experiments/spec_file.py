"""Reading a spec from its TOML file, in which an unknown key or a value of the wrong kind is an error."""

import math
import tomllib
import warnings
from collections.abc import Iterable
from dataclasses import MISSING, fields
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from xcal._checks import fail
from xcal.experiments.spec import (
    LARGEST_INTEGER,
    DataSpec,
    ModelSpec,
    Spec,
    TrainingSpec,
    Variant,
    VariantSpec,
    checked_seeds,
)
from xcal.experiments.spec_checks import check_spec

_Section = TypeVar("_Section")
_TYPES: dict[Any, tuple[type | tuple[type, ...], str]] = {
    str: (str, "text"),
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
}
# Keys that had another name, and the value of `job` that had one; files with the earlier names can still be read.
_EARLIER_KEYS = {"rows": "models", "group": "job"}
_EARLIER_MODEL_KEYS = {"model": "distribution"}
_EARLIER_JOB = "row"


def table_names() -> list[str]:
    """Names of the tables that come with the package."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def load_spec(table: str | Path) -> Spec:
    """Read the spec of a table: one of `table_names`, or the path of a TOML file of your own."""
    text = str(table)
    if text.endswith(".toml"):
        source = Path(text)
        if not source.is_file():
            raise FileNotFoundError(f"table: expected a spec file, got {text}, which does not exist")
        content = source.read_bytes()
    elif text in table_names():
        content = (_folder() / f"{text}.toml").read_bytes()
    else:
        fail("table", f"one of {', '.join(table_names())}, or the path of a .toml file", repr(text))
    try:
        values = tomllib.loads(content.decode("utf-8"))
    # Text that is not UTF-8 or not TOML; a number of thousands of digits; lists within lists without end.
    except (ValueError, RecursionError) as error:
        fail(text, "a TOML file", f"one that cannot be read: {error}")
    try:
        return _spec(_with_new_names(text, values))
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from error


def _folder() -> Any:
    return files("xcal.experiments") / "specs"


def _with_new_names(source: str, values: dict[str, Any]) -> dict[str, Any]:
    """Rename keys that have an earlier name, and say so."""
    found = _renamed(values, _EARLIER_KEYS)
    if found.get("job") == _EARLIER_JOB:
        found["job"] = "model"
    if isinstance(found.get("models"), list):
        found["models"] = [_renamed(m, _EARLIER_MODEL_KEYS) if isinstance(m, dict) else m for m in found["models"]]
    if found != values:
        names = ", ".join(f"{old!r} is {new!r}" for old, new in (_EARLIER_KEYS | _EARLIER_MODEL_KEYS).items())
        value = f"the value {_EARLIER_JOB!r} is 'model'"
        warnings.warn(
            f"{source}: keys of a spec have new names: {names}; for 'job', {value}", FutureWarning, stacklevel=3
        )
    return found


def _renamed(values: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Rename keys; one that is there by both names stays, and is then refused as an unknown key."""
    return {names[key] if key in names and names[key] not in values else key: value for key, value in values.items()}


def _spec(values: dict[str, Any]) -> Spec:
    if not isinstance(values.get("models"), list) or not values["models"]:
        fail("models", "at least one [[models]] table", repr(values.get("models")))
    variants = values.get("variants", {})
    _check_keys("variants", variants, get_args(Variant), required=get_args(Variant))
    sections = {
        "data": _section(DataSpec, "data", values.get("data", {})),
        "training": _section(TrainingSpec, "training", values.get("training", {})),
        "variants": {name: _section(VariantSpec, f"variants.{name}", v) for name, v in variants.items()},
        "models": tuple(_section(ModelSpec, f"models[{i}]", model) for i, model in enumerate(values["models"])),
    }
    spec = _section(Spec, "", values | sections)
    checked_seeds(spec.seeds)
    check_spec(spec)
    return spec


def _section(kind: type[_Section], where: str, values: Any) -> _Section:
    """Read one TOML table into a dataclass, checking keys and the type of every value."""
    # The type variable stands for dataclasses only, which mypy has no way to be told.
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]  # dataclasses only
    required = [n for n, field in known.items() if field.default is MISSING and field.default_factory is MISSING]
    _check_keys(where or "keys", values, known, required=required)
    hints = get_type_hints(kind)
    dot = "." if where else ""
    return kind(**{name: _checked(f"{where}{dot}{name}", value, hints[name]) for name, value in values.items()})


def _check_keys(where: str, values: Any, known: Iterable[str], *, required: Iterable[str]) -> None:
    if not isinstance(values, dict):
        fail(where, "a table of keys and values", repr(values))
    for name in values:
        if name not in known:
            fail(where, f"one of the keys {', '.join(known)}", repr(name))
    for name in required:
        if name not in values:
            fail(where, f"a value for {name!r}", "none")


def _checked(where: str, value: Any, hint: Any) -> Any:
    """Check a value against the type of its field; TOML has no None, so an optional field is simply left out."""
    options = [option for option in get_args(hint) if option is not type(None)]
    if type(None) in get_args(hint):
        hint = options[0]
    if hint in _TYPES:
        return _checked_scalar(where, value, hint)
    origin = getattr(hint, "__origin__", None)
    if origin is Literal and value not in get_args(hint):
        fail(where, " or ".join(map(repr, get_args(hint))), repr(value))
    if origin is tuple and not isinstance(value, tuple):
        if not isinstance(value, list):
            fail(where, "a list", repr(value))
        return tuple(_checked(f"{where}[{i}]", item, get_args(hint)[0]) for i, item in enumerate(value))
    return value


def _checked_scalar(where: str, value: Any, hint: Any) -> Any:
    """Check text, a truth value or a number; a whole number in the place of a float becomes one."""
    kind, name = _TYPES[hint]
    if not isinstance(value, kind) or (isinstance(value, bool) and hint is not bool):
        fail(where, name, repr(value))
    number: Any = value
    if hint is int and abs(number) >= LARGEST_INTEGER:
        fail(where, "a whole number of 64 bits", repr(value))
    if hint is float and (abs(number) >= LARGEST_INTEGER if isinstance(number, int) else not math.isfinite(number)):
        fail(where, "a finite number", repr(value))
    return float(number) if hint is float else number
