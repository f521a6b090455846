"""XGBoost's accelerated failure time models: log T = prediction + scale * error, with a known error.

The objective, its error distribution and its scale are read from the model itself.
"""

import json
from typing import Any

import numpy as np
import torch

from xcal._checks import FloatArray, fail
from xcal.distributions import LogLogistic, LogNormal, SurvivalDistribution, Weibull
from xcal.interop.fitted import check_fitted, refuse_unfitted
from xcal.interop.gathering import class_name, from_distribution
from xcal.interop.predictions import ModelPredictions
from xcal.interop.rows import Rows


def read(model: Any, X: Any, rows: Rows) -> ModelPredictions:
    """Read a Booster, or one of XGBoost's scikit-learn models, with the objective survival:aft."""
    booster = model
    if hasattr(model, "get_booster"):
        check_fitted(model)
        booster = model.get_booster()
    if not hasattr(booster, "save_config"):
        fail("model", "an XGBoost Booster or XGBRegressor", class_name(model))
    objective = _objective(model, booster)
    if objective["name"] != "survival:aft":
        advice = "survival:cox gives only a relative risk, which is no probability"
        fail("model", f"an XGBoost model with objective survival:aft ({advice})", objective["name"])
    error = objective["aft_loss_param"]["aft_loss_distribution"]
    scale = float(objective["aft_loss_param"]["aft_loss_distribution_scale"])
    location = np.log(_predicted(model, X))

    def distribution(part: slice) -> SurvivalDistribution:
        centre = torch.from_numpy(location[part])
        spread = torch.full_like(centre, scale)
        if error == "normal":
            return LogNormal(centre, torch.log(spread))
        if error == "logistic":
            return LogLogistic(torch.exp(centre), 1 / spread)
        # "extreme": log T has the smallest extreme value distribution, T is Weibull.
        return Weibull(torch.exp(centre), 1 / spread)

    name = f"{class_name(model)} (AFT, {error})"
    return from_distribution(name, "XGBoost", distribution, rows)


def _objective(model: Any, booster: Any) -> Any:
    import xgboost

    try:
        trained = booster.num_boosted_rounds() > 0 and booster.num_features() > 0
    except xgboost.core.XGBoostError:  # a Booster without anything in it does not answer
        trained = False
    if not trained:
        refuse_unfitted(model, "train it first")
    return json.loads(booster.save_config())["learner"]["objective"]


def _predicted(model: Any, X: Any) -> FloatArray:
    """Predicted times, exp of the location, in float64."""
    import xgboost

    if isinstance(model, xgboost.Booster):
        table = X if isinstance(X, xgboost.DMatrix) else xgboost.DMatrix(X)
        values = model.predict(table)
    else:
        values = model.predict(X)
    return np.asarray(values, dtype=np.float64)
