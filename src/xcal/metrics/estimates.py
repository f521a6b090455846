"""Every metric of rows, by the table of metrics, and of resamples of the rows."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xcal._checks import BoolArray
from xcal._devices import Workers
from xcal.metrics.inputs import Matrix, Vector
from xcal.metrics.intervals import Distance, resampled_interval, true_square, unit
from xcal.metrics.net_benefit import CountedBenefit, benefit_of_values
from xcal.metrics.of_rows import Asked
from xcal.metrics.resamples import Block, Draw, Seed, drawn_by_seed, numbers_of, resampled
from xcal.metrics.rows import Rows
from xcal.metrics.spec import METRICS, VALUES, Interval, Key, Metric, Skipped, numbers

UNKNOWN: Interval = (float("nan"), float("nan"))

# --- Values of rows.


@dataclass(frozen=True, eq=False)
class Estimates:
    """Values, the intervals that have a formula, and what was skipped and why."""

    values: dict[Key, float] = field(default_factory=dict)
    intervals: dict[Key, Interval] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)

    def put(self, key: Key, value: float, interval: Interval = UNKNOWN) -> None:
        """Add a value; one that the rows do not determine is named as skipped instead."""
        if math.isnan(value):
            self.skipped.append(Skipped(key.metric, "these rows do not determine it", key.horizon))
            return
        self.values[key] = float(value)
        if not math.isnan(interval[0]):
            self.intervals[key] = interval


def estimates(rows: Rows, names: Iterable[str], asked: Asked) -> Estimates:
    """Compute metrics of rows, by their names in `METRICS`."""
    found = Estimates()
    for metric in map(METRICS.__getitem__, names):
        why = metric.lacks(rows)
        if why:
            found.skipped.append(Skipped(metric.gives[0], why))
        if why != "":
            continue
        for horizon in metric.horizons(rows):
            told = metric.compute(rows, horizon, asked)
            if isinstance(told, str):
                found.skipped.append(Skipped(metric.gives[0], told, horizon))
                continue
            for name, number in numbers(told):
                found.put(Key(name, horizon), number.value, number[1:])
    return found


# --- The same of resamples.
# Of very many rows a random part is resampled, and what the resamples differ by is scaled to all rows: deviations of
# an average over m rows are the square root of n / m times those over n. The part is one of whole clusters.


@dataclass(frozen=True, eq=False)
class Draws:
    """What the resamples gave, one line for each.

    Attributes
    ----------
    n : int
        Resamples.
    values : mapping of Key to array of shape (n,)
        The metric on each resample; NaN where it is not determined.
    along, squares : mapping of Key to array of shape (n,)
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
        return resampled_interval(value, self.values.get(key, np.empty(0)), level, VALUES[key.metric].scale)

    def distance(self, key: Key, value: float, level: float) -> Distance:
        """Return what is known of a squared distance."""
        return true_square(value, self.along[key], self.squares[key], level)


# What was drawn: "values" of a metric, "along" and "squares" of the noise of a squared distance, or "benefit".
Drawn = Mapping[tuple[str, Any], Matrix]
Drawer = Callable[[Block], Drawn]


