"""Checkpoints: tensors only, written whole or not at all, told apart by a fingerprint of what decides the result."""

import builtins
import dis
import hashlib
import importlib
import json
import logging
import sys
import sysconfig
import types
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, distributed, nn

from xcal._checks import fail
from xcal._files import check_writable, reason, sole_user, write_whole
from xcal._imports import extending_packages
from xcal._torch_private import MODULE_STATE, adam_state_names
from xcal.objectives import DECLARATION
from xcal.training.result import Failure, RunState
from xcal.training.rows import digest, tensor_digest
from xcal.training.stack import Stack

# --- What decides the result of a run, as text: a checkpoint of another run is told by it.
# Data and initial weights are hashed. Families, objectives and networks are asked for their settings: their
# attributes, the code of functions that are not a library's, its defaults, what it closes over and what it looks up,
# by name or in a module of the user (``settings.K``). What has a state that cannot be read is refused: two runs that
# cannot be told apart must not share a checkpoint.

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), range, slice, PurePath)
_BUILT_IN = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, np.ufunc)
# What leads to any module by a name that is known only when the code runs, and the modules of Python that have it.
_BY_NAME = (sys.modules, import_module, __import__, globals, eval, exec)
_HAVE_IT = (sys, importlib, builtins)
_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}
_INSTALLED = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib"))


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
    try:
        return digest(_Settings(name, weights).of(value).encode())
    except ValueError:
        raise
    except Exception as error:  # whatever an object raises that will not be looked at
        _unreadable(name, f"an object in it that cannot be described: {type(error).__name__}: {error}", error)


def _unreadable(name: str, got: str, cause: Exception | None = None) -> NoReturn:
    """Refuse a checkpoint of settings that nobody can compare."""
    try:
        fail("checkpoint", f"settings of the {name} that can be read, to tell this run from another", got)
    except ValueError as error:
        raise error from cause


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
        if value is sys.modules:
            self._refuse_by_name("sys.modules")
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
            parts = value.co_consts, value.co_names, value.co_varnames
            return ", ".join([digest(value.co_code), *map(self.of, parts)])
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
        for found in looked_up.values():
            if isinstance(found, _ByName):
                self._refuse_by_name(found.name)
        pieces = [value.__code__, value.__defaults__, value.__kwdefaults__, enclosed, looked_up]
        if DECLARATION in vars(value):  # an objective's other function, which training calls
            pieces.append(vars(value)[DECLARATION])
        return ", ".join([place, *map(self.of, pieces)])

    def _refuse_by_name(self, name: str) -> NoReturn:
        got = f"{name} in it, by which any module can be read (import the module, and read its values by name)"
        _unreadable(self.name, got)

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
            hooks = {k for k, v in vars(value).items() if "hook" in k and not v}  # torch's empty collections of them
            kept = {k: v for k, v in vars(value).items() if k not in MODULE_STATE and k not in hooks}
            tensors: dict[str, Tensor] = {}
            if self.weights:  # of the module itself, one that it has under two names twice
                tensors |= value.named_parameters(recurse=False, remove_duplicate=False)
                tensors |= value.named_buffers(recurse=False, remove_duplicate=False)
            # `named_children` would leave out a module that is held twice.
            below = value.named_modules(remove_duplicate=False)
            children = {name: child for name, child in below if name and "." not in name}
            return f"{described}, {self.of(kept)}, {self.of(tensors)}, {self.of(children)}"
        try:
            # What pickle would write: (how to make it, from what, its state, ...). Nothing is made or run from it.
            parts = value.__reduce_ex__(4)
        except Exception as error:  # whatever an object raises that will not be copied
            _unreadable(self.name, f"a {type(value).__module__}.{type(value).__qualname__} in it: {error}", error)
        if isinstance(parts, str):  # the name of it, under which a function may be wrapped, by a cache for instance
            return f"{described}, {parts}, {self.of(getattr(value, '__wrapped__', None))}"
        items = [list(part) if index > 2 and part is not None else part for index, part in enumerate(parts[:5])]
        return f"{described}, {self.of(items)}"


