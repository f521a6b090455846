"""Net benefit and decision curve under censoring: what acting on the risks gains over acting on all or on none."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal._checks import BoolArray, as_number, as_probability, as_row, fail, first_row
from xcal._devices import Workers
from xcal.metrics.inputs import Matrix, RowsAt, Vector, read_at, running_sums
from xcal.metrics.intervals import resampled_intervals
from xcal.metrics.observed import observed_risk
from xcal.metrics.pseudo_values import CensoringModel, censoring_of
from xcal.metrics.resamples import Block, Timeline, check_bootstrap, drawn_by_generator, resampled


@dataclass(frozen=True)
class NetBenefit:
    """Net benefit at one threshold.

    Attributes
    ----------
    value : float
        Of treating the rows with a risk at or above the threshold, per row: as good as this share of true positives
        without any false one.
    treat_all : float
        Of treating everybody; that of treating nobody is zero.
    share : float
        Rows at or above the threshold, of all.
    observed : float
        One minus Kaplan-Meier at `at` among them; NaN where there are none.
    threshold, at : float
        The risk from which one would act, and the time.
    """

    value: float
    treat_all: float
    share: float
    observed: float
    threshold: float
    at: float


@dataclass(frozen=True, eq=False, repr=False)
class DecisionCurve:
    """Net benefit at one horizon for every threshold; that of treating nobody is zero."""

    horizon: float
    threshold: Vector
    model: Vector
    lower: Vector  # interval of `model`, NaN without resamples
    upper: Vector
    treat_all: Vector


def net_benefit(
    probability: Any,
    threshold: float,
    *,
    at: float,
    time: Any,
    event: Any,
    competing: Any = None,
    censoring: Any = None,
) -> NetBenefit:
    r"""Net benefit of acting on everybody whose risk is at or above a threshold (Vickers and others).

    .. math:: NB(p_t) = \frac{n_+}{n} \Big[ (1 - S_+(t)) - S_+(t) \frac{p_t}{1 - p_t} \Big]

    with n+ the rows at or above the threshold and S+ their Kaplan-Meier curve. Without censoring these are counts:
    true positives less false positives weighted by the odds of the threshold, per row.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    threshold : float
        Risk from which one would act, above 0 and below 1.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened. Where all rows at or above the threshold are censored before
        `at`, the last value of their curve stands for it.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: what was observed is then the
        Aalen-Johansen estimate in place of one minus Kaplan-Meier.
    censoring : array-like, shape (n, k), optional
        Covariates on which censoring may depend among the rows at or above the threshold. What was observed is then
        the share of events among rows that are weighted by a Cox model of the censorings, as in `brier_score`.

    Returns
    -------
    NetBenefit

    References
    ----------
    Vickers, Elkin (2006), Medical Decision Making 26(6):565-574. Vickers, Cronin, Elkin, Gonen (2008), BMC Medical
    Informatics and Decision Making 8:53.

    Examples
    --------
    >>> result = net_benefit([0.9, 0.8, 0.3, 0.2], 0.5, at=2.5, time=[1, 3, 2, 4], event=[1, 1, 1, 1])
    >>> result.value, result.treat_all
    (0.0, 0.0)
    """
    rows = read_at(probability, at, time=time, event=event, competing=competing, censoring=censoring)
    limit = as_number("threshold", threshold, above=0, below=1)
    positive, model = rows.risk >= limit, _model(censoring, rows)
    observed = _observed(rows, positive, model)
    share = float(positive.mean())
    value = float(benefit(share, observed, limit))
    everybody = _observed(rows, np.ones_like(positive), model)
    return NetBenefit(value, float(benefit(1.0, everybody, limit)), share, observed, limit, rows.at)


def decision_curve(
    probability: Any,
    thresholds: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    competing: Any = None,
    censoring: Any = None,
    n_bootstrap: int = 0,
    level: float = 0.95,
    generator: np.random.Generator | None = None,
) -> DecisionCurve:
    """Net benefit over thresholds, beside that of treating everybody.

    `net_benefit` at each threshold; treating everybody has that of a model whose risks are all above it, and
    treating nobody has 0.

    Parameters
    ----------
    probability, at, time, event, competing, censoring
        As for :func:`net_benefit`; with covariates of the censoring there are no intervals.
    thresholds : array-like, shape (k,)
        Strictly increasing, above 0 and below 1.
    n_bootstrap : int
        Resamples of the rows for pointwise intervals, by the standard errors that they give; 0 for none.
    level : float
        Coverage of the intervals.
    generator : numpy.random.Generator, optional
        Source of the resamples; needed with `n_bootstrap`.

    Returns
    -------
    DecisionCurve

    References
    ----------
    Vickers, Elkin (2006), Medical Decision Making 26(6):565-574.

    Examples
    --------
    >>> curve = decision_curve([0.9, 0.8, 0.3, 0.2], [0.1, 0.5], at=2.5, time=[1, 3, 2, 4], event=[1, 1, 1, 1])
    >>> curve.model.round(3), curve.treat_all.round(3)
    (array([0.444, 0.   ]), array([0.444, 0.   ]))
    """
    rows = read_at(probability, at, time=time, event=event, competing=competing, censoring=censoring)
    limits = as_thresholds(thresholds)
    check_bootstrap(n_bootstrap, level, generator)
    weighted = _model(censoring, rows)
    everybody = _observed(rows, np.ones(rows.risk.size, dtype=np.bool_), weighted)
    lower, upper = np.full(limits.size, np.nan), np.full(limits.size, np.nan)
    if weighted is not None:
        if n_bootstrap:
            fail("n_bootstrap", "0 beside covariates of the censoring", n_bootstrap)
        acted = [(rows.risk >= limit) for limit in limits]
        model = np.array(
            [benefit(a.mean(), _observed(rows, a, weighted), p) for a, p in zip(acted, limits, strict=True)]
        )
        return DecisionCurve(rows.at, limits, model, lower, upper, np.asarray(benefit(1.0, everybody, limits)))
    order = rows.outcome.order()
    line = Timeline(rows.outcome.take(order))
    counted = CountedBenefit(line, rows.risk[order], limits, rows.at)
    model = counted.values(Block.once_each(line))[0]
    if n_bootstrap and generator is not None:
        draw = drawn_by_generator(generator, n_bootstrap, order)
        with Workers(1) as workers:
            made = resampled(line, None, n_bootstrap, draw, lambda block: {"": counted.values(block)}, workers)
        lower, upper = resampled_intervals(model, made[""], level)
    return DecisionCurve(rows.at, limits, model, lower, upper, np.asarray(benefit(1.0, everybody, limits)))


def as_thresholds(thresholds: Any) -> Vector:
    """Strictly increasing risks above 0 and below 1."""
    limits = as_probability("thresholds", as_row("thresholds", thresholds)).astype(np.float64)
    bad = (limits <= 0) | (limits >= 1)
    if bad.any():
        row = first_row(bad)
        fail("thresholds", "risks above 0 and below 1", limits[row], row)
    falls = np.diff(limits) <= 0
    if falls.any():
        row = first_row(falls) + 1
        fail("thresholds", "strictly increasing risks", f"{limits[row]} after {limits[row - 1]}", row)
    return limits


def benefit(share: Any, observed: Any, threshold: Any) -> Any:
    """Net benefit from the share of rows acted on and the risk seen among them; zero where nobody is acted on."""
    gained = observed - (1 - observed) * threshold / (1 - threshold)
    return np.where(np.asarray(share) > 0, share * gained, 0.0)[()]


def _model(censoring: Any, rows: RowsAt) -> CensoringModel | None:
    """Return the model of the censoring by covariates; None where there are none."""
    if censoring is None:
        return None
    model = censoring_of(censoring, rows.outcome)
    if not isinstance(model, CensoringModel):
        fail("censoring", "None or covariates, shape (rows, columns)", "a curve")
    return model


def _observed(rows: RowsAt, chosen: BoolArray, model: CensoringModel | None) -> float:
    """Return the observed risk of some rows; NaN where there are none."""
    if model is not None:
        return float(model.observed_risk(rows.outcome, np.array([rows.at]), chosen)[0])
    own = rows.outcome.take(chosen)
    return float(observed_risk(own).at(rows.at)) if own.n else float("nan")


# --- Net benefit of resamples.


class CountedBenefit:
    """Net benefit at one time for several thresholds."""

    def __init__(self, line: Timeline, risk: Vector, thresholds: Vector, at: float) -> None:
        self._risk, self._thresholds = risk, thresholds
        self._by_then = line.event & (line.time <= at)
        self._ended = self._by_then if line.outcome.competing is None else line.outcome.ended & (line.time <= at)

    def values(self, block: Block) -> Matrix:
        """Net benefit of every resample at every threshold, shape (b, k)."""
        values = np.zeros((block.total.size, self._thresholds.size))
        for k, threshold in enumerate(self._thresholds):
            # Found anew for each block: kept for every threshold, they would fill the memory with many rows.
            rows = np.flatnonzero(self._risk >= threshold)
            if not rows.size:
                continue
            counts, events = block.counts.take(rows, axis=1), np.flatnonzero(self._ended[rows])
            before = running_sums(counts)
            # Where nobody is left nothing was drawn, and zero over anything is zero.
            at_risk = np.maximum(before[:, -1:] - before.take(events, axis=1), block.least)
            lost = counts.take(events, axis=1) / at_risk
            if self._ended is self._by_then:
                observed = 1 - np.prod(1 - lost, axis=1)
            else:
                left = np.concatenate([np.ones((len(lost), 1)), np.cumprod(1 - lost, axis=1)[:, :-1]], axis=1)
                observed = (left[:, : lost.shape[1]] * lost) @ self._by_then[rows][events].astype(np.float64)
            values[:, k] = benefit(before[:, -1] / block.total, observed, threshold)
        return values


def benefit_of_values(risk: Vector, values: Vector, counts: Matrix, thresholds: Vector) -> Matrix:
    """Return the net benefit of every resample at every threshold, shape (b, k), by pseudo-values of the rows."""
    found, total = np.zeros((len(counts), thresholds.size)), counts.sum(axis=1)
    for k, threshold in enumerate(thresholds):
        own = counts * (risk >= threshold)
        acted = own.sum(axis=1)
        observed = np.divide(own @ values, acted, out=np.zeros(acted.size), where=acted > 0)
        found[:, k] = benefit(acted / total, observed, threshold)
    return found
