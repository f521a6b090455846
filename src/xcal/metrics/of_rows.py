"""Every metric of rows in their checked form, and of resamples of them: what the table of metrics refers to.

Of each: why rows cannot be asked for it, its numbers, and what it is of resamples, from counts of the rows.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from xcal._checks import FloatArray
from xcal.calibration.dcalibration import d_calibration
from xcal.calibration.histogram import cumulative_hazard
from xcal.calibration.significance import Method, PValue
from xcal.metrics import cox, pit
from xcal.metrics import one_calibration as groups_of_risk
from xcal.metrics.auc import CountedAUC
from xcal.metrics.concordance import (
    CountedConcordance,
    antolini_indices,
    concordance_at,
    concordance_index,
    uno_weights,
)
from xcal.metrics.errors import brier_scores, integrated_scores, mean_nll, null_brier_scores
from xcal.metrics.inputs import Matrix, Vector, mean_of, told
from xcal.metrics.intervals import Distance, even_square, uneven_square
from xcal.metrics.observed import observed_risk as curve_of
from xcal.metrics.observed_expected import EventRatio, events_between, events_of
from xcal.metrics.pit import CountedCurve, CountedRedistribution, uniform_masses
from xcal.metrics.resamples import Block, kaplan_meier_product, share_lost
from xcal.metrics.rows import AtHorizon, Rows


@dataclass(frozen=True)
class Asked:
    """How numbers are wanted."""

    level: float = 0.95  # coverage of intervals
    seed: int = 0  # of simulated p-values
    simulated: bool = True  # whether the p-value of D-calibration of few rows is simulated
    in_group: bool = False  # whether the rows are a group of more, where levels of risk need more events


class Number(NamedTuple):
    """A value, with the ends of its interval where that has a formula."""

    value: float
    lower: float = float("nan")
    upper: float = float("nan")


# Numbers by their names, or why these rows do not determine them. A distance brings its floor and its excess.
Found = Mapping[str, "float | Number | Distance"] | str
Counted = Callable[[Block], Mapping[str, Vector]]


# Why rows cannot be asked for some of them.
DEPENDENT = "it counts every row as one observation, and the rows of a cluster are not"
WEIGHTED = "it counts every row once, and these rows have weights"
CURVES = "it needs survival curves"
# With fewer rows per bin than this, p-values of Akritas' test are up to twice too small far out; simulated ones hold.
_ROWS_PER_BIN = 50
_FEW_AND_MANY_DRAWS, _FAR_FROM_LIMITS = (99, 999), 0.2
# Comparing curves that are read along lines takes one step for each pair of an event and a later row; and the pairs
# times resamples up to which they are compared.
_MOST_PAIRS, _MOST_RESAMPLED_PAIRS = 5_000_000_000, 10**12
# Events by the horizon below which one level of risk cannot be told from another in a group.
FEWEST_FOR_LEVELS_IN_GROUP = 50


def _outcome(rows: Rows) -> dict[str, Any]:
    return {"time": rows.time, "event": rows.event, "weights": rows.weights}


def _curves(rows: Rows) -> dict[str, Any]:
    return {"survival": rows.survival, "times": rows.times, "interpolation": rows.interpolation}


# --- Order.


def no_order(rows: Rows) -> str | None:
    if rows.outcome.competing is not None:
        return None  # who has another event first never has this one: see `concordance`
    if rows.lower is not None:
        return rows.seen_in_part
    return "" if rows.at_risk.score is not None else "F at the observed times alone puts no rows in order"


def no_other_order(rows: Rows) -> str | None:
    late = f"{rows.seen_in_part}; Harrell's C is that of the rows at risk at each event"
    why = no_order(rows)
    return late if why == "" and rows.seen_in_part else why


def harrell(rows: Rows, horizon: None, asked: Asked) -> Found:
    own = rows.at_risk
    return {"harrell": concordance_index(**_outcome(own), predicted_time=own.score, entry=own.entry).value}


def uno(rows: Rows, horizon: None, asked: Asked) -> Found:
    given: dict[str, Any] = {**_outcome(rows), "predicted_time": rows.score, "censoring": rows.censoring}
    return {"uno": concordance_index(**given, method="uno").value}


def counted_pairs(rows: Rows, horizon: None) -> Counted:
    """Both concordances of resamples come from one pass over the pairs; people are drawn with all of their rows."""
    pairs, one = rows.at_risk.pairs, np.ones((1, rows.at_risk.n))
    person = slice(None) if rows.stretches is None else rows.stretches.person

    def draw(block: Block) -> Mapping[str, Vector]:
        weights = [one] if rows.seen_in_part else [one, uno_weights(block)]
        found = block.once("pairs", lambda: pairs.indices(block.counts[:, person], weights))
        return dict(zip(("harrell", "uno"), found, strict=False))

    return draw


def _n_pairs(rows: Rows) -> int:
    """Pairs of an event and a row that comes later in the order of times."""
    return int((rows.n - 1 - np.flatnonzero(rows.event)).sum())


def no_curve_order(rows: Rows) -> str | None:
    if (why := no_other_order(rows)) != "":
        return why
    if rows.survival is None:
        return "it compares whole survival curves"
    few = rows.interpolation != "linear" or _n_pairs(rows) <= _MOST_PAIRS
    return "" if few else f"it takes one step for each of {_n_pairs(rows):,} pairs"


def antolini(rows: Rows, horizon: None, asked: Asked) -> Found:
    return {"antolini": concordance_index(**_outcome(rows), **_curves(rows)).value}


def counted_antolini(rows: Rows, horizon: None) -> Counted:
    survival, times = rows.survival, rows.times
    assert survival is not None
    assert times is not None

    def draw(block: Block) -> Mapping[str, Vector]:
        counts = block.counts.astype(np.float32) if rows.weights is None else block.counts
        return {"antolini": antolini_indices(rows.outcome, survival, times, rows.interpolation, counts)}

    return draw


def long_antolini(rows: Rows, n_bootstrap: int) -> str:
    if _n_pairs(rows) * n_bootstrap <= _MOST_RESAMPLED_PAIRS:
        return ""
    return f"resampling it takes one step for each of {_n_pairs(rows):,} pairs and {n_bootstrap:,} resamples"


def nothing_competes(rows: Rows) -> str | None:
    return None if rows.outcome.competing is None else ""


def concordance(rows: Rows, horizon: float, asked: Asked) -> Found:
    if horizon > rows.last:
        return _NOT_FOLLOWED
    return {"concordance": concordance_at(rows.risk[horizon], horizon, rows.outcome, rows.censoring, rows.weights)}


def counted_concordance(rows: Rows, horizon: float) -> Counted:
    counted = CountedConcordance(rows.outcome, rows.risk[horizon], horizon)
    return lambda block: {"concordance": counted.values(block.counts, *block.row_weights)}


# --- Errors over all times.

_NOT_FOLLOWED = "no row was followed so long"


def no_density(rows: Rows) -> str | None:
    if rows.outcome.competing is not None:
        return None
    return "" if rows.nll is not None else "the model gives no density"


def nll(rows: Rows, horizon: None, asked: Asked) -> Found:
    return {"nll": mean_nll(rows.nll, weights=rows.weights).value}


def counted_nll(rows: Rows, horizon: None) -> Counted:
    nll = rows.nll
    assert nll is not None
    finite = bool(np.isfinite(nll).all())
    return lambda block: {"nll": block.counts @ nll / block.total if finite else np.full(block.total.size, np.nan)}


def no_integral(rows: Rows) -> str:
    if rows.survival is None or rows.times is None or rows.times.size < 2:
        return "it needs survival curves at two times or more"
    return f"{rows.seen_in_part}; Brier scores at horizons allow for them" if rows.seen_in_part else ""


def integrated_brier(rows: Rows, horizon: None, asked: Asked) -> Found:
    return {"ibs": rows.brier_over_time.value}


def counted_integral(rows: Rows, horizon: None) -> Counted:
    survival, times = rows.survival, rows.times
    assert survival is not None
    assert times is not None
    return lambda block: {"ibs": integrated_scores(brier_scores(block, survival, times), times)}


# --- Calibration at a horizon.


def of_rows_at(name: str, of: Callable[[AtHorizon, Block], Vector]) -> Callable[[Rows, float], Counted]:
    """Return what a value is of resamples, from what is known of the horizon and how often its rows were drawn."""

    def counted(rows: Rows, horizon: float) -> Counted:
        at = rows.at(horizon)
        return lambda block: {name: of(at, at.own(block))}

    return counted


def mean_expected(at: AtHorizon, own: Block) -> Vector:
    return np.asarray(own.counts @ at.risk / own.total)


def mean_observed(at: AtHorizon, own: Block) -> Vector:
    return np.asarray(own.counts @ at.values / own.total)


def mean_risk(rows: Rows, horizon: float, asked: Asked) -> Found:
    at = rows.at(horizon)
    return {"mean_risk": mean_of(at.risk, at.rows.weights)}


def ratio(rows: Rows, horizon: float, asked: Asked) -> Found:
    at = rows.at(horizon)
    if not at.is_followed:
        return _NOT_FOLLOWED
    found = at.ratio(asked.level)
    return {"oe": Number(found.value, found.lower, found.upper)}


def counted_ratio(at: AtHorizon, own: Block) -> Vector:
    expected, observed = mean_expected(at, own), mean_observed(at, own)
    return np.asarray(np.divide(observed, expected, out=np.full(expected.size, np.nan), where=expected > 0))


def observed_risk(rows: Rows, horizon: float, asked: Asked) -> Found:
    """Without an interval, so that it is resampled, where rows are in clusters."""
    at = rows.at(horizon)
    if not at.is_followed:
        return {}
    observed, own = at.ratio(asked.level).observed, at.rows
    if own.clusters is not None:
        return {"observed_risk": observed}
    if own.by_values:
        reach = float(ndtri((1 + asked.level) / 2)) * float(at.values.std(ddof=1)) / own.n**0.5
        return {"observed_risk": Number(observed, max(0.0, observed - reach), min(1.0, observed + reach))}
    low, high = curve_of(own.outcome, own.weights).interval(horizon, asked.level)
    return {"observed_risk": Number(observed, float(low), float(high))}


def _too_few(at: AtHorizon, asked: Asked) -> str:
    """Return why one level of risk cannot be told from another; "" if it can."""
    if not at.is_followed:
        return _NOT_FOLLOWED
    if at.n_events == 0:
        # Without any event the observed curve is zero, and nothing says how uncertain that is.
        return "no row has the event by then"
    if not asked.in_group or at.n_events >= FEWEST_FOR_LEVELS_IN_GROUP:
        return ""
    shown = told(at.n_events, at.rows.n, at.rows.min_cell) is not None
    count = f"{at.n_events:,} event{'' if at.n_events == 1 else 's'}" if shown else None
    count = count or f"fewer than {FEWEST_FOR_LEVELS_IN_GROUP} events"
    return f"{count} by then are too few: {FEWEST_FOR_LEVELS_IN_GROUP} are needed"


def slope(rows: Rows, horizon: float, asked: Asked) -> Found:
    at = rows.at(horizon)
    if why := _too_few(at, asked):
        return why
    found = at.slope(asked.level)
    return {
        "slope": Number(found.slope, found.slope_lower, found.slope_upper),
        "intercept": Number(found.intercept, found.intercept_lower, found.intercept_upper),
    }


def counted_slope(rows: Rows, horizon: float) -> Counted:
    """To first order a resample moves a regression by the influence of the rows that were drawn more or less often."""
    at = rows.at(horizon)
    influence = dict(zip(("slope", "intercept"), at.influence, strict=True))
    return lambda block: {name: value + at.own(block).drawn @ own for name, (value, own) in influence.items()}


def distances(rows: Rows, horizon: float, asked: Asked) -> Found:
    at = rows.at(horizon)
    if why := _too_few(at, asked):
        return why
    return at.distances(asked.level)


def counted_ici(rows: Rows, horizon: float) -> Counted:
    at = rows.at(horizon)
    smooth = at.smooths[0]
    around = at.values - at.risk - smooth.lines.at_rows(smooth.deviations)

    def draw(block: Block) -> Mapping[str, Vector]:
        curves = smooth.deviations + smooth.lines.resampled(around, at.own(block).drawn)
        return {"ici": np.abs(curves) @ smooth.lines.share}

    return draw


def no_groups_of_risk(rows: Rows) -> str | None:
    if rows.outcome.competing is not None:
        return None
    if rows.clusters is not None:
        return DEPENDENT
    return rows.seen_in_part if rows.weights is None else WEIGHTED


def one_calibration(rows: Rows, horizon: float, asked: Asked) -> Found:
    given: dict[str, Any] = {"time": rows.time, "event": rows.event, "cdf": rows.cdf, "n_risk_groups": rows.n_bins}
    return {"one_calibration_p": groups_of_risk.one_calibration(rows.risk[horizon], at=horizon, **given).p_value}


# --- AUC and Brier score at a horizon: corrected for censoring where there is a model of it.


def of_accuracy(*names: str) -> Callable[[Rows, float, Asked], Found]:
    def compute(rows: Rows, horizon: float, asked: Asked) -> Found:
        found = rows.at(horizon).accuracy
        return {name: found[name] for name in names}

    return compute


def _corrected(at: AtHorizon, block: Block) -> Mapping[str, Vector]:
    return block.once(("accuracy", at.horizon), lambda: at.corrected.accuracy(at.own(block).counts))


def counted_auc(rows: Rows, horizon: float) -> Counted:
    if rows.by_values:
        at = rows.at(horizon)
        return lambda block: {"auc": _corrected(at, block)["auc"]}
    counted = CountedAUC(rows.line, rows.risk[horizon], horizon)
    return lambda block: {"auc": counted.values(block)}


def counted_brier(rows: Rows, horizon: float) -> Counted:
    if rows.by_values:
        at = rows.at(horizon)
        return lambda block: {name: _corrected(at, block)[name] for name in ("brier", "ipa")}
    survival = 1 - rows.risk[horizon][:, None]

    def draw(block: Block) -> Mapping[str, Vector]:
        score, null = brier_scores(block, survival, np.array([horizon]))[:, 0], null_brier_scores(block, horizon)
        return {"brier": score, "ipa": 1 - np.divide(score, null, out=np.full(score.size, np.nan), where=null > 0)}

    return draw


# --- Calibration over all times.


def _d_calibration_arguments(rows: Rows) -> dict[str, Any]:
    clusters = None if rows.clusters is None else rows.clusters.codes
    given: dict[str, Any] = {"n_bins": rows.n_bins, "clusters": clusters, "weights": rows.weights}
    if rows.seen_in_part:
        return given | {"cdf_entry": rows.cdf_entry, "cdf_lower": rows.cdf_lower}
    return given | {"time": rows.time}


def no_cdf(rows: Rows) -> str | None:
    if rows.outcome.competing is not None:
        return None  # F of one cause is not even: `cause_calibration` is of all causes
    return "" if rows.cdf is not None else rows.no_cdf


def no_redistribution(rows: Rows) -> str | None:
    why = no_cdf(rows)
    return rows.seen_in_part if why == "" else why


def of_d_calibration(metric: str, method: Method | None) -> Callable[[Rows, None, Asked], Found]:
    """Compute D-calibration by one treatment of censored rows, by default that of the rows."""

    def compute(rows: Rows, horizon: None, asked: Asked) -> Found:
        how = method or rows.method
        given = _d_calibration_arguments(rows)
        result = d_calibration(rows.cdf, rows.cdf_event, method=how, p_value=None, **given)
        if how != "uniform":  # what noise leaves of it is known from resamples
            return {metric: Distance(result.value, result.floor, np.nan, np.nan, np.nan)}
        found = even_square(result.value, result.floor, rows.n_bins - 1, asked.level)
        if rows.lower is not None:
            found = _of_parts(rows, asked.level)
        return {metric: replace(found, value=result.value, floor=result.floor)}

    return compute


def _of_parts(rows: Rows, level: float) -> Distance:
    """Return what is known of D-calibration where events have parts of bins, whose noise is not the same in all."""
    residuals = (rows.bins.shares - rows.bins.widths) / rows.n
    deviation = residuals.sum(axis=0)
    if rows.clusters is not None:
        residuals = np.array([rows.clusters.sums(column) for column in residuals.T]).T
    return uneven_square(deviation, residuals, level)


def mass_deviations(method: Method | None) -> Callable[[Rows], Callable[[Block], Matrix]]:
    def prepare(rows: Rows) -> Callable[[Block], Matrix]:
        how, bins = method or rows.method, rows.bins
        if how == "uniform":
            return lambda block: uniform_masses(block, bins) - bins.widths
        assert rows.cdf is not None
        redistributed = CountedRedistribution(bins, rows.cdf_event, rows.cdf if how == "km" else rows.time)
        return lambda block: redistributed.masses(block) - bins.widths

    return prepare


def d_calibration_p(rows: Rows, horizon: None, asked: Asked) -> Found:
    """Akritas' p-value, or with few rows per bin a simulated one: both hold their size under censoring.

    With clusters it is always Akritas' statistic, beside draws in which whole clusters change their sign, and with
    weights the same with its design-based law. Where it is not known how long censored rows were seen, the largest
    p-value of all possibilities.
    """
    simple = rows.clusters is None and rows.weights is None and not rows.seen_in_part
    many = not (simple and asked.simulated) or rows.n >= _ROWS_PER_BIN * rows.n_bins
    given = {**_d_calibration_arguments(rows), "seed": asked.seed}
    if asked.simulated:
        given.pop("time", None)  # times are for a warning of ties, which an audit has drawn its F for

    def tested(cdf: FloatArray) -> float:
        if many:
            test: PValue = "akritas" if rows.lower is None else "residuals"
            found = d_calibration(cdf, rows.cdf_event, p_value=test, **given).p_value
        else:
            # What is far from any limit after a few draws needs no more of them.
            for draws in _FEW_AND_MANY_DRAWS:
                found = d_calibration(cdf, rows.cdf_event, p_value="simulated", n_simulations=draws, **given).p_value
                if found is not None and found > _FAR_FROM_LIMITS:
                    break
        return float("nan") if found is None else found

    return {"d_calibration_p": max(tested(cdf) for cdf in rows.cdfs)}


def no_causes(rows: Rows) -> str | None:
    if rows.incidence is None:
        return None
    if rows.clusters is not None:
        return DEPENDENT
    return "" if rows.weights is None else WEIGHTED


def by_cause(rows: Rows, horizon: None, asked: Asked) -> Found:
    found = rows.causes
    return {
        "cause_calibration": found.value,
        "cause_calibration_floor": found.floor,
        "cause_calibration_p": found.p_value,
    }


def quantile_slope(rows: Rows, horizon: None, asked: Asked) -> Found:
    result = pit.quantile_slope(rows.cdf, event=rows.cdf_event, weights=rows.weights)
    return {"quantile_slope": result.slope, "quantile_intercept": result.intercept}


# --- Coverage of the model's own intervals: how many rows had their event between its quantiles at two levels.

# Of the 90 % interval, and of the 90 % lower bound.
_COVERED = {"interval_coverage": (0.05, 0.95), "bound_coverage": (0.1, 1.0)}


def no_quantiles(rows: Rows) -> str | None:
    return no_redistribution(rows)


def coverage(rows: Rows, horizon: None, asked: Asked) -> Found:
    """By the Kaplan-Meier curve of F; a level that no row was followed to leaves the coverage unknown."""
    levels = sorted({level for both in _COVERED.values() for level in both if level < 1})
    curve = pit.quantile_slope(rows.cdf, event=rows.cdf_event, weights=rows.weights, levels=levels)
    before = dict(zip(levels, curve.observed, strict=True)) | {1.0: 1.0}
    return {name: float(before[high] - before[low]) for name, (low, high) in _COVERED.items()}


def counted_coverage(rows: Rows, horizon: None) -> Counted:
    cdf, event = rows.cdf, rows.cdf_event
    assert cdf is not None
    order = np.lexsort((~event, cdf))
    ordered, happened = cdf[order], event[order]

    def draw(block: Block) -> Mapping[str, Vector]:
        counts = block.counts.take(order, axis=1)
        left = kaplan_meier_product(np.where(happened, share_lost(counts, block.least), 0.0))

        def beyond(level: float) -> Vector:
            passed = np.searchsorted(ordered, level, side="right")
            unseen = (left[:, passed] > 0) & (counts[:, passed:].sum(axis=1) == 0)
            return np.where(unseen, np.nan, left[:, passed])

        return {name: beyond(low) - (beyond(high) if high < 1 else 0.0) for name, (low, high) in _COVERED.items()}

    return draw


def ratio_of_events(rows: Rows, level: float) -> tuple[list[EventRatio], Number]:
    """Return events per expected event over the time under observation, for each of `Rows.seen`, and with interval."""
    if rows.lower is not None:
        found = [events_between(rows.hazards, rows.clusters, level)]
    else:
        cdfs = rows.cdfs_since_entry
        found = [events_of(rows.cdf_event, cumulative_hazard(cdf), rows.clusters, level) for cdf in cdfs]
    return found, Number(found[0].value, min(one.lower for one in found), max(one.upper for one in found))


def event_ratio(rows: Rows, horizon: None, asked: Asked) -> Found:
    each, number = ratio_of_events(rows, asked.level)
    return {"event_ratio": number, "event_ratio_p": max(one.p_value for one in each)}


def no_mean_curve(rows: Rows) -> str:
    return rows.seen_in_part if rows.survival is not None else CURVES


def km_calibration(rows: Rows, horizon: None, asked: Asked) -> Found:
    found = pit.km_calibration(**_curves(rows), **_outcome(rows), competing=rows.outcome.competing)
    return {"km_calibration": found.value}


def curve_deviations(rows: Rows) -> Callable[[Block], Matrix]:
    assert rows.survival is not None
    assert rows.times is not None
    return CountedCurve(rows.line, rows.survival, rows.times, rows.interpolation).deviations


# --- Values of published guidelines, which assume proportional hazards: for comparison, and never for a verdict.


def no_cox_model(rows: Rows) -> str | None:
    if not any(horizon <= rows.last for horizon in rows.risk) or rows.outcome.competing is not None:
        return None
    return rows.seen_in_part if rows.weights is None else WEIGHTED


def cox_calibration(rows: Rows, horizon: None, asked: Asked) -> Found:
    at = max(horizon for horizon in rows.risk if horizon <= rows.last)
    found = cox.cox_calibration(rows.risk[at], at=at, time=rows.time, event=rows.event, level=asked.level)
    ends = (found.slope_lower, found.slope_upper), (found.intercept_lower, found.intercept_upper)
    slope, intercept = ends if rows.clusters is None else ((), ())
    return {"cox_slope": Number(found.slope, *slope), "cox_intercept": Number(found.intercept, *intercept)}


def ici_cox(rows: Rows, horizon: float, asked: Asked) -> Found:
    if horizon > rows.last:
        return {}
    found = cox.cox_ici(rows.risk[horizon], at=horizon, time=rows.time, event=rows.event)
    return {"ici_cox": found.value, "e50_cox": found.e50, "e90_cox": found.e90, "emax_cox": found.emax}
