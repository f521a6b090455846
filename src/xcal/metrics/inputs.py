"""What the metrics accept, checked once in the public functions; rows in small cells; how curves on a grid are read."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from xcal._checks import (
    MANY,
    FloatArray,
    as_choice,
    as_count,
    as_floats,
    as_numpy,
    as_probability,
    as_time,
    as_weights,
    check_same_length,
    effective_units,
    fail,
    first_row,
)
from xcal.data.surv import Outcome, as_outcome

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
# How a number is written: 0.98, 0.247, 24.7 %, a p-value, or with two digits however small it is.
Form = Literal["ratio", "fraction", "percent", "p", "small"]


@dataclass(frozen=True, eq=False)
class RowsAt:
    """Checked risks of rows by one time, and what happened to the rows: what metrics of one time are computed from.

    Attributes
    ----------
    risk : array, shape (n,)
        Predicted probability of an event by `at`.
    at : float
        The time.
    outcome : Outcome
    weights : array, shape (n,), or None
        Sampling weights in effective units; None if all are equal.
    known : bool
        Whether the rows can say something about the time: False after the last of theirs, unless that was clipped.
    """

    risk: Vector
    at: float
    outcome: Outcome
    weights: Vector | None
    known: bool

    @property
    def n_events(self) -> int:
        """Events by the time."""
        return int(np.count_nonzero(self.outcome.happened_by(self.at)))


def read_at(
    probability: Any,
    at: Any,
    *,
    time: Any,
    event: Any,
    competing: Any = None,
    weights: Any = None,
    censoring: Any = None,
    outside: str = "clip",
) -> RowsAt:
    """Check what a metric of one time takes."""
    beside = {"probability": probability, "weights": weights, "censoring": censoring}
    outcome = as_outcome(time, event, beside=beside, competing=competing)
    risk, moment = as_row_probability("probability", probability, outcome.n), as_time_point("at", at)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    return RowsAt(risk, moment, outcome, as_row_weights(weights, outcome.n), is_followed(moment, outcome, outside))


def is_followed(at: float, outcome: Outcome, outside: str) -> bool:
    """Return whether rows can say something about a time, by what was asked for `outside` their follow-up."""
    if at > outcome.last and outside == "raise":
        fail("at", f"a time within the follow-up, at most {outcome.last}", at)
    return at <= outcome.last or outside == "clip"


def as_score(name: str, values: Any, n: int) -> FloatArray:
    """One number per row of which only the order matters: infinite values are welcome, NaN has no place in an order."""
    array = as_floats(name, values)
    check_same_length(name, array, "time", n)
    missing = np.isnan(array)
    if missing.any():
        row = first_row(missing)
        fail(name, "numbers that can be put in order", array[row], row)
    return array


def as_row_probability(name: str, values: Any, n: int) -> Vector:
    """One probability for each of the n rows, as float64."""
    array: Vector = as_probability(name, values).astype(np.float64, copy=False)
    check_same_length(name, array, "time", n)
    return array


def as_row_weights(weights: Any, n: int) -> Vector | None:
    """Check sampling weights of the n rows, in effective units; None if there are none or all are equal."""
    return None if weights is None else effective_units(as_weights("weights", weights, n, reference="time"))


def mean_of(values: Vector, weights: Vector | None) -> float:
    """Mean of one value per row, by the weights of the rows if they have some."""
    return float(values.mean() if weights is None else weights @ values / weights.sum())


def as_curves(name: str, curves: Any, times: Any, n: int) -> tuple[FloatArray, Vector]:
    """One curve per row, shape (n, m), on m increasing times; a single column may come as shape (n,) with one time."""
    points = as_time_grid("times", times)
    array = as_numpy(name, curves)
    if array.ndim == 1 and points.size == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] != points.size:
        hint = " (transpose it?)" if array.shape == (points.size, n) else ""
        fail(name, f"shape (rows, {points.size}), one column for each of times", f"shape {array.shape}{hint}")
    check_same_length(name, array, "time", n)
    if array.dtype.kind != "f" or array.dtype == np.float16:
        array = array.astype(np.float64)
    # NaN makes both comparisons false, so one pass over extrema catches everything.
    if not (array.min() >= 0 and array.max() <= 1):
        row = first_row((~((array >= 0) & (array <= 1))).ravel())
        where = (row // points.size, row % points.size)
        fail(name, "probabilities in [0, 1]", array[where], where)
    return array, points


def as_time_grid(name: str, times: Any) -> Vector:
    """One or more strictly increasing times, as float64."""
    points: Vector = as_time(np.atleast_1d(as_numpy(name, times)), name=name).astype(np.float64, copy=False)
    falls = np.diff(points) <= 0
    if falls.any():
        row = first_row(falls) + 1
        fail(name, "strictly increasing times", f"{points[row]} after {points[row - 1]}", row)
    return points


def as_time_point(name: str, value: Any) -> float:
    """One finite time, zero or larger."""
    array = as_numpy(name, value)
    if array.ndim != 0:
        fail(name, "one number", f"shape {array.shape}")
    if not (np.isfinite(array) and array >= 0):
        fail(name, "a finite time, zero or larger", array)
    return float(array)


def running_sums(values: Matrix) -> Matrix:
    """Sum of the values before each place along the last axis, and of all: shape (..., n + 1).

    torch takes a quarter of numpy's time.

    Examples
    --------
    >>> running_sums(np.array([1.0, 2.0, 3.0]))
    array([0., 1., 3., 6.])
    """
    sums = np.zeros((*values.shape[:-1], values.shape[-1] + 1))
    torch.cumsum(torch.from_numpy(values), dim=-1, out=torch.from_numpy(sums)[..., 1:])
    return sums


def counted_quantiles(ordered: Vector, counts: npt.NDArray[Any], levels: Any) -> Vector:
    """Quantiles of increasing values as often as they count, interpolated as numpy does.

    Examples
    --------
    >>> counted_quantiles(np.array([1.0, 2.0]), np.array([3, 1]), [0.5, 1.0])
    array([1., 2.])
    """
    up_to = np.cumsum(counts)
    place = np.asarray(levels) * (up_to[-1] - 1)
    low = np.floor(place)
    below, above = (
        ordered[np.searchsorted(up_to, np.minimum(rank, up_to[-1] - 1), side="right")] for rank in (low, low + 1)
    )
    return np.asarray(below + (above - below) * (place - low))


# --- Cells of few rows: what is shown of them could tell what happened to one person.
# A cell is a number of rows that share something: a label, a range of risks or of F, an outcome, a time that they have
# reached. Whoever knows that J. Smith is the one patient of a ward learns from "1 event in 1 row" how he fared. So a
# cell of fewer than `min_cell` rows is merged with its neighbours, or its count is not told; an empty one may be
# shown. The rule is for what is written and shown. Values, tests and verdicts are computed from all rows, and of two
# tables that differ by a few rows the difference can still be taken: this is no anonymity in a strict sense.


def as_min_cell(value: Any) -> int:
    """Check a smallest number of rows."""
    return as_count("min_cell", value, at_least=0, at_most=MANY)


def is_small(count: float, min_cell: int) -> bool:
    """Return whether a cell has rows, and fewer than are shown."""
    return 0 < count < min_cell


def in_words(count: int, min_cell: int) -> str:
    """Write how many rows a cell has.

    Examples
    --------
    >>> in_words(3, 5), in_words(1_200, 5), in_words(0, 5)
    ('fewer than 5', '1,200', '0')
    """
    return f"fewer than {min_cell}" if is_small(count, min_cell) else f"{count:,}"


def said(min_cell: int) -> str:
    """Return the rule in words for the reader of a page; "" where all is shown."""
    if min_cell < 2:
        return ""
    return (
        f"Nothing is shown of fewer than {min_cell} rows: bins and groups of risk of so few are merged with their "
        "neighbours, and other groups of so few are not named. Values are of all rows."
    )


def told(count: int, of: int, min_cell: int) -> int | None:
    """Return a count that divides `of` rows in two cells; None where one of them is small.

    Examples
    --------
    >>> told(3, 40, 5), told(38, 40, 5), told(20, 40, 5), told(3, 40, 0)
    (None, None, 20, 3)
    """
    return None if is_small(count, min_cell) or is_small(of - count, min_cell) else count


def merged(counts: npt.ArrayLike, min_cell: int) -> npt.NDArray[np.int64]:
    """Join neighbouring cells until each is empty or large enough; gives the new number of each cell.

    Parameters
    ----------
    counts : array-like of shape (b,)
        Rows of b cells in their order.
    min_cell : int
        Rows of a cell that may stand alone. Fewer in all cells together are one cell.

    Examples
    --------
    >>> merged([7, 0, 1, 2, 9, 6, 1, 0], 5)
    array([0, 1, 2, 2, 2, 3, 3, 4])
    """
    cells = np.asarray(counts)
    # Empty cells at the end stay as they are: to join them would stretch the last bar of a histogram.
    filled = int(np.flatnonzero(cells)[-1]) + 1 if cells.any() else 0
    starts: list[int] = []
    so_far = 0
    for place in range(filled):
        if not is_small(so_far, min_cell):
            starts.append(place)
            so_far = 0
        so_far += cells[place]
    # What is left at the end joins the cells before it.
    while len(starts) > 1 and is_small(cells[starts[-1] :].sum(), min_cell):
        starts.pop()
    starts += range(filled, cells.size)
    return np.asarray(np.searchsorted(starts, np.arange(cells.size), side="right") - 1, dtype=np.int64)


def evened(counts: npt.NDArray[np.int64], min_cell: int, values: Vector | None = None) -> Vector:
    """Return the cells with the mean of those that `merged` joins in place of each, where all cells are to stay.

    `values` are what is shown of the cells, sums of weights say, if that is not their counts.

    Examples
    --------
    >>> evened(np.array([7, 0, 1, 2, 9]), 5)
    array([7., 0., 4., 4., 4.])
    """
    cells = merged(counts, min_cell)
    own = counts if values is None else values
    return np.asarray((np.bincount(cells, own) / np.bincount(cells))[cells], dtype=np.float64)


def starts_of(cells: npt.NDArray[np.int64]) -> npt.NDArray[np.intp]:
    """Return the first of the old cells in each of the new ones that `merged` made."""
    return np.searchsorted(cells, np.arange(cells[-1] + 1))


def merged_edges(edges: Vector, cells: npt.NDArray[np.int64]) -> Vector:
    """Return the edges that are left of a histogram's."""
    return np.append(edges[starts_of(cells)], edges[-1])


