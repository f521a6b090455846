"""``xcal fit``: a file becomes a run, the same file the same run, and what is odd about a file is said."""

import errno
import gzip
import json
import re
import tomllib
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

import xcal
from xcal.cli import as_settings, now_and_then
from xcal.cli.app import app
from xcal.cli.fit_run import epochs_in_words, fit_run
from xcal.cli.run_folder import FILES, FitSettings, merged
from xcal.cli.table_file import read_table_file
from xcal.cli.training import Trained, judge, read_parts
from xcal.validation.arguments import most_associated

QUICK = ["--seeds", "1", "--epochs", "3", "--lambdas", "0,10", "--resamples", "0"]


def patients(n=240, seed=0):
    """Patients with an id, a text, a missing value here and there, a date, and a column that never changes."""
    rng = np.random.default_rng(seed)
    age, sex = rng.normal(60, 10, n).round(1), rng.choice(["f", "m"], n)
    happens = rng.exponential(np.exp((60 - age) / 15) * 20)
    leaves = rng.exponential(40, n)
    frame = pd.DataFrame(
        {
            "patient": [f"P{i:04d}" for i in range(n)],
            "age": np.where(rng.uniform(size=n) < 0.1, np.nan, age),
            "sex": sex,
            "seen": [f"2021-{1 + i % 12:02d}-{1 + i % 28:02d}" for i in range(n)],
            "smoker": rng.uniform(size=n) < 0.3,
            "site": "here",
            "months": np.minimum(happens, leaves),
            "died": (happens <= leaves).astype(int),
        }
    )
    frame["visit_of"] = np.arange(n) // 4
    return frame


def written(folder, frame, name="patients.csv", **options):
    path = folder / name
    frame.to_csv(path, index=False, **options)
    return path


def run(path, *words, out, time="months", event="died"):
    given = ["fit", str(path), "--time", time, "--event", event, "--out", str(out), *QUICK, *map(str, words)]
    return CliRunner().invoke(app, given)


def error(done):
    assert done.exit_code != 0
    assert isinstance(done.exception, ValueError | OSError), done.exception
    return str(done.exception)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def left_out(folder):
    return {column["name"]: column["left_out"] for column in summary(folder)["columns"] if column["left_out"]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    path = written(folder, patients())
    done = run(path, "--by", "sex", "--drop", "visit_of", out=folder / "run")
    assert done.exit_code == 0, done.exception
    return done, folder, path


class TestTheRun:
    def test_its_files_are_there_and_nothing_else(self, finished):
        _, folder, _ = finished
        names = {path.name for path in (folder / "run").iterdir()}
        assert names == set(FILES)
        assert {"model.safetensors", "audit.html", "summary.json", "config.toml", "frontier.html"} <= names

    def test_what_was_understood_comes_before_training(self, finished):
        text = finished[0].stdout
        assert text.index("column") < text.index("held out") < text.index("Training a model (mtlr)")
        lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
        assert "number" in lines["age"]
        assert "category" in lines["sex"]
        assert "date" in lines["seen"]
        assert "yes/no" in lines["smoker"]

    def test_rows_are_counted_as_they_are(self, finished):
        _, folder, path = finished
        frame, rows = pd.read_csv(path), summary(folder / "run")["rows"]
        assert rows["train"]["rows"] + rows["test"]["rows"] == len(frame)
        assert rows["train"]["events"] + rows["test"]["events"] == frame["died"].sum()
        assert rows["test"]["rows"] == pytest.approx(0.25 * len(frame), abs=1)

    def test_what_is_no_feature_is_left_out_aloud(self, finished):
        done, folder, _ = finished
        out = left_out(folder / "run")
        assert set(out) == {"patient", "site", "months", "died", "visit_of"}
        assert "id" in out["patient"]
        assert "the same" in out["site"]
        assert "note: column 'patient' is left out" in done.stdout

    def test_the_model_is_that_of_python(self, finished):
        """The same rows, given to the estimator by hand."""
        _, folder, path = finished
        frame = pd.read_csv(path, parse_dates=["seen"]).astype({"smoker": float})
        data = xcal.SurvivalData(np.arange(240.0)[:, None], time=frame["months"], event=frame["died"])
        train, _ = data.split((0.75, 0.25), seed=0)
        rows = frame.iloc[train.x[:, 0].astype(int)].reset_index(drop=True)
        columns = ["age", "sex", "seen", "smoker"]
        known = xcal.SurvivalPath((0, 10), 1, epochs=3, encode="auto")
        known.fit(rows[columns], xcal.Surv(time=rows["months"], event=rows["died"]))
        model = xcal.load(folder / "run" / "model.safetensors")
        np.testing.assert_array_equal(model.predict(frame[columns]), known.select().predict(frame[columns]))

    def test_the_config_file_runs_to_the_same_bits(self, finished):
        _, folder, _ = finished
        done = CliRunner().invoke(
            app, ["fit", "--config", str(folder / "run/config.toml"), "--out", str(folder / "again")]
        )
        assert done.exit_code == 0, done.exception
        for path in (folder / "run").iterdir():
            assert path.read_bytes() == (folder / "again" / path.name).read_bytes(), path.name

    def test_a_second_run_asks(self, finished):
        done = run(finished[2], out=finished[1] / "run")
        assert "--out: expected a new folder, or --overwrite" in error(done)

    def test_json_is_the_summary_alone(self, finished, tmp_path):
        done = run(finished[2], "--json", out=tmp_path / "run")
        assert json.loads(done.stdout) == summary(tmp_path / "run")
        assert "Training" in done.stderr


def test_overwriting_replaces_a_run_whole_and_keeps_other_files(tmp_path, monkeypatch):
    path, out = written(tmp_path, patients(80)), tmp_path / "run"
    assert run(path, out=out).exit_code == 0
    (out / "mine.txt").write_text("mine")
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    monkeypatch.setattr(xcal.SurvivalPath, "report", lambda *_, **__: 1 / 0)
    assert isinstance(run(path, "--seed", 1, "--overwrite", out=out).exception, ZeroDivisionError)
    assert {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} == before
    monkeypatch.undo()
    assert run(path, "--seed", 1, "--overwrite", out=out).exit_code == 0
    assert tomllib.loads((out / "config.toml").read_text())["seed"] == 1
    assert (out / "mine.txt").read_text() == "mine"
    assert (out / "model.safetensors").read_bytes() != before["model.safetensors"]


class TestInterrupt:
    def settings(self, tmp_path):
        return FitSettings(
            str(written(tmp_path, patients(80))), "months", "died", seeds=1, lambdas=(0.0, 10.0), epochs=50, resamples=0
        )

    def test_the_best_so_far_is_kept(self, tmp_path):
        def stop(report):
            if report.epoch == 2:
                raise KeyboardInterrupt

        told = []
        found = fit_run(self.settings(tmp_path), tmp_path / "run", say=told.append, overwrite=False, progress=stop)
        assert found["interrupted"]
        assert any("Interrupted" in text for text in told)
        short = FitSettings(**{**vars(self.settings(tmp_path)), "epochs": 2})
        fit_run(short, tmp_path / "short", say=told.append, overwrite=False, progress=False)
        models = [xcal.load(tmp_path / name / "model.safetensors") for name in ("run", "short")]
        kept = [column.name for column in models[0].encoding_.columns]
        X = patients(80).assign(seen=pd.Timestamp("2021-05-05"))[kept]
        np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))

    def test_before_the_first_epoch_nothing_is_written(self, tmp_path, monkeypatch):
        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("xcal.training.loop.Steps.step", interrupt)
        with pytest.raises(KeyboardInterrupt, match="there is no model yet, and nothing was written"):
            fit_run(self.settings(tmp_path), tmp_path / "run", say=lambda _: None, overwrite=False, progress=False)
        assert list((tmp_path / "run").iterdir()) == []

    @pytest.mark.parametrize(
        ("part", "stopped"),
        [
            ("xcal.cli.fit_run.judge", KeyboardInterrupt()),
            ("xcal.SurvivalPath.report", KeyboardInterrupt()),
            ("xcal.SurvivalPath.report", OSError(errno.ENOSPC, "No space left on device")),
        ],
    )
    def test_what_was_trained_outlives_reports_that_are_not_made(self, tmp_path, monkeypatch, part, stopped):
        path = written(tmp_path, patients(80))
        whole = run(path, out=tmp_path / "whole")
        assert whole.exit_code == 0, whole.exception

        def stop(*_, **__):
            raise stopped

        monkeypatch.setattr(part, stop)
        done = run(path, out=tmp_path / "run")
        interrupted = isinstance(stopped, KeyboardInterrupt)
        assert done.exit_code == (130 if interrupted else 1)
        assert "The same command finishes it without training again" in " ".join(done.stdout.split())
        assert ("interrupted" in done.stderr) == interrupted
        assert [file.name for file in (tmp_path / "run").iterdir()] == ["unfinished"]
        kept, chosen = (xcal.load(tmp_path / name) for name in ("run/unfinished", "whole"))
        assert kept.get_params() == chosen.get_params()
        assert "a run that was not finished" in error(CliRunner().invoke(app, ["report", str(tmp_path / "run")]))
        monkeypatch.undo()
        monkeypatch.setattr("xcal.cli.fit_run.train", lambda *_, **__: pytest.fail("it was trained again"))
        again = run(path, out=tmp_path / "run")
        assert again.exit_code == 0, again.exception
        assert "has trained these models before" in again.stdout
        for file in (tmp_path / "whole").iterdir():
            assert file.read_bytes() == (tmp_path / "run" / file.name).read_bytes(), file.name
        assert {file.name for file in (tmp_path / "run").iterdir()} == set(FILES)

    def test_where_not_all_models_fit_the_chosen_one_is_kept(self, tmp_path, monkeypatch):
        path = written(tmp_path, patients(80))
        full = OSError(errno.ENOSPC, "No space left on device")

        def no_room(*_, **__):
            raise full

        monkeypatch.setattr("xcal.SurvivalPath.save", no_room)
        done = run(path, out=tmp_path / "run")
        assert done.exit_code == 1
        assert done.exception is full
        told = " ".join(done.stdout.split())
        assert "No space left on device: all models but the chosen one could not be written" in told
        assert told.index("Make room now") < told.index("Measuring the chosen model")
        assert "The same command trains again" in told
        assert [file.name for file in (tmp_path / "run" / "unfinished").iterdir()] == ["model.safetensors"]
        assert xcal.load(tmp_path / "run/unfinished").xcal_lambda in (0, 10)
        monkeypatch.undo()
        again = run(path, out=tmp_path / "run")
        assert again.exit_code == 0, again.exception
        assert {file.name for file in (tmp_path / "run").iterdir()} == set(FILES)

    def test_an_interrupt_while_models_are_kept_does_not_lose_them(self, tmp_path, monkeypatch):
        path, save, calls = written(tmp_path, patients(80)), xcal.SurvivalPath.save, []

        def interrupted_once(*given, **more):
            calls.append(given)
            if len(calls) == 1:
                raise KeyboardInterrupt
            return save(*given, **more)

        monkeypatch.setattr("xcal.SurvivalPath.save", interrupted_once)
        done = run(path, out=tmp_path / "run")
        assert done.exit_code == 130
        assert "finishes it without training again" in " ".join(done.stdout.split())
        assert "has trained these models before" in run(path, out=tmp_path / "run").stdout

    def test_models_of_another_command_are_not_taken(self, tmp_path, monkeypatch):
        path = written(tmp_path, patients(80))
        monkeypatch.setattr("xcal.cli.fit_run.judge", lambda *_: 1 / 0)
        run(path, out=tmp_path / "run")
        monkeypatch.undo()
        told = run(path, "--seed", 1, out=tmp_path / "run").stdout
        assert "Training a model" in told
        assert not (tmp_path / "run" / "unfinished").exists()

    def test_every_command_says_that_it_was_interrupted(self, tmp_path, monkeypatch):
        def interrupt(*_, **__):
            raise KeyboardInterrupt

        monkeypatch.setattr("xcal.cli.table_file.read_table_file", interrupt)
        monkeypatch.setattr("xcal.cli.training.read_table_file", interrupt)
        outcome = ["--time", "t", "--event", "e"]
        for command, words in {"audit": ["--cdf", "F"], "fit": ["--out", str(tmp_path)]}.items():
            done = CliRunner().invoke(app, [command, "p.csv", *outcome, *words])
            assert done.exit_code == 130
            assert done.stderr.startswith("interrupted")


