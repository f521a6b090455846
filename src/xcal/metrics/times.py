"""Kaplan-Meier curves of events and censorings, follow-up, horizons, quantiles: at once, over chunks, of resamples."""

import math
import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import BoolArray, FloatArray, as_choice, as_count, as_flag, as_floats, as_row, fail, first_row
from xcal._kaplan_meier import KaplanMeier, Of, curve_of_counts, fit_kaplan_meier, product_limit
from xcal.calibration.dcalibration import are_coarse
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.cells import Accumulator, CellCounts, GridAxis, SparseCells, grid_cells, grid_counts
from xcal.metrics.inputs import (
    Integers,
    Matrix,
    Vector,
    as_row_weights,
    as_score,
    as_time_grid,
    rounded_time,
    running_sums,
)


def as_censoring(censoring: KaplanMeier | None, outcome: Outcome, weights: Vector | None = None) -> KaplanMeier:
    """Use the given censoring curve, or estimate one from the data at hand."""
    if censoring is None:
        return fit_kaplan_meier(outcome.time, outcome.ended, "censoring", weights)
    if not isinstance(censoring, KaplanMeier) or censoring.of != "censoring":
        got = f"a curve of {censoring.of!r}" if isinstance(censoring, KaplanMeier) else type(censoring).__name__
        fail("censoring", 'None or kaplan_meier(time=..., event=..., of="censoring")', got)
    return censoring


def censoring_survival(curve: KaplanMeier, t: FloatArray, *, left_limit: bool) -> tuple[Vector, BoolArray]:
    """Probability of not being censored by t, and where it is known.

    It is not known after the last time of the data behind the curve, and useless as a weight where it is zero. There
    the smallest positive value of the curve is given instead, for callers that choose to carry it on.

    Parameters
    ----------
    curve : KaplanMeier
        Of the censoring times.
    t : array
        Where to read it.
    left_limit : bool
        P(C >= t), the chance that an event at t was seen, instead of P(C > t). They differ only at times at which a
        row of the data behind the curve was censored.
    """
    value = curve.before(t) if as_flag("left_limit", left_limit) else curve.at(t)
    known = (np.asarray(t) <= curve.times[-1]) & (value > 0)
    positive = curve.survival[curve.survival > 0]
    last = float(positive.min()) if positive.size else 1.0
    return np.where(value > 0, value, last), np.asarray(known)


def kaplan_meier(*, time: Any, event: Any, of: Of = "event", weights: Any = None, entry: Any = None) -> KaplanMeier:
    r"""Kaplan-Meier estimate from right-censored data.

    .. math:: S(t) = \prod_{t_j \le t} \Big( 1 - \frac{d_j}{r_j} \Big)

    with :math:`d_j` events at the time :math:`t_j` and :math:`r_j` rows whose time is not before it.

    Parameters
    ----------
    time : array-like, shape (n,)
        Observed times, finite and not negative.
    event : array-like, shape (n,)
        True where the event happened, False where the row was censored.
    of : {"event", "censoring"}
        Estimate P(T > t), the survival curve, or G(t) = P(C > t), the curve that inverse probability of censoring
        weights need. At a time with both, the events count as coming first: the rows with an event at t are no
        longer at risk of being censored at t.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row. The curve is that of rows repeated as often as their weights say;
        its variance is design-based, the sum of squares of the rows' influences, as a row of weight 10 is one
        observation. Equal weights change nothing.
    entry : array-like, shape (n,), optional
        Time from which each row was under observation: it is at risk after its entry only. Without it, rows of delayed
        entry make the curve too high. Not together with `weights`.

    Returns
    -------
    KaplanMeier
        With only censored rows the survival curve is 1 everywhere, with only events the censoring curve is.

    References
    ----------
    Kaplan, Meier (1958), JASA 53(282):457-481.

    Examples
    --------
    >>> curve = kaplan_meier(time=[1, 2, 2, 3], event=[1, 1, 0, 1])
    >>> curve.at([0.5, 1, 2, 3])
    array([1.  , 0.75, 0.5 , 0.  ])
    >>> kaplan_meier(time=[1, 2, 2, 3], event=[1, 1, 0, 1], of="censoring").at([2, 3])
    array([0.5, 0.5])
    """
    outcome = as_outcome(time, event, beside={"weights": weights, "entry": entry}).entered(entry)
    chosen = as_choice("of", of, ("event", "censoring"))
    if outcome.entry is not None and weights is not None:
        fail("weights", "none beside times of entry", "weights")
    curve = fit_kaplan_meier(
        outcome.time, outcome.event, chosen, as_row_weights(weights, outcome.n), entry=outcome.entry
    )
    emptied = (curve.counts > 0) & (curve.counts == curve.at_risk) & (curve.times < outcome.last)
    if outcome.entry is not None and emptied.any():
        t = curve.times[emptied][0]
        few = f"all {curve.at_risk[emptied][0]:g} rows that had entered by time {t:g} had the event then"
        warnings.warn(
            f"{few}, and the curve is 0 from there on, although {np.count_nonzero(outcome.time > t):,} rows were "
            "observed later: start later, with the rows that have entered by then",
            stacklevel=2,
        )
    return curve


