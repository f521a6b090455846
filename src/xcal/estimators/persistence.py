"""Fitted estimators as files: tensors and JSON (safetensors), nothing that could run."""

import datetime
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from xcal._checks import Floats, as_cause_names, fail
from xcal._files import Limits, NotANumberToo, OneOf, check_keys, checked, parse_json, read, shown, write_whole
from xcal.distributions._bins import READINGS
from xcal.distributions.families import CONTINUOUS, DISCRETE
from xcal.estimators.fitted import FittedModel, Outputs, Standardizer
from xcal.estimators.inputs import ColumnCode, Encoding
from xcal.estimators.selection import Selection
from xcal.networks import MLP
from xcal.recalibration.estimator import in_order, is_recalibrated, read_recalibrated
from xcal.recalibration.maps import KaplanMeierRecalibration
from xcal.recalibration.predictor import ConformalScores
from xcal.training.result import History

# --- What the header of a saved estimator says, held against the tensors that its file has.
# A file may come from a stranger, with a digest that is right. Nothing of its header is believed before the file has
# the tensors for it: sizes are compared with shapes, and shapes are bounded by the size of the file.

Shapes = Mapping[str, tuple[int, ...]]
Count = Annotated[int, Limits(at_least=1)]
Lambda = Annotated[float, Limits(at_least=0)]
Column = list[Annotated[float, NotANumberToo]]

# Columns that the rules of `SurvivalPath.select` read; a frontier may have more.
FRONTIER = (
    *("lambda", "seed", "best_epoch", "nll", "nll_gap_se", "nll_sd", "dcal", "dcal_gap_se", "dcal_floor", "dcal_p"),
    *("dcal_sd", "conditional", "concordance", "concordance_sd", "total"),
)
CANDIDATES = (
    *("lambda", "recalibrated", "nll", "nll_gap_se", "dcal", "dcal_gap_se", "dcal_floor", "dcal_p"),
    *("conditional", "concordance"),
)
# Parameters are numbers, words and lists of them.
_DEEPEST = 4


@dataclass(frozen=True)
class Network:
    """Sizes of the hidden layers, and the share of their units that is left out in training."""

    hidden: tuple[Count, ...]
    dropout: Annotated[float, Limits(at_least=0, below=1)]


@dataclass(frozen=True)
class Extra:
    """What a file says beside the networks: maps (lambda, rows, events), causes, encoding, what a path chose from.

    `scored_rows` is how many rows stand behind its tensor ``scores``: weights of events, and F of each model there.
    """

    maps: tuple[tuple[Lambda, Count, Count], ...] = ()
    causes: tuple[str, ...] = ()
    encoding: tuple[ColumnCode, ...] | None = None
    frontier: dict[str, Any] | None = None
    candidates: dict[str, Any] | None = None
    cross_fitted: dict[str, Any] | None = None
    selection: dict[str, Any] | None = None
    scored_rows: Annotated[float, Limits(at_least=1)] | None = None


@dataclass(frozen=True)
class Header:
    """The header of a file; `models` has the lambda, seed and best epoch of each model."""

    kind: str = field(metadata={"key": "class"})
    parameters: dict[str, Any]
    n_features: Count
    feature_names: tuple[str, ...] | None
    outputs: tuple[
        Annotated[str, OneOf((*DISCRETE, *CONTINUOUS))],
        Annotated[str, OneOf(tuple(READINGS))],
        Annotated[float, Limits(above=0)],
    ]
    network: Network
    models: tuple[tuple[Lambda, Annotated[int, Limits(at_least=0)], Annotated[int, Limits(at_least=-1)]], ...]
    extra: Extra


