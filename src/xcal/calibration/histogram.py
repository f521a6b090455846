"""Exact bin masses: how much probability the data put in each bin of F, by three ways of treating censored rows."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from xcal._checks import BoolArray, Floats, as_floats, check_same_length, fail, first_row
from xcal._kaplan_meier import product_limit
from xcal.calibration.bins import Clusters, Edges, sum_of_squares

# --- The censored share: what a row censored at F leaves in each bin, as its event is uniform on [F, 1].
# In its own bin [a, b) that is (b - F) / (1 - F) = 1 - (1 - b) / (1 - F), in every later bin (b - a) / (1 - F), and
# nothing in earlier ones (paper, section 3.3).
#
# Measuring uses the functions here. Training needs the same in torch, with a gradient, as the mass above each edge:
# `membership.exact_above`. It stands once more in the two places that speed asks for, `penalty.SmallRows` (on a
# CPU) and `_kernels.cumulative_features` (on a GPU). ``tests/calibration/test_censored_share.py`` holds all that run on
# a CPU to one sum of exact fractions; the kernel is held to `membership` in ``test_penalty.py``.

Numbers = TypeVar("Numbers", Floats, Tensor)


def rest(cdf: Floats, edges: Floats) -> Floats:
    """Return 1 - F, with F held at the left edge of the last bin.

    A row there leaves everything in that bin, so its own 1 - F is not needed; held, it stays above zero.
    """
    left: Floats = 1 - np.minimum(cdf, edges[-2])
    return left


def share_of_bin(number: int, bins: npt.NDArray[np.intp], left: Floats, edges: Floats) -> Floats:
    """Share of every row in one bin, (n,), from the rows' own bins and what `rest` gives for them."""
    a, b = edges[number], edges[number + 1]
    return np.where(bins == number, 1 - (1 - b) / left, np.where(bins < number, (b - a) / left, 0.0))


def parts_of_bins(low: Floats, high: Floats, edges: Edges) -> Floats:
    """Return the part of (low, high] that lies in each bin, (n, bins); the bin of the point where the two are equal."""
    inside = np.minimum(high[:, None], edges[1:]) - np.maximum(low[:, None], edges[:-1])
    length = (high - low)[:, None]
    found = np.maximum(inside, 0.0) / np.where(length > 0, length, 1.0)
    points = np.flatnonzero(length[:, 0] <= 0)
    found[points] = 0.0
    found[points, locate(high[points], edges)] = 1.0
    return np.asarray(found)


def mass_of_bins(happened: Numbers, censored: Numbers, inverse: Numbers, earlier: Numbers, edges: Numbers) -> Numbers:
    """Sum of the shares in each bin, (..., B), from sums over the rows of each bin.

    Parameters
    ----------
    happened, censored
        Number, or weight, of the events and of the censored rows of each bin.
    inverse, earlier
        Sum of one over `rest` of the censored rows of each bin, and of those of all earlier bins.
    edges
        Shape (B + 1,).
    """
    above, width = 1 - edges[1:], edges[1:] - edges[:-1]
    return happened + censored - above * inverse + width * earlier


# --- Masses of the bins.
# A perfect model puts |I| in every bin. Each estimator returns the masses and their noise: the sum over bins of the
# variance that a perfect model's masses have at this sample and this censoring, which is what its D-calibration scores
# on average (`floor`).

Array = npt.NDArray[Any]
# Rows worked on at a time: the block and its temporaries stay in cache, and memory does not grow with n.
_BLOCK = 1 << 15
# Largest share of all mass that redistribution may put on one row; see `horizon`.
MAX_SHARE = 0.02


@dataclass(frozen=True)
class Masses:
    """Estimated mass of each bin, and the expected D-calibration of a perfect model (`floor`)."""

    histogram: Floats
    floor: float

    def value(self, edges: Edges) -> float:
        """D-calibration: sum over bins of (mass - width)^2."""
        return float(np.square(self.histogram - np.diff(edges)).sum())


def bin_sums(bins: npt.NDArray[np.intp], weights: Array | None, n_bins: int) -> Floats:
    """Sum of the weights of the rows in each bin, or their number."""
    return np.bincount(bins, weights, minlength=n_bins).astype(np.float64, copy=False)


