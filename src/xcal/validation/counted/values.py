"""Values at a horizon from pseudo-values, of the rows and of resamples: everything that is a sum over rows.

Used where censoring depends on covariates. The pseudo-values are corrected for it, and Brier score, AUC and net benefit
are linear in what happened to a row, so that its pseudo-value can stand for it.
"""

import numpy as np

from xcal.metrics.inputs import Vector
from xcal.metrics.net_benefit import benefit
from xcal.metrics.running_sums import running_sums
from xcal.validation.counted.block import Matrix


class CountedValues:
    """Accuracy at one time from predictions and pseudo-values."""

    def __init__(self, risk: Vector, values: Vector) -> None:
        self._risk, self._values = risk, values
        self._order = np.argsort(risk, kind="stable")
        ordered = risk[self._order]
        self._below = np.searchsorted(ordered, ordered, side="left")
        self._up_to = np.searchsorted(ordered, ordered, side="right")

    def accuracy(self, counts: Matrix) -> dict[str, Vector]:
        """Return AUC, Brier score and IPA of every resample; NaN where a resample does not determine one."""
        total, p, o = counts.sum(axis=1), self._risk, self._values
        brier = counts @ (o * (1 - p) ** 2 + (1 - o) * p**2) / total
        mean = counts @ o / total
        null = mean * (1 - mean)
        ratio = np.divide(brier, null, out=np.full(null.size, np.nan), where=null > 0)
        return {"auc": self._auc(counts), "brier": np.asarray(brier), "ipa": 1 - ratio}

    def _auc(self, counts: Matrix) -> Vector:
        drawn = counts.take(self._order, axis=1)
        o = self._values[self._order]
        case, control = drawn * o, drawn * (1 - o)
        running = running_sums(control)
        below, up_to = running.take(self._below, axis=1), running.take(self._up_to, axis=1)
        # A row is no pair with itself, nor with another draw of itself.
        same = np.einsum("bi,bi->b", case, control)
        agreed = np.einsum("bi,bi->b", case, below + up_to) / 2 - same / 2
        pairs = case.sum(axis=1) * control.sum(axis=1) - same
        return np.asarray(np.divide(agreed, pairs, out=np.full(pairs.size, np.nan), where=pairs > 0))

    def benefit(self, counts: Matrix, thresholds: Vector) -> Matrix:
        """Return the net benefit of every resample at every threshold, shape (b, k)."""
        found = np.zeros((len(counts), thresholds.size))
        total = counts.sum(axis=1)
        for k, threshold in enumerate(thresholds):
            own = counts * (self._risk >= threshold)
            acted = own.sum(axis=1)
            observed = np.divide(own @ self._values, acted, out=np.zeros(acted.size), where=acted > 0)
            found[:, k] = benefit(acted / total, observed, threshold)
        return found
