"""All metrics of one set of rows on blocks of resamples."""

import numpy as np
import numpy.typing as npt

from xcal.metrics.cox import RiskSets
from xcal.metrics.inputs import Vector
from xcal.metrics.pit_histogram import bin_shares
from xcal.metrics.registry import ERRORS
from xcal.validation.counted.benefit import CountedBenefit
from xcal.validation.counted.block import Block, Timeline
from xcal.validation.counted.errors import CountedAUC, brier_scores, integrated, null_brier_scores
from xcal.validation.counted.masses import CountedCurve, CountedRedistribution, uniform_masses
from xcal.validation.counted.pairs import CountedPairs, uno_weights
from xcal.validation.counted.slope import CountedSlope
from xcal.validation.counted.smooth import CountedSmooth
from xcal.validation.estimates import Estimates, Key, slope_horizon
from xcal.validation.rows import Rows

Matrix = npt.NDArray[np.float64]
# What was drawn: "value" or "length" of a metric, "smooth" curve or "benefit"; one line per resample.
Drawn = dict[tuple[str, Key], Matrix]


class ResampledMetrics:
    """Everything that does not depend on the resample, worked out once; `draw` does the rest."""

    def __init__(self, line: Timeline, rows: Rows, found: Estimates, thresholds: Vector | None) -> None:
        self._rows, self._found, self._line = rows, found, line
        self._pairs = None
        if self._wanted("harrell") and rows.score is not None:
            self._pairs = CountedPairs(rows.time, rows.event, rows.score)
        self._horizons = [h for h in rows.risk if h <= rows.time[-1]]
        self._auc = {h: CountedAUC(line, rows.risk[h], h) for h in self._horizons if self._wanted("auc", h)}
        sets = RiskSets(rows.time, rows.event)
        self._smooth = {
            h: CountedSmooth(line, sets, rows.risk[h], found.smooth[h][0], h)
            for h in self._horizons
            if self._wanted("ici", h)
        }
        self._slope, at = None, slope_horizon(rows)
        if rows.clusters is not None and at is not None:
            self._slope = CountedSlope(line, rows.risk[at], at)
        self._benefit = {}
        if thresholds is not None and thresholds.size:
            self._benefit = {h: CountedBenefit(line, rows.risk[h], thresholds, h) for h in self._horizons}
        self._prepare_masses()
        # The same cores on the rows themselves: what the deviations of a resample are compared with.
        own = Block(line, np.ones((1, rows.n)))
        self._own_smooth = {
            h: core.curve(own.counts[0], float(own.survival_at(h)[0])) for h, core in self._smooth.items()
        }
        self._own_masses = {name: masses[0] for name, masses in self._masses(own).items()}
        self._own_curve = None if self._curve is None else self._curve.deviations(own)[0]

    def _wanted(self, metric: str, horizon: float | None = None) -> bool:
        return (metric, horizon) in self._found.values

    def _prepare_masses(self) -> None:
        rows = self._rows
        self._bins = self._km = self._ipcw = self._curve = None
        if rows.cdf is not None:
            self._bins = bin_shares(rows.cdf, rows.cdf_event)
            self._km = CountedRedistribution(self._bins, rows.cdf_event, rows.cdf)
            self._ipcw = CountedRedistribution(self._bins, rows.cdf_event, rows.time)
        if rows.survival is not None and rows.times is not None and self._wanted("km_calibration"):
            self._curve = CountedCurve(self._line, rows.survival, rows.times, rows.interpolation)

    def draw(self, block: Block) -> Drawn:
        """Every metric on the resamples of a block."""
        drawn: Drawn = {}
        self._draw_pairs(block, drawn)
        self._draw_risks(block, drawn)
        self._draw_errors(block, drawn)
        self._draw_smooth(block, drawn)
        self._draw_masses(block, drawn)
        for horizon, core in self._benefit.items():
            drawn["benefit", ("net_benefit", horizon)] = core.values(block)
        return drawn

    def _draw_pairs(self, block: Block, drawn: Drawn) -> None:
        if self._pairs is not None:
            harrell, uno = self._pairs.indices(block, [np.ones((1, self._rows.n)), uno_weights(block)])
            drawn["value", ("harrell", None)], drawn["value", ("uno", None)] = harrell, uno
        for horizon, core in self._auc.items():
            drawn["value", ("auc", horizon)] = core.values(block)

    def _draw_risks(self, block: Block, drawn: Drawn) -> None:
        for horizon in self._horizons:
            expected = block.counts @ self._rows.risk[horizon] / block.total
            observed = np.where(horizon <= block.last_time, 1 - block.survival_at(horizon), np.nan)
            drawn["value", ("mean_risk", horizon)], drawn["value", ("observed_risk", horizon)] = expected, observed
            ratio = np.divide(observed, expected, out=np.full(expected.size, np.nan), where=expected > 0)
            drawn["value", ("oe", horizon)] = ratio
        if self._slope is not None:
            slope, intercept = self._slope.values(block)
            drawn["value", ("cox_slope", None)], drawn["value", ("cox_intercept", None)] = slope, intercept
        if self._wanted("nll") and self._rows.nll is not None:
            finite = bool(np.isfinite(self._rows.nll).all())
            mean = block.counts @ self._rows.nll / block.total if finite else np.full(block.total.size, np.nan)
            drawn["value", ("nll", None)] = mean

    def _draw_errors(self, block: Block, drawn: Drawn) -> None:
        rows = self._rows
        for horizon in self._horizons:
            if not self._wanted("brier", horizon):
                continue
            score = brier_scores(block, 1 - rows.risk[horizon][:, None], np.array([horizon]))[:, 0]
            null = null_brier_scores(block, horizon)
            drawn["value", ("brier", horizon)] = score
            ratio = np.divide(score, null, out=np.full(score.size, np.nan), where=null > 0)
            drawn["value", ("ipa", horizon)] = 1 - ratio
        if self._wanted("ibs") and rows.survival is not None and rows.times is not None:
            scores = brier_scores(block, rows.survival, rows.times)
            drawn["value", ("ibs", None)] = integrated(scores, rows.times)

    def _draw_smooth(self, block: Block, drawn: Drawn) -> None:
        for horizon, core in self._smooth.items():
            own, risk, survival = self._own_smooth[horizon][0], self._rows.risk[horizon], block.survival_at(horizon)
            curves, lengths, values = [], [], []
            for k, counts in enumerate(block.counts):
                observed, curve = core.curve(counts, float(survival[k]))
                distance = observed - own
                curves.append(curve)
                lengths.append([length(distance) for length in ERRORS.values()])
                values.append(counts @ np.abs(risk - observed) / block.total[k])
            drawn["smooth", ("ici", horizon)] = np.array(curves)
            drawn["value", ("ici", horizon)] = np.array(values)
            for k, name in enumerate(ERRORS):
                drawn["length", (name, horizon)] = np.array(lengths)[:, k]

    def _masses(self, block: Block) -> dict[str, Matrix]:
        if self._bins is None or self._km is None or self._ipcw is None:
            return {}
        return {
            "d_calibration": uniform_masses(block, self._bins),
            "d_calibration_km": self._km.masses(block),
            "d_calibration_ipcw": self._ipcw.masses(block),
        }

    def _draw_masses(self, block: Block, drawn: Drawn) -> None:
        for name, masses in self._masses(block).items():
            assert self._bins is not None
            drawn["length", (name, None)] = _lengths(masses - self._own_masses[name])
            drawn["value", (name, None)] = np.square(masses - self._bins.widths).sum(axis=1)
        if self._curve is not None and self._own_curve is not None:
            deviations = self._curve.deviations(block)
            drawn["length", ("km_calibration", None)] = _lengths(deviations - self._own_curve)
            drawn["value", ("km_calibration", None)] = np.square(deviations).sum(axis=1)


def _lengths(deviations: Matrix) -> Vector:
    """Euclidean length of each line."""
    return np.asarray(np.sqrt(np.square(deviations).sum(axis=1)))
