"""What would make an answer surer or a model righter: more events, or an update of the model."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import expit, logit

from xcal._checks import as_number, fail
from xcal.data.survival import folds_by_event
from xcal.metrics.estimates import UNKNOWN, estimates
from xcal.metrics.inputs import Integers, Vector
from xcal.metrics.intervals import times_as_many
from xcal.metrics.of_rows import FEWEST_FOR_LEVELS_IN_GROUP, Asked
from xcal.metrics.rows import Rows
from xcal.metrics.spec import ACROSS_SITES, VALUES, Key, Skipped
from xcal.recalibration.maps import KaplanMeierRecalibration
from xcal.recalibration.registry import AveragedRecalibration
from xcal.show.charts import time_in_words
from xcal.validation.arguments import PART_OF_ROWS
from xcal.validation.result import AuditResult, AuditValue, Update
from xcal.validation.words import label, listed

# --- How precisely the rows of an audit estimate its main values, and how many events would be enough.
#
# Riley and others (Statistics in Medicine 2021;40:4230-4251 and 2022;41:1280-1295, BMJ 2024;384:e074821) plan the size
# of a validation by the widths of intervals: of O/E, of the calibration slope, of the c statistic. Before a study these
# follow from what is assumed of risks and censoring. After it they are known, and the interval of a value shrinks with
# the root of the number of rows like these.

# Widths of intervals to aim for: of O/E, slope and c statistic as Riley and others do, of the ICI what is good enough.
WIDTHS: Mapping[str, float] = {"oe": 0.2, "slope": 0.4, "auc": 0.1, "ici": 0.05}
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Precision:
    """How precisely one value is estimated.

    Attributes
    ----------
    metric, horizon : str, float
        Which value.
    value, lower, upper : float
        As measured.
    width : float
        Width that the interval should have.
    n_events : int
        Events of these rows, over the whole follow-up.
    n_needed : int
        About how many events of rows like these would give that width; two digits.
    """

    metric: str
    horizon: float
    value: float
    lower: float
    upper: float
    width: float
    n_events: int
    n_needed: int

    @property
    def enough(self) -> bool:
        """Whether the interval is no wider."""
        return self.upper - self.lower <= self.width


def precision(result: AuditResult, widths: Mapping[str, float]) -> tuple[Precision, ...]:
    """Return the precision of the values that have an interval, at each horizon, in the order of `WIDTHS`."""
    for metric, width in widths.items():
        if metric not in WIDTHS:
            fail("widths", f"names among {', '.join(WIDTHS)}", repr(metric))
        as_number(f"width of {metric}", width, above=0)
    wanted, found = {**WIDTHS, **widths}, []
    for value in (v for m in wanted for v in result.values if (v.metric, v.group) == (m, None)):
        scale = ACROSS_SITES.get(value.metric, VALUES[value.metric].scale)
        times = times_as_many(value.lower, value.upper, wanted[value.metric], scale)
        if value.horizon is not None and math.isfinite(times):
            events, ends = result.data.n_events, (value.value, value.lower, value.upper)
            needed = rounded_up(max(1.0, events * times))
            if value.upper - value.lower <= wanted[value.metric]:  # two digits may be more than there are
                needed = min(needed, events)
            found.append(Precision(value.metric, value.horizon, *ends, wanted[value.metric], events, needed))
    return tuple(found)


def rounded_up(number: float) -> int:
    """Return a number as two digits and zeros, not below it.

    Examples
    --------
    >>> rounded_up(1234.0), rounded_up(7.2)
    (1300, 8)
    """
    digits = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return int(math.ceil(number / digits - _ROUNDING) * digits)


def _inside(metric: str) -> str:
    """Return the name of a value inside a sentence: calibration slope, O/E, AUC."""
    name = label(metric).name
    return name if name[1:2].isupper() or not name[1:2].isalpha() else f"{name[0].lower()}{name[1:]}"


def precision_in_words(found: Sequence[Precision], time_unit: str) -> str:
    """Write how precise the values at one horizon are, and how many events would be enough for all of them."""
    if not found:
        return "No value has an interval at this horizon."
    one = found[0]
    enough = [_inside(each.metric) for each in found if each.enough]
    lacking = [each for each in found if not each.enough]
    at = time_in_words(one.horizon, time_unit)
    told = f"{one.n_events:,} events give {listed(enough)} by {at} an interval that is narrow enough" if enough else ""
    if not lacking:
        return f"{told}."
    most = max(lacking, key=lambda each: each.n_needed)
    names = listed([_inside(each.metric) for each in lacking])
    short = f"{names} by {at} would take more" if enough else f"{one.n_events:,} events are too few for {names} by {at}"
    need = f"about {most.n_needed:,} for {'it' if len(lacking) == 1 else 'all of them'}"
    return f"{told}; {short}: {need}." if enough else f"{short}: {need} to have an interval as narrow as is aimed for."


# --- What an update of the model would change: before and after, on the same rows, cross-fitted.
#
# Each row is predicted by an update that was fitted to the other folds, so that what is measured is what new rows may
# expect. Three updates, from the smallest to the largest, the first two by a logistic regression of the pseudo-values
# at the horizon (van Houwelingen 2000, Statistics in Medicine 19(24):3401-3415):
#
# - in the large: :math:`\operatorname{logit} p' = a + \operatorname{logit} p`, right on average;
# - slope: :math:`\operatorname{logit} p' = a + b \operatorname{logit} p`, which also spreads the risks more or less;
# - map: one map of F for all rows and times (`xcal.recalibration.AveragedRecalibration`, of many rows
#   `KaplanMeierRecalibration`), which is fitted to F at the observed times.

Change = Callable[[Vector], Vector]
_FOLDS = 5
_UPDATED = "updates"
# Risks nearer to 0 or 1 have no logit that a regression could use; steps of Newton's method, and when it has ended.
_NEAREST, _STEPS, _CLOSE = 1e-10, 50, 1e-8


def measure_updates(rows: Rows, level: float, seed: int) -> tuple[tuple[Update, ...], list[Skipped]]:
    """Return calibration and Brier score at each horizon after each update, and why something was left out."""
    found, skipped = [], []
    why = rows.seen_in_part and f"{rows.seen_in_part}; updates do not know them yet"
    why = why or ("updates take no sampling weights yet" if rows.weights is not None else "")
    if rows.outcome.competing is not None and rows.n > PART_OF_ROWS:
        why = why or f"of more than {PART_OF_ROWS:,} rows updates are measured for all events alone"
    if why:
        return (), [Skipped(_UPDATED, why)]
    fold = _folds(rows, seed)
    without = [rows.take(fold != own) for own in range(_FOLDS)]
    maps = [_map(own) for own in without]
    if rows.cdf is None:
        skipped.append(Skipped(_UPDATED, f"the map: {rows.no_cdf}"))
    for horizon in (h for h in rows.risk if rows.at(h).is_followed):
        if rows.at(horizon).n_events < FEWEST_FOR_LEVELS_IN_GROUP:
            few = f"fewer than {FEWEST_FOR_LEVELS_IN_GROUP} events by then are too few to fit an update"
            skipped.append(Skipped(_UPDATED, few, horizon))
            continue
        fitted = {
            how: [_regression(own, horizon, with_slope=how == "slope") for own in without] for how in ("large", "slope")
        }
        for how, updates in {**fitted, "map": maps}.items():
            if rows.cdf is None and how == "map":
                continue
            if any(update is None for update in updates):
                skipped.append(Skipped(_UPDATED, f"{how}: a fold does not determine it", horizon))
            else:
                risk = rows.risk[horizon].copy()
                for own, update in enumerate(updates):
                    risk[fold == own] = update(risk[fold == own])  # type: ignore[misc]  # none is None
                found.append(Update(how, horizon, tuple(_values(rows, horizon, risk, level))))
    return tuple(found), skipped


def _folds(rows: Rows, seed: int) -> Integers:
    """Return the fold of each row; rows of one cluster share theirs."""
    rng = np.random.default_rng(seed)
    if rows.clusters is not None:
        return (rng.permutation(rows.clusters.count) % _FOLDS)[rows.clusters.codes]
    return folds_by_event(rows.event, _FOLDS, rng)


def _map(rows: Rows) -> Change | None:
    """Fit a map of F; None where there is no F, or no event."""
    if rows.cdf is None or not rows.cdf_event.any():
        return None
    kind = AveragedRecalibration if rows.n <= PART_OF_ROWS else KaplanMeierRecalibration
    return kind.fit(rows.cdf, rows.cdf_event).cdf


def _regression(rows: Rows, horizon: float, *, with_slope: bool) -> Change | None:
    found = logistic(rows.risk[horizon], rows.at(horizon).values, with_slope=with_slope)
    return None if found is None else lambda risk: expit(found[0] + found[1] * _log_odds(risk))


def logistic(p: Vector, values: Vector, *, with_slope: bool) -> tuple[float, float] | None:
    """Return intercept and slope of a logistic regression of pseudo-values on risks; None where there is none.

    Pseudo-values below 0 and above 1 have a place in it: the score is linear in them.
    """
    x = _log_odds(p)
    design = np.column_stack([np.ones(x.size), x]) if with_slope else np.ones((x.size, 1))
    offset, found = (0.0, np.array([0.0, 1.0])) if with_slope else (x, np.zeros(1))

    def likelihood(coefficients: Vector) -> float:
        odds = offset + design @ coefficients
        return float(values @ odds - np.logaddexp(0.0, odds).sum())

    for _ in range(_STEPS):
        risk = expit(offset + design @ found)
        try:
            step = np.linalg.solve(design.T @ ((risk * (1 - risk))[:, None] * design), design.T @ (values - risk))
        except np.linalg.LinAlgError:
            return None
        if np.abs(step).max() < _CLOSE:
            return float(found[0]), float(found[1]) if with_slope else 1.0
        before = likelihood(found)
        while likelihood(found + step) < before and np.abs(step).max() > _CLOSE:
            step = step / 2
        found = found + step
    return None


def _log_odds(p: Vector) -> Vector:
    return np.asarray(logit(np.clip(p, _NEAREST, 1 - _NEAREST)))


def _values(rows: Rows, horizon: float, risk: Vector, level: float) -> Iterator[AuditValue]:
    """Measure the updated risks as the model's own are measured."""
    found = estimates(replace(rows, risk={horizon: risk}), ("oe", "slope", "ici", "brier"), Asked(level))
    for key in (Key(metric, horizon) for metric in ("oe", "slope", "ici", "brier")):
        if key in found.values:
            yield AuditValue(key.metric, horizon, None, found.values[key], *found.intervals.get(key, UNKNOWN))
