"""Experiments as data: the paper's tables as specs, a runner that resumes, and the comparison with the paper."""

from xcal.experiments.comparison import Cell, Comparison, compare
from xcal.experiments.headline import Headline
from xcal.experiments.records import Record, RecordFile
from xcal.experiments.runner import Summary, reproduce
from xcal.experiments.spec import Spec, load_spec, table_names

__all__ = [
    "Cell",
    "Comparison",
    "Headline",
    "Record",
    "RecordFile",
    "Spec",
    "Summary",
    "compare",
    "load_spec",
    "reproduce",
    "table_names",
]
