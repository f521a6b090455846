"""Audits end to end: models of every library on five public data sets, at small size."""

from functools import cache

import numpy as np
import pandas as pd
import pytest

import xcal
from tests.interop.tables import gbsg2, whas500

ROWS = 360  # two thirds to fit on


def flchain():
    from sksurv.datasets import load_flchain

    x, y = load_flchain()
    x = x[["age", "creatinine", "kappa", "lambda"]].astype(float)
    keep = x.notna().all(axis=1).to_numpy() & (y["futime"] > 0)
    return x[keep], np.asarray(y["futime"], dtype=float)[keep], np.asarray(y["death"])[keep]


def named(load, root):
    data = load(root)
    x = pd.DataFrame(np.asarray(data.x, dtype=float), columns=list(data.feature_names))
    keep = np.asarray(data.time) > 0
    return x[keep], np.asarray(data.time)[keep], np.asarray(data.event)[keep]


TABLES = {"whas500": whas500, "gbsg2": gbsg2, "flchain": flchain}
IN_FILES = {"metabric": xcal.datasets.load_metabric, "support": xcal.datasets.load_support}


@cache
def parts(name, root):
    """Standardised rows to fit on, and rows to audit."""
    x, time, event = TABLES[name]() if root is None else named(IN_FILES[name], root)
    chosen = np.random.default_rng(0).permutation(len(time))[:ROWS]
    x, time, event = x.iloc[chosen].reset_index(drop=True), time[chosen], event[chosen]
    x = x.loc[:, x.std() > 0]
    x = (x - x.mean()) / x.std()
    cut = 2 * ROWS // 3
    return (x[:cut], time[:cut], event[:cut]), (x[cut:].reset_index(drop=True), time[cut:], event[cut:])


def lifelines_fit(kind):
    def fit(x, time, event):
        import lifelines

        return getattr(lifelines, kind)(penalizer=0.05).fit(x.assign(t=time, e=event.astype(int)), "t", "e")

    return fit, lambda model, x, at: model.predict_survival_function(x, times=[at]).to_numpy()[0]


def sksurv_fit(forest):
    def fit(x, time, event):
        from sksurv.ensemble import RandomSurvivalForest
        from sksurv.linear_model import CoxPHSurvivalAnalysis
        from sksurv.util import Surv

        model = (
            RandomSurvivalForest(n_estimators=10, min_samples_leaf=15, random_state=0)
            if forest
            else CoxPHSurvivalAnalysis(alpha=1.0)
        )
        return model.fit(x, Surv.from_arrays(event, time))

    return fit, lambda model, x, at: np.array([step(at) for step in model.predict_survival_function(x)])


def pycox_fit(x, time, event):
    import torch
    import torchtuples as tt
    from pycox.models import LogisticHazard

    torch.manual_seed(0)
    labels = LogisticHazard.label_transform(8)
    target = labels.fit_transform(time.astype(np.float32), event.astype(np.float32))
    net = tt.practical.MLPVanilla(x.shape[1], [8], labels.out_features, batch_norm=False)
    model = LogisticHazard(net, tt.optim.Adam(0.02), duration_index=labels.cuts)
    model.fit(x.to_numpy(np.float32), target, batch_size=64, epochs=5, verbose=False)
    return model


def pycox_survival(model, x, at):
    curves = model.predict_surv_df(x.to_numpy(np.float32))
    return np.array([np.interp(at, curves.index, curve) for curve in curves.to_numpy().T])


def xgboost_fit(x, time, event):
    import xgboost as xgb

    rows = xgb.DMatrix(x, label_lower_bound=time, label_upper_bound=np.where(event, time, np.inf))
    settings = {"objective": "survival:aft", "aft_loss_distribution": "normal", "aft_loss_distribution_scale": 1.0}
    return xgb.train({**settings, "max_depth": 2, "nthread": 1}, rows, 20)


def xgboost_survival(model, x, at):
    import xgboost as xgb
    from scipy.stats import norm

    return norm.sf(np.log(at) - model.predict(xgb.DMatrix(x), output_margin=True))


def path_fit(x, time, event):
    path = xcal.SurvivalPath(lambdas=(0, 10), seeds=1, epochs=10, random_state=0, progress=False)
    return path.fit(x, xcal.Surv(time=time, event=event))


# How to fit a model, and its library's own survival at one time.
MODELS = {
    "lifelines Cox": lifelines_fit("CoxPHFitter"),
    "lifelines log-normal": lifelines_fit("LogNormalAFTFitter"),
    "scikit-survival Cox": sksurv_fit(forest=False),
    "scikit-survival forest": sksurv_fit(forest=True),
    "pycox": (pycox_fit, pycox_survival),
    "XGBoost AFT": (xgboost_fit, xgboost_survival),
    "xcal path": (path_fit, lambda model, x, at: model.predict_survival_function(x, [at])[:, 0]),
}


DATA = [*TABLES, *IN_FILES]
# Every model on one data set, and each data set at least once; CI has all pairs.
PAIRS = [
    pytest.param(name, data, marks=[] if k % len(DATA) == j else [pytest.mark.ci])
    for k, name in enumerate(MODELS)
    for j, data in enumerate(DATA)
]


@pytest.mark.parametrize(("name", "data"), PAIRS)
@pytest.mark.filterwarnings("ignore")  # what the libraries warn of while they are fitted is not the subject
def test_audit(name, data, real_data):
    root = real_data("benchmarks") if data in IN_FILES else None
    (x, time, event), (new, later, happened) = parts(data, root)
    fit, survival = MODELS[name]
    model = fit(x, time, event)
    training = xcal.Surv(time=time, event=event)
    y = xcal.Surv(time=later, event=happened)
    result = xcal.audit(model, new, y, training=training, n_bootstrap=4, time_unit="days", progress=False)
    at = result.horizons[0]
    if name == "lifelines Cox":  # lifelines draws lines between its steps: ask at a step
        own = model.baseline_survival_.index
        at_step = own[own <= at][-1]
        predicted = 1 - survival(model, new, at_step).mean()
    else:
        predicted = 1 - survival(model, new, at).mean()
    # Networks and trees predict in float32.
    assert result.value("mean_risk", horizon=at).value == pytest.approx(predicted, abs=1e-5)
    assert result.data.n_events == happened.sum()
    assert result.verdict.level in ("caution", "distrust", "unknown", "trust")
    assert {"harrell", "oe", "ici", "d_calibration", "brier", "ibs"} <= {value.metric for value in result}
    exact = name in ("lifelines log-normal", "XGBoost AFT", "xcal path")
    assert ("nll" in {value.metric for value in result}) == exact
