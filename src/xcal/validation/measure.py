"""Everything that an audit measures about one model, with intervals."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from xcal._checks import MANY, as_count, as_number
from xcal.calibration.results import holm
from xcal.metrics.calibration_curve import CalibrationCurve, band, drawn_curve
from xcal.metrics.inputs import Vector
from xcal.metrics.net_benefit import DecisionCurve, decision_curve
from xcal.metrics.pit_histogram import bin_shares, pit_histogram
from xcal.metrics.pp_curve import PPCurve, pp_curve
from xcal.metrics.risk_distribution import risk_distribution
from xcal.validation.bootstrap import Draws, bootstrap
from xcal.validation.estimates import UNKNOWN, Estimates, Key, estimate
from xcal.validation.for_whom import measure_for_whom
from xcal.validation.measurements import AuditValue, Measurements, PitHistogram
from xcal.validation.over_time import over_time
from xcal.validation.rows import Rows, read_rows
from xcal.validation.sample import Sample
from xcal.validation.subgroups import Subgroup, subgroups

Progress = Callable[[int, int], None]

# Order of the table. Metrics of one horizon come for each horizon in turn.
_DISCRIMINATION = ("harrell", "uno", "antolini", "auc")
_CALIBRATION = (
    *("oe", "mean_risk", "observed_risk", "cox_slope", "cox_intercept", "ici", "e50", "e90", "emax"),
    *("one_calibration_p", "d_calibration", "d_calibration_floor", "d_calibration_km", "d_calibration_km_floor"),
    *("d_calibration_ipcw", "d_calibration_ipcw_floor", "d_calibration_p", "d_calibration_p_corrected"),
    "km_calibration",
    *("conditional_calibration", "conditional_calibration_floor", "conditional_calibration_noise"),
    *("conditional_calibration_p", "subgroup_p"),
)
_OVERALL = ("brier", "ipa", "ibs", "nll")
# Rows of a group that are resampled at least: the deviations of fewer are not those of a large sample.
_FEWEST_ROWS = 2000
ORDER: tuple[str, ...] = (*_DISCRIMINATION, *_CALIBRATION, *_OVERALL)


def measure(
    sample: Sample,
    *,
    level: float = 0.95,
    n_bootstrap: int = 1000,
    most_rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Measurements:
    """Measure discrimination, calibration, accuracy and usefulness of a model on rows, over all and by group.

    Parameters
    ----------
    sample : Sample
        Checked rows.
    level : float
        Coverage of the intervals.
    n_bootstrap : int
        Resamples of the rows; 0 for none. The model is never fitted again. Percentiles for most metrics; for those
        that are zero at best the rule of `xcal.metrics.intervals.Distance`; O/E, the observed risk and the Cox slope
        and intercept have intervals by formula. Resamples of a group are of its own rows.
    most_rows : int, optional
        Of more rows than these a random part of this size is resampled, and the intervals are scaled to all rows; of
        each group, its share of them.
    seed : int
        Of resamples and simulated p-values. The result does not depend on the number of threads.
    progress : callable, optional
        Called with the work done so far and the whole, in rows resampled.

    Returns
    -------
    Measurements
        What the predictions do not allow, or the rows do not determine, is named in `skipped` with the reason.
    """
    as_number("level", level, above=0, below=1)
    as_count("n_bootstrap", n_bootstrap, at_least=0, at_most=MANY)
    as_count("seed", seed, at_least=0)
    rows, unreached = read_rows(sample)
    judged, too_small = subgroups(sample, rows)
    drawn = [_Resamples(n_bootstrap, (seed,), most_rows)]
    drawn += [_Resamples(n_bootstrap, (seed, k + 1), _share(most_rows, g.rows.n, rows.n)) for k, g in enumerate(judged)]
    sizes = [rows.n, *(group.rows.n for group in judged)]
    steps = _Steps(progress, n_bootstrap * sum(one.of(n) for one, n in zip(drawn, sizes, strict=True)))
    whole = _measure_rows(rows, None, level, drawn[0], sample.thresholds, steps)
    parts = [
        _measure_rows(group.rows, group.name, level, resamples, None, steps)
        for group, resamples in zip(judged, drawn[1:], strict=True)
    ]
    _correct(judged, [part.estimates for part in parts])
    for_whom = measure_for_whom(sample, rows, whole.estimates, level=level, seed=seed)
    skipped = [*unreached, *whole.estimates.skipped.items(), *whole.draws.skipped.items(), *too_small]
    for part in parts:
        skipped += [(f"{what} in {part.group}", why) for what, why in part.estimates.skipped.items()]
    everything = (whole, *parts)
    return Measurements(
        values=tuple(value for part in everything for value in part.table(level)),
        calibration=tuple(curve for part in everything for curve in part.calibration),
        decision=whole.decision,
        risks=tuple(
            risk_distribution(risk, at=horizon, time=rows.time, event=rows.event) for horizon, risk in rows.risk.items()
        ),
        pit=tuple(histogram for part in everything for histogram in part.pit),
        pp=_pp(rows, level),
        over_time=over_time(rows, level),
        skipped=tuple(skipped),
        draws={(*key, part.group): values for part in everything for key, values in part.draws.values.items()},
        for_whom=for_whom,
    )


@dataclass(frozen=True)
class _Resamples:
    """How many resamples, their seed, and of at most how many rows."""

    n: int
    seed: tuple[int, ...]
    most_rows: int | None

    def of(self, n: int) -> int:
        """Rows of each resample, where there are n."""
        return n if self.most_rows is None else min(n, self.most_rows)


def _share(most_rows: int | None, n_group: int, n: int) -> int | None:
    """Rows of a group to resample, so that all groups of a variable together are no more work than all rows."""
    return None if most_rows is None else max(_FEWEST_ROWS, most_rows * n_group // n)


class _Steps:
    """Adds up the work of several parts and tells the caller."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, more: int) -> None:
        self.done += more
        if self.progress is not None:
            self.progress(self.done, self.total)


