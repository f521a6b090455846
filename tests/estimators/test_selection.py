"""The rules that choose a weight: each chooses what it says, and the default does no harm."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

from tests.estimators.simulate import survival_rows
from xcal import Surv, d_calibration
from xcal.data import SurvivalData
from xcal.estimators import SurvivalPath, decision, load
from xcal.estimators.decision import _folds
from xcal.estimators.fitted import Own
from xcal.estimators.selection import (
    Measured,
    as_candidates,
    choose,
    joined,
    largest_within_one_error,
    measured_table,
    summarise,
    when_needed,
)
from xcal.recalibration import KaplanMeierRecalibration

DATA, HELD_OUT, TEST = survival_rows(400), survival_rows(200, seed=1), survival_rows(500, seed=2)
SETTINGS = {"hidden": (8,), "epochs": 10, "batch_size": 100, "learning_rate": 1e-2}
RULE = {"rule": "one_standard_error"}


def table_of(nll, dcal, concordance=(0.7,) * 4, se=0.01, p=(1e-3, 1e-3, 0.2, 0.4), dcal_se=0.001):
    lambdas = [0.0, 1.0, 10.0, 100.0]
    frame = pd.DataFrame({"lambda": lambdas, "seed": 0, "nll": nll, "dcal": dcal, "concordance": concordance})
    frame = frame.assign(nll_gap_se=se, dcal_floor=0.001, nll_sd=np.nan, dcal_sd=np.nan, concordance_sd=np.nan)
    return frame.assign(dcal_p=p, dcal_gap_se=dcal_se, conditional=0.0)


DCAL = [0.02, 0.010, 0.004, 0.001]
TABLE = table_of([1.00, 0.995, 1.004, 1.2], DCAL, [0.70, 0.71, 0.69, 0.60])


@pytest.mark.parametrize(
    ("rule", "lam"),
    [
        ({"max_dcal": 0.02}, 1.0),  # all do; the lowest NLL
        ({"max_dcal": 0.004}, 10.0),
        ({"max_dcal": 0.001}, 100.0),
        ({"max_concordance_drop": 0.0}, 1.0),
        ({"max_concordance_drop": 0.0201}, 10.0),
        ({"max_concordance_drop": 1.0}, 100.0),
    ],
)
def test_rules(rule, lam):
    assert choose(as_candidates(TABLE), **rule) == (lam, False)


def test_one_standard_error():
    assert largest_within_one_error(TABLE) == 10.0  # 1.004 is less than 0.995 + 0.01, 1.2 is not


def test_the_limits_take_a_recalibrated_model_too():
    plain = as_candidates(TABLE)
    mapped = plain.assign(recalibrated=True, dcal=0.002, nll=plain["nll"] + 0.001)
    both = pd.concat([plain, mapped], ignore_index=True)
    assert choose(both, max_dcal=0.02) == (1.0, False)
    assert choose(both, max_dcal=0.003) == (1.0, True)
    assert choose(both, max_concordance_drop=0.0) == (1.0, True)
    with pytest.raises(ValueError, match=r"max_dcal: expected at least 0.001, which lambda 100 reaches"):
        choose(both, max_dcal=1e-4)
    with pytest.raises(ValueError, match=r"max_dcal: expected at least 0.002, which lambda 0, recalibrated reaches"):
        choose(mapped, max_dcal=1e-4)


def test_a_standard_error_of_zero_chooses_the_best():
    assert largest_within_one_error(table_of([1.0, 0.9, 1.1, 1.2], [0.1] * 4, se=0.0)) == 1.0


def test_a_weight_is_judged_by_the_mean_over_its_seeds():
    worse = TABLE.assign(seed=1, dcal=[0.02, 0.01, 0.008, 0.004])
    both = pd.concat([TABLE, worse], ignore_index=True)
    assert choose(as_candidates(TABLE), max_dcal=0.005) == (10.0, False)
    assert choose(as_candidates(both), max_dcal=0.005) == (100.0, False)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"max_dcal": 1e-4}, "max_dcal: expected at least 0.001, which lambda 100 reaches, got 0.0001"),
        ({"max_dcal": -1}, "max_dcal: expected a finite number of 0 or more, got -1"),
        ({"max_dcal": float("nan")}, "max_dcal: expected a finite number of 0 or more, got nan"),
        ({"max_concordance_drop": "small"}, "max_concordance_drop: expected a finite number of 0 or more"),
        ({"rule": "best"}, "rule: expected one of 'when_needed', 'one_standard_error', got 'best'"),
        ({"max_dcal": 0.1, **RULE}, "select: expected one rule at a time, got max_dcal and rule"),
        ({"max_dcal": 0.1, "rule": "when_needed"}, "select: expected one rule at a time, got max_dcal and rule"),
    ],
)
def test_rules_that_choose_nothing(rule, message):
    with pytest.raises(ValueError, match=message):
        choose(as_candidates(TABLE), **rule)


SAME = [1.0, 1.0, 1.0, 1.0]  # no loss of likelihood at all


@pytest.mark.parametrize(
    ("table", "lam", "reason"),
    [
        # The smallest weight that the test no longer finds off, though a larger one scores lower.
        (table_of(SAME, DCAL), 10.0, "is the smallest step that the test does not find off"),
        # All of them off: the lowest D-calibration.
        (table_of(SAME, DCAL, p=1e-3), 100.0, "has the lowest D-calibration"),
        # That one costs too much likelihood, so the next.
        (table_of([1, 1, 1, 1.2], DCAL, p=1e-3), 10.0, "has the lowest D-calibration"),
        (table_of(SAME, DCAL, p=0.06), 0.0, "at its floor, as far as the validation rows can tell: nothing to correct"),
        (
            table_of(SAME, DCAL, p=np.nan),
            0.0,
            "at its floor, as far as the validation rows can tell: nothing to correct",
        ),
        # 0.019 above the lowest of the others, but with an error of 0.01.
        (table_of(SAME, DCAL, dcal_se=0.01), 0.0, "nothing else is less so by more than chance"),
        (table_of(SAME, [0.02, 0.03, 0.03, 0.03]), 0.0, "nothing else is less so by more than chance"),
        (table_of([1, 1.2, 1.2, 1.2], DCAL), 0.0, "costs more than one standard error of NLL"),
        # The others were not trained to the end.
        (table_of([1, np.nan, np.nan, np.nan], DCAL), 0.0, "nothing else to choose from"),
        # Lambda 0 was not trained to the end, so that the next is the smallest.
        (table_of([np.nan, 1, 1, 1], DCAL), 10.0, "lambda 1 is off"),
    ],
)
def test_a_weight_only_when_it_is_needed(table, lam, reason):
    selection = when_needed(table.assign(recalibrated=False))
    assert (selection.lam, selection.rule) == (lam, "when_needed")
    assert reason in selection.reason
    assert selection.reason.startswith(f"lambda {lam:g}: ")


def test_a_doubt_keeps_the_smallest_weight():
    selection = when_needed(table_of(SAME, DCAL).assign(recalibrated=False), "too few rows")
    assert (selection.lam, selection.reason) == (0.0, "lambda 0: too few rows")


@pytest.mark.parametrize(
    ("p_values", "off"),
    [
        ([0.04], True),
        ([0.06], False),
        ([0.001, 0.06], False),  # both must be below .05
        ([0.001, 0.04], True),
        ([0.001, 0.03, 0.9], True),  # two of three below .05 x 2 / 3
        ([0.001, 0.04, 0.04], False),
    ],
)
def test_one_unlucky_seed_does_not_make_a_weight_off(p_values, off):
    seeds = [table_of(SAME, DCAL, p=[p, 0.5, 0.5, 0.5]).assign(seed=seed) for seed, p in enumerate(p_values)]
    assert (when_needed(as_candidates(pd.concat(seeds, ignore_index=True))).lam > 0) == off


def test_several_dependent_seeds_hold_the_level():
    # Uniform p-values of 3 seeds, correlated in several ways: rejected in at most 5 % of the samples.
    rng = np.random.default_rng(0)
    n = 2000
    for together in (0.0, 0.5, 1.0):
        common, own = rng.random((n, 1)), rng.random((n, 3))
        p_values = np.where(rng.random((n, 3)) < together, common, own)
        k = np.sort(p_values, axis=1)[:, 1]
        frames = pd.DataFrame({"lambda": np.repeat(np.arange(n), 3), "dcal_p": p_values.ravel()})
        for name in ("nll", "nll_gap_se", "dcal", "dcal_gap_se", "dcal_floor", "conditional", "concordance"):
            frames[name] = 0.0
        summary = summarise(frames.assign(nll_sd=0.0, dcal_sd=0.0, concordance_sd=0.0))
        np.testing.assert_allclose(summary["dcal_p"], np.minimum(1.5 * k, 1))
        assert (summary["dcal_p"] < 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / n)


class TestFewRows:
    """With 60 rows an earlier default took lambda 1000, and new rows were hardly ordered any more."""

    @pytest.fixture(scope="class")
    @staticmethod
    def small():
        rows = survival_rows(60, seed=5)
        return SurvivalPath(distribution="weibull", seeds=1).fit(rows.x, rows.y)

    def test_the_smallest_weight_is_kept(self, small):
        assert small.selection_.lam == small.select().xcal_lambda == 0
        assert "all 60 cross-fitted rows" in small.selection_.reason
        assert small.cross_fitted_["recalibrated"].tolist() == [False, True]
        # A perfect model has the same floor on as many rows.
        events = survival_rows(60, seed=5).y["event"]
        assert (
            0.8 < small.cross_fitted_["dcal_floor"][0] / d_calibration(np.linspace(0.01, 0.99, 60), events).floor < 1.2
        )

    def test_the_former_default_is_still_there_and_does_harm(self, small):
        former = small.select(**RULE)
        assert former.xcal_lambda == 1000
        assert small.score(TEST.x, TEST.y) > former.score(TEST.x, TEST.y) + 0.1

    def test_without_cross_fitting_the_validation_rows_are_too_few(self):
        rows = survival_rows(60, seed=5)
        with pytest.warns(UserWarning, match="the path predicts with lambda 0, its smallest: ") as told:
            path = SurvivalPath((0.0, 10.0), 1, cross_fit=0, hidden=(4,), epochs=1).fit(rows.x, rows.y)
        assert told[0].filename == __file__
        assert path.cross_fitted_ is None
        assert "events among 12 validation rows are too few to judge calibration by" in path.selection_.reason

    def test_a_path_of_one_weight_has_nothing_to_warn_of(self):
        rows = survival_rows(60, seed=3)
        path = SurvivalPath((5.0,), 1, hidden=(4,), epochs=1).fit(rows.x, rows.y)
        assert path.selection_.lam == 5


@pytest.mark.filterwarnings("ignore:the times take few distinct values")
def test_tied_times_show_nothing():
    times = np.ceil(HELD_OUT.y["time"])  # whole units: even a perfect model would look off
    path = SurvivalPath((0.0, 10.0), 1, hidden=(4,), epochs=2)
    with pytest.warns(UserWarning, match="lambda 0, its smallest: .* distinct times among 200"):
        path.fit(DATA.x, DATA.y, validation_data=(HELD_OUT.x, Surv(time=times, event=HELD_OUT.y["event"])))
    assert path.selection_.lam == 0
    assert f"{np.unique(times).size} distinct times" in path.selection_.reason


@pytest.fixture(scope="module")
def skewed():
    """A log-normal model of times that are far from log-normal, with 600 rows to judge it by."""
    train, held_out = mixed_times(1500, 0), mixed_times(600, 1)
    options = {"distribution": "lognormal", "hidden": (16,), "epochs": 30, "learning_rate": 1e-2}
    path = SurvivalPath((0.0, 5.0), 2, path="always", **options)
    return path.fit(*train, validation_data=held_out), held_out


def mixed_times(n, seed):
    """Weibull times, and one in fifty far too early."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    happens = np.exp(0.5 * x[:, 0]) * rng.weibull(2, n)
    happens = np.where(rng.random(n) < 0.02, np.exp(-4) * happens, happens)
    leaves = rng.exponential(20, n)
    return x, Surv(time=np.minimum(happens, leaves), event=happens <= leaves)


