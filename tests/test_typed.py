"""What a file says becomes a checked object, or one error that names the key."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

from xcal._files import Limits, NotANumberToo, OneOf, parse_json, read


@dataclass
class Part:
    size: Annotated[int, Limits(at_least=1, below=10)]


@dataclass
class Whole:
    kind: Literal["a", "b"] = field(metadata={"key": "class"})
    word: Annotated[str, OneOf(("x", "y"))] = "x"
    parts: tuple[Part, ...] = ()
    pair: tuple[int, float] = (0, 0.0)
    label: str | int | None = None
    table: dict[str, float] = field(default_factory=dict)
    column: list[Annotated[float, NotANumberToo]] = field(default_factory=list)
    points: npt.NDArray[np.float64] | None = None
    anything: Any = None


def test_values_become_what_their_hints_say():
    text = '{"class": "b", "parts": [{"size": 3}], "pair": [1, 2], "label": 7, "column": [NaN, 1], "points": [0, 1]}'
    found = read(Whole, parse_json("header", text))
    assert (found.kind, found.parts, found.pair, found.label) == ("b", (Part(3),), (1, 2.0), 7)
    assert isinstance(found.pair[1], float)
    assert found.points.dtype == np.float64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"class": "c"}, "^class: expected 'a' or 'b', got 'c'"),
        ({"class": ["a"]}, "^class: expected 'a' or 'b'"),
        ({"new": 1}, "^keys: expected one of the keys class, word"),
        ({"word": "z"}, "^word: expected x or y, got 'z'"),
        ({"parts": [{"size": 0}]}, r"^parts\[0\]\.size: expected a number of at least 1 and below 10, got 0"),
        ({"parts": [{"size": True}]}, r"^parts\[0\]\.size: expected a whole number, got True"),
        ({"parts": [{}]}, r"^parts\[0\]: expected a value for 'size', got none"),
        ({"parts": {}}, "^parts: expected a list"),
        ({"pair": [1]}, "^pair: expected a list of 2 values"),
        ({"label": True}, "^label: expected a whole number, got True"),
        ({"label": 2**63}, "^label: expected a whole number of 64 bits"),
        ({"table": {"a": float("nan")}}, r"^table\.a: expected a finite number, got nan"),
        ({"column": ["a"]}, r"^column\[0\]: expected a number"),
        ({"points": [[0]]}, r"^points\[0\]: expected a number"),
    ],
)
def test_what_does_not_fit_names_its_key(change, message):
    with pytest.raises(ValueError, match=message):
        read(Whole, {"class": "a"} | change)


def test_an_error_is_short_however_large_the_value():
    with pytest.raises(ValueError, match="expected a list") as caught:
        read(Whole, {"class": "a", "parts": "x" * 10**6})
    assert len(str(caught.value)) < 500
    for text in ("", "[" * 100_000, "9" * 5000):
        with pytest.raises(ValueError, match="header: expected JSON"):
            parse_json("header", text)
