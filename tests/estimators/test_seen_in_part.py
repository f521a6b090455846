"""The estimators on rows that entered late, on events between two times, on causes, and on several rows per person."""

import warnings

import numpy as np
import pytest
import torch

from tests.training.simulate import rows_in_part
from xcal import Surv, SurvivalData, SurvivalModel, SurvivalPath, d_calibration, load
from xcal.calibration import cause_calibration
from xcal.estimators.decision import all_rows
from xcal.estimators.fitting import fit_models
from xcal.estimators.settings import Settings
from xcal.interop import Rows, read_model
from xcal.metrics import concordance_index

KINDS = ("entry", "intervals", "causes")
SMALL = {"hidden": (8,), "epochs": 15, "calibration_bins": 10}


def drawn(kind, n, seed):
    rows = rows_in_part(kind, n, seed=seed)
    return rows.x.numpy(), rows.outcome.target()


def named(y):
    """The same rows with names of their causes."""
    return Surv(time=y["time"], cause=y["cause"], causes=("recurrence", "death")) if "cause" in y.dtype.names else y


@pytest.fixture(scope="module", params=KINDS)
def path(request):
    X, y = drawn(request.param, 500, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = SurvivalPath(lambdas=(0, 50), seeds=2, path="always", cross_fit=3, **SMALL).fit(X, named(y))
    return request.param, fitted


class TestPath:
    def test_all_candidates_are_measured(self, path):
        kind, fitted = path
        table = fitted.candidates_
        assert table["recalibrated"].tolist() == [False, True, False, True]
        measured = ["nll", "nll_gap_se", "dcal", "dcal_gap_se", "dcal_floor", "dcal_p"]
        assert np.isfinite(table[measured].to_numpy()).all()
        assert np.isfinite(fitted.frontier_[measured].to_numpy()).all()
        # No pair of events between two times is known to be in order; features of causes are another question.
        assert table["concordance"].isna().all() == (kind == "intervals")
        assert table["conditional"].isna().all()
        if kind == "intervals":
            with pytest.raises(ValueError, match="max_concordance_drop: expected validation rows that can be compared"):
                fitted.select(max_concordance_drop=0.01)

    def test_saved_models_say_the_same(self, path, tmp_path):
        kind, fitted = path
        X, _ = drawn(kind, 20, 5)
        for model in (fitted, fitted.model(0.0, recalibrated=True)):
            model.save(tmp_path / "model.xcal")
            again = load(tmp_path / "model.xcal")
            assert (again.predict(X) == model.predict(X)).all()
            assert again.causes_ == model.causes_ == (("recurrence", "death") if kind == "causes" else ())
            if kind == "causes":
                same = again.predict_cumulative_incidence(X, [0.5, 1.0]) == model.predict_cumulative_incidence(
                    X, [0.5, 1.0]
                )
                assert same.all()

    def test_d_calibration_is_that_of_its_predictions(self, path):
        kind, fitted = path
        X, y = drawn(kind, 300, 2)
        for recalibrated in (False, True):
            model = fitted.model(0.0, recalibrated=recalibrated)
            dist = model.predict_distribution(X)

            def at(name, dist=dist, y=y):
                return dist.cdf(torch.from_numpy(np.array(y[name]))).numpy() if name in y.dtype.names else None

            found = model.d_calibration(X, named(y))
            if kind == "causes":
                edges = np.append(model.edges_, np.linspace(0.01, model.edges_[-1], 60))
                times = np.unique(edges)[1:]
                curves = model.predict_cumulative_incidence(X, times, extrapolate=True)
                wanted = cause_calibration(curves, times, time=y["time"], cause=y["cause"], n_bins=10)
            else:
                wanted = d_calibration(at("time"), y["event"], cdf_entry=at("entry"), cdf_lower=at("lower"), n_bins=10)
            close = {"rel": 0.05 if kind == "causes" and recalibrated else 1e-6}
            assert found.value == pytest.approx(wanted.value, **close)
            assert found.floor == pytest.approx(wanted.floor, **close)
            assert found.p_value == pytest.approx(wanted.p_value, rel=0.2 if kind == "causes" else 1e-6, abs=0.01)

    def test_recalibration_lowers_what_it_is_fitted_for(self, path):
        kind, fitted = path
        X, y = drawn(kind, 3000, 3)
        new, outcome = drawn(kind, 3000, 4)
        model = fitted.model(0.0)
        plain = model.d_calibration(new, named(outcome)).value
        assert model.recalibrate(X, named(y)).d_calibration(new, named(outcome)).value < plain


@pytest.fixture(scope="module")
def model():
    X, y = drawn("causes", 600, 1)
    return SurvivalModel("logistic-hazard", seeds=2, **SMALL).fit(X, named(y)).recalibrate(*drawn("causes", 400, 2))


class TestCauses:
    def test_incidences(self, model):
        X, _ = drawn("causes", 30, 3)
        times = np.linspace(0.0, model.last_time_, 40)
        curves = model.predict_cumulative_incidence(X, times)
        assert curves.shape == (30, 2, 40)
        assert curves.min() >= 0
        assert (np.diff(curves, axis=2) >= -1e-12).all()
        np.testing.assert_allclose(curves.sum(axis=1), model.predict_cdf(X, times), atol=1e-12)
        for cause in (2, "death"):
            np.testing.assert_array_equal(model.predict_cumulative_incidence(X, times, cause=cause), curves[:, 1])
        left = model.predict_survival_function(X, [0.5])[:, 0]
        later = model.predict_cumulative_incidence(X, [1.0], after=0.5)
        at = model.predict_cumulative_incidence(X, [0.5, 1.0])
        np.testing.assert_allclose(later[..., 0], (at[..., 1] - at[..., 0]) / left[:, None], atol=1e-12)

    def test_after_the_last_time_nothing_is_said(self, model):
        X, _ = drawn("causes", 3, 3)
        with pytest.warns(UserWarning, match="1 of 2 times lie after"):
            found = model.predict_cumulative_incidence(X, [1.0, 1e3])
        assert np.isnan(found[..., 1]).all()

    def test_rows_are_ordered_by_cause(self, model):
        X, y = drawn("causes", 400, 4)
        pairs = np.zeros(2)
        for k in (1, 2):
            # Who had the other event never has this one.
            time = np.where((y["cause"] > 0) & (y["cause"] != k), 1e6, y["time"])
            found = concordance_index(time=time, event=y["cause"] == k, risk=model.predict(X, cause=k))
            pairs += found.concordant + found.tied / 2, found.comparable
        assert model.score(X, y) == pytest.approx(pairs[0] / pairs[1])

    def test_readers_have_the_incidences(self, model):
        X, y = drawn("causes", 50, 5)
        rows = Rows(y["time"].astype(float), np.array(y["event"]), times=np.array([0.5, 1.0, 2.0]), causes=("1", "2"))
        found = read_model(model, X, time=rows.time, event=rows.event, times=rows.times)
        assert found.causes == ("recurrence", "death")
        np.testing.assert_allclose(found.incidence, model.predict_cumulative_incidence(X, found.times), atol=1e-12)

    def test_one_cause_is_an_event(self):
        X, y = drawn("plain", 200, 6)
        one = Surv(time=y["time"], cause=y["event"].astype(int), causes=("death",))
        models = [SurvivalModel(**SMALL).fit(X, target) for target in (y, one)]
        assert (models[0].predict(X) == models[1].predict(X)).all()
        assert models[1].causes_ == ()

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda m, X, y: m.predict_cumulative_incidence(X, [1.0], cause=3), "cause: expected a number from 1 to 2"),
            (lambda m, X, y: m.predict(X, cause="relapse"), "cause: expected .*'recurrence', 'death', got 'relapse'"),
            (lambda m, X, y: m.score(X, Surv(time=y["time"], event=y["event"])), "y: expected causes of events"),
            (
                lambda m, X, y: m.score(X, Surv(time=y["time"], cause=np.arange(len(y)) % 4)),
                "y: expected the causes of the fit: 'recurrence', 'death', got the causes '1', '2', '3'",
            ),
            (
                lambda m, X, y: SurvivalModel(**SMALL).fit(X, Surv(time=y["time"], event=y["event"])).score(X, y),
                "y: expected the causes of the fit: none, got the causes '1', '2'",
            ),
            (
                lambda m, X, y: (
                    SurvivalModel(**SMALL)
                    .fit(X, Surv(time=y["time"], event=y["event"]))
                    .predict_cumulative_incidence(X, [1.0])
                ),
                "X: expected rows of a model that was fitted to events with causes",
            ),
            (lambda m, X, y: m.d_calibration(X, y, sample_weight=np.ones(len(y))), "sample_weight: expected None for"),
            (lambda m, X, y: m.d_calibration(X, y, method="km"), "method: expected 'uniform' for rows that are seen"),
            (
                lambda m, X, y: SurvivalModel(**SMALL).fit(X, Surv(time=y["time"], cause=np.arange(len(y)) == 3)),
                "y: expected at least 3 events, 2 to train on and 1 to validate on",
            ),
            (
                lambda m, X, y: SurvivalModel(**SMALL).fit(
                    X, Surv(time=y["time"], cause=np.where(np.arange(len(y)) == 3, 2, np.minimum(y["cause"], 1)))
                ),
                "y: expected at least 2 events of cause '2', got 1 among 100 rows",
            ),
        ],
    )
    def test_one_sentence(self, model, call, message):
        X, y = drawn("causes", 100, 7)
        with pytest.raises(ValueError, match=message):
            call(model, X, y)