def test_a_model_that_is_off_gets_a_weight(skewed):
    path, _ = skewed
    new = mixed_times(3000, 2)
    # The map of F leaves the networks as they are: a smaller step than a weight.
    assert (path.selection_.lam, path.selection_.recalibrated) == (0, True)
    assert path.selection_.reason.startswith("lambda 0, recalibrated: lambda 0 is off, as the validation rows show (")
    chosen = path.select(rule="when_needed")
    assert chosen.xcal_lambda == 0
    assert chosen.fitted_.recalibration is not None
    assert chosen.d_calibration(*new).value < path.model(0).d_calibration(*new).value / 2
    np.testing.assert_array_equal(path.predict(new[0]), path.model(0, recalibrated=True).predict(new[0]))


def test_recalibrated_candidates_are_measured_by_cross_fitting(skewed):
    """By hand: ten folds, each row's F through a map of the other nine."""
    path, (x, y) = skewed
    time, event = y["time"].copy(), y["event"].copy()
    distribution = path.model(0).predict_distribution(x)
    cdf = distribution.cdf(torch.from_numpy(time)).numpy()
    mapped = np.empty_like(cdf)
    for fold in SurvivalData(x, time=time, event=event).folds(10, seed=0):
        own = KaplanMeierRecalibration.fit(cdf[fold.train], event[fold.train])
        mapped[fold.test] = own.cdf(cdf[fold.test])
    table = path.candidates_.set_index(["lambda", "recalibrated"])
    for recalibrated, values in ((False, cdf), (True, mapped)):
        result = d_calibration(values, event, n_bins=20)
        line = table.loc[(0.0, recalibrated)]
        np.testing.assert_allclose(line[["dcal", "dcal_floor", "dcal_p"]], [result.value, result.floor, result.p_value])


