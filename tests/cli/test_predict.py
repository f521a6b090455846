"""``xcal predict``, ``xcal evaluate`` and ``xcal report``: the model of a run on the rows of a file."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import xcal
from tests.cli.test_fit import changed, error, patients, run, written
from tests.metrics.test_by_person import walked
from xcal.cli.app import app

COLUMNS = ["age", "sex", "seen", "smoker"]


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    done = run(written(folder, patients()), "--drop", "visit_of", out=folder / "run")
    assert done.exit_code == 0, done.exception
    return folder / "run"


@pytest.fixture(scope="module")
def model(finished):
    return xcal.load(finished / "model.safetensors")


def features(frame):
    return frame.assign(seen=pd.to_datetime(frame["seen"]), smoker=frame["smoker"].astype(float))[COLUMNS]


class TestPredict:
    def test_the_table_has_what_the_model_predicts(self, finished, model, tmp_path):
        new = patients(50, seed=5)
        out = tmp_path / "p.csv"
        words = ["--times", "5,20", "--quantiles", "0.1,0.2", "--copy", "patient", "--extrapolate"]
        done = call("predict", finished, written(tmp_path, new), "--out", out, *words)
        assert done.exit_code == 0, done.exception
        found, X = pd.read_csv(out), features(new)
        names = ["patient", "months", "died", "risk", "median", "s_5", "s_20", "q_0.1", "q_0.2", "cdf"]
        assert list(found) == names
        assert list(found["patient"]) == list(new["patient"])
        close = {"rtol": 1e-12}
        np.testing.assert_allclose(found["risk"], model.predict(X), **close)
        np.testing.assert_allclose(found[["s_5", "s_20"]], model.predict_survival_function(X, [5, 20]), **close)
        expected = model.predict_quantile(X, [0.1, 0.2], extrapolate=True)
        np.testing.assert_allclose(found[["q_0.1", "q_0.2"]], expected, **close)
        own = [model.predict_cdf(X[k : k + 1], [t], extrapolate=True)[0, 0] for k, t in enumerate(new["months"])]
        np.testing.assert_allclose(found["cdf"], own, rtol=1e-9)

    def test_of_patients_who_have_come_this_far(self, finished, model, tmp_path):
        new = patients(20, seed=5).assign(reached=np.linspace(0, 3, 20))
        X = features(new)
        for given, after in (("2", 2.0), ("reached", new["reached"])):
            words = ["--after", given, "--times", "5", "--quantiles", "0.1", "--extrapolate", "--overwrite"]
            done = call("predict", finished, written(tmp_path, new), "--out", tmp_path / "p.csv", *words)
            assert done.exit_code == 0, done.exception
            found = pd.read_csv(tmp_path / "p.csv")
            assert list(found) == ["months", "died", "after", "risk", "median", "s_5", "q_0.1"]
            np.testing.assert_allclose(found["after"], after)
            expected = model.predict_survival_function(X, [5], after=after)[:, 0]
            np.testing.assert_allclose(found["s_5"], expected, rtol=1e-12)
        told = error(call("predict", finished, written(tmp_path, new), "--out", tmp_path / "q.csv", "--after", "-1"))
        assert "--after: expected a finite number of 0 or more" in told

    def test_texts_that_a_spreadsheet_would_run_are_quoted(self, finished, tmp_path):
        names = ["=1+2", "+A1", "-B2", "@C3", "P-4", "-7", "'=8", "9"]
        path = written(tmp_path, patients(8).assign(patient=names))
        words = ["--copy", "patient", "--out"]
        assert call("predict", finished, path, *words, tmp_path / "p.csv").exit_code == 0
        found = pd.read_csv(tmp_path / "p.csv", dtype=str)["patient"].tolist()
        assert found == ["'=1+2", "'+A1", "'-B2", "'@C3", "P-4", "-7", "'=8", "9"]
        assert call("predict", finished, path, *words, tmp_path / "p.parquet").exit_code == 0
        assert pd.read_parquet(tmp_path / "p.parquet")["patient"].tolist() == names

    def test_without_an_outcome(self, finished, tmp_path):
        path = written(tmp_path, patients(20)[[*COLUMNS, "patient"]])
        assert call("predict", finished, path, "--out", tmp_path / "p.parquet").exit_code == 0
        found = pd.read_parquet(tmp_path / "p.parquet")
        horizons = json.loads((finished / "summary.json").read_text())["horizons"]
        assert list(found) == ["risk", "median", *(f"s_{time:g}" for time in horizons)]

    def test_a_row_without_a_time_has_no_cdf(self, finished, tmp_path):
        path = written(tmp_path, changed(patients(20), "months", 3, None))
        assert call("predict", finished, path, "--out", tmp_path / "p.csv.gz").exit_code == 0
        assert list(np.flatnonzero(pd.read_csv(tmp_path / "p.csv.gz")["cdf"].isna())) == [3]

    def test_the_table_can_be_audited(self, finished, tmp_path):
        call("predict", finished, written(tmp_path, patients(60)), "--out", tmp_path / "p.csv", "--times", "2,5,10")
        words = ["--time", "months", "--event", "died", "--curves", "s_*", "--resamples", "0"]
        done = call("audit", tmp_path / "p.csv", *words)
        assert "60 rows" in done.stdout

    def test_an_audit_of_the_table_asks_about_what_was_copied_and_no_prediction(self, finished, tmp_path):
        words = ["--times", "2,5,10", "--quantiles", "0.1", "--copy", "age", "--copy", "sex"]
        frame = patients(120)
        frame["age"] = frame["age"].fillna(60)
        call("predict", finished, written(tmp_path, frame), "--out", tmp_path / "p.csv", *words)
        words = ["--time", "months", "--event", "died", "--curves", "s_*", "--resamples", "0"]
        done = call("audit", tmp_path / "p.csv", *words, "--json", tmp_path / "a.json")
        assert done.exit_code == 0, done.exception
        found = json.loads((tmp_path / "a.json").read_text())["measured"]["for_whom"]
        assert found["columns"] == ["age", "sex"]
        assert found["left_out"] == []

    def test_a_form_that_is_not_written_is_refused(self, finished, tmp_path):
        told = error(call("predict", finished, written(tmp_path, patients(20)), "--out", tmp_path / "p.xlsx"))
        assert "--out: expected a name that ends in .csv, .csv.gz" in told
        assert not (tmp_path / "p.xlsx").exists()

    def test_past_the_end_is_said(self, finished, tmp_path):
        words = ["--out", tmp_path / "p.csv", "--times", "1e6"]
        done = call("predict", finished, written(tmp_path, patients(20)), *words)
        assert "last one seen in training" in " ".join(done.stderr.split())
        assert pd.read_csv(tmp_path / "p.csv")["s_1e+06"].isna().all()

    def test_an_unknown_category_is_said(self, finished, tmp_path):
        path = written(tmp_path, changed(patients(20), "sex", 4, "x"))
        done = call("predict", finished, path, "--out", tmp_path / "p.csv")
        assert "column 'sex' has values that fit never saw" in " ".join(done.stderr.split())

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            (lambda f: f.drop(columns="age"), "expected the columns that the model was trained on, 'age' among them"),
            (
                lambda f: changed(f, "age", 4, "old"),
                "column 'age', line 6: expected a number or an empty cell, got text",
            ),
            (lambda f: changed(f, "seen", 2, "May"), "column 'seen', line 4: expected a date such as 2024-12-31"),
            (lambda f: changed(f, "months", 1, -3), "column 'months', line 3: expected a time"),
        ],
    )
    def test_a_bad_file_is_one_error(self, finished, tmp_path, change, expected):
        path = written(tmp_path, change(patients(20)))
        assert expected in error(call("predict", finished, path, "--out", tmp_path / "p.csv"))
        assert not (tmp_path / "p.csv").exists()

    def test_files_are_not_replaced_unasked(self, finished, tmp_path):
        path, out = written(tmp_path, patients(20)), tmp_path / "p.csv"
        assert "another file than the one to read" in error(call("predict", finished, path, "--out", path))
        out.write_text("mine")
        assert "--overwrite" in error(call("predict", finished, path, "--out", out))
        assert out.read_text() == "mine"
        assert call("predict", finished, path, "--out", out, "--overwrite").exit_code == 0

    @pytest.mark.parametrize(("option", "given"), [("--times", "5,-1"), ("--quantiles", "0.5,2")])
    def test_numbers_that_cannot_be_are_named_by_their_option(self, finished, tmp_path, option, given):
        done = call("predict", finished, written(tmp_path, patients(20)), "--out", tmp_path / "p.csv", option, given)
        assert error(done).startswith(f"{option}: expected a")

    def test_no_run(self, tmp_path):
        path = written(tmp_path, patients(20))
        assert "expected the folder of a run" in error(call("predict", tmp_path, path, "--out", tmp_path / "p.csv"))


def test_evaluate_measures_new_rows(finished, model, tmp_path):
    new = patients(80, seed=7)
    done = call("evaluate", finished, written(tmp_path, new), "--json", "--horizons", "5,20")
    assert done.exit_code == 0, done.exception
    found = {(v["metric"], v["horizon"]): v["value"] for v in json.loads(done.stdout)["measured"]["values"]}
    y = xcal.Surv(time=new["months"], event=new["died"])
    direct = xcal.audit(model, features(new), y, horizons=[5, 20], n_bootstrap=0)
    for metric, horizon in (("harrell", None), ("d_calibration", None), ("oe", 5.0), ("brier", 20.0)):
        assert found[metric, horizon] == pytest.approx(direct.value(metric, horizon=horizon).value)
    assert "80 rows" in call("evaluate", finished, tmp_path / "patients.csv").stdout


def test_the_score_that_orders_rows_is_no_risk(tmp_path):
    told = pd.DataFrame({"months": [1.0, 2.0], "died": [1, 0], "risk": 0.5, "median": 3.0, "s_12": 0.1, "cdf": 0.2})
    path = written(tmp_path, told)
    done = call("audit", path, "--time", "months", "--event", "died", "--risk", "risk", "--horizon", "12")
    assert "--risk: expected a probability (column 'risk' of xcal predict is none" in error(done)


def test_evaluate_of_a_table_points_to_audit(tmp_path):
    told = error(call("evaluate", written(tmp_path, patients(20))))
    assert "patients.csv: expected the folder of a run" in told
    assert "xcal audit" in told


def test_evaluate_needs_an_outcome(finished, tmp_path):
    path = written(tmp_path, patients(20).drop(columns="died"))
    assert "--event, " in error(call("evaluate", finished, path))


class TestReport:
    def test_that_of_the_run_comes_again(self, finished, tmp_path):
        done = call("report", finished, "--out", tmp_path / "again.html")
        assert done.exit_code == 0, done.exception
        assert (tmp_path / "again.html").read_bytes() == (finished / "audit.html").read_bytes()

    def test_of_new_rows_it_wants_a_name(self, finished, tmp_path):
        path = written(tmp_path, patients(60, seed=3))
        before = (finished / "audit.html").read_bytes()
        assert "--out: expected a page" in error(call("report", finished, path))
        assert call("report", finished, path, "--by", "sex", "--out", tmp_path / "new.html").exit_code == 0
        assert "sex = f" in (tmp_path / "new.html").read_text()
        assert (finished / "audit.html").read_bytes() == before

    def test_other_rows_than_those_of_the_run_are_refused(self, tmp_path):
        path = written(tmp_path, patients(60))
        assert run(path, out=tmp_path / "run").exit_code == 0
        written(tmp_path, patients(60, seed=1))
        assert "expected the bytes of which" in error(call("report", tmp_path / "run"))


class TestPeople:
    def test_rows_of_people_from_fit_to_audit(self, tmp_path):
        """A run of people, its report, and an audit of what it predicts for the same rows say the same."""
        rows = walked(120, 7).drop(columns="hazard")
        rows.to_csv(tmp_path / "p.csv", index=False)
        words = ["--id", "id", "--entry", "entry"]
        done = run(tmp_path / "p.csv", *words, out=tmp_path / "run", time="time", event="event")
        assert done.exit_code == 0, done.exception
        told = call("evaluate", tmp_path / "run", tmp_path / "p.csv", "--resamples", "0", "--json")
        whole = {value["metric"]: value["value"] for value in json.loads(told.stdout)["measured"]["values"]}
        done = call(
            "predict",
            tmp_path / "run",
            tmp_path / "p.csv",
            "--out",
            tmp_path / "q.csv",
            "--copy",
            "id",
            "--copy",
            "entry",
        )
        assert done.exit_code == 0, done.exception
        table = pd.read_csv(tmp_path / "q.csv")
        y = xcal.Surv(**{name: table[name] for name in ("time", "event", "entry", "id")})
        found = xcal.audit(cdf=table["cdf"], y=y, n_bootstrap=0, progress=False)
        assert found.data.n == 120
        for name in ("event_ratio", "d_calibration"):
            assert found.value(name).value == pytest.approx(whole[name], rel=1e-6)
