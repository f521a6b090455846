"""Which items of TRIPOD+AI a report answers.

TRIPOD+AI is a guideline for reports of prediction models (Collins and others, BMJ 2024;385:e078378). Its items are
named here by number, in our own words; only those that the evaluation of a given model can speak to are listed.
"""

import math

from xcal.pages import Checklist, ChecklistItem
from xcal.validation.result import AuditResult

_CAPTION = "Items of TRIPOD+AI (BMJ 2024;385:e078378) that concern the evaluation of a model"


def checklist(result: AuditResult) -> Checklist:
    """Return the items with what this result says of each."""
    return Checklist(_CAPTION, (*_methods(result), *_results(result), *_left(result)))


def _item(number: str, asks: str, answered: bool | None, where: str) -> ChecklistItem:
    """Write one item; None is "in part"."""
    return ChecklistItem(number, asks, "in part" if answered is None else "yes" if answered else "no", where)


def _methods(result: AuditResult) -> tuple[ChecklistItem, ...]:
    groups = bool(result.groups)
    curves = bool(result.measured.calibration)
    full = curves and bool(result.measured.decision)
    return (
        _item("8a", "The outcome and the time over which it is predicted", None, "Horizons; say what the event is."),
        _item("10", "Whether there are enough rows and events", None, "Data: events and what they allow."),
        _item(
            "12e",
            "Every measure and picture of performance: discrimination, calibration, usefulness",
            True if full else None,
            "Methods; one section for each question.",
        ),
        _item(
            "12g",
            "How the predictions were obtained",
            True if result.reading else None,
            "Methods: how curves are read.",
        ),
        _item(
            "14",
            "What was done to see whether the model is fair",
            None if groups or result.measured.for_whom is not None else False,
            _fairness(result),
        ),
        _item(
            "15",
            "What the model gives out, and how thresholds were chosen",
            None,
            "Risks by horizon, and usefulness over a range of thresholds; say which one you would use.",
        ),
    )


def _fairness(result: AuditResult) -> str:
    if result.groups:
        return "Groups: calibration within each."
    if result.measured.for_whom is not None:
        return "For whom: calibration given the covariates; name the groups that matter (groups=, --by)."
    return "No groups were given: name them (groups=, --by)."


def _results(result: AuditResult) -> tuple[ChecklistItem, ...]:
    intervals = any(not math.isnan(value.lower) for value in result.values)
    groups = bool(result.groups)
    follow_up = not math.isnan(result.data.median_follow_up)
    return (
        _item(
            "20a",
            "How many took part, how many had the event, for how long they were followed",
            True if follow_up else None,
            "Data: rows, events, follow-up." if follow_up else "Data: rows and events; the median is not reached.",
        ),
        _item("21", "Rows and events behind each analysis", True, "Data, and the groups."),
        _item(
            "23a",
            "Performance with intervals, for important groups too",
            True if intervals and groups else None if intervals or groups else False,
            "All numbers"
            + ("" if intervals else ", without intervals")
            + ("." if groups else "; no groups were given."),
        ),
        _item(
            "23b",
            "Whether performance differs between sites or other clusters",
            None if groups else False,
            "Groups, if one of them is the site." if groups else "Give the site as a group (groups=, --by).",
        ),
    )


def _left(result: AuditResult) -> tuple[ChecklistItem, ...]:
    """Items that only the authors can answer, in one line."""
    where = "For you to write."
    return (
        _item("5–7", "Where the data come from, who could take part, how data were prepared", False, where),
        _item("9, 11", "Predictors and how they were measured; missing values", False, where),
        _item(
            "16, 20c",
            "How these rows differ from those the model was trained on",
            None if result.data.compared_with_training else False,
            "Data: the differences found, if any; say where both come from."
            if result.data.compared_with_training
            else "Give the training rows (training=, --training).",
        ),
        _item("24", "Results of any update of the model, such as recalibration", False, where),
        _item("25–27", "Interpretation, limitations, and how the model would be used", False, where),
    )
