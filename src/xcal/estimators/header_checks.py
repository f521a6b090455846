"""What the parts of a saved estimator's header have in common: kinds of numbers, shapes, values in messages."""

import reprlib
from collections.abc import Mapping
from typing import Any

from xcal._checks import fail

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