@dataclass(frozen=True, eq=False)
class FollowUp:
    """Distribution of the follow-up.

    Attributes
    ----------
    median, lower_quartile, upper_quartile : float
        Times by which a half, a quarter and three quarters of the rows would have been censored, had they had no event;
        NaN where the curve does not come down that far.
    longest : float
        Largest time of a row.
    curve : KaplanMeier
        Share of the rows still under observation, events set aside.
    """

    median: float
    lower_quartile: float
    upper_quartile: float
    longest: float
    curve: KaplanMeier = field(repr=False)


def follow_up(*, time: Any, event: Any, weights: Any = None, entry: Any = None) -> FollowUp:
    r"""Follow-up by reverse Kaplan-Meier: the censoring is the event, and an event ends the observation of it.

    The plain median of the times is too short where events end the follow-up of many rows.

    .. math:: \min \{ t : G(t) \le 1/2 \}

    is the median, with G the Kaplan-Meier curve of the censoring; the quartiles likewise.

    Parameters
    ----------
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row.
    entry : array-like, shape (n,), optional
        Time from which each row was under observation, as in `kaplan_meier`.

    Returns
    -------
    FollowUp

    References
    ----------
    Schemper, Smith (1996), Controlled Clinical Trials 17(4):343-346.

    Examples
    --------
    >>> follow_up(time=[1, 2, 3, 4, 5], event=[1, 0, 0, 0, 0]).median
    3.0
    """
    curve = kaplan_meier(time=time, event=event, of="censoring", weights=weights, entry=entry)
    return FollowUp(
        median=_first_at_or_below(curve, 0.5),
        lower_quartile=_first_at_or_below(curve, 0.75),
        upper_quartile=_first_at_or_below(curve, 0.25),
        longest=float(curve.times[-1]),
        curve=curve,
    )


def _first_at_or_below(curve: KaplanMeier, share: float) -> float:
    """Return the first time at which the curve is at or below a share; a hair of rounding does not decide."""
    reached = np.flatnonzero(curve.survival <= share * (1 + 1e-12))
    return float(curve.times[reached[0]]) if reached.size else float("nan")


# --- Times at which single risks are looked at: chosen where the rows support them, or checked.

# A share of the rows, and a number of them, that must still be under observation at a horizon that is chosen here.
SUPPORTED_SHARE, SUPPORTED_ROWS = 0.05, 10
# Events by a horizon that is chosen here: the time of the fifth event out of twenty is an accident of these rows.
SUPPORTED_EVENTS = 20
# First digits of numbers that are easy to read.
_READABLE = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)


def supported_until(time: FloatArray, event: BoolArray, entry: FloatArray | None = None) -> float:
    """Return the last time at which enough rows are still under observation; half of the rows where there are few."""
    curve = fit_kaplan_meier(time, event, entry=entry)
    enough = min(max(SUPPORTED_ROWS, SUPPORTED_SHARE * time.size), float(curve.at_risk.max()) / 2)
    return float(curve.times[curve.at_risk >= enough][-1])