def read_header(text: str, shapes: Shapes, known: Mapping[str, Sequence[str]]) -> Header:
    """Check the header of a file with tensors of these shapes; `known` has the parameters of each class.

    What does not fit is a ValueError that names the key.
    """
    header = read(Header, parse_json("header", text), "header")
    OneOf(known).check("class", header.kind)
    for name in ("mean", "factor"):
        check_shape(name, shapes, (header.n_features,))
    if header.feature_names is not None and len(header.feature_names) != header.n_features:
        fail("feature_names", f"null or {header.n_features} names", shown(header.feature_names))
    _check_outputs(header.outputs[0], shapes)
    _check_layers(header.network.hidden, shapes)
    _check_models(header, shapes)
    if header.extra.causes and (len(header.extra.causes) < 2 or as_cause_names(header.extra.causes) is None):
        fail("causes", "two causes or more", shown(header.extra.causes))
    _check_maps(header, shapes)
    if ("scores" in shapes) != (header.extra.scored_rows is not None):
        fail("scored_rows", "a number of rows beside a tensor of scores, and only beside it", header.extra.scored_rows)
    if "scores" in shapes:
        check_shape("scores", shapes, (1 + len(header.models), None))
    if header.extra.encoding is not None:
        _check_encoding(header.extra.encoding, shapes)
    _check_path(header)
    return replace(header, parameters=_parameters(header.parameters, known[header.kind]))


def check_shape(name: str, shapes: Shapes, wanted: tuple[int | None, ...]) -> tuple[int, ...]:
    """Check that the file has a tensor of this shape; None is any size."""
    shape = shapes.get(name)
    fits = shape is not None and len(shape) == len(wanted)
    if shape is None or not fits or any(w not in (None, s) for s, w in zip(shape, wanted, strict=True)):
        fail(name, f"a tensor of shape {tuple('any' if w is None else w for w in wanted)}", shape)
    return shape


def _check_outputs(distribution: str, shapes: Shapes) -> None:
    discrete = distribution in DISCRETE
    if ("edges" in shapes) != discrete:
        fail("edges", "time edges for a discrete distribution and only for it", f"{distribution} and other tensors")
    for name in ("edges", "grid") if discrete else ("grid",):
        if check_shape(name, shapes, (None,))[0] < 2:
            fail(name, "a tensor of two or more times", shapes[name])


def _check_layers(hidden: tuple[int, ...], shapes: Shapes) -> None:
    # A matrix and a vector for each layer, the last one included.
    layers = sum(name.startswith("model.0.") for name in shapes) / 2
    if len(hidden) + 1 != layers:
        fail("hidden", f"the sizes of {layers:g} layers but the last, as the file has them", shown(hidden))
    largest = max(max(shape, default=0) for shape in shapes.values())
    if hidden and max(hidden) > largest:
        fail("hidden", f"whole numbers from 1 to {largest}, the largest size in the file", max(hidden))


def _check_models(header: Header, shapes: Shapes) -> None:
    count = sum(name.startswith("history.") for name in shapes)
    if not 1 <= len(header.models) == count:
        fail("models", f"{count} models, as the file has the histories of", shown(header.models))
    # The networks of one model are its seeds: all have one lambda.
    if header.kind == "SurvivalModel" and len({lam for lam, _, _ in header.models}) > 1:
        fail("models", "one lambda, as a SurvivalModel has", shown(header.models))
    for index, (_, _, best) in enumerate(header.models):
        epochs = check_shape(f"history.{index}", shapes, (None, 3))[0]
        if best >= epochs:
            fail(f"models[{index}]", f"a best epoch of its {epochs}, or -1", best)


def _check_maps(header: Header, shapes: Shapes) -> None:
    count = sum(name.startswith("map.") for name in shapes)
    if len(header.extra.maps) != count:
        fail("maps", f"{count} maps, as the file has the knots of", shown(header.extra.maps))
    for index, (lam, n, n_events) in enumerate(header.extra.maps):
        if lam not in {model[0] for model in header.models} or n_events > n:
            fail(f"maps[{index}]", "the lambda of a model, rows and events among them", (lam, n, n_events))
        if check_shape(f"map.{index}", shapes, (2, None))[1] < 2:
            fail(f"map.{index}", "two or more knots", shapes[f"map.{index}"])
        if header.extra.causes:
            ends = check_shape(f"ends.{index}", shapes, (None,))[0]
            check_shape(f"splits.{index}", shapes, ((ends - 1) * len(header.extra.causes),))


def _check_encoding(columns: tuple[ColumnCode, ...], shapes: Shapes) -> None:
    """Check the columns before the encoding: together as wide as what the networks see."""
    check_shape("mean", shapes, (Encoding(columns).width,))
    for column in columns:
        if column.kind == "date":
            try:
                datetime.datetime.fromisoformat(column.origin)
            except ValueError:
                fail("encoding", "a date for the origin of a date", shown(column.origin))


