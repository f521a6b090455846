"""What a path decides once it is trained: the candidates, which rows judge them, and what is kept to choose again.

The values and the rules are those of `selection`.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xcal._checks import fail
from xcal.data.survival import SurvivalData
from xcal.estimators.fitted import FittedModel, Own, PredictingModel, combined
from xcal.estimators.fitting import TrainedPath, fit_further, train_on, trained
from xcal.estimators.selection import (
    Measured,
    Selection,
    as_candidates,
    by_target,
    cannot_judge,
    frontier,
    is_settled,
    joined,
    losses_and_own,
    measured,
    measured_table,
    nearest_to,
    pairs,
    when_needed,
)
from xcal.estimators.settings import Settings
from xcal.recalibration import KaplanMeierRecalibration
from xcal.recalibration.maps import folds_that_differ

# A map is fitted to all validation rows but one part, and measured on that part. Ten parts leave it nine tenths of the
# rows, so that what is measured is hardly worse than the map of all rows that is kept.
_PARTS = 10
Maps = Mapping[float, KaplanMeierRecalibration]


@dataclass(frozen=True, eq=False)
class Candidates:
    """Candidates of a path: their values, the networks of each weight, and the map of each weight where it has one."""

    table: pd.DataFrame
    members: Mapping[float, tuple[FittedModel, ...]]
    maps: Maps


def candidates(
    members: Mapping[float, Sequence[FittedModel]],
    rows: SurvivalData,
    n_bins: int,
    *,
    recalibrate: bool,
    conditional: bool = False,
) -> Candidates:
    """Measure every weight on the validation rows, and its recalibrated version if that is asked for.

    The map of a recalibrated candidate is fitted to these rows too: its values are cross-fitted, each row's by a map
    that has not seen the row. Its concordance is that of the one map that is kept. A map rises, so at any one time it
    leaves the rows in the order of F, and with them Antolini's concordance; two rows change places in `predict`, a mean
    over times, only where their curves cross. So there is next to nothing to fit to the order of these rows.
    """
    own = {lam: tuple(models) for lam, models in sorted(members.items())}
    lines: list[Measured] = []
    maps: dict[float, KaplanMeierRecalibration] = {}
    for lam, models in own.items():
        model = combined(models)
        plain = measured(lam, model, rows)
        lines.append(plain)
        if recalibrate:
            maps[lam] = plain.own.recalibration(rows)
            lines.append(_cross_fitted(plain, model, maps[lam], rows))
    return Candidates(measured_table(lines, rows, n_bins, conditional=conditional), own, maps)


def _cross_fitted(
    plain: Measured, model: PredictingModel, kept: KaplanMeierRecalibration, rows: SurvivalData
) -> Measured:
    """Values of the recalibrated model, each row's by a map of the other rows; pairs by the map that is kept."""
    losses, parts, order = np.empty(rows.n), [], []
    for train, test in _folds(rows):
        losses[test], own = losses_and_own(combined(model.members, plain.own.recalibration(rows, train)), rows[test])
        parts.append(own)
        order.append(test)
    joint = Own.joined(parts, np.argsort(np.concatenate(order)))
    return Measured(plain.lam, True, losses, joint, *pairs(combined(model.members, kept), rows))


def _folds(rows: SurvivalData) -> Iterator[tuple[Any, Any]]:
    together = rows.groups is not None
    most = np.unique(rows.groups).size if together else rows.n
    parts = min(_PARTS, int(np.count_nonzero(rows.event)), most)
    return ((fold.train, fold.test) for fold in rows.folds(parts, seed=0, whole_groups=together))


# --- One weight on all rows, each by networks that have not seen it.