def default_horizons(
    time: FloatArray,
    event: BoolArray,
    end: float = np.inf,
    points: Vector | None = None,
    entry: FloatArray | None = None,
) -> Vector:
    """Quartiles of the event times within the follow-up that enough rows support, as readable numbers.

    Of few events not all three: those by which 20 events have happened, or the last.

    `end` is where the model's curves end. Of times in whole units the horizons are such times. `points`, if there are
    any, are the few times for which risks were predicted: those within the follow-up that rows support.

    Examples
    --------
    >>> time = np.arange(1.0, 1001.0) + 0.5
    >>> default_horizons(time, np.full(1000, True))
    array([250., 500., 700.])
    """
    limit, start = min(supported_until(time, event, entry), end), 0.0 if entry is None else float(entry.min())
    if points is not None and ((points > start) & (points <= limit)).any():
        return np.asarray(points[(points > start) & (points <= limit)])
    seen = time[event & (time <= limit)]
    if seen.size == 0:
        seen = np.array([limit])
    levels = [level for level in (0.25, 0.5, 0.75) if level * seen.size >= SUPPORTED_EVENTS] or [0.75]
    quartiles = np.quantile(seen, levels)
    if are_coarse(time, event):
        recorded = np.unique(time[(time > 0) & (time <= limit)])
        if recorded.size:
            return np.unique([recorded[np.argmin(np.abs(recorded - t))] for t in quartiles]).astype(np.float64)
    found = np.unique([rounded(float(t), at_most=limit) for t in quartiles])
    return found[found > start] if (found > start).any() else np.array([limit])


def rounded(t: float, *, at_most: float) -> float:
    """Return the readable number that is closest in proportion, and not past `at_most`.

    Examples
    --------
    >>> rounded(0.96, at_most=2.0), rounded(481.0, at_most=1000.0), rounded(96.0, at_most=99.0)
    (1.0, 500.0, 90.0)
    """
    if t <= 0:
        return t
    power = math.floor(math.log10(t))
    near = [float(f"{step * 10.0**exponent:.12g}") for exponent in (power, power + 1) for step in _READABLE]
    allowed = [number for number in near if number <= at_most] or [t]
    return min(allowed, key=lambda number: abs(math.log(number / t)))


def read_horizons(horizons: Any, time: FloatArray) -> Vector:
    """Check horizons that were asked for: increasing, after 0, and not past the last time of the rows."""
    found: Vector = as_floats("horizons", as_row("horizons", horizons)).astype(np.float64)
    bad = ~(np.isfinite(found) & (found > 0))
    if bad.any():
        fail("horizons", "finite times above 0", found[first_row(bad)], first_row(bad))
    last = float(time.max())
    if found.max() > last:
        fail("horizons", f"times within the follow-up, which ends at about {rounded_time(last):g}", f"{found.max():g}")
    return np.unique(found)


def check_covered(horizons: Vector, end: float) -> None:
    """Refuse a horizon past the end of the curves: the model says nothing about it."""
    if horizons.size and horizons[-1] > end:
        fail("horizons", f"times that the model's curves cover, which end at {end:g}", f"{horizons[-1]:g}")


def check_entered(horizons: Vector, entry: FloatArray) -> None:
    """Refuse a horizon before which nobody was under observation."""
    if horizons.size and not (entry < horizons[0]).any():
        fail("horizons", f"times after the first entry, {entry.min():g}", f"{horizons[0]:g}")


# --- Kaplan-Meier curves of events and of censorings over chunks, processes or files.

# Distinct times, or cells of times, that are kept by default: two megabytes.
LIMIT = 1 << 16


@dataclass(frozen=True, eq=False)
class BoundedCurve:
    """A Kaplan-Meier curve and the range in which that of the rows lies.

    Attributes
    ----------
    curve : KaplanMeier
        Where rows at several times share a cell, half of those that leave for the other reason count as gone before
        (the actuarial rule), and the curve falls at the beginning of the cell.
    lower, upper : arrays, shape (m,)
        Least and largest value that the curve of the rows can have at the end of each cell.
    exact : bool
        Whether the time of every row is known. Then `curve` is that of `kaplan_meier`.
    """

    curve: KaplanMeier
    lower: Vector = field(repr=False)
    upper: Vector = field(repr=False)
    exact: bool

    @property
    def error_bound(self) -> float:
        """Largest distance between this curve and that of the rows, at the ends of the cells."""
        off = np.maximum(self.upper - self.curve.survival, self.curve.survival - self.lower)
        return float(np.max(off, initial=0.0))

    def bounds(self, t: Any) -> tuple[Vector, Vector]:
        """Range of the curve of the rows at t, where t is one of the times that no cell reaches across."""
        passed = np.searchsorted(self.curve.times, np.asarray(t, dtype=np.float64), side="right")
        first = passed > 0
        return np.where(first, self.lower[passed - 1], 1.0), np.where(first, self.upper[passed - 1], 1.0)

    def relative_range(self, t: float) -> tuple[float, float]:
        """Least and largest ratio of the value used to that of the rows, at any time up to t and at t itself.

        Within a cell of several times the curve of the rows lies between its largest value before the cell and its
        least value at the end.
        """
        if self.exact:
            return 1.0, 1.0
        passed = int(np.searchsorted(self.curve.times, t, side="right"))
        used, low = self.curve.survival[:passed], self.lower[:passed]
        high = np.concatenate([[1.0], self.upper[:passed]])[:passed]
        some = low > 0
        least = float(np.min(used / high, initial=1.0))
        most = float(np.max(used[some] / low[some], initial=1.0)) if some.all() else float("inf")
        return least, most


