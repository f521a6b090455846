"""Predictions in files larger than memory: every metric in two or three passes, on one machine or a Ray cluster."""

from xcal.outofcore.evaluation import EvaluationSettings, FolderEvaluation, evaluate_folder

__all__ = ["EvaluationSettings", "FolderEvaluation", "evaluate_folder"]