@dataclass(frozen=True, eq=False)
class _Measured:
    """What was measured on one set of rows."""

    group: str | None
    estimates: Estimates
    draws: Draws
    calibration: tuple[CalibrationCurve, ...]
    decision: tuple[DecisionCurve, ...]
    pit: tuple[PitHistogram, ...]

    def table(self, level: float) -> list[AuditValue]:
        """Every value in the order of the table, with its interval."""
        values = self.estimates.values
        keys = sorted(values, key=lambda key: (ORDER.index(key[0]), key[1] or 0.0))
        return [AuditValue(*key, self.group, values[key], *self._interval(key, level)) for key in keys]

    def _interval(self, key: Key, level: float) -> tuple[float, float]:
        if key in self.estimates.intervals:
            return self.estimates.intervals[key]
        return self.draws.interval(key, self.estimates.values[key], level) if self.draws.n else UNKNOWN


def _measure_rows(
    rows: Rows,
    group: str | None,
    level: float,
    resamples: _Resamples,
    thresholds: Vector | None,
    steps: Callable[[int], None],
) -> _Measured:
    """Values, resamples and curves of one set of rows; a decision curve where there are thresholds."""
    found = estimate(rows, level=level, seed=resamples.seed[0], calibration_only=group is not None)
    draws = bootstrap(
        rows,
        found,
        n_bootstrap=resamples.n,
        seed=resamples.seed,
        thresholds=thresholds,
        most_rows=resamples.most_rows,
        progress=steps,
    )
    given: dict[str, Any] = {"time": rows.time, "event": rows.event}
    calibration, decision = [], []
    for horizon, risk in rows.risk.items():
        smooth = found.smooth[horizon]
        around = band(draws.smooth.get(horizon, np.empty((0, smooth[0].size))), level)
        curve = drawn_curve(risk, rows.time, rows.event, horizon, *smooth, around, group=group, level=level)
        calibration.append(curve)
        if thresholds is not None and thresholds.size and horizon <= rows.time[-1]:
            benefits = decision_curve(risk, thresholds, at=horizon, **given)
            if horizon in draws.benefit:
                lower, upper = np.quantile(draws.benefit[horizon], [(1 - level) / 2, (1 + level) / 2], axis=0)
                benefits = replace(benefits, lower=lower, upper=upper)
            decision.append(benefits)
    return _Measured(group, found, draws, tuple(calibration), tuple(decision), _pit(rows, group))


def _pit(rows: Rows, group: str | None) -> tuple[PitHistogram, ...]:
    if rows.cdf is None:
        return ()
    bins = bin_shares(rows.cdf, rows.cdf_event)
    scales = {"uniform": None, "km": rows.cdf, "ipcw": rows.time}
    return tuple(
        pit_histogram(method, group, bins, rows.cdf_event, scale, rows.clusters) for method, scale in scales.items()
    )


def _pp(rows: Rows, level: float) -> PPCurve | None:
    return None if rows.cdf is None else pp_curve(rows.cdf, event=rows.cdf_event, level=level)


def _correct(judged: list[Subgroup], found: list[Estimates]) -> None:
    """Add the p-values of D-calibration corrected for the number of groups of the same variable."""
    key = ("d_calibration_p", None)
    for variable in dict.fromkeys(group.variable for group in judged):
        own: Mapping[str, Estimates] = {
            group.name: part for group, part in zip(judged, found, strict=True) if group.variable == variable
        }
        corrected = holm({name: part.values[key] for name, part in own.items() if key in part.values})
        for name, p_value in corrected.items():
            own[name].put("d_calibration_p_corrected", None, p_value)
