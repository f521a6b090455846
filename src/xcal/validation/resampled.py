"""All metrics of one set of rows on blocks of resamples."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from xcal.metrics.calibration_slope import slope_and_intercept
from xcal.metrics.ici import SmoothCalibration
from xcal.metrics.inputs import Vector
from xcal.metrics.intervals import unit
from xcal.metrics.pairs import CountedPairs
from xcal.metrics.pit_histogram import bin_shares
from xcal.validation.counted.benefit import CountedBenefit
from xcal.validation.counted.block import Block, Timeline
from xcal.validation.counted.errors import CountedAUC, brier_scores, integrated, null_brier_scores
from xcal.validation.counted.masses import CountedCurve, CountedRedistribution, uniform_masses
from xcal.validation.counted.pairs import uno_weights
from xcal.validation.counted.values import CountedValues
from xcal.validation.estimates import Estimates, Key
from xcal.validation.rows import Rows

Matrix = npt.NDArray[np.float64]
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
            self._pairs = CountedPairs(rows.time, rows.event, rows.score)
        self._corrected = {}
        if rows.censoring_model is not None:
            self._corrected = {h: CountedValues(rows.risk[h], values) for h, (values, _) in at.items()}
        self._auc = {
            h: CountedAUC(line, rows.risk[h], h) for h in at if self._wanted("auc", h) and h not in self._corrected
        }
        # To first order a resample moves a regression by the influence of the rows that were drawn more or less often.
        self._slope = {
            h: slope_and_intercept(rows.risk[h], v, rows.weights) for h, (v, smooth) in at.items() if smooth is not None
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
            self._bins = bin_shares(rows.cdf, rows.cdf_event)
            self._km = CountedRedistribution(self._bins, rows.cdf_event, rows.cdf)
            self._ipcw = CountedRedistribution(self._bins, rows.cdf_event, rows.time)
        if rows.survival is not None and rows.times is not None and self._wanted("km_calibration"):
            self._curve = CountedCurve(self._line, rows.survival, rows.times, rows.interpolation)

    def draw(self, block: Block) -> Drawn:
        """Every metric on the resamples of a block."""
        drawn: Drawn = {}
        self._draw_pairs(block, drawn)
        for horizon, (values, smooth) in self._at.items():
            self._draw_calibration(block, horizon, values, smooth, drawn)
            self._draw_accuracy(block, horizon, drawn)
        self._draw_overall(block, drawn)
        self._draw_masses(block, drawn)
        return drawn

    def _draw_pairs(self, block: Block, drawn: Drawn) -> None:
        if self._pairs is not None:
            harrell, uno = self._pairs.indices(block.counts, [np.ones((1, self._rows.n)), uno_weights(block)])
            drawn["value", ("harrell", None)], drawn["value", ("uno", None)] = harrell, uno

    def _draw_calibration(
        self, block: Block, horizon: float, values: Vector, smooth: SmoothCalibration | None, drawn: Drawn
    ) -> None:
        risk = self._rows.risk[horizon]
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
