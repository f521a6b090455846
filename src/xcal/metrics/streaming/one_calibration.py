"""One-calibration with fixed cuts over chunks, processes or files."""

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, FloatArray, as_probability, check_same_length, fail
from xcal.metrics.inputs import Vector, as_count, as_outcome, as_row_probability, as_time_point
from xcal.metrics.one_calibration import OneCalibration, checked_method, lived_hazard
from xcal.metrics.risk_group_tests import TESTS, Method, RiskGroups, chi_square, joined
from xcal.metrics.streaming.cells import CellCounts
from xcal.metrics.streaming.kaplan_meier import LIMIT, BoundedCurve, bounded_curve
from xcal.metrics.streaming.pair_table import PairAccumulator, as_grid
from xcal.metrics.streaming.sums import Integers, as_floats, unit_sums_by_bin

# No cumulative hazard is larger: that of the number just below one is 36.7.
_LARGEST_HAZARD = 64.0
_COUNTS = ("sizes", "events", "followed", "ended", "known")


@dataclass(frozen=True, eq=False)
class BoundedOneCalibration:
    """One-calibration, and the range of what was observed.

    Attributes
    ----------
    result : OneCalibration
    lower, upper : arrays, shape (k,)
        Range of the observed probability of each risk group; both equal to it where the times of all rows are known.
    exact : bool
        Whether `result` is that of the rows themselves.
    """

    result: OneCalibration
    lower: Vector = field(repr=False)
    upper: Vector = field(repr=False)
    exact: bool


