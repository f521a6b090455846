"""The bins: a partition of [0, 1] into intervals I = [a, b), the last one closed.

A value on an edge belongs to the bin on its right, and 1.0 to the last bin, so every row counts exactly once.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_count, as_vector, fail, first_row

Edges = npt.NDArray[np.float64]
# More than anybody needs. The estimators that look at every row for every bin take seconds then, for few rows.
MOST_BINS = 10**5


def bin_edges(n_bins: int | None = None, edges: Any = None) -> Edges:
    """Bin edges from 0 to 1, from a number of equal bins or from the user's own edges.

    Equal edges are j / n_bins, each correctly rounded: 3/10 is the number a user writes as 0.3.

    Parameters
    ----------
    n_bins : int, optional
        Number of equal bins, 2 to 100,000. Give this or `edges`.
    edges : array-like, optional
        Increasing numbers from 0 to 1, at least three of them.

    Returns
    -------
    ndarray of shape (n_bins + 1,), float64

    Examples
    --------
    >>> bin_edges(4)
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    if edges is None:
        count = as_count("n_bins", n_bins, at_least=2, at_most=MOST_BINS)
        return np.arange(count + 1, dtype=np.float64) / count
    array = as_vector("edges", edges).astype(np.float64)
    if array.size < 3:
        fail("edges", "at least three edges (two bins)", f"{array.size}")
    if not np.isfinite(array).all():
        row = first_row(~np.isfinite(array))
        fail("edges", "finite numbers", array[row], row)
    if array[0] != 0.0 or array[-1] != 1.0:
        fail("edges", "edges that cover [0, 1], from 0 to 1", f"edges from {array[0]} to {array[-1]}")
    falling = np.diff(array) <= 0
    if falling.any():
        row = first_row(falling) + 1
        fail("edges", f"strictly increasing edges, above {array[row - 1]}", array[row], row)
    return array