def locate(x: Floats, edges: Edges) -> npt.NDArray[np.intp]:
    """Bin of each value: a <= x < b, and the last bin holds 1.

    Equal bins need no search. Multiplied by slightly more than n_bins, a value on an edge, or just below it, lies just
    above a whole number. Only such values are compared with the edge itself. The extra edge at infinity brings 1.0 back
    into the last bin.
    """
    n_bins = edges.size - 1
    hair = _edge_error(edges)
    if hair is None:
        return np.searchsorted(edges[1:-1], x, side="right")
    if x.size == 0:
        return np.zeros(0, dtype=np.intp)
    scaled = x * (n_bins * (1 + hair))
    index = scaled.astype(np.intp)
    scaled -= index
    if scaled.min() <= 3 * hair * n_bins:
        index -= x < np.append(edges[:-1], np.inf)[index]
    return index


def _edge_error(edges: Edges) -> float | None:
    """Relative error of equal edges j / n_bins held as float64 or as float32 numbers; None if they are not equal."""
    n_bins = edges.size - 1
    equal = np.arange(n_bins + 1) / n_bins
    if np.array_equal(edges, equal):
        return 2.0**-50
    return 2.0**-22 if np.array_equal(edges, equal.astype(np.float32)) else None


def edges_like(edges: Edges, cdf: Array) -> Edges:
    """Edges as the numbers of the F values' own type, so that a float32 0.7 lies on the edge at 0.7."""
    return edges.astype(np.float32).astype(np.float64) if cdf.dtype == np.float32 else edges


def cumulative_hazard(cdf: Array) -> Floats:
    """-log(1 - F), in float64.

    F = 1 stands for every F that the type rounds to one. It gets the hazard of the largest number below one: 36.7 in
    float64 and 16.6 in float32. A row that got there, with an event or without, is evidence against the model.
    """
    below_one = np.nextafter(cdf.dtype.type(1), cdf.dtype.type(0))
    hazard: Floats = -np.log1p(-np.minimum(cdf, below_one).astype(np.float64, copy=False))
    return hazard


# What `BinSums` adds up, in its own words.
SUMS = ("happened", "censored", "inverse", "inverse_square", "hazard")


@dataclass
class BinSums:
    """Everything the uniform estimator and Akritas' test need of the rows, in five sums per bin."""

    edges: Edges
    happened: Floats = field(init=False)
    censored: Floats = field(init=False)
    inverse: Floats = field(init=False)  # sum of 1 / (1 - F) over censored rows
    inverse_square: Floats = field(init=False)
    hazard: Floats = field(init=False)  # sum of -log(1 - F) over all rows

    def __post_init__(self) -> None:
        for name in SUMS:
            setattr(self, name, np.zeros(self.edges.size - 1))

    def add(self, cdf: Array, event: BoolArray, *, hazard: bool, weights: Floats | None = None) -> None:
        """Add rows, or with weights so many of each. `hazard` asks for the sums that only Akritas' test uses."""
        edges, n_bins = edges_like(self.edges, cdf), self.edges.size - 1
        for start in range(0, cdf.size, _BLOCK):
            u = cdf[start : start + _BLOCK].astype(np.float64, copy=False)
            weight = None if weights is None else weights[start : start + _BLOCK]
            bins = locate(u, edges)
            later = np.flatnonzero(~event[start : start + _BLOCK])
            own = bins.take(later)
            inverse = 1 / rest(u.take(later), edges)
            if weight is None:
                all_rows, censored = (np.bincount(place, minlength=n_bins) for place in (bins, own))
                self.censored += censored
                self.happened += all_rows - censored
                weighted = inverse
            else:
                # Each kind by itself: the rounding of a difference must not fill a bin without events.
                self.censored += bin_sums(own, weight.take(later), n_bins)
                self.happened += bin_sums(bins, weight * event[start : start + _BLOCK], n_bins)
                weighted = inverse * weight.take(later)
            self.inverse += bin_sums(own, weighted, n_bins)
            self.inverse_square += bin_sums(own, weighted * inverse, n_bins)
            if hazard:
                passed = cumulative_hazard(cdf[start : start + _BLOCK])
                self.hazard += bin_sums(bins, passed if weight is None else passed * weight, n_bins)

    def merge(self, other: "BinSums") -> None:
        """Add another set of rows, given as sums."""
        for name in SUMS:
            getattr(self, name).__iadd__(getattr(other, name))

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.happened.sum() + self.censored.sum())

    @property
    def n_censored(self) -> int:
        """Number of censored rows."""
        return int(self.censored.sum())

    def uniform(self) -> Masses:
        """Haider's estimator (Eq. of censored D-calibration): a censored row spreads uniformly over [F, 1].

        What it leaves in each bin is linear in 1 / (1 - F), so the sums of that by bin are all that is
        needed. In torch, for many models: `membership.uniform_histogram`.
        """
        width, mass = np.diff(self.edges), self._mass()
        # A perfect model's mass in bin j has variance E (r_j - |I_j|)^2 / n with r_j a row's share of the bin. Equal to
        # (E r_j^2 - |I_j|^2) / n, which could be negative in a sample whose mean of r_j is not |I_j|.
        square = self._squared_shares() / self.n
        floor = (square - np.square(width).sum() - 2 * width @ (mass / self.n - width)) / self.n
        # A sum of squares in exact arithmetic: below zero is rounding.
        return Masses(mass / self.n, max(0.0, float(floor)))

    def _mass(self) -> Floats:
        """Sum of the rows' shares of each bin."""
        earlier = np.concatenate([[0.0], np.cumsum(self.inverse)[:-1]])
        return mass_of_bins(self.happened, self.censored, self.inverse, earlier, self.edges)

    def _squared_shares(self) -> float:
        """Sum over rows and bins of the square of a row's share."""
        above, squares = 1 - self.edges[1:], np.diff(self.edges) ** 2
        later = np.concatenate([np.cumsum(squares[::-1])[::-1][1:], [0.0]])
        own = self.censored - 2 * above * self.inverse + (above**2 + later) * self.inverse_square
        return float(self.happened.sum() + own.sum())


