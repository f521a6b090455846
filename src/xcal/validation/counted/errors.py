"""Brier scores and AUC of resamples."""

import numpy as np

from xcal._checks import FloatArray
from xcal.metrics.inputs import Vector
from xcal.metrics.running_sums import running_sums
from xcal.validation.counted.block import Block, Matrix, Timeline, product

_BLOCK = 1 << 18  # predictions worked on at a time


def brier_scores(block: Block, survival: FloatArray, times: Vector) -> Matrix:
    """Brier score at each time, shape (b, m); NaN where it cannot be estimated. A block of rows at a time."""
    g, _ = block.row_weights
    event_weight = block.counts * block.line.event / g
    n, m = survival.shape
    dead, alive = np.zeros((block.total.size, m)), np.zeros((block.total.size, m))
    step = max(1, _BLOCK // m)
    for start in range(0, n, step):
        rows = slice(start, start + step)
        outlasts = block.line.time[rows, None] > times
        error = np.square(survival[rows] - outlasts, dtype=np.float64)
        dead += product(event_weight[:, rows], np.where(outlasts, 0.0, error))
        alive += product(block.counts[:, rows], np.where(outlasts, error, 0.0))
    scores = np.empty_like(dead)
    for k, t in enumerate(times):
        g_time, estimable = block.time_weight(float(t))
        scores[:, k] = np.where(estimable, (dead[:, k] + alive[:, k] / g_time) / block.total, np.nan)
    return scores


def null_brier_scores(block: Block, at: float) -> Vector:
    """Brier score at one time of the resample's own Kaplan-Meier curve."""
    g, _ = block.row_weights
    g_time, estimable = block.time_weight(at)
    passed, survival = block.line.passed(at), block.survival_at(at)
    dead = (block.counts * block.line.event / g)[:, :passed].sum(axis=1)
    alive = block.counts[:, passed:].sum(axis=1) / g_time
    score = (dead * survival**2 + alive * (1 - survival) ** 2) / block.total
    return np.where(estimable, score, np.nan)


def integrated(scores: Matrix, times: Vector) -> Vector:
    """Scores averaged over the times at which they can be estimated, by the trapezoidal rule; these come first."""
    n_kept = np.isfinite(scores).sum(axis=1)
    filled = np.where(np.isfinite(scores), scores, 0.0)
    areas = np.cumsum(np.diff(times) * (filled[:, 1:] + filled[:, :-1]) / 2, axis=1)
    last = np.maximum(n_kept - 1, 1)
    mean = areas[np.arange(n_kept.size), last - 1] / (times[last] - times[0])
    return np.where(n_kept >= 2, mean, np.nan)


class CountedAUC:
    """Cumulative/dynamic AUC at one time: cases against controls in the order of their risks."""

    def __init__(self, line: Timeline, risk: Vector, at: float) -> None:
        passed = line.passed(at)
        self._cases = np.flatnonzero(line.event[:passed])
        controls = np.arange(passed, risk.size)
        self._controls = controls[np.argsort(risk[controls], kind="stable")]
        ordered = risk[self._controls]
        self._below = np.searchsorted(ordered, risk[self._cases], side="left")
        self._up_to = np.searchsorted(ordered, risk[self._cases], side="right")

    def values(self, block: Block) -> Vector:
        """AUC of every resample; NaN without a case, without a control, or with a case of unknown weight."""
        g, known = block.row_weights
        drawn = block.counts.take(self._cases, axis=1)
        weight = drawn / g.take(self._cases, axis=1)
        running = running_sums(block.counts.take(self._controls, axis=1))
        below, up_to = running.take(self._below, axis=1), running.take(self._up_to, axis=1)
        agreed = np.einsum("bi,bi->b", weight, below + up_to) / 2
        pairs = weight.sum(axis=1) * running[:, -1]
        estimable = (pairs > 0) & ~((drawn > 0) & ~known.take(self._cases, axis=1)).any(axis=1)
        return np.asarray(np.divide(agreed, pairs, out=np.full(pairs.size, np.nan), where=estimable))
