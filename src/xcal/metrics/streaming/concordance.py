"""Harrell's concordance over chunks, processes or files."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from xcal._checks import BoolArray, FloatArray
from xcal.metrics.concordance import Concordance, summary
from xcal.metrics.inputs import as_outcome, as_score
from xcal.metrics.pairs import PairWeights, pair_weights
from xcal.metrics.streaming.cells import Integers, PairCellCounts
from xcal.metrics.streaming.pair_table import PairAccumulator

# Different rows (time, event, risk) kept by default: 32 megabytes.
LIMIT = 1 << 20
_MOST = 2048  # cells of each axis that pairs are counted on
_REPEATED = 8  # rows that are alike are written out up to so many times the limit


@dataclass(frozen=True)
class BoundedConcordance:
    """Harrell's concordance and the range in which that of the rows lies.

    Attributes
    ----------
    concordance : Concordance
        Where rows share cells: pairs in one cell of risk count as ties, and pairs in one cell of time with what is to
        be expected of them.
    lower, upper : float
        Least and largest value that the concordance of the rows can have; both equal to it where all rows are known.
    """

    concordance: Concordance
    lower: float
    upper: float

    @property
    def value(self) -> float:
        """Concordance."""
        return self.concordance.value

    @property
    def error_bound(self) -> float:
        """Largest distance between the value and that of the rows; zero where all rows are known."""
        return max(self.upper - self.value, self.value - self.lower)


class StreamingConcordance(PairAccumulator):
    """Accumulate Harrell's concordance without holding all rows; see `concordance_index`.

    Exact up to `limit` different rows, by merging them in order. Beyond that rows are counted in cells of time and
    risk, and the result has a range in which the value of the rows lies in any case.

    Parameters
    ----------
    grids : tuple of two arrays, optional
        Fixed times and risks. The state is then a table of a fixed shape, and exact where all rows lie on the grids.
        Quantiles of times and risks give the narrowest range: about 1 / (cells of an axis) on either side.
    limit : int
        Different rows kept without grids.

    Examples
    --------
    >>> meter = StreamingConcordance()
    >>> _ = meter.update(time=[1, 2], event=[1, 0], risk=[9, 8]).update(time=[3, 4], event=[1, 1], risk=[2, 5])
    >>> meter.compute().value, meter.compute().error_bound
    (0.75, 0.0)
    """

    def __init__(self, *, grids: tuple[Any, Any] | None = None, limit: int = LIMIT) -> None:
        super().__init__(grids, limit)

    def update(self, *, time: Any, event: Any, risk: Any) -> Self:
        """Add rows: the outcome, and a risk that is larger where the event is expected sooner."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        times_seen, happened = as_outcome(time, event, risk=risk)
        self.add(times_seen, happened, as_score("risk", risk, times_seen.size))
        return self

    def add(self, time: FloatArray, event: BoolArray, risk: FloatArray) -> None:
        """Add rows that were checked."""
        self._count(time, risk, event)

    def compute(self) -> BoundedConcordance:
        """Return the concordance of all rows seen so far."""
        self._need_rows()
        cells = self._pair_cells()
        n_events = int(cells.events.sum())
        known = not any(axis.any() for axis in cells.mixed)
        if known and self.n <= _REPEATED * self.limit:
            pairs = summary(_of_rows(cells), "harrell", np.inf, self.n, n_events)
            return BoundedConcordance(pairs, pairs.value, pairs.value)
        if self._axes is None:
            cells = self._pair_cells(_MOST)
        return _with_range(_of_cells(cells), self.n, n_events)


def _of_rows(cells: PairCellCounts) -> PairWeights:
    """Pairs of the rows themselves, written out."""
    time, risk = (low[place] for low, place in zip(cells.low, cells.place, strict=True))
    counts = np.concatenate([cells.events, cells.censored])
    event = np.repeat(np.repeat([True, False], time.size), counts)
    return pair_weights(np.repeat(np.tile(time, 2), counts), event, -np.repeat(np.tile(risk, 2), counts))


@dataclass
class _Counted:
    """Pairs by cells, whole numbers but for what is expected."""

    concordant: int = 0
    tied: int = 0  # in one cell of risk whose rows have one risk
    same: int = 0  # in one cell of risk of several
    comparable: int = 0  # in different cells of time, or known otherwise
    unordered: int = 0  # in one cell of time of several, with an event: comparable or not
    likely: PairWeights = field(default_factory=lambda: PairWeights(0.0, 0.0, 0.0))  # what to expect of `unordered`

    def expected(self) -> PairWeights:
        """Pairs, with ties for those of one cell of risk."""
        return PairWeights(float(self.concordant), float(self.tied + self.same), float(self.comparable)) + self.likely


def _of_cells(cells: PairCellCounts) -> _Counted:
    """Count pairs by cells.

    Cells of time are passed from the last to the first. Rows in later cells outlast the events of this one; so do
    censored rows of the same cell if all its rows have one time.
    """
    mixed_time, mixed_risk = cells.mixed
    order = np.argsort(cells.place[0], kind="stable")
    starts = np.searchsorted(cells.place[0][order], np.arange(cells.low[0].size + 1))
    later = np.zeros(cells.low[1].size, np.int64)
    found = _Counted()
    for k in range(cells.low[0].size - 1, -1, -1):
        own = order[starts[k] : starts[k + 1]]
        columns, events, censored = cells.place[1][own], cells.events[own], cells.censored[own]
        dead = int(events.sum())
        if mixed_time[k]:
            found.unordered += dead * (dead - 1) // 2 + dead * int(censored.sum())
            found.likely += _likely(events, censored)
        else:
            np.add.at(later, columns, censored)
        if dead:
            smaller = np.cumsum(later) - later
            found.concordant += int(events @ smaller[columns])
            equal, mixed = events * later[columns], mixed_risk[columns]
            found.tied += int(equal[~mixed].sum())
            found.same += int(equal[mixed].sum())
            found.comparable += dead * int(later.sum())
        np.add.at(later, columns, events + censored if mixed_time[k] else events)
    return found


def _likely(events: Integers, censored: Integers) -> PairWeights:
    """Return what to expect of the pairs in one cell of time, whose rows stand in the order of their risks.

    Of two events either may have come first, with equal chances. An event and a censoring are comparable if the event
    came first, also with equal chances.
    """
    dead = float(events.sum())
    both = dead * (dead - 1) / 2
    smaller = np.cumsum(censored) - censored
    concordant, tied = (float(events @ others) / 2 for others in (smaller, censored))
    return PairWeights(concordant, tied + both, both + dead * float(censored.sum()) / 2)


def _with_range(counted: _Counted, n: int, n_events: int) -> BoundedConcordance:
    """Range of the concordance of the rows.

    Of the comparable pairs A in different cells of time, a agree for certain (exact ties count one half), and x of the
    `same` pairs in one cell of risk may: 0 <= x <= same. Of the `unordered` pairs in one cell of time y may be
    comparable and z of them agree: 0 <= z <= y <= unordered. The concordance is (a + x + z) / (A + y). It is least
    with x = z = 0 and y largest, and largest with x and y = z largest, as (a + x + y) / (A + y) grows with y where
    a + x <= A.
    """
    found = summary(counted.expected(), "harrell", np.inf, n, n_events)
    agreed = counted.concordant + counted.tied / 2
    most = counted.comparable + counted.unordered
    if most == 0:
        return BoundedConcordance(found, found.value, found.value)
    lower, upper = agreed / most, (agreed + counted.same + counted.unordered) / most
    # With exact cells the ends are the value itself, up to rounding.
    return BoundedConcordance(found, min(lower, found.value), max(upper, found.value))
