"""D-calibration of one set of checked rows: masses by a method, and a test."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import effective_units
from xcal.calibration.bins import Edges
from xcal.calibration.censored import mass_of_bins, rest
from xcal.calibration.clusters import Clusters
from xcal.calibration.histogram import (
    Array,
    BinSums,
    ClusterSums,
    Floats,
    Masses,
    WeightedSums,
    bin_sums,
    locate,
    redistributed,
    weighted,
)
from xcal.calibration.inverse_weights import clustered_floor, inverse_weights
from xcal.calibration.results import DCalibrationResult, Method, PValue
from xcal.calibration.significance import (
    Test,
    akritas,
    akritas_of_clusters,
    akritas_of_weights,
    pearson,
    simulated,
)


@dataclass(frozen=True, eq=False)
class Rows:
    """Checked rows, and what was given beside them; weights in any units."""

    cdf: Array
    event: npt.NDArray[np.bool_]
    time: Array | None
    censoring_survival: Array | None
    clusters: Clusters | None
    weights: Floats | None = None

    def only(self, chosen: npt.NDArray[np.bool_]) -> "Rows":
        """Rows of a mask."""
        t, g, w = (
            None if values is None else values[chosen] for values in (self.time, self.censoring_survival, self.weights)
        )
        clusters = None if self.clusters is None else self.clusters.of_rows(chosen)
        return Rows(self.cdf[chosen], self.event[chosen], t, g, clusters, w)


def measured(
    rows: Rows, *, edges: Edges, method: Method, p_value: PValue | None, n_simulations: int, seed: int
) -> DCalibrationResult:
    """Masses and test of one set of rows."""
    u, event, clusters = rows.cdf, rows.event, rows.clusters
    units = None if rows.weights is None else effective_units(rows.weights)
    sums, by_cluster = None, None
    if method == "uniform" or p_value == "akritas":
        sums = _summed(u, event, edges, units, hazard=p_value == "akritas")
        by_cluster = None if clusters is None else ClusterSums.of(u, event, clusters, edges, units)
    masses = _masses(replace(rows, weights=units), edges, method, sums, by_cluster)

    n, n_censored = u.size, int(u.size - np.count_nonzero(event))
    test: Test | None = None
    rng = np.random.default_rng(seed)
    if p_value == "akritas":
        assert sums is not None
        if by_cluster is not None:
            test = akritas_of_clusters(by_cluster, n_simulations, rng)
        else:
            test = akritas(sums) if isinstance(sums, BinSums) else akritas_of_weights(sums)
    elif p_value == "pearson":
        test = pearson(masses.histogram, n, edges)
    elif p_value == "simulated":
        estimate, scale_free = _estimator(method, edges), method == "uniform"
        test = simulated(estimate, masses.histogram, u, event, edges, n_simulations, rng, scale_free=scale_free)
    found = result(masses, edges, test, n, n_censored, method, p_value)
    if clusters is not None:
        found = replace(found, n_clusters=clusters.count)
    if rows.weights is not None:
        effective = float(n if units is None else units.sum())
        found = replace(found, weight=float(rows.weights.sum()), n_effective=effective)
    return found


def _summed(
    u: Array, event: npt.NDArray[np.bool_], edges: Edges, units: Floats | None, *, hazard: bool
) -> BinSums | WeightedSums:
    if units is None:
        plain = BinSums(edges)
        plain.add(u, event, hazard=hazard)
        return plain
    sums = WeightedSums(edges)
    sums.add(u, event, units, hazard=hazard)
    return sums


def _masses(
    rows: Rows,
    edges: Edges,
    method: Method,
    sums: BinSums | WeightedSums | None,
    by_cluster: ClusterSums | None,
) -> Masses:
    """Masses by a method, with the floor of rows or of clusters."""
    u, event, time, clusters, weights = rows.cdf, rows.event, rows.time, rows.clusters, rows.weights
    if method == "uniform":
        assert sums is not None
        masses = sums.uniform()
        return masses if by_cluster is None else replace(masses, floor=by_cluster.uniform_floor())
    if method == "km":
        return redistributed(u, event, u, edges, clusters=clusters, weights=weights)
    if rows.censoring_survival is None:
        assert time is not None
        return redistributed(u, event, time, edges, clusters=clusters, weights=weights)
    given = (u, event, rows.censoring_survival, edges, time, weights)
    masses = weighted(*inverse_weights(*given), edges)
    return masses if clusters is None else replace(masses, floor=clustered_floor(*given, clusters))


def result(
    masses: Masses,
    edges: Edges,
    test: Test | None,
    n: int,
    n_censored: int,
    method: Method,
    p_value: PValue | None,
) -> DCalibrationResult:
    """Put masses and test together."""
    return DCalibrationResult(
        value=masses.value(edges),
        floor=masses.floor,
        histogram=masses.histogram,
        edges=edges,
        statistic=None if test is None else test.statistic,
        p_value=None if test is None else test.p_value,
        df=None if test is None else test.df,
        n=n,
        n_censored=n_censored,
        method=method,
        test=p_value,
    )


def _estimator(method: Method, edges: Edges) -> Any:
    """Histograms ``(draws, bins)`` of simulated draws ``(draws, n)`` by the method in use."""

    def uniform(u: Floats, event: npt.NDArray[np.bool_]) -> Floats:
        # As `BinSums` adds up rows, for all draws at once: each has bins of its own.
        (draws, n), n_bins = u.shape, edges.size - 1
        bins = locate(u.ravel(), edges) + np.repeat(np.arange(draws) * n_bins, n)
        later = np.flatnonzero(~event)
        own, left = bins.take(later), 1 / rest(u.ravel().take(later), edges)
        rows, censored, inverse = (
            bin_sums(of, weights, draws * n_bins).reshape(draws, n_bins)
            for of, weights in ((bins, None), (own, None), (own, left))
        )
        earlier = np.cumsum(inverse, axis=1) - inverse
        return np.asarray(mass_of_bins(rows - censored, censored, inverse, earlier, edges) / n)

    def km(u: Floats, event: npt.NDArray[np.bool_]) -> Floats:
        one = (redistributed(v, happened, v, edges, floor=False) for v, happened in zip(u, event, strict=True))
        return np.array([masses.histogram for masses in one])

    return uniform if method == "uniform" else km
