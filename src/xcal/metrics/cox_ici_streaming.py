"""The calibration index by a Cox model over chunks, processes or files, and the range that holds it."""

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, as_count
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.cells import (
    Accumulator,
    CellCounts,
    GridAxis,
    PairAccumulator,
    PairCellCounts,
    as_grid,
    sums_as_floats,
    unit_sums,
    unit_sums_by_bin,
)
from xcal.metrics.cox import (
    CoxICI,
    SmoothCurve,
    curve_basis,
    fitted_curve,
    index_of_curve,
    knot_levels,
    log_hazard,
    spline_piece,
)
from xcal.metrics.inputs import Matrix, Vector, as_row_probability, as_time_point, counted_quantiles

# --- The calibration index by a Cox model (`cox_ici`) over chunks, processes or files.
# Its sums can be formed without holding the rows; pseudo-values, behind `integrated_calibration_index`, need all of
# them.

# Different rows (time, event, prediction) kept by default: 8 megabytes.
LIMIT = 1 << 18


@dataclass(frozen=True, eq=False)
class GriddedCoxICI:
    """ICI of rows whose times and predictions were moved to their cells.

    Attributes
    ----------
    index : CoxICI
        That of the moved rows, exactly: of a model that gives its probabilities in steps.
    resolution : float
        Farthest that a prediction was moved; zero where none was.
    exact : bool
        Whether no prediction and no time was moved. Then `index` is that of `cox_ici`.
    curve : SmoothCurve
        What was fitted to the moved rows.
    """

    index: CoxICI
    resolution: float
    exact: bool
    curve: SmoothCurve = field(repr=False)


