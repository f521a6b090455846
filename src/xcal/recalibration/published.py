"""Remedies of the literature: beta calibration, KSP, CiPOT, CSD."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_expit, logit

from xcal._checks import (
    MANY,
    BoolArray,
    Floats,
    as_count,
    as_event,
    as_numpy,
    as_time,
    as_weights,
    check_rows,
    effective_units,
    fail,
)
from xcal._files import Limits
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier
from xcal.recalibration.maps import (
    DIGITS,
    Count,
    Kept,
    PiecewiseRecalibration,
    Recalibration,
    held_out_rows,
    own_log_survival,
    probabilities,
    through_points,
)


class BetaFormulas:
    """What a beta map says; `a`, `b` and `c` are numbers, or arrays with one value per row."""

    a: Any
    b: Any
    c: Any

    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""
        values = probabilities(u)
        return np.asarray(expit(self._logit(values, _tail(values, None))))

    def log_density(self, u: Any, log_survival: Any = None) -> Floats:
        """Log of the slope of G; with the model's own ``log(1 - F)`` exact where F rounds to 1.

        F that rounds to 0, or to 1 with nothing more known, counts as the next number.
        """
        values, tail = _between(probabilities(u), log_survival)
        score = self._logit(values, tail)
        a, b, _ = self._of(values)
        rate = np.logaddexp(np.log(a) - np.log(values), np.log(b) - tail)
        return np.asarray(log_expit(score) + log_expit(-score) + rate)

    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1.

        Parameters
        ----------
        u : array-like
            F values of any shape.
        log_survival : array-like of the same shape, optional
            The model's own ``log(1 - F)``: with it the result is finite and exact where F rounds to 1.
        """
        values = probabilities(u)
        return np.asarray(log_expit(-self._logit(values, _tail(values, log_survival))))

    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`, by bisection on the scale of log-odds."""
        levels = probabilities(p, "p")
        with np.errstate(divide="ignore"):
            target = logit(levels)
        # G's log-odds at log-odds x: at least c + min(a, b) x for x > 0 and at most that for x < 0, less or more log 2.
        finite = np.where(np.isfinite(target), target, 0.0)
        a, b, c = self._of(levels)
        reach = (np.abs(finite - c) + (a + b) * np.log(2)) / np.minimum(a, b) + 1
        low, high = -reach, reach
        for _ in range(100):
            middle = (low + high) / 2
            below = c + a * log_expit(middle) - b * log_expit(-middle) < finite
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        inside = expit((low + high) / 2)
        return np.asarray(np.where(np.isfinite(target), inside, levels))

    def _logit(self, u: Floats, log_survival: Floats) -> Floats:
        a, b, c = self._of(u)
        with np.errstate(divide="ignore"):
            return np.asarray(c + a * np.log(u) - b * log_survival)

    def _of(self, values: Floats) -> tuple[Any, Any, Any]:
        """Parameters against values of shape ``(n,)`` or ``(n, m)``."""
        own = (self.a, self.b, self.c)
        return tuple(x[:, None] if np.ndim(x) == 1 and values.ndim == 2 else x for x in own)


@dataclass(frozen=True, eq=False, repr=False)
class BetaRecalibration(BetaFormulas, Recalibration):
    r"""The map of beta calibration (Kull, Silva Filho and Flach, 2017), as a map of F.

    .. math:: \mathrm{logit}\, G(u) = c + a \log u - b \log(1 - u), \quad a, b > 0

    It leaves a calibrated model as it is at a = b = 1, c = 0. The parameters maximise the likelihood of F at the
    observed times: an event contributes the slope of G, a censored row 1 - G. A normal prior with standard deviation 1
    on log a, log b and c, worth about one row, keeps them finite with few events.

    Nothing ends at the last event: the form of the map continues to F = 1. An event at an F of exactly 0 or 1 tells
    that it lies beyond the nearest other F, and a censored row at F = 1 that it outlived the largest F below 1.

    Attributes
    ----------
    a, b, c : float
        The parameters.
    n, n_events : int
        Rows and events that G was fitted to.

    References
    ----------
    Kull, Silva Filho, Flach (2017), Beta calibration, AISTATS, PMLR 54:623-631.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> too_fast = 1 - np.exp(-2 * rng.exponential(size=4000))
    >>> beta = BetaRecalibration.fit(too_fast, np.ones(4000))
    >>> bool(abs(beta.cdf(0.75) - 0.5) < 0.02)  # where half of the events have happened
    True
    """

    a: Annotated[float, Limits(above=0)]
    b: Annotated[float, Limits(above=0)]
    c: float
    n: Count
    n_events: Count

    @classmethod
    def fit(cls, cdf: Any, event: Any, *, weights: Any = None) -> Self:
        """Fit G to F at the observed times of rows that did not train the model; see `KaplanMeierRecalibration.fit`."""
        u, happened = held_out_rows(cdf, event)
        w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
        log_a, log_b, c = CensoredLikelihood.of(u, happened, weights=w).maximum()
        return cls(float(np.exp(log_a)), float(np.exp(log_b)), float(c), u.size, int(happened.sum()))

    def __repr__(self) -> str:
        parameters = f"a={self.a:.3g}, b={self.b:.3g}, c={self.c:.3g}"
        return f"{type(self).__name__}({parameters}, from {self.n} rows with {self.n_events} events)"


def _tail(u: Floats, log_survival: Any) -> Floats:
    """Return ``log(1 - u)``, by the model's own ``log(1 - F)`` where it is given."""
    if log_survival is not None:
        return own_log_survival(log_survival, u)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(-u))


def _between(u: Floats, log_survival: Any) -> tuple[Floats, Floats]:
    """Return F, and ``log(1 - F)``, both apart from their ends, at which a slope may be infinite."""
    least, most = float(np.finfo(np.float64).tiny), 1 - float(np.finfo(np.float64).epsneg)
    if log_survival is None:
        return np.clip(u, least, most), np.log1p(-np.clip(u, least, most))
    return np.maximum(u, least), own_log_survival(log_survival, u)


@dataclass(frozen=True, eq=False)
class CensoredLikelihood:
    """Rows by what they tell: an event at u, an event above u or a censored row, an event below u.

    Log a, log b and c of a row are sums over the columns of a basis, by default a column of ones: one map for all.
    """

    at: Floats
    above: Floats
    below: Floats
    bases: tuple[Floats, Floats, Floats]
    weights: tuple[Floats, Floats, Floats]
    precision: Floats

    @classmethod
    def of(
        cls,
        u: Floats,
        event: BoolArray,
        basis: Floats | None = None,
        precision: Floats | None = None,
        weights: Floats | None = None,
    ) -> Self:
        """Sort the rows; `precision` is one over the variance of the prior of each column."""
        inner = u[(u > 0) & (u < 1)]
        # Without any F inside, the ends tell about the middle.
        least, most = (inner.min(), inner.max()) if inner.size else (0.5, 0.5)
        inside = (u > 0) & (u < 1)
        outlived = np.concatenate([np.flatnonzero(~event & inside), np.flatnonzero(u == 1)])
        parts = (np.flatnonzero(event & inside), outlived, np.flatnonzero(event & (u == 0)))
        columns = np.ones((u.size, 1)) if basis is None else basis
        one = np.ones(u.size) if weights is None else weights
        above = np.where(u[outlived] == 1, most, u[outlived])
        below = np.full(parts[2].size, least)
        bases = (columns[parts[0]], columns[parts[1]], columns[parts[2]])
        own = (one[parts[0]], one[parts[1]], one[parts[2]])
        return cls(u[parts[0]], above, below, bases, own, np.ones(1) if precision is None else precision)

    def maximum(self) -> Floats:
        """Return the parameters of largest posterior: log a of each column, then log b, then c."""
        from scipy.optimize import minimize  # takes longer to import than a small map to fit

        start = np.zeros(3 * self.precision.size)
        found = minimize(self.loss_and_gradient, start, jac=True, method="BFGS", options={"gtol": 1e-6})
        return np.asarray(found.x)

    def loss_and_gradient(self, parameters: Floats) -> tuple[float, Floats]:
        """Negative log-posterior and its gradient in the parameters."""
        table = parameters.reshape(3, -1)
        loss = float((self.precision * table**2).sum()) / 2
        gradient = self.precision * table
        ends = ((self.above, self.bases[1], self.weights[1], 1.0), (self.below, self.bases[2], self.weights[2], -1.0))
        for u, basis, w, sign in ends:
            a, b, c = _row_parameters(table, basis)
            log_u, log_v = np.log(u), np.log1p(-u)
            score = c + a * log_u - b * log_v
            loss -= float(w @ log_expit(-sign * score))
            slope = w * sign * expit(sign * score)
            gradient += np.stack([slope * a * log_u, -slope * b * log_v, slope]) @ basis
        a, b, c = _row_parameters(table, self.bases[0])
        log_u, log_v = np.log(self.at), np.log1p(-self.at)
        score = c + a * log_u - b * log_v
        rate = a / self.at + b / (1 - self.at)
        loss -= float(self.weights[0] @ (log_expit(score) + log_expit(-score) + np.log(rate)))
        slope = 2 * expit(score) - 1
        by_a = a * (slope * log_u - 1 / (self.at * rate))
        by_b = b * (-slope * log_v - 1 / ((1 - self.at) * rate))
        gradient += (self.weights[0] * np.stack([by_a, by_b, slope])) @ self.bases[0]
        return loss, gradient.ravel()


def _row_parameters(table: Floats, basis: Floats) -> tuple[Floats, Floats, Floats]:
    """Return a, b and c of each row."""
    log_a, log_b, c = table @ basis.T
    # A long step of the search may try anything; beyond 50 only the prior counts, which leads it back.
    return np.exp(np.clip(log_a, -50, 50)), np.exp(np.clip(log_b, -50, 50)), c


@dataclass(frozen=True, eq=False, repr=False)
class KSPRecalibration(Recalibration):
    r"""A map with three parameters on the log-odds of F, by the Kolmogorov-Smirnov distance (KSP).

    .. math:: G(u) = \sigma(a\, \mathrm{logit}\, u + b)^c, \quad a, c > 0

    The parameters minimise the largest distance between u and the share of rows with G(F) at most u, over all u. A
    censored row is spread evenly from its G(F) to 1, as `CiPOTRecalibration` spreads it: no bins, no Kaplan-Meier
    curve, and under censoring a part of the error stays. The search starts from no change.

    Attributes
    ----------
    a, b, c : float
        The parameters; no change at a = c = 1, b = 0.
    n, n_events : int
        Rows and events that G was fitted to.

    References
    ----------
    KSP: Kolmogorov-Smirnov metric-based Post-Hoc Calibration for Survival Analysis (2025), NeurIPS 38. Written from its
    public description; how it counts a censored row is our reading.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> ksp = KSPRecalibration.fit(1 - np.exp(-2 * rng.exponential(size=4000)), np.ones(4000))
    >>> bool(abs(ksp.cdf(0.75) - 0.5) < 0.02)  # where half of the events have happened
    True
    """

    a: Annotated[float, Limits(above=0)]
    b: float
    c: Annotated[float, Limits(above=0)]
    n: Count
    n_events: Count

    @classmethod
    def fit(cls, cdf: Any, event: Any) -> Self:
        """Fit G to F at the observed times of rows that did not train the model; see `KaplanMeierRecalibration.fit`."""
        u, happened = held_out_rows(cdf, event)
        from scipy.optimize import minimize  # takes longer to import than a small map to fit

        def distance(parameters: Floats) -> float:
            log_a, b, log_c = np.clip(parameters, -_FAR, _FAR)
            # The least further away, so that the search comes back.
            outside = float(np.abs(parameters - [log_a, b, log_c]).sum())
            return ks_distance(cls(np.exp(log_a), b, np.exp(log_c), 1, 1).cdf(u), happened) + outside

        # The distance has corners: a search by values alone, and once more from where it ended.
        start = np.zeros(3)
        for size in (0.5, 0.1):
            simplex = start + np.vstack([np.zeros(3), size * np.eye(3)])
            options = {"initial_simplex": simplex, "xatol": 1e-5, "fatol": 1e-7, "maxiter": 400}
            start = minimize(distance, start, method="Nelder-Mead", options=options).x
        log_a, b, log_c = np.clip(start, -_FAR, _FAR)
        return cls(float(np.exp(log_a)), float(b), float(np.exp(log_c)), u.size, int(happened.sum()))

    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""
        values = probabilities(u)
        return np.asarray(np.exp(self.c * log_expit(self._score(values, _tail(values, None)))))

    def log_density(self, u: Any, log_survival: Any = None) -> Floats:
        """Log of the slope of G; as that of `BetaRecalibration` at 0 and 1."""
        values, tail = _between(probabilities(u), log_survival)
        score = self._score(values, tail)
        rate = np.log(self.a * self.c) - np.log(values) - tail
        return np.asarray(self.c * log_expit(score) + log_expit(-score) + rate)

    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1; with the model's own ``log(1 - F)`` exact where F rounds to 1."""
        values = probabilities(u)
        score = self._score(values, _tail(values, log_survival))
        with np.errstate(divide="ignore", over="ignore"):
            inside = np.log(-np.expm1(self.c * log_expit(score)))
        # Far out 1 - G is c exp(-score), the first term of its series.
        return np.asarray(np.where(score > 30, np.log(self.c) - score, inside))

    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`."""
        with np.errstate(divide="ignore"):
            log_root = np.log(probabilities(p, "p")) / self.c
            score = log_root - np.log(-np.expm1(log_root))
        return np.asarray(expit((score - self.b) / self.a))

    def _score(self, u: Floats, log_survival: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(self.a * (np.log(u) - log_survival) + self.b)

    def __repr__(self) -> str:
        parameters = f"a={self.a:.3g}, b={self.b:.3g}, c={self.c:.3g}"
        return f"{type(self).__name__}({parameters}, from {self.n} rows with {self.n_events} events)"


# The search stays where log a, b and log c are no larger: G is a step there.
_FAR = 5.0


def ks_distance(u: Floats, event: BoolArray) -> float:
    """Largest distance of the distribution of F from a uniform one, a censored row spread evenly from its F to 1.

    Examples
    --------
    >>> ks_distance(np.array([0.25, 0.75]), np.array([True, True]))
    0.25
    >>> ks_distance(np.array([0.0, 0.0]), np.array([False, False]))
    0.0
    """
    values = np.unique(np.append(u, 1.0))
    before, after, _ = _passed(u, event, values)
    return float(np.maximum(np.abs(before / u.size - values), np.abs(after / u.size - values)).max())


# The paper reports 9 levels, the deciles: ten pieces.
DEFAULT_PIECES = 10

# Sums of shares differ from a level by rounding where they meet it exactly.
ROUNDING = 1e-12


@dataclass(frozen=True, eq=False, repr=False)
class CiPOTRecalibration(PiecewiseRecalibration):
    """The levels of F that conformal prediction puts in the place of the deciles.

    The conformity score of a row is its survival probability at the observed time. A censored row has many scores,
    spread evenly from 0 to that probability, which is what the model itself says of it. The new quantile at a level p
    is the model's own quantile at that level of F below which a share p of the scores' F lies; here the paper's
    repetition of every row is taken to its limit, so that nothing is drawn. Between the levels G is a straight line in
    F. Below the first and above the last level it runs straight to 0 and 1, as the paper says nothing about them.

    The spread of censored rows trusts the model that is corrected: under censoring the map undoes only part of the
    error. Levels that fall on one F, because many rows share it, become one knot at the lowest of them.

    References
    ----------
    Qi, Yu, Greiner (2024), Toward Conditional Distribution Calibration in Survival Prediction, NeurIPS 37.

    Examples
    --------
    >>> cipot = CiPOTRecalibration.fit(np.arange(1, 100) / 200, np.ones(99))
    >>> cipot.quantile([0.1, 0.5])
    array([0.05, 0.25])
    """

    @classmethod
    def fit(cls, cdf: Any, event: Any, *, n_pieces: int | None = None, weights: Any = None) -> Self:
        """Fit G to F at the observed times of rows that did not train the model; see `KaplanMeierRecalibration.fit`.

        `n_pieces` is one more than the number of levels; 10 by default, which are the deciles.
        """
        u, happened = held_out_rows(cdf, event)
        w = None if weights is None else as_weights("weights", weights, u.size)
        pieces = DEFAULT_PIECES if n_pieces is None else as_count("n_pieces", n_pieces, at_least=2, at_most=MANY)
        wanted = np.arange(1, pieces) / pieces
        knots, levels = through_points(np.round(_quantiles(u, happened, wanted, w), DIGITS), wanted)
        return cls(knots, levels, u.size, int(happened.sum()))


def _quantiles(u: Floats, event: BoolArray, shares: Floats, weights: Floats | None = None) -> Floats:
    """Smallest F below which each share of the rows lies, where a censored row is spread evenly from its F to 1.

    Between two neighbouring values the number of rows passed rises along a line: each censored row that began before
    adds 1 / (1 - F).
    """
    values = np.unique(np.append(u, 1.0))
    before, after, slope = _passed(u, event, values, weights)
    asked = shares * (u.size if weights is None else weights.sum()) * (1 - ROUNDING)
    at = np.minimum(np.searchsorted(after, asked), values.size - 1)
    left = np.maximum(at - 1, 0)
    lacking = asked - after[left]
    along = values[left] + np.divide(lacking, slope[left], out=np.zeros_like(lacking), where=slope[left] > 0)
    within = (before[at] >= asked) & (at > 0)
    return np.asarray(np.where(within, np.minimum(along, values[at]), values[at]))


def _passed(
    u: Floats, event: BoolArray, values: Floats, weights: Floats | None = None
) -> tuple[Floats, Floats, Floats]:
    """Rows passed just before and at each of the distinct F and 1, and the rate at which they pass after it."""
    place, w = np.searchsorted(values, u), np.ones(u.size) if weights is None else weights
    steps = np.bincount(place, weights=w * (event | (u == 1)), minlength=values.size).astype(np.float64)
    open_rows = ~event & (u < 1)
    begun = np.bincount(place[open_rows], weights=w[open_rows] / (1 - u[open_rows]), minlength=values.size)
    slope = np.cumsum(begun.astype(np.float64))
    rise = np.append(0.0, slope[:-1] * np.diff(values))
    before = np.cumsum(rise) + np.cumsum(steps) - steps
    return before, before + steps, slope


# Event times that stand for a censored row, at evenly spaced levels of what Kaplan-Meier says of its future.
SAMPLES = 100


@dataclass(frozen=True, eq=False, repr=False)
class ConformalQuantiles(Kept):
    """Shifts in time, one for each level: the new quantile at a level is the model's own plus the shift.

    The conformity score of a row at a level p is the predicted quantile less the row's time, and the shift is that
    which leaves a share p of the held-out rows below. A censored row is replaced by event times from the Kaplan-Meier
    curve of the held-out rows, given that the row is event-free until its censoring; here at `SAMPLES` evenly spaced
    levels of that curve, not drawn at random. Where the curve ends above 0, the rest lies evenly between its end and
    the time at which a line from (0, 1) through its end reaches 0. The new quantiles of one row are put into increasing
    order. Nobody has the event before time 0: F' is a straight line from time 0 to a row's first new quantile after it,
    and a row whose quantiles would all be moved to before 0 has its last one where the model's first one was.

    A shift is the same for every row, in units of time: unlike a map of F, it changes the order of risks, and moves a
    short curve as far as a long one.

    Attributes
    ----------
    levels : ndarray of shape (k,)
        Increasing, between 0 and 1.
    shifts : ndarray of shape (k,)
        In the unit of the times.
    n, n_events : int
        Rows and events that the shifts were fitted to.

    References
    ----------
    Qi, Yu, Greiner (2024), Conformalized Survival Distributions: A Generic Post-Process to Increase Calibration, ICML,
    PMLR 235.

    Examples
    --------
    >>> time = np.arange(1.0, 100.0)
    >>> csd = ConformalQuantiles.fit(np.zeros((99, 9)), time, np.ones(99))
    >>> csd.shifts
    array([10., 20., 30., 40., 50., 60., 70., 80., 90.])
    """

    levels: Floats
    shifts: Floats
    n: Count
    n_events: Count

    def __post_init__(self) -> None:
        levels, shifts = np.asarray(self.levels), np.asarray(self.shifts)
        inside = levels.ndim == 1 and levels.size > 0 and levels[0] > 0 and levels[-1] < 1
        if not inside or (np.diff(levels) <= 0).any():
            fail("levels", "increasing numbers between 0 and 1", f"an array of shape {levels.shape} that is not")
        if shifts.shape != levels.shape or not np.isfinite(shifts).all():
            fail("shifts", f"{levels.size} finite numbers, as many as levels", f"shape {shifts.shape}, or others")

    @classmethod
    def fit(cls, quantiles: Any, time: Any, event: Any, *, n_samples: int = SAMPLES) -> Self:
        """Fit the shifts to rows that did not train the model.

        Parameters
        ----------
        quantiles : array-like of shape (n, k)
            The model's quantiles of each row at k evenly spaced levels, 1 / (k + 1) to k / (k + 1); see `even_levels`.
        time, event : array-like of shape (n,)
            Outcomes.
        n_samples : int
            Event times that stand for one censored row.
        """
        check_rows({"quantiles": quantiles, "time": time, "event": event})
        table = as_numpy("quantiles", quantiles).astype(np.float64)
        if table.ndim != 2 or table.size == 0:
            fail("quantiles", "an array of shape (rows, levels)", f"shape {table.shape}")
        if not np.isfinite(table).all():
            row = int(np.argmax(~np.isfinite(table).all(axis=1)))
            fail("quantiles", "finite times", table[row][~np.isfinite(table[row])][0], row)
        seen = as_time(time, table.shape[0], reference="quantiles").astype(np.float64)
        happened = as_event(event, seen.size, reference="quantiles")
        if not happened.any():
            fail("event", "at least one event", "none: every row is censored")
        levels = even_levels(table.shape[1] + 1)
        times, rows, weights = _completed(seen, happened, as_count("n_samples", n_samples, at_least=1, at_most=MANY))
        shifts = [_shift(table[rows, k] - times, weights, p, seen.size) for k, p in enumerate(levels)]
        return cls(levels, np.array(shifts), seen.size, int(happened.sum()))

    def quantiles(self, own: Floats) -> Floats:
        """Return the new quantiles at `levels`, ``(n, k)``: the model's own moved, increasing, after time 0."""
        moved = np.sort(own + self.shifts, axis=1)
        first = np.where(own > 0, own, np.inf).min(axis=1)
        # A model that has everything happen at time 0 stays there.
        first = np.where(np.isfinite(first), first, 0.0)
        moved[:, -1] = np.where(moved[:, -1] > 0, moved[:, -1], first)
        rows, after = np.arange(len(moved)), np.argmax(moved > 0, axis=1)
        line = (moved[rows, after] / self.levels[after])[:, None] * self.levels
        return np.where(moved > 0, moved, np.maximum(line, 0.0))

    def __repr__(self) -> str:
        levels = f"{self.levels.size} levels"
        return f"{type(self).__name__}({levels}, from {self.n} rows with {self.n_events} events)"


