"""The sections of a report: one question each, its picture, how to read it, and its numbers."""

from xcal.validation.sections.answer import glance, main_differences, verdicts
from xcal.validation.sections.calibration import all_times, each_level, on_average
from xcal.validation.sections.closing import all_numbers, data, guideline, methods
from xcal.validation.sections.for_whom import for_whom
from xcal.validation.sections.groups import groups
from xcal.validation.sections.performance import by_outcome, ordering, overall_error, usefulness

__all__ = [
    "all_numbers",
    "all_times",
    "by_outcome",
    "data",
    "each_level",
    "for_whom",
    "glance",
    "groups",
    "guideline",
    "main_differences",
    "methods",
    "on_average",
    "ordering",
    "overall_error",
    "usefulness",
    "verdicts",
]