def cross_fitted(
    rows: SurvivalData, members: Sequence[FittedModel], settings: Settings, n_folds: int
) -> tuple[pd.DataFrame, KaplanMeierRecalibration] | None:
    """Measure one weight on all rows of a path, as it is and recalibrated, and fit its map of F to them.

    The validation rows are a fifth of all, and show five times less; a map of them has five times the noise. So the
    networks are trained once more for each fold, as long as those of the path were, and every row is measured by the
    networks of the other folds. The map is then used with the networks of the path, which were made in the same way
    from nearly as many rows.

    Rows of a fold where the networks have not converged, as their F are far from those of the others, do not count; a
    warning names it. None where that is half of the folds.
    """
    lam = members[0].lam
    divided = rows.folds(n_folds, seed=0)
    networks = [trained_as(members, rows[fold.train], settings) for fold in divided]
    folds = [fold.test for fold in divided]
    values = [measured(lam, combined(models), rows[fold]) for models, fold in zip(networks, folds, strict=True)]
    if off := folds_that_differ([(one.own.cdf, rows.event[fold]) for one, fold in zip(values, folds, strict=True)]):
        told = ", ".join(f"{k + 1} ({folds[k].size:,} rows, by {off[k]:.2f})" for k in sorted(off))
        warnings.warn(
            f"the path trained its networks once more for each of {len(folds)} folds, and their F at the observed "
            f"times differ from those of the other folds by far more than chance in fold {told}. Have they converged? "
            "Its rows do not count in the choice",
            UserWarning,
            stacklevel=2,
        )
    if 2 * len(off) >= len(folds):
        return None
    kept = [k for k in range(len(folds)) if k not in off]
    # Numbers of the rows among those that count.
    order = np.sort(np.concatenate([folds[k] for k in kept]))
    rows, tested = rows[order], {k: np.searchsorted(order, folds[k]) for k in kept}
    plain = joined([(tested[k], values[k]) for k in kept])
    # Each row's map, too, is one of the other folds.
    maps = {k: plain.own.recalibration(rows, np.setdiff1d(np.arange(rows.n), tested[k])) for k in kept}
    mapped = joined([(tested[k], measured(lam, combined(networks[k], maps[k]), rows[tested[k]])) for k in kept])
    table = measured_table([plain, mapped], rows, settings.calibration_bins, conditional=settings.conditional)
    return table, plain.own.recalibration(rows)


def trained_as(members: Sequence[FittedModel], rows: SurvivalData, settings: Settings) -> tuple[FittedModel, ...]:
    """Train the same seeds on other rows, for as many epochs as they took; an interrupt is passed on."""
    # The epochs are known, so that no rows are needed to stop by: the rows to train on stand in for them.
    epochs = max(1, round(float(np.mean([member.best_epoch + 1 for member in members]))))
    config = settings.training_config()
    rising = config.rising_epochs if config.penalty_schedule == "anneal" else None
    config = replace(config, epochs=epochs, patience=None, anneal_epochs=rising)
    seeds = [member.seed for member in members]
    for keep in ("last", "best"):  # weights that diverge on the way have no last epoch
        kept = replace(config, keep=keep)
        options = {"lambdas": (members[0].lam,), "seeds": seeds, "config": kept, "progress": False}
        result, models = train_on(rows, rows, settings, **options)
        if result.interrupted:
            raise KeyboardInterrupt("interrupted while the networks of a choice were trained once more")
        if found := trained(models):
            return found
    return ()


def all_rows(path: TrainedPath) -> SurvivalData:
    """Rows that a path trained on, and those that it validated on."""
    parts = path.train, path.validation
    weights = None if any(part.weights is None for part in parts) else np.concatenate([p.weights for p in parts])
    x = np.concatenate([part.x for part in parts])
    outcome = path.train.outcome.joined(path.validation.outcome)
    return SurvivalData.trusted(x, None, None, weights, groups=outcome.id).with_outcome(outcome)


# --- The choice that a path makes by itself.


# With fewer validation events than these the smallest weight is judged on all rows, by cross-fitting: an error that
# new rows would show can hide from so few.
FEW_EVENTS = 500


@dataclass(frozen=True, eq=False)
class Decision:
    """The choice of a path, and the values that it was made by.

    Attributes
    ----------
    selection : Selection
    candidates : DataFrame
        All candidates on the validation rows.
    cross_fitted : DataFrame or None
        The smallest weight on all rows, as it is and recalibrated, if it was judged on them.
    maps : mapping
        Map of F for each weight that has one.
    doubt : str or None
        Why nothing could be judged, if so.
    settled : bool
        Whether larger weights, if any were left to train, could change nothing.
    """

    selection: Selection
    candidates: pd.DataFrame
    cross_fitted: pd.DataFrame | None
    maps: Maps
    doubt: str | None
    settled: bool


