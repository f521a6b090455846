"""D-calibration of checked rows: masses by a method, p-values by a test, and the result that holds them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

import numpy as np
from scipy.special import chdtrc

from xcal._checks import MIN_CELL, BoolArray, Floats, effective_units
from xcal._kaplan_meier import product_limit
from xcal.calibration.bins import Clusters, Edges
from xcal.calibration.histogram import (
    Array,
    BinSums,
    ClusterSums,
    Masses,
    WeightedSums,
    bin_sums,
    clustered_floor,
    inverse_weights,
    locate,
    mass_of_bins,
    parts_of_bins,
    redistributed,
    rest,
    weighted,
)

Method = Literal["uniform", "ipcw", "km"]
PValue = Literal["akritas", "simulated", "pearson", "residuals"]
# A p-value below this is called a disagreement with a value that looks like noise.
_LEVEL = 0.05


@dataclass(frozen=True, eq=False)
class DCalibrationResult:
    """D-calibration of one model on one set of rows.

    Attributes
    ----------
    value : float
        Sum over bins of (mass - width)^2: the D-cal of the paper. Zero is perfect.
    floor : float
        What a perfect model scores on average at this n and this censoring. A value near it is noise.
    histogram : ndarray of shape (n_bins,)
        Mass of each bin; sums to one.
    edges : ndarray of shape (n_bins + 1,)
        Bins are [a, b), the last one closed; a row on an edge counts once, in the bin on its right.
    statistic, p_value, df : float, float, int or None
        Test of a perfect model. None where no p-value was asked for; a simulated one has no degrees of freedom.
    n, n_censored : int
        Rows, and how many of them are censored.
    method, test : str
        How censored rows were treated, and which test gave the p-value.
    error_bound : float
        Largest possible difference of `value` from that of the rows themselves, up to rounding; above zero only where a
        fine grid stood in for them (`DCalibration` with ``method="km"`` and many rows).
    n_clusters : int or None
        Number of clusters, where `clusters` were given: `floor` and `p_value` are then those of dependent rows.
    expected : ndarray of shape (n_bins,), or None
        Mass that a perfect model would have in each bin, of rows with delayed entry; None where that is the width.
    weight, n_effective : float or None
        Sum of the weights, where `weights` were given, and the effective number of rows: rows of equal weight whose
        mean would be as noisy (Kish), the squared sum of the weights over the sum of their squares.
    """

    value: float
    floor: float
    histogram: Floats
    edges: Edges
    statistic: float | None
    p_value: float | None
    df: int | None
    n: int
    n_censored: int
    method: Method
    test: PValue | None
    error_bound: float = 0.0
    n_clusters: int | None = None
    weight: float | None = None
    n_effective: float | None = None
    expected: Floats | None = None

    def __repr__(self) -> str:
        head = f"D-calibration {self.value:.3g} ({self.method}; a perfect model scores {self.floor:.3g} on average)"
        censored = f"{self.n_censored:,} censored ({self.n_censored / self.n:.0%})"
        within = "" if self.n_clusters is None else f" in {self.n_clusters:,} clusters"
        weighted = "" if self.n_effective is None else f" with weights (effectively {self.n_effective:,.0f})"
        rows = f"{self.n:,} {'row' if self.n == 1 else 'rows'}{within}{weighted}, {censored}"
        tested = ""
        if self.p_value is not None:
            # Smaller than the smallest number there is: not zero.
            tested = f", p {f'= {self.p_value:.3g}' if self.p_value else '< 1e-300'} ({self.test})"
        widths = np.diff(self.edges) if self.expected is None else np.maximum(self.expected, 1e-12)
        bars = "".join(
            "▁▂▃▄▅▆▇█"[min(7, max(0, round(3.5 * m / w)))] for m, w in zip(self.histogram, widths, strict=True)
        )
        over = "width" if self.expected is None else "what the model expects"
        told = [head, f"{rows}{tested}", f"mass of {widths.size} bins over {over}  {bars}  (equal heights: calibrated)"]
        return "\n".join(told + ([self.disagreement] if self.disagreement else []))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the values, and the mass of each bin beside that of a perfect model."""
        head, rows, *said = repr(self).split("\n")
        expected = np.diff(self.edges) if self.expected is None else self.expected
        bins = zip(self.edges[:-1], self.edges[1:], self.histogram, expected, strict=True)
        lines = "".join(f"<tr><td>{a:.3g} to {b:.3g}</td><td>{m:.3f}</td><td>{w:.3f}</td></tr>" for a, b, m, w in bins)
        names = "".join(f"<th>{name}</th>" for name in ("F", "share of the rows", "of a perfect model"))
        told = "".join(f"<p>{escape(line)}</p>" for line in (head, rows, *said[1:]))
        return f"{told}<table><tr>{names}</tr>{lines}</table>"

    @property
    def disagreement(self) -> str | None:
        """Return why value and test disagree, where they do: they answer two questions. None where they agree.

        The value asks how uneven the bins are, with censored rows spread out as `method` says; "uniform" spreads them
        evenly, so that they always look calibrated. Akritas' test asks whether as many events happened in each bin as
        the model expects, which no spreading can hide.
        """
        if self.p_value is None or self.test != "akritas" or not (self.p_value < _LEVEL and self.value <= self.floor):
            return None
        advice = "look at method='km'" if self.method == "uniform" else "trust the test"
        return (
            f"value and test disagree: the bins, with {self.n_censored / self.n:.0%} of the rows spread over them, are "
            f"no more uneven than noise,\nbut the events among them are not as many as the model expects; {advice}"
        )