class StreamingCoxICI(PairAccumulator):
    """Accumulate the calibration index by a Cox model on a grid; see `cox_ici`.

    Rows are counted by time and prediction, exactly up to `limit` different rows. Beyond that predictions and times are
    moved to the middles of cells, and the smooth curve is fitted to the counts.

    Parameters
    ----------
    at : float
        The time.
    n_knots : int
        Knots of the spline.
    grids : tuple of two arrays, optional
        Fixed times and probabilities; the state is then a table of a fixed shape. `at` must be one of the times.
    limit : int
        Different rows kept without grids.
    knots : array, optional
        Of the spline, on the scale of log(-log(1 - p)); by default quantiles of the moved predictions.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=2000)
    >>> meter = StreamingCoxICI(at=1.0).update(1 - np.exp(-rate), time=rng.exponential(1 / rate), event=np.ones(2000))
    >>> meter.compute().exact, meter.compute().index.value < 0.03
    (True, True)
    """

    def __init__(
        self,
        *,
        at: float,
        n_knots: int = 3,
        grids: tuple[Any, Any] | None = None,
        limit: int = LIMIT,
        knots: Vector | None = None,
    ) -> None:
        self.at = as_time_point("at", at)
        super().__init__(grids, limit, [self.at])
        self.n_knots = as_count("n_knots", n_knots, at_least=3)
        self.knots = knots
        self._sums["followed"] = np.zeros((), np.int64)

    def _settings(self) -> tuple[Any, ...]:
        return *super()._settings(), self.at, self.n_knots, "none" if self.knots is None else self.knots

    def update(self, probability: Any, *, time: Any, event: Any) -> Self:
        """Add rows: probability of an event by `at`, and the outcome."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        outcome = as_outcome(time, event, beside={"probability": probability})
        self.add(as_row_probability("probability", probability, outcome.n), outcome.time, outcome.event)
        return self

    def add(
        self,
        probability: FloatArray,
        time: FloatArray,
        event: BoolArray,
        place: npt.NDArray[np.intp] | None = None,
    ) -> None:
        """Add rows that were checked; `place` is `time_place` of an accumulator with the same grid of times."""
        self._sums["followed"] += np.count_nonzero(time >= self.at)
        self._count(time, probability, event, place)

    def compute(self) -> GriddedCoxICI:
        """Return the index of all rows seen so far; NaN where no row was followed until `at`."""
        self._need_rows()
        cells = self._pair_cells()
        known = bool(self._sums["followed"] > 0)
        p, time, event, counts = _moved_rows(cells)
        rough = bool(cells.mixed[0].any())
        curve = fitted_curve(p, Outcome(time, event), self.at, self.n_knots, counts, knots=self.knots, rough=rough)
        index = index_of_curve(p, counts, curve, self.at, known=known)
        low, high = _within_unit(cells)
        used = np.unique(cells.place[1])
        resolution = float(np.max((high - low)[used] / 2, initial=0.0))
        return GriddedCoxICI(index, resolution, not any(axis.any() for axis in cells.mixed), curve)


def _within_unit(cells: PairCellCounts) -> tuple[Vector, Vector]:
    """Smallest and largest probability of each cell."""
    return np.maximum(cells.low[1], 0.0), np.minimum(cells.high[1], 1.0)


def _moved_rows(cells: PairCellCounts) -> tuple[Vector, Vector, BoolArray, Vector]:
    """Predictions at the middles of their cells, times, events, and how often each counts.

    Where rows at several times share a cell, half of the censored ones leave before the events (the actuarial rule).
    """
    low, high = _within_unit(cells)
    middle = np.where(low == high, low, (low + high) / 2)[cells.place[1]]
    mixed = cells.mixed[0][cells.place[0]]
    # The order of the times is what counts, and that the events of a cell come after the time before it.
    time = np.maximum(cells.low[0], 0.0)[cells.place[0]]
    early = np.where(mixed, cells.censored / 2, 0.0)
    before = np.maximum(np.nextafter(time, -np.inf), 0.0)
    counts = np.concatenate([cells.events, cells.censored - early, early])
    filled = counts > 0
    event = np.repeat([True, False, False], time.size)
    return (
        np.tile(middle, 3)[filled],
        np.concatenate([time, time, before])[filled],
        event[filled],
        counts[filled],
    )


# --- Sums over risk sets of the Cox model behind ICI, at one place of its coefficients, over chunks or files.


@dataclass(frozen=True, eq=False)
class Place:
    """A place of the coefficients, and the range of predictions: all that rows are measured by.

    Columns of the basis are moved to [0, 1], and weights exp(score) divided by the largest, so that sums are of whole
    numbers.
    """

    knots: Vector | None
    coefficients: Vector  # (P,) of the columns of the basis
    lowest: float  # prediction
    highest: float

    @property
    def columns(self) -> int:
        """Columns of the basis."""
        return int(self.coefficients.size)

    @property
    def ends(self) -> Matrix:
        """Basis of the lowest and the highest prediction, (2, P): every column grows with the prediction."""
        return curve_basis(log_hazard(np.array([self.lowest, self.highest])), self.knots)

    @property
    def slopes(self) -> Vector:
        """Coefficients of the columns in [0, 1]."""
        low, high = self.ends
        return np.asarray(self.coefficients * (high - low))

    def basis(self, p: Vector) -> Matrix:
        """Columns in [0, 1], (n, P)."""
        low, high = self.ends
        return np.asarray(np.clip((curve_basis(log_hazard(p), self.knots) - low) / (high - low), 0.0, 1.0))

    def weights(self, basis: Matrix) -> Vector:
        """Return exp(score) divided by what it cannot exceed."""
        return np.asarray(np.exp(basis @ self.slopes - np.maximum(self.slopes, 0.0).sum()))


@dataclass(frozen=True, eq=False)
class RiskSetSums:
    """Sums over the rows of each cell of time, K of them in increasing order."""

    weight: Vector  # (K,)
    first: Matrix  # (K, P) weight times basis
    second: Matrix  # (K, P, P) weight times basis times basis
    deaths: Vector  # (K,)
    early: BoolArray  # (K,) whether the deaths of the cell happened by the time of the index
    dead: Vector  # (P,) basis of all who died


class StreamingRiskSets(Accumulator):
    """Accumulate, by cells of time, what the partial likelihood and its derivatives at one place are made of.

    Parameters
    ----------
    place : Place
    times : array
        Ends of the cells. `at` is one of them.
    at : float
        Time of the index.
    """

    def __init__(self, place: Place, times: Any, at: float) -> None:
        super().__init__()
        self.place, self.at = place, at
        self._axis = GridAxis(as_grid("times", times))
        self._pairs = np.triu_indices(place.columns)
        size, p = self._axis.size, place.columns
        self._sums["n"] = np.zeros((), dtype=np.int64)
        self._sums["deaths"] = np.zeros(size, dtype=np.int64)
        self._sums["dead"] = np.zeros((2, p), dtype=np.int64)
        self._sums["moments"] = np.zeros((2, 1 + p + self._pairs[0].size, size), dtype=np.int64)

    def _settings(self) -> tuple[Any, ...]:
        own = self.place
        knots = "none" if own.knots is None else own.knots
        return self._axis.points, self.at, knots, own.coefficients, own.lowest, own.highest

    def add(self, probability: FloatArray, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        cell = self._axis.place(time)
        basis = self.place.basis(probability.astype(np.float64, copy=False))
        weight = self.place.weights(basis)
        self._sums["n"] += time.size
        self._sums["deaths"] += np.bincount(cell[event], minlength=self._axis.size)
        self._sums["dead"] += unit_sums(basis[event])
        one, other = self._pairs
        parts = [weight, *(weight * column for column in basis.T), *(weight * (basis[:, one] * basis[:, other]).T)]
        for number, part in enumerate(parts):
            self._sums["moments"][:, number] += unit_sums_by_bin(cell, part, self._axis.size)

    def compute(self) -> RiskSetSums:
        """Return the sums as floats."""
        self._need_rows()
        p = self.place.columns
        moments = sums_as_floats(self._sums["moments"])
        second = np.empty((self._axis.size, p, p))
        one, other = self._pairs
        second[:, one, other] = second[:, other, one] = moments[1 + p :].T
        return RiskSetSums(
            moments[0],
            moments[1 : p + 1].T,
            second,
            self._sums["deaths"].astype(np.float64),
            np.append(self._axis.points, np.inf) <= self.at,
            sums_as_floats(self._sums["dead"]),
        )


# --- The range that holds the ICI of the rows, from sums over risk sets at one place near the fit.
# The curve behind ICI is 1 - exp(-H exp(b'z)): z is the spline basis of a row, b the maximum of a Cox partial
# likelihood,
# H the baseline hazard. What is known: a place a near b, and by cells of time the sums of w, w y and w y y' with
# w = exp(a'y). The basis y has knots in cells of predictions; that of the rows' own knots is z = y + d with |d| small,
# so
# that a row's weight exp(a'z) is within w exp(+-e). At a death all rows of later cells are at risk; those of its own
# cell may be, or with ties a part of each.
#
# 1. *Information.* A variance is a least weighted square: at every death it is at least exp(-2 e) l / (l + o) times
# that
#    of y over the later cells, with l and o the weights of the later cells and of the own one. J is the sum over
# deaths.
#    Lengths are in its metric from here: of z by J^-1, of b - a by J. A standard deviation changes by |d| <= h at
# most,
#    so the information at a is at least (1 - v)^2 J with v^2 = h^2 sum exp(-2 e) l / (l + o).
# 2. *Gradient.* With E the mean of y over the later cells and half of the own cell, the mean of z over the true risk
# set
#    minus E is a sum of (u exp(a'z) - u' w)(y - E) and of u exp(a'z) d over the sum of u exp(a'z); u is the part of a
# row
#    that is at risk, u' = 1 or 1/2. Its length is at most `spread`, by the inequality of Cauchy and Schwarz. So the
#    gradient at a is known up to the sum over deaths of `spread` + h; its length is at most c.
# 3. *Fit.* The third derivative of log sum exp along a line is at most R times the second, R the range of (b - a)'z:
# the
#    second derivative falls no faster than exp(-R s). The gradient at b is zero, so |b - a| (1 - exp(-R)) / R <= q
# with
#    q = c / (1 - v)^2. As R <= D |b - a|, D the diameter of the rows, |b - a| <= r = -log(1 - q D) / D; if q D >= 1,
#    nothing is known.
# 4. *Hazard.* For any m, exp(-(b - a)'m) sum u exp(b'z) = sum u exp(a'z) exp(x) with |x| <= r |z - m|. It is at least
#    W exp(-r |mean - m|) by Jensen's inequality, and at most W (1 + r |mean - m|) + exp(r D) / 2 sum u exp(a'z) x^2.
# 5. *Rows.* Every cell of predictions has a range of log H + b'z, so one of the curve, and one of the distance to the
#    prediction. Means and quantiles grow with each of these distances.

Range = tuple[float, float]
_ROUNDING = 1e-7  # of what is computed here, and where Newton's method stops
_ANY = (0.0, 1.0)


@dataclass(frozen=True)
class IndexRange:
    """Least and largest values that ICI, E50, E90 and Emax of the rows can have; zero and one if nothing is known."""

    value: Range = _ANY
    e50: Range = _ANY
    e90: Range = _ANY
    emax: Range = _ANY


def knot_range(cells: CellCounts, n_knots: int) -> tuple[Vector, Vector] | None:
    """Least and largest place of each knot of rows whose predictions lie in cells; None if two may be the same."""
    rows = cells.events + cells.censored
    low, high = (counted_quantiles(log_hazard(end), rows, knot_levels(n_knots)) for end in _ends(cells))
    return None if (high[:-1] >= low[1:]).any() else (low, high)


def index_range(sums: RiskSetSums, place: Place, cells: CellCounts, knots: tuple[Vector, Vector]) -> IndexRange:
    """Range of the index of rows with these sums, whose predictions lie in `cells` and whose knots in `knots`."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # what is not known is infinite
        hazards = _log_hazard_range(sums, place, cells, _moved_by_knots(place, knots))
        low, high = (-np.expm1(-np.exp(end)) for end in hazards)
    if np.isnan(low).any() or np.isnan(high).any():
        return IndexRange()
    first, last = _ends(cells)
    rows = cells.events + cells.censored
    nearest = np.maximum(np.maximum(first - high, low - last), 0.0)
    farthest = np.minimum(np.maximum(last - low, high - first), 1.0)
    ends = []
    for error, off in ((nearest, -_ROUNDING), (farthest, _ROUNDING)):
        order = np.argsort(error)
        quantiles = counted_quantiles(error[order], rows[order], [0.5, 0.9, 1.0])
        ends.append(np.clip(np.array([np.average(error, weights=rows), *quantiles]) + off, 0.0, 1.0))
    return IndexRange(*((float(one), float(other)) for one, other in zip(*ends, strict=True)))


