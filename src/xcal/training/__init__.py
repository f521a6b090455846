"""Training: a whole path of models, every lambda and seed, in one run."""

from xcal._deprecation import deprecated_names
from xcal.training.config import TrainingConfig
from xcal.training.path import fit_path
from xcal.training.progress import EpochReport
from xcal.training.result import Failure, History, PathResult

__all__ = ["EpochReport", "Failure", "History", "PathResult", "TrainingConfig", "fit_path"]

__getattr__ = deprecated_names(__name__, {"Rows": "xcal.data.SurvivalData"}, removed_in="0.2.0")
