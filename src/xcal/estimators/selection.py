"""The frontier of a path, and the rules that choose a weight from it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from xcal._checks import fail
from xcal.calibration import d_calibration
from xcal.data import SurvivalData
from xcal.estimators.fitted import FittedModel
from xcal.estimators.inputs import Floats
from xcal.metrics import concordance_index
from xcal.objectives import nll

_MEASURES = ("nll", "dcal", "concordance")
RULES = ("one_standard_error",)


def frontier(models: Sequence[FittedModel], rows: SurvivalData, n_bins: int, *, one_group: bool) -> pd.DataFrame:
    """Values of every model on the validation rows, one line a model; see `SurvivalPath.frontier_`."""
    losses = np.stack([_losses(model, rows) for model in models])
    frame = pd.DataFrame([_line(model, rows, loss, n_bins) for model, loss in zip(models, losses, strict=True)])
    # With a target each seed has found its own weight: all seeds together are the one answer.
    groups = np.zeros(len(frame)) if one_group else frame["lambda"].to_numpy()
    frame["nll_gap_se"] = _gap_errors(losses, groups, frame["nll"].to_numpy())
    for name in _MEASURES:
        frame[f"{name}_sd"] = frame.groupby(groups)[name].transform("std")
    return frame


def summarise(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the seeds of each lambda, and the standard deviations."""
    means = frame.groupby("lambda")[["nll", "nll_gap_se", "dcal", "dcal_floor", "concordance"]].mean()
    spread = frame.groupby("lambda")[[f"{name}_sd" for name in _MEASURES]].first()
    return means.join(spread)


def choose(frame: pd.DataFrame, *, max_dcal: Any = None, max_concordance_drop: Any = None, rule: Any = None) -> float:
    """Weight that a rule chooses; see `SurvivalPath.select`."""
    rules = {"max_dcal": max_dcal, "max_concordance_drop": max_concordance_drop, "rule": rule}
    given = [name for name, value in rules.items() if value is not None]
    if len(given) > 1:
        fail("select", "one rule at a time", " and ".join(given))
    # A model without a finished epoch has no values, and is no candidate.
    summary = summarise(frame.dropna(subset=["nll", "dcal"]))
    if max_dcal is not None:
        limit = _limit("max_dcal", max_dcal)
        return _best(summary, summary["dcal"] <= limit, "nll", "max_dcal", summary["dcal"], limit)
    if max_concordance_drop is not None:
        limit = _limit("max_concordance_drop", max_concordance_drop)
        drop = summary["concordance"].max() - summary["concordance"]
        if drop.isna().all():
            fail("max_concordance_drop", "validation rows that can be compared in pairs", "none: too few events")
        return _best(summary, drop <= limit, "dcal", "max_concordance_drop", drop, limit)
    if rule not in (None, *RULES):
        fail("rule", f"one of {', '.join(RULES)}", repr(rule))
    return float(summary.index[summary["nll"] - summary["nll"].min() <= summary["nll_gap_se"]].max())


def _losses(model: FittedModel, rows: SurvivalData) -> Floats:
    """Negative log-likelihood of each row, times its weight if there are weights (of mean one)."""
    values = nll(model.distribution(rows.x), torch.from_numpy(rows.time), torch.from_numpy(rows.event)).numpy()
    return values if rows.weights is None else np.asarray(values * rows.weights / rows.weights.mean())


def _gap_errors(losses: Floats, groups: Floats, means: Floats) -> Floats:
    """Estimate the error, over the rows, of how much worse each line's lambda is than the best one; 0 for the best.

    All models see the same rows, and most of what makes a row's loss large or small is common to all of them. The error
    of the difference is therefore far smaller than that of either value.
    """
    known = np.unique(groups[np.isfinite(means)])
    rows = {group: losses[(groups == group) & np.isfinite(means)].mean(0) for group in known}
    best = rows[min(rows, key=lambda group: rows[group].mean())]
    errors = {group: float(np.std(values - best) / np.sqrt(best.size)) for group, values in rows.items()}
    return np.array([errors.get(group, np.nan) for group in groups])


def _line(model: FittedModel, rows: SurvivalData, losses: Floats, n_bins: int) -> dict[str, Any]:
    trained = model.best_epoch >= 0
    measured = d_calibration(model.cdf_at_own(rows.x, rows.time), rows.event, n_bins=n_bins, p_value=None)
    return {
        "lambda": model.lam,
        "seed": model.seed,
        "nll": float(losses.mean()) if trained else np.nan,
        "dcal": float(model.history.dcal[model.best_epoch, 0]) if trained else np.nan,
        "dcal_floor": measured.floor * rows.design_effect,
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
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value < np.inf:
        fail(name, "a finite number, zero or larger", repr(value))
    return float(value)
