"""Fitted estimators as files: tensors and JSON (safetensors), nothing that could run.

The metadata of the file has four entries: format, version, header (JSON: class, parameters, features, scalars of every
model) and digest, the SHA-256 of the header and all tensors.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
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
from xcal.estimators.fitted import FittedModel
from xcal.estimators.scaling import Outputs, Standardizer
from xcal.networks import MLP
from xcal.training import History
from xcal.training.stack import new_network

FORMAT, VERSION = "xcal-estimator", 1
_HOMES = {"SurvivalModel": "xcal.estimators.model", "SurvivalPath": "xcal.estimators.path"}


@dataclass(frozen=True, eq=False)
class SavedEstimator:
    """What a file holds."""

    parameters: dict[str, Any]
    n_features: int
    feature_names: list[str] | None
    models: tuple[FittedModel, ...]
    extra: dict[str, Any]

    def set_features(self, estimator: Any) -> None:
        """Tell an estimator what its columns were."""
        estimator.n_features_in_ = self.n_features
        if self.feature_names is not None:
            estimator.feature_names_in_ = np.array(self.feature_names, dtype=object)


def write_estimator(
    path: str | os.PathLike[str], estimator: Any, models: Sequence[FittedModel], extra: dict[str, Any] | None = None
) -> None:
    """Write a fitted estimator to a new file and move it into place: a reader sees the old file or the new one."""
    check_is_fitted(estimator)
    kind = type(estimator)
    if _HOMES.get(kind.__name__) != kind.__module__:
        fail(
            "save", f"a {' or '.join(_HOMES)} itself, as load makes no other class", f"the subclass {kind.__qualname__}"
        )
    first = models[0]
    names = getattr(estimator, "feature_names_in_", None)
    header = json.dumps(
        {
            "class": kind.__name__,
            "parameters": {name: _jsonable(value) for name, value in estimator.get_params(deep=False).items()},
            "n_features": int(estimator.n_features_in_),
            "feature_names": None if names is None else [str(name) for name in names],
            "outputs": [first.outputs.distribution, first.outputs.interpolation, first.outputs.time_scale],
            "network": _architecture(first.network),
            "models": [[model.lam, model.seed, model.best_epoch] for model in models],
            "extra": extra or {},
        }
    )
    tensors = _tensors(models)
    metadata = {"format": FORMAT, "version": str(VERSION), "header": header, "digest": _digest(header, tensors)}
    write_whole(Path(path), save(tensors, metadata))


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that `SurvivalModel.save` or `SurvivalPath.save` wrote.

    Parameters
    ----------
    path
        The file. It is only read as data, so that one from a stranger can do no harm.

    Returns
    -------
    SurvivalModel or SurvivalPath
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
    metadata, tensors = _read(Path(path))
    if metadata.get("format") != FORMAT:
        fail("path", _EXPECTED, f"{path}, a safetensors file of another kind")
    version = metadata.get("version", "")
    if not version.isdecimal() or int(version) > VERSION:
        fail("path", f"a file of format version {VERSION} or older", f"{path} of version {version}: update xcal")
    header = metadata.get("header", "")
    if metadata.get("digest") != _digest(header, tensors):
        fail("path", _EXPECTED, f"{path}, which was damaged: its checksum is wrong")
    content = json.loads(header)
    if content["class"] not in _HOMES:
        fail("path", f"a saved {' or '.join(_HOMES)}", f"{path} with a {content['class']}")
    kind = getattr(import_module(_HOMES[content["class"]]), content["class"])
    parameters = {name: _restored(value) for name, value in content["parameters"].items()}
    models = _models(content, tensors)
    return kind._from_saved(
        SavedEstimator(parameters, content["n_features"], content["feature_names"], models, content["extra"])
    )


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


def _models(content: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[FittedModel, ...]:
    array = {name: tensors[name].numpy() for name in ("mean", "factor", "grid", "edges") if name in tensors}
    standardizer = Standardizer(array["mean"], array["factor"])
    distribution, interpolation, time_scale = content["outputs"]
    outputs = Outputs(distribution, interpolation, time_scale, array.get("edges"), array["grid"])
    n_outputs = outputs.family().n_outputs
    models = []
    for index, (lam, seed, best_epoch) in enumerate(content["models"]):
        network = new_network(partial(MLP, content["n_features"], n_outputs, **content["network"]), seed=0)
        prefix = f"model.{index}."
        network.load_state_dict({n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)})
        history = tensors[f"history.{index}"].numpy()
        values = History(history[:, :1], history[:, 1:2], history[:, 2:])
        network.double().eval().requires_grad_(False)
        models.append(FittedModel(standardizer, outputs, network, lam, seed, best_epoch, values))
    return tuple(models)


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
            names = file.keys()
            return file.metadata() or {}, {name: file.get_tensor(name) for name in names}
    except (SafetensorError, UnicodeDecodeError) as error:
        raise ValueError(f"path: expected {_EXPECTED}, got {path}, which cannot be read: {error}") from error


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


def _restored(value: Any) -> Any:
    return tuple(_restored(item) for item in value) if isinstance(value, list) else value
