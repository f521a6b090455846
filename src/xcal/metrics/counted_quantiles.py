"""Quantiles of values that count several times."""

from typing import Any

import numpy as np
import numpy.typing as npt

from xcal.metrics.inputs import Vector


def counted_quantiles(ordered: Vector, counts: npt.NDArray[Any], levels: Any) -> Vector:
    """Quantiles of increasing values as often as they count, interpolated as numpy does.

    Examples
    --------
    >>> counted_quantiles(np.array([1.0, 2.0]), np.array([3, 1]), [0.5, 1.0])
    array([1., 2.])
    """
    up_to = np.cumsum(counts)
    place = np.asarray(levels) * (up_to[-1] - 1)
    low = np.floor(place)
    below, above = (
        ordered[np.searchsorted(up_to, np.minimum(rank, up_to[-1] - 1), side="right")] for rank in (low, low + 1)
    )
    return np.asarray(below + (above - below) * (place - low))
