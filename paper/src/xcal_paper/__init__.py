"""The X-CAL paper, run again: its tables as specs, a runner that resumes, the comparison, and what only they need.

`pip install -e paper` adds the commands ``xcal reproduce``, ``compare``, ``results-page`` and ``mimic`` to xcal, and
the published code's ways (`published`) to its options. xcal itself never imports this package: it finds it by its
entry points.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xcal_paper.comparison import Cell, Comparison, PenaltyComparison, compare, compare_penalties
    from xcal_paper.glioma import load_glioma
    from xcal_paper.mimic3 import load_mimic_los
    from xcal_paper.records import Record, RecordFile
    from xcal_paper.runner import Summary, reproduce
    from xcal_paper.simulated import SurvivalDataset, load_gamma, load_survival_mnist
    from xcal_paper.spec import Spec, load_spec, table_names

# Where each public name lives. A name is imported when it is first asked for: `xcal --help` needs none of them.
_HOME = {
    "Cell": "comparison",
    "Comparison": "comparison",
    "PenaltyComparison": "comparison",
    "Record": "records",
    "RecordFile": "records",
    "Spec": "spec",
    "Summary": "runner",
    "SurvivalDataset": "simulated",
    "compare": "comparison",
    "compare_penalties": "comparison",
    "load_gamma": "simulated",
    "load_glioma": "glioma",
    "load_mimic_los": "mimic3",
    "load_spec": "spec",
    "load_survival_mnist": "simulated",
    "reproduce": "runner",
    "table_names": "spec",
}

__all__ = [
    "Cell",
    "Comparison",
    "PenaltyComparison",
    "Record",
    "RecordFile",
    "Spec",
    "Summary",
    "SurvivalDataset",
    "compare",
    "compare_penalties",
    "load_gamma",
    "load_glioma",
    "load_mimic_los",
    "load_spec",
    "load_survival_mnist",
    "reproduce",
    "table_names",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'xcal_paper' has no attribute {name!r}")
    value = getattr(import_module(f"xcal_paper.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