def test_the_concordance_of_a_candidate_is_that_of_the_model_that_it_stands_for(skewed):
    path, held_out = skewed
    for _, line in path.candidates_.iterrows():
        model = path.model(line["lambda"], recalibrated=line["recalibrated"])
        assert line["concordance"] == pytest.approx(model.score(*held_out), abs=1e-12)


def test_a_map_does_not_change_the_order_of_weak_models():
    """Maps of ten folds, put together, showed the noise of the maps as a loss of order: .44 in place of .63."""
    rows, new = survival_rows(400, seed=8), survival_rows(2000, seed=9)
    path = SurvivalPath((1000.0, 2000.0), 1, path="always", cross_fit=0, **SETTINGS).fit(rows.x, rows.y)
    table = path.candidates_.set_index(["lambda", "recalibrated"])["concordance"]
    for lam in (1000.0, 2000.0):
        plain, mapped = (path.model(lam, recalibrated=which).score(new.x, new.y) for which in (False, True))
        assert mapped == pytest.approx(plain, abs=0.01)
        assert table[lam, True] == pytest.approx(table[lam, False], abs=0.01)


def test_pairs_are_of_rows_that_one_model_has_judged():
    """Two folds, each in perfect order on a scale of its own: between them there is nothing to compare."""
    numbers = np.arange(4)
    parts = [(numbers[:2], 2.0, 2.0), (numbers[2:], 1.0, 3.0)]
    both = joined([(rows, Measured(0.0, False, rows * 1.0, Own(rows / 10), *pairs)) for rows, *pairs in parts])
    assert (both.concordant, both.comparable) == (3.0, 5.0)
    np.testing.assert_array_equal(both.losses, numbers)
    rows = survival_rows(4)
    data = SurvivalData(rows.x, time=rows.y["time"], event=np.ones(4))
    assert measured_table([both], data, 2)["concordance"][0] == 0.6
    nothing = replace(both, concordant=0.0, comparable=0.0)
    assert np.isnan(measured_table([nothing], data, 2)["concordance"][0])


