"""Increasing maps of F made of straight lines: Kaplan-Meier's and the isotonic one."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from xcal._checks import (
    MANY,
    BoolArray,
    Floats,
    as_causes,
    as_count,
    as_event,
    as_numpy,
    as_probability,
    as_weights,
    check_rows,
    effective_units,
    fail,
    first_row,
)
from xcal._files import Limits, read
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.distributions.base import SurvivalDistribution
from xcal.distributions.composed import RecalibratedDistribution

# Digits to which F values are told apart by a map. Nearer ones are ties, as are those of rows that are alike but for
# rounding: a map that rises between them would turn the rounding of F, 1e-16, into differences that can be seen.
DIGITS = 8


Count = Annotated[int, Limits(at_least=1)]


class Kept:
    """What a file keeps of a fitted dataclass: its fields, arrays as lists."""

    def content(self) -> dict[str, Any]:
        """Return the serialisable state, as numbers and lists."""
        known = {name: own for name, own in vars(self).items() if own is not None}
        return {name: own.tolist() if isinstance(own, np.ndarray) else own for name, own in known.items()}

    @classmethod
    def of_content(cls, content: Any) -> Self:
        """Make it again from what `content` gave; anything else is refused."""
        return read(cls, content, "map")


class Recalibration(Kept, ABC):
    """An increasing map G of [0, 1] onto itself: the recalibrated model has ``F'(t | x) = G(F(t | x))``.

    Attributes
    ----------
    n, n_events : int
        Rows and events that G was fitted to.
    """

    n: int
    n_events: int

    @abstractmethod
    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""

    @abstractmethod
    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`: the recalibrated median is the model's quantile at ``quantile(0.5)``."""

    @abstractmethod
    def log_density(self, u: Any, log_survival: Any = None) -> Floats:
        """Log of the slope of G at F values of any shape: what recalibration adds to a row's log-density.

        The model's own ``log(1 - F)`` tells more where F rounds to 1.
        """

    @abstractmethod
    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1, unless the model's own ``log(1 - F)`` is given and tells more."""


def held_out_rows(cdf: Any, event: Any) -> tuple[Floats, BoolArray]:
    """Check F at the observed times of rows that a map is fitted to: at least one of them must have had the event.

    F is rounded to `DIGITS`; what lies nearer to 0 or 1 than that, but not on it, stays apart from it.
    """
    check_rows({"cdf": cdf, "event": event})
    given = as_probability("cdf", cdf).astype(np.float64)
    happened = as_event(event, given.size)
    if not happened.any():
        fail("event", "at least one event", "none: every row is censored")
    least = 10.0**-DIGITS
    inside = np.clip(np.round(given, DIGITS), least, 1 - least)
    return np.where((given > 0) & (given < 1), inside, given), happened


def probabilities(values: Any, name: str = "u") -> Floats:
    """Probabilities of any shape."""
    array = as_numpy(name, values).astype(np.float64)
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), array.shape)
        fail(name, "values in [0, 1]", array[place], tuple(int(i) for i in place) if array.ndim != 1 else int(place[0]))
    return array


