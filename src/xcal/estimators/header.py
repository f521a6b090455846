"""What the header of a saved estimator must say, held against the tensors that its file has.

A file may come from a stranger, with a digest that is right. Nothing of its header is believed before the file has the
tensors for it: sizes are compared with shapes, and shapes are bounded by the size of the file.
"""

import datetime
import json
import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from xcal._checks import fail
from xcal.distributions._readings import READINGS
from xcal.estimators.settings import CONTINUOUS, DISCRETE, KINDS

# Columns that the rules of `SurvivalPath.select` read; a frontier may have more.
FRONTIER = (
    *("lambda", "seed", "best_epoch", "nll", "nll_gap_se", "nll_sd", "dcal", "dcal_floor", "dcal_sd"),
    *("concordance", "concordance_sd", "total"),
)
CANDIDATES = (
    *("lambda", "recalibrated", "nll", "nll_gap_se", "dcal", "dcal_gap_se", "dcal_floor", "dcal_p", "concordance"),
)
# Tables of candidates: on the validation rows, and on all rows.
MEASURED = {"candidates", "cross_fitted"}
_KEYS = ("class", "parameters", "n_features", "feature_names", "outputs", "network", "models", "extra")
# Parameters are numbers, words and lists of them.
_DEEPEST = 4
_LARGEST = 2**63

Shapes = Mapping[str, tuple[int, ...]]


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
        _extra(content["extra"], kind, models, shapes),
    )


def shown(value: Any) -> str:
    """Return a value as text of a bounded length, however large or deep it is."""
    return reprlib.repr(value)


def _n_features(value: Any, shapes: Shapes) -> int:
    if not _whole(value) or value < 1:
        fail("n_features", "a whole number of 1 or more", shown(value))
    for name in ("mean", "factor"):
        _check_shape(name, shapes, (value,))
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
    if not _number(scale) or not 0 < scale < math.inf:
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
        if not _whole(size) or not 1 <= size <= largest:
            fail("hidden", f"whole numbers from 1 to {largest}, the largest size in the file", shown(size))
    if not _number(dropout) or not 0 <= dropout < 1:
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
        if not _number(lam) or not 0 <= lam < math.inf:
            fail(f"models[{index}]", "a finite lambda, zero or larger", shown(lam))
        if not _whole(seed) or seed < 0:
            fail(f"models[{index}]", "a seed, zero or larger", shown(seed))
        epochs = _check_shape(f"history.{index}", shapes, (None, 3))[0]
        if not _whole(best) or not -1 <= best < epochs:
            fail(f"models[{index}]", f"a best epoch of its {epochs}, or -1", shown(best))
    return tuple((float(lam), seed, best) for lam, seed, best in value)


def _parameters(value: Any, known: Sequence[str]) -> dict[str, Any]:
    if not isinstance(value, dict) or not set(value) <= set(known):
        fail("parameters", f"values of {', '.join(known)}", shown(value))
    target = value.get("target_dcal")
    if target is not None and (not _number(target) or not math.isfinite(target)):
        fail("target_dcal", "null or a number", shown(target))
    return {name: _restored(name, item, _DEEPEST) for name, item in value.items()}


def _restored(name: str, value: Any, depth: int) -> Any:
    """Return a parameter as it was; sequences come back as tuples."""
    if isinstance(value, list) and depth > 0:
        return tuple(_restored(name, item, depth - 1) for item in value)
    if isinstance(value, list | dict):
        fail(name, "a number, a word or a list of them", shown(value))
    return value


def _extra(value: Any, kind: str, models: Sequence[tuple[float, int, int]], shapes: Shapes) -> dict[str, Any]:
    path = kind == "SurvivalPath"
    # Files of an earlier version have no selection and no candidates, and large data are not judged by cross-fitting.
    needed, known = ({"frontier"}, {"frontier", "selection", *MEASURED}) if path else (set(), set())
    if not isinstance(value, dict) or not needed <= set(value) <= known | {"maps", "encoding"}:
        fail(
            "extra", "a frontier and a selection for a path, nothing but maps and an encoding for a model", shown(value)
        )
    lambdas = [model[0] for model in models]
    _check_maps(value.get("maps", []), lambdas, shapes)
    if "encoding" in value:
        _check_encoding(value["encoding"], shapes)
    if not path:
        return value
    if "selection" in value:
        _check_selection(value["selection"], lambdas)
        mapped = {line[0] for line in value.get("maps", [])}
        if value["selection"].get("recalibrated") and value["selection"]["lam"] not in mapped:
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
        if not fits or not all(isinstance(item, bool) if key == "recalibrated" else _number(item) for item in column):
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
        if not isinstance(column["has_missing"], bool) or not _number(column["fill"]):
            fail("encoding", "a number for fill, true or false for has_missing", shown(column))
        if column["kind"] == "date" and not _is_date(column["origin"]):
            fail("encoding", "a date for the origin of a date", shown(column["origin"]))
        width += (len(column["categories"]) if column["kind"] == "category" else 1) + column["has_missing"]
    _check_shape("mean", shapes, (width,))


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
        if not _whole(line[1]) or not _whole(line[2]) or not 1 <= line[2] <= line[1]:
            fail(f"maps[{index}]", "numbers of rows and of events among them", shown(line))
        shape = _check_shape(f"map.{index}", shapes, (2, None))
        if shape[1] < 2:
            fail(f"map.{index}", "two or more knots", shape)


def _check_selection(value: Any, lambdas: Sequence[float]) -> None:
    needed = {"lam", "rule", "reason"}
    if not isinstance(value, dict) or not needed <= set(value) <= needed | {"recalibrated", "at_floor"}:
        fail("selection", "the keys lam, rule, reason, recalibrated and at_floor", shown(value))
    if not all(isinstance(value.get(name, False), bool) for name in ("recalibrated", "at_floor")):
        fail("selection", "true or false for recalibrated and at_floor", shown(value))
    if value["lam"] not in lambdas:
        fail("selection", "the lambda of a model", shown(value["lam"]))
    if not isinstance(value["rule"], str) or not isinstance(value["reason"], str):
        fail("selection", "a rule and a reason in words", shown(value))


def _lines(frontier: dict[str, list[Any]]) -> list[tuple[Any, Any]]:
    return list(zip(frontier["lambda"], frontier["seed"], strict=True))


def _check_shape(name: str, shapes: Shapes, wanted: tuple[int | None, ...]) -> tuple[int, ...]:
    """Check that the file has a tensor of this shape; None is any size."""
    shape = shapes.get(name)
    fits = shape is not None and len(shape) == len(wanted)
    if shape is None or not fits or any(w not in (None, s) for s, w in zip(shape, wanted, strict=True)):
        fail(name, f"a tensor of shape {tuple('any' if w is None else w for w in wanted)}", shape)
    return shape


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST


def _number(value: Any) -> bool:
    return isinstance(value, float) or _whole(value)
