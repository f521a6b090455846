"""The path: its models are those that one would fit alone, and the rules choose what they say."""

import pickle
from dataclasses import replace
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import chi2
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from tests.estimators.simulate import survival_rows
from xcal import Surv, concordance_index, d_calibration, nll
from xcal.estimators import SurvivalModel, SurvivalPath, decision, load

DATA, HELD_OUT, TEST = survival_rows(400), survival_rows(200, seed=1), survival_rows(500, seed=2)
SETTINGS = {"hidden": (8,), "epochs": 10, "batch_size": 100, "learning_rate": 1e-2}
LAMBDAS = (0.0, 10.0, 1000.0)


@pytest.fixture(scope="module")
def path():
    return all_trained(SurvivalPath(LAMBDAS, 2, **SETTINGS))


def all_trained(path, rows=HELD_OUT):
    return clone(path).set_params(path="always").fit(DATA.x, DATA.y, validation_data=(rows.x, rows.y))


@pytest.mark.parametrize("lam", LAMBDAS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_model_of_the_path_is_the_model_fitted_alone(path, lam, seed):
    alone = SurvivalModel(xcal_lambda=lam, random_state=seed, **SETTINGS)
    alone.fit(DATA.x, DATA.y, validation_data=(HELD_OUT.x, HELD_OUT.y))
    model = path.model(lam, seed)
    assert model.get_params() == alone.get_params()
    # Trained in float32, stacked or alone: sums in another order.
    np.testing.assert_allclose(model.predict(TEST.x), alone.predict(TEST.x), rtol=1e-4)
    assert model.best_epoch_ == alone.best_epoch_


class TestTrainedWhenNeeded:
    GOOD = survival_rows(200, seed=5)  # rows that do not show that lambda 0 is off

    @pytest.fixture
    @staticmethod
    def lazy():
        good = TestTrainedWhenNeeded.GOOD
        return SurvivalPath(LAMBDAS, 2, **SETTINGS).fit(DATA.x, DATA.y, validation_data=(good.x, good.y))

    @pytest.fixture(scope="class")
    @staticmethod
    def path():
        return all_trained(SurvivalPath(LAMBDAS, 2, **SETTINGS), TestTrainedWhenNeeded.GOOD)

    def test_the_choice_is_that_of_the_whole_path_and_the_rest_is_trained_when_it_is_asked_for(self, lazy, path):
        assert lazy.untrained_ == LAMBDAS[1:]
        assert {model.lam for model in lazy.fitted_} == {0.0}
        assert (lazy.selection_.lam, lazy.selection_.recalibrated) == (
            path.selection_.lam,
            path.selection_.recalibrated,
        )
        np.testing.assert_allclose(lazy.predict(TEST.x), path.predict(TEST.x), rtol=1e-4)
        for table, lines in ((lazy.frontier_, 4), (lazy.candidates_, 2), (lazy.summary(), 2)):
            assert table["nll"].isna().sum() == lines
        before = lazy.selection_
        assert lazy.model(10.0).xcal_lambda == 10
        assert lazy.untrained_ == LAMBDAS[2:]
        lazy.plot()
        assert lazy.untrained_ == ()
        assert lazy.selection_ == before
        numbers = ["lambda", "seed", "nll", "dcal", "concordance", "best_epoch"]
        np.testing.assert_allclose(lazy.frontier_[numbers], path.frontier_[numbers], rtol=1e-3)
        pd.testing.assert_frame_equal(lazy.candidates_, path.candidates_, rtol=1e-2, atol=1e-4)

    @pytest.mark.parametrize("rule", [{"max_dcal": 1.0}, {"max_concordance_drop": 0.5}, {"rule": "one_standard_error"}])
    def test_other_rules_see_all_weights(self, lazy, path, rule):
        assert lazy.select(**rule).xcal_lambda == path.select(**rule).xcal_lambda
        assert lazy.untrained_ == ()

    def test_what_is_off_and_not_corrected_by_a_map_is_trained_further(self, monkeypatch):
        monkeypatch.setattr(decision, "is_settled", lambda table, selection: False)
        path = SurvivalPath(LAMBDAS, 2, **SETTINGS).fit(DATA.x, DATA.y, validation_data=(HELD_OUT.x, HELD_OUT.y))
        assert path.untrained_ == ()
        assert path.frontier_["lambda"].tolist() == 2 * list(LAMBDAS)

    def test_a_copy_and_a_file_have_no_rows_and_say_what_to_do(self, lazy, tmp_path):
        lazy.save(tmp_path / "path")
        for other in (load(tmp_path / "path"), pickle.loads(pickle.dumps(lazy))):
            assert other.untrained_ == LAMBDAS[1:]
            pd.testing.assert_frame_equal(other.frontier_, lazy.frontier_)
            np.testing.assert_array_equal(other.predict(TEST.x), lazy.predict(TEST.x))
            with pytest.raises(
                ValueError, match=r"lam: expected .* \(fit it again with path='always'\), got lambda 10$"
            ):
                other.model(10.0)
            with pytest.raises(ValueError, match="select: expected weights that were trained"):
                other.select(max_dcal=1.0)
            assert "λ = 10, 1000" in other.plot().get_title()
            page = other.report(tmp_path / "page.html", HELD_OUT.x, HELD_OUT.y).read_text()
            assert "Not trained, as the choice did not need them: λ = 10, 1000" in page
        assert lazy.untrained_ == LAMBDAS[1:]

    def test_an_interrupt_keeps_what_was_there_before(self, lazy):
        before, shown = lazy.predict(TEST.x), []

        def stop(report):
            shown.append(report)
            raise KeyboardInterrupt

        lazy._so_far = replace(lazy._so_far, settings=replace(lazy._so_far.settings, progress=stop))
        with pytest.raises(KeyboardInterrupt):
            lazy.model(10.0)
        assert len(shown) == 1
        np.testing.assert_array_equal(lazy.predict(TEST.x), before)
        assert lazy.model(10.0).xcal_lambda == 10  # of one epoch


def test_the_split_of_a_path_is_that_of_its_first_seed():
    path = SurvivalPath((0.0,), 1, random_state=5, **SETTINGS).fit(DATA.x, DATA.y)
    alone = SurvivalModel(random_state=5, **SETTINGS).fit(DATA.x, DATA.y)
    np.testing.assert_array_equal(path.predict(TEST.x), alone.predict(TEST.x))


def test_a_notebook_shows_what_a_path_chose(path):
    shown = path._repr_mimebundle_()
    assert shown["text/plain"] == repr(path)
    for word in ("<table", "recalibrated", path.selection_.reason.split(":")[0]):
        assert word in shown["text/html"]
    assert shown["text/html"].count("<tr") > len(path.candidates_)
    assert "Chosen" not in clone(path)._repr_html_()
    with config_context(display="text"):
        assert "text/html" not in path._repr_mimebundle_()


def test_frontier(path):
    table = path.frontier_
    assert table.columns.tolist() == [
        "lambda", "seed", "nll", "dcal", "dcal_floor", "dcal_p", "concordance", "total", "best_epoch",
        "conditional", "nll_gap_se", "dcal_gap_se", "nll_sd", "dcal_sd", "concordance_sd",
    ]  # fmt: skip
    time, event = HELD_OUT.y["time"].copy(), HELD_OUT.y["event"].copy()
    losses = {}
    for line in table.itertuples():
        model = path.model(line[1], line.seed)
        distribution = model.predict_distribution(HELD_OUT.x)
        rows = nll(distribution, torch.from_numpy(time), torch.from_numpy(event)).numpy()
        losses.setdefault(line[1], []).append(rows)
        np.testing.assert_allclose(line.nll, rows.mean())
        measured = d_calibration(distribution.cdf(torch.from_numpy(time)), event, n_bins=20)
        np.testing.assert_allclose(line.dcal, measured.value, rtol=1e-4)  # in float32 while training
        np.testing.assert_allclose([line.dcal_floor, line.dcal_p], [measured.floor, measured.p_value])
        expected = concordance_index(time=time, event=event, risk=model.predict(HELD_OUT.x)).value
        np.testing.assert_allclose(line.concordance, expected)
        # One level of noise for all models, near that of each: two deviations above the mean of a chi-squared variable.
        excess = max(line.dcal - line.dcal_floor * (1 + 2 * chi2(19).std() / 19), 0)
        assert line.total == pytest.approx(line.nll + line[1] * excess, rel=1e-4, abs=0.2 * line[1] * line.dcal_floor)
    for _, group in table.groupby("lambda"):
        for name in ("nll", "dcal", "concordance"):
            np.testing.assert_allclose(group[f"{name}_sd"], group[name].std(ddof=1))
    best = losses[path.summary()["nll"].idxmin()]
    for lam, group in table.groupby("lambda"):
        gap = np.mean(losses[lam], axis=0) - np.mean(best, axis=0)
        np.testing.assert_allclose(group["nll_gap_se"], gap.std() / np.sqrt(200))


def test_summary(path):
    summary, table = path.summary(), path.frontier_
    assert summary.index.tolist() == list(LAMBDAS)
    for lam in LAMBDAS:
        rows = table[table["lambda"] == lam]
        np.testing.assert_allclose(summary.loc[lam, "nll"], rows["nll"].mean())
        np.testing.assert_allclose(summary.loc[lam, "dcal_sd"], rows["dcal"].std())


def test_a_larger_weight_buys_calibration_for_likelihood(path):
    summary = path.summary()
    assert summary.loc[1000, "dcal"] < summary.loc[0, "dcal"]
    assert summary.loc[1000, "nll"] > summary.loc[0, "nll"]


def test_a_weight_is_the_mixture_of_its_seeds(path):
    time = torch.from_numpy(TEST.y["time"].copy())
    for lam in LAMBDAS:
        model = path.model(lam)
        assert (model.xcal_lambda, model.seeds) == (lam, (0, 1))
        alone = [path.model(lam, seed).predict_distribution(TEST.x) for seed in (0, 1)]
        cdf, density = (torch.stack([getattr(one, name)(time) for one in alone]) for name in ("cdf", "log_density"))
        mixed = model.predict_distribution(TEST.x)
        torch.testing.assert_close(mixed.cdf(time), cdf.mean(0))
        torch.testing.assert_close(mixed.log_density(time).exp(), density.exp().mean(0))
        middle = mixed.cdf(torch.from_numpy(model.predict_median(TEST.x, extrapolate=True)))
        np.testing.assert_allclose(middle, 0.5, atol=1e-8)


def test_the_seed_with_the_lowest_total_stands_for_its_weight_if_seeds_are_not_averaged():
    path = SurvivalPath((0.0, 10.0), 2, average=False, hidden=(4,), epochs=2).fit(DATA.x, DATA.y)
    for lam in (0.0, 10.0):
        rows = path.frontier_[path.frontier_["lambda"] == lam]
        model = path.model(lam)
        assert model.random_state == rows.loc[rows["total"].idxmin(), "seed"]
        assert model.seeds == 1


def test_a_mixture_fitted_anew_is_the_same_model():
    # The same split of the rows, the same seeds: the parameters of what was chosen say all of it.
    path = SurvivalPath((0.0, 10.0), 2, hidden=(4,), epochs=3).fit(DATA.x, DATA.y)
    chosen = path.model(10.0)
    again = clone(chosen).fit(DATA.x, DATA.y)
    np.testing.assert_allclose(again.predict(TEST.x), chosen.predict(TEST.x), rtol=1e-4)  # stacked as one or four
    assert again.best_epoch_.shape == (2,)
    assert again.history_.total.shape[1] == 2


def test_validation_rows_of_which_no_two_can_be_compared():
    held_out = Surv(time=[1.0, 1.0, 2.0], event=[0, 0, 1])  # nobody is known to outlast the one event
    path = SurvivalPath((0.0, 1.0), 1, hidden=(4,), epochs=1)
    with pytest.warns(UserWarning, match="1 events among 3 validation rows are too few"):
        path.fit(DATA.x, DATA.y, validation_data=(DATA.x[:3], held_out))
    assert path.frontier_["concordance"].isna().all()
    assert path.select().xcal_lambda == 0
    with pytest.raises(ValueError, match="max_concordance_drop: expected validation rows that can be compared"):
        path.select(max_concordance_drop=0.1)


def test_select_gives_a_fitted_model(path):
    model = path.select(max_concordance_drop=1.0)
    assert isinstance(model, SurvivalModel)
    lowest = path.candidates_.loc[path.candidates_["dcal"].idxmin()]
    assert model.xcal_lambda == lowest["lambda"]
    again = path.model(model.xcal_lambda, recalibrated=bool(lowest["recalibrated"]))
    np.testing.assert_array_equal(model.predict(TEST.x), again.predict(TEST.x))


def test_the_path_predicts_with_the_default_selection(path):
    np.testing.assert_array_equal(path.predict(TEST.x), path.select().predict(TEST.x))
    assert path.score(TEST.x, TEST.y) == path.select().score(TEST.x, TEST.y)


@pytest.mark.parametrize(("lam", "seed"), [(3.0, None), (10.0, 7)])
def test_no_such_model(path, lam, seed):
    with pytest.raises(ValueError, match=f"lam: expected one of 0, 10, 1000 with a seed of the path, got {lam}, seed"):
        path.model(lam, seed)


def test_rows_of_hardly_any_weight_hardly_lower_the_floor():
    y = Surv(time=HELD_OUT.y["time"], event=np.ones(200))
    weights = np.where(np.arange(200) < 50, 1.0, 1e-9)
    path = SurvivalPath((0.0,), 1, hidden=(4,), epochs=1)
    path.fit(DATA.x, DATA.y, validation_data=(HELD_OUT.x, y, weights))
    assert path.frontier_["dcal_floor"][0] == pytest.approx((1 - 1 / 20) / 50, rel=1e-6)  # that of 50 rows


def test_one_row_to_validate_on():
    row = np.flatnonzero(DATA.y["event"])[0]
    one = slice(row, row + 1)
    path = SurvivalPath((0.0,), 1, hidden=(4,), epochs=1)
    path.fit(DATA.x, DATA.y, validation_data=(DATA.x[one], DATA.y[one]))
    distribution = path.predict_distribution(DATA.x[one])
    expected = nll(distribution, torch.tensor([DATA.y["time"][row]]), torch.tensor([True]))
    assert path.frontier_["nll"][path.selected_] == pytest.approx(float(expected))


def test_seeds():
    path = SurvivalPath((0.0, 1.0), (7, 3), hidden=(4,), epochs=1).fit(DATA.x, DATA.y)
    assert path.frontier_["seed"].tolist() == [7, 7, 3, 3]
    assert [model.seed for model in path.fitted_] == [7, 7, 3, 3]


def test_column_names_reach_the_selected_model():
    frame = pd.DataFrame(DATA.x, columns=["a", "b", "c"])
    model = SurvivalPath((0.0,), 1, hidden=(4,), epochs=1).fit(frame, DATA.y).select()
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


@pytest.mark.parametrize(("lambdas", "seeds"), [(LAMBDAS, 2), ((0.0, 10.0), 1), ((10.0,), 1)])
def test_plot(path, lambdas, seeds):
    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shown = path if seeds == 2 else SurvivalPath(lambdas, seeds, hidden=(4,), epochs=1).fit(DATA.x, DATA.y)
    ax = shown.plot()
    labels = [text.get_text() for text in ax.texts]
    mapped = shown.candidates_[shown.candidates_["recalibrated"]]
    expected = [f"λ = {lam:g}" for lam in shown.summary().index]
    expected += [f"λ = {lam:g}, recalibrated" for lam in mapped["lambda"][:1]]
    assert expected == [label for label in labels if label.startswith("λ")]
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text().startswith("λ")]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    assert ax.get_xscale() == "log"
    trained = shown.candidates_[~shown.candidates_["recalibrated"].astype(bool)][["dcal", "concordance"]].to_numpy()
    drawn = [line.get_xydata() for line in ax.lines]
    assert any(points.shape == trained.shape and np.allclose(points, trained, rtol=1e-9) for points in drawn)
    assert shown.plot(ax=ax) is ax
    plt.close("all")


