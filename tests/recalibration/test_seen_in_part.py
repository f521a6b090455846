"""`Recalibrated` on rows that entered late, with events between two times, or with one of several causes."""

from copy import deepcopy

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from tests.training.simulate import rows_in_part
from xcal import Recalibrated, Surv, SurvivalModel, audit, load
from xcal.calibration import cause_calibration
from xcal.cli.training import summary_values
from xcal.interop import read_model
from xcal.metrics import aalen_johansen


def drawn(kind, n, seed):
    rows = rows_in_part(kind, n, seed=seed)
    return rows.x.numpy(), rows.outcome.target()


class Law:
    """The law of `rows_in_part` with all hazards times a factor: Weibull curves on a fine grid."""

    def __init__(self, factor=1.0):
        self.factor = factor
        self.times_ = np.linspace(0.0, 12.0, 481)[1:]

    def cdf(self, X, times):
        scale = np.exp(0.3 + 0.6 * X[:, 0] - 0.4 * X[:, 1])[:, None]
        return -np.expm1(-self.factor * (np.atleast_2d(times) / scale) ** 1.4)

    def predict_survival_function(self, X):
        return 1 - self.cdf(X, self.times_)


class TwoCauses:
    """The incidences of `rows_in_part("causes")`, with the hazards of the causes times factors."""

    def __init__(self, first=1.0, second=1.0):
        self.factors = np.array([first, second])
        self.times_ = 12 * np.linspace(0.0, 1.0, 161)[1:] ** 2

    def predict_cumulative_incidence(self, X, times):
        # Where curves are steep the integral needs more points than are asked for.
        starts = np.append(0.0, times[:-1])
        fine = np.append(0.0, (starts[:, None] + np.subtract(times, starts)[:, None] * np.arange(1, 9) / 8).ravel())
        scales = np.exp([0.3 + 0.6 * X[:, 0] - 0.4 * X[:, 1], 0.6 + 0.5 * X[:, 1]])
        laws = zip(self.factors, scales, (1.4, 0.7), strict=True)
        hazards = np.stack([factor * (fine / scale[:, None]) ** shape for factor, scale, shape in laws], axis=1)
        steps, lost = np.diff(hazards, axis=2), -np.diff(np.exp(-hazards.sum(axis=1)), axis=1)
        share = steps / steps.sum(axis=1, keepdims=True)
        return np.cumsum(lost[:, None] * share, axis=2)[:, :, 7::8]


class TestEntry:
    @pytest.mark.parametrize("factor", [1.0, 1.6])
    def test_the_truth_comes_back_from_hazards_times_a_factor(self, factor):
        X, y = drawn("entry", 4000, 1)
        fitted = Recalibrated(Law(factor)).fit(X, y)
        new, times = drawn("entry", 200, 2)[0], np.array([0.5, 1.0, 2.0, 4.0])
        off = 1 - fitted.predict_survival_function(new, times) - Law().cdf(new, times)
        # G at its middle is known to .5 / sqrt(2800), and the mean over four times and many rows to less.
        assert np.abs(off).mean() < 0.015
        # Without the entry the map takes those who came late for those who lived long.
        ignored = Recalibrated(Law(factor)).fit(X, Surv(time=y["time"], event=y["event"]))
        assert (ignored.predict_survival_function(new, times) - 1 + Law().cdf(new, times)).mean() > 0.04

    def test_d_calibration_and_likelihood_are_given_the_entry(self):
        X, y = drawn("entry", 1500, 1)
        own = Law(1.6)
        fitted = Recalibrated(own).fit(X, y)
        found = fitted.d_calibration(*drawn("entry", 1500, 3))
        assert found.p_value > 0.01
        assert found.value < 0.004
        model = SurvivalModel("weibull", hidden=(), epochs=20, calibration_bins=10).fit(*drawn("entry", 400, 4))
        again = Recalibrated(model).fit(X, y)
        # Survival to the entry is taken off, by hand.
        plain = again.nll(X, Surv(time=y["time"], event=y["event"]))
        at_entry = again.nll(X, Surv(time=np.maximum(y["entry"], 1e-12), event=np.zeros(len(y))))
        np.testing.assert_allclose(again.nll(X, y), plain - at_entry, atol=1e-6)

    def test_lifelines_is_trained_on_the_entry_in_folds(self):
        from lifelines import WeibullAFTFitter

        X, y = drawn("entry", 600, 1)
        frame = pd.DataFrame(X, columns=["a", "b"])
        fitted = Recalibrated(WeibullAFTFitter(), cv=3).fit(frame, y)
        by_hand = WeibullAFTFitter().fit(
            frame.assign(time=y["time"], event=y["event"], entry=y["entry"]), "time", "event", entry_col="entry"
        )
        pd.testing.assert_series_equal(fitted.model_.params_, by_hand.params_)


