"""Names and numbers of an audit as people read them: one table for the page and the pictures."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from xcal.charts.words import Form, written
from xcal.validation.measurements import AuditValue
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
    "cox_slope": Label("Calibration slope (Cox)", "ratio", "1 is right; below 1: risks too extreme"),
    "cox_intercept": Label("Calibration intercept (Cox)", "ratio", "0 is right; below 0: risks too high"),
    "ici": Label("ICI", "fraction", "mean distance of predicted from observed risk"),
    "e50": Label("E50", "fraction", "median of that distance"),
    "e90": Label("E90", "fraction", "nine rows in ten are closer than this"),
    "emax": Label("Emax", "fraction", "the largest distance"),
    "brier": Label("Brier score", "fraction", "mean squared error; 0 is best"),
    "ipa": Label("IPA", "percent", "error saved against no covariates; higher is better"),
    "ibs": Label("Integrated Brier score", "fraction", "Brier score averaged over time"),
    "nll": Label("Negative log-likelihood", "fraction", "lower is better, for models of the same rows"),
    "d_calibration": Label("D-calibration (uniform)", "small", "0 is right; compare with the floor"),
    "d_calibration_km": Label("D-calibration (Kaplan-Meier)", "small", "0 is right; compare with the floor"),
    "d_calibration_ipcw": Label("D-calibration (weighted)", "small", "0 is right; compare with the floor"),
    "d_calibration_floor": Label("Floor (uniform)", "small", "mean of a perfect model on as many rows"),
    "d_calibration_km_floor": Label("Floor (Kaplan-Meier)", "small", "mean of a perfect model on as many rows"),
    "d_calibration_ipcw_floor": Label("Floor (weighted)", "small", "mean of a perfect model on as many rows"),
    "d_calibration_p": Label("D-calibration, p", "p", "below 0.05 speaks against the model"),
    "d_calibration_p_corrected": Label("D-calibration, p (Holm)", "p", "corrected for the number of groups"),
    "km_calibration": Label("KM calibration", "small", "mean prediction against Kaplan-Meier over time"),
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
    """Give the label of a metric; one that is not in the table keeps its own name."""
    return LABELS.get(metric, Label(metric, "small", ""))


def skipped_title(what: str) -> str:
    """Write what was not computed with the names that people read.

    Examples
    --------
    >>> skipped_title("ici at 5 in sex = f"), skipped_title("interval of antolini"), skipped_title("sex = f")
    ('ICI at 5 in sex = f', "Interval of Antolini's C", 'sex = f')
    """
    lead, of, name = what.partition("interval of ")
    if of and not lead:
        return f"Interval of {skipped_title(name)}"
    metric, space, rest = what.partition(" ")
    return f"{label(metric).name}{space}{rest}"


def shown(value: AuditValue) -> str:
    """Write the number of an audit."""
    return written(value.value, label(value.metric).form)


def interval(value: AuditValue) -> str:
    """Write the interval, "0.91 to 1.07"; "" if there is none."""
    if math.isnan(value.lower) or math.isnan(value.upper):
        return ""
    form = label(value.metric).form
    return f"{written(value.lower, form)} to {written(value.upper, form)}"


def names(results: Sequence[AuditResult]) -> list[str]:
    """Give each model a name of its own: models of the same name are numbered."""
    plain = [result.model for result in results]
    return [f"{name} ({k + 1})" if plain.count(name) > 1 else name for k, name in enumerate(plain)]


def find(result: AuditResult, metric: str, horizon: float | None = None, group: str | None = None) -> AuditValue | None:
    """Give one number, or None where it was not measured or is NaN."""
    try:
        value = result.value(metric, horizon=horizon, group=group)
    except KeyError:
        return None
    return None if math.isnan(value.value) else value


def missing(result: AuditResult, *metrics: str) -> list[str]:
    """Say why metrics are missing over all rows: each reason once, as "what: why"."""
    lines = []
    for what, why in result.measured.skipped:
        if what.split(" ")[0] in metrics and not any(what.endswith(f" in {group}") for group in result.groups):
            lines.append(f"{skipped_title(what)}: {why}")
    return list(dict.fromkeys(lines))


def not_judged(result: AuditResult) -> list[tuple[str, str]]:
    """List the groups that were too small to judge, with the reason."""
    return [
        (what, why)
        for what, why in result.measured.skipped
        if " = " in what and what not in result.groups and what.split(" ")[0] not in LABELS
    ]
