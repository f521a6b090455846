"""How often the model puts two rows in the order in which their events came: at once, over chunks, of resamples."""

from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, as_choice, fail, first_row
from xcal._kaplan_meier import KaplanMeier, sortable_time
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.cells import PairAccumulator, PairCellCounts
from xcal.metrics.inputs import (
    INTERPOLATIONS,
    Integers,
    Interpolation,
    Matrix,
    Vector,
    as_curves,
    as_row_weights,
    as_score,
    as_time_point,
    column,
    fraction,
    left_column,
    running_sums,
)
from xcal.metrics.observed import as_censoring, censoring_survival
from xcal.metrics.pairs import (
    CountedPairs,
    PairWeights,
    antolini_weights,
    first_outlasting,
    pair_weights,
    weighted_pairs,
)
from xcal.metrics.resamples import Block, product

Method = Literal["harrell", "uno", "antolini"]


@dataclass(frozen=True)
class Concordance:
    """A concordance index and the pairs behind it.

    Attributes
    ----------
    value : float
        ``(concordant + tied / 2) / comparable``; 0.5 for a prediction without information, 1 for a perfect order.
        NaN when no two rows can be compared.
    concordant, discordant, tied, comparable : float
        Number of pairs; for Uno's method, and of weighted rows, the sum of their weights. A tie is a pair with equal
        predictions.
    method : str
        "harrell", "uno" or "antolini".
    tau : float
        Events at or after this time opened no pair; infinite when none was set.
    n, n_events : int
        Rows, and rows with an event.
    n_dropped : int
        Events left out because their censoring weight is not known (Uno with ``outside="drop"``).
    """

    value: float
    concordant: float
    discordant: float
    tied: float
    comparable: float
    method: Method
    tau: float
    n: int
    n_events: int
    n_dropped: int = 0