def two_digits(t: float) -> float:
    """Round a time down to two digits: that of a single row is not to be read off the end of an axis.

    Examples
    --------
    >>> two_digits(73.99138), two_digits(0.01299), two_digits(2659.0)
    (73.0, 0.012, 2600.0)
    """
    if t <= 0 or not math.isfinite(t):
        return t
    step = 10.0 ** (math.floor(math.log10(t)) - 1)
    return float(f"{math.floor(t / step) * step:.12g}")


def shown_range(first: float, last: float, min_cell: int) -> tuple[float, float]:
    """Return the first and the last time of some rows as they are shown: those of single rows are rounded.

    Examples
    --------
    >>> shown_range(0.01299, 73.99138, 5), shown_range(0.01299, 73.99138, 0)
    ((0.012, 73.0), (0.01299, 73.99138))
    """
    return (first, last) if min_cell < 2 else (two_digits(first), two_digits(last))


def rounded_time(t: float) -> float:
    """Return a time to three digits: a median of times in days is that of one row, and is not to be read off.

    Examples
    --------
    >>> rounded_time(5.03217), rounded_time(1826.4), rounded_time(0.0123456)
    (5.03, 1830.0, 0.0123)
    """
    return float(f"{t:.3g}")


def ends(values: Any, min_cell: int) -> tuple[float, float] | None:
    """Return the lowest and the highest value that a cell of rows reach; None for too few rows.

    Examples
    --------
    >>> ends([1.0, 2.0, 3.0, 4.0, 99.0], 2), ends([1.0, 99.0], 0), ends([1.0, 99.0], 2)
    ((2.0, 4.0), (1.0, 99.0), None)
    """
    ordered, place = np.sort(np.asarray(values, dtype=np.float64)), max(1, min_cell)
    return None if ordered.size < 2 * place - (place == 1) else (float(ordered[place - 1]), float(ordered[-place]))


