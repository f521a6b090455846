"""Calibration at one time for each level of risk: the smooth curve, its distance from the predictions, risk groups.

What happened is the pseudo-value of each row (`pseudo_values`), so that nothing is assumed about hazards. It is
smoothed over the predictions by local lines through the nearest third of the rows (loess). A local line gives back
every straight line, so where the predictions are right, smoothing adds nothing to their error: what is left is noise,
and the noise of a linear smoother is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from xcal._checks import MANY, as_count, as_number
from xcal.calibration.bins import Clusters
from xcal.data.surv import Outcome
from xcal.metrics.inputs import (
    Integers,
    Matrix,
    Vector,
    as_min_cell,
    evened,
    mean_of,
    merged,
    merged_edges,
    read_at,
    starts_of,
)
from xcal.metrics.intervals import UNKNOWN_DISTANCE, Distance, true_distance, true_distance_by_counts
from xcal.metrics.observed import observed_risk
from xcal.metrics.pseudo_values import jackknife

SPAN = 1 / 3  # share of the rows that a local line looks at
N_PLACES = 101  # quantiles of the predictions at which the curve is computed; between them it is straight
# Up to so many different predictions the mean of each is taken and nothing is smoothed; from so many on they are
# gathered with their neighbours.
_FEW_LEVELS, _MOST_LEVELS = 10, 5000
# Draws of the noise, from one fixed stream so that the same rows give the same interval, and places of each.
_DRAWS, _NOISE_PLACES = 400, 26
_ROUNDING = 1e-12  # of sums of shares
# Quantiles of the distances over the rows that are shown beside their mean.
_QUANTILES = {"e50": 0.5, "e90": 0.9, "emax": 1.0}
DISTANCES = ("ici", *_QUANTILES)


class LocalLines:
    """Local lines through values of the rows over their predictions, with tricube weights.

    Attributes
    ----------
    p : array, shape (n,)
        The predictions.
    places : array, shape (k,)
        Predictions at which the curve is computed: quantiles, the smallest and the largest among them.
    weights : array, shape (n,), or None
        Of the rows: a line goes through the nearest third of the weight.
    """

    def __init__(
        self, p: Vector, *, span: float = SPAN, n_places: int = N_PLACES, weights: Vector | None = None
    ) -> None:
        self.p, self.weights = p, weights
        levels, self._level = _levels(p)
        counts = np.bincount(self._level, weights).astype(np.float64)
        single = weights is None and levels.size == p.size
        if levels.size <= _FEW_LEVELS:
            self.places, self._weights = levels, np.diag(1 / counts)
        else:
            self.places = np.unique(np.quantile(p, np.linspace(0, 1, n_places)))
            near = span * (p.size if weights is None else float(weights.sum()))
            lines = [_local_line(levels - place, counts, near, single=single) for place in self.places]
            self._weights = np.array(lines)

    @property
    def share(self) -> Vector:
        """Share of the rows that each place stands for, shape (k,)."""
        return _shares(self.places, self.p, self.weights)

    def row_weights(self) -> Matrix:
        """Return the weight of each row in the curve, shape (n, k)."""
        found = self._weights.T[self._level]
        return np.asarray(found if self.weights is None else self.weights[:, None] * found)

    def of(self, values: Vector) -> Vector:
        """Return the curve of one value per row, shape (k,)."""
        return np.asarray(self._weights @ self._sums(values))

    def at_rows(self, curve: Vector) -> Vector:
        """Return a curve at the prediction of each row, shape (n,)."""
        return np.asarray(np.interp(self.p, self.places, curve))

    def covariance(self, deviations: Vector, clusters: Clusters | None = None) -> Matrix:
        """Return the covariance of the curve, shape (k, k): from the squares of the rows' deviations from it.

        Rows are independent, or with `clusters` clusters are.
        """
        own = deviations if self.weights is None else self.weights * deviations
        if clusters is None:
            squares = np.bincount(self._level, np.square(own), self._weights.shape[1])
            return np.asarray((self._weights * squares) @ self._weights.T)
        weighted = self._weights[:, self._level] * own
        sums = np.array([clusters.sums(line) for line in weighted])
        return np.asarray(sums @ sums.T)

    def resampled(self, deviations: Vector, counts: Matrix) -> Matrix:
        """Return what the curves of resamples differ by, shape (b, k), from how often each row was drawn, shape (b, n).

        To first order: the lines keep the weights that they have of all rows.
        """
        sums = np.array([self._sums(own * deviations) for own in counts])
        return np.asarray(sums @ self._weights.T)

    def _sums(self, values: Vector) -> Vector:
        own = values if self.weights is None else self.weights * values
        return np.bincount(self._level, own, self._weights.shape[1]).astype(np.float64, copy=False)


def _shares(places: Vector, p: Vector, weights: Vector | None) -> Vector:
    """Share of the rows that each place stands for, a row between two places in part for both."""
    if places.size == 1:
        return np.ones(1)
    left = np.clip(np.searchsorted(places, p, side="right") - 1, 0, places.size - 2)
    part = (p - places[left]) / (places[left + 1] - places[left])
    one = 1.0 if weights is None else weights
    below, above = (np.bincount(left + k, one * w, places.size) for k, w in ((0, 1 - part), (1, part)))
    return np.asarray((below + above) / (p.size if weights is None else weights.sum()))


def _levels(p: Vector) -> tuple[Vector, Integers]:
    """Different predictions and the number of each row's; very many are gathered with their neighbours in rank."""
    levels, level = np.unique(p, return_inverse=True)
    if levels.size > _MOST_LEVELS:
        rank = np.empty(p.size, dtype=np.int64)
        rank[np.argsort(p, kind="stable")] = np.arange(p.size)
        # Equal predictions stay together.
        first = np.full(levels.size, p.size)
        np.minimum.at(first, level, rank)
        _, level = np.unique(first[level] * _MOST_LEVELS // p.size, return_inverse=True)
        levels = np.bincount(level, p) / np.bincount(level)
    return levels, level


def _local_line(distance: Vector, counts: Vector, rows: float, *, single: bool) -> Vector:
    """Weight of a row of each level in the local line at distance 0 through the nearest `rows`.

    `single` says that every level is one row.
    """
    away, needed = np.abs(distance), max(1.0, np.floor(rows))
    if single:
        reach = np.partition(away, int(needed) - 1)[int(needed) - 1]
    else:
        order = np.argsort(away, kind="stable")
        reached = np.searchsorted(np.cumsum(counts[order]), needed, side="left")
        reach = away[order[min(reached, order.size - 1)]]
    weight = np.clip(1 - (away / reach) ** 3, 0.0, None) ** 3 if reach > 0 else (away == 0).astype(np.float64)
    s0, s1, s2 = (float((counts * weight * distance**k).sum()) for k in range(3))
    if s0 <= 0:  # everything of weight lies at the reach itself
        nearest = away == away.min()
        return np.asarray(nearest / counts[nearest].sum())
    spread = s0 * s2 - s1 * s1
    if spread <= 1e-12 * s0 * float((counts * weight * reach**2).sum()):  # one level alone: its mean
        return np.asarray(weight / s0)
    return np.asarray(weight * (s2 - s1 * distance) / spread)


@dataclass(frozen=True, eq=False)
class SmoothCalibration:
    """Observed less predicted risk as a function of the predicted one, with its noise.

    Attributes
    ----------
    lines : LocalLines
    deviations : array, shape (k,)
        Observed less predicted risk at `lines.places`.
    covariance : array, shape (k, k)
        Of the deviations.
    broad : array, shape (k,)
        The deviations smoothed once more, by lines through all rows: their shape without most of their noise.
    """

    lines: LocalLines
    deviations: Vector
    covariance: Matrix
    broad: Vector

    @property
    def error(self) -> Vector:
        """Standard error at each place."""
        return np.asarray(np.sqrt(np.diag(self.covariance)))

    def distances(self, level: float) -> Mapping[str, Distance]:
        """Return ICI, E50, E90 and Emax with their floors, excesses and intervals, see `Distance`.

        All of them from the same draws of the noise.
        """
        rows, weights = np.abs(self.lines.at_rows(self.deviations)), self.lines.weights
        # Of so smooth a curve a few places are enough to draw noise at.
        kept = np.unique(np.linspace(0, self.broad.size - 1, _NOISE_PLACES).round().astype(np.int64))
        share = _shares(self.lines.places[kept], self.lines.p, weights)
        normal = np.random.default_rng(0).normal(size=(_DRAWS, kept.size))
        noise, broad = normal @ _root(self.covariance[np.ix_(kept, kept)]).T, self.broad[kept]
        size = float(np.abs(broad) @ share)
        shape = broad / size if size > 0 else np.zeros_like(broad)
        index = true_distance(mean_of(rows, weights), lambda m: np.asarray(np.abs(m * shape + noise) @ share), level)
        others = {
            name: _true_quantile(_quantile(rows, weights, at), noise, broad, share, at, level)
            for name, at in _QUANTILES.items()
        }
        return {"ici": index} | others


def _true_quantile(value: float, noise: Matrix, broad: Vector, share: Vector, at: float, level: float) -> Distance:
    """Return what is known of a quantile of the distances, from draws of the noise at a few places."""
    size = float(_weighted_quantile(np.abs(broad)[None], share, at)[0])
    shape = broad / size if size > 0 else np.ones_like(broad)

    def below(m: float) -> float:
        """Share of the draws whose quantile is less than the one observed: enough of their rows are closer."""
        closer = np.abs(m * shape + noise) < value
        return float(np.mean(closer.all(axis=1) if at == 1 else closer @ share >= at - _ROUNDING))

    return true_distance_by_counts(value, _weighted_quantile(np.abs(noise), share, at), below, level)


def _quantile(values: Vector, weights: Vector | None, level: float) -> float:
    if level == 1:
        return float(values.max())
    if weights is None:
        return float(np.quantile(values, level))
    return float(_weighted_quantile(values[None], weights / weights.sum(), level)[0])


def _weighted_quantile(values: Matrix, share: Vector, level: float) -> Vector:
    """Return a quantile of each line, whose entries stand for shares of the rows."""
    if level == 1:
        return np.asarray(values.max(axis=1))
    order = np.argsort(values, axis=1)
    reached = np.cumsum(share[order], axis=1) >= level - _ROUNDING
    return np.asarray(np.take_along_axis(values, order, axis=1)[np.arange(len(values)), np.argmax(reached, axis=1)])


def smooth_calibration(
    p: Vector, observed: Vector, clusters: Clusters | None = None, weights: Vector | None = None
) -> SmoothCalibration:
    """Smooth pseudo-values less predictions over the predictions."""
    lines, residual = LocalLines(p, weights=weights), observed - p
    deviations = lines.of(residual)
    around = residual - lines.at_rows(deviations)
    wide = LocalLines(p, span=1.0, weights=weights)
    broad = np.interp(lines.places, wide.places, wide.of(residual))
    return SmoothCalibration(lines, deviations, lines.covariance(around, clusters), broad)


def _root(covariance: Matrix) -> Matrix:
    """Return a matrix whose product with its transpose is the covariance, which may have no full rank."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


@dataclass(frozen=True, eq=False)
class IntegratedCalibrationIndex:
    """Distance between predicted and observed risk at one time, summarised over the rows.

    Attributes
    ----------
    value : float
        ICI, the mean absolute distance over the rows.
    e50, e90, emax : float
        Median, 90th percentile and maximum of that distance over the rows.
    floor : float
        The mean ICI of a perfect model on as many rows: noise alone.
    excess : float
        What is left of `value` without the noise; 0 if a perfect model often scores so much.
    lower, upper : float
        Interval of the true ICI.
    at : float
        The time.
    predicted, observed, error : arrays, shape (k,)
        The calibration curve at quantiles of the predictions, and its standard error.
    distances : mapping of str to Distance
        The same of all four, "ici", "e50", "e90" and "emax": each with its own `value`, `floor`, `excess`, `lower` and
        `upper`.
    """

    value: float
    e50: float
    e90: float
    emax: float
    floor: float
    excess: float
    lower: float
    upper: float
    at: float
    predicted: Vector = field(repr=False)
    observed: Vector = field(repr=False)
    error: Vector = field(repr=False)
    distances: Mapping[str, Distance] = field(repr=False)


def integrated_calibration_index(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    competing: Any = None,
    level: float = 0.95,
    outside: Literal["nan", "raise", "clip"] = "nan",
    weights: Any = None,
) -> IntegratedCalibrationIndex:
    r"""Return ICI, E50, E90 and Emax at one time, without a model of hazards.

    With :math:`\theta_i` the jackknife pseudo-value of the event by t, :math:`n \hat F(t) - (n - 1) \hat F_{-i}(t)` of
    one minus Kaplan-Meier, and :math:`\hat p` its local linear regression on the predictions (the nearest third of the
    rows, tricube weights),

    .. math:: ICI = \frac1n \sum_i |p_i - \hat p(p_i)|

    and E50, E90 and Emax are the median, the 90th percentile and the maximum of the same distances. Noise makes all of
    them positive for a perfect model too; `floor` says how much, of the others than the ICI `distances`.

    It assumes that censoring does not depend on the covariates. `xcal.audit` tests that, and corrects for it.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    at : float
        The time; an event exactly then has happened.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: what was observed is then the
        Aalen-Johansen estimate in place of one minus Kaplan-Meier.
    level : float
        Coverage of the interval.
    outside : {"nan", "raise", "clip"}
        When `at` is after the largest of `time`: give NaN, refuse, or take what was observed by then.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row. The error of the curve is then design-based (sandwich), and so
        are floor and interval. Equal weights change nothing.

    Returns
    -------
    IntegratedCalibrationIndex

    References
    ----------
    Austin, Harrell, van Klaveren (2020), Statistics in Medicine 39(21):2714-2742, for the indices; their form by a Cox
    model is `cox_ici`. van Geloven and others (2022), BMJ 377:e069249, for the estimate by smoothed pseudo-values.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=2000)
    >>> time = rng.exponential(1 / rate)
    >>> right = integrated_calibration_index(1 - np.exp(-rate), at=1.0, time=time, event=np.ones(2000))
    >>> wrong = integrated_calibration_index(1 - np.exp(-2 * rate), at=1.0, time=time, event=np.ones(2000))
    >>> right.lower == 0 and right.upper < 0.05 < wrong.lower
    True
    >>> right.distances["emax"].lower == 0 < 0.05 < wrong.distances["emax"].excess
    True
    """
    rows = read_at(probability, at, time=time, event=event, competing=competing, weights=weights, outside=outside)
    level = as_number("level", level, above=0, below=1)
    observed = jackknife(rows.outcome, rows.at, weights=rows.weights)
    if not rows.known:
        observed = np.full_like(observed, np.nan)
    return index_of(rows.risk, observed, rows.at, level, weights=rows.weights)


def index_of(
    p: Vector,
    observed: Vector,
    at: float,
    level: float,
    clusters: Clusters | None = None,
    weights: Vector | None = None,
) -> IntegratedCalibrationIndex:
    """Return the index of checked predictions and pseudo-values."""
    if np.isnan(observed).any():
        nothing = np.full(1, np.nan)
        return _index(dict.fromkeys(DISTANCES, UNKNOWN_DISTANCE), at, nothing, nothing, nothing)
    smooth = smooth_calibration(p, observed, clusters, weights)
    places = smooth.lines.places
    return _index(smooth.distances(level), at, places, places + smooth.deviations, smooth.error)


def _index(
    found: Mapping[str, Distance], at: float, predicted: Vector, curve: Vector, error: Vector
) -> IntegratedCalibrationIndex:
    index = found["ici"]
    return IntegratedCalibrationIndex(
        value=index.value,
        e50=found["e50"].value,
        e90=found["e90"].value,
        emax=found["emax"].value,
        floor=index.floor,
        excess=index.excess,
        lower=index.lower,
        upper=index.upper,
        at=at,
        predicted=predicted,
        observed=curve,
        error=error,
        distances=found,
    )


# --- The curve as a picture: with its band, risk groups and a histogram of the risks.

_POINTS = 100  # places of the smooth curve
N_RISK_GROUPS = 10
N_BINS = 50


def group_labels(predicted: Vector, n_groups: int) -> Integers:
    """Risk group of each row by the rank of its prediction, equal predictions together, numbered without gaps."""
    ordered = np.sort(predicted)
    edges = ordered[np.arange(1, n_groups) * predicted.size // n_groups]
    _, label = np.unique(np.searchsorted(edges, predicted, side="right"), return_inverse=True)
    return np.asarray(label, dtype=np.int64)


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationCurve:
    """Observed against predicted risk at one horizon, smooth with a pointwise band, and in groups of equal size."""

    horizon: float
    group: str | None  # name of the rows where they are a part of all
    predicted: Vector  # (100,) places of the smooth curve, increasing
    observed: Vector  # the smooth curve there; NaN where nothing is known
    lower: Vector  # pointwise band of it
    upper: Vector
    point_predicted: Vector  # (k,) mean risk of each risk group
    point_observed: Vector  # 1 - Kaplan-Meier of it at the horizon
    point_lower: Vector
    point_upper: Vector
    point_rows: Integers
    risk_edges: Vector  # (b + 1,) histogram of the risks, drawn beneath
    risk_counts: Integers  # (b,)


def calibration_curve(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    competing: Any = None,
    n_risk_groups: int = N_RISK_GROUPS,
    n_bins: int = N_BINS,
    level: float = 0.95,
) -> CalibrationCurve:
    """Return everything that a calibration plot at one time shows.

    The smooth curve is that behind :func:`integrated_calibration_index`: local lines through the pseudo-values of the
    event by `at`, without a model of hazards. It is drawn between the first and the 99th percentile of the predictions,
    with a pointwise band from its robust error. The points are risk groups of about equal size with one minus
    Kaplan-Meier and its interval on the log(-log) scale (Greenwood's variance).

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    at : float
        The time, within the follow-up.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: what was observed is then the
        Aalen-Johansen estimate in place of one minus Kaplan-Meier.
    n_risk_groups : int
        Points asked for; fewer where predictions are equal.
    n_bins : int
        Bins of the histogram of risks, of equal width over [0, 1].
    level : float
        Coverage of band and intervals.

    Returns
    -------
    CalibrationCurve
        NaN where `at` is after the largest of `time`, and for the interval of a group in which all or none had their
        event.

    References
    ----------
    van Geloven, Giardiello, Bonneville and others (2022), BMJ 377:e069249. Austin, Harrell, van Klaveren (2020),
    Statistics in Medicine 39(21):2714-2742, for plot and distances by a Cox model.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=2000)
    >>> curve = calibration_curve(1 - np.exp(-rate), at=1.0, time=rng.exponential(1 / rate), event=np.ones(2000))
    >>> bool(abs(curve.observed - curve.predicted).max() < 0.1), curve.point_rows.sum()
    (True, np.int64(2000))
    """
    rows = read_at(probability, at, time=time, event=event, competing=competing)
    level = as_number("level", level, above=0, below=1)
    as_count("n_risk_groups", n_risk_groups, at_least=1, at_most=MANY)
    as_count("n_bins", n_bins, at_least=1, at_most=MANY)
    smooth = None
    if rows.at <= rows.outcome.last:
        smooth = smooth_calibration(rows.risk, jackknife(rows.outcome, rows.at))
    return drawn_curve(
        rows.risk, rows.outcome, rows.at, smooth, n_risk_groups=n_risk_groups, n_bins=n_bins, level=level
    )


def drawn_curve(
    p: Vector,
    outcome: Outcome,
    at: float,
    smooth: SmoothCalibration | None,
    *,
    group: str | None = None,
    n_risk_groups: int = N_RISK_GROUPS,
    n_bins: int = N_BINS,
    level: float = 0.95,
    weights: Vector | None = None,
    min_cell: int = 0,
    values: Vector | None = None,
) -> CalibrationCurve:
    """Return the picture of a smooth curve: with its band, points and histogram; NaN where there is no curve.

    `weights` are those of the rows behind the smooth curve. The histogram counts rows in any case. Risk groups and bins
    of the histogram with fewer rows than `min_cell` are merged with their neighbours. With pseudo-values of the rows
    the points are their means.
    """
    edges = np.linspace(0, 1, n_bins + 1)
    counts = np.histogram(p, edges)[0].astype(np.int64)
    cells = merged(counts, min_cell)
    points = _points(p, outcome, at, n_risk_groups, level, weights, min_cell, values)
    low, high = np.quantile(p, [0.01, 0.99])
    places = np.linspace(float(low), float(high), _POINTS)
    curve = error = np.full(_POINTS, np.nan)
    if smooth is not None:
        deviation, error = (np.interp(places, smooth.lines.places, y) for y in (smooth.deviations, smooth.error))
        curve = np.clip(places + deviation, 0.0, 1.0)
    reach = float(ndtri((1 + level) / 2)) * error
    return CalibrationCurve(
        horizon=at,
        group=group,
        predicted=places,
        observed=curve,
        lower=np.clip(curve - reach, 0.0, 1.0),
        upper=np.clip(curve + reach, 0.0, 1.0),
        point_predicted=points[0],
        point_observed=points[1],
        point_lower=points[2],
        point_upper=points[3],
        point_rows=points[4],
        risk_edges=merged_edges(edges, cells),
        risk_counts=np.add.reduceat(counts, starts_of(cells)),
    )


def _points(
    p: Vector,
    outcome: Outcome,
    at: float,
    n_risk_groups: int,
    level: float,
    weights: Vector | None,
    min_cell: int,
    values: Vector | None,
) -> tuple[Vector, Vector, Vector, Vector, Integers]:
    """Mean risk, observed risk, its interval and the rows of each risk group."""
    label = group_labels(p, n_risk_groups)
    label = merged(np.bincount(label), min_cell)[label]
    rows = np.bincount(label)
    predicted = np.bincount(label, weights=p) / rows
    if weights is not None:
        predicted = np.bincount(label, weights=weights * p) / np.bincount(label, weights=weights)
    seen = np.full((3, rows.size), np.nan)
    for k in range(rows.size):
        if at <= outcome.last:
            here = label == k
            if values is not None:
                mean, spread = float(values[here].mean()), float(values[here].std())
                reach = float(ndtri((1 + level) / 2)) * spread / rows[k] ** 0.5
                seen[:, k] = (
                    np.clip([mean, mean - reach, mean + reach], 0.0, 1.0) if spread > 0 else [mean, np.nan, np.nan]
                )
                continue
            group = outcome.take(here)
            own = observed_risk(group, None if weights is None else weights[here])
            low, high = own.interval(at, level)
            seen[:, k] = float(own.at(at)), float(low), float(high)
    return predicted, seen[0], seen[1], seen[2], rows.astype(np.int64)


# --- Distribution of the predicted risks, by what had happened by the horizon.


@dataclass(frozen=True, eq=False, repr=False)
class RiskDistribution:
    """Predicted risks at one horizon, by what had happened by then: shares of rows in each bin of risk."""

    horizon: float
    edges: Vector  # (b + 1,)
    with_event: Vector  # (b,) shares that sum to 1 over rows with an event by the horizon
    without_event: Vector  # the same over rows seen event-free at the horizon
    censored: Vector  # the same over rows censored before it: their outcome is not known
    n_with_event: int
    n_without_event: int
    n_censored: int


def risk_distribution(
    probability: Any,
    *,
    at: float,
    time: Any,
    event: Any,
    competing: Any = None,
    n_bins: int = 20,
    weights: Any = None,
    min_cell: int = 0,
) -> RiskDistribution:
    """Histogram of the predicted risks for each outcome.

    Parameters
    ----------
    probability : array-like, shape (n,)
        Predicted probability that the event happens by time `at`.
    at : float
        The time; an event exactly then has happened, and a row censored exactly then was event-free.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: what was observed is then the
        Aalen-Johansen estimate in place of one minus Kaplan-Meier.
    n_bins : int
        Bins of equal width over [0, 1].
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of the shares.
    min_cell : int
        Of each outcome, neighbouring bins are evened until each run of them has none or so many rows.

    Returns
    -------
    RiskDistribution
        Shares of an outcome that no row has are zero.

    Examples
    --------
    >>> result = risk_distribution([0.9, 0.6, 0.2, 0.1], at=2, time=[1, 1, 3, 2], event=[1, 0, 1, 0], n_bins=2)
    >>> result.with_event, result.without_event, result.censored
    (array([0., 1.]), array([1., 0.]), array([0., 1.]))
    """
    found = read_at(probability, at, time=time, event=event, competing=competing, weights=weights)
    p, moment, outcome, w = found.risk, found.at, found.outcome, found.weights
    edges = np.linspace(0, 1, as_count("n_bins", n_bins, at_least=1, at_most=MANY) + 1)
    case = outcome.happened_by(moment)
    lost = ~outcome.ended & (outcome.time < moment)
    free = ~case & ~lost
    few, shares, totals = as_min_cell(min_cell), [], []
    for rows in (case, free, lost):
        counts = np.histogram(p[rows], edges)[0]
        sums = None if w is None else np.histogram(p[rows], edges, weights=w[rows])[0]
        shown = evened(counts, few, sums)
        shares.append(shown / shown.sum() if rows.any() else shown)
        totals.append(int(counts.sum()))
    return RiskDistribution(moment, edges, shares[0], shares[1], shares[2], totals[0], totals[1], totals[2])
