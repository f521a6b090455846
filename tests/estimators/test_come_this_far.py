"""What is predicted of rows that have come this far, by every kind of model that predicts."""

import numpy as np
import pandas as pd
import pytest
import torch
from lifelines import CoxPHFitter, WeibullAFTFitter
from scipy import integrate
from sklearn.preprocessing import StandardScaler

from tests.estimators.simulate import survival_rows
from xcal import Recalibrated, Surv, SurvivalModel, SurvivalPath
from xcal.distributions import Weibull
from xcal.distributions.composed import SurvivorDistribution
from xcal.estimators import make_survival_pipeline

ROWS = survival_rows(300)
X, Y = ROWS.x, ROWS.y
NEW = survival_rows(5, seed=1).x
FAST = {"epochs": 4, "hidden": (4,), "progress": False}
AFTER = np.array([0.0, 0.3, 0.9, 2.0, 0.5])
TIMES = np.array([0.2, 0.5, 1.1, 2.5])


def lifelines_rows():
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(time=Y["time"], event=Y["event"])


def made(name):
    if name == "path":
        return SurvivalPath((0, 10), seeds=2, cross_fit=0, **FAST).fit(X, Y).select()
    if name == "recalibrated":
        return SurvivalModel(seeds=2, **FAST).fit(X, Y).recalibrate(X, Y)
    if name == "pipeline":
        return make_survival_pipeline(StandardScaler(), SurvivalModel("weibull", **FAST)).fit(X, Y)
    if name.startswith("Recalibrated"):
        return Recalibrated(SurvivalModel("mtlr", seeds=2, **FAST).fit(X, Y), name.split()[1]).fit(X, Y)
    if name == "of lifelines":
        return Recalibrated(WeibullAFTFitter().fit(lifelines_rows(), "time", "event")).fit(
            pd.DataFrame(X, columns=["a", "b", "c"]), Y
        )
    interpolation = "step" if name == "logistic-hazard" else "linear"
    return SurvivalModel(name, interpolation=interpolation, seeds=2, **FAST).fit(X, Y)


NAMES = ["mtlr", "categorical", "logistic-hazard", "lognormal", "weibull", "loglogistic", "path", "recalibrated"]
NAMES += ["pipeline", "Recalibrated km", "Recalibrated csd", "of lifelines"]


@pytest.fixture(scope="module", params=NAMES)
def model(request):
    return made(request.param), request.param


def rows_of(name):
    return pd.DataFrame(NEW, columns=["a", "b", "c"]) if name == "of lifelines" else NEW


def test_survival_is_the_ratio_from_there_on(model):
    model, name = model
    rows = rows_of(name)
    ask = {"extrapolate": True}
    reached = np.stack([model.predict_survival_function(rows, [s], **ask)[k] for k, s in enumerate(AFTER)])
    whole = model.predict_survival_function(rows, TIMES, **ask)
    expected = np.where(AFTER[:, None] < TIMES, whole / reached, 1.0)
    np.testing.assert_allclose(
        model.predict_survival_function(rows, TIMES, after=AFTER, **ask), expected, rtol=1e-12, atol=1e-14
    )
    np.testing.assert_allclose(model.predict_cdf(rows, TIMES, after=AFTER, **ask), 1 - expected, atol=1e-12)
    one = model.predict_survival_function(rows, TIMES, after=0.5)
    np.testing.assert_allclose(one[-1], expected[-1], rtol=1e-12)
    np.testing.assert_allclose(
        model.predict_survival_function(rows, TIMES), model.predict_survival_function(rows, TIMES, after=0), rtol=1e-12
    )


def test_quantiles_lie_after_it(model):
    model, name = model
    rows = rows_of(name)
    found = model.predict_quantile(rows, [0.1, 0.5], after=AFTER, extrapolate=True)
    assert (found >= AFTER[:, None]).all()
    np.testing.assert_array_equal(model.predict_median(rows, after=AFTER, extrapolate=True), found[:, 1])
    if name != "logistic-hazard":
        for k, row in enumerate(found):
            left = model.predict_survival_function(rows, row, after=AFTER, extrapolate=True)[k]
            np.testing.assert_allclose(left, [0.9, 0.5], atol=1e-9)


def test_restricted_means_are_areas(model):
    model, name = model
    rows = rows_of(name)
    found = model.predict_rmst(rows, 2.5, after=AFTER)
    grid = np.unique(np.concatenate([np.linspace(0, 2.5, 4_001), AFTER]))
    curves = model.predict_survival_function(rows, grid, after=AFTER)
    areas = integrate.trapezoid(curves, grid, axis=1)
    rough = "csd" in name or name == "of lifelines"  # along straight lines between the times of the fit
    np.testing.assert_allclose(found.value, areas, rtol=5e-3 if rough else 2e-4)
    assert (found.value > AFTER).all()
    alone = name in {"pipeline", "of lifelines", "Recalibrated csd"}
    assert np.isnan(found.error).all() if alone else (found.error > 0).all()


