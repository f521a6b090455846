"""Checks of seeds, counts and flags."""

from typing import Any

import numpy as np

from xcal._checks import as_count, fail


def check_seed(name: str, seed: Any) -> int:
    """Return `seed`, a whole number of zero or more: with None the data could not be made again."""
    return as_count(name, seed, at_least=0)


def check_flag(name: str, flag: Any) -> bool:
    """Return `flag`, True or False."""
    if not isinstance(flag, bool | np.bool_):
        fail(name, "True or False", repr(flag))
    return bool(flag)


def check_count(name: str, count: Any, least: int) -> int:
    """Return `count`, a whole number of `least` or more."""
    return as_count(name, count, at_least=least)
