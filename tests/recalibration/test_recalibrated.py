"""`Recalibrated` over models of several libraries: laws, outside values, files, errors."""

import warnings
from functools import cache

import mpmath
import numpy as np
import pandas as pd
import pytest
import torchtuples
import xgboost
from lifelines import CoxPHFitter, WeibullAFTFitter
from pycox.models import LogisticHazard
from scipy import stats
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sksurv.functions import StepFunction
from sksurv.linear_model import CoxPHSurvivalAnalysis
from torch import nn

import xcal
from xcal import Recalibrated, Surv, SurvivalData, SurvivalModel, SurvivalPath, d_calibration
from xcal.estimators import make_survival_pipeline
from xcal.interop import ModelPredictions, read_model, register
from xcal.interop.reading import unregister
from xcal.recalibration import KaplanMeierRecalibration
from xcal.recalibration.reading import _inverted, folds, labels_of, own_values, quantile_at
from xcal.recalibration.registry import METHODS

N = 300
FAST = {"epochs": 15, "hidden": (8,), "progress": False}


def simulate(seed, n=N):
    """Log-logistic times, of which a Weibull model is wrong; a third of the rows censored; two groups in a column."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "group": rng.integers(0, 2, n).astype(float)})
    happens = np.exp(0.6 * X["a"] + 0.5 * rng.logistic(size=n) * np.where(X["group"] > 0, 1.0, 1.6))
    leaves = rng.exponential(4.0, n)
    return X, Surv(time=np.minimum(happens, leaves), event=(happens <= leaves).to_numpy())


TRAIN, HELD, NEW = (simulate(seed) for seed in range(3))
X_NEW, Y_NEW = NEW


def frame(rows):
    return rows[0].assign(time=rows[1]["time"], event=rows[1]["event"])


def weibull_aft():
    return WeibullAFTFitter().fit(frame(TRAIN), "time", "event")


def boosted():
    X, y = TRAIN
    table = xgboost.DMatrix(X)
    table.set_float_info("label_lower_bound", y["time"])
    table.set_float_info("label_upper_bound", np.where(y["event"], y["time"], np.inf))
    settings = {"objective": "survival:aft", "aft_loss_distribution": "normal", "aft_loss_distribution_scale": 1.0}
    return xgboost.train(settings | {"max_depth": 2, "nthread": 1}, table, num_boost_round=20)


def discrete_pycox():
    X, y = TRAIN
    labels = LogisticHazard.label_transform(8)
    target = labels.fit_transform(y["time"].astype(np.float32), y["event"].astype(np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchtuples 0.2 calls torch by names that torch has given up
        model = LogisticHazard(nn.Linear(3, 8), torchtuples.optim.Adam(lr=0.05), duration_index=labels.cuts)
        model.fit(X.to_numpy(np.float32), target, batch_size=100, epochs=20, verbose=False)
    return model


class Curves:
    """An object with curves on a grid of its own, read along straight lines: a guess that is too slow."""

    times_ = np.linspace(0.25, 6.0, 24)

    def predict_survival_function(self, X):
        return np.exp(-0.5 * np.exp(-0.8 * X["a"].to_numpy()[:, None]) * self.times_)


# Each model, and whether it has a density.
MODELS = {
    "xcal Weibull": (lambda: SurvivalModel("weibull", **FAST).fit(*TRAIN), True),
    "xcal MTLR path": (lambda: SurvivalPath((0, 10), seeds=1, **FAST).fit(*TRAIN), True),
    "lifelines Weibull": (weibull_aft, True),
    "lifelines Cox": (lambda: CoxPHFitter().fit(frame(TRAIN), "time", "event"), False),
    "scikit-survival Cox": (lambda: CoxPHSurvivalAnalysis().fit(*TRAIN), False),
    "pipeline": (lambda: make_pipeline(StandardScaler(), CoxPHSurvivalAnalysis()).fit(*TRAIN), False),
    "pycox": (discrete_pycox, False),
    "XGBoost": (boosted, True),
    "curves": (Curves, False),
}


@pytest.fixture(scope="module")
def models():
    return {name: (make(), density) for name, (make, density) in MODELS.items()}


def options(method):
    return {"group_column": "group"} if method == "groups" else {}


def home(method):
    """A model with a density that the method can recalibrate."""
    return "xcal MTLR path" if method == "temperature" else "xcal Weibull"


# Maps of F differ in their numbers alone (test_maps.py): each kind of adjustment over every model, every map over one.
COMBINATIONS = [
    (name, method) for method in METHODS for name in MODELS if method in ("km", "csd") or name == home(method)
]
COMBINATIONS += [("lifelines Weibull", "groups"), ("pipeline", "groups")]


@pytest.fixture(scope="module")
def recalibrated(models):
    """A function: one of `MODELS` and its `Recalibrated`, fitted once for all tests, none of which changes it."""

    @cache
    def fitted(name, method):
        return Recalibrated(models[name][0], method, **options(method)).fit(*HELD)

    return fitted


@pytest.mark.parametrize(("name", "method"), COMBINATIONS)
def test_predictions_agree_with_each_other(models, recalibrated, name, method):
    density, fitted = models[name][1], recalibrated(name, method)
    few, y = X_NEW[:20], Y_NEW[:20]
    times = np.array([0.0, 0.2, 0.5, 1.0, 1.0, 2.0, 50.0])
    survival = fitted.predict_survival_function(few, times, extrapolate=True)
    assert survival.shape == (20, 7)
    assert ((survival >= 0) & (survival <= 1)).all()
    assert (np.diff(survival, axis=1) <= 1e-12).all()
    if name != "pycox":  # whose first time bin ends at time 0
        assert (survival[:, 0] == 1).all()
    np.testing.assert_allclose(fitted.predict_cdf(few, times, extrapolate=True), 1 - survival)
    # F at the observed time is the curve at that time.
    own = fitted.predict_own_cdf(few, y["time"])
    within = y["time"] <= fitted.times_[-1]
    curves = np.diag(fitted.predict_cdf(few, y["time"], extrapolate=True))
    np.testing.assert_allclose(own[within], curves[within], atol=1e-9)
    curve = fitted.predict_survival_function(few)[3]
    np.testing.assert_allclose(curve(times, extrapolate=True), survival[3], atol=1e-9)
    assert curve.y[-1] == pytest.approx(curve(curve.domain[1]), abs=1e-9)
    assert curve(1.0) == pytest.approx(survival[3, 3], abs=1e-9)
    quantiles = fitted.predict_quantile(few, [0.2, 0.5], extrapolate=True)
    np.testing.assert_allclose(fitted.predict_median(few, extrapolate=True), quantiles[:, 1], rtol=1e-12)
    reached = quantiles <= fitted.times_[-1]
    assert reached.mean() > 0.5
    at = np.stack([fitted.predict_own_cdf(few, np.where(np.isfinite(q), q, 1.0)) for q in quantiles.T], axis=1)
    # A step passes the level; a curve without steps meets it.
    assert (at[reached] >= np.broadcast_to([0.2, 0.5], at.shape)[reached] - 1e-6).all()
    if density or name == "curves":
        np.testing.assert_allclose(at[reached], np.broadcast_to([0.2, 0.5], at.shape)[reached], atol=1e-6)
    assert 0.5 < fitted.score(X_NEW, Y_NEW) < 0.9


@pytest.mark.parametrize(("name", "method"), [pair for pair in COMBINATIONS if MODELS[pair[0]][1]])
def test_the_likelihood_is_the_derivative_of_the_curves(recalibrated, name, method):
    fitted = recalibrated(name, method)
    few, time = X_NEW[:60], Y_NEW["time"][:60]
    step = 1e-6 * time
    slope = (fitted.predict_own_cdf(few, time + step) - fitted.predict_own_cdf(few, time - step)) / (2 * step)
    density = fitted.nll(few, Surv(time=time, event=np.ones(60)))
    close = np.isclose(np.exp(-density), slope, rtol=1e-3, atol=1e-6)
    assert close.mean() > 0.95  # a row beside a corner sees two slopes
    censored = fitted.nll(few, Surv(time=time, event=np.zeros(60)))
    left = 1 - fitted.predict_own_cdf(few, time)
    # Past the last edge of a discrete model S is 0, and a censored row has the likelihood of its last bin.
    within = left > 1e-9
    assert within.mean() > 0.9
    np.testing.assert_allclose(np.exp(-censored)[within], left[within], atol=1e-9)


def in_unit(rows, unit):
    return rows[0], Surv(time=rows[1]["time"] * unit, event=rows[1]["event"])


@cache
def weibull_in_unit(unit):
    return SurvivalModel("weibull", **FAST).fit(*in_unit(TRAIN, unit))


@cache
def path_in_unit(unit):
    return SurvivalPath((0, 10), seeds=1, **FAST).fit(*in_unit(TRAIN, unit))


@pytest.mark.parametrize(
    ("method", "unit"), [("km", 0.01), ("beta", 100.0), ("csd", 0.01), ("csd", 100.0), ("groups", 0.01)]
)
def test_the_density_integrates_to_f_in_any_unit_of_time(method, unit):
    """Also in the tail of csd, where the model's own density is moved: all of it, and none counted twice."""
    fitted = Recalibrated(weibull_in_unit(unit), method, **options(method)).fit(*in_unit(HELD, unit))
    for row in (0, 7):
        last = fitted.predict_quantile(X_NEW[row : row + 1], 0.999, extrapolate=True)[0]
        edges = last * np.linspace(0, 1, 5001) ** 2
        middle, same = (edges[1:] + edges[:-1]) / 2, X_NEW.iloc[np.full(5000, row)]
        density = np.exp(-fitted.nll(same, Surv(time=middle, event=np.ones(5000))))
        mass, cdf = np.cumsum(density * np.diff(edges)), fitted.predict_own_cdf(same, edges[1:])
        # At a corner of the curve, where the density jumps, the sum is off by up to a part of one step.
        np.testing.assert_allclose(mass, cdf, atol=4e-3)
        assert cdf[-1] == pytest.approx(0.999, abs=1e-6)
        left = np.exp(-fitted.nll(same, Surv(time=edges[1:], event=np.zeros(5000))))
        np.testing.assert_allclose(left, 1 - cdf, atol=1e-9)


