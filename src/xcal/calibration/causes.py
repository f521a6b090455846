"""D-calibration by cause: whether the times are right, and each event is of the cause that the model expects.

The cells are a bin j of the all-cause F times a cause k. Over all causes F is uniform for a true model, as for one kind
of event; within a bin the events divide among the causes as the model's incidences do there.

Two things are made of the cells.

- The *value* and its histogram: the mass of a cell is the mean over rows of P(cell | what was observed), and should be
  the mean of P(cell). A row censored at t has the share of each cell that the model gives it from there on. With one
  cause whose F reaches 1 this is `d_calibration` with ``method="uniform"``.
- The *test*, in which nothing is put in the place of censored rows: N counts the events of a cell and A adds up, over
  the time that each row was observed, the hazard of the cause while F is in the bin. For a true model N - A has mean
  zero and variance A, whatever decides when a row is censored, as long as it is not the event itself.

Rows that entered late count from there on: what is expected of a cell is P(cell | event-free at entry), and hazards add
up from the entry.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import FloatArray, as_causes, as_choice, as_count, as_numpy, as_time, check_rows, fail, first_row
from xcal.calibration.bins import N_BINS, Edges, bin_edges
from xcal.calibration.dcalibration import are_coarse, unit_starts
from xcal.calibration.histogram import locate
from xcal.data.surv import Outcome

Matrix = npt.NDArray[np.float64]
Causes = npt.NDArray[np.int64]
Ties = Literal["auto", "exact"]

_BLOCK = 1 << 21  # numbers of incidence worked on at a time
# Cells of one cause are joined with their neighbours until so many events are expected. The reference is drawn, so that
# few are enough.
_LEAST_EXPECTED = 3.0
_ROUNDING = 1e-6  # by which incidences of single precision may fall or exceed 1


@dataclass(frozen=True, eq=False)
class CauseCalibration:
    """D-calibration by cause.

    Attributes
    ----------
    value : float
        Sum over cells of (mass - expected mass)²; 0 at best.
    floor : float
        What noise alone makes of it, for a perfect model on as many rows.
    p_value : float
        How often a true model would show events as far from its expectation, in Poisson draws of the cells.
    statistic : float
        Sum over joined cells of (N - A)² / A.
    n_cells : int
        Cells of the test, after neighbours with few expected events were joined.
    edges : array, shape (bins + 1,)
        Of the all-cause F.
    mass, expected_mass : arrays, shape (causes, bins)
        The histogram, and what the model expects of it.
    events, expected_events : arrays, shape (causes, bins)
        N and A.
    n : int
        Rows.
    """

    value: float
    floor: float
    p_value: float
    statistic: float = field(repr=False)
    n_cells: int = field(repr=False)
    edges: Matrix = field(repr=False)
    mass: Matrix = field(repr=False)
    expected_mass: Matrix = field(repr=False)
    events: Matrix = field(repr=False)
    expected_events: Matrix = field(repr=False)
    n: int


def cause_calibration(
    incidence: Any,
    times: Any,
    *,
    time: Any,
    cause: Any,
    entry: Any = None,
    ties: Ties = "auto",
    n_bins: int = N_BINS,
    draws: int = 10_000,
    generator: np.random.Generator | None = None,
) -> CauseCalibration:
    r"""Measure and test D-calibration by cause.

    .. math:: N_{jk} = \sum_i 1(F_i(T_i) \in I_j,\ \text{event of cause } k), \qquad
              A_{jk} = \sum_i \int_0^{T_i} 1(F_i(t) \in I_j) \, d\Lambda_{ik}(t), \qquad
              X^2 = \sum_{jk} \frac{(N_{jk} - A_{jk})^2}{A_{jk}}

    with F the sum of the incidences and :math:`d\Lambda_k = dF_k / (1 - F)`. Incidences are read along straight lines
    between their times, from 0 at time 0.

    Parameters
    ----------
    incidence : array-like, shape (n, causes, m)
        Cumulative incidence of each cause at each of `times`.
    times : array-like, shape (m,)
        Strictly increasing. Rows observed longer than the last of them count as censored there.
    time : array-like, shape (n,)
        Observed times.
    cause : array-like, shape (n,)
        0 for a censored row, 1, 2, ... for the cause of its event.
    entry : array-like, shape (n,), optional
        Time from which each row was under observation, before its `time` and before the last of `times`.
    ties : {"auto", "exact"}
        Times in whole units, such as months, stand for the unit that they end: "auto" draws the time of each event
        within it by the incidence of its cause, and, as nobody knows how long a censored row was seen in its last one,
        takes all and half of it, and gives the smaller value and the larger p-value. "exact" takes all times as they
        are.
    n_bins : int
        Equal bins of the all-cause F.
    draws : int
        Of the reference for `p_value`.
    generator : numpy.random.Generator, optional
        Source of the draws; by default the same for every call, so that the same rows give the same p-value.

    Returns
    -------
    CauseCalibration

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> first, second = rng.exponential(1.0, 2000), rng.exponential(2.0, 2000)
    >>> time, cause = np.minimum(first, second), np.where(first < second, 1, 2)
    >>> grid = np.linspace(0, 10, 200)
    >>> any_cause = 1 - np.exp(-1.5 * grid)
    >>> right = np.tile([2 / 3 * any_cause, 1 / 3 * any_cause], (2000, 1, 1))
    >>> wrong = np.tile([1 / 2 * any_cause, 1 / 2 * any_cause], (2000, 1, 1))
    >>> cause_calibration(right, grid, time=time, cause=cause).p_value > 0.05
    True
    >>> cause_calibration(wrong, grid, time=time, cause=cause).p_value < 0.001
    True
    """
    check_rows({"incidence": incidence, "time": time, "cause": cause, "entry": entry})
    curves, grid = as_incidence(incidence, times)
    n, n_causes, _ = curves.shape
    outcome = Outcome(
        as_time(time, n, reference="incidence").astype(np.float64, copy=False),
        np.ones(n, dtype=np.bool_),
        as_causes(cause, n, n_causes=n_causes, reference="incidence"),
    ).entered(entry)
    edges = bin_edges(as_count("n_bins", n_bins, at_least=2, at_most=1000))
    causes = np.asarray(outcome.cause)
    coarse = as_choice("ties", ties, ("auto", "exact")) == "auto" and are_coarse(outcome.time, causes > 0)
    late = outcome.time > grid[-1]
    if outcome.entry is not None and (gone := outcome.entry >= grid[-1]).any():
        row = first_row(gone)
        fail("entry", f"times before the last of times, {grid[-1]:g}", outcome.entry[row], row)
    happened = np.where(late, 0, causes)
    start = unit_starts(outcome.time) if coarse else outcome.time
    if outcome.entry is not None:
        start = np.maximum(start, outcome.entry)
    within = np.random.default_rng([0, 1]).random((n,))
    early = _before_leaving(within, outcome.time, causes)

    def observed(rows: slice, part: float) -> FloatArray:
        time: Matrix = np.minimum(outcome.time[rows], grid[-1]).astype(np.float64)
        if not coarse:
            return time
        first, own = np.minimum(start[rows], time), happened[rows]
        drawn = _drawn_within(curves[rows], grid, first, time, own, (within if part == 1 else early)[rows])
        return np.asarray(np.where(own > 0, drawn, np.where(late[rows], time, first + part * (time - first))))

    def level(rows: slice, levels: "Levels", at: FloatArray) -> Matrix:
        return np.asarray(np.minimum(_total_at(curves[rows], grid, at), levels.end))

    def blocks(part: float) -> Iterator[tuple[Levels, Matrix, Matrix | None, Causes]]:
        step = max(1, _BLOCK // (n_causes * grid.size * 4))
        for start in range(0, n, step):
            rows = slice(start, start + step)
            levels = Levels(curves[rows])
            start_of = None if outcome.entry is None else level(rows, levels, outcome.entry[rows])
            yield levels, level(rows, levels, observed(rows, part)), start_of, happened[rows]

    found = [
        calibration_of_levels(blocks(part), n_causes, edges, draws, generator)
        for part in ((1.0, 0.5) if coarse else (1.0,))
    ]
    return replace(min(found, key=lambda one: one.value), p_value=max(one.p_value for one in found))


def _before_leaving(share: Matrix, time: FloatArray, cause: Causes) -> Matrix:
    """Turn even shares of a unit into those of events that were seen, where rows leave at any time within it.

    An event that would come late in the unit is more often missed: the density falls along a straight line, by the
    share of the rows at risk that leave in the unit.
    """
    place = np.unique(time, return_inverse=True)[1]
    at_risk = time.size - np.append(0, np.cumsum(np.bincount(place))[:-1])
    leaves = np.maximum(np.bincount(place, weights=cause == 0) / at_risk, 1e-9)[place]
    return np.asarray((1 - np.sqrt(1 - 2 * leaves * share * (1 - leaves / 2))) / leaves)


def _drawn_within(
    curves: Matrix, grid: Matrix, start: FloatArray, end: FloatArray, cause: Causes, share: FloatArray
) -> FloatArray:
    """Draw when the event of each row came between two times, by the incidence of its cause; others keep the end."""
    rows = np.flatnonzero(cause > 0)
    own, line = curves[rows, cause[rows] - 1], np.arange(rows.size)
    ends = [_total_at(own[:, None], grid, at[rows]) for at in (start, end)]
    goal = ends[0] + share[rows] * (ends[1] - ends[0])
    above = 2.0 * line
    cell = np.searchsorted((own + above[:, None]).ravel(), goal + above, side="left") - grid.size * line - 1
    cell = np.clip(cell, 0, grid.size - 2)
    low, rise = own[line, cell], own[line, cell + 1] - own[line, cell]
    part = np.divide(goal - low, rise, out=share[rows].copy(), where=rise > 0)
    drawn = np.clip(grid[cell] + np.clip(part, 0.0, 1.0) * np.diff(grid)[cell], start[rows], end[rows])
    flat = ends[1] <= ends[0]  # where the model has no event of the cause it may have come at any time
    drawn = np.where(flat, start[rows] + share[rows] * (end[rows] - start[rows]), drawn)
    found = end.astype(np.float64)
    found[rows] = drawn
    return found


def calibration_of_levels(
    blocks: "Iterable[tuple[Levels, Matrix, Matrix | None, Causes]]",
    n_causes: int,
    edges: Edges,
    draws: int = 10_000,
    generator: np.random.Generator | None = None,
) -> CauseCalibration:
    """Measure and test rows, some at a time: their levels, the all-cause F at time and entry, and the causes."""
    sums = _Sums(n_causes, edges.size - 1)
    for levels, own, entry, cause in blocks:
        sums.add(levels, own, entry, cause, edges)
    source, n = np.random.default_rng(0) if generator is None else generator, sums.n
    statistic, n_cells, p_value = _test(sums.events, sums.expected, as_count("draws", draws, at_least=99), source)
    off = (sums.mass - sums.width) / n
    value = float(np.square(off).sum())
    # The variance of a mean is that of its terms over their number; it is the same with the value's own mean inside.
    floor = float((sums.squares / n - np.square(off)).sum() / max(n - 1, 1))
    inside = np.s_[:, :-1]
    return CauseCalibration(
        value, floor, p_value, statistic, n_cells, edges, sums.mass[inside] / n, sums.width[inside] / n,
        sums.events, sums.expected, n,
    )  # fmt: skip


def as_incidence(incidence: Any, times: Any, *, name: str = "incidence") -> tuple[Matrix, Matrix]:
    """Check incidences of shape (rows, causes, times), and put 0 at time 0 before them.

    They lie within 0 and 1, never fall in time and add up to at most 1; what rounding of single precision does to that
    is corrected.
    """
    grid = as_time(np.atleast_1d(as_numpy("times", times)), name="times").astype(np.float64)
    falls = np.diff(grid) <= 0
    if falls.any():
        row = first_row(falls) + 1
        fail("times", "strictly increasing times", f"{grid[row]} after {grid[row - 1]}", row)
    array = as_numpy(name, incidence)
    if array.ndim != 3 or array.shape[2] != grid.size or 0 in array.shape:
        fail(name, f"shape (rows, causes, {grid.size}), one column for each of times", f"shape {array.shape}")
    values = array.astype(np.float64)
    _refuse(name, "probabilities in [0, 1]", values, ~((values >= -_ROUNDING) & (values <= 1 + _ROUNDING)), grid)
    fall = np.zeros(values.shape, dtype=np.bool_)
    fall[..., 1:] = np.diff(values, axis=2) < -_ROUNDING
    _refuse(name, "incidences that never fall in time", values, fall, grid)
    total = values.sum(axis=1, keepdims=True)
    _refuse(name, "incidences that add up to at most 1 over the causes", total, total > 1 + _ROUNDING, grid, "all")
    values = np.maximum.accumulate(np.clip(values, 0.0, 1.0), axis=2)
    values /= np.maximum(values.sum(axis=1, keepdims=True), 1.0)
    if grid[0] > 0:
        grid = np.append(0.0, grid)
        values = np.concatenate([np.zeros((*values.shape[:2], 1)), values], axis=2)
    return values, grid


def _refuse(
    name: str, expected: str, values: Matrix, bad: npt.NDArray[np.bool_], grid: Matrix, of: str | None = None
) -> None:
    if bad.any():
        row, cause, at = (int(k) for k in np.unravel_index(first_row(bad.ravel()), bad.shape))
        which = f"cause {cause + 1}" if of is None else f"{of} causes"
        fail(name, expected, f"{values[row, cause, at]:.6g} for {which} at time {grid[at]:g}", row)


def _total_at(curves: Matrix, grid: Matrix, time: FloatArray) -> Matrix:
    """All-cause F of each row at one time, along straight lines."""
    m = grid.size
    left = np.clip(np.searchsorted(grid, time, side="right") - 1, 0, max(m - 2, 0))
    right = np.minimum(left + 1, m - 1)
    line = np.arange(len(curves))
    part = ((time - grid[left]) / np.where(right > left, grid[right] - grid[left], 1.0))[:, None]
    at_own = (1 - part) * curves[line, :, left] + part * curves[line, :, right]
    return np.asarray(np.minimum(at_own.sum(axis=1), 1.0))


class Levels:
    """Some rows on the scale of their all-cause F: what each cause has of every level, and of its hazard.

    `curves` are incidences (rows, causes, points), 0 at the first point; `end` is the all-cause F at the last, (rows,).
    """

    def __init__(self, curves: Matrix) -> None:
        self._total = curves.sum(axis=1)
        rise = np.diff(self._total, axis=1)
        # The share of each cause in what F rises by between two times.
        self._share = np.divide(
            np.diff(curves, axis=2),
            rise[:, None],
            out=np.zeros((*curves.shape[:2], rise.shape[1])),
            where=rise[:, None] > 0,
        )
        self._hazard = -np.log1p(-np.minimum(self._total, 1 - 1e-15))
        steps = self._share * np.diff(self._hazard, axis=1)[:, None]
        self._of_causes = np.concatenate([np.zeros((*curves.shape[:2], 1)), np.cumsum(steps, axis=2)], axis=2)
        self._curves = curves
        self.end = self._total[:, -1]

    def incidence(self, level: Matrix) -> Matrix:
        """Return the incidence of each cause when F is at a level, shape (rows, causes, levels)."""
        level = np.minimum(level, self.end[:, None])
        return self._read(self._curves, level, level, self._total)

    def hazard(self, level: Matrix) -> Matrix:
        """Return the cumulative hazard of each cause by then."""
        level = np.minimum(level, self.end[:, None])
        return self._read(self._of_causes, level, -np.log1p(-np.minimum(level, 1 - 1e-15)), self._hazard)

    def _read(self, at_times: Matrix, level: Matrix, clock: Matrix, known: Matrix) -> Matrix:
        """Add to what a cause has at the last time before a level its share of the rest of the way."""
        n, m = self._total.shape
        # One search for all rows: those of each row lie above those of the row before.
        above = 2.0 * np.arange(n)[:, None]
        found = np.searchsorted((self._total + above).ravel(), (level + above).ravel(), side="right")
        cells = np.clip(found.reshape(level.shape) - m * np.arange(n)[:, None] - 1, 0, m - 2)
        index = np.broadcast_to(cells[:, None], (len(cells), at_times.shape[1], cells.shape[1]))
        way = np.maximum(clock - np.take_along_axis(known, cells, axis=1), 0.0)
        return np.asarray(
            np.take_along_axis(at_times, index, axis=2) + np.take_along_axis(self._share, index, axis=2) * way[:, None]
        )


class _Sums:
    """Sums over rows; the last column of the masses is what comes after the last time."""

    def __init__(self, n_causes: int, n_bins: int) -> None:
        self.n = 0
        self.mass, self.width, self.squares = (np.zeros((n_causes, n_bins + 1)) for _ in range(3))
        self.events, self.expected = (np.zeros((n_causes, n_bins)) for _ in range(2))

    def add(self, rows: Levels, own: Matrix, entry: Matrix | None, cause: Causes, edges: Edges) -> None:
        start = np.zeros(own.size) if entry is None else np.minimum(entry, own)
        mass, width = (self._later(rows, level, edges) for level in (own, start))
        at = np.flatnonzero(cause > 0)
        bins = locate(own[at], edges)
        mass[at] = 0.0
        mass[at, cause[at] - 1, bins] = 1.0
        self.n += own.size
        self.mass += mass.sum(axis=0)
        self.width += width.sum(axis=0)
        self.squares += np.square(mass - width).sum(axis=0)
        np.add.at(self.events, (cause[at] - 1, bins), 1.0)
        whole = np.broadcast_to(edges, (own.size, edges.size))
        for level, sign in ((own, 1), (start, -1)):
            if sign > 0 or entry is not None:
                self.expected += sign * np.diff(rows.hazard(np.minimum(whole, level[:, None])), axis=2).sum(axis=0)

    @staticmethod
    def _later(rows: Levels, level: Matrix, edges: Edges) -> Matrix:
        """P(cell) of rows that have come to a level; beyond the last time no cause is known: the first one holds it."""
        rest = np.maximum(1 - level, 1e-15)[:, None, None]
        inside = np.diff(rows.incidence(np.maximum(edges, level[:, None])), axis=2) / rest
        beyond = np.zeros((*inside.shape[:2], 1))
        beyond[:, 0, 0] = 1 - rows.end
        return np.concatenate([inside, beyond / rest], axis=2)


def _test(events: Matrix, expected: Matrix, draws: int, generator: np.random.Generator) -> tuple[float, int, float]:
    """Return the statistic over joined cells, their number, and how often Poisson counts of them reach it."""
    cells = np.array([cell for k in range(len(events)) for cell in _joined(events[k], expected[k])])
    if not cells.size:
        return float("nan"), 0, float("nan")
    seen, mean = cells.T
    statistic = float((np.square(seen - mean) / mean).sum())
    drawn = generator.poisson(mean, (draws, mean.size))
    reference = (np.square(drawn - mean) / mean).sum(axis=1)
    return statistic, mean.size, float((1 + np.count_nonzero(reference >= statistic)) / (draws + 1))


def _joined(events: Matrix, expected: Matrix) -> list[tuple[float, float]]:
    """Join neighbouring bins of one cause until enough events are expected; what is left over joins the last."""
    cells: list[tuple[float, float]] = []
    seen = mean = 0.0
    for one, other in zip(events, expected, strict=True):
        seen, mean = seen + float(one), mean + float(other)
        if mean >= _LEAST_EXPECTED:
            cells.append((seen, mean))
            seen = mean = 0.0
    if mean > 0 or seen > 0:
        before = cells.pop() if cells else (0.0, 0.0)
        if before[1] + mean > 0:
            cells.append((before[0] + seen, before[1] + mean))
    return cells