def concordance_index(
    *,
    time: Any,
    event: Any,
    predicted_time: Any = None,
    risk: Any = None,
    survival: Any = None,
    cdf: Any = None,
    times: Any = None,
    method: Method | None = None,
    tau: float | None = None,
    interpolation: Interpolation = "linear",
    censoring: KaplanMeier | None = None,
    left_limit: bool = True,
    outside: Literal["drop", "raise", "clip"] = "drop",
    weights: Any = None,
    entry: Any = None,
) -> Concordance:
    r"""Concordance index of Harrell, of Uno or, for whole curves, of Antolini.

    A pair of rows is comparable when the one with the smaller time had its event, or when both have the same time and
    only one had its event: that one came first. Two events at one time are not comparable. Of a comparable pair,
    equal predictions count one half.

    Parameters
    ----------
    time, event : array-like, shape (n,)
        Observed times, finite and not negative; True where the event happened.
    predicted_time, risk : array-like, shape (n,)
        Give one of them for "harrell" and "uno". A larger `predicted_time` says that the event comes later, a larger
        `risk` that it comes sooner. Only the order matters, so infinite values are accepted; NaN is not.
    survival, cdf : array-like, shape (n, m)
        Give one of them for "antolini": every row's survival probability, or F, at the m increasing `times`. `cdf`
        keeps apart events so unlikely that 1 - F rounds to 1.
    times : array-like, shape (m,)
        The grid of `survival` or `cdf`.
    method : {"harrell", "uno", "antolini"}, optional
        By default "antolini" if curves are given, else "harrell". "uno" weighs the pairs of an event at t by
        :math:`1 / G(t-)^2`, so that the result does not depend on the censoring, only on `tau`.
    tau : float, optional
        Events at or after `tau` open no pair.
    interpolation : {"linear", "previous"}
        How to read curves between grid points; see `evaluate`. "previous" takes O(m n log n) time, "linear" O(n) for
        each event.
    censoring : KaplanMeier, optional
        Where Uno's G comes from: ``kaplan_meier(time=..., event=..., of="censoring")`` of the training rows. By
        default it is estimated from the rows at hand.
    left_limit : bool
        Weigh an event at t by G just before t, as Uno and others write it; False weighs it by G(t), as scikit-survival
        does. They differ only where an event and a censoring share a time.
    outside : {"drop", "raise", "clip"}
        For "uno", what to do with events at which G is not known or zero, usually those after the last training time:
        leave them out as if `tau` lay before them, refuse, or keep the last positive G.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row. A pair counts the product of two, and Uno's G is that of weighted
        rows. Equal weights change nothing. "antolini" takes O(n) for each event then.
    entry : array-like, shape (n,), optional
        Time from which each row was under observation. An event is then compared with the rows at risk at its time:
        those that had entered before it and outlast it. For "harrell", without weights. Rows of one person whose
        covariates change, each from its start to its end, are such rows.

    Returns
    -------
    Concordance
        Its value is NaN when there is no comparable pair: no events, one row, or one single time without censoring.

    Notes
    -----
    Harrell's and Uno's index take O(n log n) time and O(n) memory. Harrell's depends on how much is censored, because
    pairs whose earlier row is censored are left out.

    References
    ----------
    Harrell, Lee, Mark (1996), Statistics in Medicine 15(4):361-387. Uno et al. (2011), Statistics in Medicine
    30(10):1105-1117. Antolini, Boracchi, Biganzoli (2005), Statistics in Medicine 24(24):3927-3944.

    Examples
    --------
    >>> time, event = [1, 2, 3, 4], [1, 0, 1, 1]
    >>> concordance_index(time=time, event=event, predicted_time=[1, 2, 4, 3]).value
    0.75
    >>> concordance_index(time=time, event=event, risk=[9, 8, 2, 5]).value
    0.75
    """
    beside = {"predicted_time": predicted_time, "risk": risk, "survival": survival, "cdf": cdf, "weights": weights}
    outcome = as_outcome(time, event, beside={**beside, "entry": entry}).entered(entry)
    limit = np.inf if tau is None else as_time_point("tau", tau)
    default: Method = "antolini" if survival is not None or cdf is not None else "harrell"
    method = as_choice("method", default if method is None else method, ("harrell", "uno", "antolini"))
    n_dropped = 0
    rows = as_row_weights(weights, outcome.n)
    if outcome.entry is not None:
        for name, given, expected in (
            ("method", method != "harrell", "'harrell'"),
            ("weights", rows is not None, "None"),
        ):
            if given:
                fail(name, f"{expected} beside times of entry", "another" if name == "method" else "weights")
        score = _one_score(predicted_time, risk, outcome.n)
        opens = None if limit == np.inf else (outcome.time < limit).astype(np.float64)
        pairs = weighted_pairs(outcome, score, np.ones(outcome.n), opens)
    elif method == "antolini":
        pairs = _antolini(outcome, survival, cdf, times, interpolation, limit, rows)
    else:
        score = _one_score(predicted_time, risk, outcome.n)
        weight = None
        if method == "uno":
            as_choice("outside", outside, ("drop", "raise", "clip"))
            curve = as_censoring(censoring, outcome, rows)
            weight, n_dropped = _uno_weight(outcome, limit, curve, left_limit, outside)
        elif limit < np.inf:
            weight = (outcome.time < limit).astype(np.float64)
        pairs = pair_weights(outcome, score, weight) if rows is None else weighted_pairs(outcome, score, rows, weight)
    return summary(pairs, method, limit, outcome.n, int(np.count_nonzero(outcome.event)), n_dropped)


def _one_score(predicted_time: Any, risk: Any, n: int) -> FloatArray:
    """Scores that grow with the time of the event."""
    if (predicted_time is None) == (risk is None):
        got = "neither" if risk is None else "both"
        fail("predicted_time, risk", "exactly one of the two", got)
    if risk is None:
        return as_score("predicted_time", predicted_time, n)
    return np.negative(as_score("risk", risk, n))


