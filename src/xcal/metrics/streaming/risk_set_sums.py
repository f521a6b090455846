"""Sums over risk sets of the Cox model behind ICI, at one place of its coefficients, over chunks or files."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray
from xcal.metrics.cox import log_hazard
from xcal.metrics.cox_ici import curve_basis
from xcal.metrics.inputs import Vector
from xcal.metrics.streaming.accumulator import Accumulator
from xcal.metrics.streaming.grid_cells import GridAxis
from xcal.metrics.streaming.pair_table import as_grid
from xcal.metrics.streaming.sums import as_floats, unit_sums, unit_sums_by_bin

Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Place:
    """A place of the coefficients, and the range of predictions: all that rows are measured by.

    Columns of the basis are moved to [0, 1], and weights exp(score) divided by the largest, so that sums are of whole
    numbers.
    """

    knots: Vector | None
    coefficients: Vector  # (P,) of the columns of the basis
    lowest: float  # prediction
    highest: float

    @property
    def columns(self) -> int:
        """Columns of the basis."""
        return int(self.coefficients.size)

    @property
    def ends(self) -> Matrix:
        """Basis of the lowest and the highest prediction, (2, P): every column grows with the prediction."""
        return curve_basis(log_hazard(np.array([self.lowest, self.highest])), self.knots)

    @property
    def slopes(self) -> Vector:
        """Coefficients of the columns in [0, 1]."""
        low, high = self.ends
        return np.asarray(self.coefficients * (high - low))

    def basis(self, p: Vector) -> Matrix:
        """Columns in [0, 1], (n, P)."""
        low, high = self.ends
        return np.asarray(np.clip((curve_basis(log_hazard(p), self.knots) - low) / (high - low), 0.0, 1.0))

    def weights(self, basis: Matrix) -> Vector:
        """Return exp(score) divided by what it cannot exceed."""
        return np.asarray(np.exp(basis @ self.slopes - np.maximum(self.slopes, 0.0).sum()))


@dataclass(frozen=True, eq=False)
class RiskSetSums:
    """Sums over the rows of each cell of time, K of them in increasing order."""

    weight: Vector  # (K,)
    first: Matrix  # (K, P) weight times basis
    second: Matrix  # (K, P, P) weight times basis times basis
    deaths: Vector  # (K,)
    early: BoolArray  # (K,) whether the deaths of the cell happened by the time of the index
    dead: Vector  # (P,) basis of all who died


class StreamingRiskSets(Accumulator):
    """Accumulate, by cells of time, what the partial likelihood and its derivatives at one place are made of.

    Parameters
    ----------
    place : Place
    times : array
        Ends of the cells. `at` is one of them.
    at : float
        Time of the index.
    """

    def __init__(self, place: Place, times: Any, at: float) -> None:
        super().__init__()
        self.place, self.at = place, at
        self._axis = GridAxis(as_grid("times", times))
        self._pairs = np.triu_indices(place.columns)
        size, p = self._axis.size, place.columns
        self._sums["n"] = np.zeros((), dtype=np.int64)
        self._sums["deaths"] = np.zeros(size, dtype=np.int64)
        self._sums["dead"] = np.zeros((2, p), dtype=np.int64)
        self._sums["moments"] = np.zeros((2, 1 + p + self._pairs[0].size, size), dtype=np.int64)

    def _settings(self) -> tuple[Any, ...]:
        own = self.place
        knots = "none" if own.knots is None else own.knots
        return self._axis.points, self.at, knots, own.coefficients, own.lowest, own.highest

    def add(self, probability: FloatArray, time: FloatArray, event: BoolArray) -> None:
        """Add rows that were checked."""
        cell = self._axis.place(time)
        basis = self.place.basis(probability.astype(np.float64, copy=False))
        weight = self.place.weights(basis)
        self._sums["n"] += time.size
        self._sums["deaths"] += np.bincount(cell[event], minlength=self._axis.size)
        self._sums["dead"] += unit_sums(basis[event])
        one, other = self._pairs
        parts = [weight, *(weight * column for column in basis.T), *(weight * (basis[:, one] * basis[:, other]).T)]
        for number, part in enumerate(parts):
            self._sums["moments"][:, number] += unit_sums_by_bin(cell, part, self._axis.size)

    def compute(self) -> RiskSetSums:
        """Return the sums as floats."""
        self._need_rows()
        p = self.place.columns
        moments = as_floats(self._sums["moments"])
        second = np.empty((self._axis.size, p, p))
        one, other = self._pairs
        second[:, one, other] = second[:, other, one] = moments[1 + p :].T
        return RiskSetSums(
            moments[0],
            moments[1 : p + 1].T,
            second,
            self._sums["deaths"].astype(np.float64),
            np.append(self._axis.points, np.inf) <= self.at,
            as_floats(self._sums["dead"]),
        )
