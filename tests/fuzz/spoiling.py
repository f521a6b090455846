"""Hostile input: good values made worse, each input of a number of its own."""

import copy
import random
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

NOWHERE = "/dev/null/nowhere"  # a folder that not even an administrator can make
CONSTANTS: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 10**6, -(10**6), 2**63, 10**400, 0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 1e-320, 1e308,
    float("nan"), float("inf"), -1e400, "", "abc", "uniform", "0.5", b"x", (), [], {}, set(), [[1.0], [2.0, 3.0]],
    [1, 2, 3], [0.5], [None], ["a"], [np.nan] * 24, {"a": 1}, object(), len, 1j, range(3), np.nan, np.float32(0.5),
    np.int64(3), np.array([]), np.array(0.5), np.zeros((0, 3)), np.zeros((2, 0)), np.zeros((3, 3, 3)), np.array(["a"]),
    np.array([1 + 2j] * 24), np.array([None] * 24, dtype=object), np.zeros(24, dtype="datetime64[s]"), pd.NA, pd.NaT,
    np.zeros(24, dtype=[("a", float), ("b", bool)]), pd.Series([pd.NA] * 24, dtype="Float64"), pd.DataFrame(),
    torch.zeros(0), torch.zeros(24), torch.zeros(24, requires_grad=True), torch.eye(3).to_sparse(),
    torch.zeros(24, dtype=torch.bfloat16), torch.zeros(24, device="meta"), Path(NOWHERE), NOWHERE, 10**9,
)  # fmt: skip
NUMBERS = (np.nan, np.inf, -np.inf, -1.0, 0.0, 1.0, 2.0, 1e308, -1e308, 5e-324, 1e-300, 0.5)
CELLS = (
    b"", b"0", b"-1", b"0.5", b"NaN", b"inf", b"-inf", b"1e999", b"1e308", b"1e9", b"5e-324", b"2147483648", b"9" * 30,
    b"abc", b'"', b'"a,b"', b'"a\nb"', b'a"b', b"\xff\xfe", b"\0", "\u00b2".encode(), b"2101-13-45 00:00:00",
    b"9999-12-31 23:59:59", b"0001-01-01", b"290000-01-01 00:00:00", b"infinity", b"epoch", b" ", b"x" * 100_000,
)  # fmt: skip
TYPES = (np.float16, np.float32, np.int8, np.int64, np.bool_, object, np.complex128, np.str_, ">f8")


class Table(bytes):
    """A table of CSV without commas in its cells: columns, cells and lines can be spoilt, besides bytes."""


def spoilt(value: Any, rng: random.Random) -> Any:
    """Return a worse value: anything at all, or nearly the good one."""
    if isinstance(value, Table) and rng.random() < 0.6:
        return spoilt_table(value, rng)
    if isinstance(value, bytes):
        return spoilt_bytes(value, rng)
    if isinstance(value, torch.Tensor) and rng.random() < 0.8:
        made = spoilt_array(value.detach().numpy(), rng)
        try:
            return torch.as_tensor(np.asarray(made))
        except (TypeError, ValueError, RuntimeError):
            return made
    if isinstance(value, np.ndarray) and value.dtype.names is None and rng.random() < 0.8:
        return spoilt_array(value, rng)
    return copy.deepcopy(rng.choice(CONSTANTS))  # a call that changed it would change a later input


def spoilt_array(value: np.ndarray, rng: random.Random) -> Any:
    """Change entries, type, shape or container of an array."""
    array = np.array(value)
    kind = rng.randrange(9)
    if kind <= 2 and array.size:
        changed = array.astype(np.float64)
        for _ in range(rng.choice((1, 1, 2, array.size))):
            changed.flat[rng.randrange(array.size)] = rng.choice(NUMBERS)
        return changed
    if kind == 3 and array.size:
        return np.full(array.shape, rng.choice(NUMBERS))
    if kind == 4:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return array.astype(rng.choice(TYPES))
    if kind == 5:
        return rng.choice(
            (array[:1], array[:0], array[:-1], np.concatenate([array, array]), array[None], array[..., None])
        )
    if kind == 6:
        return rng.choice((array[::-1], np.sort(array, axis=0), array * 1e300, array * 1e-300, array - array.mean()))
    if kind == 7:
        return rng.choice((array.tolist(), pd.Series(list(array)), tuple(array), torch.as_tensor(array.copy())))
    return np.ma.MaskedArray(array, mask=np.arange(array.size).reshape(array.shape) == 0)