def test_training_says_how_far_it_is_where_no_bar_can_be_drawn(monkeypatch, capsys):
    monkeypatch.setenv("XCAL_PROGRESS", "0")
    show = now_and_then(epochs_in_words)
    path = xcal.SurvivalPath((0, 10), 1, epochs=2, cross_fit=0, progress=show)
    rng = np.random.default_rng(0)
    path.fit(rng.normal(size=(60, 2)), xcal.Surv(time=rng.exponential(size=60), event=np.ones(60)))
    told = [f"epoch {k} of at most 2: 0 of 1 models have stopped" for k in (1, 2)]
    assert capsys.readouterr().err.splitlines() == told
    monkeypatch.delenv("XCAL_PROGRESS")
    now_and_then(epochs_in_words)(None)  # too soon after the first
    assert capsys.readouterr().err == ""


class TestSplitting:
    def test_another_file(self, tmp_path):
        path, other = written(tmp_path, patients(80)), written(tmp_path, patients(40, seed=1), "other.csv")
        assert run(path, "--test", other, out=tmp_path / "run").exit_code == 0
        rows = summary(tmp_path / "run")["rows"]
        assert (rows["train"]["rows"], rows["test"]["rows"]) == (80, 40)

    def test_a_column(self, tmp_path):
        frame = patients(120)
        frame["part"] = ["train", "Train", "test", "validation"] * 30
        assert run(written(tmp_path, frame), "--split", "part", out=tmp_path / "run").exit_code == 0
        rows = summary(tmp_path / "run")["rows"]
        assert [rows[part]["rows"] for part in ("train", "validation", "test")] == [60, 30, 30]
        frame.loc[5, "part"] = "elsewhere"
        told = error(run(written(tmp_path, frame), "--split", "part", out=tmp_path / "other"))
        assert "column 'part', line 7: expected train, test or validation (--split), got another word" in told

    def test_a_patient_stays_on_one_side(self, tmp_path):
        frame = patients(160)
        frame["tell"] = frame["visit_of"] + 0.5
        settings = FitSettings(str(written(tmp_path, frame)), "months", "died", group="visit_of", keep=("tell",))
        parts = read_parts(settings)
        sides = [set(part.X["tell"]) for part in (parts.train, parts.validation, parts.test)]
        assert sum(map(len, sides)) == len(set.union(*sides)) == 40
        assert "visit_of" not in parts.train.X

    def test_the_rows_of_a_patient_are_a_cluster_of_the_report(self, tmp_path):
        frame = patients(160)
        done = run(written(tmp_path, frame), "--group", "visit_of", out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        data = json.loads((tmp_path / "run" / "audit.json").read_text())["data"]
        assert data["n_clusters"] == 10  # a quarter of 40 patients

    def test_lambda_0_is_measured_as_the_chosen_model_is(self, tmp_path):
        frame = patients(160)
        settings = FitSettings(str(written(tmp_path, frame)), "months", "died", group="visit_of", resamples=0)
        parts = read_parts(settings)
        path = xcal.SurvivalPath((0, 10), 1, epochs=2, encode="auto", cross_fit=0, progress=False)
        path.fit(parts.train.X, parts.train.y, validation_data=(parts.validation.X, parts.validation.y))
        plain = judge(Trained(path, path.model(10), False, ()), parts, settings, False).plain
        alone = xcal.audit(
            path.model(0),
            parts.test.X,
            parts.test.y,
            clusters=parts.test.clusters,
            training=(parts.train.X, parts.train.y),
            n_bootstrap=0,
        )
        for metric in ("d_calibration_floor", "d_calibration_p", "ibs"):
            assert plain[metric] == alone.value(metric).value

    def test_rows_in_nearly_perfect_order_are_doubted(self, tmp_path):
        frame = patients(160).drop(columns="visit_of")
        settings = FitSettings(str(written(tmp_path, frame)), "months", "died", resamples=0)
        parts = read_parts(settings)
        path = xcal.SurvivalPath((0,), 1, epochs=2, encode="auto", cross_fit=0).fit(parts.train.X, parts.train.y)
        trained = Trained(path, path.model(0), False, ())
        assert not any("concordance" in note for note in judge(trained, parts, settings, False).notes)
        times = np.sort(path.model(0).predict_median(parts.test.X))[::-1]  # those who are said to be first, first
        order = np.argsort(path.model(0).predict(parts.test.X))
        y = parts.test.y.copy()
        y["time"][order], y["event"] = np.minimum(times, 100.0), True
        told = judge(trained, replace(parts, test=replace(parts.test, y=y)), settings, False).notes
        assert any("rarely reached by what is known at the start" in note for note in told)

    def test_new_rows_without_the_column_of_patients_count_as_independent_with_a_note(self, tmp_path):
        frame = patients(160)
        run(written(tmp_path, frame), "--group", "visit_of", out=tmp_path / "run")
        new = written(tmp_path, frame.drop(columns="visit_of"), "new.csv")
        done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(new), "--resamples", "0"])
        assert done.exit_code == 0, done.exception
        assert "no such column, 'visit_of' (--group)" in " ".join(done.stderr.split())

    def test_a_patient_in_both_files_is_refused(self, tmp_path):
        path, other = written(tmp_path, patients(80)), written(tmp_path, patients(40, seed=1), "other.csv")
        done = run(path, "--test", other, "--group", "visit_of", out=tmp_path / "run")
        assert "--group visit_of: expected every group on one side" in error(done)


