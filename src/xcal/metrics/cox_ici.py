"""The calibration index of published guidelines, by a Cox model: right where hazards are proportional, and only there.

`xcal.metrics.integrated_calibration_index` assumes nothing about hazards. This one is kept because published
validations report it, and because its sums can be formed without holding the rows (`xcal.metrics.streaming`).
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from xcal._checks import MANY, BoolArray, FloatArray, fail
from xcal._kaplan_meier import curve_of_counts, fit_kaplan_meier
from xcal.metrics.counted_quantiles import counted_quantiles
from xcal.metrics.cox import CoxFit, fit_cox, log_hazard
from xcal.metrics.inputs import Vector, as_choice, as_count, as_outcome, as_row_probability, as_time_point

Matrix = npt.NDArray[np.float64]
Smoother = Literal["spline", "line", "constant"]


@dataclass(frozen=True, eq=False)
class CoxICI:
    """Summary of the distance between predicted and smoothed observed probabilities.

    Attributes
    ----------
    value : float
        ICI, the mean absolute difference over the rows.
    e50, e90, emax : float
        Median, 90th percentile and maximum of the absolute difference.
    predicted, observed : arrays, shape (100,)
        The calibration curve between the first and the 99th percentile of the predictions.
    at : float
        The time.
    smoother : {"spline", "line", "constant"}
        What could be fitted: the spline asked for; a straight line when the predictions have too few distinct values
        for its knots; Kaplan-Meier when they are all equal.
    converged : bool
        False when the likelihood of the smoother does not determine it, for instance with a single event after which
        nobody is at risk; all values are then NaN.
    """

    value: float
    e50: float
    e90: float
    emax: float
    predicted: Vector = field(repr=False)
    observed: Vector = field(repr=False)
    at: float
    smoother: Smoother
    converged: bool


def cox_ici(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    n_knots: int = 3,
    outside: Literal["nan", "raise", "clip"] = "nan",
) -> CoxICI:
    r"""ICI, E50, E90 and Emax of Austin, Harrell and van Klaveren, which assume proportional hazards.

    The observed probability is smoothed by a Cox model of the event on a restricted cubic spline of
    :math:`\log(-\log(1 - p_i))`, fitted to the whole follow-up with Efron's method for ties. Censored rows enter
    through its risk sets. The distance :math:`|p_i - \hat p(p_i)|` is then summarised over all rows, censored ones
    included.

    One factor on one baseline hazard describes every row: where hazards cross, or where spread or tails differ between
    rows, the true probabilities themselves score well above zero (.02 to .05 in the documentation's table). Use it to
    compare with published values, and `integrated_calibration_index` to judge a model.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    n_knots : int
        Knots of the spline, at least 3, at equally spaced quantiles: of 0.1 to 0.9 for three, 0.05 to 0.95 for four
        to six, 0.025 to 0.975 for more.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or keep the hazard reached by then.

    Returns
    -------
    CoxICI
        With no event by `at` the observed curve is zero.

    References
    ----------
    Austin, Harrell, van Klaveren (2020), Statistics in Medicine 39(21):2714-2742.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=2000)
    >>> time = rng.exponential(1 / rate)
    >>> result = cox_ici(1 - np.exp(-rate), at=1.0, time=time, event=np.ones(2000))
    >>> result.value < 0.03 < result.emax * 3
    True
    """
    times_seen, happened = as_outcome(time, event, probability=probability)
    p = as_row_probability("probability", probability, times_seen.size)
    moment = as_time_point("at", at)
    as_count("n_knots", n_knots, at_least=3, at_most=MANY)
    as_choice("outside", outside, ("nan", "raise", "clip"))
    last = float(times_seen.max())
    if moment > last and outside == "raise":
        fail("at", f"a time within the follow-up, at most {last}", moment)
    return index_of_counts(p, times_seen, happened, None, moment, n_knots, known=moment <= last or outside == "clip")


def index_of_counts(
    p: Vector,
    time: FloatArray,
    event: BoolArray,
    counts: Vector | None,
    at: float,
    n_knots: int,
    *,
    known: bool = True,
) -> CoxICI:
    """ICI of checked rows that may count several times; all NaN where it is not `known`."""
    return index_of_curve(p, counts, fitted_curve(p, time, event, at, n_knots, counts), at, known=known)


def index_of_curve(p: Vector, counts: Vector | None, curve: "SmoothCurve", at: float, *, known: bool = True) -> CoxICI:
    """ICI of rows whose smooth curve is there."""
    low, high = _quantiles(p, counts, [0.01, 0.99])
    grid = np.linspace(float(low), float(high), 100)
    observed = curve.at(np.concatenate([p, grid]))
    if not (curve.converged and known):
        observed[:] = np.nan
    error = np.abs(p - observed[: p.size])
    e50, e90 = _quantiles(error, counts, [0.5, 0.9])
    return CoxICI(
        value=float(np.average(error, weights=counts)),
        e50=float(e50),
        e90=float(e90),
        emax=float(error.max()),
        predicted=grid,
        observed=observed[p.size :],
        at=at,
        smoother=curve.smoother,
        converged=curve.converged,
    )


def _quantiles(values: Vector, counts: Vector | None, levels: list[float] | Vector) -> Vector:
    """Quantiles of rows that may count several times; NaN where a value is."""
    if counts is None or np.isnan(values).any():
        return np.asarray(np.quantile(values, levels))
    order = np.argsort(values, kind="stable")
    return counted_quantiles(values[order], counts[order], levels)


@dataclass(frozen=True, eq=False)
class SmoothCurve:
    """Observed probability as a function of the predicted one: a Cox model on a spline or a line, or one number.

    Attributes
    ----------
    smoother : {"spline", "line", "constant"}
    constant : float
        The number, where it is one.
    knots : array or None
        Those of the spline; None for a line.
    centre, scale : arrays
        Columns of the basis have these taken off, and are divided by these.
    fit : CoxFit or None
        None where the curve is one number.
    """

    smoother: Smoother
    constant: float = np.nan
    knots: Vector | None = None
    centre: Vector = field(default_factory=lambda: np.zeros(1))
    scale: Vector = field(default_factory=lambda: np.ones(1))
    fit: CoxFit | None = None

    @property
    def converged(self) -> bool:
        """Whether the likelihood determines it."""
        return self.fit is None or self.fit.converged

    def at(self, p: Vector) -> Vector:
        """Observed probability where `p` is predicted."""
        if self.fit is None:
            return np.full(p.size, self.constant)
        return self.fit.event_probability((curve_basis(log_hazard(p), self.knots) - self.centre) / self.scale)


def fitted_curve(
    p: Vector,
    time: FloatArray,
    event: BoolArray,
    at: float,
    n_knots: int = 3,
    counts: Vector | None = None,
    *,
    knots: Vector | None = None,
    rough: bool = False,
) -> SmoothCurve:
    """Fit the observed probability as a function of the predicted one; knots that are not given are quantiles.

    `rough` is for rows whose times are no more than cells, see `fit_cox`.
    """
    if not (event & (time <= at)).any():
        return SmoothCurve("constant", 0.0)
    if p.min() == p.max():
        return SmoothCurve("constant", 1 - _survival(time, event, at, counts))
    x = log_hazard(p)
    knots = _knots(x, n_knots, counts) if knots is None else knots
    basis = curve_basis(x, knots)
    # Centre and scale, so that Newton's method starts in a well-conditioned place; the fitted curve does not change.
    centre = np.average(basis, axis=0, weights=counts)
    spread = np.sqrt(np.average(np.square(basis - centre), axis=0, weights=counts))
    scale = np.where(spread > 0, spread, 1.0)
    fit = fit_cox((basis - centre) / scale, time, event, at, counts, rough=rough)
    return SmoothCurve("line" if knots is None else "spline", np.nan, knots, centre, scale, fit)


def smoothed(
    p: Vector,
    where: Vector,
    time: FloatArray,
    event: BoolArray,
    at: float,
    n_knots: int = 3,
    counts: Vector | None = None,
) -> tuple[Vector, Smoother, bool]:
    """Observed probability as a function of the predicted one p, read at `where`; the smoother; whether it fitted."""
    curve = fitted_curve(p, time, event, at, n_knots, counts)
    return curve.at(where), curve.smoother, curve.converged


def _survival(time: FloatArray, event: BoolArray, at: float, counts: Vector | None) -> float:
    """Kaplan-Meier at one time, of rows that may count several times."""
    if counts is None:
        return float(fit_kaplan_meier(time, event).at(at))
    times, place = np.unique(time, return_inverse=True)
    events, censored = (np.bincount(place, counts * kind).astype(np.float64) for kind in (event, ~event))
    return float(curve_of_counts(times.astype(np.float64), events, censored).at(at))


def _knots(sample: Vector, n_knots: int, counts: Vector | None) -> Vector | None:
    """Knots at quantiles of the sample; None, for a line, where it has too few values."""
    knots = _quantiles(sample, counts, knot_levels(n_knots))
    return None if np.unique(knots).size < n_knots or np.unique(sample).size < n_knots else knots


def curve_basis(x: Vector, knots: Vector | None) -> Matrix:
    """Columns of a spline, or without knots of a line."""
    return x[:, None] if knots is None else spline_basis(x, knots)


def knot_levels(n_knots: int) -> Vector:
    """Quantiles of the predictions at which the knots are."""
    outer = 0.1 if n_knots == 3 else 0.05 if n_knots <= 6 else 0.025
    return np.linspace(outer, 1 - outer, n_knots)


def spline_basis(x: Vector, knots: Vector) -> Matrix:
    """Restricted cubic spline basis: cubic between the knots, straight beyond the outer ones.

    Harrell's truncated powers: the line itself, and for each knot but the last two a cubic piece from which the last
    two take away what would bend the right tail.
    """
    pieces = [spline_piece(x, knot, knots[-2], knots[-1]) / (knots[-1] - knots[0]) ** 2 for knot in knots[:-2]]
    return np.column_stack([x, *pieces])


def spline_piece(x: Vector, knot: float, before_last: float, last: float) -> Vector:
    """Cubic piece of a knot: six times the twofold integral of a tent on the three knots with slope 1 on its left.

    So it grows with x and with the last two knots, and falls with the first.
    """

    def cube(knot: float) -> Vector:
        beyond = np.maximum(x - knot, 0.0)
        return np.asarray(beyond * beyond * beyond)

    piece = cube(knot)
    piece = piece - cube(before_last) * (last - knot) / (last - before_last)
    return np.asarray(piece + cube(last) * (before_last - knot) / (last - before_last))
