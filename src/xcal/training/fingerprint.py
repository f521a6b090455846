"""What decides the result of a run, as text: a checkpoint of another run is told by it.

Data and initial weights are hashed. Families, objectives and networks are asked for their settings: their attributes,
the code of functions that are not a library's, its defaults, what it closes over and what it looks up, by name or in a
module of the user (``settings.K``). What has a state that cannot be read is refused: two runs that cannot be told
apart must not share a checkpoint.
"""

import dis
import hashlib
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import Enum
from functools import lru_cache, partial
from importlib import import_module
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from xcal._checks import fail
from xcal._extensions import extending_packages
from xcal._torch_private import MODULE_STATE
from xcal.objectives.joint import DECLARATION

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice, PurePath)
_BUILT_IN = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    np.ufunc,
)
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}

_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def digest(*pieces: bytes) -> str:
    """Return a short name for some bytes."""
    seen = hashlib.sha256()
    for piece in pieces:
        seen.update(len(piece).to_bytes(8, "little"))
        seen.update(piece)
    return seen.hexdigest()[:32]


def tensor_digest(tensors: Iterable[Tensor]) -> str:
    """Return a short name for the contents, shapes and types of some tensors, read one after another."""
    seen = hashlib.sha256()
    for tensor in tensors:
        values = tensor.detach().cpu().contiguous()
        seen.update(f"{values.dtype} {tuple(values.shape)}".encode())
        seen.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return seen.hexdigest()[:32]


def settings_digest(name: str, value: Any, *, weights: bool = True) -> str:
    """Return a short name for everything that decides what an object does.

    Parameters
    ----------
    name
        What to call the object in an error.
    value
        The object.
    weights
        Whether the parameters and buffers of torch modules count.
    """
    return digest(_Settings(name, weights).of(value).encode())


class _Settings:
    """Describes one object, and what it refers to, as text."""

    def __init__(self, name: str, weights: bool) -> None:
        self.name, self.weights = name, weights
        self.seen: dict[int, Any] = {}  # the objects too, so that no number is given twice

    def of(self, value: Any) -> str:
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__} {value!r}"
        if isinstance(value, _BUILT_IN):
            return f"{type(value).__name__} {getattr(value, '__qualname__', value.__name__)}"
        if isinstance(value, torch.dtype | torch.device | torch.Size | np.dtype | np.generic | Enum):
            return f"{type(value).__name__} {value!r}"
        if id(value) in self.seen:
            return f"again {list(self.seen).index(id(value))}"
        self.seen[id(value)] = value
        return f"{_place(type(value))}({self._content(value)})"

    def _content(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return tensor_digest([value])
        if isinstance(value, np.ndarray) and value.dtype != object:
            return f"{value.dtype} {value.shape} {digest(np.ascontiguousarray(value).tobytes())}"
        if isinstance(value, list | tuple):
            return ", ".join(map(self.of, value))
        if isinstance(value, dict):
            return ", ".join(f"{self.of(key)}: {self.of(item)}" for key, item in value.items())
        if isinstance(value, set | frozenset):
            return ", ".join(sorted(map(self.of, value)))
        if isinstance(value, partial):
            return ", ".join(map(self.of, (value.func, value.args, value.keywords)))
        if isinstance(value, types.MethodType):
            return f"{self.of(value.__func__)} of {self.of(value.__self__)}"
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, types.ModuleType):
            return self._module(value)
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, property):
            return ", ".join(map(self.of, (value.fget, value.fset)))
        if isinstance(value, staticmethod | classmethod):
            return self.of(value.__func__)
        return self._object(value)

    def _function(self, value: types.FunctionType) -> str:
        place = _place(value)
        if _of_library(value.__module__):
            return place
        enclosed = [_cell(cell) for cell in value.__closure__ or ()]
        looked_up = dict(sorted(dict(_looked_up(value.__code__, value.__globals__)).items()))
        pieces = [value.__code__, value.__defaults__, value.__kwdefaults__, enclosed, looked_up]
        if DECLARATION in vars(value):  # an objective's other function, which training calls
            pieces.append(vars(value)[DECLARATION])
        return ", ".join([place, *map(self.of, pieces)])

    def _code(self, code: types.CodeType) -> str:
        return ", ".join([digest(code.co_code), *map(self.of, (code.co_consts, code.co_names, code.co_varnames))])

    def _module(self, value: types.ModuleType) -> str:
        """Describe a module of the user whole: who has it can read anything in it."""
        if _of_library(value.__name__):
            return value.__name__
        return f"{value.__name__}, {self.of({k: v for k, v in sorted(vars(value).items()) if not _is_dunder(k)})}"

    def _class(self, value: type) -> str:
        place = _place(value)
        if _of_library(value.__module__):
            return place
        own = {key: item for key, item in sorted(vars(value).items()) if not _is_machinery(key, item)}
        return f"{place}, {self.of(own)}, {self.of(value.__bases__)}"

    def _object(self, value: Any) -> str:
        described = self.of(type(value))
        if isinstance(value, nn.Module):
            kept = {k: v for k, v in vars(value).items() if k not in MODULE_STATE and not _is_hook(k, v)}
            tensors = _own_tensors(value) if self.weights else {}
            return f"{described}, {self.of(kept)}, {self.of(tensors)}, {self.of(_children(value))}"
        try:
            # What pickle would write: (how to make it, from what, its state, ...). Nothing is made or run from it.
            parts = value.__reduce_ex__(4)
        except Exception as error:  # whatever an object raises that will not be copied
            fail(
                "checkpoint",
                f"settings of the {self.name} that can be read, to tell this run from another",
                f"a {type(value).__module__}.{type(value).__qualname__} in it: {error}",
            )
        if isinstance(parts, str):  # the name of it, under which a function may be wrapped, by a cache for instance
            return f"{described}, {parts}, {self.of(getattr(value, '__wrapped__', None))}"
        items = [list(part) if index > 2 and part is not None else part for index, part in enumerate(parts[:5])]
        return f"{described}, {self.of(items)}"


