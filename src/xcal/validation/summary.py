"""The rows of an audit at a glance, and what about them limits trust in which values."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from xcal._kaplan_meier import fit_kaplan_meier
from xcal.calibration.dcalibration import are_coarse
from xcal.data.features import column_kind
from xcal.data.surv import Outcome
from xcal.metrics.inputs import in_words, is_small, reached, rounded_time
from xcal.metrics.observed import follow_up
from xcal.metrics.rows import Rows
from xcal.show.charts import p_in_words
from xcal.validation.result import Concern, DataSummary, Measurements
from xcal.validation.sample import Sample
from xcal.validation.words import listed

# Events below which intervals of calibration are too wide to be of use (Collins, Ogundimu, Altman 2016 ask for 100,
# better 200), and below which hardly anything can be said.
ENOUGH_EVENTS, FEWEST_EVENTS = 100, 20
# Share of censored rows from which censored ones decide what is estimated.
HEAVY_CENSORING = 0.8
# Clusters of rows from which intervals by drawing whole clusters hold what they promise; `studies.clusters`.
ENOUGH_CLUSTERS = 50
# Rows under observation at a horizon below which the estimate there is of little use.
FEW_AT_RISK = 20
# Share of rows that are equal in all covariates from which they may be several rows of one patient, and rows of one
# value up to which a column may hold the ids of patients.
REPEATED, MOST_ROWS_PER_ID = 0.05, 100
_ID = re.compile(r"(^|[_.\s])(id|ids|pid|mrn|patient|subject|person|participant)($|[_.\s]|id$|nr$|no$)", re.IGNORECASE)
# Level of the tests that compare the rows with the training rows, divided by their number.
DIFFERENT = 0.01
# Share of rows past the end of the curves from which D-calibration is much affected.
MUCH_PAST = 0.1


@dataclass(frozen=True, eq=False)
class Training:
    """Features of the audited rows, and features and outcomes of the training rows, where they are known."""

    X: Any = None
    training_X: Any = None
    outcome: Outcome | None = None


def summarise_data(sample: Sample, training: Training, measured: Measurements) -> DataSummary:
    """Count rows, events, ties and rows past the curves, and say what is of concern."""
    rows, few = sample.rows, sample.rows.min_cell
    time, event, ended, weights = rows.time, rows.event, rows.outcome.ended, rows.weights
    _, counts = np.unique(time, return_counts=True)
    end = np.inf if rows.times is None else float(rows.times[-1])
    beyond = int(np.count_nonzero(time > end))
    tied = int(counts[counts > 1].sum())
    followed = follow_up(time=time, event=ended, weights=weights, entry=rows.entry).median
    concerns = [
        *_of_events(rows, few),
        *_of_causes(sample),
        *_of_clusters(rows),
        *_of_people(rows),
        *_of_entry(rows),
        *_of_intervals(rows),
        *_of_weights(rows, training),
        *_of_repeated_rows(sample, training.X),
        *_of_coarse_times(sample, measured),
        *_of_censoring(measured),
        *_of_curves(beyond, end, time.size, few),
        *_of_horizons(sample),
        *_of_training(sample, training),
    ]
    return DataSummary(
        n=time.size,
        n_events=int(np.count_nonzero(event)),
        last_time=reached(time, few),
        median_follow_up=followed if few < 2 or np.isnan(followed) else rounded_time(followed),
        n_tied_times=None if is_small(tied, few) else tied,
        n_past_grid=None if is_small(beyond, few) else beyond,
        concerns=tuple(concerns),
        compared_with_training=training.outcome is not None and weights is None,
        n_clusters=None if rows.clusters is None else rows.clusters.count,
        n_effective=None if weights is None else float(weights.sum()),
    )


def _of_events(rows: Rows, min_cell: int) -> Iterator[Concern]:
    time, event = rows.time, rows.event
    found, n = int(np.count_nonzero(event)), time.size
    if found < ENOUGH_EVENTS:
        few = found < FEWEST_EVENTS
        effect = "All intervals are wide" + (
            ", and those by resampling may be too short: do not read anything but large errors from them."
            if few
            else "; a good value may be chance, and small errors of calibration cannot be seen."
        )
        yield Concern(f"Few events: {found:,}, where {ENOUGH_EVENTS} or more are advised", effect, few)
    censored = 1 - int(np.count_nonzero(rows.outcome.ended)) / n
    if censored >= HEAVY_CENSORING:
        effect = (
            "D-calibration sees mostly small values of F, and errors late in time remain hidden; Brier scores and AUC "
            "rest on few, heavily weighted rows."
        )
        yield Concern(f"Heavy censoring: {censored:.0%} of the rows", effect, False)
    if (at_zero := int(np.count_nonzero(event & (time <= 0)))) > 0:
        effect = (
            "Their F is 0 in most models: D-calibration and the likelihood suffer from it, values at horizons do not."
        )
        yield Concern(f"{in_words(at_zero, min_cell).capitalize()} events at time 0", effect, at_zero > found / 10)


def _of_causes(sample: Sample) -> Iterator[Concern]:
    """Say that one event was audited where the rows have several."""
    causes = sample.rows.outcome.causes
    if causes and sample.predictions.incidence is None:
        effect = (
            "The predictions say of no cause which it is: they are judged as the probability of any event. One minus "
            "Kaplan-Meier of one cause, with the others as censored, is not a risk: it overstates how many have the "
            "event. cause= (--event-value) judges them as the risk of one cause, beside Aalen-Johansen."
        )
        yield Concern(f"Events of {len(causes)} causes: {', '.join(causes)}", effect, serious=True)


def _of_clusters(rows: Rows) -> Iterator[Concern]:
    if rows.clusters is None:
        return
    count = rows.clusters.count
    few = count < ENOUGH_CLUSTERS
    effect = (
        "Intervals, floors and the test of D-calibration count whole clusters. The bands around Kaplan-Meier and P-P "
        "curves and the bars of risk groups in the pictures count rows, and are too narrow."
    )
    if few:
        effect += f" With fewer than {ENOUGH_CLUSTERS} clusters the intervals are somewhat too narrow, too."
    yield Concern(f"Rows that depend on each other: {rows.n:,} rows in {count:,} clusters", effect, few)


def _of_people(rows: Rows) -> Iterator[Concern]:
    if rows.stretches is None:
        return
    effect = (
        "F of a person is 1 - exp(-H), with H the hazard summed along the rows: people are counted, not rows. "
        "There are no risks by a horizon, which depend on covariates that nobody knows before. Groups and covariates "
        "are those of the first row."
    )
    many = f"{rows.stretches.rows.n:,} rows of {rows.n:,} people"
    yield Concern(f"Covariates that change: {many}", effect, False)


def _of_entry(rows: Rows) -> Iterator[Concern]:
    if rows.entry is None:
        return
    late = int(np.count_nonzero(rows.entry > 0))
    effect = (
        "Rows count from their entry on: risks are those of a row that has come so far, and observed values are those "
        "of the rows at risk. What has no meaning for such rows is left out, with the reason. Entry must not depend on "
        "what the model does not know."
    )
    many = in_words(late, rows.min_cell)
    yield Concern(f"Delayed entry: {many} of {rows.n:,} rows came under observation after time 0", effect, False)
    if rows.lower is not None:
        return
    curve = fit_kaplan_meier(rows.time, rows.event, entry=rows.entry)
    emptied = (curve.counts == curve.at_risk) & (curve.counts > 0) & (curve.times < curve.times[-1])
    if emptied.any():
        t = rounded_time(float(curve.times[emptied][0]))
        effect = (
            "Kaplan-Meier is 0 from there on: the observed curve over time and the IPA are of no use. Give landmarks="
            " (--landmarks) a later time, from which on enough rows are at risk."
        )
        yield Concern(f"All rows that had entered by time {t:g} had the event then", effect, True)


def _of_intervals(rows: Rows) -> Iterator[Concern]:
    if rows.lower is None:
        return
    inside = int(np.count_nonzero(rows.event & (rows.lower < rows.time)))
    effect = (
        "D-calibration, likelihood and tests use what is known of each event and no more. Values at horizons come from "
        "what the intervals leave open by the model's curves, recalibrated to these rows: they are right where the "
        "model is, nearly so where intervals are short beside the horizon, and too close to the model where they are "
        "not. Concordance and other comparisons of known times are left out, with the reason. Visits must not depend "
        "on what the model does not know."
    )
    many = in_words(inside, rows.min_cell)
    yield Concern(f"Events between two times: {many} of {rows.n:,} rows", effect, False)


def _of_weights(rows: Rows, training: Training) -> Iterator[Concern]:
    if rows.weights is None:
        return
    effective, n = float(rows.weights.sum()), rows.n
    effect = (
        "All values are weighted, and their errors, floors and tests are design-based. One-calibration, the P-P curve, "
        "values by Cox models and the search for a subgroup take no weights and are left out."
    )
    if training.outcome is not None:
        effect += " They are not compared with the training rows, whose censoring curve is not used either."
    yield Concern(f"Weighted rows: {n:,}, whose means are as noisy as those of {effective:,.0f}", effect, False)


def _of_repeated_rows(sample: Sample, X: Any) -> Iterator[Concern]:
    """Look for several rows of one patient where nobody said so."""
    if sample.rows.clusters is not None:
        return
    what = _named_ids(X) or _equal_covariates(sample)
    if what:
        effect = (
            "Rows of one patient depend on each other: intervals that count them as independent are too narrow, tests "
            "too sure, and two equal models seem to differ. If these are such rows, name the column of patients "
            "(clusters=, in xcal audit --clusters, in xcal fit --group)."
        )
        yield Concern(f"Perhaps several rows per patient: {what}", effect, serious=True)


def _named_ids(X: Any) -> str:
    """Name a column that is called an id and has values that occur several times; "" if there is none."""
    if not hasattr(X, "columns"):
        return ""
    for name in X.columns:
        if not _ID.search(str(name)):
            continue
        values = np.asarray(X[name]).astype(str)
        different = np.unique(values).size
        if 1 < different < 0.95 * values.size and values.size <= MOST_ROWS_PER_ID * different:
            return f"column {str(name)!r} has {different:,} different values in {values.size:,} rows"
    return ""


def _equal_covariates(sample: Sample) -> str:
    """Return how many rows share all covariates with another row, where that is no chance; "" if it may be."""
    numeric = [column.values for column in sample.covariates if column.labels is None]
    # Two columns of many values each: equal in both, and in all others, is hardly chance.
    if sum(np.unique(values).size > sample.rows.n / 10 for values in numeric) < 2:
        return ""
    _, place, counts = np.unique(
        np.column_stack([column.values for column in sample.covariates]),
        axis=0,
        return_inverse=True,
        return_counts=True,
    )
    shared = int(np.count_nonzero(counts[place.ravel()] > 1))
    return f"{shared:,} rows share all covariates with another row" if shared > REPEATED * sample.rows.n else ""


def _of_coarse_times(sample: Sample, measured: Measurements) -> Iterator[Concern]:
    if (
        sample.last_seen == "exact"
        or sample.rows.lower is not None
        or not are_coarse(sample.rows.time, sample.rows.event)
    ):
        return
    what = f"Times in whole units: {np.unique(sample.rows.time).size:,} different ones in {sample.rows.n:,} rows"
    if sample.rows.survival is None and sample.rows.stretches is None:
        effect = (
            "Without whole curves F at the start of a unit is not known: D-calibration, its p-value and the P-P curve "
            "take F at its end as exact, and can call a true model wrong."
        )
        yield Concern(what, effect, serious=True)
        return
    effect = "The F of an event is drawn evenly from the unit that its time stands for. "
    if not measured.seen:
        yield Concern(what, f"{effect}Concordance counts tied rows.", serious=False)
        return
    effect += (
        "A row censored in a unit may have been observed through all of it or only half: intervals of O/E, slope and "
        "ICI hold both cases, and tests give the larger p-value. "
    )
    horizon, low, high = furthest_apart(measured)
    effect += f"For this reason alone O/E at {horizon:g} is {low:.2f} or {high:.2f}. "
    effect += "last_seen= (--last-seen) settles it."
    yield Concern(what, effect, serious=False)


def furthest_apart(measured: Measurements) -> tuple[float, float, float]:
    """Return the horizon at which O/E differs most between the two ways to read coarse times, and both values."""
    apart = {h: (min(ratios), max(ratios)) for h, ratios in measured.seen.items()}
    horizon, (low, high) = max(apart.items(), key=lambda one: one[1][1] - one[1][0])
    return horizon, low, high


def _of_censoring(measured: Measurements) -> Iterator[Concern]:
    found = measured.censoring
    if found is None or not (found.on or found.corrected):
        return
    on = listed(list(found.on)) if found.on else "covariates, as was asked"
    what = f"Censoring depends on {on}" + (f" ({p_in_words(found.p_value)})" if found.on else "")
    if not found.corrected:
        effect = (
            "Kaplan-Meier and weights by a marginal censoring curve take the rows still observed to stand for the "
            "others: O/E, slope, ICI, AUC, Brier scores and net benefit are biased. The tests are not."
        )
        yield Concern(what, effect, serious=True)
        return
    values = {value.key: value.value for value in measured.values}
    changes = [
        f"{label} at {one.horizon:g} would be {one.value:.3g} in place of {values[one.key]:.3g}"
        for one in found.uncorrected
        for label in _UNCORRECTED.get(one.metric, ())
        if one.key in values and one.horizon == found.uncorrected[-1].horizon
    ]
    effect = (
        "Everything at horizons is corrected by a model of the censoring (doubly robust pseudo-values). Without that, "
        f"{', '.join(changes)}. Concordance and the integrated Brier score are not corrected."
    )
    yield Concern(what, effect, serious=False)


_UNCORRECTED = {"oe": ("O/E",), "auc": ("AUC",), "brier": ("the Brier score",)}


def _of_curves(beyond: int, end: float, n: int, min_cell: int) -> Iterator[Concern]:
    if beyond:
        effect = (
            "These rows count as censored where the curves end in D-calibration, and integrated values (IBS, "
            "km-calibration) stop there."
        )
        rows = f"{in_words(beyond, min_cell).capitalize()} row{'' if beyond == 1 and min_cell < 2 else 's'}"
        share = "" if is_small(beyond, min_cell) else f" ({beyond / n:.1%})"
        what = f"{rows}{share} with a time past the end of the curves, {rounded_time(end):g}"
        yield Concern(what, effect, beyond > MUCH_PAST * n)


def _of_horizons(sample: Sample) -> Iterator[Concern]:
    rows = sample.rows
    for horizon in sample.horizons:
        under = rows.time >= horizon
        left = int(np.count_nonzero(under if rows.entry is None else under & (rows.entry < horizon)))
        if left < FEW_AT_RISK:
            effect = "Observed risk, and with it O/E, ICI, Brier score and net benefit there, rest on these few rows."
            yield Concern(
                f"Few rows under observation at time {horizon:g}: {in_words(left, rows.min_cell)}", effect, True
            )


def _of_training(sample: Sample, training: Training) -> Iterator[Concern]:
    if training.outcome is None or sample.rows.weights is not None:
        return
    if not same_censoring(training.outcome, sample.rows.outcome):
        effect = (
            "Uno's concordance, AUC and Brier scores are therefore weighted by the censoring of these rows; the "
            "censoring curve of the training rows would bias them."
        )
        yield Concern("Censoring differs from that of the training rows", effect, False)
    if _p_of_logrank(training.outcome, sample.rows.outcome) < DIFFERENT:
        mean_risk = _risk_at_median(sample, training.outcome)
        effect = f"{mean_risk} O/E and intercept show whether the model's covariates account for it."
        yield Concern("Outcomes differ from those of the training rows", effect, False)
    different = differing_columns(training.X, training.training_X)
    if different:
        shown = ", ".join(different[:5]) + (f" and {len(different) - 5} more" if len(different) > 5 else "")
        effect = (
            "The values are about other rows than the model has seen; a wider or narrower mix also moves concordance."
        )
        yield Concern(f"Covariates differ from those of the training rows: {shown}", effect, False)


def same_censoring(training: Outcome, audited: Outcome) -> bool:
    """Whether the censoring curve of the training rows may stand for that of the audited ones, by the log-rank test."""
    censorings = (Outcome(one.time, ~one.event) for one in (training, audited))
    return _p_of_logrank(*censorings) >= DIFFERENT


def _risk_at_median(sample: Sample, training: Outcome) -> str:
    """Return what happened in the two sets of rows by the median event time of the training rows."""
    at = min(float(np.median(training.time[training.event])), sample.rows.outcome.last, training.last)
    before = 1 - float(fit_kaplan_meier(training.time, training.event).at(at))
    now = 1 - float(fit_kaplan_meier(sample.rows.time, sample.rows.event).at(at))
    return (
        f"By time {rounded_time(at):g}, {before:.1%} of the training rows had the event, and {now:.1%} of these rows."
    )


def _p_of_logrank(first: Outcome, second: Outcome) -> float:
    """P-value of the log-rank test; 1 where one of the two has no event."""
    if not (first.event.any() and second.event.any()):
        return 1.0
    from scipy.stats import CensoredData, logrank

    samples = [CensoredData.right_censored(one.time, ~one.event) for one in (first, second)]
    return float(logrank(*samples).pvalue)


def differing_columns(X: Any, training_X: Any) -> list[str]:
    """Name the columns whose distribution differs between two data frames of the same columns.

    Numbers by Kolmogorov and Smirnov's test, categories by the chi-squared test, at a level that is divided by the
    number of columns. Other tables than data frames are not compared.
    """
    if not (hasattr(X, "columns") and hasattr(training_X, "columns")):
        return []
    shared = [column for column in training_X.columns if column in list(X.columns)]
    return [
        str(column)
        for column in shared
        if _p_of_column(training_X[column], X[column]) < DIFFERENT / max(1, len(shared))
    ]


def _p_of_column(before: Any, now: Any) -> float:
    import pandas as pd
    from scipy.stats import chi2_contingency, ks_2samp

    first, second = pd.Series(before.to_numpy()), pd.Series(now.to_numpy())
    if column_kind(before) == column_kind(now) == "number":
        first, second = (one.dropna().astype(np.float64) for one in (first, second))
        # "asymp": exact p-values take minutes for tables of many rows.
        return 1.0 if first.empty or second.empty else float(ks_2samp(first, second, method="asymp").pvalue)
    table = pd.crosstab(
        pd.concat([first, second], ignore_index=True).astype(str), np.repeat([0, 1], [first.size, second.size])
    )
    return float(chi2_contingency(table).pvalue) if table.shape[0] > 1 else 1.0
