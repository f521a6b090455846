"""The units that the network sees: standardised features, and times of about one."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal._checks import fail
from xcal.data import SurvivalData
from xcal.data.features import MappedFeatures, pieces
from xcal.distributions import Family, SurvivalDistribution, family, quantile_edges
from xcal.estimators.features import Floats
from xcal.estimators.settings import MOST_TIME_BINS, Settings
from xcal.metrics import kaplan_meier

# Points of the grid on which a continuous distribution is integrated: so many at quantiles of the event times, where F
# moves, and as many evenly up to the last time, as a late censored row may lie far beyond the last event.
_GRID = 200


@dataclass(frozen=True, eq=False)
class Standardizer:
    """Mean and one over the standard deviation of each feature.

    A constant feature has factor 0: it carries no information, and a network that never saw it vary must not
    extrapolate from it.
    """

    mean: Floats
    factor: Floats

    @classmethod
    def of(cls, table: SurvivalData) -> "Standardizer":
        """Learn from the training rows, by weight."""
        if isinstance(table.x, MappedFeatures):
            return cls._of_file(table)
        mean = np.average(table.x, axis=0, weights=table.weights)
        with np.errstate(over="ignore"):
            variance = np.average(np.square(table.x - mean), axis=0, weights=table.weights)
        return cls._from(mean, variance, np.ptp(table.x, axis=0))

    @classmethod
    def _of_file(cls, table: SurvivalData) -> "Standardizer":
        """Learn from rows in a file, of which only some are in memory at a time: once for the mean, once around it."""
        mean: Floats = np.zeros(table.x.shape[1])
        low, high = np.full(mean.shape, np.inf), np.full(mean.shape, -np.inf)
        for piece, share in _with_shares(table):
            mean += share @ piece.astype(np.float64)
            low, high = np.minimum(low, piece.min(axis=0)), np.maximum(high, piece.max(axis=0))
        variance: Floats = np.zeros(mean.shape)
        with np.errstate(over="ignore"):
            for piece, share in _with_shares(table):
                variance += share @ np.square(piece - mean)
        return cls._from(mean, variance, high - low)

    @classmethod
    def _from(cls, mean: Floats, variance: Floats, span: Floats) -> "Standardizer":
        if not np.isfinite(variance).all():
            column = int(np.argmin(np.isfinite(variance)))
            fail("X", "features with a finite variance", f"{variance[column]} in column {column}")
        spread = np.sqrt(variance)
        # Also constant is what differs in its last digits only, as the results of one formula may.
        varies = (span > 0) & (spread > 10 * np.finfo(np.float64).eps * np.abs(mean))
        return cls(mean, np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0))

    def __call__(self, x: Floats) -> Floats:
        """Standardise rows ``(n, d)``."""
        return np.asarray((x - self.mean) * self.factor)


def _with_shares(table: SurvivalData) -> Iterator[tuple[npt.NDArray[Any], Floats]]:
    """Rows in a file, some at a time, and the share of each in the sum of all weights."""
    weights = np.ones(table.n) if table.weights is None else np.asarray(table.weights)
    shares, start = weights / weights.sum(), 0
    for piece in pieces(table.x):
        yield piece, shares[start : start + len(piece)]
        start += len(piece)


@dataclass(frozen=True, eq=False)
class Outputs:
    """What the raw outputs of the network mean: a distribution in the user's unit of time.

    Attributes
    ----------
    distribution, interpolation : str
    time_scale : float
        The network's unit of time, in the user's: the median of the event times. Whatever the unit of the data, the
        network sees the same numbers.
    edges : ndarray or None
        Time edges of a discrete distribution, in the user's unit.
    grid : ndarray
        From 0 to the last observed time: where curves are drawn, and the points of the integral behind the risk.
    """

    distribution: str
    interpolation: str
    time_scale: float
    edges: Floats | None
    grid: Floats

    @classmethod
    def of(cls, table: SurvivalData, settings: Settings) -> "Outputs":
        """Choose scale and edges from the training rows."""
        scale = _time_scale(table)
        last = float(table.time.max())
        if settings.discrete:
            _check_distinct(table, settings.distribution)
            edges = time_edges(table, _bins(table, settings.n_time_bins))
            return cls(settings.distribution, settings.interpolation, scale, edges, edges[:-1])
        shares = np.arange(1, _GRID) / _GRID
        quantiles = np.quantile(table.time[table.event], shares)
        grid = np.unique(np.concatenate([quantiles, np.linspace(0.0, last, _GRID + 1)]))
        return cls(settings.distribution, settings.interpolation, scale, None, grid)

    def family(self) -> Family:
        """Family in the network's unit, to train with."""
        if self.edges is None:
            return family(self.distribution)
        return family(self.distribution, edges=self.edges / self.time_scale, interpolation=self.interpolation)

    def read(self, raw: Tensor) -> SurvivalDistribution:
        """Turn raw outputs into a distribution in the user's unit."""
        if self.edges is None:
            return family(self.distribution).scaled(raw, self.time_scale)
        return family(self.distribution, edges=self.edges, interpolation=self.interpolation).distribution(raw)

    def risk(self, distribution: SurvivalDistribution) -> Tensor:
        """Mean of F from 0 to the last observed time: one less the restricted mean survival time as a share of it.

        Unlike the median it is known, and differs from row to row, also where most rows outlive the study; it asks
        nothing about times that were not observed; and it has no unit.
        """
        grid = torch.from_numpy(self.grid)
        cdf = distribution.cdf(grid.unsqueeze(1).expand(-1, distribution.batch_shape[-1]))
        left = cdf[1:] if self.edges is not None and self.interpolation == "step" else cdf[:-1]
        widths = grid.diff().unsqueeze(1)
        return ((left + cdf[1:]) / 2 * widths).sum(0) / grid[-1]


