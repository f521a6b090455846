"""What a row can have besides features, time and event, each checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_floats, as_numpy, as_vector, check_same_length, fail, first_row, is_missing


def read_weights(name: str, values: Any, n: int, *, reference: str = "x") -> npt.NDArray[np.float64]:
    """Weights in float64: finite, zero or larger, and not all zero."""
    weights = as_floats(name, values)
    check_same_length(name, weights, reference, n)
    bad = ~(np.isfinite(weights) & (weights >= 0))
    if bad.any():
        fail(name, "finite weights, zero or larger", weights[first_row(bad)], first_row(bad))
    if not weights.sum() > 0:
        fail(name, "a positive sum", weights.sum())
    return weights.astype(np.float64)


def read_labels(name: str, values: Any, n: int) -> npt.NDArray[Any]:
    """Labels, all numbers or all text, none missing."""
    if hasattr(values, "detach"):
        labels = as_numpy(name, values)
    else:
        try:
            labels = np.asarray(values)
        except ValueError:
            fail(name, "one label for each row", "lists of different lengths")
    if labels.ndim != 1:
        fail(name, "one label for each row", f"shape {labels.shape}")
    check_same_length(name, labels, "x", n)
    if labels.dtype.kind == "O":
        labels = _of_one_kind(name, labels)
    if labels.dtype.kind not in "biufU":
        fail(name, "numbers or text", f"dtype {labels.dtype}")
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        fail(name, "a label in every row", "nan", first_row(np.isnan(labels)))
    return np.array(labels)


def _of_one_kind(name: str, labels: npt.NDArray[np.object_]) -> npt.NDArray[Any]:
    """Return an array of objects in the type that they share."""
    missing = np.array([is_missing(value) for value in labels])
    if missing.any():
        fail(name, "a label in every row", labels[first_row(missing)], first_row(missing))
    kind = str if isinstance(labels[0], str) else int
    other = np.array([not isinstance(value, str if kind is str else int | np.integer) for value in labels])
    if other.any():
        row = first_row(other)
        fail(name, "all whole numbers or all text", f"a {type(labels[row]).__name__} beside a {kind.__name__}", row)
    return labels.astype(kind)


def read_ids(name: str, values: Any, n: int) -> npt.NDArray[Any]:
    """Labels that are all different."""
    ids = read_labels(name, values, n)
    _, first = np.unique(ids, return_index=True)
    if first.size < n:
        repeated = np.ones(n, dtype=bool)
        repeated[first] = False
        row = first_row(repeated)
        fail(name, "a different name for each row", f"{ids[row]!s} a second time", row)
    return ids


def read_extra(name: str, values: Any, n: int) -> npt.NDArray[Any]:
    """Numbers of each row that no model sees; they may be missing or infinite."""
    numbers = as_vector(f"extra[{name!r}]", values)
    check_same_length(f"extra[{name!r}]", numbers, "x", n)
    return np.array(numbers)


def read_names(name: str, values: Sequence[str], shape: tuple[int, ...]) -> tuple[str, ...]:
    """Names of the columns of features of this shape, all different, or none at all."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        fail(name, "a sequence of names", repr(values))
    names = tuple(values)
    if not names:
        return names
    seen: set[str] = set()
    for place, value in enumerate(names):
        if not isinstance(value, str) or value in seen:
            fail(name, "texts that are all different", f"{value!r} at position {place}")
        seen.add(value)
    if len(shape) != 2 or len(names) != shape[1]:
        fail(name, f"one for each column of x, of shape {shape}", f"{len(names)} names")
    return names
