"""Several resamples as counts of the rows, and their Kaplan-Meier curves."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import BoolArray, FloatArray
from xcal._kaplan_meier import KaplanMeier
from xcal.metrics.inputs import Integers, Matrix, Vector, running_sums
from xcal.metrics.times import censoring_survival

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Timeline:
    """Outcomes in time order, events first at one time, and the censoring curve of the training rows or None."""

    time: FloatArray
    event: BoolArray
    censoring: KaplanMeier | None

    @cached_property
    def first_of_tie(self) -> Integers:
        """First row with the same time, for each row."""
        return np.asarray(np.searchsorted(self.time, self.time, side="left"))

    def passed(self, t: float) -> int:
        """Rows whose time is at or before t."""
        return int(np.searchsorted(self.time, t, side="right"))


class Block:
    """Resamples, one per line: how often each row was drawn.

    Within one time, events come first and each leaves before the next is looked at. The product of their factors is
    that of the whole tie, (r - d) / r, so no rows need be put together.

    Parameters
    ----------
    line : Timeline
        The rows.
    drawn : array of shape (b, n)
        How often each row was drawn, in time order.
    weights : array of shape (n,), optional
        Of the rows. What a row counts for, `counts`, is then its weight times how often it was drawn.
    """

    def __init__(self, line: Timeline, drawn: Matrix, weights: Vector | None = None) -> None:
        self.line, self.drawn, self._weights = line, drawn, weights
        self.counts = drawn if weights is None else drawn * weights
        self.least = 1.0 if weights is None else float(weights.min())

    @cached_property
    def total(self) -> Vector:
        """Rows of each resample, or their weights."""
        return np.asarray(self.counts.sum(axis=1))

    @cached_property
    def effective(self) -> Vector:
        """Rows of each resample, or their effective number."""
        if self._weights is None:
            return self.total
        return np.asarray(np.square(self.total) / (self.drawn @ np.square(self._weights)))

    @cached_property
    def last_time(self) -> Vector:
        """Largest time of each resample."""
        n = self.counts.shape[1]
        return np.asarray(self.line.time[n - 1 - np.argmax(self.counts[:, ::-1] > 0, axis=1)], dtype=np.float64)

    @cached_property
    def _lost(self) -> Matrix:
        """Share of those at risk that each row takes with it."""
        return share_lost(self.counts, self.least)

    @cached_property
    def survival(self) -> Matrix:
        """Kaplan-Meier curve of the events after each row, and 1 in front: shape (b, n + 1)."""
        return kaplan_meier_product(np.where(self.line.event, self._lost, 0.0))

    @cached_property
    def uncensored(self) -> Matrix:
        """Kaplan-Meier curve of the censoring after each row, and 1 in front: shape (b, n + 1)."""
        return kaplan_meier_product(np.where(self.line.event, 0.0, self._lost))

    def survival_at(self, t: float) -> Vector:
        """Kaplan-Meier curve of the events at t."""
        return np.asarray(self.survival[:, self.line.passed(t)])

    @cached_property
    def row_weights(self) -> tuple[Matrix, BoolArray]:
        """G just before each row's time, and where it is known, as `metrics.censoring.censoring_survival` has them."""
        if self.line.censoring is not None:
            g, known = censoring_survival(self.line.censoring, self.line.time, left_limit=True)
            return g[None, :], known[None, :]
        at_own = self.uncensored[:, self.line.first_of_tie]
        positive = at_own > 0
        least = np.where(positive, at_own, np.inf).min(axis=1)
        least = np.where(np.isfinite(least), least, 1.0)
        return np.where(positive, at_own, least[:, None]), positive

    def time_weight(self, t: float) -> tuple[Vector, BoolArray]:
        """G at t, and whether a Brier score can be estimated there: G known, and somebody under observation later."""
        if self.line.censoring is not None:
            g, known = censoring_survival(self.line.censoring, np.array([t]), left_limit=False)
            return np.broadcast_to(g, self.total.shape), known & (t < self.last_time)
        g_time = self.uncensored[:, self.line.passed(t)]
        known = (g_time > 0) & (t < self.last_time)
        return np.where(g_time > 0, g_time, 1.0), known


def product(left: Numbers, right: Numbers) -> Numbers:
    """Matrix product by the calling thread alone: numpy's library would wake all its threads for each of ours."""
    return np.asarray(torch.matmul(torch.from_numpy(left), torch.from_numpy(right)).numpy())


def at_risk(counts: Matrix) -> Matrix:
    """Rows drawn at each place and after it. Differences of whole numbers are exact, those of weights to rounding."""
    before = running_sums(counts)
    return np.asarray(before[:, -1:] - before[:, :-1])


def share_lost(counts: Matrix, least: float) -> Matrix:
    """Share of those at risk that each row takes with it; zero for a row that was not drawn.

    `least` is the smallest count of a row that was.
    """
    # Where nobody is left nothing was drawn, and zero over anything is zero.
    return np.asarray(counts / np.maximum(at_risk(counts), least))


def kaplan_meier_product(lost: Matrix) -> Matrix:
    """Product of what is left after each row, and 1 in front."""
    curve = np.ones((lost.shape[0], lost.shape[1] + 1))
    torch.cumprod(torch.from_numpy(1 - lost), dim=-1, out=torch.from_numpy(curve)[:, 1:])
    return curve