def decide(
    path: TrainedPath,
    table: pd.DataFrame,
    settings: Settings,
    *,
    folds: int,
    average: bool,
    before: Decision | None = None,
) -> Decision:
    """Choose by the default rule of `SurvivalPath.select`; `table` is the frontier.

    What the decision `before`, made when fewer weights were trained, has cross-fitted is not trained again.
    """
    n_bins = settings.calibration_bins
    doubt = cannot_judge(path.validation, n_bins)
    found = candidates(
        by_weight(path.models, table, average=average),
        path.validation,
        n_bins,
        recalibrate=doubt is None,
        conditional=settings.conditional,
    )
    first, maps, on_all = min(found.members), dict(found.maps), None
    # Many validation rows show what is off, and a map of them has little noise: no networks are trained for either.
    few = np.count_nonzero(path.validation.event) < FEW_EVENTS
    may_train = path.split and folds > 0 and few and not path.interrupted
    if before is not None:  # the smallest weight was judged then
        on_all = before.cross_fitted
        maps |= {} if on_all is None else {first: before.maps[first]}
    elif may_train and cannot_judge(rows := all_rows(path), n_bins) is None:
        judged = cross_fitted(rows, found.members[first], settings, folds)
        on_all, maps = (None, maps) if judged is None else (judged[0], maps | {first: judged[1]})
    if on_all is None:
        selection = when_needed(found.table, doubt)
        settled = doubt is not None or (selection.lam == first and is_settled(found.table, selection))
    else:
        selection = when_needed(on_all, judge=f"all {path.train.n + path.validation.n:,} cross-fitted rows")
        settled = is_settled(on_all, selection)
        if not selection.at_floor and not selection.recalibrated:
            # It is off, and a map does not correct it: the larger weights were measured on the validation rows alone.
            further = when_needed(found.table, doubt)
            selection = further if further.recalibrated or further.lam != selection.lam else selection
        doubt = None
    if may_train and selection.recalibrated and (on_all is None or selection.lam != first):
        again = cross_fitted(all_rows(path), found.members[selection.lam], settings, folds)
        maps |= {} if again is None else {selection.lam: again[1]}
    return Decision(selection, found.table, on_all, maps, doubt, settled)


def by_weight(
    models: tuple[FittedModel, ...], table: pd.DataFrame, *, average: bool
) -> dict[float, tuple[FittedModel, ...]]:
    """Networks of each weight that was trained: all seeds, or the one with the lowest total."""
    found: dict[float, tuple[FittedModel, ...]] = {}
    for lam, lines in table[table["best_epoch"] >= 0].groupby("lambda"):
        chosen = lines.index if average else [lines["total"].idxmin()]
        found[float(lam)] = tuple(models[line] for line in chosen)
    return found


@dataclass(frozen=True, eq=False)
class PathSoFar:
    """What a path has trained, with everything that training the rest needs: its rows, and how it is judged."""

    path: TrainedPath
    settings: Settings
    lambdas: Sequence[float]
    seeds: Sequence[int]
    target: float | None
    folds: int
    average: bool

    @property
    def untrained(self) -> tuple[float, ...]:
        """Weights without models."""
        known = {model.lam for model in self.path.models}
        return () if self.target is not None else tuple(lam for lam in self.lambdas if lam not in known)

    def further(self, lambdas: Sequence[float], checkpoint: Path | None = None) -> "PathSoFar":
        """Train more weights; models stand in the order of the seeds, then of the weights."""
        path = fit_further(self.path, lambdas, self.seeds, self.settings, checkpoint)
        place = {pair: k for k, pair in enumerate(product(self.seeds, self.lambdas))}
        models = sorted(path.models, key=lambda model: place[model.seed, model.lam])
        return replace(self, path=replace(path, models=tuple(models)))

    def interrupted(self, now: bool = True) -> "PathSoFar":
        """Return the same, whose decision trains nothing; or one that may train again."""
        return replace(self, path=replace(self.path, interrupted=now))

    def decided(self, before: Decision | None = None) -> tuple[pd.DataFrame, Decision]:
        """Return the frontier of what was trained, and the choice from it; see `decide`."""
        models, validation = self.path.models, self.path.validation
        table = frontier(models, validation, self.settings.calibration_bins, one_group=self.target is not None)
        if self.target is not None:
            selection = by_target(table, self.target)
            return table, Decision(selection, as_candidates(table), None, {}, None, settled=True)
        kept = decide(self.path, table, self.settings, folds=self.folds, average=self.average, before=before)
        return table, kept


