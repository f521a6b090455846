"""Fitted estimators as files: tensors and JSON (safetensors), nothing that could run."""

import datetime
import hashlib
import json
import math
import os
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from xcal._checks import fail
from xcal._files import write_whole
from xcal.distributions._bins import READINGS
from xcal.estimators.fitted import FittedModel, Outputs, Standardizer
from xcal.estimators.inputs import Encoding, Floats
from xcal.estimators.settings import CONTINUOUS, DISCRETE, KINDS
from xcal.networks import MLP
from xcal.recalibration import KaplanMeierRecalibration
from xcal.recalibration.registry import in_order, is_recalibrated, read_recalibrated
from xcal.training import History

# --- What the parts of a saved estimator's header have in common: kinds of numbers, shapes, values in messages.

Shapes = Mapping[str, tuple[int, ...]]
_LARGEST = 2**63


def shown(value: Any) -> str:
    """Return a value as text of a bounded length, however large or deep it is."""
    return reprlib.repr(value)


def check_shape(name: str, shapes: Shapes, wanted: tuple[int | None, ...]) -> tuple[int, ...]:
    """Check that the file has a tensor of this shape; None is any size."""
    shape = shapes.get(name)
    fits = shape is not None and len(shape) == len(wanted)
    if shape is None or not fits or any(w not in (None, s) for s, w in zip(shape, wanted, strict=True)):
        fail(name, f"a tensor of shape {tuple('any' if w is None else w for w in wanted)}", shape)
    return shape