def _ends(cells: CellCounts) -> tuple[Vector, Vector]:
    """Smallest and largest prediction of each cell."""
    return np.clip(cells.low, 0.0, 1.0), np.clip(cells.high, 0.0, 1.0)


def _moved_by_knots(place: Place, knots: tuple[Vector, Vector]) -> Vector:
    """Farthest that a column of the basis, in [0, 1], can be from that of the rows' own knots, (P,).

    `spline_piece` says in which direction a piece grows with each knot. The difference of two pieces is a difference of
    tents integrated twice, so where one tent contains the other it grows with x: the highest prediction is the worst.
    """
    assert place.knots is not None
    x = log_hazard(np.array([place.highest]))
    unit = (place.knots[-1] - place.knots[0]) ** 2
    width = np.diff(place.ends, axis=0)[0]
    (low, high), own = knots, place.knots
    off = [0.0]
    for k in range(own.size - 2):
        mine = spline_piece(x, own[k], own[-2], own[-1])
        least, most = spline_piece(x, high[k], low[-2], low[-1]), spline_piece(x, low[k], high[-2], high[-1])
        off.append(float(np.maximum(most - mine, mine - least)[0]) / unit / width[k + 1])
    return np.array(off)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Weight, weight times y and weight times y y' of sets of rows, in the metric of the proof."""

    weight: Vector  # (K,)
    first: Matrix  # (K, P)
    square: Vector  # (K,) weight times |y|^2

    def away(self, place: Matrix) -> Vector:
        """Sum of weight times |y - place|^2, place (P,) or (K, P)."""
        return np.asarray(
            np.maximum(
                self.square - 2 * (self.first * place).sum(-1) + self.weight * np.square(place).sum(-1),
                0.0,
            )
        )


