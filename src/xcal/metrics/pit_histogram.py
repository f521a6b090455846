"""Histogram of F at the observed times with the range of a perfect model, bin by bin."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from xcal._checks import BoolArray, FloatArray
from xcal.calibration.bins import bin_edges
from xcal.calibration.censored import rest, share_of_bin
from xcal.calibration.clusters import Clusters, sum_of_squares
from xcal.calibration.histogram import edges_like, locate, redistribution
from xcal.metrics.inputs import Vector
from xcal.metrics.small_cells import merged, merged_edges, starts_of

Matrix = npt.NDArray[np.float64]
N_BINS = 10


@dataclass(frozen=True, eq=False, repr=False)
class PitHistogram:
    """Histogram of F at the observed times, as D-calibration sees it, by one estimator; a perfect model is flat."""

    method: str  # "uniform", "km" or "ipcw"
    group: str | None
    edges: Vector  # (b + 1,)
    mass: Vector  # (b,)
    lower: Vector  # per bin, the range in which a perfect model's mass lies in 95 % of samples of this size
    upper: Vector


@dataclass(frozen=True, eq=False)
class BinShares:
    """What each row leaves in each bin: one in its own for an event, spread over [F, 1] for a censored row."""

    edges: Vector
    shares: Matrix  # (n, bins)

    @property
    def widths(self) -> Vector:
        """Width of each bin: the mass of a perfect model."""
        return np.diff(self.edges)


def bin_shares(cdf: FloatArray, event: BoolArray, n_bins: int = N_BINS, min_cell: int = 0) -> BinShares:
    """Shares of the rows in equal bins; their mean is the histogram of the "uniform" estimator.

    Bins with fewer events than `min_cell` are merged with their neighbours; what censored rows leave in a bin is none
    of theirs alone.
    """
    edges = bin_edges(n_bins)
    edge = edges_like(edges, cdf)
    u = cdf.astype(np.float64)
    bins, left = locate(u, edge), rest(u, edge)
    shares = np.empty((u.size, n_bins))
    for j in range(n_bins):
        shares[:, j] = np.where(event, bins == j, share_of_bin(j, bins, left, edge))
    cells = merged(np.bincount(bins[event], minlength=n_bins), min_cell)
    return BinShares(merged_edges(edges, cells), np.add.reduceat(shares, starts_of(cells), axis=1))


def uniform_variance(bins: BinShares, clusters: Clusters | None = None, weights: Vector | None = None) -> Vector:
    """Variance of each bin's mass for a perfect model, "uniform" estimator; the sum is its floor."""
    residuals, n = bins.shares - bins.widths, bins.shares.shape[0]
    if weights is not None:
        residuals *= weights[:, None] / weights.sum()
        return np.array([sum_of_squares(residual, clusters) for residual in residuals.T])
    if clusters is None:
        return np.asarray(np.square(residuals).mean(axis=0) / n)
    return np.array([sum_of_squares(residual, clusters) / n**2 for residual in residuals.T])


def redistributed_variance(
    bins: BinShares,
    event: BoolArray,
    scale: FloatArray,
    clusters: Clusters | None = None,
    weights: Vector | None = None,
) -> tuple[Vector, Vector]:
    """Masses of Kaplan-Meier redistribution in the order of `scale`, and the variance of each for a perfect model.

    The same as `calibration.histogram.redistributed`, bin by bin where that adds the bins up; a test holds masses and
    the sum of the variances to it.
    """
    rows = redistribution(event, scale, weights, clusters)
    masses, variance = np.empty(bins.widths.size), np.empty(bins.widths.size)
    for j, width in enumerate(bins.widths):
        share = rows.weight * bins.shares[rows.order, j]
        masses[j], variance[j] = share.sum(), rows.noise(share, float(width))
    return masses, variance


def pit_histogram(
    method: str,
    group: str | None,
    bins: BinShares,
    event: BoolArray,
    scale: FloatArray | None,
    clusters: Clusters | None = None,
    weights: Vector | None = None,
) -> PitHistogram:
    """Masses and, per bin, the range of a perfect model in 95 % of samples of this size: normal, cut at 0 and 1.

    `scale` is None for "uniform", F for "km" and the time for "ipcw".
    """
    if scale is None:
        masses = bins.shares.mean(axis=0) if weights is None else weights @ bins.shares / weights.sum()
        variance = uniform_variance(bins, clusters, weights)
    else:
        masses, variance = redistributed_variance(bins, event, scale, clusters, weights)
    return PitHistogram(method, group, bins.edges, masses, *perfect_range(bins.widths, variance))


def perfect_range(widths: Vector, variance: Vector) -> tuple[Vector, Vector]:
    """Range of each bin's mass in 95 % of samples of a perfect model: normal, cut at 0 and 1."""
    reach = float(ndtri(0.975)) * np.sqrt(variance)
    return np.maximum(widths - reach, 0.0), np.minimum(widths + reach, 1.0)