def test_a_model_that_is_off_on_many_rows_gets_a_map_of_all_rows():
    rows, new = mixed_times(1500, 0), mixed_times(3000, 2)
    settings = {"distribution": "lognormal", "hidden": (8,), "epochs": 15, "learning_rate": 1e-2}
    paths = [SurvivalPath((0.0, 5.0), 1, cross_fit=folds, **settings).fit(*rows) for folds in (0, 3)]
    few, all_rows = (path.select() for path in paths)
    assert all(path.selection_.recalibrated for path in paths)
    assert (few.fitted_.recalibration.n, all_rows.fitted_.recalibration.n) == (300, 1500)
    assert all_rows.d_calibration(*new).value < few.d_calibration(*new).value
    with pytest.raises(ValueError, match="cross_fit: expected 0, or 2 or more folds, got 1"):
        SurvivalPath(cross_fit=1).fit(*rows)


def test_the_error_of_a_gain_is_that_of_the_jackknife(skewed):
    path, (x, y) = skewed
    time, event = y["time"].copy(), y["event"].copy()
    n, values = time.size, {}
    for lam in (0, 5):
        seeds = []
        for seed in (0, 1):
            model = path.model(lam, seed)
            cdf = np.array([curve(t) for curve, t in zip(model.predict_survival_function(x), time, strict=True)])
            cdf = 1 - cdf.ravel()
            left_out = [np.delete(np.arange(n), i) for i in range(n)]
            seeds.append([d_calibration(cdf[k], event[k], n_bins=20, p_value=None).value for k in left_out])
        values[lam] = np.mean(seeds, axis=0)
    error = np.sqrt((n - 1) * np.var(values[5] - values[0]))
    found = path.summary()["dcal_gap_se"]
    assert found[0] == 0
    np.testing.assert_allclose(found[5], error, rtol=0.02)  # the formula is of first order in 1 / n


