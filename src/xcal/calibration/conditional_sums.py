"""Sums of features times residuals over chunks of rows: all that conditional calibration and its test need of them."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import as_event, as_probability, as_vector, check_rows, fail, first_row
from xcal.calibration.bins import Edges, bin_edges
from xcal.calibration.random_signs import noise_of, p_value_of, parts_of
from xcal.calibration.residuals import residuals

Floats = npt.NDArray[np.float64]

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

    def update(self, cdf: Any, event: Any, columns: Any, weights: Any = None) -> Self:
        """Add rows: F, events, what `features` takes, and row weights."""
        check_rows({"cdf": cdf, "event": event, "columns": columns, "weights": weights})
        u = as_probability("cdf", cdf)
        happened = as_event(event, u.size)
        w = np.ones(u.size) if weights is None else _as_weights(weights, u.size)
        self._add(self._checked(self.features(columns), u.size), residuals(u, happened, self.edges), w)
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

        The test (`random_signs`) is one of the value, or with `average_apart` of the larger of two parts: that of the
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