def even_levels(pieces: int) -> Floats:
    """Levels between `pieces` pieces of equal mass: the deciles for 10."""
    return np.arange(1, pieces) / pieces


def _shift(scores: Floats, weights: Floats, level: float, n: int) -> float:
    """Shift that leaves a share `level` below: less the smallest score that more than 1 - level of the rows reach."""
    order = np.argsort(scores)
    passed = np.cumsum(weights[order])
    place = np.searchsorted(passed, (1 - level) * n * (1 + ROUNDING), side="right")
    return float(-scores[order[min(int(place), scores.size - 1)]])


def _completed(time: Floats, event: BoolArray, samples: int) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    """Event times of all rows, with the row and the weight of each: one for an event, many for a censored row."""
    events, censored = np.flatnonzero(event), np.flatnonzero(~event)
    futures = _futures(fit_kaplan_meier(time, event), time[censored], samples)
    times = np.concatenate([time[events], futures.ravel()])
    row = np.concatenate([events, np.repeat(censored, samples)])
    weights = np.concatenate([np.ones(events.size), np.full(futures.size, 1 / samples)])
    return times, row, weights


def _futures(curve: KaplanMeier, time: Floats, samples: int) -> Floats:
    """Event times after each censoring, ``(rows, samples)``, at evenly spaced levels of the conditional curve."""
    now = curve.at(time)[:, None]
    left = now * (1 - (np.arange(samples) + 0.5) / samples)
    # First time at which the curve is at or below what is left; the curve falls.
    place = np.searchsorted(-curve.survival, -left * (1 + ROUNDING), side="left")
    last, end = float(curve.survival[-1]), float(curve.times[-1])
    found = curve.times[np.minimum(place, curve.times.size - 1)]
    if last > 0:
        zero = end / (1 - last)
        beyond = end + (zero - end) * (last - left) / last
        found = np.where(left < last, beyond, found)
    # A curve that is 0 at the censoring says nothing of what comes: the row stays where it is.
    return np.asarray(np.where(now > 0, np.maximum(found, time[:, None]), time[:, None]))
