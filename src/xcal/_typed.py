"""What a file says as checked objects: the type hints of a dataclass are the rules for its JSON or TOML.

A file may come from a stranger: every key and every value is looked at before anything is made of it, and what does not
fit is one error that names the key. No error is longer than a few lines, however large the value.
"""

import json
import math
import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from xcal._checks import fail

_Kind = TypeVar("_Kind")
LARGEST_INTEGER = 2**63  # whole numbers are kept in 64 bits
_SCALARS: dict[Any, tuple[type | tuple[type, ...], str]] = {
    str: (str, "text"),
    bool: (bool, "true or false"),
    int: (int, "a whole number"),
    float: ((int, float), "a number"),
}
_shortened = reprlib.Repr()
_shortened.maxstring = _shortened.maxother = _shortened.maxlong = 100


@dataclass(frozen=True)
class Limits:
    """Numbers that a key may have: ``Annotated[float, Limits(at_least=0, below=1)]``."""

    at_least: float = -math.inf
    above: float = -math.inf
    below: float = math.inf

    def check(self, name: str, value: Any) -> None:
        """Refuse a number outside."""
        if not (self.at_least <= value < self.below and value > self.above):
            sides = {"of at least": self.at_least, "above": self.above, "below": self.below}
            fail(name, "a number " + " and ".join(f"{w} {x:g}" for w, x in sides.items() if abs(x) < math.inf), value)


@dataclass(frozen=True)
class OneOf:
    """Words that a key may have, where they are not known before the program runs."""

    words: Iterable[str]

    def check(self, name: str, value: Any) -> None:
        """Refuse another word."""
        if value not in self.words:
            fail(name, " or ".join(self.words), shown(value))


class NotANumberToo:
    """Lets a float be NaN or infinite."""


def shown(value: Any) -> str:
    """Return a value as text of a bounded length, however large or deep it is."""
    return _shortened.repr(value)


def parse_json(name: str, text: str | bytes) -> Any:
    """Return what a text of JSON holds; what is no JSON, or nested without end, is an error that names it."""
    try:
        return json.loads(text)
    except RecursionError:
        fail(name, "JSON", "JSON that is nested too deeply")
    except ValueError as error:
        fail(name, "JSON", f"text that is none ({error})")


def read(kind: type[_Kind], values: Any, where: str = "") -> _Kind:
    """Return a dataclass from the table of its keys and values.

    Parameters
    ----------
    kind : dataclass
        Its hints may be str, bool, int, float (finite), Any, None, Literal, dataclasses, lists, arrays of float64,
        tuples, tables ``dict[str, ...]``, unions of these, and ``Annotated`` with `Limits` or `OneOf`. A field with a
        default may be left out. ``field(metadata={"key": ...})`` says the name in the file where it is another.
    values
        From `parse_json` or `tomllib`.
    where : str
        What to call it in an error.

    Examples
    --------
    >>> @dataclass
    ... class Layer:
    ...     size: Annotated[int, Limits(at_least=1)]
    ...     dropout: float = 0.0
    >>> read(Layer, {"size": 8})
    Layer(size=8, dropout=0.0)
    >>> read(Layer, {"size": 8, "dropout": "high"}, "layer")
    Traceback (most recent call last):
    ValueError: layer.dropout: expected a number, got 'high'
    """
    # The type variable stands for dataclasses only, which mypy has no way to be told.
    known: dict[str, Field[Any]] = {one.metadata.get("key", one.name): one for one in fields(kind)}  # type: ignore[arg-type]
    needed = [key for key, one in known.items() if one.default is MISSING and one.default_factory is MISSING]
    check_keys(where or "keys", values, known, needed)
    hints = get_type_hints(kind, include_extras=True)
    dot = f"{where}." if where else ""
    return kind(**{known[key].name: checked(dot + key, value, hints[known[key].name]) for key, value in values.items()})


def check_keys(where: str, values: Any, known: Iterable[str], needed: Iterable[str]) -> None:
    """Refuse what is no table, has a key that is not known, or lacks one that is needed."""
    if not isinstance(values, Mapping):
        fail(where, "a table of keys and values", shown(values))
    for key in values:
        if key not in known:
            fail(where, f"one of the keys {', '.join(known)}", shown(key))
    for key in needed:
        if key not in values:
            fail(where, f"a value for {key!r}", "none")


def checked(where: str, value: Any, hint: Any) -> Any:
    """Return a value as its type hint says, or refuse it; see `read`."""
    origin, options = get_origin(hint), get_args(hint)
    if origin is Annotated:
        rules = hint.__metadata__
        if any(rule is NotANumberToo for rule in rules) and isinstance(value, float):
            return value
        found = checked(where, value, options[0])
        for rule in rules:
            if rule is not NotANumberToo:
                rule.check(where, found)
        return found
    if origin in (Union, UnionType):
        return _one_of_kinds(where, value, options)
    if origin is Literal:
        # The type too: True equals 1, and a list has no hash.
        if not any(value == option and type(value) is type(option) for option in options):
            fail(where, " or ".join(map(repr, options)), shown(value))
        return value
    if origin is np.ndarray:
        return np.array(checked(where, value, list[float]), dtype=np.float64)
    if origin in (tuple, list):
        return _sequence(where, value, origin, options)
    if origin is dict:
        check_keys(where, value, value, ())
        return {key: checked(f"{where}.{key}", item, options[1]) for key, item in value.items()}
    if is_dataclass(hint):
        return read(hint, value, where)  # type: ignore[arg-type]  # a class, as hints are
    return value if hint is Any else _scalar(where, value, hint)


def _one_of_kinds(where: str, value: Any, kinds: tuple[Any, ...]) -> Any:
    if value is None and NoneType in kinds:
        return None
    others = [kind for kind in kinds if kind is not NoneType]
    for kind in others[:-1]:
        if kind in _SCALARS and isinstance(value, _SCALARS[kind][0]) and not isinstance(value, bool):
            return checked(where, value, kind)
    return checked(where, value, others[-1])


def _sequence(where: str, value: Any, kind: type, options: tuple[Any, ...]) -> Any:
    """Check a list, whose items are all of one kind or, in a tuple of so many, each of its own."""
    if not isinstance(value, list):
        fail(where, "a list", shown(value))
    hints: Iterable[Any] = options
    if kind is list or options[-1] is Ellipsis:
        hints = [options[0]] * len(value)
    elif len(value) != len(options):
        fail(where, f"a list of {len(options)} values", shown(value))
    return kind(checked(f"{where}[{i}]", item, hint) for i, (item, hint) in enumerate(zip(value, hints, strict=True)))


def _scalar(where: str, value: Any, hint: Any) -> Any:
    """Check text, a truth value or a number; a whole number in the place of a float becomes one."""
    kind, name = _SCALARS[hint]
    if not isinstance(value, kind) or (isinstance(value, bool) and hint is not bool):
        fail(where, name, shown(value))
    number: Any = value
    if hint is int and abs(number) >= LARGEST_INTEGER:
        fail(where, "a whole number of 64 bits", shown(value))
    if hint is float and (abs(number) >= LARGEST_INTEGER if isinstance(number, int) else not math.isfinite(number)):
        fail(where, "a finite number", shown(value))
    return float(number) if hint is float else number
