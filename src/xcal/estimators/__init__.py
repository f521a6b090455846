"""The scikit-learn face: estimators that fit, predict and are scored, and files to keep them in."""

from xcal.estimators.model import SurvivalCurve, SurvivalModel, SurvivalPipeline, make_survival_pipeline
from xcal.estimators.path import SurvivalPath
from xcal.estimators.persistence import load
from xcal.estimators.selection import Selection

__all__ = [
    "Selection",
    "SurvivalCurve",
    "SurvivalModel",
    "SurvivalPath",
    "SurvivalPipeline",
    "load",
    "make_survival_pipeline",
]
