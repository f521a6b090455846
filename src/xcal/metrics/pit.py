"""Calibration over all times: histogram of F, probability plot, slope over quantiles; mean curve and Kaplan-Meier."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import kolmogi, ndtri

from xcal._checks import (
    MANY,
    BoolArray,
    FloatArray,
    as_choice,
    as_count,
    as_event,
    as_number,
    as_probability,
    as_weights,
    check_rows,
    effective_units,
    fail,
    first_row,
)
from xcal._kaplan_meier import fit_kaplan_meier, greenwood_terms
from xcal.calibration.bins import N_BINS, Clusters, bin_edges, sum_of_squares
from xcal.calibration.histogram import (
    edges_like,
    heaviest,
    locate,
    parts_of_bins,
    redistribution,
    rest,
    share_of_bin,
)
from xcal.data.surv import Outcome, as_outcome
from xcal.metrics.inputs import (
    INTERPOLATIONS,
    Integers,
    Interpolation,
    Matrix,
    Vector,
    as_curves,
    as_row_weights,
    at_own_time,
    fraction,
    left_column,
    merged,
    merged_edges,
    starts_of,
)
from xcal.metrics.observed import observed_risk
from xcal.metrics.resamples import Block, Timeline, kaplan_meier_product, product, share_lost


@dataclass(frozen=True, eq=False, repr=False)
class PitHistogram:
    """Histogram of F at the observed times, as D-calibration sees it, by one estimator; a perfect model is flat."""

    method: str  # "uniform", "km" or "ipcw"
    group: str | None
    edges: Vector  # (b + 1,)
    mass: Vector  # (b,)
    lower: Vector  # per bin, the range in which a perfect model's mass lies in 95 % of samples of this size
    upper: Vector


@dataclass(frozen=True, eq=False)
class BinShares:
    """What each row leaves in each bin: one in its own for an event, spread over [F, 1] for a censored row."""

    edges: Vector
    shares: Matrix  # (n, bins)

    @property
    def widths(self) -> Vector:
        """Width of each bin: the mass of a perfect model."""
        return np.diff(self.edges)


def bin_shares(
    cdf: FloatArray,
    event: BoolArray,
    n_bins: int = N_BINS,
    min_cell: int = 0,
    entry: FloatArray | None = None,
    lower: FloatArray | None = None,
) -> BinShares:
    """Shares of the rows in equal bins; their mean is the histogram of the "uniform" estimator.

    Bins with fewer events than `min_cell` are merged with their neighbours; what censored rows leave in a bin is none
    of theirs alone.

    Of rows with F at their `entry`, what a row that has come so far expects in a bin is taken off, and the width put
    there in its place: the mean of a perfect model is the width then, too. An event that lies between two times, with F
    at the `lower` one, has its part in each bin.
    """
    edges = bin_edges(n_bins)
    edge = edges_like(edges, cdf)
    u = cdf.astype(np.float64)
    bins, left = locate(u, edge), rest(u, edge)
    shares = np.empty((u.size, n_bins))
    for j in range(n_bins):
        shares[:, j] = np.where(event, bins == j, share_of_bin(j, bins, left, edge))
    if lower is not None:
        shares[event] = parts_of_bins(lower[event].astype(np.float64), u[event], edges)
    if entry is not None:
        shares += np.diff(edges) - parts_of_bins(entry.astype(np.float64), np.ones(u.size), edges)
    cells = merged(np.bincount(bins[event], minlength=n_bins), min_cell)
    return BinShares(merged_edges(edges, cells), np.add.reduceat(shares, starts_of(cells), axis=1))


def uniform_variance(bins: BinShares, clusters: Clusters | None = None, weights: Vector | None = None) -> Vector:
    """Variance of each bin's mass for a perfect model, "uniform" estimator; the sum is its floor."""
    residuals, n = bins.shares - bins.widths, bins.shares.shape[0]
    if weights is not None:
        residuals *= weights[:, None] / weights.sum()
        return np.array([sum_of_squares(residual, clusters) for residual in residuals.T])
    if clusters is None:
        return np.asarray(np.square(residuals).mean(axis=0) / n)
    return np.array([sum_of_squares(residual, clusters) / n**2 for residual in residuals.T])