class TestIntervals:
    def test_the_truth_comes_back_from_hazards_times_a_factor(self):
        X, y = drawn("intervals", 4000, 1)
        fitted = Recalibrated(Law(1.6)).fit(X, y)
        new, times = drawn("intervals", 200, 2)[0], np.array([0.5, 1.0, 2.0, 4.0])
        off = 1 - fitted.predict_survival_function(new, times) - Law().cdf(new, times)
        assert np.abs(off).mean() < 0.02

    def test_bounds_of_xgboost_are_a_model(self):
        xgboost = pytest.importorskip("xgboost")
        X, y = drawn("intervals", 800, 1)
        bounds = np.where(y["event"], y["time"], np.inf)
        model = xgboost.XGBRegressor(
            objective="survival:aft", n_estimators=20, max_depth=2, learning_rate=0.2, n_jobs=1,
            aft_loss_distribution="extreme", aft_loss_distribution_scale=0.7,
        )  # fmt: skip
        fitted = Recalibrated(model, cv=3).fit(X, y)
        rows = xgboost.DMatrix(X)
        rows.set_float_info("label_lower_bound", y["lower"])
        rows.set_float_info("label_upper_bound", bounds)
        by_hand = xgboost.train(model.get_xgb_params(), rows, num_boost_round=20)
        np.testing.assert_allclose(fitted.model_.predict(X), by_hand.predict(rows), rtol=1e-6)
        new = drawn("intervals", 400, 2)
        result = audit(fitted, *new, n_bootstrap=0, progress=False)
        assert summary_values(result)["d_calibration"] == pytest.approx(fitted.d_calibration(*new).value, rel=1e-6)
        # The likelihood of an interval is the probability of its ends, those of scipy's extreme value law.
        raw = Recalibrated(fitted.model_, "km", n_pieces=1).fit(X, y)
        centre, ends = np.log(fitted.model_.predict(new[0]).astype(float)), (new[1]["lower"], new[1]["time"])
        low, high = (stats.gumbel_l.cdf(np.log(np.maximum(at, 1e-300)), centre, 0.7) for at in ends)
        found = raw.adjustment_.map.cdf(high) - raw.adjustment_.map.cdf(low)
        inside = new[1]["event"]
        np.testing.assert_allclose(raw.nll(*new)[inside], -np.log(found[inside]), rtol=1e-4)


@pytest.fixture(scope="module")
def fitted():
    X, y = drawn("causes", 6000, 1)
    return Recalibrated(TwoCauses(1.0, 2.0)).fit(X, Surv(time=y["time"], cause=y["cause"], causes=("a", "b")))


