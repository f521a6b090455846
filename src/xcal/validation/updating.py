r"""What an update of the model would change: before and after, on the same rows, cross-fitted.

Each row is predicted by an update that was fitted to the other folds, so that what is measured is what new rows may
expect. Three updates, from the smallest to the largest, the first two by a logistic regression of the pseudo-values at
the horizon (van Houwelingen 2000, Statistics in Medicine 19(24):3401-3415):

- in the large: :math:`\operatorname{logit} p' = a + \operatorname{logit} p`, right on average;
- slope: :math:`\operatorname{logit} p' = a + b \operatorname{logit} p`, which also spreads the risks more or less;
- map: one map of F for all rows and times (`xcal.recalibration.AveragedRecalibration`, of many rows
  `KaplanMeierRecalibration`), which is fitted to F at the observed times.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from scipy.special import expit, logit

from xcal.data.survival import folds_by_event
from xcal.metrics.estimates import UNKNOWN, estimates
from xcal.metrics.inputs import Integers, Vector
from xcal.metrics.of_rows import FEWEST_FOR_LEVELS_IN_GROUP, Asked
from xcal.metrics.rows import Rows
from xcal.metrics.spec import Key, Skipped
from xcal.recalibration.maps import KaplanMeierRecalibration
from xcal.recalibration.registry import AveragedRecalibration
from xcal.validation.arguments import PART_OF_ROWS
from xcal.validation.result import AuditValue, Update

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