class StreamingKaplanMeier(Accumulator):
    """Accumulate Kaplan-Meier curves without holding the rows.

    Exact while there are at most `limit` distinct times, or while all times lie on `grid`. Beyond that rows are
    counted in cells, and the result says in which range the curve of the rows lies.

    Parameters
    ----------
    grid : array-like, optional
        Fixed increasing times. Cells then end at these times, and the state is an array of a fixed shape.
    at : array-like, optional
        Times at which the curve is to be read. No cell reaches across them. On a grid they must be points of it.
    limit : int
        Distinct times kept without a grid. Beyond that they share cells of equal width in proportion.

    Examples
    --------
    >>> meter = StreamingKaplanMeier()
    >>> _ = meter.update(time=[1, 2], event=[1, 1]).merge(StreamingKaplanMeier().update(time=[2, 3], event=[0, 1]))
    >>> meter.compute().curve.at([1, 2, 3])
    array([0.75, 0.5 , 0.  ])
    >>> meter.compute("censoring").curve.at([2, 3])
    array([0.5, 0.5])
    """

    def __init__(self, *, grid: Any = None, at: Any = (), limit: int = LIMIT) -> None:
        super().__init__()
        self.at = as_time_grid("at", at) if np.size(at) else np.empty(0)
        self.limit = as_count("limit", limit, at_least=1)
        self.grid = None if grid is None else as_time_grid("grid", grid)
        self._sums["n"] = np.zeros((), dtype=np.int64)
        if self.grid is None:
            self._cells["times"] = SparseCells(1, self.limit, self.at)
            return
        missing = ~np.isin(self.at, self.grid)
        if missing.any():
            fail("at", "points of the grid", self.at[missing][0])
        self._axis = GridAxis(self.grid)
        self._sums |= {
            "counts": np.zeros((2, self._axis.size), np.int64),
            "between": np.zeros(self._axis.size, np.int64),
        }

    def _settings(self) -> tuple[Any, ...]:
        return self.at, self.limit, "none" if self.grid is None else self.grid

    def update(self, *, time: Any, event: Any) -> Self:
        """Add rows: observed times, and whether the event happened."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        outcome = as_outcome(time, event)
        self.add(outcome.time, outcome.event)
        return self

    def add(self, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        self._sums["n"] += time.size
        if self.grid is None:
            self._cells["times"].add((time,), event)
            return
        place = self._axis.place(time)
        self._sums["counts"] += grid_counts(self._axis, place, event)
        self._sums["between"] += self._axis.between(time, place)

    def cells(self) -> CellCounts:
        """Return the counts behind the curves."""
        if self.grid is None:
            return self._cells["times"].cells()
        found = grid_cells(self._axis, self._sums["counts"], self._sums["between"])
        # No time is below zero.
        return CellCounts(np.maximum(found.low, 0.0), found.high, found.events, found.censored)

    def compute(self, of: Of = "event") -> BoundedCurve:
        """Return the curve of the events, or that of the censorings, of all rows seen so far."""
        as_choice("of", of, ("event", "censoring"))
        self._need_rows()
        return bounded_curve(self.cells(), of)


def bounded_curve(cells: CellCounts, of: Of = "event") -> BoundedCurve:
    """Curve of counts in cells, and its range.

    Let r rows be at risk at the beginning of a cell, d of them have the event in it and c be censored. Each event takes
    the factor 1 - 1 / m with m at risk just before it. The earlier the censored rows leave, the smaller m: the cell's
    factor lies between (r - c - d) / (r - c), all censored first, and (r - d) / r, all events first. At a single time
    events come first.
    """
    events, censored = cells.events.astype(np.float64), cells.censored.astype(np.float64)
    mixed = cells.mixed
    curve = curve_of_counts(cells.low, events, censored, of, mixed=mixed)
    if not mixed.any():
        return BoundedCurve(curve, curve.survival, curve.survival, True)
    counts, others = (events, censored) if of == "event" else (censored, events)
    at_risk = np.cumsum((events + censored)[::-1])[::-1]
    single = 0.0 if of == "event" else 1.0
    ends = []
    for gone in (1.0, 0.0):
        left = at_risk - np.where(mixed, gone, single) * others
        ends.append(product_limit(counts, left))
    return BoundedCurve(curve, ends[0], ends[1], False)


# --- Several resamples as counts of the rows, and their Kaplan-Meier curves.

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Timeline:
    """Outcomes in time order, events first at one time, and the censoring curve of the training rows or None."""

    time: FloatArray
    event: BoolArray
    censoring: KaplanMeier | None
    competing: BoolArray | None = None

    @property
    def ended(self) -> BoolArray:
        """Rows with the event or a competing one."""
        return self.event if self.competing is None else self.event | self.competing

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

    def of_rows(self, chosen: Integers) -> "Block":
        """Return the counts of some rows, for sums over them; curves and weights for censoring stay those of all."""
        return Block(self.line, self.drawn[:, chosen], None if self._weights is None else self._weights[chosen])

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
        """Kaplan-Meier curve of all events after each row, and 1 in front: shape (b, n + 1)."""
        return kaplan_meier_product(np.where(self.line.ended, self._lost, 0.0))

    @cached_property
    def uncensored(self) -> Matrix:
        """Kaplan-Meier curve of the censoring after each row, and 1 in front: shape (b, n + 1)."""
        return kaplan_meier_product(np.where(self.line.ended, 0.0, self._lost))

    def survival_at(self, t: float) -> Vector:
        """Kaplan-Meier curve of the event at t; where others compete, one less its incidence by Aalen-Johansen."""
        passed = self.line.passed(t)
        if self.line.competing is None:
            return np.asarray(self.survival[:, passed])
        # Each event of a tie takes its part of those before the tie: sums go row by row, too.
        events = np.flatnonzero(self.line.event[:passed])
        return np.asarray(1 - (self.survival[:, events] * self._lost[:, events]).sum(axis=1))

    @cached_property
    def row_weights(self) -> tuple[Matrix, BoolArray]:
        """G just before each row's time, and where it is known, as `censoring_survival` has them."""
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


