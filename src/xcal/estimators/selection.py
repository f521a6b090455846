"""The frontier of a path, and the rules that choose a weight from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from xcal._checks import as_choice, as_number, fail
from xcal.calibration import d_calibration
from xcal.calibration.bins import bin_edges
from xcal.calibration.membership import bins_from_above, exact_above
from xcal.data import SurvivalData
from xcal.estimators.fitted import FittedModel
from xcal.estimators.inputs import Floats
from xcal.metrics import concordance_index, kaplan_meier
from xcal.objectives import nll

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
    """The weight that a path chose by itself, and why.

    Attributes
    ----------
    lam : float
        The weight.
    rule : str
        "when_needed" or "target_dcal"; "one_standard_error" for a path from a file of an earlier version.
    reason : str
        What was decided and why, in a sentence.
    """

    lam: float
    rule: str
    reason: str


def frontier(models: Sequence[FittedModel], rows: SurvivalData, n_bins: int, *, one_group: bool) -> pd.DataFrame:
    """Values of every model on the validation rows, one line per model; see `SurvivalPath.frontier_`."""
    losses = np.stack([_losses(model, rows) for model in models])
    cdf = np.stack([model.cdf_at_own(rows.x, rows.time) for model in models])
    frame = pd.DataFrame([_line(*parts, rows, n_bins) for parts in zip(models, losses, cdf, strict=True)])
    # With a target each seed has found its own weight: all seeds together are the one answer.
    groups = np.zeros(len(frame)) if one_group else frame["lambda"].to_numpy()
    trained = np.isfinite(frame["nll"].to_numpy())
    by_row = _means_by_group(losses, groups, trained)
    frame["nll_gap_se"] = _gap_errors(by_row, groups, min(by_row, key=lambda group: float(by_row[group].mean())))
    influence = _means_by_group(np.stack([_dcal_influence(u, rows, n_bins) for u in cdf]), groups, trained)
    frame["dcal_gap_se"] = _gap_errors(influence, groups, min(influence))
    for name in _MEASURES:
        frame[f"{name}_sd"] = frame.groupby(groups)[name].transform("std")
    return frame


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds of each lambda, and the standard deviations."""
    groups = frame.groupby("lambda")
    means = groups[["nll", "nll_gap_se", "dcal", "dcal_gap_se", "dcal_floor", "concordance"]].mean()
    spread = groups[[f"{name}_sd" for name in _MEASURES]].first()
    return means.join(groups["dcal_p"].agg(_common_p_value)).join(spread)


def cannot_judge(rows: SurvivalData, n_bins: int) -> str | None:
    """Say why the validation rows cannot show whether a model is calibrated; None if they can."""
    events = int(np.count_nonzero(rows.event))
    if events < FEWEST_EVENTS:
        return f"{events} events among {rows.n} validation rows are too few to judge calibration by"
    # Without covariates the Kaplan-Meier curve is a perfect model. If the test finds it off, that is the work of ties,
    # and no model can be judged by it. The factor is that of plotting positions: the last event is not at F = 1.
    curve = kaplan_meier(time=rows.time, event=rows.event)
    cdf = np.clip(1.0 - curve.at(rows.time), 0.0, 1.0) * rows.n / (rows.n + 1)
    p_value = d_calibration(cdf, rows.event, n_bins=n_bins).p_value
    if p_value is not None and p_value < _LEVEL:
        distinct = np.unique(rows.time).size
        return f"{distinct} distinct times among {rows.n} validation rows are too few to judge calibration by"
    return None


def when_needed(frame: pd.DataFrame, doubt: str | None = None) -> Selection:
    """Choose by the default rule of `SurvivalPath.select`; `doubt` is the answer of `cannot_judge`."""
    summary = summarise(_finished(frame))
    first = float(summary.index.min())

    def stay(reason: str) -> Selection:
        return Selection(first, "when_needed", f"lambda {first:g}: {reason}")

    own, others = summary.loc[first], summary.drop(index=first)
    if others.empty:
        return stay("no other weight to choose from")
    if doubt is not None:
        return stay(doubt)
    off = f"D-calibration {own['dcal']:.2g}, a perfect model scores {own['dcal_floor']:.2g}, p = {own['dcal_p']:.2g}"
    # Not `>=`: a p-value that is not known shows nothing.
    if not own["dcal_p"] < _LEVEL:
        return stay(f"the validation rows do not show that it is off ({off})")
    gain = (own["dcal"] - own["dcal_floor"]) - (others["dcal"] - others["dcal_floor"])
    better = others[gain > _CLEAR * others["dcal_gap_se"]]
    if better.empty:
        return stay(f"it is off ({off}), but no larger weight is less so by more than chance")
    allowed = better[better.index.isin(_within_one_error(summary))]
    if allowed.empty:
        return stay(f"it is off ({off}), but every weight that is less so costs more than one standard error of NLL")
    calibrated = allowed[allowed["dcal_p"] >= _LEVEL]
    if calibrated.empty:
        lam, what = float(allowed["dcal"].idxmin()), "has the lowest D-calibration"
    else:
        lam, what = float(calibrated.index.min()), "is the smallest weight that the test does not find off"
    reason = f"lambda {first:g} is off ({off}), and of the weights without a visible loss of NLL this one {what}"
    return Selection(lam, "when_needed", f"lambda {lam:g}: {reason} ({summary.loc[lam, 'dcal']:.2g})")


