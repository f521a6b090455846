"""Predictions in files that are larger than memory: every metric in two passes, on one machine or on a Ray cluster."""

from xcal.outofcore.evaluation import EvaluationSettings, evaluate_folder
from xcal.outofcore.result import FolderEvaluation

__all__ = ["EvaluationSettings", "FolderEvaluation", "evaluate_folder"]
