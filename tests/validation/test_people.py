"""Audits of people whose covariates change: against R's values, sums by hand, other ways to give the same hazards."""

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxTimeVaryingFitter
from typer.testing import CliRunner

from tests.metrics.test_by_person import walked
from xcal import Surv, audit, compare_models, d_calibration
from xcal.cli.app import app
from xcal.data.survival import SurvivalData
from xcal.interop import HazardFunction
from xcal.metrics import by_person, concordance_index, kaplan_meier
from xcal.metrics.observed_expected import event_ratio

OPTIONS = {"n_bootstrap": 0, "progress": False}


def target(rows):
    return Surv(**{name: rows[name].to_numpy() for name in ("time", "event", "entry", "id")})


def cdf(rows, factor=1.0):
    """Probability of the event along each row."""
    return -np.expm1(-factor * rows["hazard"].to_numpy())


@pytest.fixture(scope="module")
def rows():
    return walked(150, 0, gaps=True)


class TestOfR:
    """Of the reference data, 156 people with 68 events: a Cox model of the others."""

    @pytest.fixture
    def tables(self, real_data):
        folder = real_data("coarsened") / "coarsened"
        whole, predicted = (pd.read_csv(folder / f"pbcseq{end}.csv") for end in ("", "_predicted"))
        return whole[whole["id"] % 2 == 0], whole[whole["id"] % 2 == 1].reset_index(drop=True), predicted["expected"]

    def test_hazards_of_rows(self, tables):
        _, odd, expected = tables
        y = Surv(time=odd["stop"], event=odd["event"], entry=odd["start"], id=odd["id"])
        found = audit(cdf=-np.expm1(-expected), X=odd[["age", "albumin"]], y=y, **OPTIONS)
        assert (found.data.n, found.data.n_events) == (156, 68)
        assert found.value("event_ratio").value == pytest.approx(68 / 94.8872, abs=1e-6)
        assert found.value("d_calibration").value == pytest.approx(0.002205, abs=5e-7)
        assert found.measured.for_whom is not None
        assert "935 rows are those of 156 people" in " ".join(found.reading)
        assert "Covariates that change: 935 rows of 156 people" in [one.what for one in found.data.concerns]

    def test_the_cox_model_of_lifelines(self, tables):
        even, odd, _ = tables
        model = CoxTimeVaryingFitter().fit(even, id_col="id", event_col="event", start_col="start", stop_col="stop")
        np.testing.assert_allclose(model.params_, [0.059610, 1.278171, -1.431429, 1.299988], atol=2e-6)
        y = Surv(time=odd["stop"], event=odd["event"], entry=odd["start"], id=odd["id"])
        found = audit(model, odd, y, n_bootstrap=40, progress=False)
        score = found.value("harrell")
        assert score.value == pytest.approx(0.893812, abs=5e-7)
        assert score.lower < score.value < score.upper
        # R's baseline is Efron's, that of lifelines Breslow's, past whose end one event counts as censored.
        assert found.value("event_ratio").value == pytest.approx(67 / 94.8872, rel=2e-3)
        over = found.measured.over_time
        own = kaplan_meier(time=odd["stop"], event=odd["event"], entry=odd["start"])
        np.testing.assert_allclose(over.observed, 1 - own.at(over.times), atol=1e-12)