def test_a_saved_path_keeps_its_choice(skewed, tmp_path):
    path, _ = skewed
    path.save(tmp_path / "path.xcal")
    again = load(tmp_path / "path.xcal")
    assert again.selection_ == path.selection_
    assert again.selected_ == path.selected_
    pd.testing.assert_frame_equal(again.frontier_, path.frontier_)


def test_a_target_says_how_close_it_came():
    held_out = (HELD_OUT.x, HELD_OUT.y)
    path = SurvivalPath(seeds=1, target_dcal=0.05, **SETTINGS).fit(DATA.x, DATA.y, validation_data=held_out)
    assert path.selection_.rule == "target_dcal"
    assert path.selection_.lam == path.frontier_["lambda"][path.selected_]
    assert "of those that reached the target of 0.05" in path.selection_.reason
    with pytest.raises(ValueError, match=r"rule: expected one_standard_error \(this path has a target"):
        path.select(rule="when_needed")
    slower = Surv(time=5 * HELD_OUT.y["time"], event=HELD_OUT.y["event"])
    with pytest.warns(ConvergenceWarning):
        path = SurvivalPath(seeds=1, target_dcal=0.006, hidden=(4,), epochs=1).fit(
            DATA.x, DATA.y, validation_data=(HELD_OUT.x, slower)
        )
    assert "the seed closest to the target of 0.006" in path.selection_.reason


class TestJudgedOnAllRows:
    """A model that is off: 120 validation rows cannot show it, all 600 can."""

    OPTIONS: ClassVar = {"distribution": "lognormal", "hidden": (16,), "epochs": 30, "learning_rate": 1e-2}

    @pytest.fixture(scope="class")
    @staticmethod
    def path():
        x, y = mixed_times(600, 3)
        return SurvivalPath((0.0, 5.0), 2, **TestJudgedOnAllRows.OPTIONS).fit(x, y)

    def test_the_map_that_all_rows_ask_for_is_chosen(self, path):
        assert (path.selection_.lam, path.selection_.recalibrated) == (0, True)
        before, after = path.cross_fitted_["dcal"]
        assert after < before / 2

    def test_new_rows_agree(self, path):
        new = mixed_times(2000, 4)
        before, after = (path.model(0, recalibrated=flag).d_calibration(*new) for flag in (False, True))
        assert after.value - after.floor < (before.value - before.floor) / 3

    def test_the_values_are_those_of_rows_that_the_networks_have_not_seen(self, path):
        # On its own rows a map of F has no error left: there D-calibration would be next to zero.
        assert path.cross_fitted_["dcal"][1] > path.cross_fitted_["dcal_floor"][1] / 10
        assert path.cross_fitted_["nll"][1] < path.cross_fitted_["nll"][0]

    @pytest.mark.parametrize("wrong", [{1: 5}, {0: 5, 2: 0.2, 3: 30}])
    def test_folds_whose_networks_have_not_converged_do_not_count(self, path, monkeypatch, wrong):
        """Networks of some folds learn other times; where it is most folds, the validation rows judge."""
        trained, calls = decision.trained_as, []

        def sometimes_wrong(members, rows, settings):
            times = wrong.get(len(calls), 1) * rows.time
            calls.append(times)
            return trained(members, SurvivalData(rows.x, time=times, event=rows.event), settings)

        monkeypatch.setattr(decision, "trained_as", sometimes_wrong)
        x, y = mixed_times(600, 3)
        which = "2 " if len(wrong) == 1 else "1 .*, 3 .*, 4 "
        with pytest.warns(UserWarning, match=rf"5 folds.* by far more than chance in fold {which}\(120 rows, by 0"):
            found = SurvivalPath((0.0, 5.0), 2, **self.OPTIONS).fit(x, y)
        if len(wrong) == 1:
            # The map of 480 rows is nearly that of all 600, and so are the values.
            np.testing.assert_allclose(found.cross_fitted_["dcal"], path.cross_fitted_["dcal"], atol=1e-3)
            u = np.linspace(0.05, 0.95, 19)
            some, every = (one.select().fitted_.recalibration.cdf(u) for one in (found, path))
            np.testing.assert_allclose(some, every, atol=0.05)
            assert found.selection_.recalibrated
        else:
            assert found.cross_fitted_ is None
            assert "validation rows" in found.selection_.reason

    def test_they_are_saved(self, path, tmp_path):
        path.save(tmp_path / "path")
        found = load(tmp_path / "path")
        pd.testing.assert_frame_equal(found.cross_fitted_, path.cross_fitted_)
        assert found.selection_ == path.selection_
        x, _ = mixed_times(20, 5)
        np.testing.assert_array_equal(found.predict(x), path.predict(x))


