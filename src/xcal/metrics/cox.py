"""A Cox model with few covariates, behind the integrated calibration index and the Cox calibration slope."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal._ordering import is_event_key, sortable_time, stable_sort, starts_run
from xcal.metrics.inputs import Vector

Matrix = npt.NDArray[np.float64]

_MAX_STEPS = 50
_MAX_HALVINGS = 30
# Newton's decrement bounds how much log-likelihood is still to be gained; beside sampling error, where differences of
# about 1 matter, a gain below this is nothing.
_DECREMENT = 1e-10

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


@dataclass(frozen=True, eq=False)
class _RiskSets:
    """Rows in time order and, for every death, what Efron's method takes from its risk set.

    Attributes
    ----------
    x : array, shape (n, p)
        Covariates in time order.
    death : bool array, shape (n,)
        Which of them are deaths.
    first : int array, shape (d,)
        For each death, the first row of its time: the risk set is everything from there on.
    share : array, shape (d,)
        Of d deaths at one time, the k-th (k = 0, 1, ...) meets the others with the part k/d of each already gone.
    death_time : int array, shape (d,)
        Number of each death's time among the times with deaths.
    """

    x: Matrix
    death: BoolArray
    first: npt.NDArray[np.int64]
    share: Vector
    death_time: npt.NDArray[np.int64]


def fit_cox(x: Matrix, time: FloatArray, event: BoolArray, at: float) -> CoxFit:
    """Maximise Efron's partial likelihood by Newton's method with step halving; hazard by Efron's estimator.

    Parameters
    ----------
    x : array, shape (n, p)
        Covariates, p small, on a scale near 1.
    time, event : arrays, shape (n,)
        At least one event.
    at : float
        Time of the cumulative baseline hazard.
    """
    keys, order = stable_sort(sortable_time(time, event))
    sets = _risk_sets(x[order], time[order], is_event_key(keys))
    beta = np.zeros(x.shape[1])
    value, gradient, information, denominators = _partial_likelihood(sets, beta)
    converged = False
    for _ in range(_MAX_STEPS):
        try:
            step = np.linalg.solve(information, gradient)
        except np.linalg.LinAlgError:
            break
        if not np.isfinite(step).all():
            break
        for halving in range(_MAX_HALVINGS):
            trial = _partial_likelihood(sets, beta + step / 2**halving)
            # Beside the maximum the last digits of the likelihood are noise; a step that gains nothing is as good.
            if trial[0] >= value - _DECREMENT:
                break
        else:
            break
        converged = float(gradient @ step) / 2 < _DECREMENT
        beta = beta + step / 2**halving
        value, gradient, information, denominators = trial
        if converged:
            break
    early = time[order][sets.first] <= at
    baseline = float(np.sum(1.0 / denominators[early]))
    return CoxFit(beta, baseline, converged, information)


def offset_hazard(offset: Vector, time: FloatArray, event: BoolArray, at: float) -> tuple[float, float]:
    """Cumulative baseline hazard at one time with the offset as the whole linear predictor, and its variance.

    Efron's estimator, the sum over deaths of one over the risk-set total; its variance is the sum of the squares.
    """
    keys, order = stable_sort(sortable_time(time, event))
    sets = _risk_sets(offset[order][:, None], time[order], is_event_key(keys))
    denominators = _at_risk(sets, np.exp(sets.x[:, 0]))
    early = time[order][sets.first] <= at
    steps = 1.0 / denominators[early]
    return float(steps.sum()), float(np.square(steps).sum())


def _risk_sets(x: Matrix, time: FloatArray, death: BoolArray) -> _RiskSets:
    starts = np.flatnonzero(starts_run(time))
    deaths = np.add.reduceat(death.astype(np.int64), starts)
    has_death = deaths > 0
    counts = deaths[has_death]
    of_time = np.repeat(np.arange(counts.size), counts)
    before = np.cumsum(counts) - counts
    share = (np.arange(of_time.size) - before[of_time]) / counts[of_time]
    return _RiskSets(x, death, starts[has_death][of_time], share, of_time)


def _partial_likelihood(sets: _RiskSets, beta: Vector) -> tuple[float, Vector, Matrix, Vector]:
    """Log partial likelihood, its gradient, its negated Hessian, and each death's risk-set total."""
    eta = sets.x @ beta
    with np.errstate(over="ignore", invalid="ignore"):  # a wild trial step gives NaN and is halved
        hazard = np.exp(eta)
        outer = sets.x[:, :, None] * sets.x[:, None, :]
        total = _at_risk(sets, hazard)
        mean = _at_risk(sets, hazard[:, None] * sets.x) / total[:, None]
        square = _at_risk(sets, hazard[:, None, None] * outer) / total[:, None, None]
        value = float(eta[sets.death].sum() - np.log(total).sum())
        gradient = sets.x[sets.death].sum(axis=0) - mean.sum(axis=0)
        information = (square - mean[:, :, None] * mean[:, None, :]).sum(axis=0)
    return value, gradient, information, total


def _at_risk(sets: _RiskSets, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Sum of the values over the risk set of each death, less Efron's part of the deaths at the same time."""
    remaining = np.cumsum(values[::-1], axis=0)[::-1][sets.first]
    starts = np.flatnonzero(starts_run(sets.death_time))
    dying = np.add.reduceat(values[sets.death], starts, axis=0)[sets.death_time]
    share = sets.share.reshape(-1, *([1] * (values.ndim - 1)))
    return np.asarray(remaining - share * dying)