def holm(p_values: Mapping[Any, float]) -> dict[Any, float]:
    """Holm's correction: the smallest of m p-values times m, the next times m - 1, and none below the one before."""
    adjusted: dict[Any, float] = {}
    largest = 0.0
    for k, label in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - k) * p_values[label]))
        adjusted[label] = largest
    return {label: adjusted[label] for label in p_values}


@dataclass(frozen=True, eq=False)
class GroupedDCalibration:
    """D-calibration of the whole and within each group.

    Attributes
    ----------
    whole : DCalibrationResult
    groups : mapping of label to DCalibrationResult
        Each with the p-value of its own test. Of many such p-values the smallest is small by chance; look at
        `adjusted_p_values` to say in which groups the model is off.
    """

    whole: DCalibrationResult
    groups: Mapping[Any, DCalibrationResult]

    @property
    def value(self) -> float:
        """D-calibration within groups, summed with the groups' shares of the rows, or of their weights."""
        shares = [(r.value, r.n if r.weight is None else r.weight) for r in self.groups.values()]
        return sum(value * share for value, share in shares) / sum(share for _, share in shares)

    @property
    def adjusted_p_values(self) -> Mapping[Any, float] | None:
        """P-value of each group, corrected by Holm's method for looking at all of them; None without p-values.

        With a perfect model the probability that any is at or below a level is at most that level, however the groups
        depend on each other, provided that the p-values themselves hold: those of "akritas" are up to twice too small
        far out in groups of a few hundred rows or fewer, those of "simulated" (with at least 20 times as many draws as
        groups) hold in any. The smallest of m is multiplied by m, the next by m - 1, and so on, and none is smaller
        than the one before it.
        """
        own = {label: r.p_value for label, r in self.groups.items() if r.p_value is not None}
        if len(own) < len(self.groups):
            return None
        return holm(own)

    def __repr__(self) -> str:
        adjusted = self.adjusted_p_values
        groups = {label: result for label, result in self.groups.items() if result.n >= MIN_CELL}
        width = max([5, *(len(str(label)) for label in groups)])
        head = f"{'group':>{width}}  {'n':>9}  {'censored':>8}  {'D-cal':>9}  {'floor':>9}  {'p':>8}  {'p (Holm)':>8}"
        lines = [head]
        for label, r in (("whole", self.whole), *groups.items()):
            corrected = None if adjusted is None or r is self.whole else adjusted[label]
            share = r.n_censored / r.n
            measured = f"{label!s:>{width}}  {r.n:>9,}  {share:>8.0%}  {r.value:>9.3g}  {r.floor:>9.3g}"
            lines.append(f"{measured}  {_shown(r.p_value):>8}  {_shown(corrected):>8}".rstrip())
        if adjusted:
            lines.append(f"p (Holm): corrected for looking at {len(adjusted)} groups")
        if few := len(self.groups) - len(groups):
            noun = "group" if few == 1 else "groups"
            lines.append(f"not shown: {few:,} {noun} of fewer than {MIN_CELL} rows (.groups has them)")
        return "\n".join(lines)


def _shown(p: float | None) -> str:
    """Write a p-value; one below the smallest number that a float can hold is not shown as zero."""
    return "" if p is None else f"{p:.3g}" if p else "<1e-300"


