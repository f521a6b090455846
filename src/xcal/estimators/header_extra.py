"""What the header of a saved estimator says beside the networks: maps, encoding, a path's tables and its choice."""

import datetime
from collections.abc import Sequence
from typing import Any

from xcal._checks import fail
from xcal.estimators.header_checks import Shapes, check_shape, is_number, is_whole, shown
from xcal.estimators.settings import KINDS

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