@dataclass
class WeightedSums:
    """What `BinSums` holds, of rows with sampling weights.

    Whether a row was sampled, and so its weight, may depend on its outcome, as in a case-cohort study. Nothing is then
    known of a row's noise given its weight, but what a row adds still has mean zero, weight times residual, and rows
    are independent: the variance of a sum is the sum of squares.
    """

    edges: Edges
    sums: BinSums = field(init=False)  # with the weights
    squares: BinSums = field(init=False)  # with their squares
    # Sums of squared weights times e and e^2, with e the events of a row less those expected of it in its own bin.
    excess: Floats = field(init=False)
    excess_square: Floats = field(init=False)

    def __post_init__(self) -> None:
        self.sums, self.squares = BinSums(self.edges), BinSums(self.edges)
        self.excess, self.excess_square = np.zeros((2, self.edges.size - 1))

    def add(self, cdf: Array, event: BoolArray, weights: Floats, *, hazard: bool) -> None:
        """Add rows."""
        square = np.square(weights)
        self.sums.add(cdf, event, hazard=hazard, weights=weights)
        self.squares.add(cdf, event, hazard=hazard, weights=square)
        if hazard:
            bins = locate(cdf.astype(np.float64, copy=False), edges_like(self.edges, cdf))
            excess = event - (cumulative_hazard(cdf) + np.log1p(-self.edges[:-1])[bins])
            self.excess += bin_sums(bins, square * excess, self.edges.size - 1)
            self.excess_square += bin_sums(bins, square * excess**2, self.edges.size - 1)

    @property
    def numbers(self) -> Floats:
        """All sums in one array, (12, bins), which can be added to that of other rows."""
        both = [getattr(sums, name) for sums in (self.sums, self.squares) for name in SUMS]
        return np.array([*both, self.excess, self.excess_square])

    @numbers.setter
    def numbers(self, values: Floats) -> None:
        for sums, part in ((self.sums, values[: len(SUMS)]), (self.squares, values[len(SUMS) : -2])):
            for name, one in zip(SUMS, part, strict=True):
                setattr(sums, name, one.copy())
        self.excess, self.excess_square = values[-2:].copy()

    @property
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.sums.happened.sum() + self.sums.censored.sum())

    @property
    def effective(self) -> float:
        """Kish's effective number of rows: the squared sum of the weights over the sum of their squares."""
        return self.total**2 / float(self.squares.happened.sum() + self.squares.censored.sum())

    def uniform(self) -> Masses:
        """Haider's estimator, as `BinSums.uniform`.

        The floor is the sum over bins and rows of (weight times (share less width) over all weights)^2.
        """
        width, total = np.diff(self.edges), self.total
        squared = self.squares._squared_shares() - 2 * width @ self.squares._mass()
        floor = (squared + np.square(width).sum() * total**2 / self.effective) / total**2
        return Masses(self.sums._mass() / total, max(0.0, float(floor)))

    def covariance(self) -> Floats:
        """Covariance of the weighted events less expected ones of the bins, (bins, bins).

        A row whose F lies in bin k has e there; in each bin before it no event, and the whole hazard of the bin.
        """
        whole = np.append(np.diff(-np.log1p(-self.edges[:-1])), 0.0)
        rows = self.squares.happened + self.squares.censored
        later = rows[::-1].cumsum()[::-1] - rows
        # Of two bins, the later one decides which rows have something in both.
        found = np.triu(np.outer(whole, whole * later - self.excess), 1)
        found += found.T + np.diag(whole**2 * later + self.excess_square)
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class ClusterSums:
    """What `BinSums` holds, cluster by cluster: each ``(clusters, bins)``."""

    edges: Edges
    happened: Floats  # number, or weight, of events
    censored: Floats
    inverse: Floats  # sum of 1 / (1 - F) over censored rows
    hazard: Floats  # sum of -log(1 - F) over all rows

    @classmethod
    def of(
        cls, cdf: Array, event: BoolArray, clusters: Clusters, edges: Edges, weights: Floats | None = None
    ) -> "ClusterSums":
        """Add up these rows, each times its weight."""
        own_edges, n_bins = edges_like(edges, cdf), edges.size - 1
        u = cdf.astype(np.float64, copy=False)
        bins = locate(u, own_edges)
        inverse = np.where(event, 0.0, 1 / rest(u, own_edges))
        one = np.ones(1) if weights is None else weights
        parts = (event * one, ~event * one, inverse * one, cumulative_hazard(cdf) * one)
        return cls(edges, *(clusters.bin_sums(bins, part, n_bins) for part in parts))

    def uniform_floor(self) -> float:
        """Return the expected D-calibration of a perfect model by the uniform estimator.

        With it every row's share of a bin has the bin's width as its mean. So what a cluster adds to the deviation of
        the mass from the width has mean zero, and the square of a sum of such terms is, on average, the sum of their
        squares.
        """
        earlier = np.cumsum(self.inverse, axis=1) - self.inverse
        mass = mass_of_bins(self.happened, self.censored, self.inverse, earlier, self.edges)
        rows = (self.happened + self.censored).sum(axis=1, keepdims=True)
        return float(np.square((mass - rows * np.diff(self.edges)) / rows.sum()).sum())