# --- P-values of D-calibration: how often a perfect model would look this bad.
# ========== ========================================================= ========================================
# test       statistic                                                 its size under censoring
# ========== ========================================================= ========================================
# pearson    n sum (mass - |I|)^2 / |I|, chi-squared with B - 1        far too small: censored rows have less
#            degrees of freedom                                        noise than the chi-squared assumes
# simulated  the same, against draws from a perfect model with the     right
#            censoring seen in the data
# akritas    events minus the events a perfect model expects, a bin    right, and it keeps its power
# residuals  the sum of squared mean residuals, against the law that   right; for events known to lie in intervals
#            follows from the rows' own covariance
# ========== ========================================================= ========================================
#
# All three suppose independent rows of equal weight. `akritas_of_clusters` is Akritas' statistic for rows in clusters,
# `akritas_of_weights` for rows with sampling weights.

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
    return counts_test(sums.happened, expected_events(sums))


def counts_test(observed: Floats, expected: Floats) -> Test:
    """Return Akritas' test of the events of each bin and those expected of it, as `akritas` explains."""
    starts = _cell_starts(expected)
    observed, expected = (np.add.reduceat(counts, starts) for counts in (observed, expected))
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
    return counts_test_of_clusters(sums.happened, expected_events(sums), n_simulations, rng)


def counts_test_of_clusters(observed: Floats, expected: Floats, n_simulations: int, rng: np.random.Generator) -> Test:
    """Return the test of `akritas_of_clusters` of the events of each cluster and bin, and those expected of it."""
    starts = _cell_starts(expected.sum(axis=0))
    excess = np.add.reduceat(observed - expected, starts, axis=1)
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
    estimate: Callable[[Floats, BoolArray], Floats],
    observed: Floats,
    cdf: Array,
    event: BoolArray,
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


def _censoring_curve(cdf: Array, event: BoolArray) -> tuple[Floats, Floats]:
    """F values of the censored rows in order, and the Kaplan-Meier probability of censoring up to each, row by row."""
    order = np.lexsort((~event, cdf))
    censored = ~event[order]
    at_risk = cdf.size - np.arange(cdf.size, dtype=np.float64)
    uncensored = product_limit(censored, at_risk)
    return cdf[order][censored].astype(np.float64), 1 - uncensored[censored]


@dataclass(frozen=True, eq=False)
class Rows:
    """Checked rows, and what was given beside them; weights in any units.

    `entry` is F at the entry of each row, `lower` F at the lower end of an interval that ends at `cdf`; None for none.
    """

    cdf: Array
    event: BoolArray
    time: Array | None
    censoring_survival: Array | None
    clusters: Clusters | None
    weights: Floats | None = None
    entry: Array | None = None
    lower: Array | None = None

    def only(self, chosen: BoolArray) -> "Rows":
        """Rows of a mask."""
        given = (self.time, self.censoring_survival, self.weights, self.entry, self.lower)
        t, g, w, entry, lower = (None if values is None else values[chosen] for values in given)
        clusters = None if self.clusters is None else self.clusters.of_rows(chosen)
        return Rows(self.cdf[chosen], self.event[chosen], t, g, clusters, w, entry, lower)


def measured(
    rows: Rows, *, edges: Edges, method: Method, p_value: PValue | None, n_simulations: int, seed: int
) -> DCalibrationResult:
    """Masses and test of one set of rows."""
    if rows.entry is not None or rows.lower is not None:
        return partly_seen(rows, edges, p_value, n_simulations, seed)
    u, event, clusters = rows.cdf, rows.event, rows.clusters
    units = None if rows.weights is None else effective_units(rows.weights)
    sums: BinSums | WeightedSums | None = None
    by_cluster = None
    if method == "uniform" or p_value == "akritas":
        if units is None:
            sums = BinSums(edges)
            sums.add(u, event, hazard=p_value == "akritas")
        else:
            sums = WeightedSums(edges)
            sums.add(u, event, units, hazard=p_value == "akritas")
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
    return replace(
        found,
        n_clusters=None if clusters is None else clusters.count,
        weight=None if rows.weights is None else float(rows.weights.sum()),
        n_effective=None if rows.weights is None else float(n if units is None else units.sum()),
    )


