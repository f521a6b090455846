"""The scikit-learn face: estimators that fit, predict and are scored, and files to keep them in."""

from xcal.estimators.model import SurvivalModel, make_survival_pipeline
from xcal.estimators.path import SurvivalPath
from xcal.estimators.persistence import load

__all__ = [
    "SurvivalModel",
    "SurvivalPath",
    "load",
    "make_survival_pipeline",
]