class TestEntry:
    def test_it_counts_from_there_on(self):
        """Survival of a truth that is known, on rows most of which entered late; ignored, it is too high."""
        X, y = drawn("entry", 2500, 1)
        known = SurvivalModel("weibull", hidden=(), epochs=80, dropout=0.0, learning_rate=0.02).fit(X, y)
        ignored = SurvivalModel("weibull", hidden=(), epochs=80, dropout=0.0, learning_rate=0.02).fit(
            X, y[["time", "event"]]
        )
        truth = np.exp(-((0.5 / np.exp(0.3 + 0.6 * X[:, 0] - 0.4 * X[:, 1])) ** 1.4))
        off = [model.predict_survival_function(X, [0.5])[:, 0] - truth for model in (known, ignored)]
        assert abs(off[0].mean()) < 0.02
        assert off[1].mean() > 0.05
        assert (
            known.score(X, y)
            == concordance_index(time=y["time"], event=y["event"], entry=y["entry"], risk=known.predict(X)).value
        )

    def test_data_and_targets_are_the_same(self):
        rows = rows_in_part("entry", 120, seed=2)
        X, y = rows.x.numpy(), rows.outcome.target()
        one = SurvivalModel(**SMALL).fit(X, y)
        other = SurvivalModel(**SMALL).fit(SurvivalData(X, time=y["time"], event=y["event"], entry=y["entry"]))
        assert (one.predict(X) == other.predict(X)).all()

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"objective": "scrps"}, "objective: expected one that takes entry by name, as nll does"),
            ({"calibration": "conditional"}, "calibration: expected 'marginal' for rows that are seen in part"),
        ],
    )
    def test_what_is_not_there(self, settings, message):
        X, y = drawn("entry", 80, 3)
        with pytest.raises(ValueError, match=message):
            SurvivalModel(**{**SMALL, **settings}).fit(X, y)
        with pytest.raises(ValueError, match="sample_weight: expected None for rows that are seen in part"):
            SurvivalModel(**SMALL).fit(X, y, sample_weight=np.ones(80))


