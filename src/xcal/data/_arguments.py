"""Checks of seeds, counts, flags, shares and row numbers."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from xcal._checks import as_count, as_flag, as_numpy, fail


def check_seed(name: str, seed: Any) -> int:
    """Return `seed`, a whole number of zero or more: with None the data could not be made again."""
    return as_count(name, seed, at_least=0)


def check_flag(name: str, flag: Any) -> bool:
    """Return `flag`, True or False."""
    return as_flag(name, flag)


def check_count(name: str, count: Any, least: int) -> int:
    """Return `count`, a whole number of `least` or more."""
    return as_count(name, count, at_least=least)


def check_nothing_beside(others: Mapping[str, Any]) -> None:
    """Check that what `SurvivalData` holds is not given a second time."""
    for name, value in others.items():
        if value is not None:
            fail(name, "nothing beside SurvivalData, which has times, events and weights", type(value).__name__)


def row_numbers(rows: Any, n: int) -> Any:
    """Turn what chooses rows into a slice that goes forward, or an array of numbers from 0 to n - 1."""
    if isinstance(rows, slice):
        if rows.step not in (None, 1):
            rows = np.arange(n)[rows]
        elif len(range(*rows.indices(n))) > 0:
            return rows
        else:
            fail("rows", "at least one row", f"none in {rows.start}:{rows.stop} of {n}")
    wanted = as_numpy("rows", rows)
    if wanted.ndim != 1 or wanted.dtype.kind not in "biu" or wanted.size == 0:
        fail("rows", "a slice, a mask or row numbers, at least one", f"{wanted.dtype} of shape {wanted.shape}")
    if wanted.dtype == np.bool_:
        if wanted.size != n or not wanted.any():
            found = "a mask without a row" if wanted.size == n else f"{wanted.size}"
            fail("rows", f"a mask of {n} rows with at least one of them", found)
        return np.flatnonzero(wanted)
    numbers = wanted.astype(np.int64)
    outside = (numbers < -n) | (numbers >= n)
    if outside.any():
        place = int(np.argmax(outside))
        fail("rows", f"row numbers below {n}", f"{numbers[place]} at position {place}")
    return np.where(numbers < 0, numbers + n, numbers)


def check_fractions(values: Any) -> list[float]:
    """Return shares above 0 that sum to 1, two or more of them."""
    try:
        shares = [float(value) for value in values]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        fail("fractions", "a sequence of numbers", repr(values))
    if len(shares) < 2 or not all(0 < share < 1 for share in shares) or not math.isclose(sum(shares), 1.0):
        fail("fractions", "two or more shares above 0 that sum to 1", repr(values))
    return shares