def spoilt_bytes(content: bytes, rng: random.Random) -> bytes:
    """Cut, flip, double or overwrite bytes of a file; forge a number in it."""
    changed = bytearray(content)
    at = rng.randrange(len(changed))
    kind = rng.randrange(8)
    if kind == 0:
        return bytes(changed[:at])
    if kind == 1:
        for _ in range(rng.choice((1, 1, 8, 100))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        changed[at:at] = bytes(rng.randrange(256) for _ in range(rng.choice((1, 4, 64))))
    elif kind == 3:
        changed[at : at + 4] = rng.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4), b"\x00\x00\x00\x01"))
    elif kind == 4:
        # A header in words that claims 10^12 rows, or something that is no number.
        digits = [place for place, byte in enumerate(changed) if 48 <= byte <= 57]
        if digits:
            at = rng.choice(digits)
            changed[at : at + 1] = rng.choice((b"1000000000000", b"-1", b"1e999", b"NaN", b"[]", b'"a"', b"0"))
    elif kind == 5:
        changed += changed[: rng.randrange(len(changed))]
    elif kind == 6:
        del changed[at : at + rng.choice((1, 2, 16, 200))]
    else:
        return rng.choice(
            (b"", b"\0" * 64, b"[" * 100_000, bytes(changed[::-1]), b"\xef\xbb\xbf" + content, b"PK\x03\x04")
        )
    return bytes(changed)


def spoilt_table(content: bytes, rng: random.Random) -> bytes:
    """Drop, double or move columns and lines, break a line, put other things into cells."""
    rows = [line.split(b",") for line in content.splitlines()]
    row, column = rng.randrange(len(rows)), rng.randrange(len(rows[0]))
    kind = rng.randrange(7)
    if kind <= 2:
        # One cell, a few, or all of a column but its name.
        for place in rng.choice(([row], rng.sample(range(len(rows)), 3), range(1, len(rows)))):
            rows[place][column] = rng.choice(CELLS)
    elif kind == 3:
        for cells in rows:
            cells[column : column + 1] = [cells[column]] * (2 * (row % 2))
    elif kind == 4:
        rows[row : row + 1] = [rows[row][:column], rows[row][column:]]
    elif kind == 5:
        rows[row] = rng.choice((rows[row][:-1], [*rows[row], b"more"], [], rows[row] * 1000))
    else:
        rows[row : row + 1] = rng.choice(([], [rows[row]] * 2, [rows[0], rows[row]]))
    return b"".join(b",".join(cells) + b"\n" for cells in rows)


def hostile(name: str, arguments: Mapping[str, Any], seed: int, number: int) -> tuple[dict[str, Any], list[str]]:
    """Return input `number` of a function: some of the good arguments spoilt, one sometimes left out; and which.

    It depends on nothing but what is given here, and can be made again alone.
    """
    rng = random.Random(f"{seed} {name} {number}")
    given = copy.deepcopy(dict(arguments))
    names = list(given)
    chosen = rng.sample(names, min(len(names), rng.choice((1, 1, 1, 2, 3))))
    for one in chosen:
        given[one] = spoilt(given[one], rng)
    if rng.random() < 0.02:
        left_out = rng.choice(names)
        del given[left_out]
        chosen = [*(one for one in chosen if one != left_out), left_out]
    return given, chosen


@contextmanager
def fixed_chance(number: int) -> Iterator[None]:
    """Let everything that draws without a seed draw the same at each run of this input."""
    from numpy.random import bit_generator

    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - what others draw from it
    torch.manual_seed(number)
    # Where numpy gets the seed of a generator that was given none.
    source: Any = bit_generator
    before, source.randbits = source.randbits, lambda bits: number % (1 << bits)
    try:
        yield
    finally:
        source.randbits = before
