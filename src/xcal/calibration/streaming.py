"""D-calibration over chunks, processes or files: a state of a few numbers a bin that can be added up."""

import warnings
from dataclasses import replace
from itertools import pairwise, product
from typing import Any, Literal, Self, get_args

import numpy as np
from scipy.special import zeta

from xcal._checks import as_event, as_numpy, as_probability, fail
from xcal.calibration.bins import bin_edges
from xcal.calibration.dcalibration import (
    as_censoring_survival,
    check_choices,
    inverse_weights,
    lost_mass_caution,
    pearson_caution,
    result,
)
from xcal.calibration.histogram import MAX_SHARE, BinSums, Floats, Masses, bin_sums, locate, weighted
from xcal.calibration.results import DCalibrationResult, Method
from xcal.calibration.significance import akritas, pearson


class DCalibration:
    """Accumulate D-calibration without holding the rows.

    The result equals `d_calibration` on all rows at once, exactly for "uniform" and for "ipcw" with a given G. For "km"
    the rows are counted on a grid of `grid_cells` cells; `error_bound` of the result says how far its value can be from
    that of the rows.

    Parameters
    ----------
    n_bins, edges
        As in `d_calibration`.
    method : {"uniform", "ipcw", "km"}
    p_value : {"akritas", "pearson"} or None
        A simulated p-value needs the rows.
    grid_cells : int, default 10000
        For "km", at least ten times the number of bins. State and error are in proportion to it and to its inverse.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> meter = DCalibration(n_bins=10)
    >>> for _ in range(5):
    ...     _ = meter.update(rng.random(200), np.ones(200))
    >>> meter.compute().n
    1000
    """

    def __init__(
        self,
        *,
        n_bins: int = 10,
        edges: Any = None,
        method: Method = "uniform",
        p_value: Literal["akritas", "pearson"] | None = "akritas",
        grid_cells: int = 10_000,
    ) -> None:
        if method not in get_args(Method):
            fail("method", " or ".join(map(repr, get_args(Method))), repr(method))
        if p_value not in ("akritas", "pearson", None):
            fail("p_value", "'akritas', 'pearson' or None: a simulated null needs the rows", repr(p_value))
        check_choices(method, p_value, False, method == "ipcw")
        self.edges = bin_edges(n_bins, edges)
        self.method, self.p_value = method, p_value
        n_bins = self.edges.size - 1
        if isinstance(grid_cells, bool) or not isinstance(grid_cells, int) or grid_cells < 10 * n_bins:
            fail("grid_cells", f"an integer of at least ten times the {n_bins} bins", repr(grid_cells))
        self._sums = BinSums(self.edges)
        self._weights = np.zeros((2, n_bins))
        # Every bin edge is an edge of the grid, so that no cell is split between two bins.
        uniform = np.arange(grid_cells + 1) / grid_cells
        self._grid = BinSums(np.union1d(uniform, self.edges) if method == "km" else self.edges)

    def update(self, cdf: Any, event: Any, *, censoring_survival: Any = None) -> Self:
        """Add rows. `censoring_survival` is for "ipcw": the user's G just before each row's time."""
        if np.size(as_numpy("cdf", cdf)) == 0 and np.size(as_numpy("event", event)) == 0:
            return self  # a chunk from which everything was filtered
        u = as_probability("cdf", cdf)
        happened = as_event(event, u.size)
        if self.method == "ipcw" and censoring_survival is None:
            fail(
                "censoring_survival",
                "the probability of being uncensored, a number a row, with method='ipcw'",
                None,
            )
        if self.method != "ipcw" and censoring_survival is not None:
            fail("censoring_survival", f"None with method={self.method!r}", "an array")
        if self.method == "ipcw" and happened.any():
            g = as_censoring_survival(censoring_survival, happened)
            self._weights += inverse_weights(u, happened, g, self.edges)
        if self.method == "km":
            self._grid.add(u, happened, hazard=False)
        self._sums.add(u, happened, hazard=self.p_value == "akritas")
        return self

    def merge(self, other: "DCalibration") -> Self:
        """Add what another accumulator with the same settings has seen."""
        alike = isinstance(other, DCalibration) and (self.method, self.p_value) == (other.method, other.p_value)
        if not (alike and np.array_equal(self._grid.edges, other._grid.edges)):
            fail("other", "an accumulator with the same bins, method and p_value", repr(other))
        self._sums.merge(other._sums)
        self._grid.merge(other._grid)
        self._weights += other._weights
        return self

    def compute(self) -> DCalibrationResult:
        """Return D-calibration of all rows seen so far."""
        n, n_censored = self._sums.n, self._sums.n_censored
        if n == 0:
            raise ValueError("DCalibration: expected at least one row before compute(), got none; call update() first")
        bound = 0.0
        if self.method == "uniform":
            masses = self._sums.uniform()
        elif self.method == "ipcw":
            if not self._weights[0].any():
                fail("event", "at least one event, as method='ipcw' uses events only", "none")
            masses = weighted(self._weights[0], self._weights[1], self.edges)
            if caution := lost_mass_caution(self._weights[0].sum(), self._weights[1].sum(), n):
                warnings.warn(caution, stacklevel=2)
        else:
            masses, bound = _grid_masses(self._grid, self.edges)
        test = None
        if self.p_value == "akritas":
            test = akritas(self._sums)
        elif self.p_value == "pearson":
            if caution := pearson_caution(n, n_censored):
                warnings.warn(caution, stacklevel=2)
            test = pearson(masses.histogram, n, self.edges)
        whole = result(masses, self.edges, test, n, n_censored, self.method, self.p_value)
        return replace(whole, error_bound=bound)

    def __repr__(self) -> str:
        return (
            f"DCalibration(n_bins={self.edges.size - 1}, method={self.method!r}, p_value={self.p_value!r}): "
            f"{self._sums.n:,} rows"
        )