# Where checkpoints say that these are: in the modules that they had when checkpoints were first written. Packages that
# extend xcal name such modules of theirs in a ``FORMER_MODULES`` of their own.
_FORMER_MODULES = {
    ("xcal.calibration.membership", "xcal.calibration.softbins"): "SoftBins soft_membership",
    ("xcal.calibration.subgroups", "xcal.calibration.row_features"): "KernelFeatures RandomFeatures Scale",
    ("xcal.distributions.base", "xcal.distributions.family_base"): "Family",
    ("xcal.distributions.composed", "xcal.distributions.mixture"): "Mixture mixture",
    ("xcal.distributions.composed", "xcal.distributions.recalibrated"): "RecalibratedDistribution",
    ("xcal.distributions.discrete", "xcal.distributions.categorical"): "Categorical",
    ("xcal.distributions.discrete", "xcal.distributions.discrete_family"): "DiscreteFamily",
    ("xcal.distributions.discrete", "xcal.distributions.logistic_hazard"): "LogisticHazard",
    ("xcal.distributions.discrete", "xcal.distributions.mtlr"): "MTLR",
    ("xcal.distributions.parametric", "xcal.distributions.loglogistic"): "LogLogistic",
    ("xcal.distributions.parametric", "xcal.distributions.lognormal"): "LogNormal",
    ("xcal.distributions.parametric", "xcal.distributions.weibull"): "Weibull",
    ("xcal.networks", "xcal.networks.dense"): "Linear MLP",
    ("xcal.networks", "xcal.networks.start"): "start_near",
    ("xcal.networks", "xcal.networks.towers"): "TwoTower",
    ("xcal.objectives", "xcal.objectives.crps"): "survival_crps",
    ("xcal.objectives", "xcal.objectives.joint"): "_Declaration gives_cdf",
    ("xcal.objectives", "xcal.objectives.likelihood"): "nll",
}
_FORMER = {(now, name): former for (now, former), names in _FORMER_MODULES.items() for name in names.split()}


def _place(value: Any) -> str:
    """Return the full name of a class or function, under the module that it had when checkpoints were first written."""
    module, name = value.__module__, value.__qualname__.partition(".")[0]
    named = getattr(sys.modules.get(module), "FORMER_MODULES", {}) if _of_library(module) else {}
    return f"{_FORMER.get((module, name)) or named.get(name, module)}.{value.__qualname__}"


@lru_cache(maxsize=256)
def _of_library(module: str | None) -> bool:
    """Return whether code is of Python, an installed package, xcal or an extension of it: known by its name."""
    root = (module or "").split(".", 1)[0]
    if root in {"xcal", "builtins"} or root in sys.stdlib_module_names or root in extending_packages():
        return root != "__main__"
    found = getattr(sys.modules.get(root), "__file__", None)
    return found is not None and any(Path(found).resolve().is_relative_to(folder) for folder in _INSTALLED)