@pytest.fixture(scope="module")
def targeted():
    settings = SETTINGS | {"epochs": 30, "patience": None}
    fitted = SurvivalPath(seeds=2, target_dcal=0.006, **settings)
    return fitted.fit(DATA.x, DATA.y, validation_data=(HELD_OUT.x, HELD_OUT.y))


class TestTarget:
    def test_there_is_one_model_a_seed_with_the_weight_that_it_found(self, targeted):
        assert targeted.frontier_["seed"].tolist() == [0, 1]
        assert (targeted.frontier_["lambda"] > 0).all()
        assert targeted.select().xcal_lambda in targeted.frontier_["lambda"].tolist()

    def test_the_target_is_reached(self, targeted):
        assert (targeted.frontier_["dcal"] <= 0.006).all()
        assert targeted.select().d_calibration(HELD_OUT.x, HELD_OUT.y).value <= 0.006 * (1 + 1e-4)

    def test_if_no_seed_reaches_it_a_warning_says_how_close_one_came(self):
        impossible = SurvivalPath(seeds=2, target_dcal=0.006, hidden=(4,), epochs=1)
        slower = Surv(time=5 * HELD_OUT.y["time"], event=HELD_OUT.y["event"])  # not the rows that it learns from
        with pytest.warns(ConvergenceWarning, match="no seed reached target_dcal=0.006: the lowest .* is 0") as told:
            impossible.fit(DATA.x, DATA.y, validation_data=(HELD_OUT.x, slower))
        assert f"is {impossible.frontier_['dcal'].min():.3g}." in str(told[0].message)
        assert told[0].filename == __file__

    def test_a_target_below_the_floor_is_refused(self):
        path = SurvivalPath(seeds=1, target_dcal=1e-5, hidden=(4,), epochs=1)
        expected = "target_dcal: expected at least 0.0033, what a perfect model scores .* 200 validation rows .*1e-05"
        with pytest.raises(ValueError, match=expected):
            path.fit(DATA.x, DATA.y, validation_data=(HELD_OUT.x, HELD_OUT.y))

    def test_of_the_seeds_that_reached_it_the_most_likely_is_selected(self, targeted):
        assert targeted.selected_ == targeted.frontier_["nll"].idxmin()
        np.testing.assert_array_equal(targeted.predict(TEST.x), targeted.select().predict(TEST.x))

    def test_the_spread_is_over_all_seeds(self, targeted):
        np.testing.assert_allclose(targeted.frontier_["dcal_sd"], targeted.frontier_["dcal"].std())

    def test_it_is_saved(self, targeted, tmp_path):
        targeted.save(tmp_path / "path.xcal")
        again = load(tmp_path / "path.xcal")
        assert again.target_dcal == 0.006
        np.testing.assert_array_equal(again.select().predict(TEST.x), targeted.select().predict(TEST.x))
