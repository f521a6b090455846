"""What a fitted survival model predicts: one interface for the models of xcal and for those that it recalibrates."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy.special import expit, logit
from sklearn.base import BaseEstimator

from xcal._checks import BoolArray, Floats, as_flag, as_levels, as_number, as_times, effective_units, fail, first_row
from xcal.data.surv import Outcome
from xcal.metrics.concordance import concordance_index
from xcal.metrics.pseudo_values import LEAST_UNCENSORED
from xcal.recalibration.maps import Kept

# --- What is said of times after the last one seen: nothing, unless extrapolation is asked for. A probability at such a
# time is NaN, and a quantile that would lie there is infinite ("later than anybody was seen"), both with a warning.

_HOW = "extrapolate=True (xcal predict --extrapolate) for what the model says there"
# A mean is known if no more than this share of rows like it outlives the last time seen.
_MOST_LEFT = 0.01


def unseen_as_nan(values: Floats, times: Floats, last: float, seen: str, *, stacklevel: int) -> Floats:
    """Return probabilities ``(..., times)`` with NaN after the last time; `seen` says in the warning where it was."""
    unseen = times > last
    if not unseen.any():
        return values
    told = f"{np.count_nonzero(unseen)} of {times.size} times lie after {last:.3g}, the last one {seen}: NaN"
    warnings.warn(f"{told} ({_HOW})", UserWarning, stacklevel=stacklevel)
    return np.where(unseen, np.nan, values)


def _unseen_as_inf(quantiles: Floats, last: float, seen: str, *, stacklevel: int) -> Floats:
    """Return quantiles with infinity in place of times after the last one."""
    unseen = quantiles > last
    if not unseen.any():
        return quantiles
    told = f"{np.count_nonzero(unseen)} of {quantiles.size} quantiles lie after {last:.3g}, the last time {seen}"
    warnings.warn(f"{told}: infinity ({_HOW})", UserWarning, stacklevel=stacklevel)
    return np.where(unseen, np.inf, quantiles)


def _means_known(left: Floats, last: float, seen: str, *, stacklevel: int) -> BoolArray:
    """Return of which rows the mean time is known, from S at the last time; warn if there are others."""
    known = left <= _MOST_LEFT
    if not known.all():
        told = f"{np.count_nonzero(~known)} of {known.size} means are NaN: more than {_MOST_LEFT:.0%} of such rows"
        advice = "ask for predict_rmst up to a horizon that was seen, or for extrapolate=True"
        warnings.warn(f"{told} outlive {last:.3g}, the last time {seen} ({advice})", UserWarning, stacklevel=stacklevel)
    return known


def _read_after(after: Any, n: int, horizon: float = np.inf) -> Floats | None:
    """Check the time that rows have come to without the event: one for all, or one per row, before the horizon."""
    if after is None:
        return None
    values = as_times("after", after)
    if values.size not in (1, n):
        fail("after", f"one time, or one for each of the {n} rows", f"{values.size}")
    found = np.array(np.broadcast_to(values, n))
    if (late := found >= horizon).any():
        fail("after", f"times before the horizon, {horizon:g}", found[first_row(late)], first_row(late))
    return found


# --- The order of rows.


def pairs_in_order(
    outcome: Outcome, risk: Callable[[int | None], Floats], weights: Floats | None = None
) -> tuple[float, float]:
    """Return the pairs of rows that risks put in order, ties as halves, and all that can be compared (Harrell).

    `risk` gives the risk of any event, or of a cause. Rows of delayed entry are compared from their entry on. Of
    several causes the pairs of each are added up: one event of the cause, and a row that outlasts it or has had another
    event, after which this one never comes. Of events between two times no pair is known.
    """
    if outcome.lower is not None:
        return 0.0, 0.0
    concordant = comparable = 0.0
    for k in (None,) if outcome.cause is None else range(1, len(outcome.causes) + 1):
        time, event = outcome.time, outcome.event
        if k is not None:
            of = outcome.among(k)
            event, time = of.event, np.where(of.ended & ~of.event, outcome.last + 1, time)
        found = concordance_index(time=time, event=event, risk=risk(k), weights=weights, entry=outcome.entry)
        concordant, comparable = concordant + found.concordant + found.tied / 2, comparable + found.comparable
    return concordant, comparable


@dataclass(frozen=True, eq=False)
class MeanTime:
    """Mean time of each row, and how far the networks behind it disagree.

    Attributes
    ----------
    value : array, shape (n,)
        The mean, in the unit of the times.
    error : array, shape (n,)
        Standard error of the mean over the networks (seeds) that are averaged: the standard deviation of their own
        means over the root of their number. It tells how much other initial weights and batches would change; not what
        other training rows would. NaN of a model that is one network, or none.
    """

    value: Floats
    error: Floats

    @classmethod
    def of_networks(cls, value: Floats, networks: Floats) -> "MeanTime":
        """Put a mean beside those of the networks it averages, ``(networks, n)``."""
        k = len(networks)
        error = networks.std(axis=0, ddof=1) / np.sqrt(k) if k > 1 else np.full(value.shape, np.nan)
        return cls(value, error)

    def where(self, known: npt.NDArray[np.bool_]) -> "MeanTime":
        """Put NaN where the mean is not known."""
        return MeanTime(np.where(known, self.value, np.nan), np.where(known, self.error, np.nan))


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalCurve:
    """S of one row: call it with a time or an array of times.

    Attributes
    ----------
    x, y : ndarray of shape (m,)
        Times from 0 to the last one seen, and S at each of them, for drawing. A call does not read these points but
        asks the model again.
    """

    x: Floats
    y: Floats
    _survival: Callable[[Floats], Floats] = field(repr=False)
    _seen: str = field(repr=False)

    @property
    def domain(self) -> tuple[float, float]:
        """Times that the data covered; a call after them gives NaN, or extrapolates if it is asked to."""
        return float(self.x[0]), float(self.x[-1])

    def __call__(self, times: Any, *, extrapolate: bool = False) -> Any:
        """S at `times`; a number for a number, an array for an array.

        After the last time seen it is NaN, with a warning, unless it is to `extrapolate`.
        """
        asked = as_times("times", times)
        survival = self._survival(asked)[0]
        if not as_flag("extrapolate", extrapolate):
            survival = unseen_as_nan(survival, asked, self.domain[1], self._seen, stacklevel=3)
        return float(survival[0]) if np.ndim(times) == 0 else survival

    def __repr__(self) -> str:
        return f"SurvivalCurve({self.x.size} points on [{self.domain[0]:g}, {self.domain[1]:g}])"


@dataclass(frozen=True, eq=False)
class SurvivalBand:
    """S of each row at each time, and how far other seeds and other rows of recalibration would take it.

    Attributes
    ----------
    survival, lower, upper : arrays, shape (n, m)
    """

    survival: Floats
    lower: Floats
    upper: Floats


# Of a pointwise band.
_BAND = 1.959964  # 95 %

# --- Intervals of the time of one row.


@dataclass(frozen=True, eq=False)
class ConformalScores(Kept):
    r"""What prediction intervals are made of: events of rows that did not train the model.

    A bound of the time at which F is u is crossed too early or too late by a new row as often as by these, if a row
    with an event at y stands for all like it that were censored before: 1 / G(y-) of them, with G the probability of
    not being censored, given the covariates. With W the sum of these weights over events with F below u, of n rows,

    .. math:: \frac{W + \max_i w_i}{n + 1} \le \text{miss}, \qquad \frac{n + 1 - W}{n + 1} \le \text{miss}

    are what a lower and an upper bound have to fulfil (conformal risk control): P(T < lower) and P(T > upper) are then
    at most `miss` on average, whatever the model, if the weights are right and rows are exchangeable. The first holds
    the largest weight seen for the largest there is.
    """

    cdf: Floats  # F at the events
    weights: Floats  # of the events
    n: float  # rows, censored ones too

    @classmethod
    def of(cls, cdf: Floats, event: BoolArray, uncensored: Floats, weights: Floats | None = None) -> Self:
        """Make them of F at the observed times, events, and G just before each time."""
        own = np.ones(cdf.size) if weights is None else effective_units(weights)
        own = np.ones(cdf.size) if own is None else own
        seen = event & (uncensored > 0)
        return cls(cdf[seen], own[seen] / uncensored[seen], float(own.sum()))

    def __post_init__(self) -> None:
        u, w = np.asarray(self.cdf), np.asarray(self.weights)
        if u.ndim != 1 or u.shape != w.shape or not ((u >= 0) & (u <= 1)).all():
            fail("cdf", "values in [0, 1], one for each weight", f"shape {u.shape}, or others")
        if not (np.isfinite(w) & (w > 0)).all() or not self.n >= 1:
            fail("weights", "finite numbers above zero, of at least one row", "others")

    def lower_level(self, miss: float) -> float:
        """F at the lower bound: 0 where rows are too few to say anything."""
        order = np.argsort(self.cdf)
        u, w = self.cdf[order], self.weights[order]
        # Events below each of them, and the largest weight among these, or of the first where there are none.
        before = np.searchsorted(u, u, side="left")
        below, largest = np.append(0.0, np.cumsum(w))[before], np.append(1.0, np.maximum.accumulate(w))[before]
        allowed = below + largest <= miss * (self.n + 1)
        return float(u[allowed].max()) if allowed.any() else 0.0

    def upper_level(self, miss: float) -> float:
        """F at the upper bound: infinity where too few were followed for so long."""
        order = np.argsort(self.cdf)
        # Few rows of large weight would end the interval by chance; smaller weights only make it longer.
        u, reached = self.cdf[order], np.cumsum(np.minimum(self.weights[order], 1 / LEAST_UNCENSORED))
        enough = reached >= (1 - miss) * (self.n + 1)
        return float(u[enough][0]) if enough.any() else np.inf


class Predicting(ABC):
    """What predicts: a fitted model, asked about rows that were read.

    `after` is the time that each row has come to without the event, ``(n,)``; None: nothing is known of that.
    """

    # Where the last time was seen, in the words of a warning.
    seen = "seen in training"

    @property
    @abstractmethod
    def grid(self) -> Floats:
        """Times from 0 to the last one seen, where curves are drawn."""

    @property
    def scores(self) -> ConformalScores | None:
        """What intervals are made of; None where no rows were held out."""
        return None

    def bounds(self, rows: Any, levels: Floats) -> Floats:
        """Return the times at which F, as `scores` have it, comes to the levels, ``(n, levels)``."""
        return self.quantile(rows, levels)

    def spread(self, rows: Any, times: Floats) -> Floats:
        """Return the standard error of the log-odds of S of each row at each time, ``(n, m)``."""
        fail("interval", "a model of several seeds, or one that was recalibrated", "one network as it was trained")

    @property
    def law(self) -> bool:
        """Whether it says something of all times, also after the last one seen."""
        return True

    @abstractmethod
    def count(self, rows: Any) -> int:
        """Return the number of rows."""

    @property
    def causes(self) -> tuple[str, ...]:
        """Names of causes 1, 2, ..., where events have several."""
        return ()

    @abstractmethod
    def risk(self, rows: Any, cause: int | None = None) -> Floats:
        """Mean of F, or of the incidence of a cause, of each row over the grid, ``(n,)``."""

    def incidence(self, rows: Any, times: Floats, after: Floats | None = None) -> Floats:
        """Incidence of each cause at each time, ``(n, causes, m)``."""
        fail("X", "rows of a model that was fitted to events with causes", "one of events of one kind: predict_cdf")

    @abstractmethod
    def cdf(self, rows: Any, times: Floats, after: Floats | None = None) -> Floats:
        """F of each row at each time, ``(n, m)``."""

    @abstractmethod
    def survival(self, rows: Any, times: Floats, after: Floats | None = None) -> Floats:
        """S of each row at each time, ``(n, m)``."""

    @abstractmethod
    def quantile(self, rows: Any, levels: Floats, after: Floats | None = None) -> Floats:
        """Quantiles of each row, ``(n, levels)``."""

    @abstractmethod
    def mean_time(self, rows: Any, after: Floats | None, horizon: float | None) -> MeanTime:
        """Mean time of each row, or of the time until the event or a horizon; and those of the networks behind it."""

    @abstractmethod
    def curves(self, rows: Any) -> Iterable[tuple[Floats, Callable[[Floats], Floats]]]:
        """S of each row at the grid, and a function that returns it at other times, ``(1, m)``."""


def cause_number(cause: Any, causes: tuple[str, ...]) -> int:
    """Return the number of a cause that is given by its number or its name."""
    if isinstance(cause, str) and cause in causes:
        return causes.index(cause) + 1
    if not causes:
        fail("cause", "None, of a model of events of one kind", repr(cause))
    known = isinstance(cause, int | np.integer) and not isinstance(cause, bool) and 1 <= cause <= len(causes)
    if not known:
        fail("cause", f"a number from 1 to {len(causes)}, or one of {', '.join(map(repr, causes))}", repr(cause))
    return int(cause)


class SurvivalPredictor(BaseEstimator):
    """Interface of a fitted survival estimator: everything follows from what predicts, and from the rows as it reads.

    Of times after `last_time_`, the last one seen in the fit, nothing is said unless a prediction is to `extrapolate`.
    """

    @abstractmethod
    def _asked(self, X: Any) -> tuple[Predicting, Any]:
        """Return what predicts and the rows of X as it takes them; fails if nothing was fitted."""

    @abstractmethod
    def _judged(self, X: Any, y: Any, sample_weight: Any, n: int) -> tuple[Outcome, Floats | None]:
        """Read outcomes and weights of n rows to be judged by, from y or from the `SurvivalData` that X is."""

    def predict(self, X: Any, cause: int | str | None = None) -> Floats:
        """Risk of each row; the higher, the sooner the event is expected.

        It is the mean of F from 0 to `last_time_`, a number from 0 to 1 without unit: one less the restricted mean
        survival time as a share of that time. Unlike the median it is known, and tells rows apart, also where most rows
        outlive the study.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
            Of `Recalibrated`: as the model inside takes them.
        cause : int or str, optional
            Of several causes the number or name of one, whose incidence then stands for F; by default any event.

        Returns
        -------
        ndarray of shape (n,)
        """
        model, rows = self._asked(X)
        return model.risk(rows) if cause is None else model.risk(rows, cause_number(cause, model.causes))

    def predict_survival_function(
        self, X: Any, times: Any = None, *, after: Any = None, extrapolate: bool = False, interval: bool = False
    ) -> Any:
        """Probability of no event until each of `times`.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
        times : array-like of shape (m,), optional
            Zero or larger, counted from the start, also with `after`.
        after : float or array-like of shape (n,), optional
            Given that the patient has come this far without the event: ``S(t) / S(after)``, and 1 until `after`. One
            time for all rows, or one per row. Five more years after two are ``times=[7], after=2``.
        extrapolate : bool
            What to say of times after the last one seen in the fit: by default NaN, with a warning; if True, what the
            distribution says there, of which no row told anything. A curve that ends, as that of a Cox model inside
            `Recalibrated`, keeps its last value.
        interval : bool
            With `times`: a band about each curve, 95 % at each time, from the spread of the seeds that are averaged and
            from resamples of the rows that the model was recalibrated on. It holds the curve that many more of both
            would give. What other rows to train on would change is not in it, nor what is wrong with the model.

        Returns
        -------
        ndarray of shape (n, m)
            Without `times` an array of n `SurvivalCurve`, which can be called with times and have the points ``x``,
            ``y``: the form in which scikit-survival and its scorers want it. With `interval` a `SurvivalBand`.
        """
        if times is not None:
            asked = as_times("times", times)
            model, rows = self._asked(X)
            values = model.survival(rows, asked, _read_after(after, model.count(rows)))
            if not as_flag("extrapolate", extrapolate):
                values = unseen_as_nan(values, asked, model.grid[-1], model.seen, stacklevel=3)
            if not as_flag("interval", interval):
                return values
            if after is not None:
                fail("interval", "False with after: a band is of the curve from the start", "True")
            odds, error = logit(values), _BAND * model.spread(rows, asked)
            return SurvivalBand(values, expit(odds - error), expit(odds + error))
        if as_flag("interval", interval):
            fail("times", "times at which to predict, beside interval", "None")
        if after is not None:
            fail("times", "times at which to predict, beside after", "None")
        model, rows = self._asked(X)
        curves = np.empty(model.count(rows), dtype=object)
        for row, (values, survival) in enumerate(model.curves(rows)):
            curves[row] = SurvivalCurve(model.grid, values, survival, model.seen)
        return curves

    def predict_cdf(self, X: Any, times: Any, *, after: Any = None, extrapolate: bool = False) -> Floats:
        """Probability of an event by each of `times`, ``(n, m)``; NaN after the last time seen in the fit.

        `after` and `extrapolate` as in `predict_survival_function`.
        """
        asked = as_times("times", times)
        model, rows = self._asked(X)
        values = model.cdf(rows, asked, _read_after(after, model.count(rows)))
        if as_flag("extrapolate", extrapolate):
            return values
        return unseen_as_nan(values, asked, model.grid[-1], model.seen, stacklevel=3)

    def predict_cumulative_incidence(
        self, X: Any, times: Any, *, cause: int | str | None = None, after: Any = None, extrapolate: bool = False
    ) -> Floats:
        """Probability of an event of each cause by each of `times`, the other causes acting too.

        Of a model that was fitted to events with several causes. NaN after the last time seen in the fit.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
        times : array-like of shape (m,)
        cause : int or str, optional
            Number or name of one cause; by default all of them.
        after, extrapolate
            As in `predict_survival_function`.

        Returns
        -------
        ndarray of shape (n, causes, m), or (n, m) with `cause`
        """
        asked = as_times("times", times)
        model, rows = self._asked(X)
        values = model.incidence(rows, asked, _read_after(after, model.count(rows)))
        if cause is not None:
            values = values[:, cause_number(cause, model.causes) - 1]
        if as_flag("extrapolate", extrapolate):
            return values
        return unseen_as_nan(values, asked, model.grid[-1], model.seen, stacklevel=3)

    def predict_quantile(self, X: Any, p: Any, *, after: Any = None, extrapolate: bool = False) -> Floats:
        """Time by which a share `p` of rows like these has had the event.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
        p : float or array-like of shape (m,)
            Between 0 and 1.
        after : float or array-like of shape (n,), optional
            Of rows that have come this far without the event; the time is counted from the start, `after` included.
        extrapolate : bool
            What to say of a time after the last one seen in the fit: by default infinity, "later than anybody was
            seen", with a warning; if True, what the distribution says: still infinity where a curve ends before.

        Returns
        -------
        ndarray of shape (n,), or (n, m) if `p` is an array
        """
        levels = as_levels("p", p)
        model, rows = self._asked(X)
        values = model.quantile(rows, levels, _read_after(after, model.count(rows)))
        if not as_flag("extrapolate", extrapolate):
            values = _unseen_as_inf(values, model.grid[-1], model.seen, stacklevel=3)
        return values[:, 0] if np.ndim(p) == 0 else values

    def predict_median(self, X: Any, *, after: Any = None, extrapolate: bool = False) -> Floats:
        """Time by which half of rows like these have had the event, ``(n,)``; infinite after the last time seen.

        `after` and `extrapolate` as in `predict_quantile`.
        """
        model, rows = self._asked(X)
        values = model.quantile(rows, np.array([0.5]), _read_after(after, model.count(rows)))[:, 0]
        if as_flag("extrapolate", extrapolate):
            return values
        return _unseen_as_inf(values, model.grid[-1], model.seen, stacklevel=3)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Floats:
        """Interval of the time of the event of each row, ``(n, 2)``, whatever is wrong with the model.

        A conformal interval: of rows that did not train the model, so many have their event before the lower bound, and
        so many after the upper one, that either happens to a new row with probability (1 - `coverage`) / 2 at most.
        Censored rows are stood for by rows like them, with weights by a model of the censoring given the covariates:
        it has to be right, as far as it matters, and there must be no reason of censoring that is not among them.
        The coverage is an average over rows: in a subgroup it may be another.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
        coverage : float
            Between 0 and 1.

        Returns
        -------
        ndarray of shape (n, 2)
            The upper bound is infinite where it lies after the last time seen, or where too few rows were followed for
            long enough; the lower one is 0 where rows are too few to say more. A warning says so.
        """
        half = (1 - as_number("coverage", coverage, above=0, below=1)) / 2
        model, rows = self._asked(X)
        scores = _scores(model)
        low, high = scores.lower_level(half), scores.upper_level(half)
        return np.stack([_lower(model, rows, low, 3), _upper(model, rows, high)], axis=1)

    def predict_lower_bound(self, X: Any, coverage: float = 0.9) -> Floats:
        """Time that each row outlives with probability `coverage` at least, ``(n,)``; see `predict_interval`."""
        miss = 1 - as_number("coverage", coverage, above=0, below=1)
        model, rows = self._asked(X)
        return _lower(model, rows, _scores(model).lower_level(miss), 3)

    def predict_expectation(self, X: Any, *, after: Any = None, extrapolate: bool = False) -> MeanTime:
        """Mean time of the event of rows like these.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
        after : float or array-like of shape (n,), optional
            Of rows that have come this far without the event. The time is counted from the start: what remains is the
            mean less `after`.
        extrapolate : bool
            A mean asks for the whole curve. By default it is NaN, with a warning, where more than 1 % of such rows
            outlive the last time seen in the fit; if True, it is the mean of the model's law, which may be infinite.
            Of a model without a law, whose curves end, it is NaN there all the same.

        Returns
        -------
        MeanTime
            `value` and `error`, ``(n,)`` each.
        """
        model, rows = self._asked(X)
        reached = _read_after(after, model.count(rows))
        found = model.mean_time(rows, reached, None)
        if as_flag("extrapolate", extrapolate) and model.law:
            return found
        last = float(model.grid[-1])
        left = model.survival(rows, model.grid[-1:], reached)[:, 0]
        # Of rows that are said to have come further, all are left.
        left = left if reached is None else np.where(reached < last, left, 1.0)
        return found.where(_means_known(left, last, model.seen, stacklevel=3))

    def predict_rmst(self, X: Any, horizon: float, *, after: Any = None, extrapolate: bool = False) -> MeanTime:
        """Restricted mean survival time: the mean of the time until the event or `horizon`, whichever is first.

        Parameters
        ----------
        X : array-like or data frame of shape (n, d), or SurvivalData
        horizon : float
            Above zero. After the last time seen in the fit the mean is NaN, with a warning, unless it is to
            `extrapolate`.
        after : float or array-like of shape (n,), optional
            Of rows that have come this far without the event, before the horizon; `after` is part of the time.
        extrapolate : bool

        Returns
        -------
        MeanTime
            `value` and `error`, ``(n,)`` each. Of a model without a law of its own the curve is taken along straight
            lines between the times at which it is drawn.
        """
        end = as_number("horizon", horizon, above=0)
        model, rows = self._asked(X)
        found = model.mean_time(rows, _read_after(after, model.count(rows), end), end)
        if as_flag("extrapolate", extrapolate):
            return found
        seen = unseen_as_nan(np.zeros(1), np.array([end]), model.grid[-1], model.seen, stacklevel=3)
        return found.where(np.isfinite(seen))

    def score(self, X: Any, y: Any = None) -> float:
        """Harrell's concordance of `predict` with times and events; 0.5 is chance, 1 a perfect order.

        `X` and `y` are as in `fit`. The weights of `SurvivalData` count.
        """
        model, rows = self._asked(X)
        outcome, weights = self._judged(X, y, None, model.count(rows))
        concordant, comparable = pairs_in_order(outcome, partial(model.risk, rows), weights)
        return concordant / comparable if comparable > 0 else np.nan


# Away from 0 and 1, where log-odds are infinite.
_LEAST_ODDS = 1e-12


def log_odds_spread(curves: Floats) -> Floats:
    """Return the standard deviation of the log-odds over the first axis."""
    return np.asarray(logit(np.clip(curves, _LEAST_ODDS, 1 - _LEAST_ODDS)).std(axis=0, ddof=1))


def _scores(model: Predicting) -> ConformalScores:
    if model.scores is None:
        advice = "fit it with validation rows, or put it into Recalibrated(model).fit(X, y) with rows of their own"
        fail("predict_interval", f"a model with rows that it was not trained on ({advice})", "none")
    return model.scores


def _lower(model: Predicting, rows: Any, level: float, stacklevel: int) -> Floats:
    n, end = model.count(rows), float(model.grid[-1])
    if level == 0:
        told = "the held-out rows are too few for a lower bound with so much coverage: it is 0"
        warnings.warn(told, UserWarning, stacklevel=stacklevel)
        return np.zeros(n)
    # A bound that lies after the last time seen is held there, which only makes it safer.
    return np.minimum(model.bounds(rows, np.array([level]))[:, 0], end)


def _upper(model: Predicting, rows: Any, level: float) -> Floats:
    n, end = model.count(rows), float(model.grid[-1])
    found = np.full(n, np.inf) if level >= 1 else model.bounds(rows, np.array([level]))[:, 0]
    found = np.where(found > end, np.inf, found)
    if np.isinf(found).any():
        told = (
            f"{np.count_nonzero(np.isinf(found))} of {n} upper bounds are infinite: too few rows were followed so long"
        )
        warnings.warn(told, UserWarning, stacklevel=4)
    return found
