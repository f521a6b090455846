"""The data sets of the paper and two well-known benchmark tables, as numpy arrays.

`load_gamma` needs nothing. The others read files from a data directory: the argument `data_dir`, else the environment
variable ``XCAL_DATA``, else a cache folder of the user. Importing this package reads no file.
"""

from xcal.datasets.benchmarks import load_metabric, load_support
from xcal.datasets.files import data_directory
from xcal.datasets.gamma import load_gamma
from xcal.datasets.glioma import load_glioma
from xcal.datasets.mnist import load_survival_mnist
from xcal.datasets.rows import Fold, SurvivalDataset, SurvivalSplit, SurvivalTable

__all__ = [
    "Fold",
    "SurvivalDataset",
    "SurvivalSplit",
    "SurvivalTable",
    "data_directory",
    "load_gamma",
    "load_glioma",
    "load_metabric",
    "load_support",
    "load_survival_mnist",
]
