"""What the header of a saved estimator must say, held against the tensors that its file has.

A file may come from a stranger, with a digest that is right. Nothing of its header is believed before the file has the
tensors for it: sizes are compared with shapes, and shapes are bounded by the size of the file.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xcal._checks import fail
from xcal.distributions._readings import READINGS
from xcal.estimators.header_checks import Shapes, check_shape, is_number, is_whole, shown
from xcal.estimators.header_extra import read_extra
from xcal.estimators.settings import CONTINUOUS, DISCRETE

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
    hidden, dropout = _network(content["network"], shapes)
    models = _models(content["models"], kind, shapes)
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


def _network(value: Any, shapes: Shapes) -> tuple[tuple[int, ...], float]:
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


def _models(value: Any, kind: str, shapes: Shapes) -> tuple[tuple[float, int, int], ...]:
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