# --- Quantiles of one value over chunks, processes or files: cuts of risk groups, points of grids.


class StreamingQuantiles(Accumulator):
    """Accumulate the distribution of one value; order statistics are exact up to `limit` distinct values.

    Beyond that each is the smallest value of its cell, which is below it by about the width of a cell in proportion.

    Examples
    --------
    >>> meter = StreamingQuantiles().update([5.0, 1.0]).update([3.0])
    >>> meter.compute([0, 1, 2])
    array([1., 3., 5.])
    """

    def __init__(self, *, limit: int = LIMIT) -> None:
        super().__init__()
        self.limit = as_count("limit", limit, at_least=1)
        self._sums["n"] = np.zeros((), dtype=np.int64)
        self._cells["values"] = SparseCells(1, self.limit)

    def _settings(self) -> tuple[Any, ...]:
        return (self.limit,)

    def update(self, values: Any) -> Self:
        """Add values; infinite ones are in order, NaN is not."""
        if np.size(values) == 0:
            return self
        self.add(as_score("values", values, np.size(values)))
        return self

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add values that were checked."""
        self._sums["n"] += values.size
        self._cells["values"].add((values,), np.ones(values.size, np.bool_))

    def compute(self, ranks: Any = (0,)) -> Vector:
        """Return the values at these ranks; rank 0 is that of the smallest."""
        self._need_rows()
        cells = self.cells()
        return np.asarray(cells.low[np.searchsorted(np.cumsum(cells.events), np.asarray(ranks), side="right")])

    def cells(self) -> CellCounts:
        """Return the counts behind the quantiles."""
        return self._cells["values"].cells()

    @property
    def exact(self) -> bool:
        """Whether every value is known."""
        return not self.cells().mixed.any()

    def spread(self, k: int) -> Vector:
        """Return up to k increasing values that divide the rows into parts of about equal size."""
        return np.unique(self.compute(np.arange(1, k + 1) * (self.n - 1) // k))