def test_at_a_corner_the_density_is_the_one_to_its_right(models):
    fitted = Recalibrated(models["xcal Weibull"][0], "csd").fit(*HELD)
    levels = fitted.adjustment_.shifts.levels
    corners = fitted.predict_quantile(X_NEW, levels, extrapolate=True)
    width = np.diff(corners, axis=1)
    for k in (0, 3, 7):
        density = np.exp(-fitted.nll(X_NEW, Surv(time=corners[:, k], event=np.ones(N))))
        np.testing.assert_allclose(density, (levels[k + 1] - levels[k]) / width[:, k], rtol=1e-9)
    # After the last one the model's own density, moved.
    law = models["xcal Weibull"][0].predict_distribution(X_NEW)
    own = law.quantile(0.9)
    density = np.exp(-fitted.nll(X_NEW, Surv(time=corners[:, -1], event=np.ones(N))))
    np.testing.assert_allclose(density, np.exp(law.log_density(own).numpy()), rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_a_change_of_the_unit_of_time_changes_nothing_else(method):
    """F' of rows in months is F' of the same rows in years, by shifts in time too."""
    made = path_in_unit if method == "temperature" else weibull_in_unit
    years, months = (Recalibrated(made(unit), method, **options(method)).fit(*in_unit(HELD, unit)) for unit in (1, 12))
    at = np.array([0.3, 1.0, 4.0])
    # The networks are trained in float32, on times that were divided by their scale.
    np.testing.assert_allclose(months.predict_cdf(X_NEW, 12 * at), years.predict_cdf(X_NEW, at), atol=1e-4)
    median = years.predict_median(X_NEW, extrapolate=True)
    np.testing.assert_allclose(months.predict_median(X_NEW, extrapolate=True), 12 * median, rtol=1e-4)
    np.testing.assert_allclose(months.predict(X_NEW), years.predict(X_NEW), atol=1e-4)


def test_recalibration_calibrates_new_rows():
    X, y = simulate(5, 3000)
    X_new, y_new = simulate(6, 3000)
    model = WeibullAFTFitter().fit(frame(simulate(7, 3000)), "time", "event")
    before = read_model(model, X_new, time=y_new["time"], event=y_new["event"]).cdf
    raw = d_calibration(before, y_new["event"])
    assert raw.p_value < 1e-6
    for method in ("km", "isotonic", "beta", "groups"):
        after = Recalibrated(model, method, **options(method)).fit(X, y).d_calibration(X_new, y_new)
        # A map that is itself estimated doubles the noise of a perfect model, on average.
        assert after.value < 4 * after.floor < raw.value / 2, method


def test_the_map_is_that_of_the_numbers(models):
    model = models["lifelines Weibull"][0]
    fitted = Recalibrated(model, "km", n_pieces=7).fit(*HELD)
    scale, shape = np.exp(model.params_["lambda_"]), np.exp(model.params_["rho_"]["Intercept"])
    log_scale = (
        model.params_["lambda_"]["Intercept"] + HELD[0].to_numpy() @ model.params_["lambda_"][["a", "b", "group"]]
    )
    cdf = -np.expm1(-((HELD[1]["time"] / np.exp(log_scale)) ** shape))
    by_hand = KaplanMeierRecalibration.fit(cdf, HELD[1]["event"], n_pieces=7)
    assert len(scale) == 4
    np.testing.assert_allclose(fitted.adjustment_.map.knots, by_hand.knots, atol=1e-9)


def test_rows_past_the_end_of_the_curves_count_as_censored_there(models):
    model = models["scikit-survival Cox"][0]
    X, y = HELD
    late = y.copy()
    late["time"][:5], late["event"][:5] = 1e3, True
    fitted = Recalibrated(model).fit(X, late)
    assert not fitted.held_out_.event[:5].any()
    assert fitted.held_out_.happened[:5].all()
    assert fitted.adjustment_.map.n_events == late["event"].sum() - np.count_nonzero(
        late["time"] > TRAIN[1]["time"].max()
    )


def test_past_the_end_f_is_that_of_the_end_also_where_the_model_gives_it_exactly():
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, True, False])
    survival, exact = np.array([[0.9, 0.7]] * 4), np.array([0.1, 0.3, 0.35, 0.6])
    read = {"survival": survival, "times": np.array([1.0, 2.0]), "cdf": exact}
    own = own_values(ModelPredictions("a", "b", 4, **read), time, event)
    np.testing.assert_allclose(own.cdf, [0.1, 0.3, 0.3, 0.3])
    assert own.event.tolist() == [True, True, False, False]
    assert own.time.tolist() == [1.0, 2.0, 2.0, 2.0]
    # A model with a density at every time has no end: its curves stop where nobody asked for more.
    own = own_values(ModelPredictions("a", "b", 4, **read, nll=np.ones(4)), time, event)
    np.testing.assert_array_equal(own.cdf, exact)
    assert own.event.tolist() == event.tolist()
    # A likelihood without F at the observed times is of no use: F is read off the curves, and these end.
    own = own_values(ModelPredictions("a", "b", 4, **read | {"cdf": None}, nll=np.ones(4)), time, event)
    np.testing.assert_allclose(own.cdf, [0.1, 0.3, 0.3, 0.3])
    assert own.nll is None
    assert not own.event[2]