def reached(time: Any, min_cell: int) -> float:
    """Return the last time that enough rows have reached, to two digits; where all is shown, the last time.

    Examples
    --------
    >>> reached([1.0, 8.25, 3.0, 9.5, 7.12, 7.36], 2), reached([1.0, 8.25, 9.5], 0)
    (8.2, 9.5)
    """
    ordered = np.sort(np.asarray(time, dtype=np.float64))
    if min_cell < 2:
        return float(ordered[-1])
    return two_digits(float(ordered[max(0, ordered.size - min_cell)]))


# --- Curves given on a grid of times, read between the grid's points.
# Every curve starts at S(0) = 1 and stays at its last value beyond the grid. In between, ``"linear"`` connects the
# points by straight lines, the first one to (0, 1), and ``"previous"`` holds the value of the last grid point passed
# (right-continuous, as a Kaplan-Meier curve). A grid that begins at time 0 brings its own first value.
#
# ``interpolation="step"`` of the discrete distributions is neither of them: it gives every time in a bin the value at
# the end of the bin, the next grid point.

Interpolation = Literal["linear", "previous"]
INTERPOLATIONS: tuple[Interpolation, ...] = ("linear", "previous")


def left_column(times: Vector, t: FloatArray | float) -> Integers:
    """Index of the last grid time that is not after t; -1 before the first."""
    return np.asarray(np.searchsorted(times, np.asarray(t, dtype=np.float64), side="right") - 1)


