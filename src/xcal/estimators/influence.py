"""How much each validation row counts in a value, and the error of the distance between two models on the same rows."""

from typing import Any

import numpy as np
import torch

from xcal.calibration.bins import bin_edges
from xcal.calibration.clusters import as_clusters, sum_of_squares
from xcal.calibration.membership import bins_from_above, exact_above
from xcal.data import SurvivalData
from xcal.estimators.features import Floats


def deviations(cdf: Floats, rows: SurvivalData, n_bins: int) -> Floats:
    """Share of each row in each bin, less the width of the bin, ``(n, bins)``."""
    edges = torch.from_numpy(bin_edges(n_bins))
    u, inner = torch.from_numpy(cdf), edges[1:-1]
    happened = torch.from_numpy(rows.event).unsqueeze(-1)
    above = torch.where(happened, (u.unsqueeze(-1) >= inner).double(), exact_above(u, edges))
    return np.asarray(bins_from_above(above - (1 - inner)).numpy())


def dcal_influence(cdf: Floats, rows: SurvivalData, n_bins: int) -> Floats:
    """First-order effect of each row on D-calibration, ``(n,)``: the spread of its mean is that of D-calibration.

    With a row's deviations d_j = (its share of bin j) - width, D-calibration is the sum over j of mean(d_j)^2; its
    derivative in the weight of a row is 2 sum mean(d_j) (d_j - mean(d_j)).
    """
    deviation = deviations(cdf, rows, n_bins)
    weights = np.ones(rows.n) if rows.weights is None else rows.weights / rows.weights.mean()
    mean = weights @ deviation / rows.n
    return np.asarray(2 * weights * ((deviation - mean) @ mean))


def weighted_mean(values: Floats, rows: SurvivalData) -> float:
    """Mean of one value per row, by the weights of the rows if they have some."""
    return float(values.mean() if rows.weights is None else np.average(values, weights=rows.weights))


def gap_error(values: Floats, base: Floats, groups: Any = None, weights: Floats | None = None) -> float:
    """Estimate the error, over the rows, of the difference between two means; 0 for a model and itself.

    Rows with the same label in `groups` may depend on each other; without it all are independent. With `weights` the
    means are weighted, and the error is that of their ratio of sums: design-based.

    All models see the same rows, and most of what makes a row's value large or small is common to all of them. The
    error of the difference is therefore far smaller than that of either value.
    """
    gap = values - base
    if weights is not None:
        own = weights * (gap - np.average(gap, weights=weights)) / weights.sum()
        return float(np.sqrt(sum_of_squares(own, None if groups is None else as_clusters(groups, gap.size))))
    if groups is None:
        return float(np.std(gap) / np.sqrt(base.size))
    return float(np.sqrt(sum_of_squares(gap - gap.mean(), as_clusters(groups, gap.size))) / gap.size)
