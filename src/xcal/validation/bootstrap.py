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
from xcal.metrics.inputs import Vector
from xcal.metrics.intervals import distance_interval, percentile_interval
from xcal.metrics.net_benefit import decision_curve
from xcal.validation.counted.block import Block, Timeline
from xcal.validation.counted.pairs import antolini_indices
from xcal.validation.estimates import Estimates, Interval, Key, estimate, n_pairs
from xcal.validation.resampled import Drawn, ResampledMetrics
from xcal.validation.rows import Rows, read_rows
from xcal.validation.sample import Sample

Matrix = npt.NDArray[np.float64]
Seed = int | tuple[int, ...]

# Counts of one block: a few arrays of this size fit the processor's cache, and with very many rows the memory.
_BLOCK = 1 << 18
_MOST_LINES = 64
_FEWEST_LINES = 2
# Resamples for which Antolini's pairs are compared at once, and the pairs times resamples up to which they are.
_ANTOLINI_LINES = 128
_MOST_ANTOLINI = 10**12
# Values that are squares of a length; see `metrics.intervals.Distance`.
_SQUARED = ("d_calibration", "d_calibration_km", "d_calibration_ipcw", "km_calibration")


@dataclass(frozen=True, eq=False)
class Draws:
    """What the resamples gave.

    Attributes
    ----------
    n : int
        Resamples.
    values : mapping of (metric, horizon) to array of shape (n,)
        The metric on each resample; NaN where it is not determined.
    lengths : mapping of (metric, horizon) to array of shape (n,)
        For metrics that are zero at best, how far the deviations of a resample are from those of the rows.
    smooth, benefit : mapping of horizon to array of shape (n, points)
        Smooth calibration curves and net benefits.
    skipped : mapping of str to str
        Metrics without an interval, and why.
    """

    n: int
    values: dict[Key, Vector] = field(default_factory=dict)
    lengths: dict[Key, Vector] = field(default_factory=dict)
    smooth: dict[float, Matrix] = field(default_factory=dict)
    benefit: dict[float, Matrix] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)

    def interval(self, key: Key, value: float, level: float) -> Interval:
        """Percentiles, or for a distance the rule of `metrics.intervals.Distance`; NaN where nothing was drawn."""
        if key in self.lengths:
            return distance_interval(value, self.lengths[key].tolist(), level, key[0] in _SQUARED)
        return percentile_interval(self.values[key].tolist() if key in self.values else [], level)


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
    part = rows.take(_part(rows, most_rows, seed))
    draws = _resampled(part, found, n_bootstrap, seed, thresholds, progress)
    own = _resampled(part, found, 1, None, thresholds, lambda rows_done: None)
    benefit = {} if thresholds is None else {h: _benefit(rows, h, thresholds) for h in draws.benefit}
    return _scaled(draws, own, found, benefit, math.sqrt(part.n / rows.n))


def _resampled(
    rows: Rows,
    found: Estimates,
    n_bootstrap: int,
    seed: Seed | None,
    thresholds: Vector | None,
    progress: Callable[[int], None],
) -> Draws:
    """Draw and compute; without a seed every row is drawn once."""
    line = Timeline(rows.time, rows.event, rows.censoring)
    metrics = ResampledMetrics(line, rows, found, thresholds)
    size = max(_FEWEST_LINES, min(_MOST_LINES, _BLOCK // rows.n))
    blocks = [range(k, min(k + size, n_bootstrap)) for k in range(0, n_bootstrap, size)]
    parts: list[Drawn] = []
    with Workers() as workers:
        for k in range(0, len(blocks), workers.count):
            together = blocks[k : k + workers.count]
            parts += workers.map(lambda block: metrics.draw(Block(line, _counts(rows, block, seed))), together)
            progress(rows.n * sum(map(len, together)))
        antolini, skipped = _antolini(rows, found, n_bootstrap, seed, workers)
    drawn = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
    return _as_draws(n_bootstrap, drawn, antolini, skipped)


def _as_draws(n: int, drawn: Drawn, antolini: dict[Key, Vector], skipped: dict[str, str]) -> Draws:
    kinds: dict[str, dict[Key, Matrix]] = {"value": {}, "length": {}, "smooth": {}, "benefit": {}}
    for (kind, key), array in drawn.items():
        kinds[kind][key] = array
    smooth, benefit = ({float(key[1] or 0): array for key, array in kinds[k].items()} for k in ("smooth", "benefit"))
    return Draws(n, kinds["value"] | antolini, kinds["length"], smooth, benefit, skipped)


def paired_draws(
    sample: Sample, *, n_bootstrap: int, seed: int, progress: Callable[[int], None] = lambda rows_done: None
) -> dict[Key, Vector]:
    """Every metric that is no p-value on the same resamples for every model of the same rows.

    The difference of two models' draws, resample by resample, is that of the paired bootstrap. Metrics that are zero
    at best are those of the resample, which lie above that of the rows for both models alike.
    """
    rows, _ = read_rows(sample)
    found = estimate(rows, level=0.95, seed=seed)
    return bootstrap(rows, found, n_bootstrap=n_bootstrap, seed=seed, progress=progress).values


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


def _benefit(rows: Rows, horizon: float, thresholds: Vector) -> Vector:
    return decision_curve(rows.risk[horizon], thresholds, at=horizon, time=rows.time, event=rows.event).model


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
        {key: scale * drawn for key, drawn in draws.lengths.items()},
        {h: found.smooth[h][1] + scale * (drawn - own.smooth[h][0]) for h, drawn in draws.smooth.items()},
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
) -> tuple[dict[Key, Vector], dict[str, str]]:
    """Antolini's concordance, whose pairs are compared once for many resamples."""
    key: Key = ("antolini", None)
    survival, times = rows.survival, rows.times
    if key not in found.values or survival is None or times is None:
        return {}, {}
    if n_pairs(rows) * n_bootstrap > _MOST_ANTOLINI:
        reason = f"resampling it takes one step for each of {n_pairs(rows):,} pairs and {n_bootstrap:,} resamples"
        return {}, {"interval of antolini": reason}
    blocks = [range(k, min(k + _ANTOLINI_LINES, n_bootstrap)) for k in range(0, n_bootstrap, _ANTOLINI_LINES)]

    def draw(block: range) -> Vector:
        counts = _counts(rows, block, seed).astype(np.float32)
        return antolini_indices(rows.time, rows.event, survival, times, rows.interpolation, counts)

    return {key: np.concatenate(workers.map(draw, blocks))}, {}
