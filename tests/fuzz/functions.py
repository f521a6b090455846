"""Good arguments for every public function, for `tests.fuzz` to spoil."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import xcal
from tests.fuzz.outcomes import Target
from tests.fuzz.training import training_targets
from xcal import (
    calibration,
    data,
    distributions,
    metrics,
    objectives,
    recalibration,
    tuning,
)
from xcal.calibration.bins import bin_edges
from xcal.data.surv import read_outcome
from xcal.distributions.composed import SurvivorDistribution
from xcal_paper import load_gamma, published

N = 24
# NaN that the docstrings explain: what cannot be estimated from the rows, errors and intervals of few rows.
NAN = {
    "brier_score": "values",
    "scaled_brier_score": "values brier null",
    "integrated_brier_score": "values value start stop",
    "cumulative_dynamic_auc": "values",
    "calibration_curve": "observed lower upper point_observed point_lower point_upper point_predicted predicted",
    "concordance_index": "value",
    "cox_calibration": "slope slope_lower slope_upper intercept intercept_lower intercept_upper",
    "decision_curve": "lower upper model treat_all",
    "net_benefit": "observed value treat_all",
    "integrated_calibration_index": "value e50 e90 emax observed predicted floor excess lower upper error",
    "cox_ici": "value e50 e90 emax observed predicted",
    "calibration_slope": "slope slope_lower slope_upper intercept intercept_lower intercept_upper",
    "observed_expected": "value lower upper observed",
    "one_calibration": "p_value statistic observed predicted",
    "quantile_slope": "slope intercept slope_through_origin observed",
    "pp_curve": "observed lower upper",
    "km_calibration": "value observed predicted stop",
    "mean_nll": "standard_error",
    "follow_up": "median lower_quartile upper_quartile",
    "risk_distribution": "with_event without_event censored",
    "evaluate": "value lower upper censoring_p",
    # Values of parameters and times are not looked at, as the docstrings say.
    **dict.fromkeys(("Weibull", "LogLogistic", "LogNormal", "Categorical", "MTLR", "LogisticHazard"), "result"),
    **dict.fromkeys(
        ("nll", "survival_crps", "CensoredCRPS", "published_nll", "published_survival_crps", "ranking_time"), "result"
    ),
    "XCALLoss": "mean",  # of values that are not looked at, as the docstring says
}


def rows() -> dict[str, Any]:
    """Return small arrays of every kind that a function may ask for."""
    rng = np.random.default_rng(0)
    time = rng.exponential(size=N).round(3) + 0.01
    event = rng.random(N) < 0.7
    times = np.array([0.2, 0.5, 1.0, 1.5, 2.0])
    risk = rng.random(N)
    curves = np.exp(-times * (0.5 + risk)[:, None])
    return {
        "time": time,
        "event": event,
        "cause": event * (1 + np.arange(N) % 2),
        "cdf": np.clip(-np.expm1(-time * (0.5 + risk)), 0, 1),
        "probability": -np.expm1(-(0.5 + risk)),
        "risk": risk,
        "survival": curves,
        "times": times,
        "X": rng.normal(size=(N, 2)),
        "groups": np.repeat([0, 1], N // 2),
        "weights": rng.random(N) + 0.1,
    }


def function_targets() -> Iterator[Target]:
    """Return every public function that is cheap to call, then those that train."""
    r = rows()
    outcome = {"time": r["time"], "event": r["event"]}
    for name, call, arguments in (
        *_calibration(r, outcome),
        *_metrics(r, outcome),
        *_distributions(r),
        *_data(r),
        *_recalibration(r),
    ):
        short = name.split(".")[-1].split(" ")[0]
        yield Target(name, call, arguments, nan=frozenset(NAN.get(short, "").split()))
    yield from training_targets(r)


_Rows = list[tuple[str, Callable[..., Any], dict[str, Any]]]


def _calibration(r: dict[str, Any], outcome: dict[str, Any]) -> _Rows:
    cdf, event = torch.from_numpy(r["cdf"]), torch.from_numpy(r["event"])
    some = {"cdf": r["cdf"], "event": r["event"]}
    soft = {"membership": "partition", "temperature": None, "gamma": None, "censored": "exact", "estimator": "bound"}

    def stream(**given: Any) -> Any:
        made = xcal.DCalibration(
            **{k: given.pop(k) for k in ("n_bins", "method", "p_value", "grid_cells") if k in given}
        )
        return made.update(**given).compute()

    def loss(**given: Any) -> Any:
        own = {k: given.pop(k) for k in ("cdf", "event") if k in given}
        return xcal.XCALLoss(**given)(*own.values())

    def with_mean(**given: Any) -> Any:
        return xcal.XCALLoss(5).with_mean(**given)

    maker = calibration.KernelFeatures(4)

    def given_covariates(**given: Any) -> Any:
        made = maker.fit(given.pop("fitted", r["X"]))
        return xcal.XCALLoss(5, conditional=made)(**given)

    options = {"n_bins": 5, "edges": None, "method": "uniform", "p_value": "akritas", "time": None, "groups": None}
    options |= {"clusters": None, "n_simulations": 19, "seed": 0, "cdf_before": None, "censoring_survival": None}
    torch_some = {"cdf": cdf, "event": event}
    weights = {"weights": torch.from_numpy(r["weights"]), "groups": None, "n_groups": None, "features": None}
    conditional = {"X": r["X"], "n_bins": 5, "n_features": 4, "n_draws": 19, "where": True, "seed": 0}
    conditional |= {"bandwidth": None, "edges": None, "features": None, "weights": r["weights"]}
    causes = {"incidence": (1 - r["survival"])[:, None] * np.array([[0.6], [0.4]]), "times": r["times"]}
    causes |= {"time": r["time"], "cause": r["cause"], "n_bins": 5, "draws": 99}
    return [
        ("xcal.d_calibration", xcal.d_calibration, some | options),
        ("xcal.d_calibration (km)", xcal.d_calibration, some | options | {"method": "km"}),
        ("xcal.d_calibration (ipcw)", xcal.d_calibration, some | options | {"method": "ipcw", "time": r["time"]}),
        (
            "xcal.d_calibration (entry)",
            xcal.d_calibration,
            some | {"cdf_entry": r["cdf"] / 2, "cdf_lower": r["cdf"] / 1.5},
        ),
        ("xcal.d_calibration (weights)", xcal.d_calibration, some | options | {"weights": r["weights"]}),
        (
            "xcal.d_calibration (km, weights)",
            xcal.d_calibration,
            some | options | {"method": "km", "weights": r["weights"]},
        ),
        ("xcal.DCalibration (weights)", stream, some | {"n_bins": 5, "p_value": "akritas", "weights": r["weights"]}),
        ("xcal.DCalibration", stream, some | {"n_bins": 5, "method": "km", "p_value": "akritas", "grid_cells": 50}),
        ("xcal.conditional_calibration", xcal.conditional_calibration, some | conditional),
        ("xcal.xcal_penalty", xcal.xcal_penalty, torch_some | {"n_bins": 5, "edges": None} | soft | weights),
        ("xcal.XCALLoss", loss, torch_some | {"n_bins": 5, "edges": None} | soft),
        ("xcal.XCALLoss (with_mean)", with_mean, {"values": cdf + 1} | torch_some | weights),
        ("xcal.XCALLoss (conditional)", given_covariates, torch_some | {"X": r["X"], "fitted": r["X"]}),
        ("calibration.cause_calibration", calibration.cause_calibration, causes),
        ("calibration.bin_edges", bin_edges, {"n_bins": None, "edges": np.linspace(0, 1, 6)}),
        ("calibration.SoftBins", calibration.SoftBins, soft),
        ("calibration.KernelFeatures", calibration.KernelFeatures, {"n_features": 4, "bandwidth": None, "seed": 0}),
    ]


def _metrics(r: dict[str, Any], outcome: dict[str, Any]) -> _Rows:
    curves = {"survival": r["survival"], "times": r["times"]} | outcome
    at = {"probability": r["probability"], "at": 1.0} | outcome
    more = {"censoring": None, "left_limit": False, "outside": "clip"}
    everything = curves | {"cdf": r["cdf"], "predicted_time": 1 - r["risk"], "at": 1.0, "metrics": None, "n_bins": 5}
    everything |= {"n_bootstrap": 0, "level": 0.9, "clusters": None, "groups": None, "interpolation": "linear"}
    weights = {"weights": r["weights"]}
    harrell = outcome | {"risk": r["risk"], "method": "harrell", "tau": None, "outside": "drop"}
    antolini = curves | {"method": "antolini", "interpolation": "linear", "tau": None}
    curve = {"n_risk_groups": 3, "n_bins": 5, "level": 0.9}
    names = (
        ("brier_score", curves | more),
        ("integrated_brier_score", curves | more),
        ("scaled_brier_score", curves | more),
        ("km_calibration", curves | {"interpolation": "linear"}),
        ("concordance_index (harrell)", harrell),
        ("concordance_index (uno)", outcome | {"risk": r["risk"], "method": "uno", "tau": 1.0, "censoring": None}),
        ("concordance_index (antolini)", antolini),
        ("cumulative_dynamic_auc", {"risk": r["risk"], "times": r["times"], "outside": "nan"} | outcome),
        ("calibration_curve", at | curve),
        ("cox_calibration", at | {"level": 0.9, "outside": "nan"}),
        ("decision_curve", at | {"thresholds": np.array([0.2, 0.5]), "n_bootstrap": 0, "level": 0.9}),
        ("net_benefit", at | {"threshold": 0.3}),
        ("integrated_calibration_index", at | {"level": 0.9, "outside": "nan"}),
        ("cox_ici", at | {"n_knots": 3, "outside": "nan"}),
        ("observed_expected", at | {"level": 0.9, "interval": "greenwood", "outside": "nan"}),
        ("one_calibration", at | {"n_risk_groups": 3, "min_events": 1, "ddof": 0, "cdf": r["cdf"], "method": None}),
        ("pp_curve", {"cdf": r["cdf"], "event": r["event"], "level": 0.9, "n_points": 5}),
        ("quantile_slope", {"cdf": r["cdf"], "event": r["event"], "levels": None}),
        ("risk_distribution", at | {"n_bins": 5, "min_cell": 2}),
        ("kaplan_meier", outcome | {"of": "event"}),
        ("aalen_johansen", {"time": r["time"], "cause": r["cause"], "n_causes": 2} | weights),
        ("kaplan_meier (entry)", outcome | {"entry": r["time"] / 2}),
        ("by_person", outcome | {"hazard": r["cdf"], "entry": r["time"] / 2, "id": np.arange(len(r["time"]))}),
        ("turnbull", {"lower": r["time"] / 2, "upper": r["time"]} | weights),
        ("kaplan_meier (weights)", outcome | weights),
        ("brier_score (weights)", curves | weights),
        ("concordance_index (weights)", harrell | weights),
        ("concordance_index (antolini, weights)", antolini | weights),
        ("cumulative_dynamic_auc (weights)", {"risk": r["risk"], "times": r["times"]} | outcome | weights),
        ("calibration_slope", at | {"level": 0.9, "outside": "nan"} | weights),
        ("integrated_calibration_index (weights)", at | weights),
        ("observed_expected (weights)", at | weights),
        ("mean_nll (weights)", {"nll": r["risk"]} | weights),
        ("evaluate (weights)", everything | weights),
        ("follow_up", outcome),
        ("mean_nll", {"nll": r["risk"]}),
        ("evaluate", everything),
    )
    return [(f"metrics.{name}", getattr(metrics, name.split()[0]), arguments) for name, arguments in names]


def _distributions(r: dict[str, Any]) -> _Rows:
    # Methods trust the tensors that they are given: they are called in every step of training.
    time, p = torch.from_numpy(r["time"]), torch.full((N,), 0.3, dtype=torch.float64)

    def asked(make: Callable[..., Any]) -> Callable[..., Any]:
        def call(**given: Any) -> Any:
            made = make(**given)
            elsewhere = any(isinstance(value, torch.Tensor) and value.is_meta for value in given.values())
            if elsewhere or tuple(made.batch_shape) != (N,):
                return made
            return [getattr(made, f)(time) for f in ("cdf", "log_survival", "log_density")], made.quantile(p)

        return call

    one, raw = torch.ones(N, dtype=torch.float64), torch.zeros(N, 4, dtype=torch.float64)
    edges = np.array([0.0, 0.5, 1.0, 2.0, 4.0])  # a tensor is taken as it is
    found: _Rows = []
    two = {"Weibull": ("scale", "concentration"), "LogLogistic": ("scale", "concentration")}
    for name, parameters in (two | {"LogNormal": ("loc", "log_scale")}).items():
        given = dict.fromkeys(parameters, one)
        found.append((f"distributions.{name}", asked(getattr(distributions, name)), given))
    for name, first in {"Categorical": "logits", "MTLR": "scores", "LogisticHazard": "logits"}.items():
        # The other two have a number for all bins but one.
        given = {
            first: raw if name == "Categorical" else raw[:, 1:],
            "edges": edges,
            "interpolation": "linear",
        }
        found.append((f"distributions.{name}", asked(getattr(distributions, name)), given))
    law, event = distributions.Weibull(one, one), torch.from_numpy(r["event"])
    normal = distributions.LogNormal(one, one)
    discrete = distributions.MTLR(raw[:, 1:], edges)
    own = {"time": time, "event": event}
    found += [
        ("distributions.as_edges", distributions.as_edges, {"edges": edges}),
        ("distributions.family", distributions.family, {"name": "mtlr", "edges": edges, "interpolation": "linear"}),
        ("distributions.mixture", distributions.mixture, {"components": [law, law]}),
        (
            "distributions.quantile_edges",
            distributions.quantile_edges,
            {"time": r["time"], "event": r["event"], "n_bins": 4},
        ),
        (
            "distributions.RecalibratedDistribution",
            asked(distributions.RecalibratedDistribution),
            {"base": law, "knots": np.linspace(0, 1, 4), "levels": np.linspace(0, 1, 4)},
        ),
        (
            "distributions.SurvivorDistribution",
            asked(SurvivorDistribution),
            {"base": law, "after": 0.5},
        ),
        ("objectives.nll", objectives.nll, {"dist": law, "density": False, "as_published": False} | own),
        ("objectives.nll (discrete)", objectives.nll, {"dist": discrete, "density": True} | own),
        ("objectives.survival_crps", objectives.survival_crps, {"dist": discrete, "as_published": False} | own),
        ("objectives.CensoredCRPS", objectives.CensoredCRPS.of, {"time": r["time"], "event": r["event"], "n_nodes": 3}),
        ("published.published_nll", published.published_nll, {"dist": discrete} | own),
        ("published.published_survival_crps", published.published_survival_crps, {"dist": normal} | own),
        ("published.ranking_time", published.ranking_time, {"dist": law}),
    ]
    return found


def _data(r: dict[str, Any]) -> _Rows:
    table = {"x": r["X"], "time": r["time"], "event": r["event"], "weights": r["weights"], "groups": r["groups"]}
    table |= {"row_ids": np.arange(N), "feature_names": ["a", "b"], "time_unit": "days", "name": "some"}
    whole = xcal.SurvivalData(r["X"], r["time"], r["event"], groups=r["groups"])
    parts = {"fractions": (0.6, 0.4), "seed": 0, "by_event": True, "whole_groups": False}
    gamma = {"censored": True, "n": (20, 10, 10), "seed": 0, "bias": False}
    return [
        ("data.Surv", data.Surv, {"time": r["time"], "event": r["event"]}),
        (
            "data.Surv (causes)",
            data.Surv,
            {"time": r["time"], "cause": r["cause"], "causes": ("a", "b"), "entry": r["time"] / 2},
        ),
        ("data.Surv (intervals)", data.Surv, {"lower": r["time"] / 2, "upper": r["time"]}),
        (
            "data.Surv (people)",
            data.Surv,
            {"entry": r["time"] / 2, "time": r["time"], "event": r["event"], "id": np.arange(len(r["time"]))},
        ),
        ("data.read_outcome", read_outcome, {"y": data.Surv(time=r["time"], event=r["event"])}),
        ("data.SurvivalData", data.SurvivalData, table),
        ("data.SurvivalData.split", whole.split, parts),
        ("data.SurvivalData.folds", whole.folds, {"k": 3, "seed": 0, "whole_groups": False}),
        ("data.SurvivalData[rows]", lambda rows: whole[rows], {"rows": np.arange(5)}),
        ("data.SurvivalData.batches", lambda **g: list(whole.batches(**g)), {"size": 5, "seed": 0}),
        ("xcal_paper.load_gamma", load_gamma, gamma),
        ("tuning.Range", tuning.Range, {"low": 0.1, "high": 1.0, "log": True}),
        (
            "xcal.TrainingConfig",
            xcal.TrainingConfig,
            {"epochs": 3, "batch_size": 10, "learning_rate": 1e-3, "optimizer": "adam", "weight_decay": 0.0}
            | {"schedule": None, "warm_up": 0, "clip_norm": None, "patience": None, "checkpoint_every": 1},
        ),
    ]


def _recalibration(r: dict[str, Any]) -> _Rows:
    own = {"cdf": r["cdf"], "event": r["event"]}
    kinds = ("KaplanMeier", "Isotonic", "Beta", "KSP", "CiPOT", "Averaged")
    names = [f"{kind}Recalibration" for kind in kinds]

    def fitted(name: str) -> Callable[..., Any]:
        return lambda **given: getattr(recalibration, name).fit(**given).cdf(r["cdf"])

    return [(f"recalibration.{name}", fitted(name), own) for name in names]