def is_whole(value: Any) -> bool:
    """Whether a value of JSON is a whole number that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST


def is_number(value: Any) -> bool:
    """Whether a value of JSON is a number."""
    return isinstance(value, float) or is_whole(value)


# --- What the header of a saved estimator says beside the networks: maps, encoding, a path's tables and its choice.

# Columns that the rules of `SurvivalPath.select` read; a frontier may have more.
FRONTIER = (
    *("lambda", "seed", "best_epoch", "nll", "nll_gap_se", "nll_sd", "dcal", "dcal_gap_se", "dcal_floor", "dcal_p"),
    *("dcal_sd", "conditional", "concordance", "concordance_sd", "total"),
)

CANDIDATES = (
    *("lambda", "recalibrated", "nll", "nll_gap_se", "dcal", "dcal_gap_se", "dcal_floor", "dcal_p"),
    *("conditional", "concordance"),
)

# Tables of candidates: on the validation rows, and on all rows.
MEASURED = {"candidates", "cross_fitted"}


def read_extra(value: Any, kind: str, models: Sequence[tuple[float, int, int]], shapes: Shapes) -> dict[str, Any]:
    """Check what a file says beside the networks, and return it as it is."""
    path = kind == "SurvivalPath"
    needed = {"frontier", "candidates", "selection"} if path else set()
    # Large data are not judged by cross-fitting.
    known = needed | {"maps", "encoding"} | ({"cross_fitted"} if path else set())
    if not isinstance(value, dict) or not needed <= set(value) <= known:
        expected = "a frontier, candidates and a selection for a path, nothing but maps and an encoding for a model"
        fail("extra", expected, shown(value))
    lambdas = [model[0] for model in models]
    _check_maps(value.get("maps", []), lambdas, shapes)
    if "encoding" in value:
        _check_encoding(value["encoding"], shapes)
    if not path:
        return value
    _check_selection(value["selection"], lambdas)
    mapped = {line[0] for line in value.get("maps", [])}
    if value["selection"]["recalibrated"] and value["selection"]["lam"] not in mapped:
        fail("selection", "a lambda with a map, as it is recalibrated", shown(value["selection"]))
    frontier = value["frontier"]
    _check_columns("frontier", frontier, FRONTIER, len(models))
    if any(line[:2] != model[:2] for line, model in zip(_lines(frontier), models, strict=True)):
        fail("frontier", "the lambdas and seeds of the models", shown(frontier))
    for name in MEASURED & set(value):
        table = value[name]
        if not isinstance(table, dict) or not isinstance(table.get("lambda"), list):
            fail(name, f"the columns {', '.join(CANDIDATES)}", shown(table))
        _check_columns(name, table, CANDIDATES, len(table["lambda"]))
        if not set(table["lambda"]) <= set(lambdas):
            fail(name, "the lambdas of the models", shown(table["lambda"]))
    return value


def _check_columns(name: str, table: Any, wanted: Sequence[str], n: int) -> None:
    if not isinstance(table, dict) or not set(wanted) <= set(table):
        fail(name, f"the columns {', '.join(wanted)}", shown(table))
    for key, column in table.items():
        fits = isinstance(column, list) and len(column) == n
        if not fits or not all(isinstance(item, bool) if key == "recalibrated" else is_number(item) for item in column):
            fail(name, f"{n} numbers in the column {shown(key)}", shown(column))


def _check_encoding(value: Any, shapes: Shapes) -> None:
    """Check the columns before the encoding: together as wide as what the networks see."""
    keys = {"name", "kind", "fill", "has_missing", "categories", "origin"}
    if not isinstance(value, list) or not value:
        fail("encoding", "a list of columns", shown(value))
    width = 0
    for column in value:
        if not isinstance(column, dict) or set(column) != keys:
            fail("encoding", f"columns with the keys {', '.join(sorted(keys))}", shown(column))
        words = [
            column["name"],
            column["origin"],
            *(column["categories"] if _is_list(column["categories"]) else [None]),
        ]
        if not all(isinstance(word, str) for word in words) or column["kind"] not in KINDS:
            fail("encoding", "words for name, origin, categories and kind", shown(column))
        if not isinstance(column["has_missing"], bool) or not is_number(column["fill"]):
            fail("encoding", "a number for fill, true or false for has_missing", shown(column))
        if column["kind"] == "date" and not _is_date(column["origin"]):
            fail("encoding", "a date for the origin of a date", shown(column["origin"]))
        width += (len(column["categories"]) if column["kind"] == "category" else 1) + column["has_missing"]
    check_shape("mean", shapes, (width,))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_date(text: str) -> bool:
    try:
        datetime.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_maps(value: Any, lambdas: Sequence[float], shapes: Shapes) -> None:
    count = sum(name.startswith("map.") for name in shapes)
    if not isinstance(value, list) or len(value) != count:
        fail("maps", f"{count} maps, as the file has the knots of", shown(value))
    for index, line in enumerate(value):
        if not isinstance(line, list) or len(line) != 3 or line[0] not in lambdas:
            fail(f"maps[{index}]", "the lambda of a model, rows and events", shown(line))
        if not is_whole(line[1]) or not is_whole(line[2]) or not 1 <= line[2] <= line[1]:
            fail(f"maps[{index}]", "numbers of rows and of events among them", shown(line))
        shape = check_shape(f"map.{index}", shapes, (2, None))
        if shape[1] < 2:
            fail(f"map.{index}", "two or more knots", shape)


def _check_selection(value: Any, lambdas: Sequence[float]) -> None:
    if not isinstance(value, dict) or set(value) != {"lam", "rule", "reason", "recalibrated", "at_floor"}:
        fail("selection", "the keys lam, rule, reason, recalibrated and at_floor", shown(value))
    if not all(isinstance(value[name], bool) for name in ("recalibrated", "at_floor")):
        fail("selection", "true or false for recalibrated and at_floor", shown(value))
    if value["lam"] not in lambdas:
        fail("selection", "the lambda of a model", shown(value["lam"]))
    if not isinstance(value["rule"], str) or not isinstance(value["reason"], str):
        fail("selection", "a rule and a reason in words", shown(value))


def _lines(frontier: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    return list(zip(frontier["lambda"], frontier["seed"], strict=True))


# --- What the header of a saved estimator must say, held against the tensors that its file has.
# A file may come from a stranger, with a digest that is right. Nothing of its header is believed before the file has
# the tensors for it: sizes are compared with shapes, and shapes are bounded by the size of the file.

_KEYS = ("class", "parameters", "n_features", "feature_names", "outputs", "network", "models", "extra")

# Parameters are numbers, words and lists of them.
_DEEPEST = 4


@dataclass(frozen=True)
class Header:
    """A header that was checked; `models` has the lambda, seed and best epoch of each model."""

    kind: str
    parameters: dict[str, Any]
    n_features: int
    feature_names: list[str] | None
    distribution: str
    interpolation: str
    time_scale: float
    hidden: tuple[int, ...]
    dropout: float
    models: tuple[tuple[float, int, int], ...]
    extra: dict[str, Any]


def read_header(text: str, shapes: Shapes, known: Mapping[str, Sequence[str]]) -> Header:
    """Check the header of a file with tensors of these shapes; `known` has the parameters of each class.

    What does not fit is a ValueError that names the key.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        fail("header", "JSON", "JSON that is nested too deeply")
    except ValueError as error:
        fail("header", "JSON", f"text that is none ({error})")
    if not isinstance(content, dict) or set(content) != set(_KEYS):
        fail("header", f"the keys {', '.join(_KEYS)}", shown(content))
    kind = content["class"]
    if not isinstance(kind, str) or kind not in known:
        fail("class", " or ".join(known), shown(kind))
    n_features = _n_features(content["n_features"], shapes)
    distribution, interpolation, time_scale = _outputs(content["outputs"], shapes)
    hidden, dropout = _header_network(content["network"], shapes)
    models = _header_models(content["models"], kind, shapes)
    return Header(
        kind,
        _parameters(content["parameters"], known[kind]),
        n_features,
        _feature_names(content["feature_names"], n_features),
        distribution,
        interpolation,
        time_scale,
        hidden,
        dropout,
        models,
        read_extra(content["extra"], kind, models, shapes),
    )


