r"""The range that holds the ICI of the rows, from sums over risk sets at one place near the fit.

The curve behind ICI is 1 - exp(-H exp(b'z)): z is the spline basis of a row, b the maximum of a Cox partial likelihood,
H the baseline hazard. What is known: a place a near b, and by cells of time the sums of w, w y and w y y' with
w = exp(a'y). The basis y has knots in cells of predictions; that of the rows' own knots is z = y + d with |d| small, so
that a row's weight exp(a'z) is within w exp(+-e). At a death all rows of later cells are at risk; those of its own
cell may be, or with ties a part of each.

1. *Information.* A variance is a least weighted square: at every death it is at least exp(-2 e) l / (l + o) times that
   of y over the later cells, with l and o the weights of the later cells and of the own one. J is the sum over deaths.
   Lengths are in its metric from here: of z by J^-1, of b - a by J. A standard deviation changes by |d| <= h at most,
   so the information at a is at least (1 - v)^2 J with v^2 = h^2 sum exp(-2 e) l / (l + o).
2. *Gradient.* With E the mean of y over the later cells and half of the own cell, the mean of z over the true risk set
   minus E is a sum of (u exp(a'z) - u' w)(y - E) and of u exp(a'z) d over the sum of u exp(a'z); u is the part of a row
   that is at risk, u' = 1 or 1/2. Its length is at most `spread`, by the inequality of Cauchy and Schwarz. So the
   gradient at a is known up to the sum over deaths of `spread` + h; its length is at most c.
3. *Fit.* The third derivative of log sum exp along a line is at most R times the second, R the range of (b - a)'z: the
   second derivative falls no faster than exp(-R s). The gradient at b is zero, so |b - a| (1 - exp(-R)) / R <= q with
   q = c / (1 - v)^2. As R <= D |b - a|, D the diameter of the rows, |b - a| <= r = -log(1 - q D) / D; if q D >= 1,
   nothing is known.
4. *Hazard.* For any m, exp(-(b - a)'m) sum u exp(b'z) = sum u exp(a'z) exp(x) with |x| <= r |z - m|. It is at least
   W exp(-r |mean - m|) by Jensen's inequality, and at most W (1 + r |mean - m|) + exp(r D) / 2 sum u exp(a'z) x^2.
5. *Rows.* Every cell of predictions has a range of log H + b'z, so one of the curve, and one of the distance to the
   prediction. Means and quantiles grow with each of these distances.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal.metrics.counted_quantiles import counted_quantiles
from xcal.metrics.cox import log_hazard
from xcal.metrics.ici import knot_levels, spline_piece
from xcal.metrics.inputs import Vector
from xcal.metrics.streaming.cells import CellCounts
from xcal.metrics.streaming.risk_set_sums import Place, RiskSetSums

Matrix = npt.NDArray[np.float64]
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


def _log_hazard_range(sums: RiskSetSums, place: Place, cells: CellCounts, moved: Vector) -> tuple[Vector, Vector]:
    """Range of log H + b'z in each cell of predictions, by steps 1 to 5."""
    some = sums.deaths > 0
    deaths, early = sums.deaths[some], np.where(sums.early, sums.deaths, 0.0)[some]
    later, own = _later(sums, some), (sums.weight[some], sums.first[some], sums.second[some])
    e = float(np.abs(place.slopes) @ moved)

    # 1. Information, and its metric.
    part = np.exp(-2 * e) * deaths * later[0] / (later[0] + own[0])
    root = _root(later, part)
    h = float(np.sqrt(np.square(moved @ np.abs(root)).sum()))
    left = max(1 - h * np.sqrt(part.sum()), 0.0) ** 2
    after, maybe = (_Moments(w, f @ root, np.einsum("kpq,pr,qr->k", s, root, root)) for w, f, s in (later, own))
    low, high = _ends(cells)
    ends = place.basis(low), place.basis(high)
    y, half = (ends[0] + ends[1]) / 2 @ root, np.abs(ends[1] - ends[0]) / 2
    own_width = np.sqrt(np.square(half @ np.abs(root)).sum(axis=1))

    # 2. Gradient.
    mean = (after.first + maybe.first / 2) / (after.weight + maybe.weight / 2)[:, None]
    distance = np.sqrt(np.square(y - early @ mean / early.sum()).sum(axis=1)) + own_width + h
    diameter = 2 * distance.max()
    far_after, far_maybe = (np.sqrt(set_.weight * set_.away(mean)) for set_ in (after, maybe))
    spread = np.expm1(e) * far_after + (np.exp(e) - 0.5) * far_maybe + np.exp(e) * h * (after.weight + maybe.weight)
    spread = np.minimum(np.where(after.weight > 0, spread / (np.exp(-e) * after.weight), np.inf), diameter)
    gradient = np.sqrt(np.square(sums.dead @ root - deaths @ mean).sum()) + deaths.sum() * h + deaths @ spread

    # 3. Fit.
    known = 1 - gradient / left * diameter
    radius = -np.log(known) / diameter if known > 0 else np.inf

    # 4. Hazard.
    middle = early @ mean / early.sum()
    off = radius * (np.sqrt(np.square(mean - middle).sum(axis=1)) + spread)
    both = after.weight + maybe.weight
    squares = np.square(np.sqrt(after.away(middle) + maybe.away(middle)) + h * np.sqrt(both))
    most = np.exp(e) * (both * (1 + off) + radius**2 / 2 * np.exp(radius * diameter) * squares)
    least = np.exp(-e - off) * after.weight
    hazard = [np.log(np.sum(early[early > 0] / total[early > 0])) for total in (most, least)]

    # 5. Rows.
    score = np.log(place.weights((ends[0] + ends[1]) / 2))
    width = half @ np.abs(place.slopes) + e + radius * distance
    return hazard[0] + score - width, hazard[1] + score + width


def _later(sums: RiskSetSums, some: npt.NDArray[np.bool_]) -> tuple[Vector, Matrix, Matrix]:
    """Give the sums over the rows of later cells, for cells with a death."""
    weight, first, second = (
        (np.cumsum(part[::-1], axis=0)[::-1] - part)[some] for part in (sums.weight, sums.first, sums.second)
    )
    # Of no rows: what rounding leaves is nothing.
    none = np.cumsum(sums.weight[::-1] > 0)[::-1][some] <= 1
    weight[none], first[none], second[none] = 0.0, 0.0, 0.0
    return weight, first, second


def _root(later: tuple[Vector, Matrix, Matrix], part: Vector) -> Matrix:
    """Give R with R R' = J^-1: lengths of y R are those of the proof; infinite if J is singular."""
    weight, first, second = later
    safe = np.where(weight > 0, weight, 1.0)
    mean = first / safe[:, None]
    information = np.einsum("k,kpq->pq", part / safe, second) - np.einsum("k,kp,kq->pq", part, mean, mean)
    try:
        return np.asarray(np.linalg.inv(np.linalg.cholesky(information)).T)
    except np.linalg.LinAlgError:
        return np.full(information.shape, np.inf)
