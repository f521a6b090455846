"""P-values of D-calibration: how often a perfect model would look this bad.

========== ========================================================= ========================================
test       statistic                                                 its size under censoring
========== ========================================================= ========================================
pearson    n sum (mass - |I|)^2 / |I|, chi-squared with B - 1        far too small: censored rows have less
           degrees of freedom                                        noise than the chi-squared assumes
simulated  the same, against draws from a perfect model with the     right
           censoring seen in the data
akritas    events minus the events a perfect model expects, a bin    right, and it keeps its power
========== ========================================================= ========================================

All three suppose independent rows of equal weight. `akritas_of_clusters` is Akritas' statistic for rows in clusters,
`akritas_of_weights` for rows with sampling weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc  # the chi-squared survival function, without importing all of scipy.stats

from xcal.calibration.bins import Edges
from xcal.calibration.histogram import Array, BinSums, ClusterSums, Floats, WeightedSums

# With the uniform estimator n x D-calibration is a sum of means; its distribution has stopped changing by this many
# rows. Redistribution goes deeper into the tail the more rows there are, so there a draw has as many rows as the data.
_ENOUGH_ROWS = 5_000
# Statistics closer than this, relative to one plus their size, are equal: few rows have few possible values, many draws
# are as uneven as the data, and rounding must not decide those ties. Different values of counts are much further apart.
_SAME = 1e-9
_BLOCK = 1 << 18  # rows of a block of draws
# Signs drawn in one go, so that many clusters need little memory.
_SIGNS = 1 << 22
# Cells with fewer expected events than this are joined with a neighbour, as for every chi-squared test.
_MIN_EXPECTED = 5.0


@dataclass(frozen=True)
class Test:
    """A test statistic, its degrees of freedom where it has any, and its p-value."""

    __test__ = False  # not a test of pytest's

    statistic: float
    p_value: float
    df: int | None


def chi_squared(histogram: Floats, n: int, edges: Edges) -> Any:
    """Pearson's statistic of the bin masses, ``(...)`` of ``(..., bins)``."""
    width = np.diff(edges)
    return n * (np.square(histogram - width) / width).sum(axis=-1)


def pearson(histogram: Floats, n: int, edges: Edges) -> Test:
    """Haider's test: the masses as if they were counts of n fully observed rows."""
    statistic, df = float(chi_squared(histogram, n, edges)), edges.size - 2
    return Test(statistic, float(chdtrc(df, statistic)), df)


def akritas(sums: BinSums) -> Test:
    """Akritas' goodness-of-fit test for censored data (A-calibration).

    A perfect model's F of the event time is uniform, with hazard 1 / (1 - u). Over bin j row i is then expected to have
    H(min(F_i, b)) - H(min(F_i, a)) events, H(u) = -log(1 - u), censored or not. Observed minus expected events are
    martingale increments: uncorrelated between bins, with variance the expected number. The sum of squares over that
    variance is chi-squared with as many degrees of freedom as there are cells.
    """
    expected = expected_events(sums)
    starts = _cell_starts(expected)
    observed, expected = (np.add.reduceat(counts, starts) for counts in (sums.happened, expected))
    df = expected.size
    statistic = float(_distance(observed - expected, expected))
    return Test(statistic, float(chdtrc(df, statistic)), df)