def _n_features(value: Any, shapes: Shapes) -> int:
    if not is_whole(value) or value < 1:
        fail("n_features", "a whole number of 1 or more", shown(value))
    for name in ("mean", "factor"):
        check_shape(name, shapes, (value,))
    return int(value)


def _feature_names(value: Any, n: int) -> list[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != n or not all(isinstance(name, str) for name in value):
        fail("feature_names", f"null or {n} names", shown(value))
    return value


def _outputs(value: Any, shapes: Shapes) -> tuple[str, str, float]:
    if not isinstance(value, list) or len(value) != 3:
        fail("outputs", "distribution, interpolation and unit of time", shown(value))
    distribution, interpolation, scale = value
    for name, word, words in (
        ("distribution", distribution, (*DISCRETE, *CONTINUOUS)),
        ("interpolation", interpolation, tuple(READINGS)),
    ):
        if not isinstance(word, str) or word not in words:
            fail(name, f"one of {', '.join(words)}", shown(word))
    if not is_number(scale) or not 0 < scale < math.inf:
        fail("time_scale", "a finite number above 0", shown(scale))
    if ("edges" in shapes) != (distribution in DISCRETE):
        fail("edges", "time edges for a discrete distribution and only for it", f"{distribution} and other tensors")
    for name in ("edges", "grid") if distribution in DISCRETE else ("grid",):
        shape = shapes.get(name, ())
        if len(shape) != 1 or shape[0] < 2:
            fail(name, "a tensor of two or more times", shape)
    return distribution, interpolation, float(scale)


def _header_network(value: Any, shapes: Shapes) -> tuple[tuple[int, ...], float]:
    if not isinstance(value, dict) or set(value) != {"hidden", "dropout"}:
        fail("network", "the keys hidden and dropout", shown(value))
    hidden, dropout = value["hidden"], value["dropout"]
    # A matrix and a vector for each layer, the last one included.
    layers = sum(name.startswith("model.0.") for name in shapes) / 2
    largest = max(max(shape, default=0) for shape in shapes.values())
    if not isinstance(hidden, list) or len(hidden) + 1 != layers:
        fail("hidden", f"the sizes of {layers:g} layers but the last, as the file has them", shown(hidden))
    for size in hidden:
        if not is_whole(size) or not 1 <= size <= largest:
            fail("hidden", f"whole numbers from 1 to {largest}, the largest size in the file", shown(size))
    if not is_number(dropout) or not 0 <= dropout < 1:
        fail("dropout", "a probability from 0 to below 1", shown(dropout))
    return tuple(hidden), float(dropout)


def _header_models(value: Any, kind: str, shapes: Shapes) -> tuple[tuple[float, int, int], ...]:
    count = sum(name.startswith("history.") for name in shapes)
    if not isinstance(value, list) or not 1 <= len(value) == count:
        fail("models", f"{count} models, as the file has the histories of", shown(value))
    # The networks of one model are its seeds: all have one lambda.
    if kind == "SurvivalModel" and len({shown(model[:1]) for model in value if isinstance(model, list)}) > 1:
        fail("models", "one lambda, as a SurvivalModel has", shown(value))
    for index, model in enumerate(value):
        if not isinstance(model, list) or len(model) != 3:
            fail(f"models[{index}]", "lambda, seed and best epoch", shown(model))
        lam, seed, best = model
        if not is_number(lam) or not 0 <= lam < math.inf:
            fail(f"models[{index}]", "a finite lambda, zero or larger", shown(lam))
        if not is_whole(seed) or seed < 0:
            fail(f"models[{index}]", "a seed, zero or larger", shown(seed))
        epochs = check_shape(f"history.{index}", shapes, (None, 3))[0]
        if not is_whole(best) or not -1 <= best < epochs:
            fail(f"models[{index}]", f"a best epoch of its {epochs}, or -1", shown(best))
    return tuple((float(lam), seed, best) for lam, seed, best in value)


def _parameters(value: Any, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(value) <= set(known):
        fail("parameters", f"values of {', '.join(known)}", shown(value))
    target = value.get("target_dcal")
    if target is not None and (not is_number(target) or not math.isfinite(target)):
        fail("target_dcal", "null or a number", shown(target))
    return {name: _restored(name, item, _DEEPEST) for name, item in value.items()}


def _restored(name: str, value: Any, depth: int) -> Any:
    """Return a parameter as it was; sequences come back as tuples."""
    if isinstance(value, list) and depth > 0:
        return tuple(_restored(name, item, depth - 1) for item in value)
    if isinstance(value, list | dict):
        fail(name, "a number, a word or a list of them", shown(value))
    return value


# --- Fitted estimators as files: tensors and JSON (safetensors), nothing that could run.
# The metadata of the file has four entries: format, version, header (JSON: class, parameters, features, scalars of
# every model) and digest, the SHA-256 of the header and all tensors.

FORMAT, VERSION = "xcal-estimator", 1

# The model of a run of `xcal fit`, in its folder.
MODEL_IN_FOLDER = "model.safetensors"
_HOMES = {"SurvivalModel": "xcal.estimators.model", "SurvivalPath": "xcal.estimators.path"}


@dataclass(frozen=True, eq=False)
class SavedEstimator:
    """What a file holds."""

    parameters: dict[str, Any]
    n_features: int
    feature_names: list[str] | None
    models: tuple[FittedModel, ...]
    extra: dict[str, Any]
    maps: dict[float, KaplanMeierRecalibration]

    def set_features(self, estimator: Any) -> None:
        """Set the names of the columns that an estimator was fitted on."""
        estimator.n_features_in_ = self.n_features
        if self.feature_names is not None:
            estimator.feature_names_in_ = np.array(self.feature_names, dtype=object)
        if "encoding" in self.extra:
            # The columns that an estimator is given are those before the encoding.
            estimator.encoding_ = Encoding.from_json(self.extra["encoding"])
            names = [column.name for column in estimator.encoding_.columns]
            estimator.n_features_in_, estimator.feature_names_in_ = len(names), np.array(names, dtype=object)


def write_estimator(
    path: str | os.PathLike[str],
    estimator: Any,
    models: Sequence[FittedModel],
    extra: dict[str, Any] | None = None,
    maps: Mapping[float, KaplanMeierRecalibration] | None = None,
) -> None:
    """Write a fitted estimator to a new file and move it into place: a reader sees the old file or the new one."""
    check_is_fitted(estimator)
    kind = type(estimator)
    if _HOMES.get(kind.__name__) != kind.__module__:
        fail(
            "save", f"a {' or '.join(_HOMES)} itself, as load makes no other class", f"the subclass {kind.__qualname__}"
        )
    first = models[0]
    encoding = getattr(estimator, "encoding_", None)
    names = None if encoding is not None else getattr(estimator, "feature_names_in_", None)
    encoded = {} if encoding is None else {"encoding": encoding.as_json()}
    header = json.dumps(
        {
            "class": kind.__name__,
            "parameters": {name: _jsonable(value) for name, value in estimator.get_params(deep=False).items()},
            "n_features": int(first.standardizer.mean.size),
            "feature_names": None if names is None else [str(name) for name in names],
            "outputs": [first.outputs.distribution, first.outputs.interpolation, first.outputs.time_scale],
            "network": _architecture(first.network),
            "models": [[model.lam, model.seed, model.best_epoch] for model in models],
            "extra": (extra or {}) | _maps_in_words(maps or {}) | encoded,
        }
    )
    tensors = _tensors(models) | _maps_in_tensors(maps or {})
    metadata = {"format": FORMAT, "version": str(VERSION), "header": header, "digest": _digest(header, tensors)}
    write_whole(Path(path), in_order(save(tensors, metadata)))


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `SurvivalModel.save`, `SurvivalPath.save` or `Recalibrated.save` wrote.

    Parameters
    ----------
    path
        The file, or the folder of a run of ``xcal fit``, whose chosen model is read. A file is only read as data, and
        its header is held against its tensors before anything is made of it, so that one from a stranger can do no
        harm: it is refused with one error, and takes no more memory than its size asks for.

    Returns
    -------
    SurvivalModel, SurvivalPath or Recalibrated
        Fitted; its predictions are those of the saved one, to the bit.

    Examples
    --------
    >>> import tempfile
    >>> from xcal import Surv
    >>> from xcal.estimators import SurvivalModel
    >>> X = np.arange(40.0).reshape(20, 2)
    >>> model = SurvivalModel(epochs=2).fit(X, Surv(time=X[:, 0] + 1, event=np.ones(20)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.xcal")
    ...     again = load(f"{folder}/model.xcal")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    if Path(path).is_dir():
        model = Path(path) / MODEL_IN_FOLDER
        if not model.is_file():
            fail("path", f"{_EXPECTED}, or the folder of a run with {MODEL_IN_FOLDER}", f"{path}, a folder without it")
        path = model
    # A recalibrated model is a file of its own kind, with the file of its model inside.
    Path(path).open("rb").close()
    if is_recalibrated(path):
        return read_recalibrated(path, load)
    metadata, tensors = _read(Path(path))
    if metadata.get("format") != FORMAT:
        fail("path", _EXPECTED, f"{path}, a safetensors file of another kind")
    version = metadata.get("version", "")
    if version not in {str(known) for known in range(1, VERSION + 1)}:
        fail("path", f"a file of format version {VERSION} or older", f"{path} of version {version[:20]}: update xcal")
    header = metadata.get("header", "")
    if metadata.get("digest") != _digest(header, tensors):
        fail("path", _EXPECTED, f"{path}, which was damaged: its checksum is wrong")
    try:
        return _estimator(header, tensors)
    except ValueError as error:
        raise ValueError(
            f"path: expected {_EXPECTED}, got {path}, which was made by something else: {error}"
        ) from error


def _estimator(text: str, tensors: dict[str, Tensor]) -> Any:
    """Make the estimator of a file whose digest is right; a forged one can have that too."""
    kinds = {name: getattr(import_module(home), name) for name, home in _HOMES.items()}
    known = {name: kind._get_param_names() for name, kind in kinds.items()}
    header = read_header(text, {name: tuple(values.shape) for name, values in tensors.items()}, known)
    models = _models(header, tensors)
    maps = _maps(header, tensors)
    saved = SavedEstimator(header.parameters, header.n_features, header.feature_names, models, header.extra, maps)
    return kinds[header.kind]._from_saved(saved)


_EXPECTED = "a file that SurvivalModel.save or SurvivalPath.save wrote"


def _tensors(models: Sequence[FittedModel]) -> dict[str, Tensor]:
    first = models[0]
    arrays = {"mean": first.standardizer.mean, "factor": first.standardizer.factor, "grid": first.outputs.grid}
    if first.outputs.edges is not None:
        arrays["edges"] = first.outputs.edges
    tensors = {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}
    for index, model in enumerate(models):
        # Weights were trained in float32: nothing is lost.
        for name, value in model.network.state_dict().items():
            tensors[f"model.{index}.{name}"] = value.float().contiguous()
        history = np.hstack([model.history.objective, model.history.dcal, model.history.total])
        tensors[f"history.{index}"] = torch.from_numpy(history)
    return tensors


def _models(header: Header, tensors: dict[str, Tensor]) -> tuple[FittedModel, ...]:
    array = {name: _finite(name, tensors[name]) for name in ("mean", "factor", "grid", "edges") if name in tensors}
    if array["grid"][0] < 0 or (np.diff(array["grid"]) <= 0).any():
        fail("grid", "times that increase, zero or larger", shown(array["grid"].tolist()))
    standardizer = Standardizer(array["mean"], array["factor"])
    outputs = Outputs(header.distribution, header.interpolation, header.time_scale, array.get("edges"), array["grid"])
    with np.errstate(over="ignore", under="ignore"):
        # Edges that overflow in the network's unit are refused by the family.
        n_outputs = outputs.family().n_outputs
    used: set[str] = {*array, *(name for name in tensors if name.startswith("map."))}
    models = []
    for index, (lam, seed, best_epoch) in enumerate(header.models):
        state = {n.removeprefix(f"model.{index}."): n for n in tensors if n.startswith(f"model.{index}.")}
        network = _network(header, n_outputs, {name: tensors[place] for name, place in state.items()})
        history = tensors[f"history.{index}"].double().numpy()
        values = History(history[:, :1], history[:, 1:2], history[:, 2:])
        models.append(FittedModel(standardizer, outputs, network, lam, seed, best_epoch, values))
        used |= {f"history.{index}", *state.values()}
    if used != set(tensors):
        fail("tensors", "those of the models", f"others too: {shown(sorted(set(tensors) - used))}")
    return tuple(models)


def _maps_in_words(maps: Mapping[float, KaplanMeierRecalibration]) -> dict[str, Any]:
    return {"maps": [[lam, own.n, own.n_events] for lam, own in maps.items()]} if maps else {}


def _maps_in_tensors(maps: Mapping[float, KaplanMeierRecalibration]) -> dict[str, Tensor]:
    return {f"map.{i}": torch.from_numpy(np.stack([own.knots, own.levels])) for i, own in enumerate(maps.values())}


def _maps(header: Header, tensors: dict[str, Tensor]) -> dict[float, KaplanMeierRecalibration]:
    """Read the maps of F by lambda; the header has compared their number with the tensors."""
    found = {}
    for index, (lam, n, n_events) in enumerate(header.extra.get("maps", [])):
        knots, levels = _finite(f"map.{index}", tensors[f"map.{index}"])
        for values in (knots, levels):
            if values[0] != 0 or values[-1] != 1 or (np.diff(values) <= 0).any():
                fail(f"map.{index}", "numbers that increase from 0 to 1", shown(values.tolist()))
        found[float(lam)] = KaplanMeierRecalibration(knots.copy(), levels.copy(), n, n_events)
    return found


def _network(header: Header, n_outputs: int, state: dict[str, Tensor]) -> nn.Module:
    """Make a network of the file's tensors; they are compared with its layers while these are shapes without memory."""
    with torch.device("meta"):
        network = MLP(header.n_features, n_outputs, hidden=header.hidden, dropout=header.dropout)
    wanted = {name: tuple(values.shape) for name, values in network.state_dict().items()}
    found = {name: tuple(values.shape) for name, values in state.items()}
    if found != wanted or any(values.dtype != torch.float32 for values in state.values()):
        fail("network", f"float32 tensors of shapes {shown(wanted)}", shown(found))
    network.load_state_dict(state, assign=True)
    return network.double().eval().requires_grad_(False)


def _finite(name: str, values: Tensor) -> Floats:
    array = np.asarray(values)
    if array.dtype != np.float64 or not np.isfinite(array).all():
        fail(name, "finite numbers in float64", f"{array.dtype}, or others")
    return array


def _architecture(network: nn.Module) -> dict[str, Any]:
    """Arguments of the network's constructor, read off its layers: the parameters may have been set anew since."""
    layers = list(network.modules())
    sizes = [layer.out_features for layer in layers if isinstance(layer, nn.Linear)]
    dropout = [layer.p for layer in layers if isinstance(layer, nn.Dropout)]
    return {"hidden": sizes[:-1], "dropout": dropout[0] if dropout else 0.0}


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    # An absent file, or one that may not be read, is the operating system's error and says so itself.
    path.open("rb").close()
    try:
        with safe_open(path, framework="pt") as file:
            # Shapes are as long as the file is: safetensors has held them against its size.
            for name in file.keys():  # noqa: SIM118, not a dict
                if file.get_slice(name).get_dtype() not in {"F32", "F64"}:
                    fail("path", _EXPECTED, f"{path}, a safetensors file of another kind")
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, likewise
    except (SafetensorError, UnicodeDecodeError) as error:
        raise ValueError(f"path: expected {_EXPECTED}, got {path}, which is damaged or incomplete ({error})") from error


def _digest(header: str, tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(f"{FORMAT} {VERSION} {header}".encode())
    for name in sorted(tensors):
        values = tensors[name].numpy()
        digest.update(f"{name} {values.dtype} {values.shape}".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def _jsonable(value: Any) -> Any:
    """Turn a constructor argument into JSON; sequences come back as tuples, objects as None."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, list | tuple | np.ndarray):
        return [_jsonable(item) for item in value]
    return value if isinstance(value, bool | int | float | str | None) else None
