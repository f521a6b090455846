"""Kaplan-Meier masses from counts: the estimator of `histogram.redistributed`, and what a grid leaves open.

Notation: n rows in the order of F, R of them at risk at some point, G the Kaplan-Meier probability of being uncensored
so far. An event carries 1 / (n G), and what lies above a point before redistribution stops is R / (n G) exactly. From
the row at which it stops, with G there, each of the R rows left carries that row's 1 / (n G).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import zeta

from xcal.calibration.censored import rest, share_of_bin
from xcal.calibration.histogram import Floats, Masses, heaviest, locate
from xcal.calibration.tally import Cells

# A cell in which redistribution may stop is gone through in so many steps of "this many of its censored rows came
# before the stop"; one step where a row is the cell.
_STEPS = 32


def redistributed_counts(cells: Cells) -> Masses:
    """Masses of `histogram.redistributed` as if every row lay at the lower end of its cell.

    They are those of the rows themselves where every cell is a single value of F (`Tally.exact`).

    The floor is exact where no two censored rows share a cell, and close to it elsewhere.
    """
    happened, censored, edges = cells.happened, cells.censored, cells.edges
    at_risk = _at_risk(cells)[:-1]
    n = int(at_risk[0])
    weight = 1 / (n * _uncensored(at_risk - happened, censored)[:-1])
    events = np.flatnonzero(happened)
    # Rows of one value all carry the same, so stopping before or after the last event's tie mates makes no difference.
    last = int(events[-1]) if events.size else 0
    too_heavy = np.flatnonzero(weight > heaviest(n))
    stop = min(int(too_heavy[0]), last) if too_heavy.size else last
    weight[stop:] = weight[stop]
    tail = np.arange(weight.size) >= stop
    # The c rows censored in a cell leave one after another, with Y, Y - 1, ... at risk. Together they take the sum Z of
    # 1 / Y^2 (a difference of zeta functions) away from everybody after them. What each adds, 1 / Y, less what it and
    # those before it took, adds up to (Y - c) Z; it hardly changes within a cell and is taken to be the same for all c.
    leaves = np.maximum(at_risk - happened, 1.0)
    taken = zeta(2, leaves - censored + 1) - zeta(2, leaves + 1)
    added = (leaves - censored) * taken / np.maximum(censored, 1.0)

    bins, left = locate(cells.lower, edges), rest(cells.lower, edges)
    histogram, noise = np.empty(edges.size - 1), 0.0
    for j, (a, b) in enumerate(pairwise(edges)):
        spread = share_of_bin(j, bins, left, edges)
        event_share, tail_share = weight * (bins == j), np.where(tail, weight * spread, 0.0)
        share = happened * event_share + censored * tail_share
        histogram[j] = share.sum()
        follows = np.where(tail, 0.0, share[::-1].cumsum()[::-1] - share)
        drift = np.append(0.0, np.cumsum(follows * taken)[:-1])
        event_noise = event_share - (b - a) / n - drift
        censored_noise = tail_share - (b - a) / n - drift + follows * added
        noise += float((happened * event_noise**2 + censored * censored_noise**2).sum())
    return Masses(histogram, noise)


def value_range(cells: Cells, widths: Floats) -> tuple[float, float]:
    """Smallest and largest D-calibration that rows with these counts could have.

    Not known are the order of the rows within a cell, their ties, their places, and so the row at which redistribution
    stops. Every stop that the counts allow is tried; for each, what lies above a bin edge is bounded, then the mass of
    each bin, then the value. The range contains the value of the rows; it need not be the narrowest such range.
    """
    reach = _Reach(cells)
    low, high = np.inf, -np.inf
    for stop in reach.stops():
        smallest, largest = reach.masses(stop)
        nearest = np.clip(widths, smallest, largest)
        low = min(low, float(np.square(nearest - widths).sum()))
        furthest = np.maximum(widths - smallest, largest - widths)
        high = max(high, float(np.square(furthest).sum()))
    return low, high


@dataclass(frozen=True)
class _Stop:
    """Redistribution stops at a row of `cell`, with G between two numbers and this many of its censored rows left."""

    cell: int
    uncensored: tuple[float, float]
    left: tuple[float, float]


class _Reach:
    """What the rows behind some counts can be."""

    def __init__(self, cells: Cells) -> None:
        self.cells = cells
        self.happened, self.censored, self.edges = cells.happened, cells.censored, cells.edges
        self.at_risk = _at_risk(cells)
        self.n = int(self.at_risk[0])
        # Each censored row is one rounded factor of G, there and here.
        self.slack = 8 * np.finfo(np.float64).eps * float(self.censored.sum())
        # G before each cell: smallest if censored rows always leave after the events of their cell, when fewer are at
        # risk, and largest if they leave before them.
        self.least = _uncensored(self.at_risk[:-1] - self.happened, self.censored) * (1 - self.slack)
        self.most = _uncensored(self.at_risk[:-1], self.censored) * (1 + self.slack)
        # First cell at or above each inner edge.
        self.begins = np.searchsorted(locate(cells.lower, self.edges), np.arange(1, self.edges.size - 1))
        self.inverse = tuple(
            np.append(0.0, np.cumsum(self.censored / rest(end, self.edges))) for end in (cells.lower, cells.upper)
        )
        # Mass of the events of each cell, as long as it has not stopped: the last of them may have had every censored
        # row of the cell before it.
        after = self.least[:-1] * (1 - self.censored / (self.at_risk[:-1] - self.happened + 1))
        self.events = tuple(
            np.append(0.0, np.cumsum(np.divide(self.happened, self.n * g, out=np.zeros_like(g), where=g > 0)))
            for g in (self.most[:-1], after)
        )

    def stops(self) -> Iterator[_Stop]:
        """Every way in which redistribution can have stopped."""
        events = np.flatnonzero(self.happened)
        if not events.size:
            yield _Stop(0, (1.0, 1.0), (self.censored[0], self.censored[0]))
            return
        last = int(events[-1])
        # It stops where 1 / (n G) is above the largest share.
        limit = 1 / (self.n * heaviest(self.n))
        above, below = limit * (1 + self.slack), limit * (1 - self.slack)
        # A cell whose first row is too heavy in any case is the last that matters.
        certain = np.flatnonzero(self.most[:-1] < below)
        end = min(last, int(certain[0])) if certain.size else last
        for cell in map(int, np.flatnonzero(self._least_inside()[: end + 1] < above)):
            for g, left in self._steps(cell, before_event=False):
                if g[0] < above:
                    yield _Stop(cell, (g[0], min(g[1], above)), left)
        if not certain.size or certain[0] > last:
            for g, left in self._steps(last, before_event=True):
                if g[1] >= below:
                    yield _Stop(last, (max(g[0], below), g[1]), left)

    def _least_inside(self) -> Floats:
        """Smallest G at a row of each cell: before its last row, all others of the cell gone."""
        before_event = np.where(self.happened > 0, self.censored / (self.at_risk[:-1] - self.happened + 1), 0.0)
        later = np.maximum(self.at_risk[:-1] - self.happened, 1.0)
        before_censored = np.where(self.censored > 0, (self.censored - 1) / later, 0.0)
        least: Floats = self.least[:-1] * (1 - np.maximum(before_event, before_censored))
        return least

    def _steps(self, cell: int, *, before_event: bool) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        """Bounds of G at a row of the cell, and censored rows of it left, for more and more of them before that row.

        `before_event`: the row comes after the last event of the cell; else it is any row of the cell.
        """
        count, later = self.censored[cell], self.at_risk[cell] - self.happened[cell]
        most = count if before_event or self.happened[cell] else count - 1
        marks = np.unique(np.round(np.linspace(0, most, _STEPS + 1)))
        ranges = [(0.0, 0.0), *((low + 1, high) for low, high in pairwise(marks))]
        for few, many in ranges:
            # Fewest are at risk if all events came before; all, if all censored rows came before an event, but one.
            at_risk = max(later + (before_event or many == count), 1.0)
            g = (self.least[cell] * (1 - many / at_risk), self.most[cell] * (1 - few / self.at_risk[cell]))
            yield g, (count - many, count - few)

    def masses(self, stop: _Stop) -> tuple[Floats, Floats]:
        """Smallest and largest mass of each bin, given how redistribution stopped."""
        low, high = self._above(stop)
        smallest, largest = low[:-1] - high[1:], high[:-1] - low[1:]
        # A bin that was done before holds the masses of its events.
        places = np.concatenate([[0], self.begins, [self.happened.size]])
        done = places[1:] <= stop.cell
        least, most = (np.diff(sums[places]) for sums in self.events)
        smallest = np.where(done, np.maximum(smallest, least), smallest)
        largest = np.where(done, np.minimum(largest, most), largest)
        return np.clip(smallest, 0.0, 1.0), np.clip(largest, 0.0, 1.0)

    def _above(self, stop: _Stop) -> tuple[Floats, Floats]:
        """Smallest and largest mass above each edge."""
        begins, cells, n = self.begins, self.cells, self.n
        rows, inner = self.at_risk[begins], self.edges[1:-1]
        # A row that spreads over [F, 1] has (1 - b) / (1 - F) above an edge b beyond it.
        own = (1 - cells.lower[stop.cell], 1 - min(cells.upper[stop.cell], self.edges[-2]))
        bounds = []
        for k, (before, g) in enumerate(zip((self.most, self.least), stop.uncensored[::-1], strict=True)):
            earlier = _ratio(rows, n * before[begins])
            spread = self.inverse[k][begins] - self.inverse[k][stop.cell + 1] + stop.left[k] / own[k]
            later = _ratio(rows + (1 - inner) * spread, n * np.full_like(rows, g))
            bounds.append(np.where(begins <= stop.cell, earlier, later))
        # Two bounds, lower and upper, which mypy cannot count.
        return tuple(np.concatenate([[1.0], np.minimum(bound, 1.0), [0.0]]) for bound in bounds)  # type: ignore[return-value]


def _at_risk(cells: Cells) -> Floats:
    """Rows in each cell and after it, and the zero after the last."""
    return np.append((cells.happened + cells.censored)[::-1].cumsum()[::-1], 0.0)


def _uncensored(at_risk: Floats, censored: Floats) -> Floats:
    """Kaplan-Meier probability of being uncensored before each cell, and after the last.

    The product of `xcal._kaplan_meier.fit_kaplan_meier`, its twin, over counts instead of rows; held together by
    tests/contracts/test_kaplan_meier.py.
    """
    return np.append(1.0, np.cumprod(1 - censored / np.maximum(at_risk, 1.0)))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Quotient that is infinite where only the denominator is zero, and zero where both are."""
    return np.divide(part, whole, out=np.where(part > 0, np.inf, 0.0), where=whole > 0)
