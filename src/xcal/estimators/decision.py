"""What a path decides by itself once it is trained: the candidates, which rows judge them, and what they say."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from xcal._checks import fail
from xcal.calibration import d_calibration
from xcal.data import SurvivalData
from xcal.estimators.fitted import FittedModel, PredictingModel, combined
from xcal.estimators.fitting import (
    TrainedPath,
    conditional_values,
    dcal_influence,
    gap_error,
    judge_conditional,
    train_on,
    trained,
    weighted_mean,
)
from xcal.estimators.inputs import Floats
from xcal.estimators.selection import Selection, cannot_judge, nearest_to, when_needed
from xcal.estimators.settings import Settings
from xcal.metrics import concordance_index
from xcal.objectives import nll
from xcal.recalibration import KaplanMeierRecalibration

# --- What `SurvivalPath.select` chooses among: every weight, as it is and recalibrated, on the validation rows.


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

    def model(self, lam: float, *, recalibrated: bool) -> PredictingModel:
        """Return the model of a line of the table."""
        return combined(self.members[lam], self.maps[lam] if recalibrated else None)


@dataclass(frozen=True, eq=False)
class Measured:
    """One candidate on rows that its networks have not seen.

    Attributes
    ----------
    lam, recalibrated
        Which one it is.
    losses, cdf : arrays of shape (n,)
        Negative log-likelihood of each row, and F at its observed time.
    concordant, comparable : float
        Pairs of rows that `predict` puts in order (ties count one half), and pairs that can be compared: both rows by
        one and the same model. Risks of two models are on scales of their own: between the rows of two folds their
        order tells nothing.
    """

    lam: float
    recalibrated: bool
    losses: Floats
    cdf: Floats
    concordant: float
    comparable: float


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
            maps[lam] = KaplanMeierRecalibration.fit(plain.cdf, rows.event, weights=rows.weights)
            lines.append(_cross_fitted(plain, model, maps[lam], rows))
    return Candidates(measured_table(lines, rows, n_bins, conditional=conditional), own, maps)


def measured_table(
    lines: Sequence[Measured], rows: SurvivalData, n_bins: int, *, conditional: bool = False
) -> pd.DataFrame:
    """One line for each candidate; errors are those of the distance to the first, the smallest weight as it is.

    With `conditional` the test of calibration given the covariates too, and the error of its value.
    """
    first = lines[0]
    base = dcal_influence(first.cdf, rows, n_bins)
    table = pd.DataFrame([_line(one, first, base, rows, n_bins) for one in lines])
    given = (np.stack([one.cdf for one in lines]), rows.x, rows.event, rows.weights, n_bins)
    if not conditional:
        return table.assign(conditional=conditional_values(*given))
    judged = judge_conditional(*given)
    return table.assign(conditional=judged.values, conditional_gap_se=judged.gap_errors, conditional_p=judged.p_values)


def _line(one: Measured, first: Measured, base: Floats, rows: SurvivalData, n_bins: int) -> dict[str, Any]:
    result = d_calibration(one.cdf, rows.event, n_bins=n_bins, clusters=rows.groups, weights=rows.weights)
    return {
        "lambda": one.lam,
        "recalibrated": one.recalibrated,
        "nll": weighted_mean(one.losses, rows),
        "nll_gap_se": gap_error(one.losses, first.losses, rows.groups, rows.weights),
        "dcal": result.value,
        "dcal_gap_se": gap_error(dcal_influence(one.cdf, rows, n_bins), base, rows.groups),
        "dcal_floor": result.floor,
        "dcal_p": result.p_value,
        "concordance": one.concordant / one.comparable if one.comparable > 0 else np.nan,
    }


def measured(lam: float, model: PredictingModel, rows: SurvivalData) -> Measured:
    """Measure a model, recalibrated or not."""
    return Measured(lam, model.recalibration is not None, *_values(model, rows), *_pairs(model, rows))


def _values(model: PredictingModel, rows: SurvivalData) -> tuple[Floats, Floats]:
    """Negative log-likelihood of each row, and F at its observed time."""
    distribution, time = model.distribution(rows.x), torch.from_numpy(rows.time)
    losses = nll(distribution, time, torch.from_numpy(rows.event)).numpy()
    return losses, distribution.cdf(time).numpy()


def _pairs(model: PredictingModel, rows: SurvivalData) -> tuple[float, float]:
    """Pairs in order, and pairs that can be compared."""
    found = concordance_index(time=rows.time, event=rows.event, risk=model.risk(rows.x), weights=rows.weights)
    return found.concordant + found.tied / 2, found.comparable


def joined(parts: Sequence[tuple[npt.NDArray[np.intp], Measured]]) -> Measured:
    """Put the values of parts together, each of which comes with the numbers of its rows; pairs are within parts."""
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    first = parts[0][1]
    losses, cdf = (np.concatenate([getattr(part, name) for _, part in parts])[order] for name in ("losses", "cdf"))
    concordant, comparable = (sum(getattr(part, name) for _, part in parts) for name in ("concordant", "comparable"))
    return Measured(first.lam, first.recalibrated, losses, cdf, concordant, comparable)


def _cross_fitted(
    plain: Measured, model: PredictingModel, kept: KaplanMeierRecalibration, rows: SurvivalData
) -> Measured:
    """Values of the recalibrated model, each row's by a map of the other rows; pairs by the map that is kept."""
    losses, cdf = np.empty(rows.n), np.empty(rows.n)
    for train, test in _folds(rows):
        losses[test], cdf[test] = _values(combined(model.members, fitted_map(plain, rows, train)), rows[test])
    return Measured(plain.lam, True, losses, cdf, *_pairs(combined(model.members, kept), rows))