class StreamingOneCalibration(PairAccumulator):
    """Accumulate one-calibration in risk groups with fixed cuts, without holding the rows; see `one_calibration`.

    Parameters
    ----------
    at : float
        The time.
    cuts : array-like, shape (k - 1,)
        Increasing probabilities between the risk groups; a prediction on a cut belongs to the group above. With the
        quantiles of the rows this is `one_calibration`.
    method : str, optional
        As there; "likelihood-ratio" if `uses_cdf`, else "effective-size". Tests that need no Kaplan-Meier curve
        ("likelihood-ratio", "gronnesby-borgan", "hosmer-lemeshow") are always exact.
    uses_cdf : bool
        Whether `update` is given F at the observed times.
    min_events, ddof : int
        As in `one_calibration`.
    grid : array-like, optional
        Fixed times of the cells up to `at`, which must be one of them.
    limit : int
        Distinct times kept without a grid, over all groups.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rate = rng.uniform(0.5, 2, size=1000)
    >>> time = rng.exponential(1 / rate)
    >>> meter = StreamingOneCalibration(at=1.0, cuts=[0.5, 0.7])
    >>> _ = meter.update(1 - np.exp(-rate), time=time, event=np.ones(1000))
    >>> meter.compute().result.p_value > 0.01
    True
    """

    def __init__(
        self,
        *,
        at: float,
        cuts: Any,
        method: Method | None = None,
        uses_cdf: bool = False,
        min_events: int = 5,
        ddof: int = 0,
        grid: Any = None,
        limit: int = LIMIT,
    ) -> None:
        self.at = as_time_point("at", at)
        self.cuts = as_grid("cuts", cuts) if np.size(cuts) else np.empty(0)
        k = self.cuts.size + 1
        if grid is not None and self.at not in (points := as_grid("grid", grid)):
            fail("grid", f"a grid with the time {self.at:g}", f"{points.size} other times")
        grids = None if grid is None else (grid, np.arange(k, dtype=np.float64))
        super().__init__(grids, limit, [self.at], labels=k)
        self.method = checked_method(method, uses_cdf)
        self.uses_cdf = uses_cdf
        self.min_events = as_count("min_events", min_events, at_least=0)
        self.ddof = as_count("ddof", ddof, at_least=0)
        if not TESTS[self.method].needs_curves:  # no times are kept
            self._cells.clear()
            self._sums = {"n": self._sums["n"]}
        self._sums |= {name: np.zeros(k, np.int64) for name in _COUNTS}
        self._sums |= {name: np.zeros((2, k), np.int64) for name in ("probability", "known_probability", "hazard")}

    def _settings(self) -> tuple[Any, ...]:
        return *super()._settings(), self.at, self.cuts, self.method, self.uses_cdf, self.min_events, self.ddof

    def update(self, probability: Any, *, time: Any, event: Any, cdf: Any = None) -> Self:
        """Add rows: probability of an event by `at`, the outcome, and with `uses_cdf` F at the observed times."""
        if np.size(time) == 0 and np.size(event) == 0:
            return self
        times_seen, happened = as_outcome(time, event, probability=probability, cdf=cdf)
        p = as_row_probability("probability", probability, times_seen.size)
        if (cdf is None) == self.uses_cdf:
            fail("cdf", "F at the observed times with uses_cdf=True, else None", "None" if cdf is None else "an array")
        # In its own type: F = 1 counts with the largest hazard that the type can write.
        own = None if cdf is None else as_probability("cdf", cdf)
        if own is not None:
            check_same_length("cdf", own, "time", times_seen.size)
        self.add(p, times_seen, happened, own)
        return self

    def add(self, p: FloatArray, time: FloatArray, event: BoolArray, cdf: FloatArray | None) -> None:
        """Add rows that were checked."""
        group = np.searchsorted(self.cuts, p, side="right")
        k = self.cuts.size + 1
        early, followed = event & (time <= self.at), time >= self.at
        marks = np.ones(time.size, np.bool_), early, followed, followed | event, followed | event
        for name, mark in zip(_COUNTS, marks, strict=True):
            self._sums[name] += np.bincount(group[mark], minlength=k)
        self._sums["probability"] += unit_sums_by_bin(group, p, k)
        self._sums["known_probability"] += unit_sums_by_bin(group, p * marks[-1], k)
        if cdf is not None:
            hazard = lived_hazard(p, cdf, time, self.at)
            self._sums["hazard"] += unit_sums_by_bin(group, hazard / _LARGEST_HAZARD, k)
        if TESTS[self.method].needs_curves:
            # What comes after `at` is one cell: the curve is read at `at`.
            until = np.where(time > self.at, np.nextafter(self.at, np.inf), time)
            self._count(until, group.astype(np.float64), early)
        else:
            self._sums["n"] += time.size

    def compute(self) -> BoundedOneCalibration:
        """Return the test on all rows seen so far; NaN where no row was followed until `at`."""
        self._need_rows()
        test = TESTS[self.method]
        label = np.cumsum(self._sums["sizes"] > 0) - 1  # empty groups are no groups
        label = np.maximum(label, 0)
        label = joined(*test.joined_by(self._groups(label), self.min_events))[label]
        groups, curves = self._groups(label), None
        if test.needs_curves:
            curves = self._curves(label)
            observed = np.array([1 - float(c.curve.at(self.at)) for c in curves])
            variance = np.array([float(c.curve.variance(self.at)) for c in curves])
            groups = replace(groups, curve=observed, variance=variance)
        compared = test.compare(groups)
        if not self._sums["followed"].any():
            unknown = np.full_like(compared.observed, np.nan)
            compared = replace(compared, observed=unknown, terms=unknown)
        statistic, p_value, dof = chi_square(compared.terms, self.ddof)
        values = compared.predicted, compared.observed, compared.sizes
        result = OneCalibration(p_value, statistic, dof, *values, self.at, self.method)
        if curves is None:
            return BoundedOneCalibration(result, compared.observed, compared.observed, True)
        ends = [curve.bounds(self.at) for curve in curves]
        lower, upper = (np.array([1 - float(end[side]) for end in ends]) for side in (1, 0))
        return BoundedOneCalibration(result, lower, upper, all(curve.exact for curve in curves))

    def _groups(self, label: npt.NDArray[np.int64]) -> RiskGroups:
        """Add up the groups that share a label."""
        size = int(label.max()) + 1

        def total(name: str) -> Vector:
            return np.bincount(label, self._sums[name].astype(np.float64), minlength=size).astype(np.float64)

        def exact(name: str, scale: float = 1.0) -> Vector:
            found: Integers = np.zeros((2, size), np.int64)
            for limb in (0, 1):
                np.add.at(found[limb], label, self._sums[name][limb])
            return as_floats(found, scale)

        hazard = exact("hazard", _LARGEST_HAZARD) if self.uses_cdf else None
        counts = {name: total(name) for name in _COUNTS}
        return RiskGroups(
            **counts, probability=exact("probability"), hazard=hazard, known_probability=exact("known_probability")
        )

    def _curves(self, label: npt.NDArray[np.int64]) -> list[BoundedCurve]:
        """Kaplan-Meier curve of each group."""
        cells = self._pair_cells()
        times, groups = cells.place
        of_group = label[cells.high[1][groups].astype(np.int64)]
        curves = []
        for k in range(int(label.max()) + 1):
            own = of_group == k
            events, censored = (
                np.bincount(times[own], counts[own], minlength=cells.low[0].size)
                for counts in (cells.events, cells.censored)
            )
            filled = (events + censored) > 0
            low, high = cells.low[0][filled], cells.high[0][filled]
            curves.append(bounded_curve(CellCounts(low, high, events[filled], censored[filled])))
        return curves
