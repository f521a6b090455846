"""D-calibration over chunks, processes or files: a few numbers per bin, which can be added up."""

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt
from scipy.special import zeta

from xcal._checks import (
    MANY,
    BoolArray,
    Floats,
    as_choice,
    as_count,
    as_event,
    as_numpy,
    as_probability,
    as_weights,
    check_rows,
    fail,
)
from xcal._kaplan_meier import product_limit
from xcal.calibration.bins import N_BINS, Edges, bin_edges
from xcal.calibration.dcalibration import check_choices, pearson_caution
from xcal.calibration.histogram import (
    SUMS,
    Array,
    BinSums,
    Masses,
    WeightedSums,
    as_censoring_survival,
    bin_sums,
    edges_like,
    heaviest,
    inverse_weights,
    locate,
    lost_mass_caution,
    rest,
    share_of_bin,
    weighted,
)
from xcal.calibration.significance import (
    DCalibrationResult,
    Method,
    PValue,
    akritas,
    akritas_of_weights,
    pearson,
    result,
)


@dataclass(frozen=True, eq=False)
class Cells:
    """Counts of rows by place on the scale of F, from left to right, none empty and none in two bins.

    `lower` and `upper` say where the rows of a cell lie: lower <= F < upper (<= 1 for the last), or both the F itself.
    """

    lower: Floats
    upper: Floats
    happened: Floats
    censored: Floats
    edges: Edges  # the bins, as numbers of the F values' own type

    @property
    def exact(self) -> bool:
        """Whether every row's F is known."""
        return bool((self.lower == self.upper).all())


