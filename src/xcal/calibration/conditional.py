"""Calibrated for whom? Calibration given the covariates: a number, its test, and where the model is off."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import (
    MANY,
    as_count,
    as_event,
    as_flag,
    as_numpy,
    as_probability,
    as_weights,
    check_rows,
    effective_units,
    fail,
    first_row,
)
from xcal.calibration.bins import Edges, bin_edges
from xcal.calibration.conditional_sums import BLOCKS, ConditionalCalibration
from xcal.calibration.covariates import Column, as_columns
from xcal.calibration.residuals import residuals
from xcal.calibration.row_features import KernelFeatures, RandomFeatures
from xcal.calibration.subgroup_search import SEARCHED_ROWS, Subgroup, find_subgroup

Floats = npt.NDArray[np.float64]

_CHUNK = 16 * BLOCKS  # rows worked on at a time
# Features times bins: each takes a sum per block, so the state has at most 1 GiB.
MOST_SUMS = 1 << 17


@dataclass(frozen=True, eq=False)
class ConditionalCalibrationResult:
    """Conditional calibration of one model on one set of rows.

    Attributes
    ----------
    value : float
        K: sum over features m and bins j of (mean of h_m R_j)^2, less what noise alone gives. Zero on average for a
        model that is right for every x; may be below zero. On the scale of D-calibration.
    noise : float
        Standard deviation of `value` for a model that is right.
    floor : float
        What was taken off: the part of the sum that noise alone gives.
    p_value : float or None
        Test of a model that is right for every x, by random signs; None with ``n_draws=0``. With random features it
        asks about the average over all rows and about what differs from it apart, with features of your own about
        `value`.
    where : Subgroup or None
        The subgroup that is most off, found on one half of the rows and tested on the other.
    n, n_censored, n_features, n_draws : int
    bandwidth : float or None
        Of the kernel, in units of the scaled columns; None with own features.
    """

    value: float
    noise: float
    floor: float
    p_value: float | None
    where: Subgroup | None
    n: int
    n_censored: int
    n_features: int
    n_draws: int
    bandwidth: float | None

    def __repr__(self) -> str:
        p = "" if self.p_value is None else f", p = {self.p_value:.3g}"
        censored = f"{self.n_censored:,} censored ({self.n_censored / self.n:.0%})"
        lines = [
            f"conditional calibration {self.value:.3g} (a model that is right for every x: 0 ± {self.noise:.2g}){p}",
            f"{self.n:,} rows, {censored}; {self.n_features} features",
        ]
        if self.where is not None:
            lines.append(
                f"most off: {self.where.description} (p = {self.where.p_value:.3g} on rows not searched, "
                f"{self.where.n:,} rows)"
            )
        return "\n".join(lines)


def conditional_calibration(
    cdf: Any,
    event: Any,
    X: Any,
    *,
    n_bins: int = 20,
    edges: Any = None,
    n_features: int = 128,
    bandwidth: float | None = None,
    features: Any = None,
    n_draws: int = 999,
    where: bool = True,
    seed: int = 0,
    weights: Any = None,
) -> ConditionalCalibrationResult:
    r"""Measure and test whether a model is calibrated for every x, not only on average.

    Under a model that is right for every x the residual of a row, its membership in a bin of F less the width of the
    bin, has mean zero given x. So for any function h of x the mean of h(x) R is near zero, and

    .. math::
        K = \sum_{m, j} \Big(\frac1n \sum_i h_m(x_i) R_{ij}\Big)^2

    less what noise alone gives measures every smooth subgroup at once. The h are random features of a Gaussian kernel
    on the columns (normal scores of numbers, indicators of categories). With h = 1 this is D-calibration.

    Parameters
    ----------
    cdf : array-like of shape (n,)
        The model's F at each row's observed time.
    event : array-like of shape (n,)
        True where the event happened.
    X : data frame or array of shape (n, p)
        Covariates: those of the model or others. Text, categories and booleans are categories.
    n_bins, edges
        Bins of F; 20 by default, as in training.
    n_features : int
        Random features, an even number.
    bandwidth : float, optional
        Of the kernel, on the scaled columns; by default 0.7 times the median distance between two rows.
    features : array-like of shape (n, m), optional
        Functions of x of your own in place of random ones: indicators of groups, a layer of a network.
    n_draws : int
        Random signs behind the p-value; 0 for none.
    where : bool
        Also search for the subgroup that is most off.
    seed : int
        Of the features, the signs and the halves of the search.
    weights : array-like of shape (n,), optional
        Sampling weights, one positive number per row: the means are weighted, and the test takes weight times residual
        of a row, which has mean zero however rows were sampled. No subgroup is searched then, as the search counts
        rows. Equal weights change nothing.

    Returns
    -------
    ConditionalCalibrationResult

    Notes
    -----
    Censoring must be independent of the event time given x. Where it depends on more than x the residuals have another
    mean, and a right model can be rejected.

    Examples
    --------
    The scale is right on average and wrong for every row: D-calibration sees nothing.

    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(2000, 2))
    >>> u = rng.uniform(size=2000)
    >>> shifted = u ** np.exp(0.4 * np.sign(x[:, 0]))
    >>> result = conditional_calibration(shifted, np.ones(2000), x)
    >>> result.p_value
    0.001
    >>> result.where.rule.split()[0]
    'x0'
    """
    edge = bin_edges(n_bins, edges)
    check_rows({"cdf": cdf, "event": event, "X": X, "features": features, "weights": weights})
    u = as_probability("cdf", cdf)
    happened = as_event(event, u.size)
    if u.size < 2:
        fail("cdf", "at least two rows", u.size)
    n_draws, seed = as_count("n_draws", n_draws, at_least=0, at_most=MANY), as_count("seed", seed, at_least=0)
    columns = as_columns(X, u.size)
    rng = np.random.default_rng(seed)
    own = None if features is None else _as_features(features, u.size)
    drawn = None
    if own is None:
        maker = KernelFeatures(n_features, bandwidth, seed)
        _check_size("n_features", n_features, edge)
        drawn = maker.draw(columns)
    else:
        _check_size("features", own.shape[1], edge)
    w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
    meter = _accumulated(u, happened, columns, edge, drawn, own, rng, w)
    value, noise, floor, p_value = meter.compute(n_draws, rng)
    subgroup = _most_off(columns, u, happened, edge, rng) if as_flag("where", where) and w is None else None
    return ConditionalCalibrationResult(
        value=value,
        noise=noise,
        floor=floor,
        p_value=p_value,
        where=subgroup,
        n=u.size,
        n_censored=meter.n_censored,
        n_features=drawn.frequencies.shape[1] * 2 if drawn is not None else _width(own),
        n_draws=n_draws,
        bandwidth=None if drawn is None else drawn.bandwidth,
    )


def _check_size(name: str, n_features: int, edges: Edges) -> None:
    """Refuse what would fill the memory before any row is looked at."""
    bins = edges.size - 1
    if n_features * bins > MOST_SUMS:
        fail(name, f"at most {MOST_SUMS:,} features times bins", f"{n_features:,} features times {bins:,} bins")


def _most_off(
    columns: tuple[Column, ...],
    u: npt.NDArray[Any],
    event: npt.NDArray[np.bool_],
    edges: Edges,
    rng: np.random.Generator,
) -> Subgroup | None:
    """Search for a subgroup among rows in random order."""
    some = rng.permutation(u.size)[:SEARCHED_ROWS]
    here = [column.take(some) for column in columns]
    found = find_subgroup(here, u[some], residuals(u[some], event[some], edges), edges)
    return None if found is None else replace(found, tested=some[found.tested])


def _accumulated(
    u: npt.NDArray[Any],
    event: npt.NDArray[np.bool_],
    columns: tuple[Column, ...],
    edges: Edges,
    drawn: RandomFeatures | None,
    own: Floats | None,
    rng: np.random.Generator,
    weights: Floats | None,
) -> ConditionalCalibration:
    """All rows, a chunk at a time.

    Where blocks have several rows, these come in random order. In a table that is sorted by time, neighbours have the
    same residuals, and the sums of the blocks would not be independent.
    """
    meter = ConditionalCalibration(drawn if drawn is not None else lambda h: h, edges, average_apart=drawn is not None)
    order = np.arange(u.size) if u.size <= BLOCKS else rng.permutation(u.size)
    for start in range(0, u.size, _CHUNK):
        rows = order[start : start + _CHUNK]
        given = own[rows] if own is not None else [column.take(rows) for column in columns]
        meter.update(u[rows], event[rows], given, None if weights is None else weights[rows])
    return meter


def _as_features(features: Any, n: int) -> Floats:
    array = as_numpy("features", features)
    if array.ndim != 2 or array.shape[0] != n or array.dtype.kind not in "biuf":
        fail("features", f"numbers of shape ({n}, m), one row per row of cdf", f"shape {array.shape}, {array.dtype}")
    h = array.astype(np.float64)
    bad = np.asarray(~np.isfinite(h).all(axis=1))
    if bad.any():
        row = first_row(bad)
        fail("features", "finite numbers", h[row][~np.isfinite(h[row])][0], row)
    return h


def _width(own: Floats | None) -> int:
    return 0 if own is None else own.shape[1]