def _check_path(header: Header) -> None:
    """Check the tables of a path and its choice; a model has none of them."""
    extra, lambdas = header.extra, {model[0] for model in header.models}
    # Large data are not judged by cross-fitting.
    parts = {"frontier": extra.frontier, "candidates": extra.candidates, "selection": extra.selection}
    given = {name for name, part in (parts | {"cross_fitted": extra.cross_fitted}).items() if part is not None}
    if header.kind != "SurvivalPath":
        if given:
            fail("extra", "nothing but maps and an encoding for a model", ", ".join(sorted(given)))
        return
    if extra.frontier is None or extra.candidates is None or extra.selection is None:
        fail("extra", "a frontier, candidates and a selection for a path", ", ".join(sorted(given)) or "none")
    _check_table("frontier", extra.frontier, FRONTIER, len(header.models))
    told = zip(extra.frontier["lambda"], extra.frontier["seed"], strict=True)
    if any(line != model[:2] for line, model in zip(told, header.models, strict=True)):
        fail("frontier", "the lambdas and seeds of the models", shown(extra.frontier))
    for name, table in (("candidates", extra.candidates), ("cross_fitted", extra.cross_fitted)):
        if table is not None:
            _check_table(name, table, CANDIDATES)
            if not set(table["lambda"]) <= lambdas:
                fail(name, "the lambdas of the models", shown(table["lambda"]))
    names = [one.name for one in fields(Selection)]
    check_keys("selection", extra.selection, names, names)
    selection = read(Selection, extra.selection, "selection")
    if (
        selection.lam not in {line[0] for line in extra.maps}
        if selection.recalibrated
        else selection.lam not in lambdas
    ):
        fail("selection", "the lambda of a model, with a map if it is recalibrated", shown(selection))


def _check_table(name: str, table: dict[str, Any], needed: Sequence[str], n: int | None = None) -> None:
    """Check the columns of a table, which are `n` values long, or as long as that of the lambdas."""
    check_keys(name, table, table, needed)
    for key, column in table.items():
        checked(f"{name}.{key}", column, list[bool] if key == "recalibrated" else Column)
        if len(column) != (len(table["lambda"]) if n is None else n):
            fail(f"{name}.{key}", f"{n or 'as many'} values", shown(column))


