"""The frontier of a path, and the rules that choose a model from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from xcal._checks import as_choice, as_number, fail
from xcal.calibration import d_calibration
from xcal.data import SurvivalData
from xcal.estimators.fitted import FittedModel
from xcal.estimators.fitting import conditional_values, dcal_influence, gap_error, weighted_mean
from xcal.estimators.inputs import Floats
from xcal.metrics import concordance_index, kaplan_meier
from xcal.objectives import nll
from xcal.show.charts import p_in_words

# --- What the default rule of a path judges its candidates by: what the penalty asked for.


@dataclass(frozen=True)
class JudgedBy:
    """A column of the candidates, whose test and error have columns beside it.

    Attributes
    ----------
    name : str
        The column; ``<name>_p`` and ``<name>_gap_se`` are those of the test and the error.
    words : str
        What it is called in a sentence.
    floor : str or None
        Column of what a perfect model scores; None where that is zero.
    """

    name: str
    words: str
    floor: str | None

    def excess(self, lines: Any) -> Any:
        """Value above what a perfect model scores, of one candidate or of several."""
        return lines[self.name] if self.floor is None else lines[self.name] - lines[self.floor]

    def described(self, line: "pd.Series[Any]") -> str:
        """Return what a candidate scores."""
        perfect = 0.0 if self.floor is None else line[self.floor]
        score = f"{self.words} {line[self.name]:.2g}, a perfect model scores {perfect:.2g}"
        return f"{score}, {p_in_words(line[f'{self.name}_p'])}"


def judged_by(table: pd.DataFrame) -> JudgedBy:
    """Read it off a table of candidates: that of models trained for calibration given the covariates has its test."""
    if "conditional_p" in table:
        return JudgedBy("conditional", "conditional calibration", None)
    return JudgedBy("dcal", "D-calibration", "dcal_floor")


# --- The frontier of a path, and the rules that choose a model from it.


_MEASURES = ("nll", "dcal", "concordance")
RULES = ("when_needed", "one_standard_error")
# A model is off if a perfect one would look as bad in fewer than this share of samples.
_LEVEL = 0.05
# A larger weight must lower D-calibration by so many standard errors. Two and not one: its epoch was chosen on the same
# rows, partly for a low D-calibration.
_CLEAR = 2.0
# Numbers of a file that are read at a time.
_NUMBERS = 1 << 21
# With fewer validation events the test shows little: with 25 it finds hazards twice too high in six of ten samples,
# with 8 in two of ten.
FEWEST_EVENTS = 25


@dataclass(frozen=True)
class Selection:
    """The model that a path chose by itself, and why.

    Attributes
    ----------
    lam : float
        The weight.
    recalibrated : bool
        Whether the Kaplan-Meier map of F was chosen with it.
    rule : str
        "when_needed" or "target_dcal".
    reason : str
        What was decided and why, in a sentence.
    at_floor : bool
        Whether the smallest weight stays because nothing shows that it is off.
    """

    lam: float
    rule: str
    reason: str
    recalibrated: bool = False
    at_floor: bool = False


def frontier(models: Sequence[FittedModel], rows: SurvivalData, n_bins: int, *, one_group: bool) -> pd.DataFrame:
    """Values of every model on the validation rows, one line per model; see `SurvivalPath.frontier_`."""
    losses = np.stack([_losses(model, rows) for model in models])
    cdf = np.stack([model.cdf_at_own(rows.x, rows.time) for model in models])
    frame = pd.DataFrame([_line(*parts, rows, n_bins) for parts in zip(models, losses, cdf, strict=True)])
    frame["conditional"] = conditional_values(cdf, rows.x, rows.event, rows.weights, n_bins)
    # With a target each seed has found its own weight: all seeds together are the one answer.
    groups = np.zeros(len(frame)) if one_group else frame["lambda"].to_numpy()
    trained = np.isfinite(frame["nll"].to_numpy())
    by_row = _means_by_group(losses, groups, trained)
    lowest = min(by_row, key=lambda group: weighted_mean(by_row[group], rows))
    frame["nll_gap_se"] = _gap_errors(by_row, groups, lowest, rows, rows.weights)
    influence = _means_by_group(np.stack([dcal_influence(u, rows, n_bins) for u in cdf]), groups, trained)
    frame["dcal_gap_se"] = _gap_errors(influence, groups, min(influence), rows)
    for name in _MEASURES:
        frame[f"{name}_sd"] = frame.groupby(groups)[name].transform("std")
    return frame


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds of each lambda, and the standard deviations."""
    groups = frame.groupby("lambda")
    means = groups[["nll", "nll_gap_se", "dcal", "dcal_gap_se", "dcal_floor", "conditional", "concordance"]].mean()
    spread = groups[[f"{name}_sd" for name in _MEASURES]].first()
    return means.join(groups["dcal_p"].agg(_common_p_value)).join(spread)


