"""Resamples of the rows: every metric on rows drawn with replacement, without sorting or copying the curves.

A resample is how often each row was drawn; `xcal.validation.counted` computes the metrics from that. Resamples are
worked on in blocks, by as many threads as are of use. Each resample has a random stream of its own, so that the result
depends on the seed alone, and the same seed draws the same rows for another model.

Of very many rows a random part is resampled, and what the resamples differ by is scaled to all rows: deviations of an
average over m rows are the square root of n / m times those over n.

Of rows that depend on each other whole clusters are drawn, and the random part is one of whole clusters.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray
from xcal._threads import Workers
from xcal.metrics.ici import smooth_calibration
from xcal.metrics.inputs import Vector
from xcal.metrics.intervals import Distance, resampled_interval, true_square
from xcal.metrics.net_benefit import decision_curve
from xcal.validation.counted.benefit import CountedBenefit
from xcal.validation.counted.block import Block, Timeline
from xcal.validation.counted.pairs import antolini_indices
from xcal.validation.estimates import Estimates, Interval, Key, n_pairs
from xcal.validation.measurements import Skipped
from xcal.validation.resampled import Drawn, ResampledMetrics
from xcal.validation.rows import Rows

Matrix = npt.NDArray[np.float64]
Seed = int | tuple[int, ...]

# Counts of one block: a few arrays of this size fit the processor's cache, and with very many rows the memory.
_BLOCK = 1 << 18
_MOST_LINES = 64
_FEWEST_LINES = 2
# Resamples for which Antolini's pairs are compared at once, and the pairs times resamples up to which they are.
_ANTOLINI_LINES = 128
_MOST_ANTOLINI = 10**12


@dataclass(frozen=True, eq=False)
class Draws:
    """What the resamples gave.

    Attributes
    ----------
    n : int
        Resamples.
    values : mapping of (metric, horizon) to array of shape (n,)
        The metric on each resample; NaN where it is not determined.
    along, squares : mapping of (metric, horizon) to array of shape (n,)
        For squared distances from a perfect model, what the deviations of a resample differ by from those of the rows:
        the part along these, and the squared length; see `metrics.intervals.true_square`.
    benefit : mapping of horizon to array of shape (n, points)
        Net benefits.
    skipped : tuple of Skipped
        Metrics without an interval, and why.
    """

    n: int
    values: dict[Key, Vector] = field(default_factory=dict)
    along: dict[Key, Vector] = field(default_factory=dict)
    squares: dict[Key, Vector] = field(default_factory=dict)
    benefit: dict[float, Matrix] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()

    def interval(self, key: Key, value: float, level: float) -> Interval:
        """Return the interval by the spread of the draws, or that of a distance; NaN where nothing was drawn."""
        if key in self.squares:
            found = self.distance(key, value, level)
            return found.lower, found.upper
        return resampled_interval(key[0], value, self.values.get(key, np.empty(0)), level)

    def distance(self, key: Key, value: float, level: float) -> Distance:
        """Return what is known of a squared distance."""
        return true_square(value, self.along[key], self.squares[key], level)


def bootstrap(
    rows: Rows,
    found: Estimates,
    *,
    n_bootstrap: int,
    seed: Seed,
    thresholds: Vector | None = None,
    most_rows: int | None = None,
    progress: Callable[[int], None] = lambda rows_done: None,
) -> Draws:
    """Draw rows with replacement and compute what was found on the rows themselves.

    Parameters
    ----------
    rows, found
        The rows, and the values whose intervals are wanted.
    n_bootstrap, seed
        Resamples and their seed.
    thresholds : array, optional
        Of the decision curves.
    most_rows : int, optional
        If there are more rows, a random part of this size is resampled, and the draws are scaled to all rows.
    progress : callable
        Called with the number of rows drawn since the last call.
    """
    if n_bootstrap == 0:
        return Draws(0)
    if most_rows is None or rows.n <= most_rows:
        return _resampled(rows, found, n_bootstrap, seed, thresholds, progress)
    chosen = _part(rows, most_rows, seed)
    part = rows.take(chosen)
    draws = _resampled(part, found, n_bootstrap, seed, thresholds, progress, chosen)
    own = _resampled(part, found, 1, None, thresholds, lambda rows_done: None, chosen)
    benefit = {} if thresholds is None else {h: net_benefits(rows, h, thresholds) for h in draws.benefit}
    return _scaled(draws, own, found, benefit, math.sqrt(part.n / rows.n))


def _resampled(
    rows: Rows,
    found: Estimates,
    n_bootstrap: int,
    seed: Seed | None,
    thresholds: Vector | None,
    progress: Callable[[int], None],
    chosen: BoolArray | None = None,
) -> Draws:
    """Draw and compute; without a seed every row is drawn once. `chosen` are these rows among those of `found`."""
    line = Timeline(rows.time, rows.event, rows.censoring)
    at = {h: (one.values, one.smooth) for h, one in found.at.items()}
    if chosen is not None:
        at = {
            h: (v[chosen], smooth and smooth_calibration(rows.risk[h], v[chosen], rows.clusters, rows.weights))
            for h, (v, smooth) in at.items()
        }
    metrics = ResampledMetrics(line, rows, found, at, thresholds)
    size = max(_FEWEST_LINES, min(_MOST_LINES, _BLOCK // rows.n))
    blocks = [range(k, min(k + size, n_bootstrap)) for k in range(0, n_bootstrap, size)]
    parts: list[Drawn] = []
    with Workers() as workers:
        for k in range(0, len(blocks), workers.count):
            together = blocks[k : k + workers.count]
            parts += workers.map(
                lambda block: metrics.draw(Block(line, _counts(rows, block, seed), rows.weights)), together
            )
            progress(rows.n * sum(map(len, together)))
        antolini, skipped = _antolini(rows, found, n_bootstrap, seed, workers)
    drawn = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    kinds: dict[str, dict[Key, Matrix]] = {"value": {}, "along": {}, "square": {}, "benefit": {}}
    for (kind, key), array in drawn.items():
        kinds[kind][key] = array
    benefit = {float(key[1] or 0): array for key, array in kinds["benefit"].items()}
    return Draws(n_bootstrap, kinds["value"] | antolini, kinds["along"], kinds["square"], benefit, skipped)


def _part(rows: Rows, size: int, seed: Seed) -> BoolArray:
    """Choose rows at random, by their places in the sample: the same for every model. Marked in time order.

    Whole clusters are chosen where there are some, at least two and as many as have no more than `size` rows.
    """
    # A stream of its own: those of the resamples end in their number.
    rng = np.random.default_rng([*_numbers(seed), 0, 0])
    if rows.clusters is not None:
        shuffled = rng.permutation(rows.clusters.count)
        together = np.cumsum(rows.clusters.sums(np.ones(rows.n))[shuffled])
        kept = np.zeros(rows.clusters.count, dtype=np.bool_)
        kept[shuffled[: max(2, np.count_nonzero(together <= size))]] = True
        return np.asarray(kept[rows.clusters.codes])
    chosen = np.zeros(rows.n, dtype=np.bool_)
    chosen[rng.choice(rows.n, size, replace=False)] = True
    return chosen[rows.order]


def net_benefits(rows: Rows, horizon: float, thresholds: Vector) -> Vector:
    """Return the net benefit of all rows at every threshold."""
    if rows.weights is None:
        return decision_curve(rows.risk[horizon], thresholds, at=horizon, time=rows.time, event=rows.event).model
    line = Timeline(rows.time, rows.event, rows.censoring)
    counted = CountedBenefit(line, rows.risk[horizon], thresholds, horizon)
    return np.asarray(counted.values(Block(line, np.ones((1, rows.n)), rows.weights))[0])


def _scaled(draws: Draws, own: Draws, found: Estimates, benefit: Mapping[float, Vector], scale: float) -> Draws:
    """Scale what the resamples of a part differ by from that part, and put it around the values of all rows."""
    values = {
        key: found.values[key] + scale * (drawn - own.values[key][0])
        for key, drawn in draws.values.items()
        if key in found.values
    }
    return Draws(
        draws.n,
        values,
        {key: scale * drawn for key, drawn in draws.along.items()},
        {key: scale**2 * drawn for key, drawn in draws.squares.items()},
        {h: benefit[h] + scale * (drawn - own.benefit[h][0]) for h, drawn in draws.benefit.items()},
        draws.skipped,
    )


def _numbers(seed: Seed) -> tuple[int, ...]:
    return (seed,) if isinstance(seed, int) else seed


def _counts(rows: Rows, block: range, seed: Seed | None) -> Matrix:
    """How often each row is drawn, in time order; the draws are of the sample's own order, the same for every model."""
    if seed is None:
        return np.ones((len(block), rows.n))
    counts = np.empty((len(block), rows.n))
    for line, number in enumerate(block):
        rng = np.random.default_rng([*_numbers(seed), number])
        if rows.clusters is None:
            counts[line] = np.bincount(rng.integers(rows.n, size=rows.n), minlength=rows.n)[rows.order]
        else:
            whole = rows.clusters.count
            counts[line] = np.bincount(rng.integers(whole, size=whole), minlength=whole)[rows.clusters.codes]
    return counts


def _antolini(
    rows: Rows, found: Estimates, n_bootstrap: int, seed: Seed | None, workers: Workers
) -> tuple[dict[Key, Vector], tuple[Skipped, ...]]:
    """Antolini's concordance, whose pairs are compared once for many resamples."""
    key: Key = ("antolini", None)
    survival, times = rows.survival, rows.times
    if key not in found.values or survival is None or times is None:
        return {}, ()
    if n_pairs(rows) * n_bootstrap > _MOST_ANTOLINI:
        reason = f"resampling it takes one step for each of {n_pairs(rows):,} pairs and {n_bootstrap:,} resamples"
        return {}, (Skipped("antolini", reason, interval=True),)
    blocks = [range(k, min(k + _ANTOLINI_LINES, n_bootstrap)) for k in range(0, n_bootstrap, _ANTOLINI_LINES)]

    def draw(block: range) -> Vector:
        counts = _counts(rows, block, seed)
        counts = counts.astype(np.float32) if rows.weights is None else counts * rows.weights
        return antolini_indices(rows.time, rows.event, survival, times, rows.interpolation, counts)

    return {key: np.concatenate(workers.map(draw, blocks))}, ()
