"""Recalibrated models of xcal as files: the model's own file inside, and JSON; nothing that could run.

The file is a safetensors file with one tensor, the bytes of the file that the model's `save` writes. Its metadata has
four entries: format, version, header (JSON: method, parameters, map) and digest, the SHA-256 of header and tensor.
"""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from xcal._checks import fail
from xcal._files import write_whole
from xcal.recalibration.base import Floats
from xcal.recalibration.reading import WholeLaw
from xcal.recalibration.registry import METHODS

FORMAT, VERSION = "xcal-recalibrated", "1"
_EXPECTED = "a file that Recalibrated.save wrote"
_KEYS = {"method", "cv", "n_pieces", "group_column", "random_state", "times", "adjustment"}


@runtime_checkable
class Saved(WholeLaw, Protocol):
    """A model of xcal that has a file."""

    def save(self, path: Any) -> None:
        """Write the model to a file that `xcal.load` reads."""
        ...


def write_recalibrated(path: str | os.PathLike[str], estimator: Any) -> None:
    """Write a fitted `Recalibrated` whose model is one of xcal to a new file, and move it into place."""
    model = estimator.model_
    if not isinstance(model, Saved):
        advice = "save the other library's model in its own way, and the map by adjustment_.content()"
        fail("save", f"a recalibrated model of xcal ({advice})", f"{type(model).__module__}.{type(model).__name__}")
    cv = estimator.cv
    header = json.dumps(
        {
            "method": estimator.method,
            "cv": int(cv) if isinstance(cv, int | np.integer) else None,
            "n_pieces": estimator.n_pieces,
            "group_column": estimator.group_column,
            "random_state": int(estimator.random_state),
            "times": estimator.times_.tolist(),
            "adjustment": estimator.adjustment_.content(),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "model"
        model.save(inside)
        content = np.frombuffer(inside.read_bytes(), dtype=np.uint8)
    metadata = {"format": FORMAT, "version": VERSION, "header": header, "digest": _digest(header, content)}
    write_whole(Path(path), in_order(save({"model": content}, metadata)))


def in_order(content: bytes) -> bytes:
    """Sort the metadata at the head of a file, which safetensors writes in random order: one model, one file."""
    length = int.from_bytes(content[:8], "little")
    head = json.loads(content[8 : 8 + length])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    # The tensors after it start at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + length :]


def is_recalibrated(path: str | os.PathLike[str]) -> bool:
    """Whether this is a file of a recalibrated model; what is no safetensors file at all is not."""
    try:
        with safe_open(path, framework="numpy") as file:
            return (file.metadata() or {}).get("format") == FORMAT
    except (SafetensorError, UnicodeDecodeError):
        return False


def read_recalibrated(path: str | os.PathLike[str], load_model: Callable[[Path], Any]) -> Any:
    """Read a file that `write_recalibrated` wrote; `load_model` reads the file of the model inside.

    It is only read as data: what does not fit is refused with one error.
    """
    from xcal.recalibration.estimator import Recalibrated

    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        whole = set(file.keys()) == {"model"} and file.get_slice("model").get_dtype() == "U8"
        content = file.get_tensor("model") if whole else np.empty(0, dtype=np.uint8)
    if not whole or metadata.get("version") != VERSION:
        fail("path", f"{_EXPECTED}, of version {VERSION}", f"{path}, of another kind or version")
    text = metadata.get("header", "")
    if metadata.get("digest") != _digest(text, content):
        fail("path", _EXPECTED, f"{path}, which was damaged: its checksum is wrong")
    try:
        header = _header(text)
        column = header["group_column"]
        adjustment = METHODS[header["method"]].restore(header["adjustment"], column)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"path: expected {_EXPECTED}, got {path}, made by something else: {error}") from error
    with tempfile.TemporaryDirectory() as folder:
        inside = Path(folder) / "model"
        inside.write_bytes(content.tobytes())
        model = load_model(inside)
    options = {name: header[name] for name in ("cv", "n_pieces", "group_column", "random_state")}
    estimator = Recalibrated(model, header["method"], **options)
    estimator.model_, estimator.adjustment_, estimator.times_ = model, adjustment, header["times"]
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(model, name):
            setattr(estimator, name, getattr(model, name))
    return estimator


def _header(text: str) -> dict[str, Any]:
    """Check the header, before anything is made of it."""
    try:
        content = json.loads(text)
    except RecursionError:
        fail("header", "JSON", "JSON that is nested too deeply")
    if not isinstance(content, dict) or set(content) != _KEYS:
        fail("header", f"the keys {', '.join(sorted(_KEYS))}", type(content).__name__)
    if not isinstance(content["method"], str) or content["method"] not in METHODS:
        fail("method", f"one of {', '.join(METHODS)}", repr(content["method"])[:80])
    for name, kinds in (("cv", int), ("n_pieces", int), ("group_column", int | str), ("random_state", int)):
        value = content[name]
        if isinstance(value, bool) or not (value is None or isinstance(value, kinds)):
            fail(name, "a number or null", repr(value)[:80])
    times: Floats = np.asarray(content["times"], dtype=np.float64)
    increase = times.ndim == 1 and times.size > 0 and np.isfinite(times).all() and (np.diff(times) > 0).all()
    if not increase or times[0] < 0:
        fail("times", "increasing times, zero or larger", f"an array of shape {times.shape}")
    return content | {"times": times}


def _digest(header: str, content: Any) -> str:
    digest = hashlib.sha256(f"{FORMAT} {VERSION} {header}".encode())
    digest.update(content.tobytes())
    return digest.hexdigest()