def weighted(sums: Floats, squares: Floats, edges: Edges) -> Masses:
    """Inverse-probability masses from the sums per bin of the weights 1 / G of events, and of their squares.

    Weights are normalised to one. The noise is that of a ratio of sums with a known G.
    """
    total, width = sums.sum(), np.diff(edges)
    residual = (1 - 2 * width) * squares + width**2 * squares.sum()
    return Masses(sums / total, float(residual.sum() / total**2))


def heaviest(n: float) -> float:
    """Largest weight of one of n rows at which redistribution continues; see `horizon`.

    Weights are products of many rounded factors, and often equal to the limit (a third of few rows censored before all
    others, say). The factor just above one keeps rounding from deciding such a tie.
    """
    return max(MAX_SHARE, 1.5 / n) * (1 + 1e-9)


def horizon(happened: BoolArray, carried: Floats, n: float) -> int:
    """First row, in order, at which redistribution stops, from what a row of weight one carries, of n in all.

    A censored row hands its mass to the rows after it, so that under heavy censoring the last few carry almost
    everything and the value is noise. It stops where one row would carry more than `heaviest`, and at the latest
    after the last event. Without censoring no row ever carries more than 1 / n, and it never stops early.
    """
    too_heavy = np.flatnonzero(carried > heaviest(n))
    after_last_event = int(np.flatnonzero(happened)[-1]) + 1 if happened.any() else 0
    return min(int(too_heavy[0]) if too_heavy.size else carried.size, after_last_event)