def own_log_survival(values: Any, u: Floats) -> Floats:
    """Check the model's own ``log(1 - F)``, given beside its F."""
    own = as_numpy("log_survival", values).astype(np.float64)
    if own.shape != u.shape:
        fail("log_survival", f"shape {u.shape}, as the F values have", own.shape)
    return own


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseRecalibration(Recalibration):
    """A map G through points, straight in between."""

    # knots, levels: F and G(F) at the ends of the straight lines, both strictly increasing from 0 to 1
    knots: Floats
    levels: Floats
    # n, n_events: rows and events that G was fitted to
    n: Count
    n_events: Count

    def __post_init__(self) -> None:
        for name in ("knots", "levels"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            increases = values.ndim == 1 and values.size > 1 and bool((np.diff(values) > 0).all())
            if not increases or values[0] != 0 or values[-1] != 1:
                fail(name, "numbers that increase from 0 to 1", f"an array of shape {values.shape} that does not")
        if np.shape(self.knots) != np.shape(self.levels):
            fail("levels", f"{np.size(self.knots)} levels, as many as knots", np.size(self.levels))

    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""
        return np.interp(probabilities(u), self.knots, self.levels)

    def log_density(self, u: Any, log_survival: Any = None) -> Floats:
        """Log of the slope of G at F values of any shape: what recalibration adds to a row's log-density.

        On a knot it is the slope to the right; at 1, to the left, which needs no ``log(1 - F)``.
        """
        log_slope = np.log(np.diff(self.levels)) - np.log(np.diff(self.knots))
        piece = np.searchsorted(self.knots[1:-1], probabilities(u), side="right")
        return np.asarray(log_slope[piece])

    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1.

        Parameters
        ----------
        u : array-like
            F values of any shape.
        log_survival : array-like of the same shape, optional
            The model's own ``log(1 - F)``. In the last piece 1 - G is a multiple of 1 - F, so with it the result is
            finite and exact where F is so near 1 that it rounds to 1.
        """
        values = probabilities(u)
        left = np.interp(values, self.knots, 1 - self.levels)
        with np.errstate(divide="ignore"):
            result = np.log(left)
        if log_survival is None:
            return np.asarray(result)
        own = own_log_survival(log_survival, values)
        ratio = (1 - self.levels[-2]) / (1 - self.knots[-2])
        return np.asarray(np.where(values >= self.knots[-2], np.log(ratio) + own, result))

    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`: the recalibrated median is the model's quantile at ``quantile(0.5)``."""
        return np.interp(probabilities(p, "p"), self.levels, self.knots)

    def __repr__(self) -> str:
        pieces = self.knots.size - 1
        return f"{type(self).__name__}({pieces} pieces, from {self.n} rows with {self.n_events} events)"


def through_points(knots: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Knots and levels with both ends, without any that rounding, or a tie, has put on its neighbour."""
    knots, levels = np.concatenate([[0.0], knots, [1.0]]), np.concatenate([[0.0], levels, [1.0]])
    kept = [0]
    for i in range(1, knots.size - 1):
        inner = knots[kept[-1]] < knots[i] < 1 and levels[kept[-1]] < levels[i] < 1
        if inner:
            kept.append(i)
    kept.append(knots.size - 1)
    return knots[kept], levels[kept]


@dataclass(frozen=True, eq=False, repr=False)
class KaplanMeierRecalibration(PiecewiseRecalibration):
    r"""An increasing map G of [0, 1] onto itself: the recalibrated model has ``F'(t | x) = G(F(t | x))``.

    If a model is calibrated, F at the event times is uniform. G is the Kaplan-Meier estimate of the distribution that
    F has instead, on rows that did not train the model, made of straight lines between a few knots so that a density
    exists. The map is the same for every row: it changes no order of risks at one level of F, and it corrects
    calibration over all rows, not within subgroups.

    .. math:: \hat G(u) = 1 - \prod_{u_j \le u} \Big( 1 - \frac{d_j}{r_j} \Big)

    is the estimate, with :math:`d_j` events at the value :math:`u_j` of F and :math:`r_j` rows whose F is not below it.
    G goes through the middle of its steps at the knots.

    Attributes
    ----------
    knots, levels : ndarray
        F and G(F) at the ends of the straight lines, both strictly increasing from 0 to 1.
    n, n_events : int
        Rows and events that G was fitted to.

    Notes
    -----
    Rows that entered late count from there on, with one row of the model's own hazards beside them, as there may be
    moments with few. Of events between two values of F the curve is Turnbull's, with one row beside them in each piece
    of F. Of events with causes the curve is that of any event, and in stretches of F the shares of the causes are
    moved, for all rows by the same factors on the scale of odds, to those of the Aalen-Johansen estimate on the scale
    of F (less one event of the model's own in each stretch). Incidences thus stay between 0 and 1, rise in time and add
    up to F.

    Censoring must be independent of F at the event time, as for ``d_calibration(method="km")``. Where the curve ends
    below 1 because the last rows are censored, what is left lies evenly between the last event and F = 1; so does what
    lies below the first event. F outside the range seen thus keeps a positive density.

    A curve through every event would fit noise: its slope is as variable as the gaps between neighbouring values, which
    costs a new row 0.42 nats of likelihood on average however many rows there are. With k knots the cost is about
    k / (2 n_events).

    References
    ----------
    Kaplan, Meier (1958), JASA 53(282):457-481.

    Examples
    --------
    A model whose hazards are twice too high, recalibrated:

    >>> import numpy as np
    >>> from xcal import d_calibration
    >>> rng = np.random.default_rng(0)
    >>> times = rng.exponential(size=(2, 4000))
    >>> seen, new = 1 - np.exp(-2 * times)
    >>> recalibration = KaplanMeierRecalibration.fit(seen, np.ones(4000))
    >>> recalibration
    KaplanMeierRecalibration(32 pieces, from 4000 rows with 4000 events)
    >>> d_calibration(new, np.ones(4000)).value > 0.03
    True
    >>> d_calibration(recalibration.cdf(new), np.ones(4000)).value < 0.001
    True
    """

    # What is added to the log of each cause's share, stretch by stretch of F, and the ends of the stretches
    splits: Floats | None = None
    split_knots: Floats | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.splits is None:
            return
        ends = np.asarray(self.split_knots, dtype=np.float64)
        if ends.ndim != 1 or ends.size < 2 or ends[0] != 0 or ends[-1] != 1 or not (np.diff(ends) > 0).all():
            fail("split_knots", "numbers that increase from 0 to 1", f"an array of shape {ends.shape} that does not")
        if self.splits.ndim != 1 or self.splits.size % (ends.size - 1) or not np.isfinite(self.splits).all():
            fail("splits", f"finite numbers, as many for each of {ends.size - 1} stretches", self.splits.shape)

    def law(self, base: SurvivalDistribution) -> RecalibratedDistribution:
        """Return the law of each row after the map."""
        if self.splits is None or self.split_knots is None:
            return RecalibratedDistribution(base, self.knots, self.levels)
        splits = self.splits.reshape(self.split_knots.size - 1, -1)
        return RecalibratedDistribution(base, self.knots, self.levels, splits, self.split_knots)

    def shares(self, u: Floats, shares: Floats) -> Floats:
        """Return the shares of the causes after the map, ``(n, causes)``, in events at these F of the model."""
        if self.splits is None or self.split_knots is None:
            return shares
        added = self.splits.reshape(self.split_knots.size - 1, -1)
        stretch = np.searchsorted(self.split_knots[1:-1], u, side="right")
        return np.asarray(softmax(np.log(np.maximum(shares, np.finfo(np.float64).tiny)) + added[stretch], axis=1))

    @classmethod
    def fit(
        cls,
        cdf: Any,
        event: Any,
        *,
        n_pieces: int | None = None,
        weights: Any = None,
        cdf_entry: Any = None,
        cdf_lower: Any = None,
        cause: Any = None,
        shares: Any = None,
    ) -> "KaplanMeierRecalibration":
        """Fit G to F at the rows' observed times.

        Parameters
        ----------
        cdf : array-like of shape (n,)
            F at each row's observed time, of rows that did not train the model.
        event : array-like of shape (n,)
            True or 1 where the event happened.
        n_pieces : int, optional
            Straight lines of equal mass, at most; by default ``2 n_events^(1/3)``, rounded up, the usual number of
            bins of a histogram.
        weights : array-like of shape (n,), optional
            Sampling weights, one positive number per row, of the curve. The number of lines is then by the effective
            number of events.
        cdf_entry, cdf_lower : array-like of shape (n,), optional
            F at the time from which each row was under observation, or at the earlier of two times between which its
            event lies; as in `xcal.d_calibration`. Not both, and neither with weights.
        cause : array-like of shape (n,), optional
            Cause of each event, 1, 2, ..., 0 for a censored row, where events have causes.
        shares : array-like of shape (n, causes), optional
            With `cause`: the share that the model gives each cause in the events at each row's time.
        """
        u, happened = held_out_rows(cdf, event)
        early = {"cdf_entry": cdf_entry, "cdf_lower": cdf_lower}
        given = [name for name, values in early.items() if values is not None]
        if len(given) > 1 or (given and weights is not None):
            fail(given[0], "none beside cdf_lower or weights", "both")
        starts = {name: np.minimum(np.round(as_probability(name, early[name]), DIGITS), u) for name in given}
        n_events = int(happened.sum())
        w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
        own = None if w is None else effective_units(w[happened])
        pieces = count_of_pieces(n_events if own is None else float(own.sum()), n_pieces)
        if "cdf_lower" in starts:
            ends, masses = _masses_of_intervals(u, happened, starts["cdf_lower"], pieces)
            return cls(*through_points(ends[1:-1], masses[1:-1]), u.size, n_events)
        curve_u, curve_g = middle_curve(u, happened, w, starts.get("cdf_entry"))
        last = curve_g[-2]
        # Knots at equal steps of G as far as events go, and at the last event if the curve ends early.
        wanted = np.arange(1, pieces) / pieces
        wanted = np.append(wanted[wanted < last], last) if 1 - last > 1.0 / pieces else wanted[wanted < last]
        knots, levels = through_points(np.interp(wanted, curve_g, curve_u), wanted)
        if cause is None:
            return cls(knots, levels, u.size, n_events)
        slopes = np.interp(u, curve_u, curve_g)
        return cls(knots, levels, u.size, n_events, *_splits(u, slopes, *_causes(cause, shares, happened)))


def _causes(cause: Any, shares: Any, happened: BoolArray) -> tuple[npt.NDArray[np.int64], Floats]:
    """Check causes, and the shares that a model gives them."""
    p = as_numpy("shares", shares).astype(np.float64)
    if p.ndim != 2 or len(p) != happened.size or p.shape[1] < 2:
        fail("shares", f"shape ({happened.size}, causes), two causes or more", p.shape)
    codes = as_causes(cause, happened.size, n_causes=p.shape[1], reference="cdf")
    wrong: BoolArray = (codes > 0) != happened
    if wrong.any():
        fail("cause", "a cause where event is True, and there alone", codes[first_row(wrong)], first_row(wrong))
    bad = np.asarray(~(np.isfinite(p) & (p >= 0)).all(axis=1))
    if bad.any():
        fail("shares", "shares of 0 or more", p[first_row(bad)].tolist(), first_row(bad))
    return codes, p


# Steps of Newton's method for the shares of a stretch.
_STEPS = 50


def _splits(u: Floats, level: Floats, cause: npt.NDArray[np.int64], shares: Floats) -> tuple[Floats, Floats]:
    """Return what is added to the log-shares of the causes in each stretch of F, and the ends of the stretches.

    In a stretch the events, each with the mass that the curve puts there, keep their sums by cause. So many stretches
    as the cube root of the events of the rarest cause, with as many events each.
    """
    n_causes = shares.shape[1]
    at = np.flatnonzero(cause > 0)
    rarest = np.bincount(cause[at], minlength=n_causes + 1)[1:].min()
    count = max(1, round(float(rarest) ** (1 / 3)))
    inner = np.quantile(u[at], np.arange(1, count) / count, method="inverted_cdf")
    ends = np.concatenate([[0.0], np.unique(inner[(inner > 0) & (inner < 1)]), [1.0]])
    stretch = np.clip(np.searchsorted(ends, u[at], side="right") - 1, 0, ends.size - 2)
    # Events count with the mass of the curve at them, alike where they are tied.
    mass = _mass_at(u[at], level[at])
    found = [
        _moved(shares[at][own], cause[at][own] - 1, mass[own]) for own in (stretch == j for j in range(ends.size - 1))
    ]
    return np.concatenate(found), ends


def _mass_at(u: Floats, level: Floats) -> Floats:
    """Mass that a curve puts at each event: the rise from half-way below to half-way above, divided among ties."""
    distinct, place, counts = np.unique(u, return_inverse=True, return_counts=True)
    at = np.zeros(distinct.size)
    at[place] = level
    between = np.concatenate([[0.0], (at[1:] + at[:-1]) / 2, [1.0]])
    return np.asarray(np.diff(between)[place] / counts[place])


def _moved(p: Floats, cause: npt.NDArray[np.int64], mass: Floats) -> Floats:
    """Return what is added to the log of shares so that events of each cause are as many as expected, in mass.

    One event of the model's own is among them, so that none is infinite.
    """
    n, k = p.shape
    added = np.zeros(k)
    if n == 0 or not mass.sum() > 0:
        return added
    log_p = np.log(np.maximum(p, np.finfo(np.float64).tiny))
    p = softmax(log_p, axis=1)
    seen = (mass[:, None] * (np.eye(k)[cause] + p / n)).sum(axis=0)
    weight = mass * (1 + 1 / n)
    for _ in range(_STEPS):
        q = softmax(log_p + added, axis=1)
        slope = (seen - weight @ q)[1:]
        curve = (np.einsum("i,ij->j", weight, q)[:, None] * np.eye(k) - (q * weight[:, None]).T @ q)[1:, 1:]
        step = np.linalg.lstsq(curve, slope, rcond=None)[0]
        added[1:] += np.clip(step, -2.0, 2.0)
        if np.abs(step).max() < 1e-10:
            break
    return added


def count_of_pieces(n_events: float, asked: int | None = None) -> int:
    """Return how many bins a histogram of so many events has, twice their cube root, unless a number is asked for."""
    if asked is None:
        # The cube root of a cube may come out a hair above it.
        return int(np.ceil(2 * round(n_events ** (1 / 3), 9)))
    return as_count("n_pieces", asked, at_least=1, at_most=MANY)


# Steps towards the masses of intervals.
_MOST_STEPS = 500


def middle_curve(
    u: Floats,
    event: BoolArray,
    weights: Floats | None = None,
    entry: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Half-way points of the steps of the Kaplan-Meier curve of F, between (0, 0) and (1, 1).

    Half-way, so that one event at u puts as much below u as above it, and tied events likewise. Steps at F = 0 or
    F = 1 have no room for that: their mass goes to the nearest piece.
    """
    if entry is not None:
        return _curve_from_entry(u, event, entry)
    curve = fit_kaplan_meier(u, event, weights=weights)
    after = 1 - curve.survival
    before = np.concatenate([[0.0], after[:-1]])
    inside = (curve.counts > 0) & (curve.times > 0) & (curve.times < 1)
    middle = (before + after)[inside] / 2
    return np.concatenate([[0.0], curve.times[inside], [1.0]]), np.concatenate([[0.0], middle, [1.0]])


def _curve_from_entry(u: Floats, event: BoolArray, entry: Floats) -> tuple[Floats, Floats]:
    """Half-way points of the curve of rows that count from their entry on, with one row of hazards 1 / (1 - F)."""
    most = 1 - 10.0**-DIGITS
    points = np.unique(np.clip(np.concatenate([u, entry]), 0.0, most))
    points = points[points > 0]
    later = np.clip(u, 0.0, most)
    # At risk until a point: who entered before it and lasts to it.
    entered = np.searchsorted(np.sort(entry), points, side="left")
    gone = np.searchsorted(np.sort(later), points, side="left")
    at_risk = entered - gone + 1.0
    events = np.bincount(np.searchsorted(points, later[event & (later > 0)]), minlength=points.size)
    drift = np.cumsum(np.diff(-np.log1p(-points), prepend=0.0) / at_risk)
    jumps = events / at_risk
    middle = -np.expm1(-(drift + np.cumsum(jumps) - jumps / 2))
    inside = events > 0
    return np.concatenate([[0.0], points[inside], [1.0]]), np.concatenate([[0.0], middle[inside], [1.0]])


def _masses_of_intervals(u: Floats, event: BoolArray, lower: Floats, pieces: int) -> tuple[Floats, Floats]:
    """Return the ends of equal pieces of F, and G there, of rows that lie between two values of F, or above one.

    Turnbull's estimate, with mass that is even within each piece and one row of it in each: by self-consistency, each
    mass is the mean of what the rows say of it. Without that row a few pieces hold nearly all of what many share.
    """
    ends = np.linspace(0.0, 1.0, pieces + 1)
    low, high = np.where(event, lower, u)[:, None], np.where(event, u, 1.0)[:, None]
    inside = np.clip((np.minimum(high, ends[1:]) - np.maximum(low, ends[:-1])) * pieces, 0.0, 1.0)
    known = np.flatnonzero(high <= low)
    inside[known, np.clip(np.searchsorted(ends, u[known], side="right") - 1, 0, pieces - 1)] = 1.0
    mass = np.full(pieces, 1 / pieces)
    for _ in range(_MOST_STEPS):
        said = inside * mass
        new = (said / said.sum(axis=1, keepdims=True)).sum(axis=0) + 1
        new /= new.sum()
        change, mass = np.abs(new - mass).max(), new
        if change < 1e-7:
            break
    return ends, np.append(0.0, np.cumsum(mass))


@dataclass(frozen=True, eq=False, repr=False)
class IsotonicRecalibration(PiecewiseRecalibration):
    """An increasing map G with a knot at every distinct F of an event.

    Kuleshov, Fenner and Ermon (2018) recalibrate a regression by isotonic regression of the share of rows with F at
    most u on u. That share is a distribution function, which rises already: the regression goes through every point.
    With censored rows the share is the Kaplan-Meier estimate. Each point stands half-way up its step, the mean over
    tied events; at the upper end of the last step G would be 1 before F is, and a later event impossible.

    The slope of G is as variable as the gaps between neighbouring events: it costs a new row about 0.42 nats of
    likelihood, however many rows there are. `KaplanMeierRecalibration` is the same map made smooth.

    References
    ----------
    Kuleshov, Fenner, Ermon (2018), Accurate Uncertainties for Deep Learning Using Calibrated Regression, ICML, PMLR 80.

    Examples
    --------
    >>> IsotonicRecalibration.fit([0.2, 0.4, 0.4, 0.8], [1, 1, 1, 1]).cdf([0.2, 0.4, 0.8])
    array([0.125, 0.5  , 0.875])
    """

    @classmethod
    def fit(cls, cdf: Any, event: Any) -> Self:
        """Fit G to F at the observed times of rows that did not train the model; see `KaplanMeierRecalibration.fit`."""
        u, happened = held_out_rows(cdf, event)
        curve_u, curve_g = middle_curve(u, happened)
        knots, levels = through_points(curve_u[1:-1], curve_g[1:-1])
        return cls(knots, levels, u.size, int(happened.sum()))


# Points at which a map is compared with no change, evenly spaced in F.
_POINTS = 200


def squared_distance(own: PiecewiseRecalibration) -> float:
    """Return the mean squared difference of a map from no change."""
    points = (np.arange(_POINTS) + 0.5) / _POINTS
    return float(((own.cdf(points) - points) ** 2).mean())


# A fold is not trusted if the map of its F lies so many times further from that of the other folds than chance puts it
# (in mean squares), and so far (the root of it) that it matters. Of 5,300 fits of Cox models that did converge, to 60
# to 1,000 rows in five folds, none came above 9.5; where lifelines did not converge on NACD, folds had 17 to 109.
_TIMES_CHANCE = 12.0
_MATTERS = 0.1
Fold = tuple[Floats, BoolArray]  # F of its rows at their observed times, and their events


def folds_that_differ(parts: Sequence[Fold]) -> dict[int, float]:
    """Return the folds whose F are not distributed as those of the others, the furthest first, with their distance.

    F of the fold's rows goes through the Kaplan-Meier map of the other folds. If their models are alike, the map of the
    result is no change, but for noise: with m events in the fold and M in the others the mean squared distance is
    (1 / m + 1 / M) / 6, that of two empirical distribution functions. One fold is taken away at a time, as it counts
    among the others when those are judged.
    """
    left, off = list(range(len(parts))), {}
    while len(left) > 1:
        found = {k: _distance(parts[k], [parts[j] for j in left if j != k]) for k in left}
        worst = max(found, key=lambda k: found[k][0])
        times_chance, distance = found[worst]
        if times_chance <= _TIMES_CHANCE or distance <= _MATTERS:
            break
        off[worst] = distance
        left.remove(worst)
    return off


def _distance(part: Fold, others: Sequence[Fold]) -> tuple[float, float]:
    """Mean squared distance of a fold from the others over that of chance, and its root."""
    cdf, event = (np.concatenate(one) for one in zip(*others, strict=True))
    m, rest = int(part[1].sum()), int(event.sum())
    if m == 0 or rest == 0:
        return 0.0, 0.0
    common = KaplanMeierRecalibration.fit(cdf, event)
    found = squared_distance(KaplanMeierRecalibration.fit(common.cdf(part[0]), part[1]))
    return found / ((1 / m + 1 / rest) / 6), float(np.sqrt(found))
