"""The data sets of the paper and two well-known benchmark tables, as `xcal.data.SurvivalData`.

`load_gamma` needs nothing, and `load_mimic_los` the folder that ``xcal mimic prepare`` has made. The others read files
from a data directory: the argument `data_dir`, else the environment variable ``XCAL_DATA``, else a cache folder of the
user. Importing this package reads no file.
"""

from xcal._deprecation import deprecated_names
from xcal.data import Fold
from xcal.datasets.benchmarks import load_metabric, load_support
from xcal.datasets.files import data_directory
from xcal.datasets.gamma import load_gamma
from xcal.datasets.glioma import load_glioma
from xcal.datasets.mimic3 import load_mimic_los
from xcal.datasets.mnist import load_survival_mnist
from xcal.datasets.rows import SurvivalDataset

__all__ = [
    "Fold",
    "SurvivalDataset",
    "data_directory",
    "load_gamma",
    "load_glioma",
    "load_metabric",
    "load_mimic_los",
    "load_support",
    "load_survival_mnist",
]

__getattr__ = deprecated_names(
    __name__,
    {"SurvivalSplit": "xcal.data.SurvivalData", "SurvivalTable": "xcal.data.SurvivalData"},
    removed_in="0.2.0",
)
