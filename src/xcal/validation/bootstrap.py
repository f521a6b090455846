"""Resamples of the rows: every metric on rows drawn with replacement, without sorting or copying the curves."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from xcal._checks import BoolArray
from xcal._devices import Workers
from xcal.metrics.auc import CountedAUC, brier_scores, integrated, null_brier_scores
from xcal.metrics.concordance import antolini_indices, uno_weights
from xcal.metrics.ici import SmoothCalibration, smooth_calibration
from xcal.metrics.inputs import Vector
from xcal.metrics.intervals import Distance, resampled_interval, true_square, unit
from xcal.metrics.net_benefit import CountedBenefit, CountedValues, decision_curve
from xcal.metrics.observed_expected import slope_and_intercept
from xcal.metrics.pairs import CountedPairs
from xcal.metrics.pit import CountedCurve, CountedRedistribution, bin_shares, uniform_masses
from xcal.metrics.spec import VALUES
from xcal.metrics.times import Block, Timeline
from xcal.validation.at_horizon import observed_values
from xcal.validation.estimates import Estimates, Interval, Key, n_pairs, null_risk
from xcal.validation.result import Skipped
from xcal.validation.rows import Matrix, Rows

# What was drawn: "value" of a metric, "along" and "square" of the noise of a squared distance, or "benefit"; one line
# per resample.
Drawn = dict[tuple[str, Key], Matrix]


class ResampledMetrics:
    """Everything that does not depend on the resample, worked out once; `draw` does the rest.

    Parameters
    ----------
    line : Timeline
        The rows in time order.
    rows : Rows
        The same, with their predictions.
    found : Estimates
        What was found on all rows: what is not there is not resampled.
    at : mapping of float to CalibrationAt
        Pseudo-values and calibration of these rows at every horizon.
    thresholds : array or None
        Of the decision curves.
    """

    def __init__(
        self,
        line: Timeline,
        rows: Rows,
        found: Estimates,
        at: Mapping[float, tuple[Vector, SmoothCalibration | None]],
        thresholds: Vector | None,
    ) -> None:
        self._rows, self._found, self._line, self._at = rows, found, line, at
        self._pairs = None
        if self._wanted("harrell") and rows.score is not None:
            self._pairs = CountedPairs(rows.outcome, rows.score)
        self._corrected = {}
        # Rows that come under observation after a horizon say nothing about it.
        self._at_horizon = {h: rows.entered_by(h) for h in at}
        self._known = {h: None if rows.entry is None else np.flatnonzero(rows.entry < h) for h in at}
        if rows.by_values:
            self._corrected = {
                h: CountedValues(own.risk[h], at[h][0], null_risk(own, h)) for h, own in self._at_horizon.items()
            }
        self._auc = {
            h: CountedAUC(line, rows.risk[h], h) for h in at if self._wanted("auc", h) and h not in self._corrected
        }
        # To first order a resample moves a regression by the influence of the rows that were drawn more or less often.
        self._slope = {
            h: slope_and_intercept(self._at_horizon[h].risk[h], v, rows.weights)
            for h, (v, smooth) in at.items()
            if smooth is not None
        }
        self._thresholds = None if thresholds is None or not thresholds.size else thresholds
        self._benefit = {}
        if self._thresholds is not None:
            self._benefit = {h: CountedBenefit(line, rows.risk[h], self._thresholds, h) for h in at}
        self._prepare_masses()
        # The same cores on the rows themselves: what the deviations of a resample are compared with.
        own = Block(line, np.ones((1, rows.n)), rows.weights)
        self._own_masses = {name: masses[0] for name, masses in self._masses(own).items()}
        self._own_curve = None if self._curve is None else self._curve.deviations(own)[0]

    def _wanted(self, metric: str, horizon: float | None = None) -> bool:
        return (metric, horizon) in self._found.values

    def _prepare_masses(self) -> None:
        rows = self._rows
        self._bins = self._km = self._ipcw = self._curve = None
        if rows.cdf is not None:
            self._bins = bin_shares(rows.cdf, rows.cdf_event, entry=rows.cdf_entry, lower=rows.cdf_lower)
            if not rows.seen_in_part:
                self._km = CountedRedistribution(self._bins, rows.cdf_event, rows.cdf)
                self._ipcw = CountedRedistribution(self._bins, rows.cdf_event, rows.time)
        if rows.survival is not None and rows.times is not None and self._wanted("km_calibration"):
            self._curve = CountedCurve(self._line, rows.survival, rows.times, rows.interpolation)

    def draw(self, block: Block) -> Drawn:
        """Every metric on the resamples of a block."""
        drawn: Drawn = {}
        self._draw_pairs(block, drawn)
        for horizon, (values, smooth) in self._at.items():
            known = self._known[horizon]
            own = block if known is None else block.of_rows(known)
            self._draw_calibration(own, horizon, values, smooth, drawn)
            self._draw_accuracy(own, horizon, drawn)
        self._draw_overall(block, drawn)
        self._draw_masses(block, drawn)
        return drawn

    def _draw_pairs(self, block: Block, drawn: Drawn) -> None:
        if self._pairs is not None:
            weights = [np.ones((1, self._rows.n)), *([uno_weights(block)] if self._wanted("uno") else [])]
            names = [("harrell", None), ("uno", None)]
            drawn |= {
                ("value", name): v for name, v in zip(names, self._pairs.indices(block.counts, weights), strict=False)
            }

    def _draw_calibration(
        self, block: Block, horizon: float, values: Vector, smooth: SmoothCalibration | None, drawn: Drawn
    ) -> None:
        risk = self._at_horizon[horizon].risk[horizon]
        expected, observed = (block.counts @ one / block.total for one in (risk, values))
        drawn["value", ("mean_risk", horizon)], drawn["value", ("observed_risk", horizon)] = expected, observed
        ratio = np.divide(observed, expected, out=np.full(expected.size, np.nan), where=expected > 0)
        drawn["value", ("oe", horizon)] = ratio
        if smooth is None:
            return
        for name, (value, influence) in zip(("slope", "intercept"), self._slope[horizon], strict=True):
            if self._wanted(name, horizon):
                drawn["value", (name, horizon)] = value + block.drawn @ influence
        if self._wanted("ici", horizon):
            around = values - risk - smooth.lines.at_rows(smooth.deviations)
            curves = smooth.deviations + smooth.lines.resampled(around, block.drawn)
            drawn["value", ("ici", horizon)] = np.abs(curves) @ smooth.lines.share

    def _draw_accuracy(self, block: Block, horizon: float, drawn: Drawn) -> None:
        if horizon in self._corrected:
            for name, values in self._corrected[horizon].accuracy(block.counts).items():
                drawn["value", (name, horizon)] = values
            if self._thresholds is not None:
                own = self._corrected[horizon].benefit(block.counts, self._thresholds)
                drawn["benefit", ("net_benefit", horizon)] = own
            return
        if horizon in self._auc:
            drawn["value", ("auc", horizon)] = self._auc[horizon].values(block)
        if horizon in self._benefit:
            drawn["benefit", ("net_benefit", horizon)] = self._benefit[horizon].values(block)
        if self._wanted("brier", horizon):
            survival = 1 - self._rows.risk[horizon][:, None]
            score = brier_scores(block, survival, np.array([horizon]))[:, 0]
            null = null_brier_scores(block, horizon)
            drawn["value", ("brier", horizon)] = score
            ratio = np.divide(score, null, out=np.full(score.size, np.nan), where=null > 0)
            drawn["value", ("ipa", horizon)] = 1 - ratio

    def _draw_overall(self, block: Block, drawn: Drawn) -> None:
        rows = self._rows
        if self._wanted("nll") and rows.nll is not None:
            finite = bool(np.isfinite(rows.nll).all())
            mean = block.counts @ rows.nll / block.total if finite else np.full(block.total.size, np.nan)
            drawn["value", ("nll", None)] = mean
        if self._wanted("ibs") and rows.survival is not None and rows.times is not None:
            scores = brier_scores(block, rows.survival, rows.times)
            drawn["value", ("ibs", None)] = integrated(scores, rows.times)

    def _masses(self, block: Block) -> dict[str, Matrix]:
        if self._bins is None:
            return {}
        masses = {"d_calibration": uniform_masses(block, self._bins)}
        others = {"d_calibration_km": self._km, "d_calibration_ipcw": self._ipcw}
        return masses | {name: one.masses(block) for name, one in others.items() if one is not None}

    def _draw_masses(self, block: Block, drawn: Drawn) -> None:
        for name, masses in self._masses(block).items():
            assert self._bins is not None
            own = self._own_masses[name]
            self._draw_square((name, None), masses - self._bins.widths, own - self._bins.widths, drawn)
        if self._curve is not None and self._own_curve is not None:
            self._draw_square(("km_calibration", None), self._curve.deviations(block), self._own_curve, drawn)

    def _draw_square(self, key: Key, deviations: Matrix, own: Vector, drawn: Drawn) -> None:
        """Put the squared length of the deviations, and of their noise with its part along those of the rows."""
        noise = deviations - own
        drawn["value", key] = np.square(deviations).sum(axis=1)
        drawn["along", key] = noise @ unit(own)
        drawn["square", key] = np.square(noise).sum(axis=1)


# --- Resamples of the rows: every metric on rows drawn with replacement, without sorting or copying the curves.
# A resample is how often each row was drawn; `xcal.metrics.times` computes the metrics from that. Resamples are
# worked on in blocks, by as many threads as are of use. Each resample has a random stream of its own, so that the
# result depends on the seed alone, and the same seed draws the same rows for another model.
#
# Of very many rows a random part is resampled, and what the resamples differ by is scaled to all rows: deviations of
# an average over m rows are the square root of n / m times those over n.
#
# Of rows that depend on each other whole clusters are drawn, and the random part is one of whole clusters.


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
        return resampled_interval(value, self.values.get(key, np.empty(0)), level, VALUES[key[0]].scale)

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
    known = {h: chosen if rows.entry is None else chosen[rows.entry < h] for h in found.at}
    draws = _resampled(part, found, n_bootstrap, seed, thresholds, progress, known)
    own = _resampled(part, found, 1, None, thresholds, lambda rows_done: None, known)
    benefit = {} if thresholds is None else {h: net_benefits(rows, h, thresholds) for h in draws.benefit}
    return _scaled(draws, own, found, benefit, math.sqrt(part.n / rows.n))


def _resampled(
    rows: Rows,
    found: Estimates,
    n_bootstrap: int,
    seed: Seed | None,
    thresholds: Vector | None,
    progress: Callable[[int], None],
    chosen: Mapping[float, BoolArray] | None = None,
) -> Draws:
    """Draw and compute; without a seed every row is drawn once.

    `chosen` are these rows among those of `found`, for each horizon among those that had entered.
    """
    line = Timeline(rows.time, rows.event, rows.censoring)
    at = {h: (one.values, one.smooth) for h, one in found.at.items()}
    if chosen is not None:
        own = {h: rows.entered_by(h) for h in at}
        at = {
            h: (
                v[chosen[h]],
                smooth and smooth_calibration(own[h].risk[h], v[chosen[h]], own[h].clusters, own[h].weights),
            )
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
    if rows.seen_in_part:
        own = rows.entered_by(horizon)
        values = CountedValues(own.risk[horizon], observed_values(own, horizon, rows.seen[0]))
        return np.asarray(values.benefit(np.ones((1, own.n)), thresholds)[0])
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
        return antolini_indices(rows.outcome, survival, times, rows.interpolation, counts)

    return {key: np.concatenate(workers.map(draw, blocks))}, ()
