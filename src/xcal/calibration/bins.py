"""The bins: a partition of [0, 1] into intervals I = [a, b), the last one closed; groups and clusters of rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, Floats, as_count, as_labels, as_vector, fail, first_row

# A value on an edge belongs to the bin on its right, and 1.0 to the last bin, so every row counts exactly once.

Edges = Floats
# Equal bins by default: those in which D-calibration is measured and reported, and the finer ones of the penalty and of
# calibration given the covariates.
N_BINS = 10
FINE_BINS = 20
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


# --- Rows that depend on each other: clusters, such as all hours of one patient.
# Clusters are independent of each other, and the rows of one may depend on each other in any way. Every statistic here
# is a sum over rows, so it is a sum over clusters too: its noise is that of the cluster sums, which are independent.
# Where the rows of a cluster resemble each other it is much larger than that of as many independent rows.

Codes = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Clusters:
    """The cluster of each row."""

    codes: Codes  # number of each row's cluster, from 0, in the order of the labels and not of the rows
    count: int

    def of_rows(self, rows: npt.NDArray[Any]) -> "Clusters":
        """Clusters of some of the rows, chosen by a mask or by row numbers."""
        kept, codes = np.unique(self.codes[rows], return_inverse=True)
        return Clusters(codes.astype(np.intp, copy=False), kept.size)

    def sums(self, values: Floats) -> Floats:
        """Sum of the values of each cluster's rows, ``(count,)``."""
        return np.bincount(self.codes, values, minlength=self.count).astype(np.float64, copy=False)

    def bin_sums(self, bins: Codes, values: Floats | BoolArray, n_bins: int) -> Floats:
        """Sum of the values of each cluster's rows in each bin, ``(count, n_bins)``."""
        cells = np.bincount(self.codes * n_bins + bins, values, minlength=self.count * n_bins)
        return cells.astype(np.float64, copy=False).reshape(self.count, n_bins)


def as_clusters(values: Any, n: int, *, reference: str = "cdf") -> Clusters:
    """Check one label per row, of at least two clusters: from a single one nobody can tell noise from error.

    Examples
    --------
    >>> as_clusters(["b", "a", "b"], 3)
    Clusters(codes=array([1, 0, 1]), count=2)
    """
    kept, codes = np.unique(as_labels("clusters", values, n, reference=reference), return_inverse=True)
    if kept.size < 2:
        fail("clusters", "at least two clusters", f"the label {kept[0]} in every row")
    return Clusters(codes.astype(np.intp, copy=False), kept.size)


def sum_of_squares(influence: Floats, clusters: Clusters | None) -> float:
    """Variance of a sum of terms of mean zero, one per row: the squares of rows, or of sums over clusters."""
    return float(np.square(influence if clusters is None else clusters.sums(influence)).sum())