def _uno_weight(outcome: Outcome, tau: float, curve: KaplanMeier, left_limit: bool, outside: str) -> tuple[Vector, int]:
    """Squared inverse of the probability that an event at this time was not censored before, for both rows of a pair.

    The earlier row was seen to have its event at t and the later one was seen to outlast t: each is observed with
    probability G(t).
    """
    opens = outcome.event & (outcome.time < tau)
    g, known = censoring_survival(curve, outcome.time, left_limit=left_limit)
    unknown = opens & ~known
    if outside == "raise" and unknown.any():
        row = first_row(unknown)
        fail("time", "events no later than the times behind `censoring`, where G > 0", outcome.time[row], row)
    if outside == "clip":
        unknown[:] = False
    used = opens & ~unknown
    return np.where(used, 1.0 / np.square(g), 0.0), int(np.count_nonzero(unknown))


def _antolini(
    outcome: Outcome,
    survival: Any,
    cdf: Any,
    times: Any,
    interpolation: Interpolation,
    tau: float,
    rows: Vector | None,
) -> PairWeights:
    """Check the curves and compare them."""
    if (survival is None) == (cdf is None):
        fail("survival, cdf", "exactly one of the two", "neither" if cdf is None else "both")
    if times is None:
        fail("times", "the grid on which the curves are given", None)
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    increasing = survival is None
    name, given = ("cdf", cdf) if increasing else ("survival", survival)
    curves, grid = as_curves(name, given, times, outcome.n)
    how: dict[str, Any] = {"increasing": increasing, "interpolation": interpolation, "tau": tau, "rows": rows}
    return antolini_weights(outcome, curves, grid, **how)


def summary(pairs: PairWeights, method: Method, tau: float, n: int, n_events: int, n_dropped: int = 0) -> Concordance:
    """Return the index of these pairs, of `n` rows with `n_events` events."""
    agreed = pairs.concordant + pairs.tied / 2
    return Concordance(
        value=agreed / pairs.comparable if pairs.comparable > 0 else float("nan"),
        concordant=pairs.concordant,
        discordant=pairs.comparable - pairs.concordant - pairs.tied,
        tied=pairs.tied,
        comparable=pairs.comparable,
        method=method,
        tau=tau,
        n=n,
        n_events=n_events,
        n_dropped=n_dropped,
    )


# --- Harrell's concordance over chunks, processes or files.

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
        outcome = as_outcome(time, event, beside={"risk": risk})
        self.add(outcome.time, outcome.event, as_score("risk", risk, outcome.n))
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
    return pair_weights(Outcome(np.repeat(np.tile(time, 2), counts), event), -np.repeat(np.tile(risk, 2), counts))


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


# --- Concordance of resamples: weights of Uno's pairs, and Antolini's index. `metrics.pairs.CountedPairs` has the
# rest.

# Numbers compared at a time, and summed by one matrix product.
_BLOCK = 1 << 19


def uno_weights(block: Block) -> Matrix:
    """Squared inverse of G at each event; zero where it is not known."""
    g, known = block.row_weights
    return np.where(known, 1 / np.square(g), 0.0)


# --- Concordance until a horizon, where other events may compete.