def choose(frame: pd.DataFrame, *, max_dcal: Any = None, max_concordance_drop: Any = None, rule: Any = None) -> float:
    """Weight that a rule other than the default chooses; see `SurvivalPath.select`."""
    rules = {"max_dcal": max_dcal, "max_concordance_drop": max_concordance_drop, "rule": rule}
    given = [name for name, value in rules.items() if value is not None]
    if len(given) > 1:
        fail("select", "one rule at a time", " and ".join(given))
    summary = summarise(_finished(frame))
    if max_dcal is not None:
        limit = _limit("max_dcal", max_dcal)
        return _best(summary, summary["dcal"] <= limit, "nll", "max_dcal", summary["dcal"], limit)
    if max_concordance_drop is not None:
        limit = _limit("max_concordance_drop", max_concordance_drop)
        drop = summary["concordance"].max() - summary["concordance"]
        if drop.isna().all():
            fail("max_concordance_drop", "validation rows that can be compared in pairs", "none: too few events")
        return _best(summary, drop <= limit, "dcal", "max_concordance_drop", drop, limit)
    as_choice("rule", rule, RULES)
    if rule == "when_needed":
        expected = "one_standard_error (this path has a target, or comes from a file of an earlier version)"
        fail("rule", expected, repr(rule))
    return float(_within_one_error(summary).max())


def _finished(frame: pd.DataFrame) -> pd.DataFrame:
    """Lines of the candidates: a model without a finished epoch has no values, and is none."""
    return frame.dropna(subset=["nll", "dcal"])


def _within_one_error(summary: pd.DataFrame) -> "pd.Index[float]":
    """Weights whose NLL is at most one standard error of the difference above the lowest."""
    return summary.index[summary["nll"] - summary["nll"].min() <= summary["nll_gap_se"]]


def _common_p_value(values: "pd.Series[float]") -> float:
    """One p-value for all seeds of a weight, valid whatever their dependence: Rüger's, of more than half of them.

    That k of K p-values are below p happens by chance with a probability of at most K p / k.
    """
    k = values.size // 2 + 1
    return float(np.minimum(1.0, values.size / k * np.sort(values.to_numpy())[k - 1]))


def _losses(model: FittedModel, rows: SurvivalData) -> Floats:
    """Negative log-likelihood of each row, times its weight if there are weights (of mean one)."""
    # Rows in a file are not read all at once.
    parts = rows.batches(rows.n if isinstance(rows.x, np.ndarray) else max(1, _NUMBERS // rows.x.shape[1]))
    values = np.concatenate(
        [nll(model.distribution(p.x), torch.from_numpy(p.time), torch.from_numpy(p.event)).numpy() for p in parts]
    )
    return values if rows.weights is None else np.asarray(values * rows.weights / rows.weights.mean())


def _dcal_influence(cdf: Floats, rows: SurvivalData, n_bins: int) -> Floats:
    """First-order effect of each row on D-calibration, ``(n,)``: the spread of its mean is that of D-calibration.

    With a row's deviations d_j = (its share of bin j) - width, D-calibration is the sum over j of mean(d_j)^2; its
    derivative in the weight of a row is 2 sum mean(d_j) (d_j - mean(d_j)).
    """
    edges = torch.from_numpy(bin_edges(n_bins))
    u, inner = torch.from_numpy(cdf), edges[1:-1]
    happened = torch.from_numpy(rows.event).unsqueeze(-1)
    above = torch.where(happened, (u.unsqueeze(-1) >= inner).double(), exact_above(u, edges))
    deviation = bins_from_above(above - (1 - inner)).numpy()
    weights = np.ones(rows.n) if rows.weights is None else rows.weights / rows.weights.mean()
    mean = weights @ deviation / rows.n
    return np.asarray(2 * weights * ((deviation - mean) @ mean))


def _means_by_group(values: Floats, groups: Floats, trained: npt.NDArray[np.bool_]) -> dict[float, Floats]:
    """For each group with trained models, the mean over these of their values for each row."""
    known = np.unique(groups[trained])
    return {float(group): values[(groups == group) & trained].mean(0) for group in known}


def _gap_errors(by_row: dict[float, Floats], groups: Floats, reference: float) -> Floats:
    """Estimate the error, over the rows, of how far each line's group is from the reference; 0 for the reference.

    All models see the same rows, and most of what makes a row's value large or small is common to all of them. The
    error of the difference is therefore far smaller than that of either value.
    """
    base = by_row[reference]
    errors = {group: float(np.std(values - base) / np.sqrt(base.size)) for group, values in by_row.items()}
    return np.array([errors.get(float(group), np.nan) for group in groups])


def _line(model: FittedModel, losses: Floats, cdf: Floats, rows: SurvivalData, n_bins: int) -> dict[str, Any]:
    trained = model.best_epoch >= 0
    measured = d_calibration(cdf, rows.event, n_bins=n_bins)
    return {
        "lambda": model.lam,
        "seed": model.seed,
        "nll": float(losses.mean()) if trained else np.nan,
        "dcal": float(model.history.dcal[model.best_epoch, 0]) if trained else np.nan,
        "dcal_floor": measured.floor * rows.design_effect,
        "dcal_p": measured.p_value,
        "concordance": concordance_index(time=rows.time, event=rows.event, risk=model.risk(rows.x)).value,
        "total": float(model.history.total[model.best_epoch, 0]) if trained else np.nan,
        "best_epoch": model.best_epoch,
    }


def _best(
    summary: pd.DataFrame, allowed: "pd.Series[bool]", by: str, name: str, value: "pd.Series[float]", limit: float
) -> float:
    """Of the weights that keep to the limit, the one with the lowest `by`."""
    if not allowed.any():
        closest = value.idxmin()
        fail(name, f"at least {value.min():.3g}, which lambda {closest:g} reaches", limit)
    return float(summary.loc[allowed, by].idxmin())


def _limit(name: str, value: Any) -> float:
    return as_number(name, value, at_least=0)
