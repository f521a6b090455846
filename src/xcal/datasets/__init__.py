"""Two well-known benchmark tables, as `xcal.data.SurvivalData`. The data of the paper are in the package xcal_paper.

Loaders read files from a data directory: the argument `data_dir`, else the environment variable ``XCAL_DATA``, else a
cache folder of the user. Importing this package reads no file.
"""

from xcal._deprecation import deprecated_names
from xcal.data import Fold
from xcal.datasets.benchmarks import load_metabric, load_support
from xcal.datasets.files import data_directory

__all__ = [
    "Fold",
    "data_directory",
    "load_metabric",
    "load_support",
]

__getattr__ = deprecated_names(
    __name__,
    {"SurvivalSplit": "xcal.data.SurvivalData", "SurvivalTable": "xcal.data.SurvivalData"},
    removed_in="0.2.0",
)