def cannot_judge(rows: SurvivalData, n_bins: int, judge: str = "validation rows") -> str | None:
    """Return why rows cannot show whether a model is calibrated; None if they can. `judge` is their name."""
    events = int(np.count_nonzero(rows.event))
    if events < FEWEST_EVENTS:
        return f"{events} events among {rows.n} {judge} are too few to judge calibration by"
    # Without covariates the Kaplan-Meier curve is a perfect model. If the test finds it off, that is the work of ties,
    # and no model can be judged by it. The factor is that of plotting positions: the last event is not at F = 1.
    curve = kaplan_meier(time=rows.time, event=rows.event, weights=rows.weights)
    cdf = np.clip(1.0 - curve.at(rows.time), 0.0, 1.0) * rows.n / (rows.n + 1)
    p_value = d_calibration(cdf, rows.event, n_bins=n_bins, weights=rows.weights).p_value
    if p_value is not None and p_value < _LEVEL:
        distinct = np.unique(rows.time).size
        return f"{distinct} distinct times among {rows.n} {judge} are too few to judge calibration by"
    return None


def when_needed(table: pd.DataFrame, doubt: str | None = None, judge: str = "the validation rows") -> Selection:
    """Choose by the default rule of `SurvivalPath.select` from a table of `candidates`.

    `doubt` is the answer of `cannot_judge` for the rows that the table was measured on, and `judge` their name.
    """
    known = table.dropna(subset=["nll", "dcal"])
    plain = known[~known["recalibrated"].astype(bool)]
    own = plain.loc[plain["lambda"].idxmin()]
    first, others = float(own["lambda"]), known.drop(index=own.name)

    def stay(reason: str, *, at_floor: bool = False) -> Selection:
        return Selection(first, "when_needed", f"lambda {first:g}: {reason}", at_floor=at_floor)

    if others.empty:
        return stay("nothing else to choose from")
    if doubt is not None:
        return stay(doubt)
    by = judged_by(table)
    off = by.described(own)
    shown = f"as {judge} show"
    # Not `>=`: a p-value that is not known shows nothing.
    if not own[f"{by.name}_p"] < _LEVEL:
        told = f"at its floor, as far as {judge} can tell: nothing to correct ({off})"
        return stay(told, at_floor=True)
    gain = by.excess(own) - by.excess(others)
    better = others[gain > _CLEAR * others[f"{by.name}_gap_se"]]
    if better.empty:
        return stay(f"it is off, {shown} ({off}), but nothing else is less so by more than chance")
    allowed = better[better["nll"] - own["nll"] <= better["nll_gap_se"]]
    if allowed.empty:
        return stay(f"it is off, {shown} ({off}), but all that is less so costs more than one standard error of NLL")
    calibrated = allowed[allowed[f"{by.name}_p"] >= _LEVEL]
    if calibrated.empty:
        chosen, what = allowed.loc[allowed[by.name].idxmin()], f"has the lowest {by.words}"
    else:
        chosen, what = _smallest(calibrated), "is the smallest step that the test does not find off"
    lam, recalibrated = float(chosen["lambda"]), bool(chosen["recalibrated"])
    reason = f"lambda {first:g} is off, {shown} ({off}), and of what comes without a visible loss of NLL this {what}"
    told = f"{named(lam, recalibrated=recalibrated)}: {reason} ({chosen[by.name]:.2g})"
    return Selection(lam, "when_needed", told, recalibrated)


def nearest_to(table: pd.DataFrame, target: float) -> int:
    """Line of the lowest NLL among seeds at or below the target, else of the lowest D-calibration."""
    reached = table["dcal"] <= target
    return int(table.loc[reached, "nll"].idxmin() if reached.any() else table["dcal"].idxmin())


def by_target(table: pd.DataFrame, target: float) -> Selection:
    """Choose among seeds that each found a weight for the same target."""
    line = table.loc[nearest_to(table, target)]
    what = "the seed with the lowest NLL of those that reached" if line["dcal"] <= target else "the seed closest to"
    reason = f"lambda {line['lambda']:.4g}: {what} the target of {target:g}, with a D-calibration of {line['dcal']:.2g}"
    return Selection(float(line["lambda"]), "target_dcal", reason)


def _smallest(table: pd.DataFrame) -> "pd.Series[Any]":
    """Smallest step away from the first model: a map that leaves the networks alone, then the smallest weight."""
    return table.sort_values(["lambda", "recalibrated"], ascending=True).iloc[0]


def named(lam: float, *, recalibrated: bool) -> str:
    """Return which candidate it is."""
    return f"lambda {lam:g}, recalibrated" if recalibrated else f"lambda {lam:g}"