def partly_seen(rows: Rows, edges: Edges, p_value: PValue | None, n_simulations: int, seed: int) -> DCalibrationResult:
    r"""Masses and test of rows that are seen in part: from an entry on, or between two times.

    Delayed entry, intervals and right censoring are one case. With O what was observed of a row, E the condition on
    which it came under observation, and P the model's law of the row,

    .. math:: s_I = \frac1n \sum_i \big( P(U_i \in I \mid O_i) - P(U_i \in I \mid E_i) \big), \qquad U = F(T)

    has mean zero for a true model. As U is uniform under the model, a row known to lie in (a, b] has the share of each
    bin that (a, b] has, a censored one is in (u, 1], and a row that entered at v expects the shares of (v, 1].

    The test "residuals" compares the sum over bins of s² with its law, a weighted sum of chi-squared numbers whose
    weights come from the covariance of the rows' terms. "akritas" counts events and hazards from the entry on, and
    needs times of events that are known.
    """
    u, n = rows.cdf.astype(np.float64), rows.cdf.size
    entry = np.zeros(n) if rows.entry is None else rows.entry.astype(np.float64)
    low = np.where(rows.event, u if rows.lower is None else rows.lower, u)
    residual, seen, given = _residuals_in_part(low, np.where(rows.event, u, 1.0), entry, edges)
    if rows.clusters is not None:
        residual = np.array([rows.clusters.sums(column) for column in residual.T]).T
    covariance = residual.T @ residual
    masses = Masses(seen, float(np.trace(covariance)) / n**2)
    test: Test | None = None
    if p_value == "akritas":
        happened, expected = _counts_from_entry(rows, entry, edges)
        if rows.clusters is None:
            test = counts_test(happened, expected)
        else:
            test = counts_test_of_clusters(happened, expected, n_simulations, np.random.default_rng(seed))
    elif p_value == "residuals":
        statistic = n * float(np.square(seen - given).sum())
        weights = np.linalg.eigvalsh(covariance / n)
        test = Test(statistic, chi_squared_mixture(np.maximum(weights, 0.0), statistic), None)
    found = result(masses, edges, test, n, int(n - np.count_nonzero(rows.event)), "uniform", p_value)
    return replace(
        found,
        value=float(np.square(seen - given).sum()),
        expected=None if rows.entry is None else given,
        n_clusters=None if rows.clusters is None else rows.clusters.count,
    )


def _residuals_in_part(low: Floats, high: Floats, entry: Floats, edges: Edges) -> tuple[Floats, Floats, Floats]:
    """Return P(bin | observed) - P(bin | entry) of every row, (n, bins), and the means of the two parts."""
    seen = parts_of_bins(low, high, edges)
    given = parts_of_bins(entry, np.ones(entry.size), edges)
    return seen - given, seen.mean(axis=0), given.mean(axis=0)


def _counts_from_entry(rows: Rows, entry: Floats, edges: Edges) -> tuple[Floats, Floats]:
    """Return the events of each bin and those expected from entry on; of each cluster where there are some."""
    expected, happened = [], None
    # Sums over rows that end at their entry take away what lies before it.
    for u, event in ((rows.cdf, rows.event), (entry, np.zeros(entry.size, dtype=np.bool_))):
        if rows.clusters is not None:
            sums: BinSums | ClusterSums = ClusterSums.of(u, event, rows.clusters, edges)
        else:
            sums = BinSums(edges)
            sums.add(u, event, hazard=True)
        expected.append(expected_events(sums))
        happened = sums.happened if happened is None else happened
    assert happened is not None
    return happened, np.maximum(expected[0] - expected[1], 0.0)


def _masses(
    rows: Rows, edges: Edges, method: Method, sums: BinSums | WeightedSums | None, by_cluster: ClusterSums | None
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
    masses: Masses, edges: Edges, test: Test | None, n: int, n_censored: int, method: Method, p_value: PValue | None
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

    def uniform(u: Floats, event: BoolArray) -> Floats:
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

    def km(u: Floats, event: BoolArray) -> Floats:
        one = (redistributed(v, happened, v, edges, floor=False) for v, happened in zip(u, event, strict=True))
        return np.array([masses.histogram for masses in one])

    return uniform if method == "uniform" else km


def p_in_words(p_value: float) -> str:
    """Write a p-value in a sentence.

    Examples
    --------
    >>> p_in_words(0.0312), p_in_words(1e-9)
    ('p = 0.031', 'p < 0.0001')
    """
    return "p < 0.0001" if p_value < 1e-4 else f"p = {p_value:.2g}"