@pytest.mark.parametrize("method", METHODS)
def test_own_f_past_the_end_of_a_curve_is_that_of_its_end(models, method):
    fitted = Recalibrated(models["scikit-survival Cox"][0], method, **options(method)).fit(*HELD)
    end = fitted.times_[-1]
    late = fitted.predict_own_cdf(X_NEW, np.full(N, 10 * end))
    np.testing.assert_allclose(late, fitted.predict_cdf(X_NEW, [end])[:, 0])


# the end


def last_of(y):
    return float(y["time"].max())


# What each model knows of: its training rows, or nothing, so that the rows given to `fit` decide.
ENDS = {
    "xcal Weibull": None,  # a part of the rows was held out to stop by
    "xcal MTLR path": None,
    "lifelines Weibull": last_of(HELD[1]),
    "lifelines Cox": last_of(TRAIN[1]),
    "scikit-survival Cox": last_of(TRAIN[1]),
    "pipeline": last_of(TRAIN[1]),
    "pycox": None,  # the last of its own cuts
    "XGBoost": last_of(HELD[1]),
    "curves": 6.0,
}


@pytest.mark.parametrize(("name", "method"), COMBINATIONS)
def test_past_the_end_nothing_is_said_unless_it_is_asked_for(models, recalibrated, name, method):
    model, fitted = models[name][0], recalibrated(name, method)
    end = ENDS[name]
    if end is None:
        end = float(model.duration_index[-1]) if name == "pycox" else model.last_time_
    assert fitted.times_[-1] == pytest.approx(end, rel=1e-6)
    few, end = X_NEW[:15], fitted.times_[-1]
    times = np.array([end / 2, end, 2 * end])
    for ask in (fitted.predict_cdf, fitted.predict_survival_function):
        with pytest.warns(UserWarning, match=r"1 of 3 times lie after .* training or recalibration: NaN") as told:
            values = ask(few, times)
        assert told[0].filename == __file__
        assert np.isnan(values[:, 2]).all()
        asked = ask(few, times, extrapolate=True)
        assert np.isfinite(asked).all()
        np.testing.assert_array_equal(values[:, :2], asked[:, :2])
    curve = fitted.predict_survival_function(few[:1])[0]
    assert curve.domain == (0, end)
    with pytest.warns(UserWarning, match="1 of 1 times lie after") as told:
        assert np.isnan(curve(2 * end))
    assert told[0].filename == __file__
    # A level that F' has not reached at the end, by a level of each row that is just above F'(end).
    level = np.minimum(fitted.predict_cdf(few, [end]).max() + 1e-3, 0.999)
    with pytest.warns(UserWarning, match=r"of 30 quantiles lie after .*: infinity") as told:
        quantiles = fitted.predict_quantile(few, [0.1, level])
    assert told[0].filename == __file__
    asked = fitted.predict_quantile(few, [0.1, level], extrapolate=True)
    assert (asked[:, 1] > end).any()
    np.testing.assert_array_equal(quantiles, np.where(asked > end, np.inf, asked))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        medians = fitted.predict_median(few)
    assert all(one.filename == __file__ for one in told)
    # Half of the mass lies after the end where F' of the end is below one half, and only there.
    np.testing.assert_array_equal(np.isinf(medians), fitted.predict_cdf(few, [end])[:, 0] < 0.5)
    assert np.isfinite(fitted.predict(few)).all()