class TestByHand:
    def test_values_are_those_of_people(self, rows):
        found = audit(cdf=cdf(rows), y=target(rows), **OPTIONS)
        people = by_person(rows["hazard"], **{name: rows[name] for name in ("id", "time", "event", "entry")})
        own, ratio = d_calibration(people.cdf, people.event), event_ratio(people.cdf, people.event)
        for name, value in (("", own.value), ("_floor", own.floor)):
            assert found.value(f"d_calibration{name}").value == pytest.approx(value, rel=1e-9)
        value = found.value("event_ratio")
        np.testing.assert_allclose(
            [value.value, value.lower, value.upper], [ratio.value, ratio.lower, ratio.upper], rtol=1e-9
        )
        assert found.value("event_ratio_p").value == pytest.approx(ratio.p_value)
        assert found.data.n == rows["id"].nunique()
        assert f"{people.n_gaps} of them were out of sight" in " ".join(found.reading)

    def test_cutting_rows_changes_nothing(self, rows):
        middle, halves = (rows["entry"] + rows["time"]) / 2, rows["hazard"] / 2
        cut = pd.concat([rows.assign(time=middle, event=0, hazard=halves), rows.assign(entry=middle, hazard=halves)])
        cut = cut.sample(frac=1, random_state=0)
        one, other = (audit(cdf=cdf(table), y=target(table), **OPTIONS) for table in (rows, cut))
        for value in one:
            assert other.value(value.metric).value == pytest.approx(value.value, rel=1e-9), value.metric

    def test_several_ways_to_give_hazards(self, rows):
        """The hazard is exp(level) within a row: as a probability, curves, a hazard, its integral."""
        X, y, times = rows[["level"]], target(rows), np.append(np.linspace(0.01, 20, 400), rows["time"].max())
        ways = [
            {"cdf": cdf(rows)},
            {"model": HazardFunction(lambda X, t: np.exp(X["level"].to_numpy())), "X": X},
            {"model": HazardFunction(lambda X, t: t * np.exp(X["level"].to_numpy()), cumulative=True), "X": X},
            {"survival": np.exp(-np.exp(X.to_numpy()) * times), "times": times},
        ]
        first, *others = (audit(**way, y=y, covariates={"level": X["level"]}, **OPTIONS) for way in ways)
        for k, other in enumerate(others):
            for name in ("event_ratio", "d_calibration_floor", "event_ratio_p", "conditional_calibration"):
                close = {"rel": 1e-6} if k < 2 else {"rel": 0.02}  # curves are read along lines
                assert other.value(name).value == pytest.approx(first.value(name).value, **close, abs=1e-6), (k, name)
        by_density = others[0].value("nll").value
        loss = (rows["hazard"] - rows["event"] * rows["level"]).groupby(rows["id"]).sum()
        assert by_density == pytest.approx(loss.mean(), rel=1e-9)

    def test_people_are_drawn_with_all_of_their_rows(self, rows):
        """The standard error of the concordance, by people drawn by hand."""
        X, y = rows[["level"]], target(rows)
        model = HazardFunction(lambda X, t: t * np.exp(X["level"].to_numpy()), cumulative=True)
        times = np.linspace(0.01, 20, 50)
        curves = {"survival": np.exp(-np.exp(X.to_numpy()) * times), "times": times}
        found = audit(**curves, y=y, n_bootstrap=150, progress=False).value("harrell")
        rng, draws = np.random.default_rng(0), []
        of_each = [np.flatnonzero(rows["id"] == one) for one in rows["id"].unique()]
        for _ in range(150):
            drawn = np.concatenate([of_each[k] for k in rng.integers(len(of_each), size=len(of_each))])
            one = rows.iloc[drawn]
            given = {name: one[name].to_numpy() for name in ("time", "event", "entry")}
            draws.append(concordance_index(**given, risk=one["level"].to_numpy()).value)
        assert (found.upper - found.lower) / 3.92 == pytest.approx(np.std(draws), rel=0.25)
        # A hazard function has no curves of such rows, and F alone puts none in order.
        told = {one.what: one.why for one in audit(model, X, y, **OPTIONS).measured.skipped}
        assert "puts no rows in order" in told["harrell"]

    def test_groups_and_covariates_are_those_of_the_first_row(self, rows):
        sex = np.where(rows["id"] % 2 == 0, "f", "m")
        table = rows[["level"]].assign(sex=sex, id=rows["id"])
        found = audit(cdf=cdf(rows), X=table, y=target(rows), groups=["sex"], covariates=["level", "sex"], **OPTIONS)
        own = audit(cdf=cdf(rows[sex == "f"]), y=target(rows[sex == "f"]), **OPTIONS)
        one = found.value("event_ratio", group="sex = f")
        assert one.value == pytest.approx(own.value("event_ratio").value, rel=1e-12)
        means = {line.name: line.rows.value for line in found.table_one.lines if not line.label}
        assert means["level"] == pytest.approx(table.groupby("id")["level"].first().mean(), rel=5e-3)  # of a page

    def test_what_has_no_meaning_is_left_out_with_the_reason(self, rows, tmp_path):
        found = audit(cdf=cdf(rows), y=target(rows), **OPTIONS)
        skipped = {one.what: one.why for one in found.measured.skipped}
        for name in ("d_calibration_km", "d_calibration_ipcw", "one_calibration_p"):
            assert "covariates as known at the start" in skipped[name]
        assert "the hazard was summed" in found.methods.replace("predicted hazard", "hazard")
        assert "Covariates that change" in found.report(tmp_path / "page.html").read_text()

    def test_few_gaps_are_not_counted(self, rows):
        whole = rows.groupby("id")["entry"].transform("size") == 1
        gapped = rows[~whole & (rows["id"] < 12)]
        some = pd.concat([rows[whole], gapped])
        people = by_person(some["hazard"], **{name: some[name] for name in ("id", "time", "event", "entry")})
        assert 0 < people.n_gaps < 5
        told = [" ".join(audit(cdf=cdf(some), y=target(some), min_cell=k, **OPTIONS).reading) for k in (5, 0)]
        assert "Fewer than 5 of them were out of sight" in told[0]
        assert f"{people.n_gaps} of them were out of sight" in told[1]

    def test_data_of_people(self, rows):
        columns = {name: rows[name].to_numpy() for name in ("time", "event", "entry", "id")}
        data = SurvivalData(rows[["level"]], **columns)
        one = audit(HazardFunction(lambda X, t: np.exp(X["level"].to_numpy())), data, **OPTIONS)
        other = audit(cdf=cdf(rows), y=target(rows), training=target(walked(80, 3)), **OPTIONS)
        assert one.value("event_ratio").value == pytest.approx(other.value("event_ratio").value, rel=1e-6)

    def test_two_models(self, rows):
        X, y = rows[["level"]], target(rows)
        models = {
            name: HazardFunction(lambda X, t, k=k: k * np.exp(X["level"].to_numpy()))
            for name, k in (("a", 1), ("b", 2))
        }
        found = compare_models(models, X, y, n_bootstrap=20, progress=False)
        own = audit(models["b"], X, y, **OPTIONS)
        assert found["b"].value("event_ratio").value == pytest.approx(own.value("event_ratio").value, rel=1e-12)
        difference = {one.metric: one.value for one in found.differences["b"]}["d_calibration"]
        assert difference == pytest.approx(own.value("d_calibration").value - found["a"].value("d_calibration").value)


