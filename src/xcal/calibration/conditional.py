"""Calibrated for whom? Calibration given the covariates: a number, its test, and where the model is off."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import (
    MANY,
    Floats,
    as_count,
    as_event,
    as_flag,
    as_numpy,
    as_probability,
    as_vector,
    as_weights,
    check_rows,
    effective_units,
    fail,
    first_row,
)
from xcal.calibration.bins import FINE_BINS, Edges, bin_edges
from xcal.calibration.dcalibration import as_at_most
from xcal.calibration.histogram import residuals
from xcal.calibration.subgroups import SEARCHED_ROWS, KernelFeatures, Subgroup, as_columns, find_subgroup

# --- The test of conditional calibration: random signs on blocks of rows give what a right model would show.
# Block sums of a right model have mean zero and are independent, so that all signs of them are equally likely. A sum
# of products of two blocks is compared with the same sum under random signs.

# Parts of the test are compared in units of this quantile of each: near the level at which tests are read, their tails
# then count the same. In units of the standard deviation the part with the longer tail would outweigh the other.
_QUANTILE = 0.95
_DRAWN = 1 << 24  # signs that are drawn at a time


def noise_of(products: Floats) -> float:
    """Return the standard deviation over random signs of the sum of all products of two blocks, (blocks, blocks).

    Signs make every pair of blocks +1 or -1: mean zero, and the variance is twice the sum of squared products.
    """
    return float(np.sqrt(2 * np.square(products).sum()))


def parts_of(products: Floats, average: Floats, along: Floats, length: float) -> list[Floats]:
    """Split the products of two blocks: those of the average over all rows, and those of the features less their means.

    `average` has the sums of residuals by block, (blocks, B), `along` those of residuals times the part of the features
    along their mean, and `length` is the squared length of that mean.
    """
    common = average @ average.T
    crossed = along @ average.T
    beyond = products - crossed - crossed.T + length * common
    for part in (common, beyond):
        np.fill_diagonal(part, 0.0)
    # Where all rows have the same features only rounding is left of what differs.
    return [common, beyond] if noise_of(beyond) > 1e-9 * noise_of(products) else [common]


def p_value_of(parts: list[Floats], n_draws: int, rng: np.random.Generator) -> float:
    """Compare the largest of some sums of products with what random signs give.

    The p-value is (1 + draws at least as large as what was found) / (1 + draws). The unit of each part is the same for
    what was found and for all draws, so that under a right model every one of them is equally likely to be the largest.
    """
    parts = [part / noise for part in parts if (noise := noise_of(part)) > 0]
    if not parts:
        return 1.0
    drawn = np.concatenate(list(_signed(parts, n_draws, rng)), axis=1)
    values = np.append(drawn, [[part.sum()] for part in parts], axis=1)  # (parts, draws + 1)
    units = np.maximum(np.quantile(values, _QUANTILE, axis=1, keepdims=True), 1.0)
    largest = np.max(values / units, axis=0)
    return float(np.count_nonzero(largest >= largest[-1]) / (1 + n_draws))


def _signed(parts: list[Floats], n_draws: int, rng: np.random.Generator) -> Iterator[Floats]:
    """Yield the sums of the products of two blocks under random signs, (parts, draws), some draws at a time."""
    blocks = parts[0].shape[0]
    some = max(1, _DRAWN // blocks)
    for start in range(0, n_draws, some):
        signs = rng.choice(np.array([-1.0, 1.0]), size=(min(some, n_draws - start), blocks))
        yield np.stack([np.einsum("dg,dg->d", signs @ part, signs) for part in parts])


# Rows are summed in so many blocks, and the signs of the test are drawn per block. Up to that many rows each row is a
# block of its own; beyond, the state does not grow with the rows, and one in a thousand of the pairs of rows is lost.
BLOCKS = 1024


class ConditionalCalibration:
    """Accumulate conditional calibration over chunks; accumulators of several processes can be merged.

    Parameters
    ----------
    features : callable
        From what `update` is given of the rows to their features, (n, M), such as ``KernelFeatures().fit(X).of``. It
        must be the same in all accumulators that are merged.
    edges : array of shape (B + 1,)
    average_apart : bool
        Whether the test asks about the average over all rows and about what differs from it apart; see `compute`.

    Notes
    -----
    Rows must not come in the order of their outcomes: shuffle a table that is sorted by time.

    Examples
    --------
    >>> from xcal.calibration import KernelFeatures
    >>> rng = np.random.default_rng(0)
    >>> X, F, event = rng.normal(size=(500, 3)), rng.uniform(size=500), np.ones(500)
    >>> features = KernelFeatures().fit(X)
    >>> first, second = (ConditionalCalibration(features.of, np.linspace(0, 1, 21)) for _ in range(2))
    >>> first = first.update(F[:200], event[:200], X[:200])
    >>> second = second.update(F[200:], event[200:], X[200:])
    >>> value, noise, floor, p_value = first.merge(second).compute(99, rng)
    >>> abs(value) < 4 * noise
    True
    """

    def __init__(self, features: Any, edges: Edges, *, average_apart: bool = False) -> None:
        self.features, self.edges, self.average_apart = features, bin_edges(edges=edges), average_apart
        self._sums: Floats | None = None  # (BLOCKS, M + 1, B); the last feature is 1
        self._total = np.zeros(0)  # of the features, (M + 1,); the last is the weight of all rows
        self._counts = np.zeros(BLOCKS)  # weights of the rows of each block
        self.n = self.n_censored = 0

    def update(self, cdf: Any, event: Any, columns: Any, weights: Any = None, *, cdf_lower: Any = None) -> Self:
        """Add rows: F, events, what `features` takes, row weights, and F at the lower ends of intervals."""
        check_rows({"cdf": cdf, "event": event, "columns": columns, "weights": weights, "cdf_lower": cdf_lower})
        u = as_probability("cdf", cdf)
        happened = as_event(event, u.size)
        w = np.ones(u.size) if weights is None else _as_weights(weights, u.size)
        lower = None if cdf_lower is None else as_at_most("cdf_lower", cdf_lower, u)
        self._add(self._checked(self.features(columns), u.size), residuals(u, happened, self.edges, lower), w)
        self.n_censored += int(u.size - np.count_nonzero(happened))
        return self

    def merge(self, other: "ConditionalCalibration") -> Self:
        """Add what another accumulator with the same features and bins has seen.

        Its rows come after those that are here. Up to 1,024 rows in all the order of merging changes nothing; beyond
        that, it changes which pairs of rows share a block and are left out, one in a thousand.
        """
        if other._sums is None:
            return self
        same = self._sums is None or self._sums.shape == other._sums.shape
        if not same or not np.array_equal(self.edges, other.edges):
            fail("other", "an accumulator with the same features and bins", "others")
        if self._sums is None:
            self._sums, self._total = np.zeros_like(other._sums), np.zeros_like(other._total)
        # Small ones would otherwise all fill the first blocks, and rows of one block make no pairs.
        self._sums += np.roll(other._sums, self.n, axis=0)
        self._counts += np.roll(other._counts, self.n)
        self._total += other._total
        self.n, self.n_censored = self.n + other.n, self.n_censored + other.n_censored
        return self

    def state_dict(self) -> dict[str, npt.NDArray[Any]]:
        """Return the state as arrays by name; `sums` is empty before the first row."""
        sums = np.empty((0, 0, 0)) if self._sums is None else self._sums.copy()
        rows = np.array([self.n, self.n_censored], dtype=np.int64)
        return {"sums": sums, "total": self._total.copy(), "counts": self._counts.copy(), "rows": rows}

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Replace the state by one from `state_dict` of an accumulator with the same features and bins."""
        if set(state) != {"sums", "total", "counts", "rows"}:
            fail("state", "the entries sums, total, counts and rows", ", ".join(sorted(map(str, state))))
        sums, total, counts = (np.asarray(state[name], np.float64) for name in ("sums", "total", "counts"))
        fits = sums.ndim == 3 and sums.shape == (BLOCKS, total.size, self.edges.size - 1)
        if (sums.size and not fits) or counts.shape != (BLOCKS,):
            fail("state, sums", f"shape ({BLOCKS}, features, {self.edges.size - 1})", f"shape {sums.shape}")
        self._sums, self._total, self._counts = sums.copy() if sums.size else None, total.copy(), counts.copy()
        self.n, self.n_censored = (int(rows) for rows in state["rows"])
        return self

    def _checked(self, features: Any, n: int) -> Floats:
        """Return the features as numbers, (n, M), as many as those before had."""
        h = np.asarray(features, dtype=np.float64)
        m = None if self._sums is None else self._sums.shape[1] - 1
        if h.ndim != 2 or h.shape[0] != n or h.shape[1] != (m or h.shape[1]):
            fail("features", f"shape ({n}, {m or 'M'}), one row per row of cdf", f"shape {h.shape}")
        bad = np.asarray(~np.isfinite(h).all(axis=1))
        if bad.any():
            fail("features", "finite numbers", "others", first_row(bad))
        return h

    def _add(self, h: Floats, r: Floats, w: Floats) -> None:
        """Sum w h r' over the rows of each block; row i belongs to block i modulo their number."""
        h = np.concatenate([w[:, None] * h, w[:, None]], axis=1)
        if self._sums is None:
            self._sums, self._total = np.zeros((BLOCKS, h.shape[1], r.shape[1])), np.zeros(h.shape[1])
        self._total += h.sum(axis=0)
        place = (self.n + np.arange(h.shape[0])) % BLOCKS
        self._counts += np.bincount(place, w, minlength=BLOCKS)
        self.n += h.shape[0]
        whole = h.shape[0] // BLOCKS * BLOCKS
        if whole:
            shift = int(place[0])
            blocks = [a[:whole].reshape(-1, BLOCKS, a.shape[1]) for a in (h, r)]
            summed = np.matmul(blocks[0].transpose(1, 2, 0), blocks[1].transpose(1, 0, 2))
            self._sums += np.roll(summed, shift, axis=0)
        rest = slice(whole, None)  # fewer rows than blocks: no block twice
        self._sums[place[rest]] += h[rest, :, None] * r[rest, None, :]

    def compute(self, n_draws: int, rng: np.random.Generator) -> tuple[float, float, float, float | None]:
        """Value, noise, floor and p-value.

        The test (`p_value_of`) is one of the value, or with `average_apart` of the larger of two parts: that of the
        constant feature, which is D-calibration, and that of the features less their means. In the value both are
        mixed, and the noise of either hides the other.
        """
        if self._sums is None or self.n < 2:
            raise ValueError("ConditionalCalibration: expected at least two rows before compute(), got fewer")
        used = self._counts > 0
        every = self._sums[used]
        sums, average = every[:, :-1].reshape(every.shape[0], -1), every[:, -1]
        own = float(np.square(sums).sum())
        weight = float(self._total[-1])
        pairs = float(weight**2 - np.square(self._counts).sum())
        if pairs <= 0:
            raise ValueError("ConditionalCalibration: expected at least two rows of positive weight, got fewer")
        value = (float(np.square(sums.sum(axis=0)).sum()) - own) / pairs
        products = sums @ sums.T
        np.fill_diagonal(products, 0.0)
        noise = noise_of(products) / pairs
        p_value = None
        if n_draws:
            mean = self._total[:-1] / weight
            parts = parts_of(products, average, np.einsum("m,gmb->gb", mean, every[:, :-1]), float(mean @ mean))
            p_value = p_value_of(parts if self.average_apart else [products], n_draws, rng)
        return value, noise, own / weight**2, p_value


