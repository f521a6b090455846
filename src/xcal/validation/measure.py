"""Everything that an audit measures about one model, with intervals."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtri

from xcal._checks import MANY, BoolArray, as_count, as_number
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration.bins import sum_of_squares
from xcal.calibration.histogram import cumulative_hazard
from xcal.calibration.significance import holm
from xcal.calibration.subgroups import Column
from xcal.metrics.across_sites import error_of_interval, random_effects
from xcal.metrics.calibration_curve import CalibrationCurve, RiskDistribution, drawn_curve, risk_distribution
from xcal.metrics.censoring import same_for_all
from xcal.metrics.inputs import Vector, is_small, shown_range, told
from xcal.metrics.intervals import resampled_intervals
from xcal.metrics.net_benefit import CountedValues, DecisionCurve, benefit, decision_curve
from xcal.metrics.observed_expected import events_between
from xcal.metrics.pit import PitHistogram, PPCurve, bin_shares, pit_histogram, pp_curve
from xcal.metrics.spec import ACROSS_SITES, VALUES
from xcal.validation.at_horizon import CalibrationAt, calibration_at, horizon_tests, observed_values
from xcal.validation.bootstrap import Draws, bootstrap, net_benefits
from xcal.validation.estimates import UNKNOWN, Estimates, Key, accuracy, estimate, over_time
from xcal.validation.for_whom import covariate_parts, dependent_censoring, measure_for_whom, usable_columns
from xcal.validation.result import AtLandmark, AuditValue, CensoringTest, Measurements, PartFound, Skipped
from xcal.validation.rows import Rows, Subgroup, read_rows, rows_of_groups, subgroups, too_few_to_judge
from xcal.validation.sample import LANDMARK, Censoring, Sample
from xcal.validation.updating import measure_updates

Progress = Callable[[int, int], None]

# P-value, corrected within the family of parts, below which what was found in a part of a covariate is kept for the
# verdict: it tells what is off from what is in doubt.
PART_LEVEL = 0.2
# Rows of a group that are resampled at least: the deviations of fewer are not those of a large sample.
_FEWEST_ROWS = 2000
# Sites that make a mean over sites.
FEWEST_SITES = 3
# Order of the table. Metrics of one horizon come for each horizon in turn.
_ORDER = {metric: place for place, metric in enumerate(VALUES)}


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
        Resamples of the rows, whose spread is the standard error of a value; 0 for none. The model is never fitted
        again. D-calibration and KM calibration by the rule of `xcal.metrics.intervals.true_square`; what is said of one
        horizon's calibration has intervals by formula. Resamples of a group are of its own rows.
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
    columns, left_out = usable_columns(sample, rows)
    rows, censoring = _with_censoring(rows, columns, sample.censoring)
    judged, too_small = subgroups(sample, rows)
    come, too_few = _landmarks(sample)
    too_small += too_few
    drawn = [_Resamples(n_bootstrap, (seed,), most_rows)]
    within = [*judged, *come]
    drawn += [_Resamples(n_bootstrap, (seed, k + 1), _share(most_rows, g.rows.n, rows.n)) for k, g in enumerate(within)]
    sizes = [rows.n, *(group.rows.n for group in within)]
    steps = _Steps(progress, n_bootstrap * sum(one.of(n) for one, n in zip(drawn, sizes, strict=True)))
    whole = _measure_rows(rows, None, level, drawn[0], sample.thresholds, steps)
    parts = [
        _measure_rows(
            *(group.rows, group.name, level, resamples, None, steps),
            calibration_only=group.variable != LANDMARK,
            with_accuracy=group.variable in (sample.site, LANDMARK),
        )
        for group, resamples in zip(within, drawn[1:], strict=True)
    ]
    groups = {name: own for *_, name, own in rows_of_groups(sample, rows)}
    sites = {group.name: group for group in within if sample.site and group.variable == sample.site}
    small = next((name for name, group in sites.items() if group.label == sample.small_sites != ""), "")
    _put_across_sites([part for part in parts if part.group in sites and part.group != small], whole, level)
    found_parts, families = _put_tests(rows, columns, groups, come, [whole, *parts], level, seed)
    for_whom = measure_for_whom(sample, rows, columns, left_out, whole.estimates, level=level, seed=seed)
    updates, not_updated = measure_updates(rows, whole.estimates, level, seed)
    everything = (whole, *parts)
    pp = _pp(rows, level, whole.estimates)
    risks, hidden = _risks(rows)
    skipped = [*unreached, *_too_late(sample), *too_small, *hidden, *not_updated]
    for part in everything:
        skipped += [replace(one, group=part.group) for one in (*part.estimates.skipped, *part.draws.skipped)]
    if censoring is not None and censoring.corrected:
        censoring = replace(censoring, uncorrected=_uncorrected(rows, whole.estimates))
    return Measurements(
        values=tuple(value for part in everything for value in part.table(level)),
        calibration=tuple(curve for part in everything for curve in part.calibration),
        decision=whole.decision,
        risks=risks,
        pit=tuple(histogram for part in everything for histogram in part.pit),
        pp=pp,
        over_time=over_time(rows, level),
        skipped=tuple(skipped),
        draws={(*key, part.group): values for part in everything for key, values in part.draws.values.items()},
        for_whom=for_whom,
        parts=found_parts,
        ibs_range=shown_range(*whole.estimates.ibs_range[0], rows.min_cell) if whole.estimates.ibs_range else None,
        n_families=max(1, families + (for_whom is not None)),
        censoring=censoring,
        seen={h: at.ratios for h, at in whole.estimates.at.items()} if len(rows.seen) > 1 else {},
        sites=tuple(sites),
        small_sites=small,
        landmarks=tuple(_at_risk(group, sample) for group in come),
        updates=updates,
    )


def _with_censoring(rows: Rows, columns: tuple[Column, ...], treatment: Censoring) -> tuple[Rows, CensoringTest | None]:
    """Test what the censoring of the rows depends on, and give them the model of it that their values need."""
    found, model = dependent_censoring(rows, columns, treatment)
    if (
        model is None and rows.entry is not None and rows.lower is None
    ):  # what happened by a horizon is then known by such a model alone
        model = same_for_all(rows.outcome)
    return replace(rows, censoring_model=model), found


def _landmarks(sample: Sample) -> tuple[list[Subgroup], list[Skipped]]:
    """Return those who have come to each landmark, and what cannot be said of them with the reason."""
    judged, skipped = [], []
    for landmark in sample.landmarks:
        if landmark.sample is None:
            skipped.append(Skipped("group", landmark.why, group=landmark.name))
            continue
        rows, unreached = read_rows(landmark.sample)
        if why := too_few_to_judge(rows, sample.min_cell):
            skipped.append(Skipped("group", why, group=landmark.name))
            continue
        skipped += [replace(one, group=landmark.name) for one in (*unreached, *_too_late(landmark.sample))]
        columns, _ = usable_columns(landmark.sample, rows)
        rows, _ = _with_censoring(rows, columns, sample.censoring)
        judged.append(Subgroup(LANDMARK, f"{landmark.at:g}", landmark.name, landmark.members, rows))
    return judged, skipped


def _too_late(sample: Sample) -> Iterator[Skipped]:
    late = "few rows are still under observation then (horizons= or --horizons asks for it)"
    return (Skipped("horizon", late, horizon=t) for t in sample.not_judged)


def _at_risk(group: Subgroup, sample: Sample) -> AtLandmark:
    """Count those who have come to a landmark; not what few of them had."""
    (at,) = (one.at for one in sample.landmarks if one.name == group.name)
    return AtLandmark(at, group.name, group.rows.n, told(int(group.rows.event.sum()), group.rows.n, sample.min_cell))


def _risks(rows: Rows) -> tuple[tuple[RiskDistribution, ...], list[Skipped]]:
    """Return the risks by outcome, but where an outcome is that of a few rows."""
    found, hidden, few = [], [], rows.min_cell
    for horizon in rows.risk:
        own = rows.entered_by(horizon)
        given: dict[str, Any] = {"time": own.time, "event": own.event, "weights": own.weights}
        if own.lower is not None:  # of an event that came before the horizon or after, nobody knows
            unknown = (own.lower < horizon) & (own.time > horizon)
            given |= {"time": np.where(unknown, own.lower, own.time), "event": own.event & ~unknown}
        one = risk_distribution(own.risk[horizon], at=horizon, **given, min_cell=few)
        if any(is_small(count, few) for count in (one.n_with_event, one.n_without_event, one.n_censored)):
            why = f"one of the outcomes is that of fewer than {few} rows"
            hidden.append(Skipped("risks", why, horizon=horizon))
        else:
            found.append(one)
    return tuple(found), hidden


def _uncorrected(rows: Rows, found: Estimates) -> tuple[AuditValue, ...]:
    """Return values at horizons as they are if censoring is taken to be independent of everything."""
    plain, values = Estimates(), []
    for horizon, at in found.at.items():
        if rows.entry is None:
            accuracy(replace(rows, censoring_model=None), horizon, plain)
            observed = 1 - float(fit_kaplan_meier(rows.time, rows.event).at(horizon))
        else:
            same = replace(rows, censoring_model=same_for_all(rows.outcome))
            plain.at[horizon] = replace(at, values=observed_values(same.entered_by(horizon), horizon, rows.seen[0]))
            accuracy(same, horizon, plain)
            observed = float(plain.at[horizon].values.mean())
        plain.put("oe", horizon, observed / at.ratio.expected if at.ratio.expected > 0 else np.nan)
        values += [(name, horizon) for name in ("oe", "auc", "brier", "ipa") if (name, horizon) in plain.values]
    return tuple(AuditValue(*key, None, plain.values[key], *UNKNOWN) for key in values)


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
        values = dict(self.estimates.values)
        intervals = {key: self._interval(key, level) for key in values}
        for key in self.draws.squares:
            if key not in values or (f"{key[0]}_excess", key[1]) in values:
                continue
            distance = self.draws.distance(key, values[key], level)
            metric, horizon = key
            values[f"{metric}_excess", horizon] = distance.excess
            intervals[f"{metric}_excess", horizon] = (distance.lower, distance.upper)
            values.setdefault((f"{metric}_floor", horizon), distance.floor)
        keys = sorted(values, key=lambda key: (_ORDER[key[0]], key[1] or 0.0))
        return [AuditValue(*key, self.group, values[key], *intervals.get(key, UNKNOWN)) for key in keys]

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
    *,
    calibration_only: bool = False,
    with_accuracy: bool = True,
) -> _Measured:
    """Values, resamples and curves of one set of rows; a decision curve where there are thresholds."""
    found = estimate(
        rows, level=level, seed=resamples.seed[0], calibration_only=calibration_only, with_accuracy=with_accuracy
    )
    draws = bootstrap(
        rows,
        found,
        n_bootstrap=resamples.n,
        seed=resamples.seed,
        thresholds=thresholds,
        most_rows=resamples.most_rows,
        progress=steps,
    )
    calibration, decision = [], []
    shown: dict[str, Any] = {"group": group, "level": level, "min_cell": rows.min_cell, "weights": rows.weights}
    for horizon in rows.risk:
        at, own = found.at.get(horizon), rows.entered_by(horizon)
        risk, smooth = own.risk[horizon], None if at is None else at.smooth
        values = None if at is None or not rows.seen_in_part else at.values
        calibration.append(drawn_curve(risk, own.outcome, horizon, smooth, values=values, **shown))
        if thresholds is not None and thresholds.size and at is not None:
            benefits = _decision(rows, horizon, at, thresholds)
            if horizon in draws.benefit:
                lower, upper = resampled_intervals(benefits.model, draws.benefit[horizon], level)
                benefits = replace(benefits, lower=lower, upper=upper)
            decision.append(_of_enough_rows(benefits, risk, rows.min_cell))
    return _Measured(group, found, draws, tuple(calibration), tuple(decision), _pit(rows, group))


def _decision(rows: Rows, horizon: float, at: CalibrationAt, thresholds: Vector) -> DecisionCurve:
    rows = rows.entered_by(horizon)
    risk = rows.risk[horizon]
    curve = decision_curve(risk, thresholds, at=horizon, time=rows.time, event=rows.event)
    if not rows.by_values and rows.weights is None:
        return curve
    if not rows.by_values:
        own = net_benefits(rows, horizon, thresholds)
    else:
        own = CountedValues(risk, at.values).benefit(np.ones((1, rows.n)), thresholds)[0]
    return replace(curve, model=own, treat_all=np.asarray(benefit(1.0, at.ratio.observed, thresholds)))


def _of_enough_rows(curve: DecisionCurve, risk: Vector, min_cell: int) -> DecisionCurve:
    """Leave out thresholds that part a few rows from all others: net benefit tells what happened to these."""
    above = np.array([np.count_nonzero(risk >= threshold) for threshold in curve.threshold])
    few = np.array([told(int(count), risk.size, min_cell) is None for count in above], dtype=np.bool_)
    model, lower, upper = (np.where(few, np.nan, part) for part in (curve.model, curve.lower, curve.upper))
    return replace(curve, model=model, lower=lower, upper=upper)


def _pit(rows: Rows, group: str | None) -> tuple[PitHistogram, ...]:
    if rows.cdf is None:
        return ()
    given = {"min_cell": rows.min_cell, "entry": rows.cdf_entry, "lower": rows.cdf_lower}
    bins = bin_shares(rows.cdf, rows.cdf_event, **given)  # type: ignore[arg-type]  # by name
    scales = {"uniform": None} if rows.seen_in_part else {"uniform": None, "km": rows.cdf, "ipcw": rows.time}
    return tuple(
        pit_histogram(method, group, bins, rows.cdf_event, scale, rows.clusters, rows.weights)
        for method, scale in scales.items()
    )


def _pp(rows: Rows, level: float, found: Estimates) -> PPCurve | None:
    if rows.cdf is None:
        return None
    if rows.weights is not None or rows.lower is not None:
        why = "its band counts every row once, and these rows have weights"
        found.skip("P-P curve", why if rows.lower is None else rows.seen_in_part)
        return None
    return pp_curve(rows.cdfs_since_entry[0], event=rows.cdf_event, level=level)


def _put_across_sites(sites: list[_Measured], whole: _Measured, level: float) -> None:
    """Add what the values of the sites have in common: their mean, how much they differ, and those of a new site."""
    if len(sites) < FEWEST_SITES:
        return
    tables = [{(one.metric, one.horizon): one for one in site.table(level)} for site in sites]
    for metric, horizon in tables[0]:
        if metric not in ACROSS_SITES:
            continue
        scale, found = ACROSS_SITES[metric], [table[metric, horizon] for table in tables if (metric, horizon) in table]
        with np.errstate(divide="ignore"):
            errors = [error_of_interval(one.lower, one.upper, level, scale) for one in found]
            usable = [
                bool(np.isfinite([e, scale[0](one.value)]).all() and e > 0)
                for e, one in zip(errors, found, strict=True)
            ]
        if sum(usable) < FEWEST_SITES:
            whole.estimates.skip(
                f"{metric}_sites", f"fewer than {FEWEST_SITES} sites have it with an interval", horizon
            )
            continue
        values = [one.value for one, use in zip(found, usable, strict=True) if use]
        across = random_effects(
            values, [e for e, use in zip(errors, usable, strict=True) if use], level=level, scale=scale
        )
        whole.estimates.put(f"{metric}_sites", horizon, across.mean, (across.lower, across.upper))
        whole.estimates.put(f"{metric}_new_site", horizon, across.mean, (across.new_lower, across.new_upper))
        whole.estimates.put(f"{metric}_sites_tau2", horizon, across.tau2)
        whole.estimates.put(f"{metric}_sites_i2", horizon, across.i2)


def _put_tests(
    rows: Rows,
    columns: tuple[Column, ...],
    groups: dict[str, BoolArray],
    come: list[Subgroup],
    measured: list[_Measured],
    level: float,
    seed: int,
) -> tuple[tuple[PartFound, ...], int]:
    """Add the p-values of every test at a horizon, and of D-calibration in groups corrected for their number.

    `groups` are all of them: those with too few events to be judged count as tests, as nobody knew before which ones
    these would be. Groups chosen by what happened favour what happened. Those who have `come` to a landmark have
    horizons of their own; their p-values are multiplied by the number of landmarks.

    Returns the parts of covariates in which a test shows an error, and the number of families of tests: at horizons of
    all rows, of groups and of parts, and D-calibration of all rows and of groups.
    """
    of_group = {part.group: part.estimates for part in measured}
    parts = {name: mask for name, mask in covariate_parts(columns, rows.min_cell) if name not in groups}
    found, tests = [], horizon_tests(rows, groups, parts, seed=seed)
    for (metric, horizon, name), tested in tests.items():
        if name in parts:
            if tested.corrected < PART_LEVEL:
                found.append(_part(rows.take(parts[name]), name, horizon, level, tested.corrected))
        elif name in of_group and (metric.removesuffix("_p"), horizon) in of_group[name].values:
            of_group[name].put(metric, horizon, tested.p_value)
            of_group[name].put(f"{metric}_corrected", horizon, tested.corrected)
    for landmark in come:
        for (metric, horizon, _), tested in horizon_tests(landmark.rows, {}, {}, seed=seed).items():
            if (metric.removesuffix("_p"), horizon) in of_group[landmark.name].values:
                of_group[landmark.name].put(metric, horizon, tested.p_value)
                of_group[landmark.name].put(f"{metric}_corrected", horizon, min(1.0, tested.corrected * len(come)))
    families = len({None if name is None else name in parts for _, _, name in tests}) + bool(come)
    for metric in ("d_calibration_p", "event_ratio_p"):
        key = (metric, None)
        with_p = {name: part for name, part in of_group.items() if name is not None and key in part.values}
        of_all = dict.fromkeys([*groups, *(landmark.name for landmark in come)], 1.0)
        corrected = holm(of_all | {name: part.values[key] for name, part in with_p.items()})
        for name, part in with_p.items():
            part.put(f"{metric}_corrected", None, corrected[name])
        families += (key in of_group[None].values) + bool(with_p)
    return tuple(sorted(found, key=lambda one: one.p_value)), families


def _part(rows: Rows, name: str, horizon: float | None, level: float, p_value: float) -> PartFound:
    """Return O/E of a part of a covariate: at a horizon, or of the events over the whole follow-up."""
    if horizon is not None:
        found = calibration_at(rows, horizon, level, fewest=rows.n + 1).ratio
        shown = told(found.n_events, rows.n, rows.min_cell)
        return PartFound(name, horizon, rows.n, shown, found.value, found.lower, found.upper, p_value)
    events = int(np.count_nonzero(rows.cdf_event))
    one = np.ones(rows.n) if rows.weights is None else rows.weights
    if rows.lower is not None:
        of = events_between(rows.hazards, rows.clusters, level)
        return PartFound(
            *(name, None, rows.n, told(events, rows.n, rows.min_cell), of.value, of.lower, of.upper, p_value)
        )
    seen = float(one @ rows.cdf_event)
    ratios = [seen / float(one @ cumulative_hazard(cdf)) for cdf in rows.cdfs_since_entry]
    # Counts of events are about Poisson given the hazards lived through; sums of weights are not.
    error = 1 / max(events, 1) ** 0.5
    if rows.weights is not None:
        left = rows.cdf_event - ratios[0] * cumulative_hazard(rows.cdfs_since_entry[0])
        error = float(np.sqrt(sum_of_squares(one * left, rows.clusters))) / seen
    reach = float(np.exp(ndtri((1 + level) / 2) * error))
    shown = told(events, rows.n, rows.min_cell)
    return PartFound(name, None, rows.n, shown, ratios[0], min(ratios) / reach, max(ratios) * reach, p_value)