class TestVerdict:
    def test_a_true_model_is_not_accused_and_a_wrong_one_is(self):
        many = walked(600, 4, gaps=True)
        assert audit(cdf=cdf(many), X=many[["level"]], y=target(many), **OPTIONS).verdict.level in ("trust", "unknown")
        wrong = audit(cdf=cdf(many, 1.7), X=many[["level"]], y=target(many), **OPTIONS)
        assert wrong.verdict.level == "distrust"

    @pytest.mark.ci
    def test_true_models_hold_their_levels(self):
        """100 data sets of 120 people: 5 % of each test, three standard errors being 12 data sets."""
        few = {}
        for seed in range(100):
            rows = walked(120, 500 + seed, gaps=True)
            for value in audit(cdf=cdf(rows), X=rows[["level"]], y=target(rows), **OPTIONS):
                if value.metric.endswith("_p"):
                    few[value.metric] = few.get(value.metric, 0) + (value.value < 0.05)
        assert max(few.values()) <= 12, few


class TestWholeMonths:
    """A row for each month, and the probability of the event in it: a true discrete hazard."""

    def months(self, n, seed):
        rng = np.random.default_rng([n, seed])
        lines = []
        for person in range(n):
            level = rng.normal()
            for month in range(rng.integers(2, 13)):
                chance = 1 / (1 + np.exp(1.5 - level))
                lines.append((person, month, month + 1, rng.random() < chance, chance))
                if lines[-1][3]:
                    break
                level += rng.normal(scale=0.5)
        return pd.DataFrame(lines, columns=["id", "entry", "time", "event", "chance"])

    def test_an_event_came_some_time_in_its_month(self):
        few, exact, ratios = {}, 0, []
        for seed in range(40):
            rows = self.months(300, seed)
            found = audit(cdf=rows["chance"], y=target(rows), **OPTIONS)
            for name in ("d_calibration_p", "event_ratio_p"):
                few[name] = few.get(name, 0) + (found.value(name).value < 0.05)
            ratios.append(found.value("event_ratio").value)
            other = audit(cdf=rows["chance"], y=target(rows), last_seen="exact", **OPTIONS)
            exact += other.value("d_calibration_p").value < 0.05
        assert max(few.values()) <= 6, few  # of 40, 5 % and three standard errors
        assert exact >= 38
        assert np.mean(ratios) == pytest.approx(1, abs=4 * np.std(ratios) / 40**0.5)
        told = {one.what: one for one in found.data.concerns}
        (coarse,) = (one for what, one in told.items() if what.startswith("Times in whole units"))
        assert not coarse.serious
        assert "drawn evenly" in coarse.effect