@dataclass
class Tally:
    """Rows counted in bounded memory: exactly up to `limit` distinct F values, then on a grid of `limit` cells.

    Which of the two depends on the rows alone, not on their order or on how they were cut into chunks.
    """

    edges: Edges
    limit: int
    values: Floats = field(init=False)  # distinct F so far, ascending; empty once there is a grid
    counts: Floats = field(init=False)  # events and censored rows, (2, values), or (2, cells of the grid)
    on_grid: bool = field(init=False, default=False)
    single: bool = field(init=False, default=True)  # all F so far were float32

    def __post_init__(self) -> None:
        self.values, self.counts = np.empty(0), np.empty((2, 0))
        # Rows that wait to be sorted in, so that many small chunks do not sort all values again each time.
        self._waiting: list[tuple[Floats, BoolArray]] = []

    def add(self, cdf: Array, event: BoolArray) -> None:
        """Count rows."""
        single = bool(cdf.dtype == np.float32)
        self.single &= single
        # In pieces, so that a large chunk is not sorted whole before it turns out to need the grid.
        for start in range(0, cdf.size, self.limit):
            # Copies: the caller may write something else into these arrays.
            u, happened = cdf[start : start + self.limit].astype(np.float64), event[start : start + self.limit].copy()
            if self.on_grid:
                self._count(u, _by_kind(happened), single)
                continue
            self._waiting.append((u, happened))
            if sum(piece.size for piece, _ in self._waiting) > self.limit:
                self._settle()

    def merge(self, other: "Tally") -> None:
        """Add what another tally with the same settings has counted."""
        self._settle()
        other._settle()
        single = self.single
        self.single &= other.single
        if other.on_grid:
            self._to_grid(single)
            self.counts += other.counts
        elif self.on_grid:
            self._count(other.values, other.counts, other.single)
        else:
            self._insert(other.values, other.counts)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Distinct values or none, counts, and which of the two ways is used."""
        self._settle()
        marks = np.array([self.on_grid, self.single], dtype=np.int64)
        return {"values": self.values.copy(), "counts": self.counts.copy(), "marks": marks}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        """Replace the state."""
        self._waiting = []
        on_grid, single = (bool(mark) for mark in state["marks"])
        cells = self._grid().size - 1 if on_grid else state["values"].size
        if state["counts"].shape != (2, cells) or cells > max(self.limit, self._grid().size):
            fail("state, counts", f"numbers of shape (2, {cells})", f"shape {state['counts'].shape}")
        self.values, self.counts = state["values"].astype(np.float64), state["counts"].astype(np.float64)
        self.on_grid, self.single = on_grid, single

    def cells(self) -> Cells:
        """Return the counts, without empty cells."""
        self._settle()
        edges = self._rounded(self.edges, self.single)
        if not self.on_grid:
            return Cells(self.values, self.values, self.counts[0], self.counts[1], edges)
        grid = self._rounded(self._grid(), self.single)
        filled = self.counts.any(axis=0)
        return Cells(grid[:-1][filled], grid[1:][filled], self.counts[0][filled], self.counts[1][filled], edges)

    def _settle(self) -> None:
        if self._waiting:
            u = np.concatenate([chunk for chunk, _ in self._waiting])
            event = np.concatenate([happened for _, happened in self._waiting])
            self._waiting = []
            self._insert(u, _by_kind(event))

    def _insert(self, u: Floats, counts: Floats) -> None:
        """Add counts at these F values; go to the grid if there are too many distinct ones."""
        counts = np.concatenate([self.counts, counts], axis=1)
        self.values, place = np.unique(np.concatenate([self.values, u]), return_inverse=True)
        self.counts = np.array([bin_sums(place, kind, self.values.size) for kind in counts])
        if self.values.size > self.limit:
            self._to_grid(self.single)

    def _to_grid(self, single: bool) -> None:
        if self.on_grid:
            return
        values, counts = self.values, self.counts
        self.values, self.on_grid = np.empty(0), True
        self.counts = np.zeros((2, self._grid().size - 1))
        self._count(values, counts, single)

    def _count(self, u: Floats, counts: Floats, single: bool) -> None:
        if u.size:
            place = locate(u, self._rounded(self._grid(), single))
            self.counts += [bin_sums(place, kind, self.counts.shape[1]) for kind in counts]

    def _grid(self) -> Edges:
        """Every bin edge is an edge of the grid, so that no cell is split between two bins."""
        return np.union1d(np.arange(self.limit + 1) / self.limit, self.edges)

    @staticmethod
    def _rounded(edges: Edges, single: bool) -> Edges:
        return edges_like(edges, np.empty(0, np.float32 if single else np.float64))


def _by_kind(event: BoolArray) -> Floats:
    """One count per row: events, then censored rows, (2, n)."""
    return np.array([event, ~event], dtype=np.float64)


# --- Kaplan-Meier masses from counts: the estimator of `histogram.redistributed`, and what a grid leaves open.
# Notation: n rows in the order of F, R of them at risk at some point, G the Kaplan-Meier probability of being
# uncensored so far. An event carries 1 / (n G), and what lies above a point before redistribution stops is R / (n G)
# exactly. From the row at which it stops, with G there, each of the R rows left carries that row's 1 / (n G).

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
    """Kaplan-Meier probability of being uncensored before each cell, and after the last."""
    return np.append(1.0, product_limit(censored, at_risk))


def _ratio(part: Floats, whole: Floats) -> Floats:
    """Quotient that is infinite where only the denominator is zero, and zero where both are."""
    return np.divide(part, whole, out=np.where(part > 0, np.inf, 0.0), where=whole > 0)


class DCalibration:
    """Accumulate D-calibration without holding the rows.

    The result equals `d_calibration` on all rows at once, for "uniform" and for "ipcw" with a given G. For "km" too, up
    to `grid_cells` distinct values of F. Beyond that the rows are counted on a grid of so many cells, and the value of
    the rows is within `error_bound` of the result's, in any case; a warning says where that tells little. With sampling
    weights (`update`) "km" needs the rows, and is refused.

    Parameters
    ----------
    n_bins, edges
        As in `d_calibration`.
    method : {"uniform", "ipcw", "km"}
    p_value : {"akritas", "pearson"} or None
        A simulated p-value needs the rows.
    grid_cells : int, default 10000
        For "km", at least ten times the number of bins. State and error are in proportion to it and to its inverse.
        Chunks should be all float32 or all float64: a value on an edge is rounded as its own type is.

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
        n_bins: int = N_BINS,
        edges: Any = None,
        method: Method = "uniform",
        p_value: Literal["akritas", "pearson"] | None = "akritas",
        grid_cells: int = 10_000,
    ) -> None:
        as_choice("method", method, get_args(Method))
        as_choice("p_value", p_value, get_args(PValue), or_none=True)
        if p_value not in ("akritas", "pearson", None):
            fail("p_value", "'akritas', 'pearson' or None: a simulated null needs the rows", repr(p_value))
        check_choices(method, p_value, False, method == "ipcw")
        self.edges = bin_edges(n_bins, edges)
        self.method, self.p_value = method, p_value
        n_bins = self.edges.size - 1
        grid_cells = as_count("grid_cells", grid_cells, at_least=1, at_most=MANY)
        if grid_cells < 10 * n_bins:
            fail("grid_cells", f"an integer of at least ten times the {n_bins} bins", repr(grid_cells))
        self._sums = BinSums(self.edges)
        self._weights = np.zeros((2, n_bins))
        self._tally = Tally(self.edges, grid_cells)
        # With weights all of the above is there too: it counts the rows, and is what equal weights come to.
        self._weighted: _Weighted | None = None

    def update(self, cdf: Any, event: Any, *, censoring_survival: Any = None, weights: Any = None) -> Self:
        """Add rows.

        Parameters
        ----------
        cdf, event : array-like of shape (n,)
            As in `d_calibration`.
        censoring_survival : array-like of shape (n,), optional
            For "ipcw": the user's G just before each row's time.
        weights : array-like of shape (n,), optional
            Sampling weights as in `d_calibration`, in the same units in all chunks: in every chunk or in none.
        """
        if np.size(as_numpy("cdf", cdf)) == 0 and np.size(as_numpy("event", event)) == 0:
            return self  # a chunk from which everything was filtered
        check_rows({"cdf": cdf, "event": event, "censoring_survival": censoring_survival, "weights": weights})
        u = as_probability("cdf", cdf)
        happened = as_event(event, u.size)
        if self.method == "ipcw" and censoring_survival is None:
            expected = "the probability of being uncensored, one number per row, with method='ipcw'"
            fail("censoring_survival", expected, None)
        if self.method != "ipcw" and censoring_survival is not None:
            fail("censoring_survival", f"None with method={self.method!r}", "an array")
        w = None if weights is None else as_weights("weights", weights, u.size)
        self._expect_weights(w is not None)
        g = None
        if self.method == "ipcw" and happened.any():
            g = as_censoring_survival(censoring_survival, happened)
            self._weights += inverse_weights(u, happened, g, self.edges)
        if self.method == "km":
            self._tally.add(u, happened)
        self._sums.add(u, happened, hazard=self.p_value == "akritas")
        if w is not None:
            self._weighted = _Weighted(self.edges) if self._weighted is None else self._weighted
            self._weighted.add(u, happened, g, w, hazard=self.p_value == "akritas")
        return self

    def _expect_weights(self, given: bool) -> None:
        """Refuse weights where they have no meaning, and rows with weights beside rows without."""
        if given and self.method == "km":
            expected = "None with method='km', whose grid counts rows; use d_calibration on the rows"
            fail("weights", expected, "an array")
        if given and self.p_value == "pearson":
            fail("p_value", "'akritas' or None with weights", repr(self.p_value))
        if self._sums.n and given != (self._weighted is not None):
            fail("weights", "weights in every chunk, or in none", "some chunks with weights and some without")

    def merge(self, other: "DCalibration") -> Self:
        """Add what another accumulator with the same settings has seen."""
        alike = isinstance(other, DCalibration) and (self.method, self.p_value) == (other.method, other.p_value)
        if not (alike and np.array_equal(self.edges, other.edges) and self._tally.limit == other._tally.limit):
            fail("other", "an accumulator with the same bins, method, p_value and grid_cells", repr(other))
        if not other._sums.n:
            return self
        self._expect_weights(other._weighted is not None)
        if other._weighted is not None:
            self._weighted = _Weighted(self.edges) if self._weighted is None else self._weighted
            self._weighted.merge(other._weighted)
        self._sums.merge(other._sums)
        self._tally.merge(other._tally)
        self._weights += other._weights
        return self

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state as arrays by name, to be written to a file or sent to another process."""
        state = {f"sums.{name}": getattr(self._sums, name).copy() for name in SUMS}
        if self.method == "ipcw":
            state["weights"] = self._weights.copy()
        if self.method == "km":
            state |= {f"tally.{name}": values for name, values in self._tally.state_dict().items()}
        return state if self._weighted is None else state | self._weighted.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Replace the state by one from `state_dict` of an accumulator with the same settings."""
        with_weights = any(str(name).startswith(_WEIGHTED) for name in state)
        weighted = _Weighted(self.edges) if with_weights else None
        plain = {name: values for name, values in self.state_dict().items() if not name.startswith(_WEIGHTED)}
        wanted = plain if weighted is None else plain | weighted.state_dict()
        if set(state) != set(wanted):
            fail("state", f"the entries {', '.join(sorted(wanted))}", ", ".join(sorted(map(str, state))))
        given = {name: np.asarray(values) for name, values in state.items()}
        for name, values in given.items():
            if not name.startswith("tally.") and values.shape != wanted[name].shape:
                fail(f"state[{name!r}]", f"numbers of shape {wanted[name].shape}", f"shape {values.shape}")
        for name in SUMS:
            setattr(self._sums, name, given[f"sums.{name}"].astype(np.float64))
        if self.method == "ipcw":
            self._weights = given["weights"].astype(np.float64)
        if self.method == "km":
            self._tally.load_state_dict({name: given[f"tally.{name}"] for name in self._tally.state_dict()})
        if weighted is not None:
            weighted.load_state_dict(given)
        self._weighted = weighted
        return self

    def compute(self) -> DCalibrationResult:
        """Return D-calibration of all rows seen so far."""
        n, n_censored = self._sums.n, self._sums.n_censored
        if n == 0:
            raise ValueError("DCalibration: expected at least one row before compute(), got none; call update() first")
        bound, own = 0.0, self._weighted
        if own is not None and own.smallest == own.largest:  # equal weights say nothing
            own = None
        if self.method == "uniform":
            masses = self._sums.uniform() if own is None else own.sums.uniform()
        elif self.method == "ipcw":
            if not self._weights[0].any():
                fail("event", "at least one event, as method='ipcw' uses events only", "none")
            inverse, rows = (self._weights, float(n)) if own is None else (own.inverse, own.sums.total)
            masses = weighted(inverse[0], inverse[1], self.edges)
            if caution := lost_mass_caution(inverse[0].sum(), inverse[1].sum(), rows):
                warnings.warn(caution, stacklevel=2)
        else:
            cells = self._tally.cells()
            masses = redistributed_counts(cells)
            if not cells.exact:
                value = masses.value(self.edges)
                low, high = value_range(cells, np.diff(self.edges))
                bound = max(high - value, value - low, 0.0)
                if caution := _coarse_caution(value, bound, masses.floor):
                    warnings.warn(caution, stacklevel=2)
        test = None
        if self.p_value == "akritas":
            test = akritas(self._sums) if own is None else akritas_of_weights(own.sums)
        elif self.p_value == "pearson":
            if caution := pearson_caution(n, n_censored):
                warnings.warn(caution, stacklevel=2)
            test = pearson(masses.histogram, n, self.edges)
        whole = result(masses, self.edges, test, n, n_censored, self.method, self.p_value)
        if self._weighted is not None:
            effective = float(n) if own is None else own.sums.effective
            whole = replace(whole, weight=self._weighted.sums.total, n_effective=effective)
        return replace(whole, error_bound=bound)

    def __repr__(self) -> str:
        return (
            f"DCalibration(n_bins={self.edges.size - 1}, method={self.method!r}, p_value={self.p_value!r}): "
            f"{self._sums.n:,} rows"
        )


