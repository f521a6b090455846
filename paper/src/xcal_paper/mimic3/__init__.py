"""MIMIC-III length of stay: from the raw files to the table that models are trained on.

The data is restricted: `prepare` reads the files that a user has downloaded from PhysioNet. See the README beside this
module for the steps and for what is written, and the page "MIMIC-III" of the documentation for how to get access.
"""

from xcal_paper.mimic3.generator import generate
from xcal_paper.mimic3.los import data_source, load_mimic_los
from xcal_paper.mimic3.preparation import Prepared, prepare, read_manifest, write_benchmark_csv
from xcal_paper.mimic3.variables import discretised_names, feature_names, variables

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