def _grid_masses(grid: BinSums, edges: Floats) -> tuple[Masses, float]:
    """Kaplan-Meier masses from counts on a fine grid, and how far D-calibration can be from that of the rows.

    Three things are not known within a cell: whether events or censorings come first, where in it a censored row
    spreads from, and at which row of it redistribution stops. Each is tried both ways; the masses of the rows lie
    within the envelope.
    """
    stops = {_grid_horizon(grid, events_first=first) for first in (True, False)}
    # A cell starts too heavy because of what happened in the one before it: there, too, it may have stopped.
    cells = stops | {max(0, stop - 1) for stop in stops}
    tries = [
        _redistributed_counts(grid, edges, cell, events_first=first, from_left=left)
        for first, left, cell in product((True, False), (True, False), cells)
    ]
    histogram = _redistributed_counts(grid, edges, max(stops), events_first=True, from_left=True)
    # What lies below an edge is between the extremes; the mass of a bin is off by at most its two edges' errors.
    below = np.abs(np.cumsum(np.array(tries) - histogram, axis=1)).max(axis=0)
    error = below + np.append(0.0, below[:-1])
    # |(h + e - w)^2 - (h - w)^2| <= 2 |h - w| e + e^2, a bin at a time.
    bound = float((2 * np.abs(histogram - np.diff(edges)) * error + error**2).sum())
    return Masses(histogram, _grid_floor(grid, edges, max(stops))), bound


def _at_risk(grid: BinSums) -> Floats:
    return (grid.happened + grid.censored)[::-1].cumsum()[::-1]


def _uncensored(grid: BinSums, *, events_first: bool) -> Floats:
    """Probability of being uncensored before each cell, by Kaplan-Meier."""
    at_risk = _at_risk(grid) - (grid.happened if events_first else 0.0)
    return np.append(1.0, np.cumprod(1 - grid.censored / np.maximum(at_risk, 1.0)))


def _grid_horizon(grid: BinSums, *, events_first: bool) -> int:
    """First cell at which one row would carry too much, or after the last event: see `histogram.horizon`."""
    n = grid.n
    uncensored = _uncensored(grid, events_first=events_first)[:-1]
    too_heavy = np.flatnonzero(uncensored * n < 1 / max(MAX_SHARE, 1.5 / n))
    events = np.flatnonzero(grid.happened)
    after_last = int(events[-1]) + 1 if events.size else 0
    # Rows censored in the cell of the last event, with none after them, have to keep their mass in that cell.
    if after_last and not _at_risk(grid)[after_last:].any() and grid.censored[after_last - 1]:
        after_last -= 1
    return min(int(too_heavy[0]) if too_heavy.size else grid.happened.size, after_last)