def _folds(rows: SurvivalData) -> Iterator[tuple[Any, Any]]:
    together = rows.groups is not None
    most = np.unique(rows.groups).size if together else rows.n
    parts = min(_PARTS, int(np.count_nonzero(rows.event)), most)
    return ((fold.train, fold.test) for fold in rows.folds(parts, seed=0, whole_groups=together))


def fitted_map(plain: Measured, rows: SurvivalData, which: npt.NDArray[np.intp]) -> KaplanMeierRecalibration:
    """Fit a map of F to some of the rows, with their weights if they have some."""
    weights = None if rows.weights is None else rows.weights[which]
    return KaplanMeierRecalibration.fit(plain.cdf[which], rows.event[which], weights=weights)


# --- Networks trained once more, as long as those of a path were: on all rows, or to judge one weight on all rows.


@dataclass(frozen=True, eq=False)
class CrossFitted:
    """One weight on all rows, each by networks that have not seen it.

    Attributes
    ----------
    table : DataFrame
        Two lines of `candidates`: the weight as it is, and recalibrated.
    map : KaplanMeierRecalibration
        Fitted to all rows.
    n : int
        How many rows they are.
    """

    table: pd.DataFrame
    map: KaplanMeierRecalibration
    n: int


def cross_fitted(rows: SurvivalData, members: Sequence[FittedModel], settings: Settings, n_folds: int) -> CrossFitted:
    """Measure one weight on all rows of a path, and fit its map of F to them.

    The validation rows are a fifth of all, and show five times less; a map of them has five times the noise. So the
    networks are trained once more for each fold, as long as those of the path were, and every row is measured by the
    networks of the other folds. The map is then used with the networks of the path, which were made in the same way
    from nearly as many rows.
    """
    lam = members[0].lam
    folds = rows.folds(n_folds, seed=0)
    networks = [trained_as(members, rows[fold.train], settings) for fold in folds]
    trained_folds = list(zip(folds, networks, strict=True))
    plain = joined([(fold.test, measured(lam, combined(models), rows[fold.test])) for fold, models in trained_folds])
    # Each row's map, too, is one of the other folds.
    mapped = joined(
        [
            (fold.test, measured(lam, combined(models, fitted_map(plain, rows, fold.train)), rows[fold.test]))
            for fold, models in trained_folds
        ]
    )
    table = measured_table([plain, mapped], rows, settings.calibration_bins, conditional=settings.conditional)
    return CrossFitted(table, fitted_map(plain, rows, np.arange(rows.n)), rows.n)


