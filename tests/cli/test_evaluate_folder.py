"""``xcal evaluate`` on a folder of predictions, beside ``xcal evaluate RUN FILE``."""

import json

import pytest
from typer.testing import CliRunner

from tests.outofcore.rows import predictions, written
from xcal.cli.app import app


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("predictions"), predictions(500), 2)


def test_the_metrics_are_printed_and_written(folder, tmp_path):
    done = call("evaluate", folder, "--out", tmp_path / "m.json")
    assert done.exit_code == 0, done.exception
    assert "500 rows in 2 files" in done.stdout
    assert "harrell" in done.stdout
    stored = json.loads((tmp_path / "m.json").read_text())
    assert stored["rows"] == 500
    again = call("evaluate", folder, "--out", tmp_path / "m.json", "--json", "--horizons", "0.5,1")
    shown = json.loads(again.stdout)
    assert {metric["at"] for metric in shown["metrics"]} == {None, 0.5, 1.0}


def test_what_does_not_fit_is_refused(folder, tmp_path):
    assert "--out: expected a JSON file" in str(call("evaluate", folder).exception)
    out = ("--out", tmp_path / "m.json")
    assert "--by: expected with a run and a file" in str(call("evaluate", folder, *out, "--by", "sex").exception)
    assert "engine: expected one of" in str(call("evaluate", folder, *out, "--engine", "spark").exception)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    assert "is a run of xcal fit" in str(call("evaluate", tmp_path / "run", *out).exception)
    assert "--out: expected with a folder" in str(call("evaluate", tmp_path / "run", "new.csv", *out).exception)


def test_ctrl_c_says_how_to_resume(folder, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("xcal.outofcore.evaluation.piece_state", stop)
    done = call("evaluate", folder, "--out", tmp_path / "m.json")
    assert done.exit_code == 130
    assert "run the same command again to resume" in done.stderr
    assert not (tmp_path / "m.json").exists()
