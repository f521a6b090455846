"""Calibration given the covariates in the estimators: the features of the penalty, K of models on rows, its test."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal._checks import BoolArray
from xcal.calibration.bins import bin_edges
from xcal.calibration.conditional_sums import ConditionalCalibration
from xcal.calibration.covariates import as_columns
from xcal.calibration.residuals import residuals
from xcal.calibration.row_features import KernelFeatures, RandomFeatures
from xcal.estimators.features import Floats
from xcal.estimators.influence import gap_error
from xcal.estimators.settings import Settings

# The features of the penalty and of K are the default ones. The seed is fixed, so that all models are trained and
# measured with the same ones.
FEATURES = KernelFeatures(seed=0)
DRAWS = 999  # random signs behind a p-value
# Rows that are read at a time, and that fix the scale of the columns.
_ROWS = 10_000


def penalty_features(settings: Settings) -> KernelFeatures | None:
    """Return the features of the conditional penalty; None for the marginal one."""
    return FEATURES if settings.conditional else None


def conditional_values(cdf: Floats, x: Any, event: BoolArray, weights: Floats | None, n_bins: int) -> Floats:
    """Conditional calibration K of some models on the same rows, less what noise gives, (models,).

    The value of `xcal.conditional_calibration` for rows with weights, without its test. `cdf` is (models, n); features
    `x` in a file are read a piece at a time.
    """
    return _summed(cdf, x, event, weights, n_bins).values


@dataclass(frozen=True, eq=False)
class ConditionalJudgement:
    """K of some models on the same rows, (models,) each.

    Attributes
    ----------
    values
        Less what noise gives.
    gap_errors
        Standard errors of how far each is from the first.
    p_values
        Of the test of `xcal.conditional_calibration`.
    """

    values: Floats
    gap_errors: Floats
    p_values: Floats


def judge_conditional(
    cdf: Floats, x: Any, event: BoolArray, weights: Floats | None, n_bins: int
) -> ConditionalJudgement:
    """Measure and test K of some models; arguments as in `conditional_values`."""
    found = _summed(cdf, x, event, weights, n_bins)
    edges, weight = bin_edges(n_bins), np.ones(event.size) if weights is None else weights
    meters = [ConditionalCalibration(lambda h: h, edges, average_apart=True) for _ in cdf]
    influence, rng = np.empty(cdf.shape), np.random.default_rng(0)
    for part in _parts(event.size):
        w = weight[part]
        h = found.features(as_columns(np.asarray(x[part]), w.size))
        # Blocks of the test must not follow the order of the rows, which may be that of their times.
        order = rng.permutation(w.size)
        for k, u in enumerate(cdf[:, part]):
            influence[k, part] = 2 * w * ((h @ found.means[k]) * residuals(u, event[part], edges)).sum(axis=1)
            meters[k].update(u[order], event[part][order], h[order], w[order])
    errors = [gap_error(own, influence[0]) for own in influence * (event.size / weight.sum())]
    tests = [meter.compute(DRAWS, np.random.default_rng(0))[3] for meter in meters]
    return ConditionalJudgement(found.values, np.array(errors), np.array(tests, dtype=np.float64))


@dataclass(frozen=True, eq=False)
class _Summed:
    """K of some models, (models,), the means of features times residuals behind it, and the features."""

    values: Floats
    means: Floats  # (models, M, B)
    features: RandomFeatures


def _summed(cdf: Floats, x: Any, event: BoolArray, weights: Floats | None, n_bins: int) -> _Summed:
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
    values = (np.square(sums).sum(axis=(1, 2)) - own) / pairs if pairs > 0 else np.full(own.size, np.nan)
    return _Summed(np.asarray(values), sums / weight.sum(), features)


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS))