def redistributed_variance(
    bins: BinShares,
    event: BoolArray,
    scale: FloatArray,
    clusters: Clusters | None = None,
    weights: Vector | None = None,
) -> tuple[Vector, Vector]:
    """Masses of Kaplan-Meier redistribution in the order of `scale`, and the variance of each for a perfect model.

    The same as `calibration.histogram.redistributed`, bin by bin where that adds the bins up; a test holds masses and
    the sum of the variances to it.
    """
    rows = redistribution(event, scale, weights, clusters)
    masses, variance = np.empty(bins.widths.size), np.empty(bins.widths.size)
    for j, width in enumerate(bins.widths):
        share = rows.weight * bins.shares[rows.order, j]
        masses[j], variance[j] = share.sum(), rows.noise(share, float(width))
    return masses, variance


def pit_histogram(
    method: str,
    group: str | None,
    bins: BinShares,
    event: BoolArray,
    scale: FloatArray | None,
    clusters: Clusters | None = None,
    weights: Vector | None = None,
) -> PitHistogram:
    """Masses and, per bin, the range of a perfect model in 95 % of samples of this size: normal, cut at 0 and 1.

    `scale` is None for "uniform", F for "km" and the time for "ipcw".
    """
    if scale is None:
        masses = bins.shares.mean(axis=0) if weights is None else weights @ bins.shares / weights.sum()
        variance = uniform_variance(bins, clusters, weights)
    else:
        masses, variance = redistributed_variance(bins, event, scale, clusters, weights)
    return PitHistogram(method, group, bins.edges, masses, *perfect_range(bins.widths, variance))


def perfect_range(widths: Vector, variance: Vector) -> tuple[Vector, Vector]:
    """Range of each bin's mass in 95 % of samples of a perfect model: normal, cut at 0 and 1."""
    reach = float(ndtri(0.975)) * np.sqrt(variance)
    return np.maximum(widths - reach, 0.0), np.minimum(widths + reach, 1.0)


# --- Probability-probability plot of F at the observed times, with a band.


@dataclass(frozen=True, eq=False, repr=False)
class PPCurve:
    """Probability-probability plot: the distribution of F at the observed times (Kaplan-Meier) against the diagonal."""

    predicted: Vector  # grid of probabilities, 0 to 1
    observed: Vector  # share of rows with F up to there
    lower: Vector  # simultaneous band of `observed`
    upper: Vector


def pp_curve(cdf: Any, *, event: Any, level: float = 0.95, n_points: int = 101) -> PPCurve:
    r"""Share of rows whose event came before the model's own quantile, at every level, with a simultaneous band.

    The curve is one minus Kaplan-Meier with F in the place of time; a calibrated model has the diagonal. The band is
    that of Hall and Wellner,

    .. math:: \hat S(u) \pm \frac{k}{\sqrt n} \hat S(u) (1 + n \hat\sigma^2(u)), \qquad
              \hat\sigma^2(u) = \sum_{u_j \le u} \frac{d_j}{r_j (r_j - d_j)}

    with k from Kolmogorov's distribution: without censoring it is Kolmogorov's band. It holds the whole curve with at
    least the given probability, more where the follow-up does not reach 1.

    Parameters
    ----------
    cdf : array-like, shape (n,)
        F at each row's observed time.
    event : array-like, shape (n,)
        True where the event happened.
    level : float
        Coverage of the band.
    n_points : int
        Points of the grid from 0 to 1.

    Returns
    -------
    PPCurve
        NaN beyond the largest F of a row, unless every row had its event by then; the band is cut at 0 and 1.

    References
    ----------
    Hall, Wellner (1980), Biometrika 67(1):133-143.

    Examples
    --------
    >>> u = (np.arange(100) + 0.5) / 100
    >>> curve = pp_curve(u, event=np.ones(100))
    >>> abs(curve.observed - curve.predicted).max().round(3)
    np.float64(0.0)
    """
    check_rows({"cdf": cdf, "event": event})
    u = as_probability("cdf", cdf)
    happened = as_event(event, u.size)
    as_number("level", level, above=0, below=1)
    grid = np.linspace(0, 1, as_count("n_points", n_points, at_least=2, at_most=MANY))
    curve = fit_kaplan_meier(u, happened)
    survival = curve.at(grid)
    terms = greenwood_terms(curve.counts, curve.at_risk)
    variance = np.append(0.0, np.cumsum(terms))[np.searchsorted(curve.times, grid, side="right")]
    reach = float(kolmogi(1 - level)) / np.sqrt(u.size) * survival * (1 + u.size * variance)
    # Where the curve has come down to zero its own variance says nothing; the band keeps its last width.
    ended = survival <= 0
    if ended.any() and not ended.all():
        reach[ended] = reach[~ended][-1]
    unseen = (grid > u.max()) & (curve.survival[-1] > 0)
    observed = np.where(unseen, np.nan, 1 - survival)
    return PPCurve(grid, observed, np.maximum(observed - reach, 0.0), np.minimum(observed + reach, 1.0))


