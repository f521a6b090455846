"""Two well-known benchmark tables, as `xcal.data.SurvivalData`. The data of the paper are in the package xcal_paper.

Loaders read files from a data directory: the argument `data_dir`, else the environment variable ``XCAL_DATA``, else a
cache folder of the user. Importing this package reads no file.
"""

from xcal.data import Fold
from xcal.datasets.benchmarks import load_metabric, load_support
from xcal.datasets.files import data_directory

__all__ = [
    "Fold",
    "data_directory",
    "load_metabric",
    "load_support",
]