def akritas_of_clusters(sums: ClusterSums, n_simulations: int, rng: np.random.Generator) -> Test:
    """Akritas' statistic for rows in clusters, against the same statistic with the signs of clusters drawn at random.

    Observed minus expected events of a row have mean zero with a perfect model, whatever the other rows do. So have
    their sums over a cluster, with the weights of sampled rows or without, and these are independent of each other. A
    sum of them with random signs (Rademacher multipliers, the wild bootstrap of clusters) has the same mean and the
    same covariances, however the rows of a cluster depend on each other. No number of rows enters, and no model of
    their dependence.

    With k clusters there are 2^(k - 1) different draws, and no p-value is smaller than one over that.
    """
    expected = expected_events(sums)
    starts = _cell_starts(expected.sum(axis=0))
    excess = np.add.reduceat(sums.happened - expected, starts, axis=1)
    variance = np.add.reduceat(expected.sum(axis=0), starts)
    statistic = float(_distance(excess.sum(axis=0), variance))
    if np.isinf(statistic):
        return Test(statistic, 0.0, None)
    limit = statistic - _SAME * (1 + statistic)
    as_large, step = 0, max(1, _SIGNS // len(excess))
    for start in range(0, n_simulations, step):
        draws = min(step, n_simulations - start)
        signs = rng.choice(np.array([-1.0, 1.0]), size=(draws, len(excess)))
        as_large += int(np.count_nonzero(_distance(signs @ excess, variance) >= limit))
    return Test(statistic, (1 + as_large) / (1 + n_simulations), None)


def akritas_of_weights(sums: WeightedSums) -> Test:
    """Akritas' statistic for rows with sampling weights, with a design-based law.

    Weight times observed minus expected events of a row has mean zero with a perfect model, also where the outcome
    decided whether the row was sampled. It is no martingale then: cells are correlated, and the expected events are not
    the variance. So the covariance is that of the rows, the sum of their outer products, and with it the statistic is a
    weighted sum of chi-squared numbers, one for each eigenvalue. The statistic divides by expected events, which have
    far less noise than estimated variances. Cells are joined by effective events, in the units in which the sum of the
    weights is the effective number of rows.
    """
    expected = expected_events(sums.sums)
    starts = _cell_starts(expected * (sums.effective / sums.total))
    excess, variance = (np.add.reduceat(one, starts) for one in (sums.sums.happened - expected, expected))
    statistic = float(_distance(excess, variance))
    if not np.isfinite(statistic):
        return Test(statistic, 0.0, None)
    covariance = np.add.reduceat(np.add.reduceat(sums.covariance(), starts, axis=0), starts, axis=1)
    scale = np.sqrt(variance)
    eigenvalues = np.linalg.eigvalsh(covariance / np.outer(scale, scale)) if (scale > 0).all() else np.zeros(1)
    return Test(statistic, chi_squared_mixture(np.maximum(eigenvalues, 0.0), statistic), None)


def chi_squared_mixture(weights: Floats, statistic: float) -> float:
    """Probability that a weighted sum of independent chi-squared numbers with one degree of freedom is larger.

    A scaled and shifted chi-squared number with the same mean, variance and skewness (Pearson 1959; Liu, Tang and Zhang
    2009): exact for equal weights.
    """
    mean, square, cube = (float((weights**k).sum()) for k in (1, 2, 3))
    if not square > 0:
        return 1.0 if statistic <= 0 else 0.0
    df = square**3 / cube**2
    return float(chdtrc(df, max(0.0, df + (statistic - mean) * np.sqrt(df / square))))


def expected_events(sums: BinSums | ClusterSums) -> Floats:
    """Events that a perfect model expects in each bin, ``(..., bins)``, from the sums of rows."""
    rows = sums.happened + sums.censored
    below = -np.log1p(-sums.edges[:-1])
    whole = np.append(np.diff(below), 0.0)
    reached_later = rows[..., ::-1].cumsum(axis=-1)[..., ::-1] - rows
    expected: Floats = sums.hazard - rows * below + reached_later * whole
    return expected


def _distance(excess: Floats, variance: Floats) -> Any:
    """Sum over cells of squared excess over variance, ``(...)``.

    Where no event is expected at all, because every F is zero, a single one refutes the model.
    """
    if variance.sum() > 0:
        return (np.square(excess) / variance).sum(axis=-1)
    return np.where(excess.any(axis=-1), np.inf, 0.0)


def _cell_starts(expected: Floats) -> list[int]:
    """First bins of cells: neighbours are joined, from the left, until each cell expects `_MIN_EXPECTED` events.

    What is left at the end belongs to the last cell.
    """
    starts, held = [0], 0.0
    for j, events in enumerate(expected):
        held += events
        if held >= _MIN_EXPECTED and j + 1 < expected.size:
            starts.append(j + 1)
            held = 0.0
    if len(starts) > 1 and held < _MIN_EXPECTED:
        starts.pop()
    return starts


def simulated(
    estimate: Callable[[Floats, npt.NDArray[np.bool_]], Floats],
    observed: Floats,
    cdf: Array,
    event: npt.NDArray[np.bool_],
    edges: Edges,
    n_simulations: int,
    rng: np.random.Generator,
    *,
    scale_free: bool,
) -> Test:
    """Compare with a perfect model under the data's own censoring, by simulation.

    Each draw has uniform F for the event and, independently, an F for the censoring from its Kaplan-Meier curve on the
    F scale; the estimator in use is applied to the smaller of the two. `scale_free` says that the distribution of its
    statistic does not depend on n, so that draws need not be larger than `_ENOUGH_ROWS`.
    """
    n = cdf.size
    rows = min(n, _ENOUGH_ROWS) if scale_free else n
    statistic = float(chi_squared(observed, n, edges))
    censoring_points, reached = _censoring_curve(cdf, event)
    as_large, done = 0, 0
    while done < n_simulations:
        number = min(max(1, _BLOCK // rows), n_simulations - done)
        done += number
        happens, chance = np.moveaxis(rng.random((number, 2, rows)), 1, 0)
        # Beyond the last point censoring was never seen: those rows are not censored at all.
        censors = np.append(censoring_points, np.inf)[np.searchsorted(reached, chance, side="right")]
        draws = estimate(np.minimum(happens, censors), happens <= censors)
        far = chi_squared(draws, rows, edges) >= statistic - _SAME * (1 + statistic)
        as_large += int(np.count_nonzero(far))
    return Test(statistic, (1 + as_large) / (1 + n_simulations), None)


def _censoring_curve(cdf: Array, event: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """F values of the censored rows in order, and the Kaplan-Meier probability of censoring up to each.

    Row by row the curve of `xcal._kaplan_meier.fit_kaplan_meier(cdf, event, "censoring")`, its twin; held together by
    tests/contracts/test_kaplan_meier.py.
    """
    order = np.lexsort((~event, cdf))
    censored = ~event[order]
    at_risk = cdf.size - np.arange(cdf.size, dtype=np.float64)
    uncensored = np.cumprod(np.where(censored, 1 - 1 / at_risk, 1.0), dtype=np.float64)
    return cdf[order][censored].astype(np.float64), 1 - uncensored[censored]