# --- Slope and intercept of the calibration curve over the quantiles of F.
# Not the calibration slope of clinical prediction models, which is the coefficient of a Cox regression on the linear
# predictor, log(-log S).


@dataclass(frozen=True, eq=False)
class QuantileSlope:
    """Line of best fit through the calibration curve.

    Attributes
    ----------
    slope, intercept : float
        Least-squares line through the points of the curve; 1 and 0 for a calibrated model. They can also come from a
        curve that bends both ways, so look at the curve or at D-calibration too.
    slope_through_origin : float
        Slope of the best line without an intercept.
    levels : array, shape (m,)
        The probabilities rho.
    observed : array, shape (m,)
        Share of rows whose event came at a time with F <= rho; NaN at levels that the follow-up does not reach.
    n, n_events : int
        Rows, and rows with an event.
    """

    slope: float
    intercept: float
    slope_through_origin: float
    levels: Vector
    observed: Vector
    n: int
    n_events: int


def quantile_slope(cdf: Any, *, event: Any, levels: Any = None, weights: Any = None) -> QuantileSlope:
    r"""Slope of the calibration curve over the model's quantiles, with the curve and its intercept.

    The X-CAL paper's appendix calls it calibration slope. It is not the slope of that name in clinical prediction
    models, a Cox regression on the linear predictor :math:`\log(-\log S)`: this one takes the probabilities of all
    times together.

    For each level :math:`\rho` the curve gives the share of rows whose event came before the model's own
    :math:`\rho`-quantile, that is with :math:`F(T_i | x_i) \le \rho`. A calibrated model has the diagonal as its curve.

    A row censored at F = u is only known to have its event at a larger value of F. The curve is therefore one minus the
    Kaplan-Meier estimate with F(T_i | x_i) in the place of time. For a calibrated model, F at the event is uniform and
    independent of x, and so of F at the censoring, which is what Kaplan-Meier asks for. Without censoring it is the
    plain share.

    Parameters
    ----------
    cdf : array-like, shape (n,)
        F at each row's observed time.
    event : array-like, shape (n,)
        True where the event happened.
    levels : array-like, shape (m,), optional
        Probabilities, strictly increasing; by default 0.1, 0.2, ..., 0.9. The ends 0 and 1 are left out because every
        curve passes through them.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of the curve.

    Returns
    -------
    QuantileSlope
        Levels above the largest `cdf` of a row are not observed unless that row had an event; they are NaN in the
        curve and take no part in the fit. With fewer than two levels left, slope and intercept are NaN.

    References
    ----------
    Goldstein, Han, Puli, Perotte, Ranganath (2020), NeurIPS 33, appendix.

    Examples
    --------
    >>> import numpy as np
    >>> u = (np.arange(1000) + 0.5) / 1000
    >>> result = quantile_slope(u, event=np.ones(1000))
    >>> round(result.slope, 6), abs(round(result.intercept, 6))
    (1.0, 0.0)
    """
    check_rows({"cdf": cdf, "event": event, "weights": weights})
    u = as_probability("cdf", cdf)
    happened = as_event(event, u.size)
    rho = _as_levels(levels)
    w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
    curve = fit_kaplan_meier(u, happened, weights=w)
    observed = 1 - curve.at(rho)
    # Without any event the curve is flat at zero and says nothing.
    observed[((rho > u.max()) & (curve.survival[-1] > 0)) | (not happened.any())] = np.nan
    seen = np.isfinite(observed)
    x, y = rho[seen], observed[seen]
    slope = intercept = origin = float("nan")
    if x.size >= 2:
        centred = x - x.mean()
        slope = float(centred @ y / (centred @ centred))
        intercept = float(y.mean() - slope * x.mean())
        origin = float(x @ y / (x @ x))
    return QuantileSlope(slope, intercept, origin, rho, observed, u.size, int(np.count_nonzero(happened)))