def test_medians_of_people_who_outlive_the_study_are_not_invented():
    rng = np.random.default_rng(3)
    x, happens = rng.normal(size=(900, 1)), rng.exponential(18, 900)
    leaves = rng.uniform(4, 8, 900)
    y = Surv(time=np.minimum(happens, leaves), event=happens <= leaves)
    model = SurvivalModel("mtlr", **FAST).fit(x[:400], y[:400])
    for method in ("km", "csd"):
        fitted = Recalibrated(model, method).fit(x[400:700], y[400:700])
        with pytest.warns(UserWarning, match="200 of 200 quantiles"):
            assert np.isinf(fitted.predict_median(x[700:])).all()
        with pytest.warns(UserWarning, match="1 of 1 times"):
            assert np.isnan(fitted.predict_survival_function(x[700:], [20.0])).all()


def test_the_end_of_a_model_fitted_by_cross_fitting_is_that_of_all_rows():
    for model in (WeibullAFTFitter(), CoxPHFitter()):
        assert Recalibrated(model, cv=2).fit(*TRAIN).times_[-1] == last_of(TRAIN[1])
    fitted = Recalibrated(SurvivalModel("weibull", **FAST), cv=2).fit(*TRAIN)
    assert fitted.times_[-1] == fitted.model_.last_time_


class Law:
    """A model of a library that was registered: exponential times, with curves at two times only."""


def exponential(model, X, rows):
    rate = np.exp(-0.6 * X["a"].to_numpy())
    times = np.array([1.0, 2.0])
    return ModelPredictions(
        "Law",
        "mine",
        rows.n,
        survival=np.exp(-rate[:, None] * times),
        times=times,
        cdf=-np.expm1(-rate * rows.time),
        nll=rate * rows.time - np.where(rows.event, np.log(rate), 0.0),
    )


def test_a_law_of_another_library_has_no_end_where_its_curves_stop():
    register("mine", exponential, modules=(Law.__module__,))
    try:
        fitted = Recalibrated(Law()).fit(*HELD)
        assert fitted.times_[-1] == last_of(HELD[1])
        rate, u = np.exp(-0.6 * X_NEW["a"].to_numpy()), fitted.adjustment_.map.quantile([0.2, 0.9])
        np.testing.assert_allclose(
            fitted.predict_quantile(X_NEW, [0.2, 0.9], extrapolate=True), -np.log1p(-u) / rate[:, None], rtol=1e-9
        )
    finally:
        unregister("mine")


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("steps", [False, True])
def test_quantiles_of_curves_by_hand(steps, extended):
    class Three:
        times_ = np.array([1.0, 2.0, 4.0])

        def predict_survival_function(self, X):
            curves = np.array([[0.9, 0.6, 0.5], [1.0, 1.0, 0.7], [1.0, 1.0, 1.0]])
            return [StepFunction(self.times_, y) for y in curves] if steps else curves

    levels = np.array([[0.05, 0.4, 0.45, 0.75], [0.15, 0.3, 0.31, 0.6], [0.1, 0.2, 0.3, 0.4]])
    found = quantile_at(Three(), np.zeros((3, 1)), levels, 4.0, extended=extended)
    # Past the end a line from the origin through the end of the curve, (4, 0.5) and (4, 0.3); the third never falls.
    past = [6.0, 4.0 * 0.31 / 0.3, 8.0] if extended else [np.inf] * 3
    within = [[1.0, 2.0, 4.0], [4.0, 4.0]] if steps else [[0.5, 2.0, 3.0], [3.0, 4.0]]
    np.testing.assert_allclose(found[0], [*within[0], past[0]])
    np.testing.assert_allclose(found[1], [*within[1], *past[1:]])
    assert np.isinf(found[2]).all()


def test_a_quantile_is_found_with_few_questions():
    """A model is asked as often as the slowest row needs; halving alone would take 50 steps."""
    rng = np.random.default_rng(0)
    law, level = stats.weibull_min(1.4, scale=np.exp(rng.normal(size=2000))), rng.uniform(size=2000)
    asked = []

    def cdf(time):
        asked.append(time.size)
        return law.cdf(time)

    truth = law.ppf(level)
    found = _inverted(cdf, level, truth * rng.uniform(0.5, 1, 2000), truth * rng.uniform(1, 1.5, 2000))
    np.testing.assert_allclose(found, truth, rtol=1e-11)
    assert len(asked) < 30