class TestCauses:
    def test_incidences_are_those_of_a_law(self, fitted):
        X, times = drawn("causes", 50, 2)[0], np.linspace(0.0, fitted.last_time_, 30)
        curves = fitted.predict_cumulative_incidence(X, times)
        assert curves.shape == (50, 2, 30)
        assert curves.min() >= 0
        assert (np.diff(curves, axis=2) >= -1e-12).all()
        np.testing.assert_allclose(curves.sum(axis=1), fitted.predict_cdf(X, times), atol=1e-9)
        np.testing.assert_array_equal(fitted.predict_cumulative_incidence(X, times, cause="b"), curves[:, 1])
        later = fitted.predict_cumulative_incidence(X, [2.0], after=1.0)[..., 0]
        one, two = (fitted.predict_cumulative_incidence(X, [t])[..., 0] for t in (1.0, 2.0))
        np.testing.assert_allclose(later, (two - one) / (1 - one.sum(axis=1, keepdims=True)), rtol=1e-9)

    def test_hazards_times_a_factor_come_back_to_the_truth(self):
        fitted = Recalibrated(TwoCauses(1.6, 1.6)).fit(*drawn("causes", 3000, 1))
        X, times = drawn("causes", 500, 2)[0], np.array([0.5, 1.0, 2.0])
        truth = TwoCauses().predict_cumulative_incidence(X, times)
        # The map is known to .5 / sqrt(2400) at its middle, the shares of the causes no better.
        assert np.abs(fitted.predict_cumulative_incidence(X, times) - truth).mean() < 0.015

    def test_a_cause_overstated_twice_comes_near_the_truth(self, fitted):
        # Which is not one map of F: how much too high F is depends on the row.
        X, y = drawn("causes", 3000, 3)
        times = np.array([0.5, 1.0, 2.0])
        truth = TwoCauses().predict_cumulative_incidence(X, times)
        before = TwoCauses(1.0, 2.0).predict_cumulative_incidence(X, times)
        after = fitted.predict_cumulative_incidence(X, times)
        assert np.abs(after - truth).mean() < 0.4 * np.abs(before - truth).mean()
        seen = aalen_johansen(time=y["time"], cause=y["cause"])
        for k, own in enumerate(after.mean(axis=0), 1):
            assert (np.abs(own - seen.at(times, of=k)) < 0.03).all()
        judged = fitted.d_calibration(X, y)
        grid = fitted.times_
        untreated = cause_calibration(
            TwoCauses(1.0, 2.0).predict_cumulative_incidence(X, grid), grid, time=y["time"], cause=y["cause"], n_bins=10
        )
        assert judged.value < 0.1 * untreated.value

    def test_an_audit_reads_them(self, fitted):
        X, y = drawn("causes", 400, 4)
        y = Surv(time=y["time"], cause=y["cause"], causes=("a", "b"))
        result = audit(fitted, X, y, n_bootstrap=0, progress=False)
        assert list(result.by_cause) == ["a", "b"]
        horizon = result.horizons[-1]
        mean = fitted.predict_cumulative_incidence(X, [horizon], cause="b").mean()
        seen = aalen_johansen(time=y["time"], cause=y["cause"]).at(horizon, of=2)
        assert result.by_cause["b"].value("oe", horizon=horizon).value == pytest.approx(seen / mean, rel=1e-3)

    def test_a_model_of_xcal_gives_what_its_own_map_gives(self, tmp_path):
        X, y = drawn("causes", 500, 1)
        model = SurvivalModel("categorical", hidden=(8,), epochs=10, calibration_bins=10).fit(X, y)
        held, new = drawn("causes", 400, 2), drawn("causes", 60, 3)
        outside = Recalibrated(model).fit(*held)
        times = np.linspace(0.0, outside.last_time_, 9)
        kept = outside.predict_cumulative_incidence(new[0], times)
        loss, order = outside.nll(*new), outside.score(*new)
        outside.save(tmp_path / "m")
        np.testing.assert_array_equal(load(tmp_path / "m").predict_cumulative_incidence(new[0], times), kept)
        assert outside.method_ == "km"  # "auto" is of rows of which all is known
        any_cause = Recalibrated(model, "km").fit(held[0], Surv(time=held[1]["time"], event=held[1]["event"]))
        plain = any_cause.nll(new[0], Surv(time=new[1]["time"], event=new[1]["event"]))
        inside = deepcopy(model).recalibrate(*held)
        np.testing.assert_allclose(kept, inside.predict_cumulative_incidence(new[0], times), atol=1e-9)
        law, at = inside.predict_distribution(new[0]), torch.from_numpy(new[1]["time"].copy())
        shares = law.log_share(at, torch.from_numpy(new[1]["cause"].copy())).numpy()
        np.testing.assert_allclose(loss, plain - np.where(new[1]["event"], shares, 0.0), atol=1e-6)
        assert order == pytest.approx(inside.score(*new), abs=0.01)

    def test_cox_models_of_each_cause_are_put_together_first(self):
        from lifelines import CoxPHFitter

        X, y = drawn("causes", 500, 1)
        frame = pd.DataFrame(X, columns=["a", "b"])
        tables = {str(k): frame.assign(time=y["time"], event=y["cause"] == k) for k in (1, 2)}
        models = {name: CoxPHFitter().fit(table, "time", "event") for name, table in tables.items()}
        new, outcome = drawn("causes", 400, 2)
        table = pd.DataFrame(new, columns=["a", "b"])
        fitted = Recalibrated(models, "km", n_pieces=1).fit(table, outcome)
        read = read_model(models, table, time=outcome["time"], event=outcome["event"], causes=("1", "2"))
        # One line maps F to itself, and one split of the shares is left.
        at = read.times[::40]
        curves = fitted.predict_cumulative_incidence(table, at)
        np.testing.assert_allclose(curves.sum(axis=1), read.incidence[..., ::40].sum(axis=1), atol=1e-9)


@pytest.mark.parametrize("kind", ["entry", "intervals", "causes"])
def test_other_methods_say_what_they_do_not_know(kind):
    X, y = drawn(kind, 200, 1)
    model = Law() if kind != "causes" else TwoCauses()
    with pytest.raises(ValueError, match="method: expected 'km' for rows that enter late"):
        Recalibrated(model, "beta").fit(X, y)


def test_a_model_of_one_cause_is_refused():
    X, y = drawn("causes", 200, 1)
    with pytest.raises(ValueError, match="model: expected a model of all causes: 1, 2, got Law, which knows none"):
        Recalibrated(Law()).fit(X, y)


def test_rows_of_one_person_are_not_divided_into_folds():
    y = Surv(entry=[0, 1, 0, 1], time=[1, 2, 1, 2], event=[0, 1, 0, 1], id=[1, 1, 2, 2])
    with pytest.raises(ValueError, match="cv: expected None for several rows of one person"):
        Recalibrated(SurvivalModel(), cv=2).fit(np.zeros((4, 1)), y)