def _place(value: Any) -> str:
    """Return the full name of a class or function, under the module that it had when checkpoints were first written.

    A module that has taken over something names its former place in ``FORMER_MODULES``.
    """
    former = getattr(sys.modules.get(value.__module__), "FORMER_MODULES", {}) if _of_library(value.__module__) else {}
    return f"{former.get(value.__qualname__.partition('.')[0], value.__module__)}.{value.__qualname__}"


@lru_cache(maxsize=256)
def _of_library(module: str | None) -> bool:
    """Whether code belongs to Python, to an installed package, to xcal or an extension of it: known by its name."""
    root = (module or "").split(".", 1)[0]
    if root in {"xcal", "builtins"} or root in sys.stdlib_module_names or root in extending_packages():
        return root != "__main__"
    found = getattr(sys.modules.get(root), "__file__", None)
    return found is not None and any(Path(found).resolve().is_relative_to(folder) for folder in _INSTALLED)


def _is_machinery(name: str, value: Any) -> bool:
    """Whether an entry of a class is one that Python made, and says nothing about what the class does."""
    return name.startswith("_abc_") or (_is_dunder(name) and not isinstance(value, types.FunctionType))


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _own_tensors(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers of a module itself, one that it has under two names twice."""
    parameters = module.named_parameters(recurse=False, remove_duplicate=False)
    return dict(parameters) | dict(module.named_buffers(recurse=False, remove_duplicate=False))


def _children(module: nn.Module) -> dict[str, nn.Module]:
    """Modules that a module holds itself; `named_children` would leave out one that is held twice."""
    below = module.named_modules(remove_duplicate=False)
    return {name: child for name, child in below if name and "." not in name}


def _is_hook(name: str, value: Any) -> bool:
    """Whether an attribute of a module is one of torch's empty collections of hooks."""
    return "hook" in name and not value


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return "empty"


def _looked_up(code: types.CodeType, known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a function, and the functions within it, look up outside themselves, under dotted names.

    Of a module of the user that is an attribute (``settings.K``), or what is imported from it. Of a module that is used
    in another way, as in ``getattr(settings, name)``, it is the whole module.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]  # of the one after it
    for place, step in enumerate(steps):
        after = steps[place + 1 :]
        if step.opname in _GLOBAL and step.argval in known:
            attributes = (one.argval for one in takewhile(lambda one: one.opname in _ATTRIBUTE, after))
            yield _followed(step.argval, known[step.argval], attributes)
        elif step.opname == "IMPORT_NAME":
            level, wanted = (steps[place - back].argval for back in (2, 1))
            for name in {step.argval, step.argval.partition(".")[0]} if not wanted else {step.argval}:
                yield from _imported("." * level + name, known.get("__package__"), wanted)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _looked_up(constant, known)


def _imported(name: str, package: str | None, wanted: Sequence[str] | None) -> Iterator[tuple[str, Any]]:
    """Yield a module that a function imports when it is called, or what it takes from it."""
    try:
        module = import_module(name, package)
    except ImportError:  # an optional one, or an error of the function itself
        yield name, None
    else:
        for one in wanted or ():
            if not hasattr(module, one):
                with suppress(ImportError):
                    import_module(f"{module.__name__}.{one}")
        yield from (_followed(name, module, (one,)) for one in wanted) if wanted else [(name, module)]


def _followed(name: str, value: Any, attributes: Iterable[str]) -> tuple[str, Any]:
    """Go from a module of the user to what is read from it."""
    for attribute in attributes:
        if not isinstance(value, types.ModuleType) or _of_library(value.__name__):
            break
        name, value = f"{name}.{attribute}", getattr(value, attribute, None)
    return name, value