@pytest.mark.parametrize("column", [0, 1])
def test_groups_are_a_column_of_an_array_too(column):
    X, y = HELD
    array = X[["group", "a"] if column == 0 else ["a", "group"]].to_numpy()

    class Slow:
        times_ = np.linspace(0.25, 6.0, 24)

        def predict_survival_function(self, X):
            return np.tile(np.exp(-self.times_), (len(X), 1))

    fitted = Recalibrated(Slow(), "groups", group_column=column).fit(array, y)
    assert set(fitted.adjustment_.map.groups) == {0.0, 1.0}
    for bad in (-1, 2, "group"):
        with pytest.raises(ValueError, match="group_column: expected the number of a column of X"):
            Recalibrated(Slow(), "groups", group_column=bad).fit(array, y)
    assert set(labels_of(X, 2)) == {0.0, 1.0}  # a data frame by the number of its column
    for bad in (-1, 3):
        with pytest.raises(ValueError, match="group_column: expected one of the columns a, b, group, got"):
            labels_of(X, bad)


def test_the_end_of_curves_that_are_functions_is_the_last_time_that_all_cover():
    class Curve:
        def __init__(self, rate, end):
            self.rate, self.domain = rate, (0.0, end)

        def __call__(self, times):
            return np.exp(-self.rate * np.asarray(times))

    class Functions:
        def predict_survival_function(self, X):
            return [Curve(1 + k % 2, 3.0) for k in range(len(X))]

    fitted = Recalibrated(Functions()).fit(*HELD)
    assert fitted.times_[-1] == 3.0
    assert last_of(HELD[1]) > 3.0


def test_a_pipeline_of_ours_has_the_end_of_its_model():
    pipeline = make_survival_pipeline(StandardScaler(), SurvivalModel("weibull", **FAST)).fit(*TRAIN)
    fitted = Recalibrated(pipeline).fit(*HELD)
    assert fitted.times_[-1] == pipeline.last_time_ == pipeline[-1].last_time_
    median = fitted.predict_median(X_NEW, extrapolate=True)
    np.testing.assert_allclose(fitted.predict_own_cdf(X_NEW, median), 0.5, atol=1e-9)
    with pytest.raises(ValueError, match=r"save: expected a recalibrated model of xcal .*, got xcal.estimators"):
        fitted.save("nowhere")


def test_a_recalibrated_model_can_be_recalibrated(models):
    once = Recalibrated(models["xcal Weibull"][0]).fit(*HELD)
    twice = Recalibrated(once, "beta").fit(*TRAIN)
    assert twice.times_[-1] == once.times_[-1]
    np.testing.assert_allclose(
        twice.predict_cdf(X_NEW, [1.0]), twice.adjustment_.map.cdf(once.predict_cdf(X_NEW, [1.0]))
    )
    median = twice.predict_median(X_NEW, extrapolate=True)
    np.testing.assert_allclose(twice.predict_own_cdf(X_NEW, median), 0.5, atol=1e-9)


def test_rows_of_a_dmatrix_can_be_picked(models):
    fitted = Recalibrated(models["XGBoost"][0]).fit(*HELD)
    table = xgboost.DMatrix(X_NEW[:20])
    np.testing.assert_allclose(
        fitted.predict_median(table, extrapolate=True), fitted.predict_median(X_NEW[:20], extrapolate=True)
    )


# hostile rows


def hostile(model, y):
    """Rows on which a map has little, or nothing, to go by, from those of `HELD`."""
    X = HELD[0]
    one = y.copy()
    one["event"] = np.arange(N) == 7
    months = y.copy()
    months["time"] = np.ceil(months["time"])
    alike = pd.concat([X[:1]] * 50)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        median = np.asarray(read_quantile(model, X, 0.5))
    known = np.isfinite(median)
    return {
        "as they are": (X, y),
        "20 rows": (X[:20], y[:20]),
        "one event": (X, one),
        "ties": (X, months),
        "one row, 50 times": (alike, Surv(time=np.full(50, 1.5), event=np.arange(50) % 2)),
        "all F equal but for rounding": (X[known], Surv(time=median[known], event=np.arange(known.sum()) % 3 > 0)),
        "far too early": (X, Surv(time=y["time"] / 30, event=y["event"])),
        "far too late": (X, Surv(time=y["time"] * 30, event=y["event"])),
    }


def read_quantile(model, X, p):
    return quantile_at(model, X, np.full((len(X), 1), p), 10.0)[:, 0]


@pytest.fixture(scope="module")
def hostile_rows(models):
    """A function: the hostile rows of a model by its name, made once, as they ask the model for its quantiles."""
    return cache(lambda name: hostile(models[name][0], HELD[1]))


KINDS = ["as they are", "20 rows", "one event", "ties", "one row, 50 times"]
KINDS += ["all F equal but for rounding", "far too early", "far too late"]
# Every map over one model, each kind of adjustment over others; the rest of the table is for CI.
QUICK = {("XGBoost", "km"), *((name, m) for name in ("xcal MTLR path", "scikit-survival Cox") for m in ("km", "csd"))}
LAWS = [
    pytest.param(name, method, marks=[] if name == "curves" or (name, method) in QUICK else [pytest.mark.ci])
    for name in ("XGBoost", "xcal MTLR path", "scikit-survival Cox", "curves")
    for method in METHODS
    if (name, method) != ("XGBoost", "temperature")  # which has no bins
]


@pytest.mark.filterwarnings("ignore:recalibration. [0-9]+ events are few:UserWarning")
@pytest.mark.parametrize("rows", KINDS)
@pytest.mark.parametrize(("name", "method"), LAWS)
def test_every_method_gives_a_law_whatever_the_rows(models, hostile_rows, name, method, rows):
    fitted = Recalibrated(models[name][0], method, **options(method)).fit(*hostile_rows(name)[rows])
    few = X_NEW[X_NEW["group"] == HELD[0]["group"].iloc[0]][:25]  # the one group that all of these rows have
    assert (fitted.predict_cdf(few, [0.0]) == 0).all()
    times = np.unique(np.concatenate([np.linspace(0, 12, 60), np.geomspace(1e-3, 500, 60)]))
    survival = fitted.predict_survival_function(few, times, extrapolate=True)
    assert ((survival >= 0) & (survival <= 1)).all()
    assert (np.diff(survival, axis=1) <= 1e-12).all()
    levels = np.array([0.05, 0.1, 0.37, 0.5, 0.8, 0.95])
    quantiles = fitted.predict_quantile(few, levels, extrapolate=True)
    assert (quantiles >= 0).all()
    assert (quantiles[:, 1:] >= quantiles[:, :-1]).all()
    for level, found in zip(levels, quantiles.T, strict=True):
        reached = found <= fitted.times_[-1]
        if not reached.any():
            continue
        at, before = (fitted.predict_own_cdf(few[reached], found[reached] * share) for share in (1, 1 - 1e-9))
        if name == "scikit-survival Cox" or method == "csd":  # a step, or quantiles moved to one time, pass the level
            assert (at >= level - 1e-9).all()
            assert (before <= level + 1e-6).all()
        else:
            np.testing.assert_allclose(at, level, atol=1e-6)