def _redistributed_counts(grid: BinSums, edges: Floats, stop: int, *, events_first: bool, from_left: bool) -> Floats:
    """Masses by bin of `histogram.redistributed`, from counts a cell."""
    n, at_risk = grid.n, _at_risk(grid)
    uncensored = _uncensored(grid, events_first=events_first)
    # With events first their weight is that before the cell, else that after it.
    weight = 1 / (n * np.maximum(uncensored[:-1] if events_first else uncensored[1:], 1 / n))
    mass = np.where(np.arange(at_risk.size) < stop, grid.happened * weight, 0.0)
    bins = locate(grid.edges[:-1], edges)
    histogram = bin_sums(bins, mass, edges.size - 1)
    left = max(0.0, 1.0 - mass.sum())
    if stop < at_risk.size and at_risk[stop] > 0:
        each = left / at_risk[stop]
        histogram += bin_sums(bins[stop:], grid.happened[stop:] * each, edges.size - 1)
        start = grid.edges[stop:-1] if from_left else grid.edges[stop + 1 :]
        histogram += each * _spread(start, bins[stop:], grid.censored[stop:], edges)
    return histogram


def _spread(start: Floats, bins: Any, count: Floats, edges: Floats) -> Floats:
    """Mass by bin of `count` rows spread uniformly over [start, 1], each in its own bin or at its right edge."""
    inverse = count / (1 - np.minimum(start, edges[-2]))
    n_bins = edges.size - 1
    own = bin_sums(bins, count - (1 - edges[1:])[bins] * inverse, n_bins)
    earlier = np.cumsum(bin_sums(bins, inverse, n_bins))
    spread: Floats = own + np.diff(edges) * np.append(0.0, earlier[:-1])
    return spread


def _grid_floor(grid: BinSums, edges: Floats, stop: int) -> float:
    """Noise of the masses: the variance of the influence function of `histogram.redistributed`, a cell at a time."""
    n = grid.n
    at_risk = np.maximum(_at_risk(grid) - grid.happened, 1.0)
    # The c rows censored in a cell leave one after another, with Y, Y - 1, ... at risk. Together they take the sum of
    # 1 / Y^2 (a difference of zeta functions) away from everybody after them. What each adds, 1 / Y, less what it and
    # those before it took, hardly changes within the cell: it is that of the first.
    first = 1 / at_risk - 1 / at_risk**2
    taken = zeta(2, np.maximum(at_risk - grid.censored, 0.0) + 1) - zeta(2, at_risk + 1)
    uncensored = _uncensored(grid, events_first=True)
    cells = np.arange(grid.happened.size)
    tail = cells >= stop
    weight = 1 / (n * np.maximum(uncensored[:-1], 1 / n))
    weight = np.where(tail, weight[min(stop, weight.size - 1)], weight)
    bins = locate(grid.edges[:-1], edges)
    left = 1 - np.minimum((grid.edges[:-1] + grid.edges[1:]) / 2, edges[-2])
    noise = 0.0
    for j, (a, b) in enumerate(pairwise(edges)):
        event_share = weight * (bins == j)
        spread = np.where(bins == j, 1 - (1 - b) / left, np.where(bins < j, (b - a) / left, 0.0))
        tail_share = np.where(tail, weight * spread, 0.0)
        share = grid.happened * event_share + grid.censored * tail_share
        follows = np.where(tail, 0.0, share[::-1].cumsum()[::-1] - share)
        drift = np.append(0.0, np.cumsum(follows * taken)[:-1])
        happened = event_share - (b - a) / n - drift
        censored = tail_share - (b - a) / n - drift + follows * first
        noise += float((grid.happened * happened**2 + grid.censored * censored**2).sum())
    return noise