def test_the_error_is_the_spread_of_the_networks():
    path = SurvivalPath((0,), seeds=3, cross_fit=0, **FAST).fit(X, Y)
    found = path.model(0).predict_rmst(NEW, 2.0)
    own = np.stack([path.model(0, seed).predict_rmst(NEW, 2.0).value for seed in (0, 1, 2)])
    np.testing.assert_allclose(found.value, own.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.error, own.std(axis=0, ddof=1) / np.sqrt(3), rtol=1e-6)


def test_a_mean_needs_the_whole_curve():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = Surv(time=rng.weibull(2.0, 400), event=np.ones(400))
    model = SurvivalModel("weibull", **FAST).fit(x, y)
    law = model.predict_distribution(x[:5])
    full = model.predict_expectation(x[:5], extrapolate=True)
    np.testing.assert_allclose(full.value, law.mean, rtol=1e-9)
    rest = model.predict_expectation(x[:5], after=0.5, extrapolate=True).value
    np.testing.assert_allclose(rest, SurvivorDistribution(law, 0.5).mean, rtol=1e-9)
    end = model.last_time_
    with pytest.warns(UserWarning, match="means are NaN: more than 1% of such rows outlive .*last time seen") as told:
        found = model.predict_expectation(x[:5], after=[0, 0, 0, end - 0.01, end + 1])
    assert told[0].filename == __file__
    left = model.predict_survival_function(x[:3], [end])[:, 0]
    np.testing.assert_array_equal(np.isnan(found.value[:3]), left > 0.01)
    assert np.isnan(found.value[3:]).all()
    with pytest.warns(UserWarning, match="lie after"):
        assert np.isnan(model.predict_rmst(x[:5], 99.0).value).all()
    assert np.isfinite(model.predict_rmst(x[:5], 99.0, extrapolate=True).value).all()


def test_lifelines_says_the_same():
    aft = WeibullAFTFitter().fit(lifelines_rows(), "time", "event")
    new = pd.DataFrame(NEW, columns=["a", "b", "c"])
    lam = np.exp(new.to_numpy() @ aft.params_["lambda_"][["a", "b", "c"]] + aft.params_["lambda_"]["Intercept"])
    rho = np.exp(aft.params_["rho_"]["Intercept"])
    law = SurvivorDistribution(Weibull(torch.tensor(lam), torch.full((5,), float(rho), dtype=torch.float64)), AFTER)
    theirs = aft.predict_survival_function(new, times=TIMES, conditional_after=AFTER)
    ours = law.survival(torch.tensor(TIMES)[:, None] + torch.tensor(AFTER))  # lifelines counts from there on
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    median = aft.predict_median(new, conditional_after=AFTER)
    np.testing.assert_allclose(law.median - law.after, median, rtol=1e-6)


def test_a_cox_model_whose_curve_ends():
    seen = survival_rows(300, censoring="late")  # about half outlive the study
    table = pd.DataFrame(seen.x, columns=["a", "b", "c"])
    cox = CoxPHFitter().fit(table.assign(time=seen.y["time"], event=seen.y["event"]), "time", "event")
    model = Recalibrated(cox).fit(table, seen.y)
    new = table[:5]
    whole = model.predict_survival_function(new, [0.4, 0.9])
    found = model.predict_survival_function(new, [0.9], after=0.4)
    np.testing.assert_allclose(found[:, 0], whole[:, 1] / whole[:, 0], rtol=1e-9, atol=1e-14)
    with pytest.warns(UserWarning, match="means are NaN"):
        mean = model.predict_expectation(new, extrapolate=True)
    assert np.isnan(mean.value).any()


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (-1.0, "after: expected finite times, zero or larger, got -1.0 at row 0"),
        ([0, np.nan, 0, 0, 0], "after: expected finite times, zero or larger, got nan at row 1"),
        ([1.0, 2.0], "after: expected one time, or one for each of the 5 rows, got 2"),
        ("soon", "after: "),
    ],
)
def test_bad_times_are_named(after, told):
    model = made("weibull")
    for ask in (
        lambda: model.predict_survival_function(NEW, [1.0], after=after),
        lambda: model.predict_median(NEW, after=after),
        lambda: model.predict_rmst(NEW, 3.0, after=after),
    ):
        with pytest.raises(ValueError, match=told):
            ask()
    with pytest.raises(ValueError, match=r"after: expected times before the horizon, 1, got 2.0 at row 0"):
        model.predict_rmst(NEW, 1.0, after=2.0)
    with pytest.raises(ValueError, match="times: expected times at which to predict, beside after"):
        model.predict_survival_function(NEW, after=1.0)