@dataclass(frozen=True, eq=False)
class Redistribution:
    """Rows in an order in which each censored one hands its mass evenly to those after it."""

    order: npt.NDArray[np.intp]  # everything else is in it
    weight: Floats  # what each row carries in the end: 1 / (n G), zero for one that has handed on what it had
    leaves: BoolArray  # rows that hand on what they have
    at_risk: Floats  # rows at each place and after it
    units: Floats | None  # weights of the rows; None if they are one
    clusters: Clusters | None

    def influence(self, share: Floats, width: float) -> Floats:
        """Return the influence of each row on the mass of a bin of this width, from what it carries in the bin.

        A censoring scales up every later row: what follows it, per row at risk, is its part of the error of G.
        """
        follows = share[::-1].cumsum()[::-1] - share
        jump = np.where(self.leaves, follows / self.at_risk, 0.0)
        if self.units is None:
            return np.asarray(share - width / share.size + jump - np.cumsum(jump / self.at_risk))
        jump *= self.units
        return np.asarray(share - self.units * (width / self.units.sum() + np.cumsum(jump / self.at_risk)) + jump)

    def noise(self, share: Floats, width: float) -> float:
        """Return the variance of the mass of a bin: rows are independent, or clusters are."""
        return sum_of_squares(self.influence(share, width), self.clusters)


def redistribution(
    event: BoolArray, scale: Array, weights: Floats | None = None, clusters: Clusters | None = None
) -> Redistribution:
    """Put rows in the order of `scale` and let the censored ones hand on their mass; see `redistributed`.

    Weights are in the units of `xcal._checks.as_weights`: their sum is the effective number of rows.
    """
    n = event.size
    order = np.lexsort((~event, scale))
    ordered = None if clusters is None else Clusters(clusters.codes[order], clusters.count)
    happened, scale = event[order], scale[order]
    units, total = None, float(n)
    at_risk = n - np.arange(n, dtype=np.float64)
    if weights is not None:
        units, total = weights[order], float(weights.sum())
        at_risk = units[::-1].cumsum()[::-1]
    # The curve of the censoring, row by row.
    leaving = ~happened if units is None else np.where(happened, 0.0, units)
    uncensored = np.append(1.0, product_limit(leaving, at_risk)[:-1])
    # Tied rows see the G from before their common time; it may be zero only past the last event.
    carried = 1 / (total * uncensored[np.searchsorted(scale, scale, side="left")])
    stop = horizon(happened, carried, total)
    carried[stop:] = carried[stop] if stop < n else 0.0
    leaves = ~happened
    leaves[stop:] = False
    carried[leaves] = 0.0
    weight = carried if units is None else carried * units
    return Redistribution(order, weight, leaves, at_risk, units, ordered)


def redistributed(
    cdf: Array,
    event: BoolArray,
    scale: Array,
    edges: Edges,
    *,
    floor: bool = True,
    clusters: Clusters | None = None,
    weights: Floats | None = None,
) -> Masses:
    """Kaplan-Meier masses: in the order of `scale` each censored row hands its mass evenly to the rows after it.

    An event then carries S(t-) / (rows at risk) = 1 / (n G(t-)), with S the Kaplan-Meier curve of events and G that of
    censoring: with ``scale=cdf`` this is Kaplan-Meier on the F scale, with ``scale=time`` inverse probability of
    censoring. Rows from the `horizon` on share what is left evenly; events among them stay in their bin, and censored
    ones spread over [F, 1] as in the uniform estimator. Masses sum to one.

    The noise is the variance of the influence function, the part due to estimating G included; with `clusters`, that of
    its sums over clusters. With `weights` (`redistribution`) a row counts as often as its weight says.
    """
    rows = redistribution(event, scale, weights, clusters)
    u, happened = cdf[rows.order].astype(np.float64), event[rows.order]
    edge = edges_like(edges, cdf)
    bins, left = locate(u, edge), rest(u, edge)
    histogram, noise = np.empty(edges.size - 1), 0.0
    for j, (a, b) in enumerate(pairwise(edge)):
        share = rows.weight * np.where(happened, bins == j, share_of_bin(j, bins, left, edge))
        histogram[j] = share.sum()
        if floor:
            noise += rows.noise(share, b - a)
    return Masses(histogram, noise)


def as_censoring_survival(values: Any, event: BoolArray, *, every_row: bool = False) -> Array:
    """Check the user's G at each row: in (0, 1] for events, and for `every_row` where censored rows use it too."""
    g = as_floats("censoring_survival", values)
    check_same_length("censoring_survival", g, "cdf", event.size)
    bad = ~((g > 0) & (g <= 1)) & (event | every_row)
    if bad.any():
        row = first_row(bad)
        fail("censoring_survival", f"probabilities in (0, 1] for every {'row' if every_row else 'event'}", g[row], row)
    if not event.any():
        fail("event", "at least one event, as method='ipcw' uses events only", "none")
    return g