def test_groups_that_the_report_would_refuse_are_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("xcal.cli.fit_run.train", lambda *_, **__: pytest.fail("it was trained"))
    told = error(run(written(tmp_path, patients()), "--by", "age", out=tmp_path / "run"))
    assert "groups['age']: expected at most 10 values (cut it first" in told
    assert "a column of groups in the file" in told


def test_a_distribution_that_is_none_is_refused_before_anything_is_read(tmp_path):
    done = run(tmp_path / "none.csv", "--distribution", "gauss", out=tmp_path / "run")
    assert error(done).startswith("--distribution: expected one of 'mtlr'")


class TestForms:
    @pytest.mark.parametrize("form", ["gz", "parquet", "semicolon", "bom"])
    def test_of_a_file(self, tmp_path, form):
        frame, words = patients(60), []
        if form == "gz":
            path = tmp_path / "p.csv.gz"
            path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
        elif form == "parquet":
            path = tmp_path / "p.parquet"
            frame.assign(seen=pd.to_datetime(frame["seen"]), sex=frame["sex"].astype("category")).to_parquet(path)
        elif form == "semicolon":
            path, words = written(tmp_path, frame, sep=";"), ["--separator", ";"]
        else:
            path = written(tmp_path, frame, encoding="utf-8-sig")
        done = run(path, *words, out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        columns = {column["name"]: column["kind"] for column in summary(tmp_path / "run")["columns"]}
        assert columns["seen"] == "date"
        assert columns["sex"] == "category"

    def test_of_an_event(self, tmp_path):
        frame = patients(60)
        events = frame["died"].sum()
        for k, (values, words) in enumerate(
            [
                (frame["died"].map({0: "alive", 1: "dead"}), ["--event-value", "dead"]),
                (frame["died"] + 1, ["--event-value", "2"]),
                (frame["died"].map({0: "FALSE", 1: "TRUE"}), []),
                (frame["died"].map({0: "FALSE", 1: "TRUE"}), ["--event-value", "TRUE"]),
            ]
        ):
            done = run(written(tmp_path, frame.assign(died=values)), *words, out=tmp_path / f"run{k}")
            assert done.exit_code == 0, done.exception
            rows = summary(tmp_path / f"run{k}")["rows"]
            assert rows["train"]["events"] + rows["test"]["events"] == events

    def test_of_an_event_that_needs_a_word(self, tmp_path):
        frame = patients(60)
        path = written(tmp_path, frame.assign(died=frame["died"].map({0: "alive", 1: "dead"})))
        told = error(run(path, out=tmp_path / "run"))
        assert "--event-value" in told
        assert "'dead'" in told
        assert "'alive'" in told


def changed(frame, column, row, value):
    frame = frame.astype({column: object})
    frame.loc[row, column] = value
    return frame


BAD = {
    "text": (lambda f: changed(f, "months", 3, "abc"), "column 'months', line 5: expected a time"),
    "date": (lambda f: changed(f, "months", 0, "2021-03-04"), "(a date?"),
    "negative": (lambda f: changed(f, "months", 2, -1.0), "column 'months', line 4"),
    "empty time": (lambda f: changed(f, "months", 7, None), "column 'months', line 9: expected a time"),
    "empty event": (lambda f: changed(f, "died", 7, None), "column 'died', line 9: expected whether the event"),
    "no event": (lambda f: f.assign(died=0), "column 'died': expected at least one event, got 60 rows without one"),
    "one row": (lambda f: f.iloc[:1].assign(died=1), "expected at least 2 rows, got 1"),
    "few rows": (lambda f: f.iloc[:20], "expected at least 30 rows to train on, got 16"),
    "no column": (lambda f: f.drop(columns="months"), "--time, "),
    "a word among numbers": (
        lambda f: changed(f, "age", 4, "sixty"),
        "column 'age', line 6: expected a number as in most rows, or an empty cell (or leave the column out: --drop "
        "age), got text",
    ),
    "infinite": (lambda f: changed(f, "age", 4, "inf"), "column 'age', line 6: expected a finite number"),
    "nothing to learn from": (lambda f: f[["months", "died", "patient"]], "expected at least one column to learn from"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_error(tmp_path, case):
    change, expected = BAD[case]
    path = written(tmp_path, change(patients(60)))
    told = error(run(path, out=tmp_path / "run"))
    assert expected in told
    assert str(path) in told
    assert list((tmp_path / "run").iterdir()) == []


def test_columns_joined_by_a_comma_are_told_how_to_be_given(tmp_path):
    told = error(run(written(tmp_path, patients(60)), "--drop", "age,sex", out=tmp_path / "run"))
    assert "(did you mean --drop age --drop sex?), got 'age,sex'" in told
    told = error(run(written(tmp_path, patients(60)), "--drop", "age,sexes", out=tmp_path / "run"))
    assert "--drop sex" not in told


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    assert "an empty file" in error(run(tmp_path / "empty.csv", out=tmp_path / "run"))
    assert "none by that name" in error(run(tmp_path / "none.csv", out=tmp_path / "run"))
    told = error(run(written(tmp_path, patients(60)), "--separator", ";", out=tmp_path / "run"))
    assert "expected columns with ';' between them (without --separator the first lines tell the mark)" in told


@pytest.mark.parametrize("given", ["", ";;", "\n", '"'])
def test_a_separator_is_one_character(tmp_path, given):
    told = error(run(written(tmp_path, patients(60)), "--separator", given, out=tmp_path / "run"))
    assert told.startswith("--separator: expected one character, such as ';'")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_name_that_two_columns_have(tmp_path, form):
    path = tmp_path / f"twice.{form}"
    if form == "csv":
        path.write_text("months,died,age,age\n1,1,2,3\n")
    else:
        columns = [pa.array([1.0, 2.0])] * 3
        pq.write_table(pa.table(columns, names=["months", "died", "died"]), path)
    told = error(run(path, out=tmp_path / "run"))
    assert told == f"{path}: expected columns with different names, got {'age' if form == 'csv' else 'died'!r} twice"


class TestSize:
    def test_a_packed_file_is_measured_before_it_is_read(self, tmp_path, monkeypatch):
        path = tmp_path / "bomb.csv.gz"
        path.write_bytes(gzip.compress(b"age,months,died\n" + b"1,2,1\n" * 20_000))
        monkeypatch.setenv("XCAL_MOST_INPUT", "1e5")
        monkeypatch.setattr(pd, "read_csv", lambda *_, **__: pytest.fail("it was read"))
        told = error(run(path, out=tmp_path / "run"))
        assert told.startswith(
            f"{path}: expected at most 100,000 bytes of text, and 10,000 cells (to read more: set the variable XC"
        )

    def test_cells_of_a_text_are_counted_before_they_are_read(self, tmp_path, monkeypatch):
        """Text below the bound took ten times as much memory, where cells are short."""
        path, read = tmp_path / "short.csv.gz", pd.read_csv
        path.write_bytes(gzip.compress(b"a,t,e\n" + b"1,2,1\n" * 5_000))

        def header_alone(*given, **options):
            assert options.get("nrows") == 1
            return read(*given, **options)

        monkeypatch.setattr(pd, "read_csv", header_alone)
        monkeypatch.setenv("XCAL_MOST_INPUT", "1e5")
        assert error(run(path, out=tmp_path / "run", time="t", event="e")).endswith(
            "(to read more: set the variable XCAL_MOST_INPUT=4e5), got 15,003 cells"
        )

    def test_cells_of_a_parquet_file_are_counted(self, tmp_path, monkeypatch):
        path = tmp_path / "p.parquet"
        patients(60).to_parquet(path)
        monkeypatch.setenv("XCAL_MOST_INPUT", "5300")
        assert error(run(path, out=tmp_path / "run")).endswith(", got 540 cells")

    def test_the_bound_is_a_number(self, tmp_path, monkeypatch):
        monkeypatch.setenv("XCAL_MOST_INPUT", "much")
        told = error(run(written(tmp_path, patients(60)), out=tmp_path / "run"))
        assert told == "XCAL_MOST_INPUT: expected a number of bytes, such as 4e9, got 'much'"

    @pytest.mark.parametrize("packed", ["gz", "bz2", "xz", "zip"])
    def test_packed_files_are_read_alike(self, tmp_path, packed):
        frame, path = patients(60), tmp_path / f"p.csv.{packed}"
        frame.to_csv(path, index=False)
        table = read_table_file(path)
        pd.testing.assert_frame_equal(table.frame, pd.read_csv(path), check_dtype=False)


class TestWaysOfWriting:
    def parts(self, tmp_path, frame, **options):
        name = options.pop("name", "p.csv")
        to_csv = {key: options.pop(key) for key in ("sep", "decimal") if key in options}
        written_to = written(tmp_path, frame, name, **({"decimal": options.get("decimal", ".")} | to_csv))
        return read_parts(FitSettings(str(written_to), "months", "died", **options))

    @pytest.mark.parametrize(("mark", "words"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
    def test_the_mark_between_columns_is_told_by_the_file(self, tmp_path, mark, words):
        frame = patients(60).assign(note="a, b and c")
        found = self.parts(tmp_path, frame, sep=mark)
        pd.testing.assert_frame_equal(found.train.X, self.parts(tmp_path, frame).train.X)
        assert f"p.csv: columns are separated by {words} (--separator gives another mark)" in found.understanding.notes

    def test_every_file_that_was_guessed_at_is_said(self, tmp_path):
        other = written(tmp_path, patients(40, seed=1), "other.csv", sep=";")
        notes = self.parts(tmp_path, patients(60), test=str(other)).understanding.notes
        assert "other.csv: columns are separated by semicolons (--separator gives another mark)" in notes

    def test_decimal_commas_are_read_if_asked(self, tmp_path):
        frame = patients(60).assign(grade=["I", "II"] * 30)
        path = written(tmp_path, frame, sep=";", decimal=",")
        commas = read_parts(FitSettings(str(path), "months", "died", decimal=","))
        points = self.parts(tmp_path, frame)
        pd.testing.assert_frame_equal(commas.train.X, points.train.X)
        np.testing.assert_array_equal(commas.test.y, points.test.y)
        with pytest.raises(ValueError, match=r"column 'months', line 2: .* \(a decimal comma\? --decimal , reads it\)"):
            read_parts(FitSettings(str(path), "months", "died"))
        with pytest.raises(ValueError, match="--decimal: expected another mark than the one between columns"):
            read_parts(FitSettings(str(path), "months", "died", decimal=",", separator=","))

    def test_a_word_among_decimal_commas_is_named(self, tmp_path):
        frame = changed(patients(60).assign(age=lambda f: f["age"].fillna(60.0)), "age", 4, "sixty")
        frame["age"] = frame["age"].astype(str).str.replace(".", ",")
        path = written(tmp_path, frame, sep=";", decimal=",")
        with pytest.raises(ValueError, match="column 'age', line 6: expected a number as in most rows"):
            read_parts(FitSettings(str(path), "months", "died", decimal=","))

    @pytest.mark.parametrize(
        ("form", "order"),
        [("%d.%m.%Y", "day-first"), ("%d/%m/%Y", "day-first"), ("%m/%d/%Y", "month-first"), ("%Y/%m/%d", None)],
    )
    def test_dates_that_can_be_read_in_one_way_are_read(self, tmp_path, form, order):
        frame = patients(60)
        dates = pd.to_datetime(frame["seen"])
        found = self.parts(tmp_path, frame.assign(seen=dates.dt.strftime(form)))
        pd.testing.assert_frame_equal(found.train.X, self.parts(tmp_path, frame).train.X)
        assert found.understanding.dates == order
        told = [note for note in found.understanding.notes if note.startswith("dates are read with the")]
        assert len(told) == (order is not None)

    def test_one_column_shows_how_the_others_are_read(self, tmp_path):
        frame = patients(60)
        early = pd.to_datetime("2020-02-03") + pd.to_timedelta(np.arange(60) % 9, "D")
        frame = frame.assign(
            seen=pd.to_datetime(frame["seen"]).dt.strftime("%d.%m.%Y"), entry=early.strftime("%d.%m.%Y")
        )
        assert self.parts(tmp_path, frame).train.X["entry"].dt.month.unique().tolist() == [2]
        alone = self.parts(tmp_path, frame.drop(columns="seen"))
        assert "entry" not in alone.train.X or alone.train.X["entry"].dtype == object  # few of them are categories
        asked = self.parts(tmp_path, frame.drop(columns="seen"), dates="month-first")
        assert asked.train.X["entry"].dt.day.unique().tolist() == [2]

    def test_columns_that_contradict_each_other_are_refused(self, tmp_path):
        frame = patients(60)
        dates = pd.to_datetime(frame["seen"])
        frame = frame.assign(seen=dates.dt.strftime("%d.%m.%Y"), entry=dates.dt.strftime("%m/%d/%Y"))
        with pytest.raises(ValueError, match=r"dates of one form .* got day-first in column 'seen', month-first in"):
            self.parts(tmp_path, frame)

    def test_a_way_that_does_not_fit_the_dates_is_refused(self, tmp_path):
        frame = patients(60)
        frame["seen"] = pd.to_datetime(frame["seen"]).dt.strftime("%d.%m.%Y")
        with pytest.raises(ValueError, match=r"--dates: expected day-first, the one way in which column 'seen' can be"):
            self.parts(tmp_path, frame, dates="month-first")

    def test_new_rows_are_read_as_those_of_the_run(self, tmp_path):
        frame = patients(60)
        frame["seen"] = pd.to_datetime(frame["seen"]).dt.strftime("%d.%m.%Y")
        path = written(tmp_path, frame, sep=";", decimal=",")
        done = run(path, "--decimal", ",", out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        config = tomllib.loads((tmp_path / "run/config.toml").read_text())
        assert (config["decimal"], config["dates"]) == (",", "day-first")
        few = frame.iloc[:3].assign(seen="01.02.2021")
        new = written(tmp_path, few, "new.csv", sep=";", decimal=",")
        words = ["predict", str(tmp_path / "run"), str(new), "--out", str(tmp_path / "p.csv")]
        assert CliRunner().invoke(app, words).exit_code == 0
        model = xcal.load(tmp_path / "run")
        X = few.assign(seen=pd.Timestamp("2021-02-01"), smoker=few["smoker"].astype(float))
        expected = model.predict(X[[column.name for column in model.encoding_.columns]])
        np.testing.assert_allclose(pd.read_csv(tmp_path / "p.csv")["risk"], expected, rtol=1e-12)


class TestDuplicates:
    def frame(self):
        """Of 60 held-out rows 20 are copies of rows to train on, and 5 have another time."""
        frame = patients(200).drop(columns=["visit_of", "patient"]).assign(part=["train"] * 140 + ["test"] * 60)
        features = [name for name in frame if name != "part"]
        frame.loc[140:164, features] = frame.loc[:24, features].to_numpy()
        frame.loc[160:164, "months"] += 1.5
        return frame

    def read(self, tmp_path, frame, **options):
        return read_parts(FitSettings(str(written(tmp_path, frame)), "months", "died", split="part", **options))

    def told(self, parts):
        return [
            note for note in parts.understanding.notes if "copies" in note or "repeat" in note or "features" in note
        ]

    def test_copies_across_the_split_are_counted(self, tmp_path):
        copies, alike = self.told(self.read(tmp_path, self.frame()))
        assert copies.startswith(
            "20 of 60 held-out rows are exact copies of rows to train on (features, time and event)"
        )
        assert "the report is too good (--drop-duplicates leaves copies out)" in copies
        assert alike.startswith("5 of 60 held-out rows have all features of a row to train on, and another outcome")

    def test_they_are_left_out_if_asked(self, tmp_path):
        parts = self.read(tmp_path, self.frame(), drop_duplicates=True)
        assert (parts.train.n, parts.test.n) == (140, 40)
        assert self.told(parts)[0] == "20 rows that repeat another one are left out (--drop-duplicates)"

    def test_copies_in_another_file_are_found(self, tmp_path):
        frame = self.frame()
        other = written(tmp_path, frame.iloc[140:], "other.csv")
        path = written(tmp_path, frame.iloc[:140])
        parts = read_parts(FitSettings(str(path), "months", "died", test=str(other), drop=("part",)))
        assert self.told(parts)[0].startswith("20 of 60 held-out rows are exact copies")

    def test_rows_without_copies_get_no_word(self, tmp_path):
        frame = patients(200).drop(columns="visit_of").assign(part=["train"] * 140 + ["test"] * 60)
        assert self.told(self.read(tmp_path, frame)) == []

    def test_few_features_are_alike_by_chance(self, tmp_path):
        frame = patients(200)[["sex", "smoker", "months", "died"]].assign(part=["train"] * 140 + ["test"] * 60)
        assert self.told(self.read(tmp_path, frame)) == []
        months = frame.assign(months=frame["months"].clip(upper=12).round() + 1)
        (told,) = self.told(self.read(tmp_path, months))
        assert "perhaps by chance" in told

    def test_the_option_is_kept_in_the_config_file(self, tmp_path):
        done = run(written(tmp_path, self.frame()), "--split", "part", "--drop-duplicates", out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        assert tomllib.loads((tmp_path / "run/config.toml").read_text())["drop_duplicates"] is True
        assert summary(tmp_path / "run")["rows"]["test"]["rows"] == 40


class TestCovariates:
    def wide(self, n):
        rng = np.random.default_rng(1)
        noise = pd.DataFrame(rng.normal(size=(n, 60)).round(3), columns=[f"g{k}" for k in range(60)])
        return pd.concat([patients(n).drop(columns=["visit_of", "seen"]), noise], axis=1)

    def asked(self, file):
        return json.loads(file.read_text())["measured"]["for_whom"]["columns"]

    def test_of_many_columns_some_are_chosen_and_said(self, tmp_path):
        path = written(tmp_path, self.wide(500).assign(age=lambda f: f["age"].fillna(60.0)))
        done = run(path, out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        columns = self.asked(tmp_path / "run/audit.json")
        assert len(columns) == 50
        assert {"age", "sex"} & set(columns)
        left_out = json.loads((tmp_path / "run/audit.json").read_text())["measured"]["for_whom"]["left_out"]
        assert any("50 that go most with the predicted risk" in why for _, why in left_out)

    def test_columns_are_named(self, tmp_path):
        frame = patients(500).assign(ward=np.arange(500) % 3, age=lambda f: f["age"].fillna(60.0))
        words = ["--drop", "ward", "--drop", "visit_of", "--covariates", "age,ward"]
        done = run(written(tmp_path, frame), *words, out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        assert self.asked(tmp_path / "run/audit.json") == ["age", "ward"]
        words = ["report", str(tmp_path / "run"), "--covariates", "sex", "--time-unit", "moons", "--resamples", "0"]
        assert CliRunner().invoke(app, words).exit_code == 0
        assert self.asked(tmp_path / "run/audit.json") == ["sex"]
        assert "moons" in (tmp_path / "run/audit.html").read_text()

    @pytest.mark.parametrize(
        ("given", "expected"),
        [("agee", "(did you mean 'age'?)"), (",".join(f"g{k}" for k in range(51)), "covariates: expected at most 50")],
    )
    def test_what_cannot_be_asked_about_is_refused_before_training(self, tmp_path, monkeypatch, given, expected):
        monkeypatch.setattr("xcal.cli.fit_run.train", lambda *_, **__: pytest.fail("it was trained"))
        assert expected in error(run(written(tmp_path, self.wide(500)), "--covariates", given, out=tmp_path / "run"))

    def test_the_columns_that_go_most_with_the_risk_are_chosen(self):
        rng = np.random.default_rng(0)
        frame = pd.DataFrame(rng.normal(size=(300, 8)), columns=list("abcdefgh")).assign(
            sex=rng.choice(["f", "m"], 300), label=rng.choice(list("123456789"), 300), id=np.arange(300), same=1.0
        )
        frame.loc[::50, "c"] = np.nan
        risk = np.exp(frame["c"].fillna(0) - 0.5 * frame["g"] + 2 * (frame["sex"] == "m")).to_numpy()
        assert most_associated(frame, risk, most=3) == ("c", "g", "sex")
        strength = {name: abs(spearmanr(frame[name], risk).statistic) for name in "abdefgh"}
        best = sorted(strength, key=strength.get)[-4:]
        assert most_associated(frame[list("abdefgh")], risk, most=4) == tuple(sorted(best))
        assert len(most_associated(frame, risk, most=50)) == 10  # neither the id nor the constant

    @pytest.mark.parametrize(
        ("covariates", "expected"),
        [
            ({"a": 3}, r"covariates\['a'\]: expected a column of 120 values, one per row, got one value"),
            ({"a": None}, r"covariates\['a'\]: expected a column of 120 values, one per row, got one value"),
            ({"a": np.zeros((120, 2))}, r"covariates\['a'\]: expected a column .* got shape \(120, 2\)"),
            (pd.DataFrame(np.zeros((120, 2)), columns=["a", "a"]), r"covariates\['a'\]: expected a column"),
        ],
    )
    def test_covariates_that_are_no_columns_are_one_error(self, covariates, expected):
        y, times = (np.linspace(0.1, 2, 120), np.ones(120)), [0.5, 1.0, 1.5]
        with pytest.raises(ValueError, match=expected):
            xcal.audit(survival=np.tile([0.8, 0.5, 0.3], (120, 1)), times=times, y=y, covariates=covariates)


class TestSitesAndLandmarks:
    def test_what_the_pages_advise_can_be_asked_for(self, tmp_path):
        """Whole months, two hospitals, and those who have come to month 5: in the run, and on the same rows again."""
        n = 400
        wards = np.where(np.arange(n) % 2, "north", "south")
        frame = patients(n).assign(months=lambda f: np.ceil(f["months"]), ward=wards).drop(columns=["visit_of", "seen"])
        words = ["--site", "ward", "--drop", "ward", "--landmarks", "5", "--last-seen", "end"]
        done = run(written(tmp_path, frame), *words, out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        config = tomllib.loads((tmp_path / "run/config.toml").read_text())
        assert {name: config[name] for name in ("site", "landmarks", "last_seen")} == {
            **{"site": "ward", "landmarks": [5.0]},
            "last_seen": "end",
        }
        whole = {"ward = north", "ward = south", "landmark = 5"}
        assert whole <= set(json.loads((tmp_path / "run/audit.json").read_text())["groups"])
        settled = (tmp_path / "run/audit.html").read_text()
        assert "last_seen= (--last-seen) settles it" not in settled
        # The same rows with another answer, and rows that lack the column of sites.
        other = tmp_path / "new.csv"
        frame.drop(columns="ward").to_csv(other, index=False)
        words = [tmp_path / "run", other, "--last-seen", "unknown", "--resamples", "0", "--landmarks", "7"]
        done = CliRunner().invoke(app, ["report", *map(str, words), "--out", str(tmp_path / "new.html")])
        assert done.exit_code == 0, done.exception
        assert "these rows have no such column, 'ward' (--site)" in " ".join(done.output.split())
        assert "landmark = 7" in (tmp_path / "new.html").read_text()
        done = CliRunner().invoke(app, ["evaluate", str(tmp_path / "run"), str(other), "--site", "ward"])
        assert "--site" in error(done)

    @pytest.mark.parametrize(
        ("words", "expected"),
        [
            (["--site", "sute"], "did you mean 'site'"),
            (["--site", "site"], "sites: expected two sites or more, got here in every row"),
            (["--landmarks", "5,1000000"], "landmarks: expected times before the last event"),
            (["--last-seen", "start"], "--last-seen: expected one of"),
        ],
    )
    def test_what_the_report_would_refuse_is_refused_before_training(self, tmp_path, monkeypatch, words, expected):
        monkeypatch.setattr("xcal.cli.fit_run.train", lambda *_, **__: pytest.fail("it was trained"))
        assert expected in error(run(written(tmp_path, patients()), *words, out=tmp_path / "run"))


def of_one_person(frame):
    """Patients with a marker that no two of them share, and three wards that are named after their one patient."""
    rng, wards = np.random.default_rng(5), np.array(["north", "south"], dtype=object)
    frame = frame.drop(columns=["visit_of", "site"]).assign(months=lambda f: f["months"] * 1000)
    frame["marker"], frame["ward"] = rng.lognormal(size=len(frame)), wards[rng.integers(0, 2, len(frame))]
    frame.loc[[3, 7, 8], "ward"] = [f"ward of {name} Quux" for name in "JAB"]
    frame.loc[[5, 9], "seen"] = None
    frame["part"] = ["train", "train", "train", "test"] * (len(frame) // 4)
    return frame


@pytest.mark.parametrize("named", [False, True])
def test_no_single_row_is_in_what_a_run_says_and_writes(tmp_path, named):
    frame = of_one_person(patients(160))
    asked = ["--split", "part", "--by", "ward", "--drop", "patient", *(["--min-cell", "0"] if named else [])]
    done = run(written(tmp_path, frame), *asked, out=tmp_path / "run")
    assert done.exit_code == 0, done.exception
    files = [path for path in (tmp_path / "run").iterdir() if path.suffix != ".safetensors"]
    told = {"screen": done.output} | {path.name: path.read_text(encoding="utf-8") for path in files}
    assert {"frontier.html", "audit.html", "audit.json", "summary.json", "frontier.csv"} <= set(told)
    if named:
        assert all("Quux" in told[place] for place in ("screen", "audit.html", "audit.json", "summary.json"))
        assert json.loads(told["audit.json"])["data"]["last_time"] == frame["months"][frame["part"] == "test"].max()
        assert tomllib.loads(told["config.toml"])["min_cell"] == 0
        return
    numbers = {place: set(re.findall(r"\d+\.\d+", text)) for place, text in told.items()}
    for column in ("months", "marker"):
        # Six digits of a small number stand on a page by chance.
        digits = (6, 7, 8, 17) if column == "months" else (8, 17)
        exact = {f"{value:.{k}g}" for value in frame[column] for k in digits} | set(map(repr, frame[column].tolist()))
        for place, found in numbers.items():
            assert not {number for number in exact if "." in number} & found, (place, column)
    assert not any("Quux" in text for text in told.values())
    assert not any("row 1" in told[place] for place in ("frontier.html", "audit.html"))
    (seen,) = [column for column in summary(tmp_path / "run")["columns"] if column["name"] == "seen"]
    assert seen["missing"] is None
    assert re.search(r"^seen +date +<5 ", done.stdout, re.MULTILINE)


SECRET = "Quux-4711"
BAD_CELLS = {
    "time": (lambda f: changed(f, "months", 3, SECRET), []),
    "a negative time": (lambda f: changed(f, "months", 3, -4711.5), []),
    "feature": (lambda f: changed(f, "age", 4, SECRET), []),
    "decimal comma": (lambda f: f.assign(age=[f"{k},4711" for k in range(len(f))]), []),
    "split": (lambda f: f.assign(part=SECRET), ["--split", "part"]),
    "event": (lambda f: f.assign(died=[f"{SECRET}-{k}" for k in range(len(f))]), []),
    "event value": (lambda f: f.assign(died=[f"{SECRET}-{k}" for k in range(len(f))]), ["--event-value", "dead"]),
    "group": (
        lambda f: f.assign(patient=SECRET, part=["train", "test"] * (len(f) // 2)),
        ["--split", "part", "--group", "patient"],
    ),
    "date": (lambda f: changed(f, "seen", 4, "2021-02-30").fillna({"seen": "2021-02-01"}), []),
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_an_error_names_column_and_line_but_no_cell(tmp_path, case):
    make, words = BAD_CELLS[case]
    told = error(run(written(tmp_path, make(patients(60))), *words, out=tmp_path / "run"))
    assert SECRET not in told
    assert "4711" not in told
    assert "2021-02-30" not in told
    assert re.search(r"column '\w+'|--group patient", told)


def test_an_error_names_the_values_that_many_rows_have(tmp_path):
    frame = patients(60).assign(died=lambda f: np.where(f["died"] == 1, "dead", "alive"))
    frame.loc[0, "died"] = SECRET
    told = error(run(written(tmp_path, frame), out=tmp_path / "run"))
    assert "'dead'" in told
    assert "'alive' and 1 more" in told or "'dead' and 1 more" in told
    assert SECRET not in told


class TestOddColumns:
    def found(self, tmp_path, frame, *words):
        done = run(written(tmp_path, frame), *words, out=tmp_path / "run", time="months", event="died")
        assert done.exit_code == 0, done.exception
        return done, left_out(tmp_path / "run")

    def test_ids(self, tmp_path):
        frame = patients(60).assign(number=np.random.default_rng(0).permutation(60) + 1000)
        done, out = self.found(tmp_path, frame)
        assert "as those of an id" in out["number"]
        assert "--keep number" in done.stdout
        assert "patient" in out

    def test_an_id_is_kept_if_asked(self, tmp_path):
        frame = patients(60).assign(number=np.random.default_rng(0).permutation(60) + 1000)
        assert "number" not in self.found(tmp_path, frame, "--keep", "number")[1]

    @pytest.mark.parametrize(
        ("column", "expected"),
        [
            (lambda f: f["months"], "it is the time"),
            (lambda f: f["months"] * 30.4, "it is the time"),
            (lambda f: -f["months"], "it is the time"),
            (lambda f: f["months"].round(1), "it is the time, perhaps rounded"),
            (lambda f: f["died"], "it is the event"),
            (lambda f: f["died"].map({0: "alive", 1: "dead"}), "it is the event"),
            (lambda f: 2 - f["died"], "it is the event"),
            (lambda f: f["died"].map({0: None, 1: "heart"}), "filled exactly in the rows that had the event"),
        ],
    )
    def test_the_outcome_again(self, tmp_path, column, expected):
        frame = patients(60)
        done, out = self.found(tmp_path, frame.assign(again=column(frame)))
        assert expected in out["again"]
        assert "note: column 'again' is left out" in done.stdout

    def test_nearly_the_time_is_said_and_used(self, tmp_path):
        frame = patients(60)
        frame["nearly"] = frame["months"] + np.random.default_rng(0).normal(0, 0.1 * frame["months"].std(), 60)
        done, out = self.found(tmp_path, frame)
        assert "nearly" not in out
        assert "column 'nearly' follows the time closely" in done.stdout

    def dated(self, n=60, seed=1):
        """Patients with the day of entry and the last day, of which each alone says next to nothing of the time."""
        frame = patients(n)
        entry = pd.Timestamp("1990-01-01") + pd.to_timedelta(np.random.default_rng(seed).integers(0, 6000, n), "D")
        last = entry + pd.to_timedelta((30.4 * frame["months"]).round().to_numpy(), "D")
        return frame.assign(entry=entry.strftime("%Y-%m-%d"), last=last.strftime("%Y-%m-%d"))

    def understood(self, tmp_path, frame, **settings):
        """What is understood of a file before anything is trained: columns left out, and notes."""
        path = written(tmp_path, frame)
        parts = read_parts(FitSettings(data=str(path), time="months", event="died", **settings))
        reasons = {column.name: column.left_out for column in parts.understanding.columns if column.left_out}
        assert set(parts.train.X.columns) == set(parts.test.X.columns) == set(parts.understanding.features)
        return reasons, parts.understanding.notes

    def test_two_dates_that_make_the_time(self, tmp_path):
        out, notes = self.understood(tmp_path, self.dated())
        assert "its difference to 'entry' is the time" in out["last"]
        assert "entry" not in out
        assert any("'last' is left out" in note and "--keep last" in note for note in notes)

    def test_two_dates_with_empty_cells_make_the_time_too(self, tmp_path):
        frame = self.dated()
        frame.loc[::7, "entry"] = None
        frame.loc[::5, "last"] = None
        assert "is the time" in self.understood(tmp_path, frame)[0]["last"]

    def test_two_ages_in_whole_years_are_said_and_used(self, tmp_path):
        frame = patients(240)
        frame["age_at_entry"] = np.random.default_rng(2).integers(30, 80, 240)
        frame["age_at_end"] = (frame["age_at_entry"] + frame["months"] / 6).round()
        out, notes = self.understood(tmp_path, frame)
        assert "age_at_end" not in out
        expected = "the difference of the columns 'age_at_end' and 'age_at_entry' follows the time closely"
        assert sum(expected in note for note in notes) == 1

    def test_a_pair_is_kept_if_asked_with_a_word_of_warning(self, tmp_path):
        out, notes = self.understood(tmp_path, self.dated(), keep=("last",))
        assert "last" not in out
        assert any("the difference of the columns 'last' and 'entry'" in note for note in notes)

    def test_two_dates_that_have_nothing_to_do_with_the_time_are_used(self, tmp_path):
        frame = self.dated()
        out, notes = self.understood(
            tmp_path, frame.assign(last=frame["last"].sample(frac=1, random_state=0).to_numpy())
        )
        assert not {"entry", "last"} & set(out)
        assert not any("difference" in note for note in notes)

    def test_dates_of_the_end_after_one_common_start(self, tmp_path):
        frame = patients(60)
        last = pd.Timestamp("2001-01-01") + pd.to_timedelta((30.4 * frame["months"]).round().to_numpy(), "D")
        assert "it is the time" in self.understood(tmp_path, frame.assign(last=last.strftime("%Y-%m-%d")))[0]["last"]

    def test_blanks_around_a_text_are_no_other_category(self, tmp_path):
        frame = patients(60)
        frame.loc[::3, "sex"] = frame["sex"][::3] + " "
        frame.loc[1, "sex"] = "  "
        path = written(tmp_path, frame)
        parts = read_parts(FitSettings(data=str(path), time="months", event="died", by=("sex",), drop=("visit_of",)))
        both = pd.concat([parts.train.X["sex"], parts.test.X["sex"]])
        assert set(both.dropna()) == {"f", "m"}
        assert both.isna().sum() == 1
        assert set(parts.test.labels["sex"].dropna()) == {"f", "m"}

    def test_ids_of_patients_with_several_rows(self, tmp_path):
        frame = patients(60).assign(patient=[f"P{k:03d}" for k in np.arange(60) * 4 // 5])
        done, out = self.found(tmp_path, frame)
        assert "as an id does" in out["patient"]
        assert "if they name patients, --group keeps the rows of each together" in " ".join(done.stdout.split())
        assert "--keep patient" not in done.stdout

    def test_dates_that_can_be_read_in_two_ways(self, tmp_path):
        frame = patients(60).assign(seen=[f"{k % 12 + 1}.{k % 11 + 1}.2020" for k in range(60)])
        done, out = self.found(tmp_path, frame)
        assert "in two ways" in out["seen"]
        (seen,) = [column for column in summary(tmp_path / "run")["columns"] if column["name"] == "seen"]
        assert "--dates day-first or --dates month-first" in seen["advice"]
        assert "--keep seen" not in done.stdout

    def test_decimal_commas_are_no_categories(self, tmp_path):
        frame = patients(60).assign(creatinine=[f"{1 + k / 10:.1f}".replace(".", ",") for k in range(60)])
        told = error(run(written(tmp_path, frame, sep=";"), "--separator", ";", out=tmp_path / "run"))
        assert "column 'creatinine', line 2: expected numbers with a decimal point" in told

    def test_a_column_that_is_nearly_right(self, tmp_path):
        told = error(run(written(tmp_path, patients(60)), out=tmp_path / "run", time="Month"))
        assert "did you mean 'months'?" in told

    def test_grades_with_a_word_are_categories(self, tmp_path):
        frame = patients(60).assign(grade=["1", "2", "3", "unknown"] * 15)
        self.found(tmp_path, frame)
        (grade,) = [c for c in summary(tmp_path / "run")["columns"] if c["name"] == "grade"]
        assert grade["kind"] == "category"


class TestOddOutcomes:
    def test_sixty_rows(self, tmp_path):
        done = run(written(tmp_path, patients(60)), out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        # Those held out to validate are too few to judge by, so that all rows do.
        assert "cross-fitted rows" in " ".join(done.stdout.split())

    def test_nobody_is_censored(self, tmp_path):
        done = run(written(tmp_path, patients(60).assign(died=1)), out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        assert "no row is censored" in done.stdout

    def test_hardly_any_events(self, tmp_path):
        frame = patients(400)
        frame["died"] = (np.arange(400) % 20 == 0).astype(int)
        done = run(written(tmp_path, frame), out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        assert "95.0% of the rows are censored" in " ".join(done.stdout.split())

    def test_whole_months(self, tmp_path):
        frame = patients(240)
        frame["months"] = np.minimum(np.ceil(frame["months"] / 5), 12)
        done = run(written(tmp_path, frame), out=tmp_path / "run")
        assert done.exit_code == 0, done.exception
        assert "different times, whole months perhaps" in " ".join(done.stdout.split())

    def test_nanoseconds_are_months_in_another_unit(self, tmp_path):
        """A power of two, so that the same model is trained: quantiles are those of months times the unit."""
        unit, frame = 2.0**51, patients(80)
        assert run(written(tmp_path, frame), out=tmp_path / "months").exit_code == 0
        large = written(tmp_path, frame.assign(months=frame["months"] * unit), "large.csv")
        assert run(large, out=tmp_path / "large").exit_code == 0
        models = [xcal.load(tmp_path / name / "model.safetensors") for name in ("months", "large")]
        X = frame.assign(seen=pd.to_datetime(frame["seen"]))[[c.name for c in models[0].encoding_.columns]]
        months, large = (model.predict_quantile(X, 0.2, extrapolate=True) for model in models)
        np.testing.assert_allclose(large / unit, months, rtol=1e-6)


class TestConfig:
    def test_other_bytes_are_refused(self, tmp_path):
        path = written(tmp_path, patients(60))
        assert run(path, out=tmp_path / "run").exit_code == 0
        written(tmp_path, patients(60, seed=1))
        config = tmp_path / "run/config.toml"
        again = ["fit", "--config", str(config), "--out", str(tmp_path / "again")]
        assert "expected the bytes of which" in error(CliRunner().invoke(app, again))
        # Named on the command, it is taken as it is.
        assert merged(config, {"data": str(path)}).data == str(path)

    def test_what_the_command_says_counts(self, tmp_path):
        config = tmp_path / "c.toml"
        config.write_text('data = "d.csv"\ntime = "t"\nevent = "e"\nsplit = "part"\nseeds = 2\n')
        settings = merged(config, as_settings({"seeds": 5, "test": "other.csv", "time": None}))
        assert (settings.seeds, settings.test, settings.split, settings.time) == (5, "other.csv", None, "t")

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("colour = 1", "colour: expected one of the keys data"),
            ("seeds = 'two'", "seeds: expected a whole number"),
            ("drop = 'age'", "drop: expected a list"),
            ("time = 3", "time: expected text"),
            ("time = ", "expected a TOML file"),
        ],
    )
    def test_a_bad_file(self, tmp_path, line, expected):
        config = tmp_path / "c.toml"
        config.write_text(f"{line}\n")
        with pytest.raises(ValueError, match=expected):
            merged(config, {})

    def test_nothing_given(self):
        assert "expected a file, or --config" in error(CliRunner().invoke(app, ["fit"]))

    def test_every_setting_comes_back(self, tmp_path):
        from xcal.cli.run_folder import write_config

        path = written(tmp_path, patients(60), 'ein "Name" \\ mit ä.csv')
        settings = FitSettings(
            str(path), "t", "e", "dead", None, (), "from", None, None, "who", ";", ",", "day-first", None, "part", "g",
            0.3, ("a",), ("b", "c"), True, ("s",), "ward", ("x",), "weibull", (0.0, 1e-5), 2, "always", 7, (1.0, 2.5),
            (1.5,), "end", "months", 0, 3,
        )  # fmt: skip
        by_cause = replace(settings, event=None, event_value=None, cause="c", causes=("one", "two"))
        between = replace(settings, time=None, event=None, event_value=None, lower="l", upper="u")
        for one in (settings, by_cause, between):
            (tmp_path / "c.toml").write_text(write_config(one), encoding="utf-8")
            assert merged(tmp_path / "c.toml", {}) == one
