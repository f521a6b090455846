"""Names and numbers of an audit as people read them: one table for the page and the pictures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xcal.charts.words import Form, time_in_words, written
from xcal.validation.measurements import AuditValue, Skipped
from xcal.validation.result import AuditResult


@dataclass(frozen=True)
class Label:
    """What a metric is called, how its numbers are written, and one line on how to read it."""

    name: str
    form: Form
    hint: str


LABELS = {
    "harrell": Label("Harrell's C", "fraction", "1 orders every pair rightly, 0.5 is chance"),
    "uno": Label("Uno's C", "fraction", "as Harrell's, corrected for censoring"),
    "antolini": Label("Antolini's C", "fraction", "as Harrell's, for curves that cross"),
    "auc": Label("AUC", "fraction", "1 separates who has the event by then, 0.5 is chance"),
    "oe": Label("O/E", "ratio", "events observed per event expected; 1 is right"),
    "mean_risk": Label("Mean predicted risk", "percent", "average over all rows"),
    "observed_risk": Label("Observed risk", "percent", "by Kaplan-Meier"),
    "oe_p": Label("O/E, p", "p", "test that the risks are right on average"),
    "oe_p_corrected": Label("O/E, p (corrected)", "p", "for the number of tests at horizons"),
    "slope": Label("Calibration slope", "ratio", "1 is right; below 1: risks too extreme"),
    "slope_p": Label("Calibration slope, p", "p", "test that the slope is 1"),
    "slope_p_corrected": Label("Calibration slope, p (corrected)", "p", "for the number of tests at horizons"),
    "intercept": Label("Calibration intercept", "ratio", "0 is right; below 0: risks too high"),
    "ici": Label("ICI", "fraction", "mean distance of predicted from observed risk"),
    "ici_floor": Label("ICI of a perfect model", "fraction", "its mean on as many rows: noise alone"),
    "ici_excess": Label("ICI without noise", "fraction", "what noise does not explain; 0 is right"),
    "ici_p": Label("ICI, p", "p", "test that the risks are right at each level"),
    "ici_p_corrected": Label("ICI, p (corrected)", "p", "for the number of tests at horizons"),
    "e50": Label("E50", "fraction", "median of that distance"),
    "e50_floor": Label("E50 of a perfect model", "fraction", "its mean on as many rows"),
    "e50_excess": Label("E50 without noise", "fraction", "what noise does not explain; 0 is right"),
    "e90": Label("E90", "fraction", "nine rows in ten are closer than this"),
    "e90_floor": Label("E90 of a perfect model", "fraction", "its mean on as many rows"),
    "e90_excess": Label("E90 without noise", "fraction", "what noise does not explain; 0 is right"),
    "emax": Label("Emax", "fraction", "the largest distance"),
    "emax_floor": Label("Emax of a perfect model", "fraction", "its mean on as many rows"),
    "emax_excess": Label("Emax without noise", "fraction", "what noise does not explain; 0 is right"),
    "cox_slope": Label("Slope by a Cox model", "ratio", "misleads where hazards are not proportional"),
    "cox_intercept": Label("Intercept by a Cox model", "ratio", "misleads where hazards are not proportional"),
    "ici_cox": Label("ICI by a Cox model", "fraction", "misleads where hazards are not proportional"),
    "e50_cox": Label("E50 by a Cox model", "fraction", "misleads where hazards are not proportional"),
    "e90_cox": Label("E90 by a Cox model", "fraction", "misleads where hazards are not proportional"),
    "emax_cox": Label("Emax by a Cox model", "fraction", "misleads where hazards are not proportional"),
    "brier": Label("Brier score", "fraction", "mean squared error; 0 is best"),
    "ipa": Label("IPA", "percent", "error saved against no covariates; higher is better"),
    "ibs": Label("Integrated Brier score", "fraction", "Brier score averaged over time"),
    "nll": Label("Negative log-likelihood", "fraction", "lower is better, for models of the same rows"),
    "d_calibration": Label("D-calibration (uniform)", "small", "0 is right; compare with the floor"),
    "d_calibration_km": Label("D-calibration (Kaplan-Meier)", "small", "0 is right; compare with the floor"),
    "d_calibration_ipcw": Label("D-calibration (weighted)", "small", "0 is right; compare with the floor"),
    "d_calibration_excess": Label("Without noise (uniform)", "small", "what noise does not explain"),
    "d_calibration_km_excess": Label(
        "Without noise (Kaplan-Meier)", "small", "what noise does not explain; 0 is right"
    ),
    "d_calibration_ipcw_excess": Label("Without noise (weighted)", "small", "what noise does not explain"),
    "d_calibration_floor": Label("Floor (uniform)", "small", "mean of a perfect model on as many rows"),
    "d_calibration_km_floor": Label("Floor (Kaplan-Meier)", "small", "mean of a perfect model on as many rows"),
    "d_calibration_ipcw_floor": Label("Floor (weighted)", "small", "mean of a perfect model on as many rows"),
    "d_calibration_p": Label("D-calibration, p", "p", "alone; of a perfect model below 0.05 in 5 of 100 audits"),
    "d_calibration_p_corrected": Label("D-calibration, p (Holm)", "p", "corrected for the number of groups"),
    "km_calibration": Label("KM calibration", "small", "mean prediction against Kaplan-Meier over time"),
    "km_calibration_floor": Label("KM calibration of a perfect model", "small", "its mean on as many rows"),
    "km_calibration_excess": Label("KM calibration without noise", "small", "what noise does not explain; 0 is right"),
    "conditional_calibration": Label("Conditional calibration", "small", "0 is right; compare with its noise"),
    "conditional_calibration_floor": Label(
        "Noise taken off", "small", "what chance alone adds; the value is without it"
    ),
    "conditional_calibration_noise": Label("Noise left", "small", "standard deviation of the value of a right model"),
    "conditional_calibration_p": Label("Conditional calibration, p", "p", "below 0.05: not right for all covariates"),
    "subgroup_p": Label("Subgroup most off, p", "p", "on rows that took no part in the search"),
    "one_calibration_p": Label("One-calibration, p", "p", "test of the risk groups at the horizon"),
}
VERDICTS = {
    "trust": ("good", "Can be trusted"),
    "caution": ("caution", "Use with caution"),
    "distrust": ("bad", "Not to be trusted"),
    "unknown": ("unknown", "Cannot be told"),
}
ESTIMATORS = {"uniform": "uniform", "km": "Kaplan-Meier", "ipcw": "weighted"}


def label(metric: str) -> Label:
    """Return the label of a metric; one that is not in the table keeps its own name."""
    return LABELS.get(metric, Label(metric, "small", ""))


def skipped_title(one: Skipped, unit: str = "") -> str:
    """Write what was not computed with the names that people read.

    Examples
    --------
    >>> skipped_title(Skipped("ici", "", 5.0, "sex = f")), skipped_title(Skipped("antolini", "", interval=True))
    ('ICI by time 5 in sex = f', "Interval of Antolini's C")
    >>> skipped_title(Skipped("group", "", group="sex = f")), skipped_title(Skipped("horizon", "", 5.0))
    ('sex = f', 'Everything by time 5')
    """
    if one.what == "group":
        return str(one.group)
    when = "" if one.horizon is None else f" by {time_in_words(one.horizon, unit)}"
    name = "Everything" if one.what == "horizon" else label(one.what).name
    where = "" if one.group is None else f" in {one.group}"
    return f"{'Interval of ' if one.interval else ''}{name}{when}{where}"


def shown(value: AuditValue) -> str:
    """Write the number of an audit."""
    return written(value.value, label(value.metric).form)


def interval(value: AuditValue, between: str = " to ") -> str:
    """Write the interval, "0.91 to 1.07"; "" if there is none."""
    if math.isnan(value.lower) or math.isnan(value.upper):
        return ""
    form = label(value.metric).form
    return between.join(written(end, form) for end in (value.lower, value.upper))


def names(results: Sequence[AuditResult]) -> list[str]:
    """Return a different name for each model: models of the same name are numbered."""
    plain = [result.model for result in results]
    return [f"{name} ({k + 1})" if plain.count(name) > 1 else name for k, name in enumerate(plain)]


def find(result: AuditResult, metric: str, horizon: float | None = None, group: str | None = None) -> AuditValue | None:
    """Return one number, or None where it was not measured or is NaN."""
    try:
        value = result.value(metric, horizon=horizon, group=group)
    except KeyError:
        return None
    return None if math.isnan(value.value) else value


def missing(result: AuditResult, *metrics: str) -> list[str]:
    """Return why metrics are missing over all rows: each reason once, as "what: why"."""
    lines = [
        f"{skipped_title(one, result.time_unit)}: {one.why}"
        for one in result.measured.skipped
        if one.what in metrics and one.group is None
    ]
    return list(dict.fromkeys(lines))


def not_judged(result: AuditResult) -> list[Skipped]:
    """Return the groups that were too small to judge, with the reason."""
    return [one for one in result.measured.skipped if one.what == "group"]