def test_audit_reads_a_recalibrated_model(models):
    fitted = Recalibrated(models["lifelines Weibull"][0]).fit(*HELD)
    found = read_model(fitted, X_NEW, time=Y_NEW["time"], event=Y_NEW["event"], horizons=[1.0])
    np.testing.assert_allclose(found.cdf, fitted.predict_own_cdf(X_NEW, Y_NEW["time"]))
    np.testing.assert_allclose(found.nll, fitted.nll(X_NEW, Y_NEW))
    assert found.model == "WeibullAFTFitter, recalibrated"
    assert "recalibrated by the method 'auto' on 300 rows" in found.reading[-1]
    steps = Recalibrated(models["lifelines Cox"][0], "csd").fit(*HELD)
    found = read_model(steps, X_NEW, time=Y_NEW["time"], event=Y_NEW["event"])
    np.testing.assert_allclose(found.survival[:, 5], steps.predict_survival_function(X_NEW, found.times[5:6])[:, 0])


# cross-fitting


class Recorder(CoxPHSurvivalAnalysis):
    """A model that knows which rows it saw."""

    def fit(self, X, y):
        self.seen_ = set(np.asarray(X)[:, 0].tolist())
        return super().fit(X, y)

    def predict_survival_function(self, X, return_array=False):
        asked = np.asarray(X)[:, 0].tolist()
        if len(self.seen_) < N:  # the model of a fold
            assert not self.seen_ & set(asked)
        return super().predict_survival_function(X, return_array=return_array)


@pytest.mark.parametrize("cv", [4, KFold(3, shuffle=True, random_state=0)])
def test_no_row_is_predicted_by_a_model_that_saw_it(cv):
    X, y = TRAIN
    fitted = Recalibrated(Recorder(), cv=cv).fit(X.to_numpy(), y)
    assert len(fitted.model_.seen_) == N
    whole = CoxPHSurvivalAnalysis().fit(X.to_numpy(), y)
    np.testing.assert_allclose(fitted.model_.coef_, whole.coef_)
    # In the order of the rows: F of a model that saw all of them is near.
    own = read_model(whole, X.to_numpy(), time=y["time"], event=y["event"])
    exact = 1 - np.array(
        [
            curve(min(t, curve.x[-1])) if t >= curve.x[0] else 1.0
            for t, curve in zip(y["time"], whole.predict_survival_function(X.to_numpy()), strict=True)
        ]
    )
    assert own.n == N
    assert np.corrcoef(fitted.held_out_.cdf, exact)[0, 1] > 0.99


XCAL = SurvivalModel("weibull", **FAST)


@pytest.mark.parametrize(
    ("model", "method"),
    [*((CoxPHFitter() if method == "temperature" else WeibullAFTFitter(), method) for method in METHODS), (XCAL, "km")],
)
def test_cross_fitting_trains_copies(model, method):
    fitted = Recalibrated(model, method, cv=2, **options(method)).fit(*TRAIN)
    assert fitted.model_ is not model
    assert not hasattr(model, "params_")
    assert not hasattr(model, "fitted_")
    assert fitted.predict(X_NEW).shape == (N,)


def test_a_function_trains_what_has_no_fit_of_x_and_y():
    calls = []

    def train(X, y):
        calls.append(len(X))
        return WeibullAFTFitter().fit(X.assign(t=y["time"], e=y["event"]), "t", "e")

    Recalibrated(boosted(), cv=4, fit_model=train).fit(*TRAIN)
    assert calls == [225] * 4 + [300]


class Diverged:
    """A Cox model whose coefficients have run away."""

    def __init__(self, model, factor):
        self.model, self.factor = model, factor
        self.times_ = model.unique_times_

    def predict_survival_function(self, X):
        hazard = self.model._baseline_model.cum_baseline_hazard_(self.times_)
        return np.exp(-hazard * np.exp(self.factor * (X.to_numpy() @ self.model.coef_))[:, None])


def diverging(*broken, factor=12.0):
    """Train models of which those of some folds, by their number from 1, do not converge."""
    calls = []

    def train(X, y):
        calls.append(len(X))
        model = CoxPHSurvivalAnalysis().fit(X, y)
        return Diverged(model, factor if len(calls) in broken else 1.0)

    return train


@pytest.mark.parametrize("method", METHODS)
def test_a_fold_in_which_the_model_did_not_converge_is_left_out(method):
    X, y = simulate(20, 600)
    with pytest.warns(UserWarning, match=r"more than chance in fold 3 \(120 rows, by 0\.\d\d\)\. .* left out") as told:
        fitted = Recalibrated(None, method, cv=5, fit_model=diverging(3), **options(method)).fit(X, y)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert fitted.adjustment_.counts[0] == fitted.held_out_.time.size == 480
    # The rest is that of the four folds alone, in the order of the rows.
    tests = [test for _, test in folds(5, y["event"], 0)]
    rows = np.sort(np.concatenate([test for k, test in enumerate(tests) if k != 2]))
    np.testing.assert_array_equal(fitted.held_out_.time, y["time"][rows])
    np.testing.assert_array_equal(fitted.held_out_.happened, y["event"][rows])
    good = Recalibrated(None, method, cv=5, fit_model=diverging(), **options(method)).fit(X, y)
    np.testing.assert_array_equal(fitted.held_out_.cdf, good.held_out_.cdf[rows])