def column(curves: FloatArray, index: int, start: float) -> Vector:
    """One column of the curves in float64; index -1 stands for time 0, where every curve equals `start`."""
    if index < 0:
        return np.full(curves.shape[0], start)
    return curves[:, index].astype(np.float64)


def fraction(times: Vector, t: FloatArray | float, index: Integers) -> Vector:
    """How far t lies between the grid time at `index` and the next one; 0 beyond the last."""
    grid = np.concatenate([[0.0], times])
    left = grid[index + 1]
    right = grid[np.minimum(index + 2, times.size)]
    gap = right - left
    share: Vector = np.divide(np.asarray(t) - left, gap, out=np.zeros(np.shape(gap)), where=gap > 0)
    return share


def at_point(survival: FloatArray, times: Vector, t: float, interpolation: Interpolation) -> Vector:
    """Survival probability of every row at the one time t.

    Examples
    --------
    >>> import numpy as np
    >>> at_point(np.array([[0.8, 0.4]]), np.array([1.0, 2.0]), 1.5, "linear").round(3)
    array([0.6])
    """
    index = left_column(times, t)
    value = column(survival, int(index), 1.0)
    if interpolation == "linear":
        share = float(fraction(times, t, index))
        if share > 0:
            value = (1 - share) * value + share * column(survival, int(index) + 1, 1.0)
    return value


def at_own_time(survival: FloatArray, times: Vector, time: FloatArray, interpolation: Interpolation) -> Vector:
    """Survival probability of every row at its observed time."""
    index = left_column(times, time)
    rows = np.arange(time.size)
    value = np.where(index < 0, 1.0, survival[rows, np.maximum(index, 0)]).astype(np.float64)
    if interpolation == "linear":
        share = fraction(times, time, index)
        following = survival[rows, np.minimum(index + 1, times.size - 1)]
        value = (1 - share) * value + share * following
    return value


def restricted_mean(survival: FloatArray, times: Vector, interpolation: Interpolation) -> Vector:
    """Area under each curve from 0 to the last time of the grid."""
    widths = np.diff(times, prepend=0.0)
    # Weight of every column: a value that is held reaches to the right, a line to both sides. The rest is the curve's
    # start at 1.
    after = np.append(widths[1:], 0.0)
    if interpolation == "previous":
        return np.asarray(widths[0] + survival @ after)
    return np.asarray(widths[0] / 2 + survival @ ((widths + after) / 2))
