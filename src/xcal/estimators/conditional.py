"""Calibration given the covariates in the estimators: the features of the penalty, and K of models on rows."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from xcal._checks import BoolArray
from xcal.calibration.bins import bin_edges
from xcal.calibration.covariates import as_columns
from xcal.calibration.residuals import residuals
from xcal.calibration.row_features import KernelFeatures
from xcal.estimators.inputs import Floats
from xcal.estimators.settings import Settings

# The features of the penalty and of K are the default ones. The seed is fixed, so that all models are trained and
# measured with the same ones.
FEATURES = KernelFeatures(seed=0)
# Rows that are read at a time, and that fix the scale of the columns.
_ROWS = 10_000


def penalty_features(settings: Settings) -> KernelFeatures | None:
    """Give the features of the conditional penalty; None for the marginal one."""
    return FEATURES if settings.calibration == "conditional" else None


def conditional_values(cdf: Floats, x: Any, event: BoolArray, weights: Floats | None, n_bins: int) -> Floats:
    """Conditional calibration K of some models on the same rows, less what noise gives, (models,).

    The value of `xcal.conditional_calibration` for rows with weights, without its test. `cdf` is (models, n); features
    `x` in a file are read a piece at a time.
    """
    edges = bin_edges(n_bins)
    # The first rows fix the scale of the columns: those of a file are not read twice.
    features = FEATURES.draw(as_columns(np.asarray(x[:_ROWS]), min(_ROWS, event.size)))
    sums = np.zeros((cdf.shape[0], FEATURES.n_features, n_bins))
    own = np.zeros(cdf.shape[0])
    weight = np.ones(event.size) if weights is None else weights
    for part in _parts(event.size):
        w = weight[part]
        h = features(as_columns(np.asarray(x[part]), w.size))
        length = np.square(w) * np.square(h).sum(axis=1)
        for k, u in enumerate(cdf[:, part]):
            r = residuals(u, event[part], edges)
            sums[k] += h.T @ (w[:, None] * r)
            own[k] += length @ np.square(r).sum(axis=1)
    pairs = weight.sum() ** 2 - np.square(weight).sum()
    return np.asarray((np.square(sums).sum(axis=(1, 2)) - own) / pairs if pairs > 0 else np.full(own.size, np.nan))


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS))