def as_candidates(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds in the form of a table of candidates, for a path whose candidates were not measured."""
    return summarise(_finished(frame)).reset_index().assign(recalibrated=False)


def choose(
    table: pd.DataFrame, *, max_dcal: Any = None, max_concordance_drop: Any = None, rule: Any = None
) -> tuple[float, bool]:
    """Weight that a rule other than the default chooses from a table of candidates, and whether recalibrated."""
    rules = {"max_dcal": max_dcal, "max_concordance_drop": max_concordance_drop, "rule": rule}
    given = [name for name, value in rules.items() if value is not None]
    if len(given) > 1:
        fail("select", "one rule at a time", " and ".join(given))
    if max_dcal is not None:
        limit = _limit("max_dcal", max_dcal)
        return _best(table, table["dcal"] <= limit, "nll", "max_dcal", table["dcal"], limit)
    if max_concordance_drop is not None:
        limit = _limit("max_concordance_drop", max_concordance_drop)
        drop = table["concordance"].max() - table["concordance"]
        if drop.isna().all():
            fail("max_concordance_drop", "validation rows that can be compared in pairs", "none: too few events")
        return _best(table, drop <= limit, "dcal", "max_concordance_drop", drop, limit)
    as_choice("rule", rule, RULES)
    fail("rule", "one_standard_error (this path has a target)", repr(rule))


def largest_within_one_error(frame: pd.DataFrame) -> float:
    """Weight that the rule "one_standard_error" chooses by means over the seeds; see `SurvivalPath.select`."""
    summary = summarise(_finished(frame))
    return float(summary.index[summary["nll"] - summary["nll"].min() <= summary["nll_gap_se"]].max())


def _finished(frame: pd.DataFrame) -> pd.DataFrame:
    """Lines of the candidates: a model without a finished epoch has no values, and is none."""
    return frame.dropna(subset=["nll", "dcal"])


def _common_p_value(values: "pd.Series[float]") -> float:
    """One p-value for all seeds of a weight, valid whatever their dependence: Rüger's, of more than half of them.

    That k of K p-values are below p happens by chance with a probability of at most K p / k.
    """
    k = values.size // 2 + 1
    return float(np.minimum(1.0, values.size / k * np.sort(values.to_numpy())[k - 1]))


def _losses(model: FittedModel, rows: SurvivalData) -> Floats:
    """Negative log-likelihood of each row."""
    # Rows in a file are not read all at once.
    parts = rows.batches(rows.n if isinstance(rows.x, np.ndarray) else max(1, _NUMBERS // rows.x.shape[1]))
    return np.concatenate(
        [nll(model.distribution(p.x), torch.from_numpy(p.time), torch.from_numpy(p.event)).numpy() for p in parts]
    )


def _means_by_group(values: Floats, groups: Floats, trained: npt.NDArray[np.bool_]) -> dict[float, Floats]:
    """For each group with trained models, the mean over these of their values for each row."""
    known = np.unique(groups[trained])
    return {float(group): values[(groups == group) & trained].mean(0) for group in known}


def _gap_errors(
    by_row: dict[float, Floats],
    groups: Floats,
    reference: float,
    rows: SurvivalData,
    weights: Floats | None = None,
) -> Floats:
    """Estimate the error, over the rows, of how far each line's group is from the reference; 0 for the reference."""
    errors = {group: gap_error(values, by_row[reference], rows.groups, weights) for group, values in by_row.items()}
    return np.array([errors.get(float(group), np.nan) for group in groups])


def _line(model: FittedModel, losses: Floats, cdf: Floats, rows: SurvivalData, n_bins: int) -> dict[str, Any]:
    trained = model.best_epoch >= 0
    measured = d_calibration(cdf, rows.event, n_bins=n_bins, clusters=rows.groups, weights=rows.weights)
    outcome = {"time": rows.time, "event": rows.event, "weights": rows.weights}
    return {
        "lambda": model.lam,
        "seed": model.seed,
        "nll": weighted_mean(losses, rows) if trained else np.nan,
        "dcal": float(model.history.dcal[model.best_epoch, 0]) if trained else np.nan,
        "dcal_floor": measured.floor,
        "dcal_p": measured.p_value,
        "concordance": concordance_index(**outcome, risk=model.risk(rows.x)).value,
        "total": float(model.history.total[model.best_epoch, 0]) if trained else np.nan,
        "best_epoch": model.best_epoch,
    }


def _best(
    table: pd.DataFrame, allowed: "pd.Series[bool]", by: str, name: str, value: "pd.Series[float]", limit: float
) -> tuple[float, bool]:
    """Of the candidates that keep to the limit, the one with the lowest `by`."""
    if not allowed.any():
        closest = table.loc[value.idxmin()]
        reached = named(float(closest["lambda"]), recalibrated=bool(closest["recalibrated"]))
        fail(name, f"at least {value.min():.3g}, which {reached} reaches", limit)
    line = table.loc[table.loc[allowed, by].idxmin()]
    return float(line["lambda"]), bool(line["recalibrated"])


def _limit(name: str, value: Any) -> float:
    return as_number(name, value, at_least=0)