def time_edges(table: SurvivalData, n_bins: int) -> Floats:
    """Edges of a discrete distribution: 0, quantiles of the event times, the last observed time, and one beyond it.

    All mass of a discrete distribution lies before its last edge. If that were the last observed time, every row would
    be certain to have had its event by then, and rows that are censored late could not be calibrated. The mass after
    the last observed time T therefore has a bin of its own, which no row reaches into. How long it is matters only for
    what the model says beyond T; it is as long as one expects a row to live on at the mean hazard of the data, with
    S(T) by Kaplan-Meier: ``t / -log S(T)``, t the last event time. If the last row is an event, S(T) is 0 and half a
    row takes its place.

    Examples
    --------
    >>> rows = SurvivalData(np.zeros((4, 1)), time=[1.0, 2.0, 3.0, 4.0], event=[True, True, False, False])
    >>> time_edges(rows, 2).round(3)
    array([0.   , 1.5  , 2.   , 4.   , 6.885])
    """
    with warnings.catch_warnings():
        # Times in whole days or months have ties; fewer bins than asked for is then what anyone would want.
        warnings.filterwarnings("ignore", message="quantile_edges")
        inner = quantile_edges(table.time, table.event, n_bins).numpy()
    last_event, last = inner[-1], table.time.max()
    # The first bin starts at 0. It ends at the second edge, unless so many events share the first time that it is a
    # quantile too: then they have the first bin for themselves.
    if np.quantile(table.time[table.event], 1 / n_bins) > inner[0]:
        inner = inner[1:]
    left = max(float(kaplan_meier(time=table.time, event=table.event).survival[-1]), 0.5 / table.n)
    beyond = last + last_event / -math.log(left)
    edges = np.concatenate([[0.0], inner, [last, beyond]])
    # The last observed time is often an event time already; training cannot tell edges apart that float32 cannot.
    _, first = np.unique(edges.astype(np.float32), return_index=True)
    return np.asarray(edges[first])


def _bins(table: SurvivalData, asked: int | None) -> int:
    events = int(np.count_nonzero(table.event))
    if asked is None:
        return min(MOST_TIME_BINS, max(1, round(math.sqrt(events))))
    if asked > events:
        fail("n_time_bins", f"at most {events}, the number of events in the rows to train on", asked)
    return asked


def _check_distinct(table: SurvivalData, distribution: str) -> None:
    events = table.time[table.event]
    # As edges are told apart.
    if np.unique(events.astype(np.float32)).size < 2:
        fail(
            "y",
            f"at least two distinct event times among the rows to train on, to place the time bins of {distribution!r}",
            f"only the time {events[0]:g}",
        )


def _time_scale(table: SurvivalData) -> float:
    events = table.time[table.event]
    positive = events[events > 0]
    if positive.size == 0:
        fail("y", "an event after time 0", f"{events.size} events at time 0")
    return float(np.median(positive))