@dataclass(frozen=True, eq=False)
class _Weighted:
    """Rows that count, with their weights 1 / G, times those of the rows where these have some."""

    counted: BoolArray  # which of all rows
    event: BoolArray  # of the rows that count, as the others
    cdf: Floats
    inverse: Floats

    @classmethod
    def of(cls, u: Array, event: BoolArray, g: Array, time: Array | None, weights: Floats | None) -> "_Weighted":
        """Events; and with `time` rows that outlast the last event, which spread over [F, 1]."""
        counted = event if time is None else event | (time >= time[event].max())
        inverse = 1 / g[counted].astype(np.float64)
        if weights is not None:
            inverse *= weights[counted]
        return cls(counted, event[counted], u[counted].astype(np.float64), inverse)

    def shares(self, edges: Edges) -> Iterator[Floats]:
        """Weight of every row in one bin after the other."""
        bins, left = locate(self.cdf, edges), rest(self.cdf, edges)
        for j in range(edges.size - 1):
            yield self.inverse * np.where(self.event, bins == j, share_of_bin(j, bins, left, edges))


def inverse_weights(
    u: Array, event: BoolArray, g: Array, edges: Edges, time: Array | None = None, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Sum 1 / G over the events of each bin, and its square; with `weights` those of weight / G.

    With `time`, rows that outlast the last event count 1 / G as well and spread over [F, 1]: what happens after the end
    of the follow-up would otherwise be missing.
    """
    sums, squares = np.zeros(edges.size - 1), np.zeros(edges.size - 1)
    for j, share in enumerate(_Weighted.of(u, event, g, time, weights).shares(edges_like(edges, u))):
        sums[j], squares[j] = share.sum(), np.square(share).sum()
    return sums, squares


def clustered_floor(
    u: Array, event: BoolArray, g: Array, edges: Edges, time: Array | None, weights: Floats | None, clusters: Clusters
) -> float:
    """Return the expected D-calibration of a perfect model whose rows come in clusters, with G taken as known.

    A mass is the ratio of a bin's weights to all weights. What a row adds to its deviation from the bin's width w is
    its weight in the bin less w times its whole weight, over the sum of all.
    """
    rows = _Weighted.of(u, event, g, time, weights)
    own = clusters.of_rows(rows.counted)
    widths, total = np.diff(edges), rows.inverse.sum()
    parts = zip(rows.shares(edges_like(edges, u)), widths, strict=True)
    return sum(sum_of_squares((share - width * rows.inverse) / total, own) for share, width in parts)


def lost_mass_caution(total: float, squares: float, n: float) -> str | None:
    """Return what to tell a user whose events do not stand for everybody, given the sums of 1 / G and its square.

    `n` is the number of rows, or the sum of their weights.
    """
    seen = total / n
    # Three standard errors below all rows, and by enough to matter.
    if seen + 3 * squares**0.5 / n > 0.97:
        return None
    return (
        f"the events, weighted by 1 / censoring_survival, stand for {seen:.0%} of the rows only: follow-up ended "
        "before the others could have theirs, and what they would add is missing. Give time as well, or use "
        "method='km'."
    )


def residuals(cdf: Array, event: BoolArray, edges: Edges, lower: Array | None = None) -> Floats:
    r"""R_ij, (n, B): the exact membership of row i in bin j less the width of the bin.

    An event that lies between two times, with F at the `lower` one, has its part in each bin.

    An event at F lies in one bin; a censored row leaves its share in every bin from F on. If the model is
    right for a row's covariates x and censoring is independent given x, then :math:`E(R_{ij} \mid x) = 0`: the share of
    a censored row is the probability that its event, had it been seen, would have been in the bin. D-calibration is the
    sum over bins of the squared mean of these numbers.
    """
    edge = edges_like(edges, cdf)
    u = cdf.astype(np.float64, copy=False)
    bins, left = locate(u, edge), rest(u, edge)
    found = np.empty((u.size, edges.size - 1))
    for j in range(edges.size - 1):
        found[:, j] = np.where(event, bins == j, share_of_bin(j, bins, left, edge))
    if lower is not None:
        found[event] = parts_of_bins(lower[event].astype(np.float64), u[event], edge)
    found -= np.diff(edges)
    # Nothing is known of a row that is censored at F = 0: of the differences only rounding is left.
    found[~event & (u == 0)] = 0.0
    return found