class TestBadInput:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"horizons": [1.0]},
                "horizons: expected None beside several rows of one id: what happens by a time depends",
            ),
            ({"landmarks": [1.0]}, "landmarks: expected None beside several rows of one id"),
            ({"cdf": None, "risk": [0.1, 0.2, 0.3], "horizons": 2}, "horizons: expected None beside several rows"),
            ({"cdf": None, "risk": [0.1, 0.2, 0.3]}, "risk: expected None beside several rows of one id"),
            ({"weights": [1, 2, 1]}, "weights: expected None beside times of entry"),
            (
                {"groups": {"g": ["a", "b", "a"]}},
                r"groups\['g'\]: expected one label in all rows of an id, .* row 1",
            ),
            (
                {"sites": np.array(["a", "b", "a"])},
                "sites: expected one label in all rows of an id, .* row 1",
            ),
            ({"X": pd.DataFrame({"x": [1, 2]})}, "X: expected 3 rows, as many as y has, got 2"),
            (
                {"survival": np.tile(np.linspace(0.9, 0.1, 12), (3, 1)), "times": np.arange(12) + 1},
                "cdf: expected None beside survival curves of several rows of one id",
            ),
            (
                {
                    "cdf": None,
                    "survival": np.tile([0.9] + 11 * [0.0], (3, 1)),
                    "times": np.arange(12) + 1,
                    "interpolation": "previous",
                },
                "survival: expected a survival above 0 at the entry of every row .* got 0 at row 1",
            ),
        ],
    )
    def test_words(self, change, message):
        y = Surv(time=[2, 5, 4], event=[0, 1, 0], entry=[0, 2, 0], id=["ann", "ann", "bob"])
        with pytest.raises(ValueError, match=message):
            audit(**{"cdf": [0.1, 0.2, 0.3], "y": y, **change})

    def test_rows_that_do_not_fit(self):
        with pytest.raises(ValueError, match=r"y\['entry'\]: expected rows of one id that do not overlap: 2 or later"):
            audit(cdf=[0.1, 0.2], y=pd.DataFrame({"time": [2, 5], "event": [0, 1], "entry": [0, 1], "id": [1, 1]}))


class TestCommandLine:
    def words(self, folder, rows, *more):
        rows.assign(p=cdf(rows)).drop(columns="hazard").to_csv(folder / "p.csv", index=False)
        columns = ["--time", "time", "--event", "event", "--entry", "entry", "--id", "id", "--resamples", "0"]
        return CliRunner().invoke(app, ["audit", str(folder / "p.csv"), *columns, "--cdf", "p", *more])

    def test_a_table(self, rows, tmp_path):
        told = self.words(tmp_path, rows)
        assert told.exit_code == 0, told.output
        own = audit(cdf=cdf(rows), y=target(rows), **OPTIONS)
        assert f"{own.value('event_ratio').value:.2f}" in told.output
        assert f"{rows['id'].nunique()} rows" in told.output

    def test_bad_tables(self, rows, tmp_path):
        early = rows.copy()
        second = early.index[early["id"] == early["id"].shift()][0]
        early.loc[second, "entry"] -= 0.25
        told = self.words(tmp_path, early)
        wrong = f"line {second + 2}: expected rows of one label of column 'id' that do not overlap"
        assert wrong in str(told.exception)
        told = self.words(tmp_path, rows, "--landmarks", "1")
        assert "landmarks: expected None beside several rows of one id" in str(told.exception)