def bootstrap(
    rows: Rows,
    found: Estimates,
    n_bootstrap: int,
    seed: Seed,
    *,
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
        draw = drawn_by_seed(rows.order, rows.clusters, seed)
        return resamples(rows, found, n_bootstrap, draw, thresholds=thresholds, progress=progress)
    part = rows.part(_part(rows, most_rows, seed))
    draw = drawn_by_seed(part.order, part.clusters, seed)
    draws = resamples(part, found, n_bootstrap, draw, thresholds=thresholds, progress=progress)
    own = resamples(part, found, 1, lambda number: np.ones(part.n), thresholds=thresholds)
    benefit = {} if thresholds is None else {h: net_benefits(rows, h, thresholds) for h in draws.benefit}
    return _scaled(draws, own, found, benefit, math.sqrt(part.n / rows.n))


def resamples(
    rows: Rows,
    found: Estimates,
    n_bootstrap: int,
    draw: Draw,
    *,
    thresholds: Vector | None = None,
    progress: Callable[[int], None] = lambda rows_done: None,
    where: Sequence[str] = ("everywhere",),
) -> Draws:
    """Compute what was found of resamples that are drawn by their numbers."""
    drawers: dict[int | None, list[Drawer]] = {None: []}
    skipped = []
    for metric in METRICS.values():
        for horizon in metric.horizons(rows) if metric.resampled in where else ():
            wanted = {name: Key(name, horizon) for name in metric.gives if Key(name, horizon) in found.values}
            if not wanted:
                continue
            if metric.too_long is not None and (why := metric.too_long(rows, n_bootstrap)):
                skipped.append(Skipped(metric.gives[0], why, interval=True))
                continue
            drawers.setdefault(metric.lines, []).append(_drawer(metric, rows, horizon, wanted))
    if thresholds is not None and thresholds.size:
        drawers[None] += [_of_benefit(rows, h, thresholds) for h in rows.risk if rows.at(h).is_followed]
    drawn: dict[tuple[str, Any], Matrix] = {}
    with Workers() as workers:
        for lines, own in drawers.items():

            def make(block: Block, own: Sequence[Drawer] = own) -> Drawn:
                return {key: array for drawer in own for key, array in drawer(block).items()}

            given = (rows.line, rows.weights, n_bootstrap, draw, make, workers)
            drawn |= resampled(*given, lines=lines, progress=progress if lines is None else lambda rows_done: None)
    kinds: dict[str, dict[Any, Matrix]] = {"values": {}, "along": {}, "squares": {}, "benefit": {}}
    for (kind, key), array in drawn.items():
        kinds[kind][key] = array
    return Draws(n_bootstrap, **kinds, skipped=tuple(skipped))


def _drawer(metric: Metric, rows: Rows, horizon: float | None, wanted: Mapping[str, Key]) -> Drawer:
    """Work out everything that does not depend on the resample, and return what does the rest."""
    if metric.deviations is not None:
        deviations, key = metric.deviations(rows), wanted[metric.gives[0]]
        own = deviations(Block.once_each(rows.line, rows.weights))[0]
        along = unit(own)

        def squared(block: Block) -> Drawn:
            found = deviations(block)
            noise = found - own
            kinds = {"values": np.square(found).sum(axis=1), "along": noise @ along}
            return {(kind, key): one for kind, one in (kinds | {"squares": np.square(noise).sum(axis=1)}).items()}

        return squared
    counted = _again(metric, rows, horizon) if metric.counted is None else metric.counted(rows, horizon)
    return lambda block: {("values", wanted[name]): one for name, one in counted(block).items() if name in wanted}


def _again(metric: Metric, rows: Rows, horizon: float | None) -> Callable[[Block], Mapping[str, Vector]]:
    """Compute a metric again of the rows of each resample, where there is no quicker way."""

    def of(counts: Vector) -> dict[str, float]:
        own = rows.take(np.repeat(np.arange(rows.n), counts.astype(np.int64)))
        found = metric.compute(own, horizon, Asked())
        return {} if isinstance(found, str) else {name: number.value for name, number in numbers(found)}

    def draw(block: Block) -> Mapping[str, Vector]:
        lines = [of(counts) for counts in block.drawn]
        return {name: np.array([line.get(name, np.nan) for line in lines]) for name in metric.gives}

    return draw


def _of_benefit(rows: Rows, horizon: float, thresholds: Vector) -> Drawer:
    if rows.by_values:
        at = rows.at(horizon)
        given = at.risk, at.values
        return lambda block: {("benefit", horizon): benefit_of_values(*given, at.own(block).counts, thresholds)}
    counted = CountedBenefit(rows.line, rows.risk[horizon], thresholds, horizon)
    return lambda block: {("benefit", horizon): counted.values(block)}


def net_benefits(rows: Rows, horizon: float, thresholds: Vector) -> Vector:
    """Return the net benefit of rows at every threshold."""
    ones = Block.once_each(rows.line, rows.weights)
    return np.asarray(_of_benefit(rows, horizon, thresholds)(ones)["benefit", horizon][0])


def _part(rows: Rows, size: int, seed: Seed) -> BoolArray:
    """Choose rows at random, by their places in the sample: the same for every model. Marked in time order.

    Whole clusters are chosen where there are some, at least two and as many as have no more than `size` rows.
    """
    # A stream of its own: those of the resamples end in their number.
    rng = np.random.default_rng([*numbers_of(seed), 0, 0])
    if rows.clusters is not None:
        shuffled = rng.permutation(rows.clusters.count)
        together = np.cumsum(rows.clusters.sums(np.ones(rows.n))[shuffled])
        kept = np.zeros(rows.clusters.count, dtype=np.bool_)
        kept[shuffled[: max(2, np.count_nonzero(together <= size))]] = True
        return np.asarray(kept[rows.clusters.codes])
    chosen = np.zeros(rows.n, dtype=np.bool_)
    chosen[rng.choice(rows.n, size, replace=False)] = True
    return chosen[rows.order]


def _scaled(draws: Draws, own: Draws, found: Estimates, benefit: Mapping[float, Vector], scale: float) -> Draws:
    """Scale what the resamples of a part differ by from that part, and put it around the values of all rows."""
    return Draws(
        draws.n,
        {key: found.values[key] + scale * (drawn - own.values[key][0]) for key, drawn in draws.values.items()},
        {key: scale * drawn for key, drawn in draws.along.items()},
        {key: scale**2 * drawn for key, drawn in draws.squares.items()},
        {h: benefit[h] + scale * (drawn - own.benefit[h][0]) for h, drawn in draws.benefit.items()},
        draws.skipped,
    )
