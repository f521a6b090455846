"""Prediction intervals of the estimators: from validation rows, kept in files, the same for every way to a model."""

import numpy as np
import pytest
from scipy import special

import xcal
from xcal import Surv, SurvivalModel, SurvivalPath
from xcal.estimators import make_survival_pipeline

FAST = {"epochs": 8, "hidden": (8,), "progress": False}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*upper bounds are infinite:UserWarning"),
    pytest.mark.filterwarnings("ignore:the path predicts with lambda:UserWarning"),
]


def draw(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    happens, leaves = rng.exponential(size=n) * np.exp(-x[:, 0]), rng.exponential(2.0, n)
    return x, Surv(time=np.minimum(happens, leaves), event=happens <= leaves), happens


X, Y, _ = draw(400, 0)


@pytest.fixture(scope="module")
def path():
    return SurvivalPath((0, 10), seeds=2, distribution="weibull", cross_fit=0, **FAST).fit(X, Y)


def test_the_scores_are_those_of_the_validation_rows():
    held = draw(100, 1)
    model = SurvivalModel("weibull", **FAST).fit(X, Y, validation_data=held[:2])
    found, event = model.fitted_.scores, held[1]["event"]
    cdf = np.diag(model.predict_cdf(held[0], held[1]["time"], extrapolate=True))
    np.testing.assert_allclose(found.cdf, cdf[event], rtol=1e-12)
    assert found.n == 100
    assert (found.weights >= 1).all()
    lower = model.predict_lower_bound(held[0], 0.8)
    np.testing.assert_allclose(lower, model.predict_quantile(held[0], found.lower_level(0.2)), rtol=1e-12)


def test_a_mixture_has_the_mean_of_the_scores_and_a_map_changes_nothing(path):
    model = path.model(10)
    members = [path.model(10, seed).fitted_.scores.cdf for seed in (0, 1)]
    np.testing.assert_allclose(model.fitted_.scores.cdf, np.mean(members, axis=0))
    mapped = path.model(10, recalibrated=True)
    np.testing.assert_allclose(mapped.predict_interval(X), model.predict_interval(X), rtol=1e-6)


def test_files_keep_them_and_refit_has_none(path, tmp_path):
    path.save(tmp_path / "path")
    again = xcal.load(tmp_path / "path")
    np.testing.assert_array_equal(again.predict_interval(X), path.predict_interval(X))
    path.select().save(tmp_path / "model")
    np.testing.assert_array_equal(xcal.load(tmp_path / "model").predict_interval(X), path.predict_interval(X))
    with pytest.raises(ValueError, match="predict_interval: expected a model with rows that it was not trained on"):
        path.refit(X, Y).predict_lower_bound(X)


def test_recalibration_brings_rows_of_its_own(path):
    own, new = path.model(0), draw(300, 2)
    before = own.fitted_.scores.n
    own.recalibrate(*new[:2])
    assert (before, own.fitted_.scores.n) == (80, 300)
    assert own.fitted_.scores.cdf.size == new[1]["event"].sum()


def test_a_pipeline_has_them_too():
    pipeline = make_survival_pipeline(SurvivalModel("weibull", **FAST)).fit(X, Y)
    assert pipeline.predict_interval(X[:5]).shape == (5, 2)
    assert pipeline.predict_lower_bound(X[:5]).shape == (5,)


def test_they_hold_on_average():
    """Validation rows chose the epoch, which is hardly a choice about single rows: 20 models of 200 rows."""
    found = []
    for seed in range(20):
        train, new = draw(200, [seed, 3]), draw(500, [seed, 4])
        model = SurvivalModel("weibull", epochs=10, hidden=(), progress=False, validation_fraction=0.4).fit(*train[:2])
        found.append((new[2] >= model.predict_lower_bound(new[0], 0.8)).mean())
    assert 0.8 - 2 * np.std(found, ddof=1) / 20**0.5 <= np.mean(found) <= 0.86


def test_bands_of_seeds_and_of_a_map(path):
    times, model = np.array([0.3, 1.0]), path.model(10)
    members = np.stack([path.model(10, seed).predict_survival_function(X[:3], times) for seed in (0, 1)])
    spread = 1.96 * special.logit(members).std(axis=0, ddof=1) / 2**0.5
    band = model.predict_survival_function(X[:3], times, interval=True)
    np.testing.assert_allclose(special.logit(band.upper), special.logit(band.survival) + spread, rtol=1e-4)
    mapped = path.model(10, recalibrated=True)
    wider, n = mapped.predict_survival_function(X[:3], times, interval=True), mapped.fitted_.recalibration.n_events
    alone = path.model(10, 0).recalibrate(X, Y).predict_survival_function(X[:3], times, interval=True)
    left, events = alone.survival, Y["event"].sum()
    expected = 1.96 / np.sqrt(left * (1 - left) * events)  # of a share among so many events, on the scale of log-odds
    np.testing.assert_allclose(special.logit(alone.upper), special.logit(left) + expected, rtol=1e-4)
    assert (wider.upper - wider.lower > 0).all()
    assert n > 0