def _as_levels(levels: Any) -> Vector:
    if levels is None:
        return np.arange(1, 10) / 10
    rho = as_probability("levels", levels).astype(np.float64)
    falls = np.diff(rho) <= 0
    if falls.any():
        row = first_row(falls) + 1
        fail("levels", "strictly increasing probabilities", f"{rho[row]} after {rho[row - 1]}", row)
    return rho


# --- Bin masses of D-calibration, and the average curve beside Kaplan-Meier, of resamples.

_BLOCK = 1 << 18  # predictions worked on at a time


def uniform_masses(block: Block, bins: BinShares) -> Matrix:
    """Masses of the "uniform" estimator: the mean share of the rows in each bin, shape (b, bins)."""
    return np.asarray(product(block.counts, bins.shares) / block.total[:, None])


class CountedRedistribution:
    """Masses of Kaplan-Meier redistribution: `calibration.histogram.redistributed` on rows that count."""

    def __init__(self, bins: BinShares, event: BoolArray, scale: FloatArray) -> None:
        self._order = np.lexsort((~event, scale))
        self._event, ordered = event[self._order], scale[self._order]
        self._first_of_tie = np.searchsorted(ordered, ordered, side="left")
        self._shares = bins.shares[self._order]

    def masses(self, block: Block) -> Matrix:
        """Masses of every resample, shape (b, bins)."""
        counts = block.counts.take(self._order, axis=1)
        uncensored = kaplan_meier_product(np.where(self._event, 0.0, share_lost(counts, block.least)))
        own = uncensored.take(self._first_of_tie, axis=1) * block.total[:, None]
        # G is zero only after the last row drawn, where nothing counts.
        weight = np.divide(1.0, own, out=np.zeros_like(own), where=own > 0)
        stop = self._stop(block, counts, weight * (block.total / block.effective)[:, None])
        after = np.arange(counts.shape[1]) >= stop[:, None]
        at_stop = np.append(weight, np.zeros((stop.size, 1)), axis=1)[np.arange(stop.size), stop]
        weight = np.where(after, at_stop[:, None], np.where(self._event, weight, 0.0))
        return product(counts * weight, self._shares)

    def _stop(self, block: Block, counts: Matrix, weight: Matrix) -> Integers:
        """First row at which redistribution stops, as `calibration.histogram.horizon` says."""
        n = counts.shape[1]
        limit = np.array([heaviest(float(rows)) for rows in block.effective])
        heavy = (weight > limit[:, None]) & (counts > 0)
        first_heavy = np.where(heavy.any(axis=1), np.argmax(heavy, axis=1), n)
        happened = (counts > 0) & self._event
        last_event = np.where(happened.any(axis=1), n - np.argmax(happened[:, ::-1], axis=1), 0)
        stop = np.minimum(first_heavy, last_event)
        # The next row drawn says what each of the rest carries.
        drawn = (counts > 0) & (np.arange(n) >= stop[:, None])
        return np.asarray(np.where(drawn.any(axis=1), np.argmax(drawn, axis=1), n))


