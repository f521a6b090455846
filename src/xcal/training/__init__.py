"""Training: a whole path of models, every lambda and seed, in one run."""

from xcal.training.config import TrainingConfig
from xcal.training.path import fit_path
from xcal.training.result import PathResult

__all__ = ["PathResult", "TrainingConfig", "fit_path"]