def _as_weights(weights: Any, n: int) -> Floats:
    w = as_vector("weights", weights).astype(np.float64)
    if w.size != n:
        fail("weights", f"{n} numbers, one per row of cdf", w.size)
    bad = ~(np.isfinite(w) & (w >= 0))
    if bad.any():
        fail("weights", "finite numbers of 0 or more", w[first_row(bad)], first_row(bad))
    return w


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
    n_bins: int = FINE_BINS,
    edges: Any = None,
    n_features: int = 128,
    bandwidth: float | None = None,
    features: Any = None,
    n_draws: int = 999,
    where: bool = True,
    seed: int = 0,
    weights: Any = None,
    cdf_lower: Any = None,
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
    cdf_lower : array-like of shape (n,), optional
        For events that are known to lie between two times: F at the earlier one, where `cdf` is F at the later one. No
        subgroup is searched then. Ignored for censored rows.

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
    check_rows({"cdf": cdf, "event": event, "X": X, "features": features, "weights": weights, "cdf_lower": cdf_lower})
    u = as_probability("cdf", cdf)
    lower = None if cdf_lower is None else as_at_most("cdf_lower", cdf_lower, u)
    happened = as_event(event, u.size)
    if u.size < 2:
        fail("cdf", "at least two rows", u.size)
    n_draws, seed = as_count("n_draws", n_draws, at_least=0, at_most=MANY), as_count("seed", seed, at_least=0)
    columns = as_columns(X, u.size)
    rng = np.random.default_rng(seed)
    own = None if features is None else _as_features(features, u.size)
    maker = KernelFeatures(n_features, bandwidth, seed) if own is None else None
    width, bins = (int(n_features) if own is None else own.shape[1]), edge.size - 1
    if width * bins > MOST_SUMS:  # said before any row is looked at
        name = "n_features" if own is None else "features"
        fail(name, f"at most {MOST_SUMS:,} features times bins", f"{width:,} features times {bins:,} bins")
    drawn = None if maker is None else maker.draw(columns)
    w = None if weights is None else effective_units(as_weights("weights", weights, u.size))
    meter = ConditionalCalibration(drawn if drawn is not None else lambda h: h, edge, average_apart=drawn is not None)
    # Where blocks have several rows, these come in random order. In a table that is sorted by time, neighbours have the
    # same residuals, and the sums of the blocks would not be independent.
    order = np.arange(u.size) if u.size <= BLOCKS else rng.permutation(u.size)
    for start in range(0, u.size, _CHUNK):
        rows = order[start : start + _CHUNK]
        given = own[rows] if own is not None else [column.take(rows) for column in columns]
        meter.update(
            *(u[rows], happened[rows], given, None if w is None else w[rows]),
            cdf_lower=None if lower is None else lower[rows],
        )
    value, noise, floor, p_value = meter.compute(n_draws, rng)
    subgroup = None
    if as_flag("where", where) and w is None and lower is None:
        some = rng.permutation(u.size)[:SEARCHED_ROWS]
        here = [column.take(some) for column in columns]
        found = find_subgroup(here, u[some], residuals(u[some], happened[some], edge), edge)
        subgroup = None if found is None else replace(found, tested=some[found.tested])
    return ConditionalCalibrationResult(
        value=value,
        noise=noise,
        floor=floor,
        p_value=p_value,
        where=subgroup,
        n=u.size,
        n_censored=meter.n_censored,
        n_features=width,
        n_draws=n_draws,
        bandwidth=None if drawn is None else drawn.bandwidth,
    )


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