def _parameters(value: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    check_keys("parameters", value, known, ())
    checked("target_dcal", value.get("target_dcal"), float | None)
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
    feature_names: tuple[str, ...] | None
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
            estimator.encoding_ = Encoding(self.extra["encoding"])
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
    first, maps = models[0], maps or {}
    encoding = getattr(estimator, "encoding_", None)
    names = None if encoding is not None else getattr(estimator, "feature_names_in_", None)
    encoded = {} if encoding is None else {"encoding": encoding.as_json()}
    words: dict[str, Any] = {"maps": [[lam, own.n, own.n_events] for lam, own in maps.items()]} if maps else {}
    scores, scored_rows = _scores(models)
    knots = {f"map.{i}": torch.from_numpy(np.stack([own.knots, own.levels])) for i, own in enumerate(maps.values())}
    if first.outputs.causes:
        words["causes"] = list(first.outputs.causes)
        splits = {f"splits.{i}": own.splits for i, own in enumerate(maps.values())}
        ends = {f"ends.{i}": own.split_knots for i, own in enumerate(maps.values())}
        knots |= {name: torch.from_numpy(np.asarray(values)) for name, values in (splits | ends).items()}
    header = json.dumps(
        {
            "class": kind.__name__,
            "parameters": {name: _jsonable(value) for name, value in estimator.get_params(deep=False).items()},
            "n_features": int(first.standardizer.mean.size),
            "feature_names": None if names is None else [str(name) for name in names],
            "outputs": [first.outputs.distribution, first.outputs.interpolation, first.outputs.time_scale],
            "network": _architecture(first.network),
            "models": [[model.lam, model.seed, model.best_epoch] for model in models],
            "extra": (extra or {}) | words | encoded | scored_rows,
        }
    )
    tensors = _tensors(models) | knots | scores
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
    # An absent file, or one that may not be read, is the operating system's error and says so itself.
    Path(path).open("rb").close()
    # A recalibrated model is a file of its own kind, with the file of its model inside.
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
    extra = {name: part for name, part in vars(header.extra).items() if part is not None}
    saved = SavedEstimator(header.parameters, header.n_features, header.feature_names, models, extra, maps)
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


def _scores(models: Sequence[FittedModel]) -> tuple[dict[str, Tensor], dict[str, float]]:
    """Return what intervals are made of: weights of events, then F of each model there, 0 of one that has none."""
    known = [model.own_scores for model in models if model.own_scores is not None]
    if not known:
        return {}, {}
    nothing = np.zeros(known[0].cdf.size)
    lines = [nothing if model.own_scores is None else model.own_scores.cdf for model in models]
    return {"scores": torch.from_numpy(np.stack([known[0].weights, *lines]))}, {"scored_rows": known[0].n}


def _models(header: Header, tensors: dict[str, Tensor]) -> tuple[FittedModel, ...]:
    array = {name: _finite(name, tensors[name]) for name in ("mean", "factor", "grid", "edges") if name in tensors}
    if array["grid"][0] < 0 or (np.diff(array["grid"]) <= 0).any():
        fail("grid", "times that increase, zero or larger", shown(array["grid"].tolist()))
    standardizer = Standardizer(array["mean"], array["factor"])
    outputs = Outputs(*header.outputs, array.get("edges"), array["grid"], header.extra.causes)
    with np.errstate(over="ignore", under="ignore"):
        # Edges that overflow in the network's unit are refused by the family.
        n_outputs = outputs.family().n_outputs
    used: set[str] = {*array, *(name for name in tensors if name.startswith("map."))}
    if header.extra.causes:
        used |= {name for name in tensors if name.startswith(("splits.", "ends."))}
    scored = _finite("scores", tensors["scores"]) if "scores" in tensors else None
    used |= {"scores"} & set(tensors)
    models = []
    for index, (lam, seed, best_epoch) in enumerate(header.models):
        state = {n.removeprefix(f"model.{index}."): n for n in tensors if n.startswith(f"model.{index}.")}
        network = _network(header, n_outputs, {name: tensors[place] for name, place in state.items()})
        history = tensors[f"history.{index}"].double().numpy()
        values = History(history[:, :1], history[:, 1:2], history[:, 2:])
        scores = None
        if scored is not None and header.extra.scored_rows is not None and best_epoch >= 0:
            scores = ConformalScores(scored[1 + index].copy(), scored[0].copy(), header.extra.scored_rows)
        models.append(FittedModel(standardizer, outputs, network, lam, seed, best_epoch, values, scores))
        used |= {f"history.{index}", *state.values()}
    if used != set(tensors):
        fail("tensors", "those of the models", f"others too: {shown(sorted(set(tensors) - used))}")
    return tuple(models)


def _maps(header: Header, tensors: dict[str, Tensor]) -> dict[float, KaplanMeierRecalibration]:
    """Read the maps of F by lambda; the header has compared their number with the tensors."""
    found = {}
    for index, (lam, n, n_events) in enumerate(header.extra.maps):
        knots, levels = _finite(f"map.{index}", tensors[f"map.{index}"])
        for values in (knots, levels):
            if values[0] != 0 or values[-1] != 1 or (np.diff(values) <= 0).any():
                fail(f"map.{index}", "numbers that increase from 0 to 1", shown(values.tolist()))
        names = (f"splits.{index}", f"ends.{index}") if header.extra.causes else ()
        moved = [_finite(name, tensors[name]).copy() for name in names]
        found[lam] = KaplanMeierRecalibration(knots.copy(), levels.copy(), n, n_events, *moved)
    return found


def _network(header: Header, n_outputs: int, state: dict[str, Tensor]) -> nn.Module:
    """Make a network of the file's tensors; they are compared with its layers while these are shapes without memory."""
    with torch.device("meta"):
        network = MLP(header.n_features, n_outputs, hidden=header.network.hidden, dropout=header.network.dropout)
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