@dataclass(frozen=True, eq=False)
class _Known:
    """What is known before the fit: risk sets of each cell with a death, in the metric of the proof."""

    deaths: Vector  # (K,)
    early: Vector  # (K,) those by the time of the index
    after: _Moments  # rows of later cells
    maybe: _Moments  # rows of the own cell
    e: float
    h: float
    left: float  # (1 - v)^2
    root: Matrix

    @classmethod
    def of(cls, sums: RiskSetSums, place: Place, moved: Vector) -> "_Known":
        """Step 1: information, and its metric."""
        some = sums.deaths > 0
        deaths, early = sums.deaths[some], np.where(sums.early, sums.deaths, 0.0)[some]
        later, own = _later(sums, some), (sums.weight[some], sums.first[some], sums.second[some])
        e = float(np.abs(place.slopes) @ moved)
        part = np.exp(-2 * e) * deaths * later[0] / (later[0] + own[0])
        root = _root(later, part)
        h = float(np.sqrt(np.square(moved @ np.abs(root)).sum()))
        left = max(1 - h * np.sqrt(part.sum()), 0.0) ** 2
        sets = [_Moments(w, f @ root, np.einsum("kpq,pr,qr->k", s, root, root)) for w, f, s in (later, own)]
        return cls(deaths, early, sets[0], sets[1], e, h, left, root)

    @property
    def mean(self) -> Matrix:
        """E of each cell, (K, P)."""
        half = (self.after.first + self.maybe.first / 2, self.after.weight + self.maybe.weight / 2)
        return np.asarray(half[0] / half[1][:, None])

    def spread(self, mean: Matrix) -> Vector:
        """Farthest that the mean of a true risk set can be from E, (K,)."""
        after, maybe, most = self.after, self.maybe, np.exp(self.e)
        far = [np.sqrt(rows.weight * rows.away(mean)) for rows in (after, maybe)]
        total = (most - 1) * far[0] + (most - 0.5) * far[1] + most * self.h * (after.weight + maybe.weight)
        return np.asarray(np.where(after.weight > 0, most * total / after.weight, np.inf))

    def hazard(self, radius: float, diameter: float, off: Vector, middle: Vector) -> tuple[float, float]:
        """Step 4: range of log H, less what `middle` adds to it."""
        after, maybe = self.after, self.maybe
        both = after.weight + maybe.weight
        squares = np.square(np.sqrt(after.away(middle) + maybe.away(middle)) + self.h * np.sqrt(both))
        most = np.exp(self.e) * (both * (1 + off) + radius**2 / 2 * np.exp(radius * diameter) * squares)
        least = np.exp(-self.e - off) * after.weight
        some = self.early > 0
        low, high = (float(np.log(np.sum(self.early[some] / total[some]))) for total in (most, least))
        return low, high


