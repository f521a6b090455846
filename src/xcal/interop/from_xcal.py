"""Models of xcal itself: everything follows from the distribution of each row."""

from dataclasses import replace
from typing import Any

from xcal.interop.fitted import check_fitted
from xcal.interop.gathering import class_name, from_distribution
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows, take_rows

ORDERED = "For concordance, rows are ordered by the model's own risk: the mean of F until the end of its training."


def read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a fitted `SurvivalModel` or `SurvivalPath`; the path predicts with the model that it selected."""
    check_fitted(model)
    found = from_distribution(
        class_name(model), "xcal", lambda part: model.predict_distribution(take_rows(X, part)), rows
    )
    return replace(found, end=model.last_time_, risk_score=model.predict(X), reading=(*found.reading, ORDERED))