def _is_machinery(name: str, value: Any) -> bool:
    """Return whether an entry of a class is one that Python made, and says nothing about what the class does."""
    return name.startswith("_abc_") or (_is_dunder(name) and not isinstance(value, types.FunctionType))


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _cell(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable that has no value yet
        return "empty"


def _looked_up(code: types.CodeType, known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what a function, and the functions within it, look up outside themselves, under dotted names.

    Of a module of the user that is an attribute (``settings.K``), or what is imported from it. Of a module that is used
    in another way, as in ``getattr(settings, name)``, it is the whole module. Of Python itself it is what leads to
    modules by their names.
    """
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]  # of the one after it
    for place, step in enumerate(steps):
        after = steps[place + 1 :]
        if step.opname in _GLOBAL and step.argval in known:
            attributes = (one.argval for one in takewhile(lambda one: one.opname in _ATTRIBUTE, after))
            yield _followed(step.argval, known[step.argval], attributes)
        elif step.opname in _GLOBAL and _leads_to_any(vars(builtins).get(step.argval)):
            yield step.argval, _ByName(step.argval)
        elif step.opname == "IMPORT_NAME":
            level, wanted = (steps[place - back].argval for back in (2, 1))
            for name in {step.argval, step.argval.partition(".")[0]} if not wanted else {step.argval}:
                yield from _imported("." * level + name, known.get("__package__"), wanted, code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _looked_up(constant, known)


@dataclass(frozen=True)
class _ByName:
    """What leads to any module, in the words of the code."""

    name: str


def _leads_to_any(value: Any) -> bool:
    return any(value is one for one in _BY_NAME)


def _imported(
    name: str, package: str | None, wanted: Sequence[str] | None, used: Sequence[str]
) -> Iterator[tuple[str, Any]]:
    """Yield a module that a function imports when it is called, or what it takes from it; `used` are its names."""
    try:
        module = import_module(name, package)
    except ImportError:  # an optional one, or an error of the function itself
        yield name, None
    else:
        for one in wanted or ():
            if not hasattr(module, one):
                with suppress(ImportError):
                    import_module(f"{module.__name__}.{one}")
        if wanted:
            yield from (_followed(name, module, (one,)) for one in wanted)
        elif module in _HAVE_IT and (led := [one for one in used if _leads_to_any(getattr(module, one, None))]):
            yield name, _ByName(f"{name}.{led[0]}")
        else:
            yield name, module


def _followed(name: str, value: Any, attributes: Iterable[str]) -> tuple[str, Any]:
    """Go from a module of the user to what is read from it."""
    whole = True
    for attribute in attributes:
        if not isinstance(value, types.ModuleType):
            break
        whole = False
        if _of_library(value.__name__):
            if value in _HAVE_IT and _leads_to_any(getattr(value, attribute, None)):
                return name, _ByName(f"{name}.{attribute}")
            break
        whole = True
        name, value = f"{name}.{attribute}", getattr(value, attribute, None)
    return name, _ByName(name) if _leads_to_any(value) or (whole and value in _HAVE_IT) else value


# --- Checkpoints: tensors only, written whole or not at all.
# A file that was damaged, or made by something else, is refused before any of it reaches a model.

_DIGEST = "digest"
_log = logging.getLogger("xcal.training")


def _digest(tensors: dict[str, Tensor]) -> Tensor:
    """Checksum of names and contents: a flipped bit must not become other weights."""
    seen = hashlib.sha256()
    for name in sorted(tensors):
        seen.update(name.encode())
        seen.update(tensors[name].reshape(-1).view(torch.uint8).numpy().tobytes())
    return torch.frombuffer(bytearray(seen.digest()), dtype=torch.uint8).clone()


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write tensors whole or not at all: a reader sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    kept[_DIGEST] = _digest(kept)
    # Into memory first: the writers of both formats make errors of their own out of a full disk.
    if find_spec("safetensors") is not None:
        from safetensors.torch import save

        content = save(kept)
    else:
        buffer = BytesIO()
        torch.save(kept, buffer)
        content = buffer.getvalue()
    write_whole(path, content)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read what `write_tensors` wrote, in either format; neither can run code."""
    with path.open("rb") as file:
        # torch.save writes a zip archive.
        zipped = file.read(4) == b"PK\x03\x04"
    try:
        loaded: dict[str, Tensor]
        if zipped:
            with zipfile.ZipFile(path) as archive:
                # torch compresses nothing, and a small compressed archive can grow without end.
                if any(entry.file_size != entry.compress_size for entry in archive.infolist()):
                    raise ValueError("it is compressed")
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        else:
            from safetensors.torch import load_file

            loaded = load_file(path)
        # A view can be larger than what it shows, without end.
        if any(not isinstance(values, Tensor) or not values.is_contiguous() for values in loaded.values()):
            raise ValueError("it holds other things than tensors")
        found = loaded.pop(_DIGEST, None)
        if found is None or not torch.equal(found, _digest(loaded)):
            raise ValueError("its checksum does not fit its contents")
        return loaded
    # Whatever a broken file makes the two readers raise, the user gets one error that names it.
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise ValueError(f"checkpoint: expected a checkpoint file, got {path}, which cannot be read: {said}") from error


class CheckpointWriter:
    """The checkpoints of one run. A write that fails costs a warning, not the run.

    The next checkpoint tries again. One warning is given for a disk that stays full, and a line of the log when it can
    be written again.
    """

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.path, self.fingerprint, self.failing = path, fingerprint, False

    def write(self, stack: Stack, optimizer: torch.optim.Optimizer, state: RunState) -> None:
        """Write the state, or say that it could not be written."""
        try:
            write_checkpoint(self.path, self.fingerprint, stack, optimizer, state)
        except OSError as error:
            if not self.failing:
                _log.warning(
                    "checkpoint: %s could not be written after epoch %d: %s. Training goes on, and the next checkpoint "
                    "tries again", self.path, state.epoch, reason(error),
                )  # fmt: skip
            self.failing = True
        else:
            if self.failing:
                _log.info("checkpoint: %s was written again, after epoch %d", self.path, state.epoch)
            self.failing = False


def sole_training(folder: Path | None) -> AbstractContextManager[None]:
    """Keep a folder of checkpoints for one run. Of a run on several processes, the first one has it for all."""
    if folder is None or (distributed.is_available() and distributed.is_initialized() and distributed.get_rank() > 0):
        return nullcontext()
    with suppress(OSError):  # said by `check_folder`
        folder.mkdir(parents=True, exist_ok=True)
    return sole_user("checkpoint", folder) if folder.is_dir() else nullcontext()


def check_folder(folder: Path, names: Sequence[str]) -> None:
    """Find out before the first epoch whether checkpoints of these names can be written.

    Where all of them are there already nothing is tried: a finished run can be read from a folder that cannot be
    written to.
    """
    if all((folder / name).exists() for name in names):
        return
    try:
        check_writable(folder)
    except OSError as error:
        message = f"checkpoint: expected a folder that can be written, got {folder}: {reason(error)}"
        raise type(error)(message) from error


def write_checkpoint(
    path: Path, fingerprint: str, stack: Stack, optimizer: torch.optim.Optimizer, state: RunState
) -> None:
    """Write everything that the rest of training depends on."""
    failures = [[f.model, f.epoch, -1 if f.batch is None else f.batch] for f in state.failures]
    history = state.history()
    arrays: dict[str, Any] = {
        "fingerprint": np.frombuffer(fingerprint.encode(), dtype=np.uint8).copy(),
        "epoch": np.array([state.epoch]),
        "failures": np.array(failures, dtype=np.int64).reshape(-1, 3),
        "stopped": state.stopped,
        "best_total": state.best_total,
        "best_epoch": state.best_epoch,
        "lambdas": state.lambdas,
        "best_lambdas": state.best_lambdas,
        "objective": history.objective,
        "dcal": history.dcal,
        "total": history.total,
    }
    tensors = {f"run.{name}": torch.as_tensor(values) for name, values in arrays.items()}
    tensors |= {f"now.{name}": values for name, values in stack.snapshot().items()}
    tensors |= {f"best.{name}": values for name, values in state.best.items()}
    tensors |= {f"adam.{name}": optimizer.state[stack.flat][name] for name in adam_state_names()}
    write_tensors(path, tensors)


def read_checkpoint(
    path: Path,
    fingerprint: str,
    stack: Stack,
    optimizer: torch.optim.Optimizer,
    tensors: dict[str, Tensor] | None = None,
) -> RunState:
    """Put stack and optimiser where the checkpoint left them, and return the rest of the state.

    Another process may have read the `tensors`.
    """
    tensors = read_tensors(path) if tensors is None else tensors
    found = tensors.get("run.fingerprint")
    if found is None or found.dtype != torch.uint8:
        fail("checkpoint", "a checkpoint of fit_path", f"{path}, which holds other tensors")
    check_fingerprint(path, bytes(found.numpy()).decode(errors="replace"), fingerprint)
    _check_tensors(path, tensors, stack)

    def part(name: str) -> dict[str, Tensor]:
        device = stack.flat.device
        return {k.removeprefix(name): v.to(device) for k, v in tensors.items() if k.startswith(name)}

    stack.load(part("now."))
    adam = part("adam.")
    # A fused step wants its counter where the weights are.
    optimizer.state[stack.flat] = {name: adam[name] for name in adam_state_names()}
    run = {k.removeprefix("run."): v.numpy() for k, v in tensors.items() if k.startswith("run.")}
    return RunState(
        best=part("best."),
        best_total=run["best_total"],
        best_epoch=run["best_epoch"],
        stopped=run["stopped"],
        lambdas=run["lambdas"],
        best_lambdas=run["best_lambdas"],
        epoch=int(run["epoch"][0]),
        failures=[Failure(m, e, None if b < 0 else b) for m, e, b in run["failures"].tolist()],
        objective=list(run["objective"]),
        dcal=list(run["dcal"]),
        total=list(run["total"]),
    )


def check_fingerprint(path: Path, found: str, wanted: str) -> None:
    """Refuse to go on with another run's checkpoint, and say in what it differs."""
    if found == wanted:
        return
    try:
        old = json.loads(found)
    except (ValueError, RecursionError):
        old = None
    if not isinstance(old, dict):
        fail("checkpoint", "a checkpoint of fit_path", f"{path}, which does not say what it is of")
    new = json.loads(wanted)
    differing = [_named(name, old.get(name), new[name]) for name in new if old.get(name) != new[name]]
    expected = "a checkpoint of the same run (another folder starts a new one)"
    fail("checkpoint", expected, f"{path}, made with another {', '.join(differing or ['version of xcal'])}")


def _named(name: str, old: Any, new: Any) -> str:
    """Name what differs: of several settings those that do, with what they were."""
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return name
    settings = [f"{key} {old[key]!r}" for key in new if key in old and old[key] != new[key]]
    return f"{name} ({', '.join(settings)})" if settings else name


def _check_tensors(path: Path, tensors: dict[str, Tensor], stack: Stack) -> None:
    """Check that the file has what `write_checkpoint` writes for these models, and nothing else."""
    epoch = tensors.get("run.epoch", torch.tensor([-1]))
    failures = tensors.get("run.failures", torch.empty(0))
    known = epoch.shape == (1,) and epoch.dtype == torch.int64 and failures.ndim == 2
    epochs, n = int(epoch[0]) if known else -1, stack.n_models
    counter, *averages = (f"adam.{name}" for name in adam_state_names())
    count = tensors.get(counter)
    wanted: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "run.fingerprint": (torch.uint8, tuple(tensors["run.fingerprint"].shape)),
        "run.epoch": (torch.int64, (1,)),
        "run.failures": (torch.int64, (failures.shape[0], 3)),
        "run.stopped": (torch.bool, (n,)),
        "run.best_epoch": (torch.int64, (n,)),
        **{f"run.{name}": (torch.float64, (n,)) for name in ("best_total", "lambdas", "best_lambdas")},
        **{f"run.{name}": (torch.float64, (epochs, n)) for name in ("objective", "dcal", "total")},
        # Its type is torch's default one of when it was written.
        counter: (torch.float64 if count is not None and count.dtype == torch.float64 else torch.float32, ()),
        **{name: (stack.flat.dtype, tuple(stack.flat.shape)) for name in averages},
    }
    for name, values in stack.snapshot().items():
        wanted |= {f"{when}.{name}": (values.dtype, tuple(values.shape)) for when in ("now", "best")}
    for name in sorted(wanted.keys() | tensors.keys()):
        found = (tensors[name].dtype, tuple(tensors[name].shape)) if name in tensors else None
        if found != wanted.get(name):
            fail("checkpoint", f"{name} to be {_words(wanted.get(name))}", f"{_words(found)} in {path}")
    if epochs < 0 or not ((failures[:, 0] >= 0) & (failures[:, 0] < n)).all():
        fail("checkpoint", f"epochs and failures of {n} models", f"others in {path}")


def _words(kind: tuple[torch.dtype, tuple[int, ...]] | None) -> str:
    return "nothing" if kind is None else f"{str(kind[0]).removeprefix('torch.')} of shape {kind[1]}"
