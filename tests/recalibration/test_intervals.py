"""Prediction intervals: their levels by a search, their weights by Kaplan-Meier, their coverage by simulation."""

import warnings

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter, WeibullAFTFitter
from scipy import special

import xcal
from xcal import Recalibrated, Surv, SurvivalModel
from xcal.calibration.subgroups import as_columns
from xcal.data.surv import Outcome
from xcal.metrics.pseudo_values import found_censoring
from xcal.recalibration import KaplanMeierRecalibration
from xcal.recalibration.estimator import followed
from xcal.recalibration.predictor import ConformalScores

RATE = 2.0


class Exponential:
    """Everybody has the rate 2, on a grid of times; the truth depends on x."""

    times_ = np.linspace(0.01, 6.0, 600)

    def predict_survival_function(self, X):
        return np.exp(-RATE * np.broadcast_to(self.times_, (len(X), self.times_.size)))


def draw(n, seed, *, leaving=0.0, rate=0.5):
    """Rates exp(x) of the event, and exp(leaving * x) times `rate` of the censoring; the time of the event, too."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    happens = rng.exponential(size=n) * np.exp(-x)
    leaves = rng.exponential(size=n) * np.exp(-leaving * x) / rate if rate else np.full(n, np.inf)
    table = pd.DataFrame({"x": x})
    return table, Surv(time=np.minimum(happens, leaves), event=happens <= leaves), happens


def simulated(seed):
    rng = np.random.default_rng(seed)
    cdf, n = rng.uniform(size=30).round(2), 80.0
    return ConformalScores(cdf, 1 + rng.exponential(size=30), n)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("miss", [0.02, 0.05, 0.1, 0.3, 0.6])
def test_the_levels_are_the_best_of_all_that_hold(seed, miss):
    own = simulated(seed)
    lower, upper = 0.0, np.inf
    for level in sorted(own.cdf):
        before, upto = own.weights[own.cdf < level], own.weights[own.cdf <= level]
        if (before.sum() + max(before, default=1.0)) / (own.n + 1) <= miss:
            lower = level
        if (own.n + 1 - np.minimum(upto, 20.0).sum()) / (own.n + 1) <= miss:
            upper = min(upper, level)
    assert own.lower_level(miss) == lower
    assert own.upper_level(miss) == upper


def test_without_censoring_they_are_the_ranks_of_split_conformal_prediction():
    u = np.random.default_rng(1).uniform(size=99)
    own = ConformalScores.of(u, np.ones(99, dtype=bool), np.ones(99))
    assert own.lower_level(0.1) == np.sort(u)[9]  # the tenth of 99: one of ten new rows lies below
    assert own.upper_level(0.1) == np.sort(u)[89]
    few = ConformalScores.of(u[:5], np.ones(5, dtype=bool), np.ones(5))
    assert (few.lower_level(0.1), few.upper_level(0.1)) == (0.0, np.inf)


def test_the_weights_add_up_to_the_kaplan_meier_curve():
    _, y, _ = draw(300, 2)
    followed = found_censoring((), np.zeros(300), Outcome(y["time"], y["event"])).before(y["time"])
    curve = KaplanMeierFitter().fit(y["time"], y["event"])
    own = ConformalScores.of(1 - np.exp(-RATE * y["time"]), y["event"], followed)
    for u in (0.3, 0.7, 0.95):
        at = -np.log1p(-u) / RATE
        told = own.weights[own.cdf <= u].sum() / own.n
        # The censoring curve is exp of minus its hazard, Kaplan-Meier the product: they differ by less than 1 / n.
        assert told == pytest.approx(1 - float(curve.predict(at)), abs=5e-3)


def test_censoring_is_modelled_by_what_it_depends_on():
    X, y, _ = draw(2000, 3, leaving=1.0)
    outcome, columns = Outcome(y["time"], y["event"]), as_columns(X)
    found = found_censoring(columns, np.zeros(2000), outcome).before(np.full(2000, 1.0))
    true = np.exp(-0.5 * np.exp(X["x"].to_numpy()))
    assert np.abs(found - true).mean() < 0.05
    X, y, _ = draw(2000, 4)
    same = found_censoring(as_columns(X), np.zeros(2000), Outcome(y["time"], y["event"])).before(np.full(2000, 1.0))
    assert np.ptp(same) == 0
    # Columns that cannot be read are left out; the others count.
    mixed = X.assign(gap=[np.nan] * 2000, day=pd.Timestamp("2020-01-01"), word="a", y=np.arange(2000) % 3)
    assert followed(Exponential(), mixed, Outcome(y["time"], y["event"])).shape == (2000,)


@pytest.mark.parametrize("leaving", [0.0, 1.0])
def test_a_wrong_model_has_intervals_that_hold(leaving):
    """Of 60 data sets of 300 rows, half censored; the model has one rate for all and a wrong one."""
    lower, both, finite = [], [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of infinite bounds
        for seed in range(60):
            X, y, _ = draw(300, [seed, 5], leaving=leaving)
            new, _, happens = draw(300, [seed, 6])
            own = Recalibrated(Exponential()).fit(X, y)
            bound, interval = own.predict_lower_bound(new, 0.8), own.predict_interval(new, 0.8)
            assert (interval[:, 0] <= interval[:, 1]).all()
            assert (interval[:, 0] <= bound).all()
            lower.append((happens >= bound).mean())
            both.append(((happens >= interval[:, 0]) & (happens <= interval[:, 1])).mean())
            finite.append(np.isfinite(interval[:, 1]).mean())
    for values, most in ((lower, 0.82), (both, 0.92)):
        error = np.std(values, ddof=1) / 60**0.5
        assert 0.8 - 2 * error <= np.mean(values) <= most
    naive = -np.log(0.8) / RATE  # what the model itself says
    assert np.mean([(draw(300, [seed, 6])[2] >= naive).mean() for seed in range(60)]) > 0.84
    assert np.mean(finite) > (0.5 if leaving == 0 else 0.0)


def test_what_cannot_be_known_is_said():
    X, y, _ = draw(300, 7, rate=4.0)
    own = Recalibrated(Exponential()).fit(X, y)
    with pytest.warns(UserWarning, match="300 of 300 upper bounds are infinite: too few"):
        assert np.isinf(own.predict_interval(X)[:, 1]).all()
    with pytest.warns(UserWarning, match="too few for a lower bound with so much coverage: it is 0"):
        assert (own.predict_lower_bound(X, 0.999) == 0).all()
    with pytest.raises(ValueError, match="coverage: expected a number between 0 and 1, got 1"):
        own.predict_interval(X, 1.0)
    late = Recalibrated(Exponential()).fit(*draw(300, 8, rate=0.0)[:2])
    late.model_.times_ = np.linspace(0.01, 0.5, 20)
    late.times_ = late.times_[late.times_ < 0.5]
    assert late.predict_lower_bound(X, 0.3).max() <= late.times_[-1]


@pytest.mark.filterwarnings("ignore:.*upper bounds are infinite:UserWarning")
def test_a_loaded_model_has_the_same_intervals(tmp_path):
    X, y, _ = draw(200, 9)
    model = SurvivalModel("weibull", epochs=5, hidden=(4,), progress=False).fit(X, y)
    own = Recalibrated(model, "beta").fit(*draw(200, 10)[:2])
    own.save(tmp_path / "model")
    again = xcal.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict_interval(X), own.predict_interval(X))
    np.testing.assert_array_equal(again.scores_.cdf, own.scores_.cdf)


@pytest.mark.filterwarnings("ignore:.*upper bounds are infinite:UserWarning")
@pytest.mark.parametrize("method", ["km", "auto", "csd", "risk"])
def test_intervals_are_those_of_the_model_inside_whatever_the_map(method):
    train, held, new = (draw(300, seed) for seed in (11, 12, 13))
    rows = train[0].assign(time=train[1]["time"], event=train[1]["event"])
    model = WeibullAFTFitter().fit(rows, "time", "event")
    own = Recalibrated(model, method).fit(*held[:2])
    level = own.scores_.lower_level(0.1)
    expected = model.predict_percentile(new[0], p=1 - level).to_numpy()
    np.testing.assert_allclose(own.predict_lower_bound(new[0]), expected, rtol=1e-8)
    # Cross-fitted rows serve as well.
    crossed = Recalibrated(WeibullAFTFitter(), method, cv=3, fit_model=fitted).fit(*held[:2])
    assert np.isfinite(crossed.predict_lower_bound(new[0])).all()


def fitted(X, y):
    return WeibullAFTFitter().fit(X.assign(time=y["time"], event=y["event"]), "time", "event")


def test_bands_are_those_of_resampled_rows():
    X, y, _ = draw(300, 14)
    own, times = Recalibrated(Exponential(), "km").fit(X, y), np.array([0.1, 0.5, 1.0])
    found = own.predict_survival_function(X[:2], times, interval=True)
    np.testing.assert_array_equal(found.survival, own.predict_survival_function(X[:2], times))
    u, rng, odds = own.held_out_.cdf, np.random.default_rng(0), []
    for _ in range(50):
        rows = rng.integers(0, 300, 300)
        again = KaplanMeierRecalibration.fit(u[rows], own.held_out_.event[rows])
        odds.append(special.logit(1 - again.cdf(1 - np.exp(-RATE * times))))
    spread = 1.96 * np.std(odds, axis=0, ddof=1)
    middle = special.logit(found.survival[0])
    np.testing.assert_allclose(special.logit(found.lower[0]), middle - spread, atol=2e-3)
    np.testing.assert_allclose(special.logit(found.upper[0]), middle + spread, atol=2e-3)


def test_bands_hold_the_curve_of_endless_rows():
    limit = Recalibrated(Exponential()).fit(*draw(40_000, 15)[:2])
    at, times, held = pd.DataFrame({"x": [0.0]}), np.array([0.1, 0.5, 1.0]), []
    true = limit.predict_survival_function(at, times)
    for seed in range(30):
        band = (
            Recalibrated(Exponential())
            .fit(*draw(300, [seed, 16])[:2])
            .predict_survival_function(at, times, interval=True)
        )
        held.append(((true >= band.lower) & (true <= band.upper)).mean())
    assert np.mean(held) > 0.85


def test_bands_that_nobody_can_draw():
    X, y, _ = draw(100, 17)
    model = SurvivalModel("weibull", epochs=3, hidden=(4,), progress=False).fit(X, y)
    with pytest.raises(ValueError, match="interval: expected a model of several seeds, or one that was recalibrated"):
        model.predict_survival_function(X, [1.0], interval=True)
    own = Recalibrated(model).fit(*draw(100, 18)[:2])
    with pytest.raises(ValueError, match="times: expected times at which to predict, beside interval"):
        own.predict_survival_function(X, interval=True)
    with pytest.raises(ValueError, match="interval: expected False with after"):
        own.predict_survival_function(X, [1.0], after=0.5, interval=True)
    del own.held_out_
    with pytest.raises(ValueError, match="interval: expected a model with the rows that it was recalibrated on"):
        own.predict_survival_function(X, [1.0], interval=True)
