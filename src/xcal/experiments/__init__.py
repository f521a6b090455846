"""Experiments as data: the paper's tables as specs, a runner that resumes, and the comparison with the paper.

How results are shown (tables, pictures, pages) is in `xcal.report`.
"""

from xcal.experiments.paper_comparison import Cell, Comparison, compare
from xcal.experiments.penalty_comparison import PenaltyComparison, compare_penalties
from xcal.experiments.records import Record, RecordFile
from xcal.experiments.runner import reproduce
from xcal.experiments.spec import Spec
from xcal.experiments.spec_file import load_spec, table_names
from xcal.experiments.table_runs import Summary

Headline = PenaltyComparison  # its earlier name

__all__ = [
    "Cell",
    "Comparison",
    "Headline",
    "PenaltyComparison",
    "Record",
    "RecordFile",
    "Spec",
    "Summary",
    "compare",
    "compare_penalties",
    "load_spec",
    "reproduce",
    "table_names",
]
