"""Each library's models are read as the library itself predicts."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.stats as st

from tests.interop.tables import forest, gbsg2, halves, joined, lifelines_model, new_rows, whas500
from xcal.interop import TorchsurvCox, TorchsurvWeibull, read_model
from xcal.metrics.inputs import at_own_time, at_point

HORIZONS = np.array([300.0, 1000.0])


def read(model, table=whas500, **options):
    x, time, event = new_rows(table)
    return read_model(model, x, time=time, event=event, horizons=HORIZONS, **options), x, time, event


def test_lifelines_cox_is_its_own_step_function():
    model = lifelines_model("CoxPHFitter")
    found, x, _, _ = read(model)
    curves = model.predict_survival_function(x)
    assert (found.model, found.library, found.interpolation) == ("CoxPHFitter", "lifelines", "previous")
    assert np.array_equal(found.times, curves.index)
    assert np.allclose(found.survival, curves.to_numpy().T, rtol=0, atol=1e-12)
    assert found.cdf is None
    assert found.nll is None
    between = (curves.index[10] + curves.index[11]) / 2
    assert np.allclose(at_point(found.survival, found.times, between, "previous"), curves.iloc[10], atol=1e-12)


def test_lifelines_strata_stay_with_their_rows():
    import lifelines

    (x, time, event), (new, later, happened) = halves(whas500())
    model = lifelines.CoxPHFitter(strata=["gender"]).fit(joined(x, time, event), "time", "event")
    found = read_model(model, new, time=later, event=happened)
    for row in (0, 7, 100):
        alone = model.predict_survival_function(new.iloc[[row]])
        assert np.allclose(found.survival[row], alone.iloc[:, 0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["LogNormalAFTFitter", "WeibullAFTFitter", "LogLogisticAFTFitter"])
def test_lifelines_aft_gives_exact_curves_and_likelihood(name):
    model = lifelines_model(name)
    found, x, time, event = read(model)
    curves = model.predict_survival_function(x, times=found.times).to_numpy().T
    assert np.allclose(found.survival, curves, rtol=0, atol=1e-12)
    own = np.array([model.predict_survival_function(x.iloc[[i]], times=[time[i]]).iloc[0, 0] for i in range(25)])
    assert np.allclose(1 - found.cdf[:25], own, rtol=0, atol=1e-12)
    # lifelines' score is the mean log-likelihood, in another unit of time where it scales; compare its own hazard.
    hazard = np.array([model.predict_hazard(x.iloc[[i]], times=[time[i]]).iloc[0, 0] for i in range(25)])
    log_likelihood = np.log(own) + np.where(event[:25], np.log(hazard), 0.0)
    assert np.allclose(found.nll[:25], -log_likelihood, rtol=1e-9)
    assert found.times[-1] == time.max()
    assert set(HORIZONS) <= set(found.times)


def test_lifelines_aft_with_an_ancillary_model():
    import lifelines

    (x, time, event), (new, later, happened) = halves(whas500())
    model = lifelines.WeibullAFTFitter().fit(joined(x, time, event), "time", "event", ancillary=True)
    found = read_model(model, new, time=later, event=happened)
    assert np.allclose(found.survival, model.predict_survival_function(new, times=found.times).to_numpy().T, atol=1e-12)


@pytest.mark.parametrize("name", ["spline", "piecewise"])
def test_lifelines_parametric_cox(name):
    import lifelines

    options = {"n_baseline_knots": 2} if name == "spline" else {"breakpoints": [200, 800]}
    (x, time, event), (new, later, happened) = halves(whas500())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # lifelines' optimiser talks
        model = lifelines.CoxPHFitter(baseline_estimation_method=name, **options)
        model.fit(joined(x, time, event), "time", "event")
    found = read_model(model, new, time=later, event=happened, horizons=HORIZONS)
    assert np.allclose(found.survival, model.predict_survival_function(new, times=found.times).to_numpy().T, atol=1e-12)
    assert (found.nll is None) == (name == "piecewise")  # lifelines' predict_hazard fails for it
    # The likelihood by a difference quotient of the survival curve.
    row, step = int(np.flatnonzero(happened)[3]), 1e-4
    around = [later[row] - step, later[row] + step]
    left, right = model.predict_survival_function(new.iloc[[row]], times=around).to_numpy()[:, 0]
    if name == "spline":
        assert found.nll[row] == pytest.approx(-np.log((left - right) / (2 * step)), rel=1e-5)
    assert found.cdf[row] == pytest.approx(1 - (left + right) / 2, abs=1e-8)


def test_lifelines_wants_a_frame_and_a_fit():
    import lifelines

    x, time, event = new_rows()
    with pytest.raises(ValueError, match=r"model: expected a fitted CoxPHFitter .*got one that was not fitted"):
        read_model(lifelines.CoxPHFitter(), x, time=time, event=event)
    with pytest.raises(ValueError, match="not fitted"):
        read_model(lifelines.WeibullAFTFitter(), x, time=time, event=event)
    with pytest.raises(
        ValueError, match="a regression model of lifelines, which predicts a curve for each row, got Kap"
    ):
        read_model(lifelines.KaplanMeierFitter().fit(time, event), x, time=time, event=event)
    with pytest.raises(ValueError, match="X: expected a pandas data frame"):
        read_model(lifelines_model("CoxPHFitter"), x.to_numpy(), time=time, event=event)
    with pytest.raises(ValueError, match="X: expected 3 rows, as many as y has, got 250"):
        read_model(lifelines_model("CoxPHFitter"), x, time=time[:3], event=event[:3])


def sksurv_models():
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sksurv.ensemble import GradientBoostingSurvivalAnalysis
    from sksurv.linear_model import CoxnetSurvivalAnalysis, CoxPHSurvivalAnalysis

    return {
        "cox": CoxPHSurvivalAnalysis(alpha=1e-3),
        "coxnet": CoxnetSurvivalAnalysis(fit_baseline_model=True),
        "boosting": GradientBoostingSurvivalAnalysis(n_estimators=10, random_state=0),
        "pipeline": make_pipeline(StandardScaler(), CoxPHSurvivalAnalysis(alpha=1e-3)),
        "search": GridSearchCV(CoxPHSurvivalAnalysis(), {"alpha": [1e-3, 1.0]}, cv=2),
    }


@pytest.mark.parametrize("name", ["cox", "coxnet", "boosting", "pipeline", "search"])
def test_scikit_survival(name):
    from sksurv.util import Surv

    (x, time, event), (new, later, happened) = halves(gbsg2())
    model = sksurv_models()[name].fit(x, Surv.from_arrays(event, time))
    found = read_model(model, new, time=later, event=happened, horizons=HORIZONS)
    steps = getattr(model, "best_estimator_", model).predict_survival_function(new)
    assert (found.library, found.interpolation) == ("scikit-survival", "previous")
    for t in (HORIZONS[0], HORIZONS[1], 777.3):
        asked = at_point(found.survival, found.times, t, found.interpolation)
        assert np.allclose(asked, [step(t) for step in steps], rtol=0, atol=1e-12)


def test_scikit_survival_forest_and_its_functions_are_the_same():
    model = forest()
    found, x, time, event = read(model, gbsg2)
    steps = model.predict_survival_function(x)
    given = read_model(list(steps), time=time, event=event)
    assert given.interpolation == "previous"
    assert np.array_equal(given.times, found.times)
    assert np.array_equal(given.survival, found.survival)
    inside = np.flatnonzero(time <= found.times[-1])[:40]
    own = at_own_time(found.survival, found.times, time, "previous")
    assert np.allclose(own[inside], [steps[i](max(time[i], found.times[0])) for i in inside], atol=1e-12)


def test_scikit_survival_models_without_probabilities():
    from sksurv.linear_model import CoxnetSurvivalAnalysis
    from sksurv.svm import FastSurvivalSVM
    from sksurv.util import Surv

    (x, time, event), (new, later, happened) = halves(gbsg2())
    svm = FastSurvivalSVM(max_iter=5, tol=1e-2, random_state=0).fit(x, Surv.from_arrays(event, time))
    with pytest.raises(ValueError, match="no probability"):
        read_model(svm, new, time=later, event=happened)
    with pytest.raises(ValueError, match="a fitted CoxnetSurvivalAnalysis"):
        read_model(CoxnetSurvivalAnalysis(), new, time=later, event=happened)


def test_many_own_times_are_thinned_and_f_stays_exact(monkeypatch):
    from xcal.interop import predictions as rows

    monkeypatch.setattr(rows, "MOST_CELLS", 250 * 60)
    model = lifelines_model("CoxPHFitter")
    found, x, time, _ = read(model)
    curves = model.predict_survival_function(x)
    assert 60 <= found.times.size <= 64
    whole = at_own_time(curves.to_numpy().T, curves.index.to_numpy(), time, "previous")
    assert np.allclose(1 - found.cdf, whole, rtol=0, atol=1e-12)
    for horizon in HORIZONS:
        exact = at_point(curves.to_numpy().T, curves.index.to_numpy(), horizon, "previous")
        assert np.allclose(at_point(found.survival, found.times, horizon, "previous"), exact, atol=1e-12)
    assert found.times[-1] == curves.index[-1]


def test_times_that_were_asked_for():
    model = lifelines_model("CoxPHFitter")
    found, x, _, _ = read(model, times=[100.0, 500.0])
    curves = model.predict_survival_function(x)
    assert list(found.times) == [100.0, 500.0]
    held = curves.loc[curves.index <= 500.0].iloc[-1]
    assert np.allclose(found.survival[:, 1], held, atol=1e-12)


def _pycox(model_class, interpolate=None):
    import torch
    import torchtuples as tt

    (x, time, event), (new, later, happened) = halves(whas500())
    scale = x.std()
    x, new = (x / scale).to_numpy(np.float32), (new / scale).to_numpy(np.float32)
    torch.manual_seed(0)
    cox = not hasattr(model_class, "label_transform")
    labels = None if cox else model_class.label_transform(12)
    target = (time.astype(np.float32), event.astype(np.float32))
    target = target if cox else labels.fit_transform(*target)
    out = 1 if cox else labels.out_features
    net = tt.practical.MLPVanilla(x.shape[1], [8], out, batch_norm=False)
    model = (
        model_class(net, tt.optim.Adam(0.01))
        if cox
        else model_class(net, tt.optim.Adam(0.01), duration_index=labels.cuts)
    )
    model.fit(x, target, batch_size=64, epochs=3, verbose=False)
    if cox:
        model.compute_baseline_hazards()
    return model if interpolate is None else model.interpolate(interpolate), new, later, happened


@pytest.mark.parametrize(
    ("name", "interpolate", "how"),
    [
        ("CoxPH", None, "previous"),
        ("LogisticHazard", None, "linear"),
        ("LogisticHazard", 10, "linear"),
        ("PCHazard", None, "linear"),
        ("MTLR", None, "linear"),
    ],
)
@pytest.mark.filterwarnings("ignore")  # pycox and torchtuples use what torch and pandas have deprecated
def test_pycox(name, interpolate, how):
    from pycox import models

    model, new, later, happened = _pycox(getattr(models, name), interpolate)
    found = read_model(model, new, time=later, event=happened)
    curves = model.predict_surv_df(new)
    assert (found.library, found.interpolation) == ("pycox", how)
    assert np.array_equal(found.times, curves.index.to_numpy(np.float64))
    # Predictions are float32.
    assert np.allclose(found.survival, curves.to_numpy().T, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_pycox_reads_a_discrete_model_as_its_own_interpolation():
    from pycox import models

    model, new, later, happened = _pycox(models.LogisticHazard)
    found = read_model(model, new, time=later, event=happened)
    fine = model.interpolate(4).predict_surv_df(new)
    for t, curve in zip(fine.index[::3], fine.to_numpy()[::3], strict=True):
        assert np.allclose(at_point(found.survival, found.times, float(t), "linear"), curve, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore")
def test_pycox_curves_that_rise_are_refused_with_advice():
    from pycox import models

    model, new, later, happened = _pycox(models.BCESurv)
    with pytest.raises(ValueError, match=r"never rise \(if the model allows that, pass curves: numpy.minimum"):
        read_model(model, new, time=later, event=happened)


@pytest.mark.filterwarnings("ignore")
def test_pycox_without_times_or_baseline():
    import torchtuples as tt
    from pycox import models

    x, time, event = new_rows()
    net = tt.practical.MLPVanilla(x.shape[1], [4], 5)
    with pytest.raises(ValueError, match=r"duration_index=labtrans.cuts"):
        read_model(models.LogisticHazard(net), x, time=time, event=event)
    with pytest.raises(ValueError, match="compute_baseline_hazards"):
        read_model(models.CoxPH(net), x, time=time, event=event)


SCIPY = {"normal": st.norm, "logistic": st.logistic, "extreme": st.gumbel_l}


@pytest.mark.parametrize("error", list(SCIPY))
@pytest.mark.parametrize("kind", ["booster", "regressor"])
def test_xgboost_aft_is_its_definition(error, kind):
    import xgboost as xgb

    (x, time, event), (new, later, happened) = halves(whas500())
    settings = {"objective": "survival:aft", "aft_loss_distribution": error, "aft_loss_distribution_scale": 0.75}
    bounds = {"label_lower_bound": time, "label_upper_bound": np.where(event, time, np.inf)}
    rows = xgb.DMatrix(x, **bounds)
    model = xgb.train({**settings, "max_depth": 2, "nthread": 1}, rows, 15)
    margin = model.predict(xgb.DMatrix(new), output_margin=True).astype(np.float64)
    if kind == "regressor":
        wrapped = xgb.XGBRegressor(**settings)
        wrapped.load_model(model.save_raw())
        model = wrapped
    found = read_model(model, new, time=later, event=happened)
    z = (np.log(later) - margin) / 0.75
    law = SCIPY[error]
    # XGBoost predicts in float32, and where the error is an extreme value its exponential is in the likelihood.
    assert np.allclose(found.cdf, law.cdf(z), rtol=0, atol=2e-6)
    log_likelihood = np.where(happened, law.logpdf(z) - np.log(0.75 * later), law.logsf(z))
    assert np.allclose(found.nll, -log_likelihood, rtol=1e-5, atol=2e-5)
    at = (np.log(found.times)[None, :] - margin[:, None]) / 0.75
    assert np.allclose(found.survival, law.sf(at), rtol=0, atol=2e-6)
    assert "AFT" in found.model


def test_xgboost_likelihood_is_its_own_metric():
    """For uncensored and right-censored rows alike, the mean is what XGBoost calls aft-nloglik."""
    import xgboost as xgb

    (x, time, event), _ = halves(whas500())
    rows = xgb.DMatrix(x, label_lower_bound=time, label_upper_bound=np.where(event, time, np.inf))
    settings = {"objective": "survival:aft", "aft_loss_distribution": "normal", "aft_loss_distribution_scale": 1.1}
    history = {}
    model = xgb.train(
        {**settings, "max_depth": 2, "nthread": 1, "eval_metric": "aft-nloglik"},
        rows,
        10,
        evals=[(rows, "train")],
        evals_result=history,
        verbose_eval=False,
    )
    found = read_model(model, x, time=time, event=event)
    # XGBoost predicts in float32.
    assert found.nll.mean() == pytest.approx(history["train"]["aft-nloglik"][-1], rel=1e-6)


def test_xgboost_refuses_what_gives_no_probability():
    import xgboost as xgb

    (x, time, event), _ = halves(whas500())
    cox = xgb.train({"objective": "survival:cox", "nthread": 1}, xgb.DMatrix(x, label=np.where(event, time, -time)), 3)
    with pytest.raises(ValueError, match="objective survival:aft"):
        read_model(cox, x, time=time, event=event)
    with pytest.raises(ValueError, match="a fitted XGBRegressor"):
        read_model(xgb.XGBRegressor(objective="survival:aft"), x, time=time, event=event)
    with pytest.raises(ValueError, match="a fitted Booster"):
        read_model(xgb.Booster(), x, time=time, event=event)


@pytest.mark.filterwarnings("ignore")  # hazardous uses what scikit-learn has deprecated
def test_hazardous():
    import pandas as pd
    from hazardous import SurvivalBoost

    (x, time, event), (new, later, happened) = halves(whas500())
    y = pd.DataFrame({"event": event.astype(int), "duration": time})
    model = SurvivalBoost(n_iter=4, n_time_grid_steps=15, show_progressbar=False, random_state=0)
    with pytest.raises(ValueError, match="a fitted SurvivalBoost"):
        read_model(model, new, time=later, event=happened)
    model.fit(x, y)
    found = read_model(model, new, time=later, event=happened)
    assert (found.library, found.interpolation) == ("hazardous", "linear")
    curves = model.predict_survival_function(new, times=found.times)
    assert np.allclose(found.survival, np.minimum.accumulate(curves, axis=1), atol=1e-12)
    rising = (np.diff(curves, axis=1) > 0).any(axis=1).sum()
    assert rising > 0
    assert f"{rising} of 250 curves rise somewhere" in found.reading[-1]


def test_torchsurv_weibull():
    import torch
    from torchsurv.loss.weibull import neg_log_likelihood_weibull, survival_function_weibull

    (_, _, _), (new, later, happened) = halves(whas500())
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(new.shape[1], 2), torch.nn.Dropout(0.5)).double()
    with torch.no_grad():
        network[0].weight.mul_(1e-3)
        network[0].bias.copy_(torch.tensor([7.0, -0.2]))
    found = read_model(TorchsurvWeibull(network), new, time=later, event=happened)
    assert network.training
    with torch.no_grad():
        network.eval()
        outputs = network(torch.as_tensor(new.to_numpy()))
        curves = survival_function_weibull(outputs, torch.as_tensor(found.times))
        loss = neg_log_likelihood_weibull(outputs, torch.as_tensor(happened), torch.as_tensor(later), reduction="mean")
    assert np.allclose(found.survival, curves, rtol=0, atol=1e-12)
    # torchsurv computes its loss in float32.
    assert found.nll.mean() == pytest.approx(float(loss), rel=1e-6)


def test_torchsurv_cox():
    import torch
    from torchsurv.loss.cox import baseline_survival_function, survival_function_cox

    (x, time, event), (new, later, happened) = halves(whas500())
    torch.manual_seed(0)
    network = torch.nn.Linear(x.shape[1], 1).double()
    with torch.no_grad():
        network.weight.mul_(1e-2)
        trained, asked = (network(torch.as_tensor(rows.to_numpy()))[:, 0] for rows in (x, new))
        baseline = baseline_survival_function(trained, torch.as_tensor(event), torch.as_tensor(time))
    found = read_model(TorchsurvCox(network, x, time, event), new, time=later, event=happened)
    curves = survival_function_cox(baseline, asked, torch.as_tensor(found.times))
    assert np.allclose(found.survival, curves, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match=r"xcal.interop.TorchsurvWeibull"):
        read_model(network, new, time=later, event=happened)


def test_xcal_model_is_its_distribution():
    import torch

    from xcal import Surv, SurvivalModel, SurvivalPath

    (x, time, event), (new, later, happened) = halves(whas500())
    model = SurvivalModel(distribution="lognormal", epochs=5, random_state=0, progress=False)
    with pytest.raises(ValueError, match="a fitted SurvivalModel"):
        read_model(model, new, time=later, event=happened)
    model.fit(x, Surv(time=time, event=event))
    found = read_model(model, new, time=later, event=happened)
    assert np.allclose(found.survival, model.predict_survival_function(new, found.times), rtol=0, atol=1e-12)
    own = np.diag(model.predict_cdf(new, later))
    assert np.allclose(found.cdf, own, rtol=0, atol=1e-12)
    log_density = model.predict_distribution(new).log_prob(torch.as_tensor(later)).numpy()
    assert np.allclose(found.nll[happened], -log_density[happened], rtol=1e-12)
    path = SurvivalPath(lambdas=(0, 10), seeds=1, epochs=2, random_state=0, progress=False)
    path.fit(x, Surv(time=time, event=event))
    assert read_model(path, new, time=later, event=happened).nll is not None


def test_a_column_that_the_model_needs_is_named():
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"age": rng.normal(size=80), "dose": rng.normal(size=80), "t": rng.exponential(size=80)})
    cox = lifelines.CoxPHFitter().fit(rows.assign(e=True), "t", "e")
    with pytest.raises(ValueError, match=r"X: expected the columns that CoxPHFitter was fitted with, got .*age"):
        read_model(cox, rows.drop(columns="age"), time=rows["t"], event=np.full(80, True))


def test_an_unknown_model_is_told_each_library_once():
    with pytest.raises(ValueError, match="a fitted model of xcal, lifelines, scikit-survival"):
        read_model(object(), [[1.0]], time=[1.0], event=[1])
