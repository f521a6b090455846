"""Sorting floats by their bits: stable, and several times faster than a comparison sort."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import BoolArray, FloatArray
from xcal._threads import one_thread

Indices = npt.NDArray[np.int64]
Keys = npt.NDArray[Any]


def sortable(values: FloatArray) -> Keys:
    """Integers in the order of the floats; torch sorts integers by radix.

    Read as an integer, an IEEE 754 number with a clear sign bit is already in order, and one with the sign bit set
    is in reverse order. Adding zero turns -0.0 into 0.0, the two being equal.

    Examples
    --------
    >>> import numpy as np
    >>> np.argsort(sortable(np.array([2.0, -np.inf, -3.0, 0.0])))
    array([1, 2, 3, 0])
    """
    signed = np.int32 if values.dtype == np.float32 else np.int64
    bits: Keys = (values + values.dtype.type(0)).view(signed)
    flip = bits >> (8 * bits.itemsize - 1)
    flip &= np.iinfo(signed).max
    bits ^= flip
    return bits


def sortable_time(time: FloatArray, event: BoolArray) -> Keys:
    """Integers in the order of the times; at one time the events come before the censored rows.

    A row censored at t was still event-free at t, so its own event comes after those seen at t. The censoring bit is
    the lowest one. The bits of a time, which is not negative, fill 63 bits; with the censoring bit they fill all 64,
    and flipping the highest one makes the order of unsigned integers that of signed ones.
    """
    key: Keys = np.add(time, 0.0, dtype=np.float64).view(np.int64)
    key <<= 1
    key |= ~event
    key ^= np.int64(np.iinfo(np.int64).min)
    return key


def is_event_key(keys: Keys) -> BoolArray:
    """Which keys of `sortable_time` stand for events."""
    return np.asarray((keys & 1) == 0)


@one_thread()
def stable_sort(keys: Keys) -> tuple[Keys, Indices]:
    """Sorted keys and the order that sorts them; equal keys keep their order."""
    values, order = torch.sort(torch.from_numpy(keys), stable=True)
    return values.numpy(), order.numpy()


def starts_run(values: Keys) -> BoolArray:
    """Mark, among sorted values, the first of each run of equal ones."""
    starts = np.empty(values.size, dtype=np.bool_)
    starts[0] = True
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return starts
