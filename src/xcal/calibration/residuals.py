"""Calibration residuals: what each row has in each bin of F, less what it should have on average."""

import numpy as np
import numpy.typing as npt

from xcal.calibration.bins import Edges
from xcal.calibration.censored import rest, share_of_bin
from xcal.calibration.histogram import Array, Floats, edges_like, locate


def residuals(cdf: Array, event: npt.NDArray[np.bool_], edges: Edges) -> Floats:
    r"""R_ij, (n, B): the exact membership of row i in bin j less the width of the bin.

    An event at F lies in one bin; a censored row leaves its share in every bin from F on (`censored`). If the model is
    right for a row's covariates x and censoring is independent given x, then :math:`E(R_{ij} \mid x) = 0`: the share of
    a censored row is the probability that its event, had it been seen, would have been in the bin. D-calibration is the
    sum over bins of the squared mean of these numbers.
    """
    edge = edges_like(edges, cdf)
    u = cdf.astype(np.float64, copy=False)
    bins, left = locate(u, edge), rest(u, edge)
    found = np.empty((u.size, edges.size - 1))
    for j in range(edges.size - 1):
        found[:, j] = np.where(event, bins == j, share_of_bin(j, bins, left, edge))
    found -= np.diff(edges)
    # Nothing is known of a row that is censored at F = 0: of the differences only rounding is left.
    found[~event & (u == 0)] = 0.0
    return found