# --- What is kept of a path, to choose from again.


# The networks of one predicting model, in equal parts, and the map of F after them.
Chosen = tuple[tuple[FittedModel, ...], KaplanMeierRecalibration | None]


@dataclass(frozen=True, eq=False)
class Choices:
    """Networks in the order of the frontier, their values, the map of F of each weight that has one, and the choice.

    With `average` the seeds of a weight are one model. `target` is the D-calibration to reach, if the path was trained
    for one.
    """

    models: tuple[FittedModel, ...]
    frontier: pd.DataFrame
    maps: Maps
    selection: Selection
    average: bool
    target: float | None

    @property
    def line_of_selection(self) -> int:
        """Line of the frontier of the chosen weight."""
        return self.line(self.selection.lam) if self.target is None else nearest_to(self.frontier, self.target)

    def line(self, lam: float, seed: int | None = None) -> int:
        """Line of the frontier of a weight and a seed, or of the weight's seed with the lowest total."""
        table = self.frontier
        found = np.flatnonzero((table["lambda"] == lam) & ((seed is None) | (table["seed"] == seed)))
        if found.size == 0:
            known = ", ".join(f"{value:g}" for value in sorted(set(table["lambda"])))
            fail("lam", f"one of {known} with a seed of the path", f"{lam}, seed {seed}")
        totals = table["total"].to_numpy()[found]
        return int(found[0] if np.isnan(totals).all() else found[np.nanargmin(totals)])

    def members(self, lam: float) -> tuple[FittedModel, ...]:
        """Networks that together are the model of a weight."""
        line = self.line(lam)
        if self.target is not None:
            return (self.models[line],)
        return by_weight(self.models, self.frontier, average=self.average).get(lam, (self.models[line],))

    def chosen(self, lam: float, seed: int | None, *, recalibrated: bool) -> Chosen:
        """Networks and map of the model that a caller asks for."""
        members = self.members(lam) if seed is None else (self.models[self.line(lam, seed)],)
        if not recalibrated:
            return members, None
        if seed is not None or lam not in self.maps:
            known = ", ".join(f"{value:g}" for value in sorted(self.maps)) or "none: too few events to validate on"
            fail("recalibrated", f"a weight with a map of its own, all seeds together ({known})", f"{lam}, seed {seed}")
        return members, self.maps[lam]

    def selected(self) -> Chosen:
        """Networks and map of what the path chose."""
        if self.target is not None:
            return (self.models[self.line_of_selection],), None
        lam = self.selection.lam
        return self.members(lam), self.maps[lam] if self.selection.recalibrated else None

    def lines(self) -> list[tuple[float, *Chosen]]:
        """Weight, members and map of each candidate: as they were trained, in the order of the weights, then mapped."""
        plain = sorted(set(self.frontier.loc[self.frontier["best_epoch"] >= 0, "lambda"]))
        return [(lam, self.members(lam), None) for lam in plain] + [
            (lam, self.members(lam), self.maps[lam]) for lam in sorted(self.maps)
        ]

    def networks(self) -> Mapping[float, tuple[FittedModel, ...]]:
        """All trained networks of each candidate's weight, whether or not they are averaged."""
        return {
            lam: tuple(model for model in self.models if model.lam == lam and model.best_epoch >= 0)
            for lam, _, _ in self.lines()
        }
