"""Everything that an audit measures about one model, with intervals."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from xcal._checks import MANY, BoolArray, FloatArray, as_count, as_number
from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration.bins import sum_of_squares
from xcal.calibration.histogram import cumulative_hazard
from xcal.calibration.significance import holm
from xcal.calibration.subgroups import Column
from xcal.metrics.calibration_curve import CalibrationCurve, RiskDistribution, drawn_curve, risk_distribution
from xcal.metrics.errors import brier_score
from xcal.metrics.estimates import UNKNOWN, Draws, Estimates, bootstrap, estimates, net_benefits
from xcal.metrics.inputs import (
    Vector,
    at_point,
    is_small,
    mean_of,
    merged,
    merged_edges,
    reached,
    shown_range,
    told,
)
from xcal.metrics.intervals import error_of_interval, random_effects, resampled_intervals
from xcal.metrics.net_benefit import DecisionCurve, benefit
from xcal.metrics.observed import as_censoring, censoring_survival, observed_risk, turnbull
from xcal.metrics.of_rows import Asked, ratio_of_events
from xcal.metrics.pit import PitHistogram, PPCurve, bin_shares, pit_histogram, pp_curve
from xcal.metrics.pseudo_values import same_for_all
from xcal.metrics.rows import Rows, pseudo_values_of
from xcal.metrics.spec import ACROSS, ACROSS_SITES, METRICS, VALUES, Key, Role, Skipped, beside
from xcal.validation.arguments import LANDMARK, MIN_EVENTS
from xcal.validation.at_horizon import Tested, horizon_tests
from xcal.validation.for_whom import covariate_parts, dependent_censoring, measure_for_whom, usable_columns
from xcal.validation.next_steps import measure_updates
from xcal.validation.result import AtLandmark, AuditValue, CauseCells, CensoringTest, Measurements, OverTime, PartFound
from xcal.validation.sample import Sample, group_name

Progress = Callable[[int, int], None]

# --- The groups of an audit: which rows, and which are large enough to judge.

# Fewer clusters say next to nothing, of which whole ones are drawn.
MIN_CLUSTERS = 10


@dataclass(frozen=True, eq=False)
class Subgroup:
    """One group: its variable and label, its name, and its rows."""

    variable: str
    label: str
    name: str
    rows: Rows


def subgroups(sample: Sample, rows: Rows) -> tuple[list[Subgroup], list[Skipped]]:
    """Find the groups to judge, and the names of those that are too small with what is lacking.

    The name of a group of very few rows may itself be that of a person: such groups are counted, and not named.
    """
    judged, skipped, unnamed = [], [], 0
    for variable, label, name, own in rows_of_groups(sample):
        if is_small(int(np.count_nonzero(own)), rows.min_cell):
            unnamed += 1
            continue
        members = rows.take(own)
        if why := too_few_to_judge(members):
            skipped.append(Skipped("group", why, group=name))
        else:
            judged.append(Subgroup(variable, label, name, members))
    if unnamed:
        groups = f"{unnamed} group{'' if unnamed == 1 else 's'} of fewer than {rows.min_cell} rows"
        why = "so few rows could be one person: neither names nor numbers are shown (min_cell=0 or --min-cell 0 does)"
        skipped.append(Skipped("group", why, group=groups))
    return judged, skipped


def too_few_to_judge(rows: Rows) -> str:
    """Return why some rows are too few to be judged; "" if they are not."""
    n, n_events, min_cell = rows.n, int(np.count_nonzero(rows.event)), rows.min_cell
    if n_events < MIN_EVENTS:
        known = min_cell < 2 or (n_events > 0 and told(n_events, n, min_cell) is not None)
        events = f"{n_events} event{'' if n_events == 1 else 's'}" if known else f"fewer than {MIN_EVENTS} events"
        return f"{events} in {n:,} rows: too few to judge, at least {MIN_EVENTS} are needed"
    if rows.clusters is not None and rows.clusters.count < MIN_CLUSTERS:
        return f"{rows.clusters.count} clusters of rows: too few to judge, at least {MIN_CLUSTERS} are needed"
    return ""


def rows_of_groups(sample: Sample) -> Iterator[tuple[str, str, str, BoolArray]]:
    """Return variable, label, name and rows of every group, whatever its size."""
    for variable, labels in sample.groups.items():
        for label in np.unique(labels):
            yield variable, str(label), group_name(variable, str(label)), labels == label


# --- Everything that is measured.

# P-value, corrected within the family of parts, below which what was found in a part of a covariate is kept for the
# verdict: it tells what is off from what is in doubt.
PART_LEVEL = 0.1
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
    rows, columns, left_out, censoring = _prepared(sample)
    judged, too_small = subgroups(sample, rows)
    come, too_few = _landmarks(sample)
    too_small += too_few
    drawn = [_Resamples(n_bootstrap, (seed,), most_rows)]
    within = [*judged, *come]
    drawn += [_Resamples(n_bootstrap, (seed, k + 1), _share(most_rows, g.rows.n, rows.n)) for k, g in enumerate(within)]
    sizes = [rows.n, *(group.rows.n for group in within)]
    steps = _Steps(progress, n_bootstrap * sum(one.of(n) for one, n in zip(drawn, sizes, strict=True)))
    whole = _measure_rows(rows, None, "all", level, drawn[0], steps, sample.thresholds)
    parts = [
        _measure_rows(
            group.rows,
            group.name,
            "all" if group.variable == LANDMARK else "sites" if group.variable == sample.site else "groups",
            level,
            resamples,
            steps,
        )
        for group, resamples in zip(within, drawn[1:], strict=True)
    ]
    groups = {name: own for *_, name, own in rows_of_groups(sample)}
    sites = {group.name: group for group in within if sample.site and group.variable == sample.site}
    small = next((name for name, group in sites.items() if group.label == sample.small_sites != ""), "")
    _put_across_sites([part for part in parts if part.group in sites and part.group != small], whole, level)
    found_parts, families = _put_tests(rows, columns, groups, come, [whole, *parts], level, seed)
    for_whom = measure_for_whom(sample, rows, columns, left_out, whole.estimates, level=level, seed=seed)
    updates, not_updated = measure_updates(rows, level, seed)
    everything = (whole, *parts)
    pp = _pp(rows, level, whole.estimates)
    risks, hidden = _risks(rows)
    skipped = [*sample.unreached, *_too_late(sample), *too_small, *hidden, *not_updated]
    for part in everything:
        skipped += [replace(one, group=part.group) for one in (*part.estimates.skipped, *part.draws.skipped)]
    if censoring is not None and censoring.corrected:
        censoring = replace(censoring, uncorrected=_uncorrected(rows))
    return Measurements(
        values=tuple(value for part in everything for value in part.table(level)),
        calibration=tuple(curve for part in everything for curve in part.calibration),
        decision=whole.decision,
        risks=risks,
        pit=tuple(histogram for part in everything for histogram in part.pit),
        pp=pp,
        over_time=over_time(rows, level),
        skipped=tuple(skipped),
        draws={replace(key, group=part.group): v for part in everything for key, v in part.draws.values.items()},
        for_whom=for_whom,
        parts=found_parts,
        ibs_range=_ibs_range(rows, whole.estimates),
        n_families=max(1, families + (for_whom is not None)),
        censoring=censoring,
        seen=_by_part_seen(rows, level),
        sites=tuple(sites),
        small_sites=small,
        landmarks=tuple(_at_risk(group, sample) for group in come),
        updates=updates,
        cells=_cells(rows, whole.estimates),
    )


def _prepared(
    sample: Sample,
) -> tuple[Rows, tuple[Column, ...], tuple[tuple[str, str], ...], CensoringTest | None]:
    """Return the rows with the model of their censoring that values need, their covariates, and the test of it."""
    columns, left_out = usable_columns(sample)
    found, model = dependent_censoring(sample.rows, columns, sample.censoring)
    late = sample.rows.entry is not None and sample.rows.lower is None
    if model is None and late:  # what happened by a horizon is then known by such a model alone
        model = same_for_all(sample.rows.outcome)
    return replace(sample.rows, censoring_model=model), columns, left_out, found


def _landmarks(sample: Sample) -> tuple[list[Subgroup], list[Skipped]]:
    """Return those who have come to each landmark, and what cannot be said of them with the reason."""
    judged, skipped = [], []
    for one in sample.landmarks:
        why = one.why if one.sample is None else too_few_to_judge(one.sample.rows)
        if one.sample is None or why:
            skipped.append(Skipped("group", why, group=one.name))
            continue
        unreached = (*one.sample.unreached, *_too_late(one.sample))
        skipped += [replace(each, group=one.name) for each in unreached]
        judged.append(Subgroup(LANDMARK, f"{one.at:g}", one.name, _prepared(one.sample)[0]))
    return judged, skipped


def _too_late(sample: Sample) -> Iterator[Skipped]:
    late = "few rows are still under observation then (horizons= or --horizons asks for it)"
    return (Skipped("horizon", late, horizon=t) for t in sample.not_judged)


def _at_risk(group: Subgroup, sample: Sample) -> AtLandmark:
    """Count those who have come to a landmark; not what few of them had."""
    (at,) = (one.at for one in sample.landmarks if one.name == group.name)
    rows = group.rows
    return AtLandmark(at, group.name, rows.n, told(int(rows.event.sum()), rows.n, rows.min_cell))


def _cells(rows: Rows, found: Estimates) -> tuple[CauseCells, ...]:
    """Return the cells of D-calibration by cause; those of few events are merged with their neighbours."""
    if Key("cause_calibration") not in found.values:
        return ()
    one, few = rows.causes, rows.min_cell
    apart = np.all([np.diff(merged(events.astype(np.int64), few)) > 0 for events in one.events], axis=0)
    label = np.append(0, np.cumsum(apart))  # the same bins for all causes
    edges = merged_edges(one.edges, label)
    each = zip(rows.outcome.causes, one.events, one.expected_events, strict=True)
    return tuple(
        CauseCells(name, edges, *(np.bincount(label, weights=own).astype(np.float64) for own in (events, expected)))
        for name, events, expected in each
    )


def _ibs_range(rows: Rows, found: Estimates) -> tuple[float, float] | None:
    """Return the times from and to which the integrated Brier score is averaged."""
    score = rows.brier_over_time if Key("ibs") in found.values else None
    return None if score is None else shown_range(score.start, score.stop, rows.min_cell)


def _by_part_seen(rows: Rows, level: float) -> dict[float, tuple[float, ...]]:
    """Return O/E for each way to read coarse times, where it is not known how long censored rows were seen."""
    if len(rows.seen) == 1:
        return {}
    return {h: tuple(one.value for one in rows.at(h).ratios(level)) for h in rows.risk if rows.at(h).is_followed}


def _risks(rows: Rows) -> tuple[tuple[RiskDistribution, ...], list[Skipped]]:
    """Return the risks by outcome, but where an outcome is that of a few rows."""
    found, hidden, few = [], [], rows.min_cell
    for horizon in rows.risk:
        own = rows.at(horizon).rows
        given: dict[str, Any] = {"time": own.time, "event": own.event, "weights": own.weights}
        given["competing"] = own.outcome.competing
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


def _uncorrected(rows: Rows) -> tuple[AuditValue, ...]:
    """Return values at horizons as they are if censoring is taken to be independent of everything."""
    plain = replace(rows, censoring_model=None if rows.entry is None else same_for_all(rows.outcome))
    found = estimates(plain, ("oe", "auc", "brier"), Asked())
    keys = [Key(name, h) for h in rows.risk for name in ("oe", "auc", "brier", "ipa")]
    return tuple(AuditValue(k.metric, k.horizon, None, found.values[k], *UNKNOWN) for k in keys if k in found.values)


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
            excess, floor = (replace(key, metric=beside(key.metric, role)) for role in _OF_SQUARES)
            if key not in values or excess in values:
                continue
            distance = self.draws.distance(key, values[key], level)
            values[excess], intervals[excess] = distance.excess, (distance.lower, distance.upper)
            values.setdefault(floor, distance.floor)
        keys = sorted(values, key=lambda key: (_ORDER[key.metric], key.horizon or 0.0))
        return [
            AuditValue(key.metric, key.horizon, self.group, values[key], *intervals.get(key, UNKNOWN)) for key in keys
        ]

    def _interval(self, key: Key, level: float) -> tuple[float, float]:
        if key in self.estimates.intervals:
            return self.estimates.intervals[key]
        return self.draws.interval(key, self.estimates.values[key], level) if self.draws.n else UNKNOWN


_OF_SQUARES: tuple[Role, ...] = ("excess", "floor")


def _measure_rows(
    rows: Rows,
    group: str | None,
    scope: Literal["all", "sites", "groups"],
    level: float,
    resamples: _Resamples,
    steps: Callable[[int], None],
    thresholds: Vector | None = None,
) -> _Measured:
    """Values, resamples and curves of one set of rows; a decision curve where there are thresholds."""
    names = [name for name, one in METRICS.items() if one.audited and one.within in _WITHIN[scope]]
    found = estimates(rows, names, Asked(level, resamples.seed[0], in_group=scope != "all"))
    given: dict[str, Any] = {"thresholds": thresholds, "most_rows": resamples.most_rows, "progress": steps}
    draws = bootstrap(rows, found, resamples.n, resamples.seed, **given)
    calibration, decision = [], []
    shown: dict[str, Any] = {"group": group, "level": level, "min_cell": rows.min_cell, "weights": rows.weights}
    for horizon in rows.risk:
        at = rows.at(horizon)
        smooth = at.smooths[0] if Key("ici", horizon) in found.values else None
        values = at.values if at.is_followed and rows.seen_in_part else None
        calibration.append(drawn_curve(at.risk, at.rows.outcome, horizon, smooth, values=values, **shown))
        if thresholds is not None and thresholds.size and at.is_followed:
            benefits = _decision(rows, horizon, level, thresholds)
            if horizon in draws.benefit:
                lower, upper = resampled_intervals(benefits.model, draws.benefit[horizon], level)
                benefits = replace(benefits, lower=lower, upper=upper)
            decision.append(_of_enough_rows(benefits, at.risk, rows.min_cell))
    return _Measured(group, found, draws, tuple(calibration), tuple(decision), _pit(rows, group))


# Which metrics are asked for: of all rows and those who come to a landmark, of sites, of other groups.
_WITHIN = {"all": ("all", "sites", "groups"), "sites": ("sites", "groups"), "groups": ("groups",)}


def _decision(rows: Rows, horizon: float, level: float, thresholds: Vector) -> DecisionCurve:
    model = net_benefits(rows, horizon, thresholds)
    everybody = np.asarray(benefit(1.0, rows.at(horizon).ratio(level).observed, thresholds))
    return DecisionCurve(
        horizon, thresholds, model, np.full_like(model, np.nan), np.full_like(model, np.nan), everybody
    )


def _of_enough_rows(curve: DecisionCurve, risk: Vector, min_cell: int) -> DecisionCurve:
    """Leave out thresholds that part a few rows from all others: net benefit tells what happened to these."""
    above = np.array([np.count_nonzero(risk >= threshold) for threshold in curve.threshold])
    few = np.array([told(int(count), risk.size, min_cell) is None for count in above], dtype=np.bool_)
    model, lower, upper = (np.where(few, np.nan, part) for part in (curve.model, curve.lower, curve.upper))
    return replace(curve, model=model, lower=lower, upper=upper)


def _pit(rows: Rows, group: str | None) -> tuple[PitHistogram, ...]:
    if rows.cdf is None:
        return ()
    given: dict[str, Any] = {"min_cell": rows.min_cell, "entry": rows.cdf_entry, "lower": rows.cdf_lower}
    bins = bin_shares(rows.cdf, rows.cdf_event, **given)
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
        found.skipped.append(Skipped("P-P curve", why if rows.lower is None else rows.seen_in_part))
        return None
    return pp_curve(rows.cdfs_since_entry[0], event=rows.cdf_event, level=level)


def _put_across_sites(sites: list[_Measured], whole: _Measured, level: float) -> None:
    """Add what the values of the sites have in common: their mean, how much they differ, and those of a new site."""
    if len(sites) < FEWEST_SITES:
        return
    tables = [{Key(one.metric, one.horizon): one for one in site.table(level)} for site in sites]
    for key in tables[0]:
        if key.metric not in ACROSS_SITES:
            continue
        scale, found = ACROSS_SITES[key.metric], [table[key] for table in tables if key in table]
        with np.errstate(divide="ignore"):
            errors = [error_of_interval(one.lower, one.upper, level, scale) for one in found]
            usable = [
                bool(np.isfinite([e, scale[0](one.value)]).all() and e > 0)
                for e, one in zip(errors, found, strict=True)
            ]
        named = {role: replace(key, metric=beside(key.metric, role)) for role in ACROSS}
        if sum(usable) < FEWEST_SITES:
            few = f"fewer than {FEWEST_SITES} sites have it with an interval"
            whole.estimates.skipped.append(Skipped(named["sites"].metric, few, key.horizon))
            continue
        values = [one.value for one, use in zip(found, usable, strict=True) if use]
        known = [e for e, use in zip(errors, usable, strict=True) if use]
        across = random_effects(values, known, level=level, scale=scale)
        whole.estimates.put(named["sites"], across.mean, (across.lower, across.upper))
        whole.estimates.put(named["new_site"], across.mean, (across.new_lower, across.new_upper))
        whole.estimates.put(named["sites_tau2"], across.tau2)
        whole.estimates.put(named["sites_i2"], across.i2)


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
    for key, tested in tests.items():
        if key.group in parts:
            if tested.corrected < PART_LEVEL:
                found.append(_part(rows.take(parts[key.group]), key.group, key.horizon, level, tested.corrected))
        elif key.group in of_group:
            _put_test(of_group[key.group], key, tested)
    for landmark in come:
        for key, tested in horizon_tests(landmark.rows, {}, {}, seed=seed).items():
            corrected = min(1.0, tested.corrected * len(come))
            _put_test(of_group[landmark.name], key, replace(tested, corrected=corrected))
    families = len({None if key.group is None else key.group in parts for key in tests}) + bool(come)
    for metric in ("d_calibration", "event_ratio"):
        p, corrected_p = Key(beside(metric, "p")), Key(beside(metric, "p_corrected"))
        with_p = {name: part for name, part in of_group.items() if name is not None and p in part.values}
        of_all = dict.fromkeys([*groups, *(landmark.name for landmark in come)], 1.0)
        holms = holm(of_all | {name: part.values[p] for name, part in with_p.items()})
        for name, part in with_p.items():
            part.put(corrected_p, holms[name])
        families += (p in of_group[None].values) + bool(with_p)
    return tuple(sorted(found, key=lambda one: one.p_value)), families


def _put_test(found: Estimates, key: Key, tested: Tested) -> None:
    """Add the p-values of a test to the value that it is about, where that was measured."""
    if Key(key.metric, key.horizon) in found.values:
        found.put(Key(beside(key.metric, "p"), key.horizon), tested.p_value)
        found.put(Key(beside(key.metric, "p_corrected"), key.horizon), tested.corrected)


def _part(rows: Rows, name: str, horizon: float | None, level: float, p_value: float) -> PartFound:
    """Return O/E of a part of a covariate: at a horizon, or of the events over the whole follow-up."""
    if horizon is not None:
        found = rows.at(horizon).ratio(level)
        shown = told(found.n_events, rows.n, rows.min_cell)
        return PartFound(name, horizon, rows.n, shown, found.value, found.lower, found.upper, p_value)
    events = int(np.count_nonzero(rows.cdf_event))
    shown = told(events, rows.n, rows.min_cell)
    if rows.lower is not None:
        _, number = ratio_of_events(rows, level)
        return PartFound(name, None, rows.n, shown, *number, p_value)
    one = np.ones(rows.n) if rows.weights is None else rows.weights
    seen = float(one @ rows.cdf_event)
    ratios = [seen / float(one @ cumulative_hazard(cdf)) for cdf in rows.cdfs_since_entry]
    # Counts of events are about Poisson given the hazards lived through; sums of weights are not.
    error = 1 / max(events, 1) ** 0.5
    if rows.weights is not None:
        left = rows.cdf_event - ratios[0] * cumulative_hazard(rows.cdfs_since_entry[0])
        error = float(np.sqrt(sum_of_squares(one * left, rows.clusters))) / seen
    reach = float(np.exp(ndtri((1 + level) / 2) * error))
    return PartFound(name, None, rows.n, shown, ratios[0], min(ratios) / reach, max(ratios) * reach, p_value)


# --- Curves over time: outcomes, mean prediction, rows at risk, censoring, Brier score.

_POINTS, _CORRECTED_POINTS = 101, 21


def over_time(rows: Rows, level: float) -> OverTime:
    """Everything at 101 equally spaced times from 0 to the last that enough rows have reached.

    One column of predictions at a time.
    """
    times = np.linspace(0.0, reached(rows.time, rows.min_cell), _POINTS)
    rows = rows.at_risk
    if rows.lower is not None:
        return _of_intervals(rows, rows.lower, times)
    if rows.entry is not None:
        return _from_entry(rows, rows.entry, times, level)
    curve = observed_risk(rows.outcome, rows.weights)
    survived, observed = curve.without(times), curve.at(times)
    high, low = (1 - end for end in curve.interval(times, level))
    if rows.censoring_model is not None and rows.survival is not None:
        observed, low, high = _corrected(rows, times, level)
    predicted, brier = np.full(times.size, np.nan), np.full(times.size, np.nan)
    censoring = as_censoring(rows.censoring, rows.outcome, rows.weights)
    given: dict[str, Any] = {"time": rows.time, "event": rows.event, "weights": rows.weights, "censoring": censoring}
    given["competing"] = rows.outcome.competing
    if rows.survival is not None and rows.times is not None:
        for k in np.flatnonzero(times <= rows.times[-1]):
            survival = np.clip(at_point(rows.survival, rows.times, float(times[k]), rows.interpolation), 0.0, 1.0)
            predicted[k] = 1 - mean_of(survival, rows.weights)
            brier[k] = brier_score(survival, times[k], **given).values[0]
    return OverTime(
        times=times,
        observed=observed,
        observed_lower=1 - high,
        observed_upper=1 - low,
        predicted=predicted,
        at_risk=(rows.n - np.searchsorted(rows.time, times, side="left")).astype(np.int64),
        uncensored=censoring.at(times) if rows.censoring is None else _own_censoring(rows, times),
        brier=brier,
        brier_null=_null_brier(rows, times, survived),
        by="Kaplan-Meier" if rows.outcome.competing is None else "Aalen-Johansen",
    )


def _from_entry(rows: Rows, entry: FloatArray, times: Vector, level: float) -> OverTime:
    """Kaplan-Meier of rows that are at risk from their entry on, and what the model expects of it.

    From one time to the next, the expected curve falls by the mean risk of those at risk at the first: whoever these
    are, the two curves of a true model agree but for chance.
    """
    curve = fit_kaplan_meier(rows.time, rows.event, entry=entry)
    low, high = curve.interval(times, level)
    expected, unknown = np.ones(times.size), np.full(times.size, np.nan)
    at_risk = np.array([np.count_nonzero((entry < t) & (rows.time >= t)) for t in times])
    if rows.survival is None or rows.times is None:
        expected = unknown
    else:
        before = np.ones(rows.n)
        for k in range(1, times.size):
            own = at_point(rows.survival, rows.times, float(times[k]), rows.interpolation).astype(np.float64)
            here = (entry <= times[k - 1]) & (rows.time > times[k - 1]) & (before > 0)
            kept = own[here] / before[here]
            expected[k] = expected[k - 1] * float(np.clip(kept, 0.0, 1.0).mean() if here.any() else 1.0)
            before = own
        expected[times > rows.times[-1]] = np.nan
    return OverTime(
        times=times,
        observed=1 - curve.at(times),
        observed_lower=1 - high,
        observed_upper=1 - low,
        predicted=1 - expected,
        at_risk=at_risk.astype(np.int64),
        uncensored=fit_kaplan_meier(rows.time, rows.event, "censoring", entry=entry).at(times),
        brier=unknown,
        brier_null=unknown,
    )


def _of_intervals(rows: Rows, lower: FloatArray, times: Vector) -> OverTime:
    """Turnbull's curve, with the range that the intervals leave open, beside the mean prediction; with entry neither.

    No formula for its error holds for visits at any times, nor do resamples.
    """
    unknown = np.full(times.size, np.nan)
    low, high, predicted = unknown, unknown, unknown
    if rows.entry is None:
        low, high = turnbull(lower=lower, upper=np.where(rows.event, rows.time, np.inf)).bounds(times)
        predicted = unknown.copy()
        if rows.survival is not None and rows.times is not None:
            for k in np.flatnonzero(times <= rows.times[-1]):
                predicted[k] = 1 - at_point(rows.survival, rows.times, float(times[k]), rows.interpolation).mean()
    entry = np.zeros(rows.n) if rows.entry is None else rows.entry
    return OverTime(
        times=times,
        observed=1 - (low + high) / 2,
        observed_lower=1 - high,
        observed_upper=1 - low,
        predicted=predicted,
        at_risk=np.array([np.count_nonzero((entry < t) & (rows.time >= t)) for t in times], dtype=np.int64),
        uncensored=unknown,
        brier=unknown,
        brier_null=unknown,
        by="Turnbull",
    )


def _corrected(rows: Rows, times: Vector, level: float) -> tuple[Vector, Vector, Vector]:
    """Return the observed risk, and the ends of the interval of survival, by doubly robust pseudo-values.

    At some of the times, and along straight lines between them; NaN past the end of the curves.
    """
    assert rows.times is not None
    at = np.linspace(0.0, min(float(rows.times[-1]), float(rows.last)), _CORRECTED_POINTS)
    mean, reach = np.zeros(at.size), np.zeros(at.size)
    for k, t in enumerate(at[1:], 1):
        values = pseudo_values_of(rows, float(t), rows.seen[0])
        mean[k], reach[k] = values.mean(), float(ndtri((1 + level) / 2)) * values.std() / rows.n**0.5
    # What has happened stays: an estimate that falls is noise.
    mean = np.clip(np.maximum.accumulate(mean), 0.0, 1.0)
    ends = [np.clip(1 - mean + side * reach, 0.0, 1.0) for side in (-1, 1)]
    observed, low, high = (np.where(times <= at[-1], np.interp(times, at, y), np.nan) for y in (mean, *ends))
    return observed, low, high


def _own_censoring(rows: Rows, times: Vector) -> Vector:
    """Share of these rows not yet censored, where the weights come from training rows."""
    return fit_kaplan_meier(rows.time, rows.outcome.ended, "censoring", rows.weights).at(times)


def _null_brier(rows: Rows, times: Vector, survival: Vector) -> Vector:
    """Brier score of one curve for everybody: the two sums of its formula need no rows times times."""
    censoring = as_censoring(rows.censoring, rows.outcome, rows.weights)
    one = np.ones(rows.n) if rows.weights is None else rows.weights
    total = np.append(0.0, np.cumsum(one))
    g_row, _ = censoring_survival(censoring, rows.time, left_limit=True)
    g_time, known = censoring_survival(censoring, times, left_limit=False)
    passed = np.searchsorted(rows.time, times, side="right")
    dead = np.append(0.0, np.cumsum(one * rows.event / g_row))[passed]
    alive = (total[-1] - total[passed]) / g_time
    if rows.outcome.competing is not None:
        alive = alive + np.append(0.0, np.cumsum(one * rows.outcome.competing / g_row))[passed]
    score = (dead * survival**2 + alive * (1 - survival) ** 2) / total[-1]
    return np.where(known & (times < rows.last), score, np.nan)
