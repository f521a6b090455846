"""Rows that depend on each other: clusters, such as all hours of one patient.

Clusters are independent of each other, and the rows of one may depend on each other in any way. Every statistic here is
a sum over rows, so it is a sum over clusters too: its noise is that of the cluster sums, which are independent. Where
the rows of a cluster resemble each other it is much larger than that of as many independent rows.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import fail
from xcal.calibration.labels import as_labels

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Clusters:
    """The cluster of each row.

    Attributes
    ----------
    codes : array of shape (n,)
        Number of each row's cluster, from 0, in the order of the labels: it does not depend on the order of the rows.
    count : int
        Number of clusters.
    """

    codes: Codes
    count: int

    def of_rows(self, rows: npt.NDArray[Any]) -> "Clusters":
        """Clusters of some of the rows, chosen by a mask or by row numbers."""
        kept, codes = np.unique(self.codes[rows], return_inverse=True)
        return Clusters(codes.astype(np.intp, copy=False), kept.size)

    def sums(self, values: Floats) -> Floats:
        """Sum of the values of each cluster's rows, ``(count,)``."""
        return np.bincount(self.codes, values, minlength=self.count).astype(np.float64, copy=False)

    def bin_sums(self, bins: Codes, values: Floats | npt.NDArray[np.bool_], n_bins: int) -> Floats:
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