_WEIGHTED = "weighted."


class _Weighted:
    """What is kept of rows with weights: their sums, those of weight / G for "ipcw", and the range of weights."""

    def __init__(self, edges: Edges) -> None:
        self.sums, self.inverse = WeightedSums(edges), np.zeros((2, edges.size - 1))
        self.smallest, self.largest = np.inf, 0.0

    def add(self, u: Array, event: BoolArray, g: Array | None, weights: Floats, *, hazard: bool) -> None:
        self.sums.add(u, event, weights, hazard=hazard)
        if g is not None:
            self.inverse += inverse_weights(u, event, g, self.sums.edges, weights=weights)
        self.smallest = min(self.smallest, float(weights.min()))
        self.largest = max(self.largest, float(weights.max()))

    def merge(self, other: "_Weighted") -> None:
        self.sums.numbers = self.sums.numbers + other.sums.numbers
        self.inverse += other.inverse
        self.smallest, self.largest = min(self.smallest, other.smallest), max(self.largest, other.largest)

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        state = {"sums": self.sums.numbers, "inverse": self.inverse.copy()}
        state["range"] = np.array([self.smallest, self.largest])
        return {f"{_WEIGHTED}{name}": values for name, values in state.items()}

    def load_state_dict(self, state: Mapping[str, npt.NDArray[Any]]) -> None:
        self.sums.numbers = state[f"{_WEIGHTED}sums"].astype(np.float64)
        self.inverse = state[f"{_WEIGHTED}inverse"].astype(np.float64)
        self.smallest, self.largest = map(float, state[f"{_WEIGHTED}range"])


def _coarse_caution(value: float, bound: float, floor: float) -> str | None:
    """Return what to tell a user whose rows lie too close together for the grid."""
    if bound <= max(floor, value / 10):
        return None
    return (
        f"D-calibration of the rows lies within {bound:.2g} of {value:.2g}, and the grid cannot tell where: too many "
        "of them share a cell. Use more grid_cells, or d_calibration on the rows."
    )
