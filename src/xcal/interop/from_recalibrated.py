"""Recalibrated models: the model inside is read as its library's models are, and its answers are changed."""

from typing import Any

from xcal.interop.fitted import check_fitted
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows


def read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted `xcal.recalibration.Recalibrated`."""
    check_fitted(model)
    predictions: ModelPredictions = model.predictions(X, rows)
    return predictions