class CountedCurve:
    """Average predicted less Kaplan-Meier curve at the events, scaled so that the sum of squares is the integral."""

    def __init__(self, line: Timeline, survival: FloatArray, times: Vector, interpolation: Interpolation) -> None:
        self._survival = survival
        points = event_points(line.outcome, times)
        self.defined = points.size >= 2
        if not self.defined:
            return
        left = left_column(times, points)
        self._left = left + 1  # the curves get a column of ones in front, for time 0
        self._next = np.minimum(left + 2, times.size)
        self._share = fraction(times, points, left) if interpolation == "linear" else np.zeros(points.size)
        self._passed = np.searchsorted(line.time, points, side="right")
        gaps = np.diff(points)
        self._scale = np.sqrt((np.append(gaps, 0.0) + np.append(0.0, gaps)) / 2 / points[-1])

    def deviations(self, block: Block) -> Matrix:
        """Scaled deviations of every resample, shape (b, points)."""
        n, m = self._survival.shape
        average = np.zeros((block.total.size, m))
        step = max(1, _BLOCK // m)
        for start in range(0, n, step):
            rows = slice(start, start + step)
            average += product(block.counts[:, rows], self._survival[rows].astype(np.float64))
        average = np.append(np.ones((block.total.size, 1)), average / block.total[:, None], axis=1)
        predicted = (1 - self._share) * average[:, self._left] + self._share * average[:, self._next]
        return np.asarray(self._scale * (predicted - block.without[:, self._passed]))


# --- Average predicted survival curve against the Kaplan-Meier curve.


@dataclass(frozen=True, eq=False)
class KMCalibration:
    """Distance between the average predicted curve and the Kaplan-Meier curve.

    Attributes
    ----------
    value : float
        Mean squared difference over the time from 0 to `stop`: 0 for identical curves, at most 1.
    stop : float
        Where the integral ends.
    times, predicted, observed : arrays, shape (k,)
        Both curves at 0 and at the distinct event times up to `stop`.
    """

    value: float
    stop: float
    times: Vector = field(repr=False)
    predicted: Vector = field(repr=False)
    observed: Vector = field(repr=False)


def km_calibration(
    survival: Any,
    times: Any,
    *,
    time: Any,
    event: Any,
    competing: Any = None,
    interpolation: Interpolation = "linear",
    weights: Any = None,
) -> KMCalibration:
    r"""Integrated squared difference between the mean prediction and Kaplan-Meier.

    .. math:: \frac{1}{t_K} \int_0^{t_K} \Big( \frac1n \sum_i S_i(t) - S_{KM}(t) \Big)^2 dt

    The integral is by the trapezoidal rule through 0 and the distinct event times. Marginal calibration only: a model
    that gives everybody the Kaplan-Meier curve scores 0.

    Parameters
    ----------
    survival : array-like, shape (n, m)
        Predicted survival probability of each row at each of `times`.
    times : array-like, shape (m,)
        Strictly increasing.
    time, event : array-like, shape (n,)
        Observed times; True where the event happened.
    competing : array-like, shape (n,), optional
        True where an event of another cause came first, after which this one cannot come: the curves are
        one less the incidence of this cause, and the Aalen-Johansen estimate stands in place of Kaplan-Meier.
    interpolation : {"linear", "previous"}
        How to read the average curve between grid points; see `evaluate`.
    weights : array-like, shape (n,), optional
        Sampling weights, one positive number per row, of both curves.

    Returns
    -------
    KMCalibration
        The integral ends at the last event time within the grid, `stop`; NaN when no event lies in it.

    References
    ----------
    Chapfuwa and others (2020), Calibration and Uncertainty in Neural Time-to-Event Modeling, IEEE Transactions on
    Neural Networks and Learning Systems.

    Examples
    --------
    >>> curves = [[0.75, 0.5, 0.25, 0.0]] * 4
    >>> km_calibration(curves, [1, 2, 3, 4], time=[1, 2, 3, 4], event=[1, 1, 1, 1]).value
    0.0
    """
    outcome = as_outcome(time, event, beside={"survival": survival, "weights": weights}, competing=competing)
    curves, grid = as_curves("survival", survival, times, outcome.n)
    as_choice("interpolation", interpolation, INTERPOLATIONS)
    points = event_points(outcome, grid)
    w = as_row_weights(weights, outcome.n)
    predicted, observed = both_curves(curves, grid, outcome, points, interpolation, w)
    stop = float(points[-1])
    squared = np.square(predicted - observed)
    area = float(np.dot(np.diff(points), (squared[1:] + squared[:-1]) / 2))
    return KMCalibration(area / stop if stop > 0 else float("nan"), stop, points, predicted, observed)


def event_points(outcome: Outcome, grid: Vector) -> Vector:
    """Zero and the distinct times of events within the grid."""
    time = outcome.time
    jumps = np.unique(time[outcome.event & (time > 0) & (time <= grid[-1])]).astype(np.float64)
    return np.concatenate([[0.0], jumps])


def both_curves(
    curves: FloatArray,
    grid: Vector,
    outcome: Outcome,
    points: Vector,
    interpolation: Interpolation,
    weights: Vector | None = None,
) -> tuple[Vector, Vector]:
    """Average predicted curve and observed one of these rows, at the points."""
    mean = curves.mean(axis=0, dtype=np.float64) if weights is None else weights @ curves / weights.sum()
    average = np.broadcast_to(mean, (points.size, grid.size))
    observed = observed_risk(outcome, weights).without(points)
    return at_own_time(average, grid, points, interpolation), observed
