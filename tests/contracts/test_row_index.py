"""Everything that takes values of the same rows refuses pandas objects whose indexes say that they are not.

Each entry is called once with everything in order, and then with one argument at a time in another order.
"""

import numpy as np
import pandas as pd
import pytest

import xcal
from xcal import metrics
from xcal.metrics import streaming
from xcal.recalibration import (
    ConformalQuantiles,
    GroupedRecalibration,
    KaplanMeierRecalibration,
    RiskRecalibration,
)
from xcal.tuning import tune

RNG = np.random.default_rng(0)
N, AT = 120, [0.5, 1.0, 2.0]
RATE = pd.Series(RNG.uniform(0.5, 2.0, N))
HAPPENS, LEAVES = RNG.exponential(1 / RATE), RNG.exponential(2.0, N)
TIME, EVENT = pd.Series(np.minimum(HAPPENS, LEAVES)), pd.Series(HAPPENS <= LEAVES)
CDF = -np.expm1(-RATE * TIME)
CURVES = pd.DataFrame(np.exp(-np.outer(RATE, AT)), columns=AT)
RISK = 1 - CURVES[1.0]
LABELS, CLUSTERS = pd.Series(np.where(RATE > 1, "a", "b")), pd.Series(np.arange(N) // 3)
TABLE = pd.DataFrame({"rate": RATE, "other": RNG.normal(size=N)})
OUTCOME = {"time": TIME, "event": EVENT}
MODEL = xcal.SurvivalModel(epochs=1, hidden=(2,), distribution="weibull", random_state=0)
FITTED = MODEL.fit(TABLE, (TIME, EVENT))
FEW = {"n_bootstrap": 0}


def audit(*, time, event, **rows):
    return xcal.audit(y=(time, event), **rows, **FEW)


def compared(*, first, second, time, event):
    return xcal.compare_models({"first": first, "second": second}, y=(time, event), **FEW)


# What is called, its arguments that have a value per row, and its other arguments.
TAKERS = {
    "Surv": (xcal.Surv, OUTCOME, {}),
    "SurvivalData": (xcal.SurvivalData, {"x": TABLE, **OUTCOME, "weights": RATE, "groups": LABELS}, {}),
    "audit": (audit, {"X": TABLE, **OUTCOME, "survival": CURVES, "groups": LABELS, "clusters": CLUSTERS}, {}),
    "audit without X": (
        audit,
        {**OUTCOME, "survival": CURVES, "cdf": CDF, "groups": LABELS, "covariates": TABLE},
        {},
    ),
    "audit of F": (audit, {"cdf": CDF, **OUTCOME, "clusters": CLUSTERS}, {}),
    "audit of a risk": (audit, {"risk": RISK, **OUTCOME}, {"horizons": 1.0}),
    "audit of a model": (audit, {"X": TABLE, **OUTCOME, "covariates": TABLE}, {"model": FITTED}),
    "audit of curves in columns": (
        lambda survival, **rest: audit(survival=survival.T, **rest),
        {"survival": CURVES.rename(index=str), "time": TIME.rename(index=str), "event": EVENT.rename(index=str)},
        {},
    ),
    "groups by name": (
        lambda sex, **rest: audit(groups={"sex": sex}, **rest),
        {**OUTCOME, "cdf": CDF, "sex": LABELS},
        {},
    ),
    "covariates by name": (
        lambda rate, **rest: audit(covariates={"rate": rate}, **rest),
        {**OUTCOME, "cdf": CDF, "rate": RATE},
        {},
    ),
    "training rows": (
        lambda x, time, event: audit(time=TIME, event=EVENT, cdf=CDF, training=(x, (time, event))),
        {"x": TABLE, **OUTCOME},
        {},
    ),
    "compare_models": (compared, {"first": CURVES, "second": CURVES, **OUTCOME}, {}),
    "d_calibration": (
        xcal.d_calibration,
        {"cdf": CDF, "event": EVENT, "time": TIME, "groups": LABELS, "clusters": CLUSTERS, "cdf_before": CDF / 1e9},
        {},
    ),
    "conditional_calibration": (
        xcal.conditional_calibration,
        {"cdf": CDF, "event": EVENT, "X": TABLE},
        {"n_draws": 0, "where": False},
    ),
    "xcal_penalty": (xcal.xcal_penalty, {"cdf": CDF, "event": EVENT, "weights": RATE}, {}),
    "DCalibration": (xcal.DCalibration().update, {"cdf": CDF, "event": EVENT}, {}),
    "evaluate": (
        metrics.evaluate,
        {**OUTCOME, "survival": CURVES, "cdf": CDF, "predicted_time": 1 / RATE, "groups": LABELS},
        {"times": AT},
    ),
    "evaluate, clusters": (metrics.evaluate, {**OUTCOME, "cdf": CDF, "clusters": CLUSTERS}, {}),
    "concordance_index": (metrics.concordance_index, {**OUTCOME, "risk": RISK}, {}),
    "antolini": (metrics.concordance_index, {**OUTCOME, "survival": CURVES}, {"times": AT, "interpolation": "linear"}),
    "cumulative_dynamic_auc": (metrics.cumulative_dynamic_auc, {**OUTCOME, "risk": RISK}, {"times": 1.0}),
    "brier_score": (metrics.brier_score, {**OUTCOME, "survival": CURVES}, {"times": AT}),
    "brier_score, covariates of the censoring": (
        metrics.brier_score,
        {**OUTCOME, "survival": CURVES, "censoring": pd.DataFrame({"rate": RATE})},
        {"times": AT},
    ),
    "by_person": (metrics.by_person, {**OUTCOME, "hazard": RATE, "id": pd.Series(np.arange(N))}, {}),
    "integrated_brier_score": (metrics.integrated_brier_score, {**OUTCOME, "survival": CURVES}, {"times": AT}),
    "scaled_brier_score": (metrics.scaled_brier_score, {**OUTCOME, "survival": CURVES}, {"times": AT}),
    "km_calibration": (metrics.km_calibration, {**OUTCOME, "survival": CURVES}, {"times": AT}),
    "one_calibration": (metrics.one_calibration, {**OUTCOME, "probability": RISK}, {"at": 1.0}),
    "quantile_slope": (metrics.quantile_slope, {"cdf": CDF, "event": EVENT}, {}),
    "pp_curve": (metrics.pp_curve, {"cdf": CDF, "event": EVENT}, {}),
    "kaplan_meier": (metrics.kaplan_meier, OUTCOME, {}),
    "aalen_johansen": (metrics.aalen_johansen, {"time": TIME, "cause": EVENT + 0, "weights": RATE}, {}),
    "turnbull": (metrics.turnbull, {"lower": TIME, "upper": TIME + 1}, {}),
    "Surv, intervals": (xcal.Surv, {"lower": TIME, "upper": TIME + 1}, {}),
    "kaplan_meier, entry": (metrics.kaplan_meier, {**OUTCOME, "entry": TIME / 2}, {}),
    "d_calibration, entry": (
        xcal.d_calibration,
        {"cdf": CDF, "event": EVENT, "cdf_entry": CDF / 2, "cdf_lower": CDF / 1.5},
        {},
    ),
    "Surv, causes": (xcal.Surv, {"time": TIME, "cause": EVENT + 0}, {}),
    "follow_up": (metrics.follow_up, OUTCOME, {}),
    "net_benefit, covariates of the censoring": (
        metrics.net_benefit,
        {**OUTCOME, "probability": RISK, "censoring": TABLE},
        {"at": 1.0, "threshold": 0.5},
    ),
    "net_benefit": (metrics.net_benefit, {**OUTCOME, "probability": RISK}, {"at": 1.0, "threshold": 0.5}),
    "decision_curve": (metrics.decision_curve, {**OUTCOME, "probability": RISK}, {"at": 1.0, "thresholds": [0.5]}),
    "KaplanMeierRecalibration": (KaplanMeierRecalibration.fit, {"cdf": CDF, "event": EVENT}, {}),
    "GroupedRecalibration": (GroupedRecalibration.fit, {"cdf": CDF, "event": EVENT, "groups": LABELS}, {}),
    "RiskRecalibration": (RiskRecalibration.fit, {"cdf": CDF, "event": EVENT, "curves": 1 - CURVES}, {"times": AT}),
    "ConformalQuantiles": (ConformalQuantiles.fit, {"quantiles": CURVES, **OUTCOME}, {}),
    "SurvivalPath, clusters": (
        lambda x, clusters, **y: xcal.SurvivalPath((0,), 1, epochs=1, hidden=(2,), cross_fit=0).fit(
            x, (y["time"], y["event"]), validation_data=(x, (y["time"], y["event"])), validation_clusters=clusters
        ),
        {"x": TABLE, **OUTCOME, "clusters": CLUSTERS},
        {},
    ),
    "Recalibrated": (
        lambda x, time, event: xcal.Recalibrated(FITTED).fit(x, (time, event)),
        {"x": TABLE, **OUTCOME},
        {},
    ),
    "a target of columns": (
        lambda x, rows: MODEL.fit(x, xcal.Surv(time=rows["time"], event=rows["event"])),
        {"x": TABLE, "rows": pd.DataFrame(OUTCOME)},
        {},
    ),
    "a target in an audit": (
        lambda cdf, rows: xcal.audit(cdf=cdf, y=xcal.Surv(time=rows["time"], event=rows["event"]), **FEW),
        {"cdf": CDF, "rows": pd.DataFrame(OUTCOME)},
        {},
    ),
    "tune": (
        lambda x, time, event: tune(MODEL, {"epochs": [1]}, x, (time, event), n_trials=1, folds=2, batch=1),
        {"x": TABLE, **OUTCOME},
        {},
    ),
}
AT_ONE_TIME = ("observed_expected", "calibration_slope", "calibration_curve", "risk_distribution", "cox_calibration")
AT_ONE_TIME += ("integrated_calibration_index", "cox_ici")
TAKERS |= {name: (getattr(metrics, name), {**OUTCOME, "probability": RISK}, {"at": 1.0}) for name in AT_ONE_TIME}
TAKERS |= {
    "streaming concordance": (streaming.StreamingConcordance().update, {**OUTCOME, "risk": RISK}, {}),
    "streaming Kaplan-Meier": (streaming.StreamingKaplanMeier().update, OUTCOME, {}),
}
ONE_IN_ANOTHER_ORDER = [(name, argument) for name, (_, rows, _) in TAKERS.items() for argument in rows]


@pytest.mark.parametrize(("name", "argument"), ONE_IN_ANOTHER_ORDER)
@pytest.mark.filterwarnings("ignore")
def test_one_argument_in_another_order_is_refused(name, argument):
    call, rows, others = TAKERS[name]
    turned = rows[argument].iloc[::-1]
    with pytest.raises(ValueError, match=r"expected rows with the index of .* got the same labels in another order"):
        call(**{**rows, argument: turned}, **others)


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.filterwarnings("ignore")
def test_the_same_index_everywhere_is_welcome(name):
    call, rows, others = TAKERS[name]
    turned = {argument: values.iloc[::-1] for argument, values in rows.items()}
    assert call(**rows, **others) is not None
    assert call(**turned, **others) is not None


def test_every_metric_of_rows_is_here():
    functions = {name for name in metrics.__all__ if name.islower()}
    assert functions - {"mean_nll"} <= set(TAKERS)  # the mean of one argument
