"""Fitted estimators as files: tensors and JSON (safetensors), nothing that could run.

The metadata of the file has four entries: format, version, header (JSON: class, parameters, features, scalars of every
model) and digest, the SHA-256 of the header and all tensors.
"""

import hashlib
import json
import os
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
from xcal.estimators.encoding import Encoding
from xcal.estimators.features import Floats
from xcal.estimators.fitted import FittedModel
from xcal.estimators.header import Header, read_header
from xcal.estimators.header_checks import shown
from xcal.estimators.scaling import Outputs, Standardizer
from xcal.networks import MLP
from xcal.recalibration import KaplanMeierRecalibration
from xcal.recalibration.saving import in_order, is_recalibrated, read_recalibrated
from xcal.training import History

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