@pytest.fixture(scope="module")
def visits():
    """Paths whose 120 validation rows come once, four times, and four times as visits of one patient each."""
    few, again = survival_rows(120, seed=3), np.repeat(np.arange(120), 4)

    def fitted(rows, clusters):
        path = SurvivalPath((0, 10), 1, path="always", distribution="lognormal", cross_fit=0, **SETTINGS)
        return path.fit(DATA.x, DATA.y, validation_data=(few.x[rows], few.y[rows]), validation_clusters=clusters)

    patients = [f"patient {k}" for k in again]
    return fitted(np.arange(120), None), fitted(again, None), fitted(again, patients)


class TestRowsThatDependOnEachOther:
    def test_floor_test_and_errors_are_those_of_the_patients(self, visits):
        once, rows, patients = (path.candidates_ for path in visits)
        assert patients["dcal_floor"][0] == pytest.approx(once["dcal_floor"][0], rel=0.1)
        assert rows["dcal_floor"][0] < 0.3 * once["dcal_floor"][0]
        # With clusters the test is another one, more careful on so few of them.
        assert rows["dcal_p"][0] < 0.01 * once["dcal_p"][0]
        assert once["dcal_p"][0] - 0.05 < patients["dcal_p"][0] < once["dcal_p"][0] + 0.5
        # Four equal rows of a patient say as much as one: the error is that of a quarter of the rows, twice as large.
        plain = ~rows["recalibrated"]
        for column in ("nll_gap_se", "dcal_gap_se"):
            np.testing.assert_allclose(patients.loc[plain, column], 2 * rows.loc[plain, column], rtol=1e-9)

    def test_a_patient_is_not_among_the_rows_of_its_own_map(self):
        few, patient = survival_rows(40, seed=3), np.arange(40) // 4
        rows = SurvivalData(few.x, few.y["time"], few.y["event"], groups=patient)
        parts = list(_folds(rows))
        assert len(parts) == 10
        assert sorted(np.concatenate([test for _, test in parts])) == list(range(40))
        assert not any({*patient[train]} & {*patient[test]} for train, test in parts)

    def test_training_is_the_same(self, visits):
        _, rows, patients = visits
        for one, other in zip(rows.fitted_, patients.fitted_, strict=True):
            both = zip(one.network.parameters(), other.network.parameters(), strict=True)
            assert all(torch.equal(first, second) for first, second in both)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"validation_data": None}, "validation_data beside it"),
            ({"validation_clusters": ["a"] * 200}, "at least two clusters"),
            ({"validation_clusters": ["a", "b"]}, "validation_clusters"),
        ],
    )
    def test_what_cannot_be_is_refused(self, options, words):
        given = {"validation_data": (HELD_OUT.x, HELD_OUT.y), "validation_clusters": np.arange(200) // 2} | options
        with pytest.raises(ValueError, match=words):
            SurvivalPath((0,), 1, **SETTINGS).fit(DATA.x, DATA.y, **given)
        if given["validation_data"] is not None:
            return
        given = {"validation_data": (HELD_OUT.x, HELD_OUT.y), "validation_clusters": np.arange(200) // 2}
        with pytest.raises(ValueError, match="calibration='marginal'"):
            SurvivalPath((0,), 1, calibration="conditional", **SETTINGS).fit(DATA.x, DATA.y, **given)