class CountedConcordance:
    r"""Concordance of events by one time, of rows in time order, with weights for censoring and several resamples.

    A row with the event at t is compared with every row that outlasts t, weighted by :math:`1 / G(t-)^2`, and, where
    others compete, with every row whose competing event came before, at s: it never has this event. That pair has the
    weight :math:`1 / (G(t-) G(s-))`.
    """

    def __init__(self, outcome: Outcome, risk: Vector, at: float) -> None:
        case = outcome.happened_by(at)
        self._later = self._of(outcome.time, case, risk, np.arange(outcome.n))
        self._earlier: list[tuple[Integers, CountedPairs]] = []
        self._case = case
        if outcome.competing is not None:
            # Backwards in time a competing event outlasts the events after it; those of its own moment are counted.
            back = outcome.time.max() - outcome.time.astype(np.float64)
            back = np.where(case, np.nextafter(back, np.inf), back)
            both = (np.flatnonzero(case | outcome.competing), np.flatnonzero(case))
            self._earlier = [self._of(back, case, risk, rows) for rows in both if case.any()]

    @staticmethod
    def _of(time: FloatArray, case: BoolArray, risk: Vector, rows: Integers) -> tuple[Integers, CountedPairs]:
        chosen = Outcome(time[rows], case[rows])
        order = chosen.order()
        return rows[order], CountedPairs(chosen.take(order), -risk[rows[order]])

    def values(self, counts: Matrix, g: Matrix, known: BoolArray) -> Vector:
        """Return the index of each line of counts, shape (b, n), with G just before each row's time; NaN without."""
        inverse = np.broadcast_to(np.where(known, 1 / g, 0.0), counts.shape)
        order, pairs = self._later
        sums = np.array(pairs.weights(counts[:, order], [np.square(inverse[:, order])])[0])
        others = np.where(self._case, counts, counts * inverse)
        for sign, (order, pairs) in zip((1.0, -1.0), self._earlier, strict=False):
            sums = sums + sign * np.array(pairs.weights(others[:, order], [inverse[:, order]])[0])
        agreed, tied, comparable = sums
        return np.asarray(
            np.divide(agreed + tied / 2, comparable, out=np.full(comparable.size, np.nan), where=comparable > 0)
        )


def concordance_at(
    risk: Vector, at: float, outcome: Outcome, censoring: KaplanMeier | None = None, weights: Vector | None = None
) -> float:
    """Return the concordance of checked risks by one time with the events by then; see `CountedConcordance`.

    References
    ----------
    Wolbers, Blanche, Koller, Witteman, Gerds (2014), Biostatistics 15(3):526-539.
    """
    g, known = censoring_survival(as_censoring(censoring, outcome, weights), outcome.time, left_limit=True)
    counts = np.ones((1, outcome.n)) if weights is None else weights[None, :]
    return float(CountedConcordance(outcome, risk, at).values(counts, g[None, :], known[None, :])[0])


def antolini_indices(
    outcome: Outcome,
    survival: FloatArray,
    times: Vector,
    interpolation: Interpolation,
    counts: npt.NDArray[np.float32] | Vector,
) -> Vector:
    """Antolini's concordance of every resample, rows in time order, counts of shape (b, n).

    Which row of a pair the curves put first is the same in every resample: a matrix of events and later rows, worked
    out a few events at a time, and multiplied with the counts of all resamples. The entries are 0, 1/2 and 1 and the
    sums below 2^24, so that single precision is exact; counts that are weights come in double precision.
    """
    time, event = outcome.time, outcome.event
    keys = sortable_time(time, event)
    outlasting = first_outlasting(keys)
    agreed, comparable = np.zeros(counts.shape[0]), np.zeros(counts.shape[0])
    total = counts.sum(axis=1, dtype=np.float64)
    before = running_sums(counts.astype(np.float64))
    events = np.flatnonzero(event)
    left = left_column(times, time[events])
    for k in np.unique(left):  # -1 stands for time 0
        own = events[left == k]
        share = fraction(times, time[own], left[left == k]) if interpolation == "linear" else np.zeros(own.size)
        first = int(own[0])
        base = column(survival[first:], int(k), 1.0)
        following = column(survival[first:], min(int(k) + 1, times.size - 1), 1.0)
        step = max(1, _BLOCK // base.size)
        for start in range(0, own.size, step):
            part, s = own[start : start + step], share[start : start + step, None]
            score = (1 - s) * base + s * following if s.any() else np.broadcast_to(base, (part.size, base.size))
            mine = score[np.arange(part.size), part - first][:, None]
            order = (score > mine).astype(counts.dtype) + 0.5 * (score == mine).astype(counts.dtype)
            order[np.arange(first, keys.size) < outlasting[part][:, None]] = 0.0
            weight = counts[:, part].astype(np.float64)
            agreed += np.einsum("bi,bi->b", product(counts[:, first:], order.T), weight)
            comparable += np.einsum("bi,bi->b", total[:, None] - before[:, outlasting[part]], weight)
    return np.asarray(np.divide(agreed, comparable, out=np.full(agreed.size, np.nan), where=comparable > 0))
