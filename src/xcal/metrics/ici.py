"""Integrated calibration index: how far the risks of one time are from what happened, by level of risk.

What happened is the pseudo-value of each row (`pseudo_values`), so that nothing is assumed about hazards. It is
smoothed over the predictions by local lines through the nearest third of the rows (loess). A local line gives back
every straight line, so where the predictions are right, smoothing adds nothing to their error: what is left is noise,
and the noise of a linear smoother is known.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from xcal._checks import as_number
from xcal.calibration.bins import Clusters
from xcal.metrics.inputs import (
    Integers,
    Matrix,
    Vector,
    mean_of,
    read_at,
)
from xcal.metrics.intervals import UNKNOWN_DISTANCE, Distance, true_distance, true_distance_by_counts
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