def test_two_of_five_folds_are_left_out_and_three_are_refused():
    X, y = simulate(20, 600)
    with pytest.warns(UserWarning, match=r"in folds 1 \(120 rows, by 0\.\d\d\), 4 \(120 rows"):
        fitted = Recalibrated(None, cv=5, fit_model=diverging(1, 4)).fit(X, y)
    assert fitted.held_out_.time.size == 360
    message = r"model: expected a model that is trained alike in each of \d folds .*, got other F in fold"
    with pytest.raises(ValueError, match=message):
        Recalibrated(None, cv=6, fit_model=diverging(1, 2, 3)).fit(X, y)
    with pytest.raises(ValueError, match=message):  # of two folds nobody knows which is right
        Recalibrated(None, cv=2, fit_model=diverging(1)).fit(X, y)


def test_folds_of_a_splitter_may_differ_and_are_kept():
    X, y = simulate(20, 600)
    with pytest.warns(UserWarning, match="in fold 2 .* kept, as these folds were not made at random"):
        fitted = Recalibrated(None, cv=KFold(5), fit_model=diverging(2)).fit(X, y)
    assert fitted.held_out_.time.size == 600


@pytest.mark.parametrize("n", [60, 200])
@pytest.mark.filterwarnings("ignore:recalibration. [0-9]+ events are few:UserWarning")
@pytest.mark.ci
def test_folds_of_good_models_are_kept(n):
    """None of 40 fits, of which each has five chances to be taken for another one; warnings are errors here."""
    for seed in range(40):
        X, y = simulate(100 + seed, n)
        assert Recalibrated(CoxPHSurvivalAnalysis(), cv=5).fit(X, y).held_out_.time.size == n


def test_survival_data_bring_their_outcomes_and_groups():
    X, y = TRAIN
    data = SurvivalData(X, y["time"], y["event"], groups=np.where(X["group"] > 0, "one", "two"))
    fitted = Recalibrated(SurvivalModel("weibull", **FAST), "groups", cv=2).fit(data)
    assert set(fitted.adjustment_.map.groups) == {"one", "two"}
    by_column = Recalibrated(fitted.model_, "groups", group_column="group").fit(data)
    assert set(by_column.adjustment_.map.groups) == {0.0, 1.0}
    np.testing.assert_array_equal(fitted.predict_own_cdf(data[:50]), fitted.predict_own_cdf(data[:50], y["time"][:50]))
    assert np.isfinite(fitted.nll(data)).all()
    assert fitted.d_calibration(data).n == N


# files and clones


@pytest.fixture
def far_tail():
    """The exponential law of rate 1, recalibrated by a method on rows of rate 0.6."""
    rng = np.random.default_rng(3)
    register("mine", exponential, modules=(Law.__module__,))
    y = Surv(time=rng.exponential(1 / 0.6, size=200), event=np.arange(200) % 4 > 0)
    yield lambda method: Recalibrated(Law(), method).fit(pd.DataFrame({"a": np.zeros(200)}), y)
    unregister("mine")


@pytest.mark.parametrize("method", ["km", "auto", "isotonic", "cipot", "beta", "ksp", "risk"])
def test_an_event_far_in_the_tail_has_a_finite_likelihood(far_tail, method):
    """Where F rounds to 1; of the beta map that of its formula in 400 digits."""
    own = far_tail(method)
    time = np.array([15.0, 40.0, 300.0])
    found = own.nll(pd.DataFrame({"a": np.zeros(3)}), Surv(time=time, event=np.ones(3)))
    assert np.isfinite(found).all()
    if method == "beta":
        a, b, c = (mpmath.mpf(float(getattr(own.adjustment_.map, name))) for name in "abc")
        for t, value in zip(time, found, strict=True):
            with mpmath.workdps(400):
                left = mpmath.exp(-mpmath.mpf(t))
                odds = mpmath.exp(c) * (1 - left) ** a * left**-b
                slope = odds / (1 + odds) ** 2 * (a / (1 - left) + b / left)
                assert value == pytest.approx(float(-mpmath.log(slope * left)), rel=1e-9)


@pytest.mark.parametrize("method", METHODS)
def test_a_saved_model_predicts_the_same_bits(models, method, tmp_path):
    fitted = Recalibrated(models["xcal MTLR path"][0], method, **options(method)).fit(*HELD)
    fitted.save(tmp_path / "model.xcal")
    again = xcal.load(tmp_path / "model.xcal")
    assert type(again) is Recalibrated
    fitted.save(tmp_path / "twin.xcal")
    assert (tmp_path / "twin.xcal").read_bytes() == (tmp_path / "model.xcal").read_bytes()
    assert (again.predict(X_NEW) == fitted.predict(X_NEW)).all()
    assert (again.predict_median(X_NEW[:20]) == fitted.predict_median(X_NEW[:20])).all()
    assert (again.nll(X_NEW, Y_NEW) == fitted.nll(X_NEW, Y_NEW)).all()
    assert {**again.get_params(deep=False), "model": None} == {**fitted.get_params(deep=False), "model": None}
    assert list(again.feature_names_in_) == ["a", "b", "group"]
    with pytest.raises(ValueError, match="The feature names should match those that were passed during fit"):
        again.predict(X_NEW[["a", "group"]])


