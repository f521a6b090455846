"""The smooth calibration curve of resamples: a Cox model on rows that count.

The twin of `metrics.ici.smoothed`, with knots from the resample, as there.
"""

import numpy as np
import numpy.typing as npt

from xcal._ordering import starts_run
from xcal.metrics.counted_quantiles import counted_quantiles
from xcal.metrics.cox import CoxFit, RiskSets, log_hazard
from xcal.metrics.ici import knot_levels, spline_basis
from xcal.metrics.inputs import Vector
from xcal.validation.counted.block import Matrix, Timeline

_N_KNOTS = 3


class CountedSmooth:
    """Observed probability at one time as a smooth function of the predicted one."""

    def __init__(self, line: Timeline, sets: RiskSets, risk: Vector, places: Vector, at: float) -> None:
        self._line, self._sets, self._at = line, sets, at
        self._x = log_hazard(risk)
        self._where = log_hazard(places)
        self._order = np.argsort(risk, kind="stable")
        self._ordered = self._x[self._order]
        self._risk_runs = np.flatnonzero(starts_run(risk[self._order]))
        self._x_runs = np.flatnonzero(starts_run(self._ordered))
        self._passed = line.passed(at)
        self._start: Vector | None = None
        # From the coefficients of the rows themselves those of a resample are a step or two away.
        own = self._fit(np.ones(risk.size))
        self._start = own[0].coefficients if own is not None and own[0].converged else None

    def curve(self, counts: Vector, survival: float) -> tuple[Vector, Vector]:
        """Observed probability at the rows and at the places, of one resample; NaN where it is not determined.

        `survival` is the resample's Kaplan-Meier curve at the time, for predictions that are all equal.
        """
        n, k = self._x.size, self._where.size
        drawn = counts > 0
        if not drawn[self._line.time >= self._at].any():
            return np.full(n, np.nan), np.full(k, np.nan)
        if not drawn[: self._passed][self._line.event[: self._passed]].any():
            return np.zeros(n), np.zeros(k)
        if self._distinct(counts, self._risk_runs) == 1:
            return np.full(n, 1 - survival), np.full(k, 1 - survival)
        fitted = self._fit(counts)
        if fitted is None or not fitted[0].converged:
            return np.full(n, np.nan), np.full(k, np.nan)
        fit, rows, places = fitted
        return fit.event_probability(rows.T), fit.event_probability(places.T)

    def _fit(self, counts: Vector) -> tuple[CoxFit, Matrix, Matrix] | None:
        """Fit, and the basis at the rows and at the places, each of shape (p, .); None where nobody had an event."""
        if not (counts[self._line.event] > 0).any():
            return None
        knots = self._quantiles(counts, knot_levels(_N_KNOTS))
        if np.unique(knots).size < _N_KNOTS or self._distinct(counts, self._x_runs) < _N_KNOTS:
            rows, places = self._x[None], self._where[None]
        else:
            rows, places = spline_basis(self._x, knots).T, spline_basis(self._where, knots).T
        total = counts.sum()
        centre = rows @ counts / total
        scale = np.sqrt(np.square(rows - centre[:, None]) @ counts / total)
        scale = np.where(scale > 0, scale, 1.0)
        rows, places = ((basis - centre[:, None]) / scale[:, None] for basis in (rows, places))
        begin = np.zeros(rows.shape[0])
        if self._start is not None and self._start.size == begin.size:
            fit = self._sets.fit(rows, counts, self._at, self._start)
            if fit.converged:
                return fit, rows, places
        return self._sets.fit(rows, counts, self._at, begin), rows, places

    def _distinct(self, counts: Vector, runs: npt.NDArray[np.int64]) -> int:
        return int(np.count_nonzero(np.add.reduceat(counts[self._order], runs)))

    def _quantiles(self, counts: Vector, levels: Vector) -> Vector:
        """Quantiles of x over the rows as often as they count."""
        return counted_quantiles(self._ordered, counts[self._order], levels)