def _log_hazard_range(sums: RiskSetSums, place: Place, cells: CellCounts, moved: Vector) -> tuple[Vector, Vector]:
    """Range of log H + b'z in each cell of predictions, by the steps of the proof."""
    known = _Known.of(sums, place, moved)
    ends = [place.basis(end) for end in _ends(cells)]
    y, half = (ends[0] + ends[1]) / 2, np.abs(ends[1] - ends[0]) / 2
    mean = known.mean
    middle = known.early @ mean / known.early.sum()
    width = np.sqrt(np.square(half @ np.abs(known.root)).sum(axis=1))
    distance = np.sqrt(np.square(y @ known.root - middle).sum(axis=1)) + width + known.h
    diameter = 2 * float(distance.max())

    # 2. Gradient.
    spread = np.minimum(known.spread(mean), diameter)
    gradient = float(np.sqrt(np.square(sums.dead @ known.root - known.deaths @ mean).sum()))
    gradient += float(known.deaths @ (known.h + spread))

    # 3. Fit.
    rest = 1 - gradient * diameter / known.left if known.left > 0 else 0.0
    radius = float(-np.log(rest)) / diameter if rest > 0 else np.inf

    # 4. Hazard, and 5. rows.
    off = radius * (np.sqrt(np.square(mean - middle).sum(axis=1)) + spread)
    low, high = known.hazard(radius, diameter, off, middle)
    score = np.log(place.weights(y))
    off_score = half @ np.abs(place.slopes) + known.e + radius * distance
    return low + score - off_score, high + score + off_score


def _later(sums: RiskSetSums, some: npt.NDArray[np.bool_]) -> tuple[Vector, Matrix, Matrix]:
    """Return the sums over the rows of later cells, for cells with a death."""
    parts = (sums.weight, sums.first, sums.second)
    from_end = [np.cumsum(part[::-1], axis=0)[::-1] for part in parts]
    weight, first, second = (np.concatenate([sum_[1:], np.zeros_like(sum_[:1])])[some] for sum_ in from_end)
    return weight, first, second


def _root(later: tuple[Vector, Matrix, Matrix], part: Vector) -> Matrix:
    """Return R with R R' = J^-1: lengths of y R are those of the proof; infinite if J is singular."""
    weight, first, second = later
    safe = np.where(weight > 0, weight, 1.0)
    mean = first / safe[:, None]
    information = np.einsum("k,kpq->pq", part / safe, second) - np.einsum("k,kp,kq->pq", part, mean, mean)
    try:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(information)).T)
    except np.linalg.LinAlgError:
        return np.full(information.shape, np.inf)