def trained_as(members: Sequence[FittedModel], rows: SurvivalData, settings: Settings) -> tuple[FittedModel, ...]:
    """Train the same seeds on other rows, for as many epochs as they took; an interrupt is passed on."""
    # The epochs are known, so that no rows are needed to stop by: the rows to train on stand in for them.
    epochs = max(1, round(float(np.mean([member.best_epoch + 1 for member in members]))))
    config = settings.training_config()
    rising = config.rising_epochs if config.penalty_schedule == "anneal" else None
    config = replace(config, epochs=epochs, patience=None, anneal_epochs=rising)
    seeds = [member.seed for member in members]
    options = {"lambdas": (members[0].lam,), "seeds": seeds, "config": config, "progress": False}
    result, models = train_on(rows, rows, settings, **options)
    if result.interrupted:
        raise KeyboardInterrupt("interrupted while the networks of a choice were trained once more")
    return trained(models)


def both(one: SurvivalData, other: SurvivalData) -> SurvivalData:
    """Put the rows of two parts together."""
    weights = None
    if one.weights is not None and other.weights is not None:
        weights = np.concatenate([one.weights, other.weights])
    x, time, event = (np.concatenate([getattr(part, name) for part in (one, other)]) for name in ("x", "time", "event"))
    return SurvivalData.trusted(x, time, event, weights)


# --- The models of a path, and which of them belong together.


# The networks of one predicting model, in equal parts, and the map of F after them.
Chosen = tuple[tuple[FittedModel, ...], KaplanMeierRecalibration | None]


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
class Choices:
    """Networks in the order of the frontier, their values, the maps of F, and the choice that was made.

    Attributes
    ----------
    models : tuple of FittedModel
    frontier : DataFrame
        As in `SurvivalPath`.
    maps : mapping
        Map of F for each weight that has one.
    selection : Selection
    average : bool
        Whether the seeds of a weight are one model.
    target : float or None
        The D-calibration to reach, if the path was trained for one.
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

    def lines(self) -> list[tuple[float, tuple[FittedModel, ...], KaplanMeierRecalibration | None]]:
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


# --- What a path decides by itself once it is trained: which rows judge, and what they say.


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
    """

    selection: Selection
    candidates: pd.DataFrame
    cross_fitted: pd.DataFrame | None
    maps: Maps
    doubt: str | None


def decide(path: TrainedPath, table: pd.DataFrame, settings: Settings, *, folds: int, average: bool) -> Decision:
    """Choose by the default rule of `SurvivalPath.select`; `table` is the frontier."""
    rows, n_bins = path.validation, settings.calibration_bins
    doubt = cannot_judge(rows, n_bins)
    found = candidates(
        by_weight(path.models, table, average=average),
        rows,
        n_bins,
        recalibrate=doubt is None,
        conditional=settings.conditional,
    )
    may_train = path.split and folds > 0 and not path.interrupted
    first, on_all = min(found.members), None
    if may_train and np.count_nonzero(rows.event) < FEW_EVENTS:
        on_all = _on_all_rows(path, found.members[first], settings, folds)
    if on_all is None:
        selection, maps = when_needed(found.table, doubt), dict(found.maps)
    else:
        selection, maps = _judged_on_all(on_all, found, doubt), {**found.maps, first: on_all.map}
        doubt = None
    if selection.recalibrated and may_train and (on_all is None or selection.lam != first):
        better = cross_fitted(both(path.train, path.validation), found.members[selection.lam], settings, folds)
        maps[selection.lam] = better.map
    return Decision(selection, found.table, None if on_all is None else on_all.table, maps, doubt)


def _on_all_rows(
    path: TrainedPath, members: Sequence[FittedModel], settings: Settings, folds: int
) -> CrossFitted | None:
    """Measure one weight on all rows, unless even they cannot show whether it is calibrated."""
    rows = both(path.train, path.validation)
    if cannot_judge(rows, settings.calibration_bins) is not None:
        return None
    return cross_fitted(rows, members, settings, folds)


def _judged_on_all(on_all: CrossFitted, found: Candidates, doubt: str | None) -> Selection:
    """Ask all rows whether the smallest weight is off and whether a map corrects it, else the validation rows."""
    judge = f"all {on_all.n:,} cross-fitted rows"
    selection = when_needed(on_all.table, judge=judge)
    if selection.recalibrated or selection.at_floor:
        return selection
    # It is off, and a map does not correct it: the larger weights were measured on the validation rows alone.
    further = when_needed(found.table, doubt)
    return further if further.recalibrated or further.lam != selection.lam else selection