def test_what_cannot_be_saved_or_loaded_says_so(models, tmp_path):
    other = Recalibrated(models["lifelines Cox"][0]).fit(*HELD)
    with pytest.raises(ValueError, match=r"save: expected a recalibrated model of xcal .*, got lifelines"):
        other.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()
    Recalibrated(models["xcal Weibull"][0]).fit(*HELD).save(tmp_path / "good")
    content = (tmp_path / "good").read_bytes()
    for name, bad in {
        "damaged": content[:-10] + bytes(10),
        "header": content.replace(b'\\"method\\": \\"auto\\"', b'\\"method\\": \\"Auto\\"'),
        "short": content[:-100],
    }.items():
        assert bad != content
        (tmp_path / name).write_bytes(bad)
        with pytest.raises(ValueError, match="path: expected a file that"):
            xcal.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        xcal.load(tmp_path / "absent")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"method": "auto"', '"method": "os.system"'),
        ('"cv": null', '"cv": [1]'),
        ('"knots": [0.0', '"knots": [0.5'),
        ('"levels": [0.0', '"levels": ["a"'),
        ('"times": [', '"times": [-1, '),
        ('"n_events": ', '"n_events": -'),
        ('{"method"', '{"more": 1, "method"'),
    ],
)
def test_a_forged_header_is_refused(models, tmp_path, old, new):
    from safetensors import safe_open
    from safetensors.numpy import save_file

    from xcal.recalibration.estimator import _digest

    Recalibrated(models["xcal Weibull"][0]).fit(*HELD).save(tmp_path / "good")
    with safe_open(tmp_path / "good", framework="numpy") as file:
        metadata, content = file.metadata(), file.get_tensor("model")
    header = metadata["header"].replace(old, new, 1)
    assert header != metadata["header"]
    save_file({"model": content}, tmp_path / "bad", metadata | {"header": header, "digest": _digest(header, content)})
    with pytest.raises(ValueError, match=r"path: expected a file that Recalibrated\.save wrote, got .*"):
        xcal.load(tmp_path / "bad")


def test_a_frozen_model_survives_a_clone(models):
    model = models["xcal Weibull"][0]
    frozen = clone(Recalibrated(FrozenEstimator(model))).fit(*HELD)
    np.testing.assert_array_equal(frozen.predict(X_NEW), Recalibrated(model).fit(*HELD).predict(X_NEW))
    with pytest.raises(ValueError, match=r"model: expected a fitted SurvivalModel .*, got one that was not fitted"):
        clone(Recalibrated(model)).fit(*HELD)


# errors and warnings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"method": "platt"},
            "method: expected one of 'km', 'auto', 'isotonic', 'beta', 'ksp', 'cipot', .*, got 'platt'",
        ),
        ({"method": "beta", "n_pieces": 5}, "n_pieces: expected None with method='beta' .*, got 5"),
        ({"group_column": "a"}, "group_column: expected None with method='auto' .*, got 'a'"),
        (
            {"method": "groups"},
            "group_column: expected the column of X that holds the groups, by name or number, got None",
        ),
        (
            {"method": "groups", "group_column": "sex"},
            "group_column: expected one of the columns a, b, group, got 'sex'",
        ),
        ({"method": "csd", "n_pieces": 1}, "n_pieces: expected an integer of 2 or more, got 1"),
        ({"cv": 1}, "cv: expected an integer of 2 or more, got 1"),
        ({"cv": 1000}, "cv: expected at most 300 folds, one for each row .*, got 1000"),
        ({"cv": "five"}, "cv: expected None, a number of folds or a splitter of scikit-learn, got 'five'"),
        ({"cv": KFold(2).split(np.zeros(5))}, "cv: expected None, a number of folds or a splitter"),
    ],
)
def test_settings_that_make_no_sense(models, settings, message):
    with pytest.raises(ValueError, match=message):
        Recalibrated(models["xcal Weibull"][0], **settings).fit(*HELD)


def test_rows_that_cannot_be_used(models):
    model = models["xcal Weibull"][0]
    X, y = HELD
    with pytest.raises(ValueError, match="y: expected at least one event, got none: all 300 rows are censored"):
        Recalibrated(model).fit(X, Surv(time=y["time"], event=np.zeros(N)))
    with pytest.raises(ValueError, match="y: expected 300 rows, as many as X has, got 299"):
        Recalibrated(model).fit(X, y[:-1])
    with pytest.raises(ValueError, match="requires y to be passed, but the target y is None"):
        Recalibrated(model).fit(X)
    with pytest.raises(ValueError, match=r"model: expected a model that can be trained again by fit\(X, y\)"):
        Recalibrated(boosted(), cv=3).fit(X, y)
    with pytest.raises(ValueError, match="model: expected a model with a density"):
        Recalibrated(models["lifelines Cox"][0]).fit(X, y).nll(X, y)
    with pytest.raises(ValueError, match=r"p: expected shares between 0 and 1, got 1\.0 at row 0"):
        Recalibrated(model).fit(X, y).predict_quantile(X, 1.0)


@pytest.mark.parametrize("method", METHODS)
def test_five_rows_are_fitted_with_one_warning(models, method):
    y = HELD[1][:5].copy()
    y["event"] = [True, False, True, False, False]
    with pytest.warns(UserWarning, match=r"recalibration: 2 events are few: the map is known to about 0\.35") as caught:
        fitted = Recalibrated(models[home(method)][0], method, **options(method)).fit(HELD[0][:5], y)
    assert len(caught) == 1
    with_curve = fitted.predict_survival_function(X_NEW[X_NEW["group"].isin(HELD[0]["group"][:5])], [0.5, 2.0])
    assert np.isfinite(with_curve).all()


def test_a_model_whose_curves_never_fall_has_no_quantiles_to_move():
    class Immortal:
        times_ = np.array([1.0, 2.0])

        def predict_survival_function(self, X):
            return np.ones((len(X), 2))

    with pytest.raises(
        ValueError, match=r"model: expected quantiles up to the level 0\.9, got a curve that never falls at row 0"
    ):
        Recalibrated(Immortal(), "csd").fit(*HELD)


def test_weights_are_not_ignored_in_silence():
    X, y = HELD
    weighted = SurvivalData(X.to_numpy(), time=y["time"], event=y["event"], weights=np.linspace(1, 2, N))
    model = SurvivalModel(**FAST).fit(TRAIN[0].to_numpy(), TRAIN[1])
    with pytest.raises(ValueError, match="X: expected rows of equal weight"):
        Recalibrated(model).fit(weighted)
