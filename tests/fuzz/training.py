"""Good arguments for what trains or resamples, for `tests.fuzz` to spoil."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import xcal
from tests.fuzz.outcomes import Target
from xcal import calibration, data, distributions, networks


def _paths(r: dict[str, Any], y: Any, model: Any) -> Iterator[Target]:
    """Return the training loop itself, and what is fitted after it."""
    train = xcal.SurvivalData(r["X"], r["time"], r["event"])
    # Not its network, its objective or its progress: what a user's own code raises is the user's.
    fit_path = partial(xcal.fit_path, lambda: networks.Linear(2, 2))
    asked = {"family": distributions.family("lognormal"), "train": train, "validation": train}
    asked |= {
        "lambdas": (0.0, 10.0),
        "seeds": (0,),
        "penalty": calibration.SoftBins(),
        "calibration_bins": 3,
        "mode": "auto",
        "device": "cpu",
    }
    asked |= {"config": xcal.TrainingConfig(epochs=1, batch_size=24), "checkpoint": None, "target_dcal": None}
    asked |= {"dcal_floor": 0.0, "conditional": None, "distributed": None}
    yield Target("xcal.fit_path", fit_path, asked, slow=4)
    schedule = {"epochs": 10, "first_temperature": 2.0, "last_temperature": 0.5}
    yield Target("xcal.Annealing", xcal.Annealing, schedule)

    def recalibrated(**given: Any) -> Any:
        rows = {name: given.pop(name) for name in ("X", "y") if name in given}
        return xcal.Recalibrated(**given).fit(**rows).predict(r["X"])

    after = {"model": model, "method": "km", "cv": None, "n_pieces": None, "group_column": None, "random_state": 0}
    names = frozenset({"event", "recalibration", "survival"})  # a model may be curves
    yield Target("xcal.Recalibrated.fit", recalibrated, after | {"X": r["X"], "y": y}, names, slow=2)


def training_targets(r: dict[str, Any]) -> Iterator[Target]:
    """Return what trains or resamples; so many times fewer inputs as it is slower."""
    y = data.Surv(time=r["time"], event=r["event"])
    small = {"epochs": 1, "batch_size": 24, "hidden": (2,), "dropout": 0.0, "learning_rate": 1e-3, "random_state": 0}
    small |= {"distribution": "mtlr", "n_time_bins": 3, "calibration_bins": 3, "weight_decay": 0.0, "patience": None}
    small |= {"validation_fraction": 0.3, "objective": "nll", "encode": None, "interpolation": "linear"}
    small |= {"penalty_temperature": None}

    def fitted(made: Any) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            rest = {k: given.pop(k) for k in ("X", "y", "sample_weight") if k in given}
            return made(**given).fit(**rest).predict(r["X"])

        return call

    model = xcal.SurvivalModel(**small).fit(r["X"], y)
    rows_ = {"X": r["X"], "y": y, "sample_weight": None}
    both = small | rows_
    yield Target("xcal.SurvivalModel.fit", fitted(xcal.SurvivalModel), both | {"xcal_lambda": 1.0, "seeds": 1}, slow=4)
    path = {"lambdas": (0, 10), "seeds": 1, "average": True, "cross_fit": 0, "target_dcal": None}
    yield Target("xcal.SurvivalPath.fit", fitted(xcal.SurvivalPath), both | path, slow=8)
    times = {"X": r["X"], "times": r["times"], "extrapolate": True}
    yield Target("SurvivalModel.predict_survival_function", model.predict_survival_function, times)
    yield Target("SurvivalModel.predict_quantile", model.predict_quantile, {"X": r["X"], "p": np.array([0.2, 0.5])})
    yield Target("SurvivalModel.d_calibration", model.d_calibration, {"X": r["X"], "y": y, "n_bins": 3, "ties": "auto"})
    yield Target("SurvivalModel.recalibrate", model.recalibrate, {"X": r["X"], "y": y}, frozenset({"event"}))
    plain = {"y": y, "survival": r["survival"], "times": r["times"], "horizons": [1.0], "groups": None}
    plain |= {"n_bootstrap": 0, "level": 0.9, "seed": 0, "time_unit": "years", "training": None, "thresholds": None}
    nan = frozenset("*")  # every value that the rows do not allow is NaN, and the report says why
    yield Target("xcal.audit", xcal.audit, plain | {"progress": False}, nan=nan, slow=4)
    clusters = np.arange(len(r["cdf"])) // 2
    own = {"y": y, "cdf": r["cdf"], "clusters": clusters, "n_bootstrap": 3, "progress": False}
    yield Target("xcal.audit (cdf)", xcal.audit, own, nan=nan, slow=4)
    described = {"X": {"a": np.arange(len(r["cdf"])) / 7, "b": ["x", "y", "z"] * (len(r["cdf"]) // 3)}, "y": y}
    described |= {"training": None, "weights": None, "min_cell": 2}
    yield Target("xcal.table_one", xcal.table_one, described, nan=nan)
    curves = {"one": r["survival"], "other": r["survival"] ** 2}
    both_models = {"models": curves, "y": y, "times": r["times"], "n_bootstrap": 0, "level": 0.9, "horizons": [1.0]}
    both_models |= {"progress": False, "seed": 0}
    yield Target("xcal.compare_models", xcal.compare_models, both_models, nan=nan, slow=8)
    yield from _paths(r, y, model)
    space = {"estimator": xcal.SurvivalModel(**small), "space": {"dropout": [0.0]}, "X": r["X"], "y": y}
    space |= {"n_trials": 1, "score": "ibs", "folds": 2, "batch": 1, "seed": 0, "records": None}
    yield Target("xcal.tune", xcal.tune, space, names=frozenset({"space"}), slow=8, needs="optuna")
