"""Checks of seeds, counts and flags."""

from typing import Any

import numpy as np

from xcal._checks import fail


def check_seed(name: str, seed: Any) -> int:
    """Return `seed`, a whole number of zero or more: with None the data could not be made again."""
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer) or seed < 0:
        fail(name, "a whole number, zero or larger", repr(seed))
    return int(seed)


def check_flag(name: str, flag: Any) -> bool:
    """Return `flag`, True or False."""
    if not isinstance(flag, bool | np.bool_):
        fail(name, "True or False", repr(flag))
    return bool(flag)


def check_count(name: str, count: Any, least: int) -> int:
    """Return `count`, a whole number of `least` or more."""
    if isinstance(count, bool | np.bool_) or not isinstance(count, int | np.integer) or count < least:
        fail(name, f"a whole number, {least} or larger", repr(count))
    return int(count)
