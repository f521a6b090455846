"""Remedies of the literature: beta calibration, CiPOT, CSD."""

from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, log_expit, logit

from xcal._checks import MANY, BoolArray, as_count, as_event, as_numpy, as_time, check_rows, fail
from xcal._kaplan_meier import KaplanMeier, fit_kaplan_meier
from xcal._typed import Limits
from xcal.recalibration.maps import (
    DIGITS,
    Count,
    Floats,
    Kept,
    PiecewiseRecalibration,
    Recalibration,
    held_out_rows,
    own_log_survival,
    probabilities,
    through_points,
)


@dataclass(frozen=True, eq=False, repr=False)
class BetaRecalibration(Recalibration):
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
    def fit(cls, cdf: Any, event: Any) -> Self:
        """Fit G to F at the observed times of rows that did not train the model.

        Parameters
        ----------
        cdf : array-like of shape (n,)
            F at each row's observed time.
        event : array-like of shape (n,)
            True or 1 where the event happened.
        """
        u, happened = held_out_rows(cdf, event)
        rows = _Likelihood.of(u, happened)
        from scipy.optimize import minimize  # takes longer to import than a small map to fit

        found = minimize(rows.loss_and_gradient, np.zeros(3), jac=True, method="BFGS", options={"gtol": 1e-6})
        a, b, c = np.exp(found.x[0]), np.exp(found.x[1]), found.x[2]
        return cls(float(a), float(b), float(c), u.size, int(happened.sum()))

    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""
        values = probabilities(u)
        return np.asarray(expit(self._logit(values, _log1m(values))))

    def log_density(self, u: Any) -> Floats:
        """Log of the slope of G; at 0 and 1 it may be infinite."""
        values = probabilities(u)
        score = self._logit(values, _log1m(values))
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = log_expit(score) + log_expit(-score) + np.log(self.a / values + self.b / (1 - values))
        ends = np.where(values == 0, self._end(self.a, self.c), self._end(self.b, -self.c))
        return np.asarray(np.where((values > 0) & (values < 1), inside, ends))

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
        tail = _log1m(values) if log_survival is None else own_log_survival(log_survival, values)
        return np.asarray(log_expit(-self._logit(values, tail)))

    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`, by bisection on the scale of log-odds."""
        levels = probabilities(p, "p")
        with np.errstate(divide="ignore"):
            target = logit(levels)
        # G's log-odds at log-odds x: at least c + min(a, b) x for x > 0 and at most that for x < 0, less or more log 2.
        finite = np.where(np.isfinite(target), target, 0.0)
        reach = (np.abs(finite - self.c) + (self.a + self.b) * np.log(2)) / min(self.a, self.b) + 1
        low, high = -reach, reach
        for _ in range(100):
            middle = (low + high) / 2
            below = self.c + self.a * log_expit(middle) - self.b * log_expit(-middle) < finite
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        inside = expit((low + high) / 2)
        return np.asarray(np.where(np.isfinite(target), inside, levels))

    def _logit(self, u: Floats, log_survival: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(self.c + self.a * np.log(u) - self.b * log_survival)

    @staticmethod
    def _end(power: float, constant: float) -> float:
        """Log-slope at an end: G is like exp(constant) times the distance to the power there."""
        return constant if power == 1 else -np.inf if power > 1 else np.inf

    def __repr__(self) -> str:
        parameters = f"a={self.a:.3g}, b={self.b:.3g}, c={self.c:.3g}"
        return f"{type(self).__name__}({parameters}, from {self.n} rows with {self.n_events} events)"


def _log1m(u: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(-u))


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """Rows by what they tell: an event at u, an event above u or a censored row, an event below u."""

    at: Floats
    above: Floats
    below: Floats

    @classmethod
    def of(cls, u: Floats, event: BoolArray) -> "_Likelihood":
        inner = u[(u > 0) & (u < 1)]
        # Without any F inside, the ends tell about the middle.
        least, most = (inner.min(), inner.max()) if inner.size else (0.5, 0.5)
        inside = (u > 0) & (u < 1)
        outlived = ~event & (u > 0)
        above = np.concatenate([u[outlived & (u < 1)], np.full(int((u == 1).sum()), most)])
        return cls(u[event & inside], above, np.full(int((event & (u == 0)).sum()), least))

    def loss_and_gradient(self, parameters: Floats) -> tuple[float, Floats]:
        """Negative log-posterior and its gradient in (log a, log b, c)."""
        # A long step of the search may try anything; beyond 50 only the prior counts, which leads it back.
        a, b = np.exp(np.clip(parameters[:2], -50, 50))
        c = parameters[2]
        loss, gradient = float(parameters @ parameters) / 2, parameters.copy()
        for u, sign in ((self.above, 1.0), (self.below, -1.0)):
            log_u, log_v = np.log(u), np.log1p(-u)
            score = c + a * log_u - b * log_v
            loss -= float(log_expit(-sign * score).sum())
            slope = sign * expit(sign * score)
            gradient += [a * (slope @ log_u), -b * (slope @ log_v), slope.sum()]
        log_u, log_v = np.log(self.at), np.log1p(-self.at)
        score = c + a * log_u - b * log_v
        rate = a / self.at + b / (1 - self.at)
        loss -= float((log_expit(score) + log_expit(-score) + np.log(rate)).sum())
        slope = 2 * expit(score) - 1
        gradient += [
            a * (slope @ log_u - (1 / (self.at * rate)).sum()),
            b * (-(slope @ log_v) - (1 / ((1 - self.at) * rate)).sum()),
            slope.sum(),
        ]
        return loss, gradient


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

    Attributes
    ----------
    knots, levels : ndarray
        F and G(F) at the ends of the straight lines, both strictly increasing from 0 to 1.
    n, n_events : int
        Rows and events that G was fitted to.

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
    def fit(cls, cdf: Any, event: Any, *, n_pieces: int | None = None) -> Self:
        """Fit G to F at the observed times of rows that did not train the model.

        Parameters
        ----------
        cdf : array-like of shape (n,)
            F at each row's observed time.
        event : array-like of shape (n,)
            True or 1 where the event happened.
        n_pieces : int, optional
            One more than the number of levels; 10 by default, which are the deciles.
        """
        u, happened = held_out_rows(cdf, event)
        pieces = DEFAULT_PIECES if n_pieces is None else as_count("n_pieces", n_pieces, at_least=2, at_most=MANY)
        wanted = np.arange(1, pieces) / pieces
        knots, levels = through_points(np.round(_quantiles(u, happened, wanted), DIGITS), wanted)
        return cls(knots, levels, u.size, int(happened.sum()))


def _quantiles(u: Floats, event: BoolArray, shares: Floats) -> Floats:
    """Smallest F below which each share of the rows lies, where a censored row is spread evenly from its F to 1.

    Between two neighbouring values the number of rows passed rises along a line: each censored row that began before
    adds 1 / (1 - F).
    """
    values = np.unique(np.append(u, 1.0))
    place = np.searchsorted(values, u)
    steps = np.bincount(place, weights=event | (u == 1), minlength=values.size)
    open_rows = ~event & (u < 1)
    begun = np.bincount(place[open_rows], weights=1 / (1 - u[open_rows]), minlength=values.size)
    slope = np.cumsum(begun)
    rise = np.append(0.0, slope[:-1] * np.diff(values))
    before = np.cumsum(rise) + np.cumsum(steps) - steps
    after = before + steps
    asked = shares * u.size * (1 - ROUNDING)
    at = np.minimum(np.searchsorted(after, asked), values.size - 1)
    left = np.maximum(at - 1, 0)
    lacking = asked - after[left]
    along = values[left] + np.divide(lacking, slope[left], out=np.zeros_like(lacking), where=slope[left] > 0)
    within = (before[at] >= asked) & (at > 0)
    return np.asarray(np.where(within, np.minimum(along, values[at]), values[at]))


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
