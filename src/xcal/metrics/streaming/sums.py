"""Sums that do not depend on the order of what is added: whole numbers, in two or more pieces of 64 bits.

Sums of floats differ in their last digits with the order of the rows, the size of the chunks and the number of
processes. Here every value is first written as whole numbers, and those are added. The sum is then the same to the
last bit, whatever was merged with what, and a sum over processes (``all_reduce``) is one of whole numbers.
"""

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# A value in [0, 1] is hi / 2**31 + lo / 2**62. Sums of either are exact in float64 up to 2**22 rows at a time, and in
# int64 up to 2**32 rows in all.
_LIMB = 2.0**31
_ROWS = 1 << 21

# Exponents of float64 numbers, as `np.frexp` gives them, from the smallest to the largest.
_FIRST, _LAST = -1073, 1024
_HALF = 2.0**27  # a significand of 53 bits is written as hi * 2**27 + lo
EXPONENTS = _LAST - _FIRST + 1


def unit_sums(values: npt.NDArray[Any]) -> Integers:
    """Sum over the rows of values in [0, 1]: shape (2, ...) for values of shape (n, ...).

    A value is rounded to a multiple of 2**-62, which is exact for float32 numbers above 2**-38.

    Examples
    --------
    >>> as_floats(unit_sums(np.array([0.25, 0.5])))
    array(0.75)
    """
    total = np.zeros((2, *values.shape[1:]), dtype=np.int64)
    for start in range(0, values.shape[0], _ROWS):
        for place, limb in enumerate(_limbs(values[start : start + _ROWS])):
            total[place] += limb.sum(axis=0).astype(np.int64)
    return total


def unit_sums_by_bin(bins: npt.NDArray[np.intp], values: npt.NDArray[Any], n_bins: int) -> Integers:
    """Sum of values in [0, 1] in each bin, shape (2, n_bins)."""
    total = np.zeros((2, n_bins), dtype=np.int64)
    for start in range(0, values.shape[0], _ROWS):
        rows = slice(start, start + _ROWS)
        for place, limb in enumerate(_limbs(values[rows])):
            total[place] += np.bincount(bins[rows], limb, minlength=n_bins).astype(np.int64)
    return total


def as_floats(total: Integers, scale: float = 1.0) -> Floats:
    """Return sums as floats, each rounded once; `scale` is what the values were divided by."""
    high, low = total.astype(object)
    # Python's division of whole numbers is rounded correctly, whatever their size.
    found = np.asarray((high * 2**31 + low) / 2**62, dtype=np.float64)
    return np.asarray(found * scale)


def _limbs(values: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    scaled = values.astype(np.float64) * _LIMB
    high = np.floor(scaled)
    scaled -= high
    scaled *= _LIMB
    return high, np.rint(scaled)


def float_sums(values: Floats) -> Integers:
    """Sum of any finite floats: for each exponent the sum of the significands, shape (2, EXPONENTS).

    Examples
    --------
    >>> exact = float_sums(np.array([1e300, 1.0, -1e300]))
    >>> as_fraction(exact)
    Fraction(1, 1)
    """
    total = np.zeros((2, EXPONENTS), dtype=np.int64)
    for start in range(0, values.size, _ROWS):
        significand, exponent = np.frexp(values[start : start + _ROWS])
        whole = significand * 2.0**53
        high = np.floor(whole / _HALF)
        bins = exponent - _FIRST
        total[0] += np.bincount(bins, high, minlength=EXPONENTS).astype(np.int64)
        total[1] += np.bincount(bins, whole - high * _HALF, minlength=EXPONENTS).astype(np.int64)
    return total


def as_fraction(total: Integers) -> Fraction:
    """Sum of floats as the exact number that it is."""
    whole = 0
    for place in np.flatnonzero(total.any(axis=0)):
        whole += (int(total[0, place]) * 2**27 + int(total[1, place])) << int(place)
    return Fraction(whole, 2 ** (53 - _FIRST))