def several_rows(n, seed):
    """People whose covariate turns from 0 to 1 at a time of their own, which triples their hazard of 0.4."""
    rng = np.random.default_rng(seed)
    turn, leaves, unit = rng.exponential(1.0, n), rng.uniform(1, 4, n), rng.exponential(1.0, n)
    happens = np.where(unit < 0.4 * turn, unit / 0.4, turn + (unit - 0.4 * turn) / 1.2)
    end, event = np.minimum(happens, leaves), happens <= leaves
    twice = turn < end
    person = np.concatenate([np.arange(n), np.flatnonzero(twice)])
    x = np.concatenate([np.zeros(n), np.ones(twice.sum())])[:, None]
    entry = np.concatenate([np.zeros(n), turn[twice]])
    time = np.concatenate([np.where(twice, turn, end), end[twice]])
    happened = np.concatenate([event & ~twice, event[twice]])
    order = rng.permutation(person.size)
    return x[order], Surv(time=time[order], event=happened[order], entry=entry[order], id=person[order])


@pytest.fixture(scope="module")
def of_people():
    X, y = several_rows(1500, 1)
    settings = {"hidden": (), "epochs": 60, "learning_rate": 0.03, "dropout": 0.0, "n_time_bins": 6}
    return SurvivalPath(
        lambdas=(0, 10), seeds=1, cross_fit=2, path="always", distribution="logistic-hazard", **settings
    ).fit(X, y)


class TestPeople:
    """Covariates that change: one row for each stretch of a person's time."""

    def test_the_hazards_come_back(self, of_people):
        found = of_people.model(0.0).predict_survival_function(np.array([[0.0], [1.0]]), [0.5, 1.0])
        np.testing.assert_allclose(found, np.exp(-np.outer([0.4, 1.2], [0.5, 1.0])), atol=0.06)

    def test_people_stay_whole(self):
        X, y = several_rows(100, 3)
        model = SurvivalModel(hidden=(), epochs=1)
        made = fit_models(model, X, y, None, None, settings=Settings.of(model), lambdas=(0.0,), seeds=(0,))
        assert not set(made.train.id) & set(made.validation.id)
        rows = all_rows(made)
        assert set(rows.id) == set(rows.groups) == set(range(100))
        assert rows.n == len(y)

    def test_calibration_counts_people(self, of_people):
        X, y = several_rows(600, 2)
        found = of_people.model(0.0).d_calibration(X, y)
        assert found.n_clusters == 600
        assert found.n == len(y)
        assert found.p_value > 0.001
        assert 0.5 < of_people.score(X, y) < 0.8
