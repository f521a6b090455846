"""Calibration curve at one time, smooth and in groups, and how the predicted risks are distributed."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from xcal._checks import MANY, as_count, as_number
from xcal.data.surv import Outcome
from xcal.metrics.competing import observed_risk
from xcal.metrics.ici import SmoothCalibration, smooth_calibration
from xcal.metrics.inputs import (
    Integers,
    Vector,
    as_min_cell,
    evened,
    merged,
    merged_edges,
    read_at,
    starts_of,
)
from xcal.metrics.one_calibration import group_labels
from xcal.metrics.pseudo_values import jackknife

_POINTS = 100  # places of the smooth curve
N_RISK_GROUPS = 10
N_BINS = 50


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
