"""Training: a whole path of models, every lambda and seed, in one run."""

from xcal.training.path import fit_path
from xcal.training.problem import TrainingConfig
from xcal.training.result import PathResult

__all__ = ["PathResult", "TrainingConfig", "fit_path"]
