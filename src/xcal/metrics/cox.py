"""A Cox model with few covariates, behind the integrated calibration index and the Cox calibration slope."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal._ordering import sortable_time, stable_sort, starts_run
from xcal.metrics.inputs import Vector
from xcal.metrics.running_sums import running_sums

Matrix = npt.NDArray[np.float64]
# Log partial likelihood, its gradient, its negated Hessian, and each death's risk-set total.
Likelihood = tuple[float, Vector, Matrix, Vector]

_MAX_STEPS = 50
_MAX_HALVINGS = 30
# Newton's decrement bounds how much log-likelihood is still to be gained; beside sampling error, where differences of
# about 1 matter, a gain below this is nothing.
_DECREMENT = 1e-10
# Rounding of a log-likelihood as a share of it: that of a million rows is about -1e7, and its last digits are noise.
_ROUNDING = 1e-13

# Above so many deaths (of rows that count several times), so many at one time stand for all of that time.
_MANY_DEATHS = 1 << 20
_SHOWN_DEATHS = 256

# log(-log(1 - p)) is infinite at p = 0 and p = 1. Predictions are moved this far inside, to -23.0 and 3.1 on that
# scale; no calibration sample can tell a probability of 1e-10 from zero.
_INSIDE = 1e-10


def log_hazard(p: Vector) -> Vector:
    """log(-log(1 - p)), the log of the cumulative hazard behind a probability, held within that of 1e-10 and 1 - 1e-10.

    Under proportional hazards it is the linear predictor plus a constant.
    """
    return np.asarray(np.log(-np.log1p(-np.clip(p, _INSIDE, 1 - _INSIDE))))


@dataclass(frozen=True, eq=False)
class CoxFit:
    """Coefficients, their information, and cumulative baseline hazard at one time.

    `converged` is False if there is no maximum. The inverse of `information` is the covariance of the coefficients.
    """

    coefficients: Vector
    baseline: float
    converged: bool
    information: Matrix

    def event_probability(self, x: Matrix) -> Vector:
        """Probability of an event by the time of `baseline`."""
        with np.errstate(over="ignore"):  # an infinite hazard is a probability of one
            return np.asarray(-np.expm1(-self.baseline * np.exp(x @ self.coefficients)))


class RiskSets:
    """Risk sets of the distinct event times, for rows in time order that may count several times or not at all.

    Sums over risk sets run from the last row to the first, so that nothing is subtracted from them but the deaths of
    their own time, which stand at their beginning: Efron's method lets the k-th of d deaths at one time meet the others
    with the part k/d of each already gone.

    Parameters
    ----------
    time, event : arrays, shape (n,)
        Sorted by time, events before censored rows of the same time.
    """

    def __init__(self, time: FloatArray, event: BoolArray) -> None:
        self._events = np.flatnonzero(event)
        own = time[self._events]
        self._starts = np.flatnonzero(starts_run(own)) if own.size else self._events
        first = self._events[self._starts]
        self._time = time[first]
        # Places in the sums from the end: with everybody at risk, and without the deaths of the time.
        self._at_risk = time.size - first
        self._outlasting = self._at_risk - np.diff(np.append(self._starts, self._events.size))

    def fit(self, x: Matrix, counts: Vector, at: float, start: Vector, *, most_deaths: int | None = None) -> CoxFit:
        """Efron's partial likelihood maximised, x of shape (p, n); Newton's method begins at `start`.

        `counts` are whole numbers, at least one of them on an event. At a time with more than `most_deaths` deaths,
        so many stand for all: the mean over them is the midpoint rule for Efron's.
        """
        deaths = self._deaths(counts, most_deaths)
        p = x.shape[0]
        upper = np.triu_indices(p)
        observed = x.take(self._events, axis=1) @ counts[self._events]
        x, counts = np.ascontiguousarray(x[:, ::-1]), counts[::-1]
        products = np.vstack([np.ones_like(counts)[None], x, x[upper[0]] * x[upper[1]]]) * counts

        def likelihood(beta: Vector) -> Likelihood:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a wild trial step is halved
                # einsum, as a matrix library wakes all its threads for these, and they get in each other's way.
                sums = deaths.totals(products * np.exp(np.einsum("p,pn->n", beta, x)))
                total, mean = sums[0], sums[1 : p + 1] / sums[0]
                information = np.empty((p, p))
                weighted = mean if deaths.weight is None else mean * deaths.weight
                information[upper] = deaths.sum(sums[p + 1 :] / total)
                information[upper[::-1]] = information[upper]
                information -= np.einsum("pn,qn->pq", weighted, mean)
                value = float(beta @ observed - deaths.sum(np.log(total)))
                return value, observed - weighted.sum(axis=1), information, total

        beta, (_, _, information, denominators), converged = newton(likelihood, start)
        return CoxFit(beta, deaths.hazard(denominators, at), converged, information)

    def offset_hazard(self, offset: Vector, at: float, counts: Vector | None = None) -> tuple[float, float]:
        """Cumulative baseline hazard at one time with the offset as the whole linear predictor, and its variance.

        Efron's estimator, the sum over deaths of one over the risk-set total; its variance is the sum of the squares.
        `counts` are how often each row counts, once by default.
        """
        own = np.ones(offset.size) if counts is None else counts
        deaths = self._deaths(own)
        steps = 1.0 / deaths.totals((own[::-1] * np.exp(offset[::-1]))[None])[0][deaths.time <= at]
        return float(steps.sum()), float(np.square(steps).sum())

    def _deaths(self, counts: Vector, most: int | None = None) -> "_Deaths":
        number = np.add.reduceat(counts[self._events], self._starts).astype(np.int64)
        shown = number if most is None else np.minimum(number, most)
        of_time = np.repeat(np.arange(number.size), shown)
        gone = (np.arange(of_time.size) - (np.cumsum(shown) - shown)[of_time]) / shown[of_time]
        weight = None
        if most is not None:
            weight = number[of_time] / shown[of_time]
            # From the beginnings of the parts to their middles, less half a death: nothing where all are shown.
            gone += 0.5 / shown[of_time] - 0.5 / number[of_time]
        return _Deaths(self._time[of_time], gone, self._at_risk[of_time], self._outlasting[of_time], weight)


@dataclass(frozen=True, eq=False)
class _Deaths:
    """Each death: its time, the part of its fellow dead already gone, and its places in the sums over risk sets."""

    time: FloatArray
    gone: Vector
    at_risk: npt.NDArray[np.int64]
    outlasting: npt.NDArray[np.int64]
    weight: Vector | None = None  # deaths that each stands for; one each if None

    def sum(self, values: Matrix) -> Matrix:
        """Sum over the deaths, along the last axis."""
        return np.asarray((values if self.weight is None else values * self.weight).sum(axis=-1))

    def hazard(self, totals: Vector, at: float) -> float:
        """Cumulative baseline hazard at one time: over the deaths by then, the sum of one over the risk-set total."""
        early = self.time <= at
        return float(np.sum((1.0 if self.weight is None else self.weight[early]) / totals[early]))

    def totals(self, backwards: Matrix) -> Matrix:
        """Sum over the risk set of each death, of values of shape (k, n) from the last row to the first."""
        running = running_sums(backwards)
        everybody = running.take(self.at_risk, axis=1)
        return np.asarray(everybody - self.gone * (everybody - running.take(self.outlasting, axis=1)))


def fit_cox(
    x: Matrix, time: FloatArray, event: BoolArray, at: float, counts: Vector | None = None, *, rough: bool = False
) -> CoxFit:
    """Maximise Efron's partial likelihood by Newton's method with step halving; hazard by Efron's estimator.

    Parameters
    ----------
    x : array, shape (n, p)
        Covariates, p small, on a scale near 1.
    time, event : arrays, shape (n,)
        At least one event.
    at : float
        Time of the cumulative baseline hazard.
    counts : array, shape (n,), optional
        How often each row counts. With millions of deaths, a part of those at one time stand for all.
    rough : bool
        Let a part of them stand for all whatever their number: for rows whose times are rough too.
    """
    _, order = stable_sort(sortable_time(time, event))
    sets = RiskSets(time[order], event[order])
    own = np.ones(time.size) if counts is None else counts[order]
    all_shown = counts is None or (counts[event].sum() <= _MANY_DEATHS and not rough)
    most = None if all_shown else _SHOWN_DEATHS
    return sets.fit(np.ascontiguousarray(x[order].T), own, at, np.zeros(x.shape[1]), most_deaths=most)


def offset_hazard(offset: Vector, time: FloatArray, event: BoolArray, at: float) -> tuple[float, float]:
    """`RiskSets.offset_hazard` of rows in any order."""
    _, order = stable_sort(sortable_time(time, event))
    return RiskSets(time[order], event[order]).offset_hazard(offset[order], at)


def newton(likelihood: Callable[[Vector], Likelihood], beta: Vector) -> tuple[Vector, Likelihood, bool]:
    """Maximise a log partial likelihood by Newton's method with step halving: where, what it is there, and whether."""
    value, gradient, information, denominators = likelihood(beta)
    converged = False
    for _ in range(_MAX_STEPS):
        try:
            step = np.linalg.solve(information, gradient)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(step).all():
            break
        noise = max(_DECREMENT, _ROUNDING * abs(value))
        for halving in range(_MAX_HALVINGS):
            trial = likelihood(beta + step / 2**halving)
            # Beside the maximum the last digits of the likelihood are noise; a step that gains nothing is as good.
            if trial[0] >= value - noise:
                break
        else:
            break
        converged = float(gradient @ step) / 2 < _DECREMENT
        beta = beta + step / 2**halving
        value, gradient, information, denominators = trial
        if converged:
            break
    return beta, (value, gradient, information, denominators), converged
