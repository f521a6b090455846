"""MIMIC-III length of stay: from the raw files to the table that models are trained on.

The data is restricted: `prepare` reads the files that a user has downloaded from PhysioNet. See the README beside this
module for the steps and for what is written, and the page "MIMIC-III" of the documentation for how to get access.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from xcal_paper.mimic3.generator import generate
    from xcal_paper.mimic3.los import data_source, load_mimic_los
    from xcal_paper.mimic3.preparation import Prepared, prepare, read_manifest, write_benchmark_csv
    from xcal_paper.mimic3.variable_list import discretised_names, feature_names, variables

# Where each public name lives. A name is imported when it is first asked for: `xcal --help` needs none of them.
_HOME = {
    "Prepared": "preparation",
    "data_source": "los",
    "discretised_names": "variable_list",
    "feature_names": "variable_list",
    "generate": "generator",
    "load_mimic_los": "los",
    "prepare": "preparation",
    "read_manifest": "preparation",
    "variables": "variable_list",
    "write_benchmark_csv": "preparation",
}

__all__ = [
    "Prepared",
    "data_source",
    "discretised_names",
    "feature_names",
    "generate",
    "load_mimic_los",
    "prepare",
    "read_manifest",
    "variables",
    "write_benchmark_csv",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'xcal_paper.mimic3' has no attribute {name!r}")
    value = getattr(import_module(f"xcal_paper.mimic3.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
