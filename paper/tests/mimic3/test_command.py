"""``xcal mimic``: help that teaches, a whole run, errors of one line."""

import json
import os
import pty
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from xcal.cli.app import app, main
from xcal_paper.mimic3 import generate

run = CliRunner().invoke


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mimic") / "raw"
    generate(folder, scale=0.08, seed=5)
    return folder


@pytest.mark.parametrize("words", [[], ["prepare"], ["generate"], ["benchmark-csv"]])
def test_help_shows_a_command_to_paste_and_imports_nothing_heavy(words):
    code = (
        "import sys; sys.argv = ['xcal', *sys.argv[1:]]\n"
        "from xcal.cli.app import app\n"
        "try:\n    app()\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('numpy', 'torch', 'duckdb', 'pyarrow', 'pandas') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "mimic", *words, "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.strip().splitlines()[-1] == "[]"
    assert ("xcal mimic" if words else "prepare") in shown


def test_prepare_then_resume_then_csv(raw, tmp_path):
    out = tmp_path / "los"
    first = run(app, ["mimic", "prepare", str(raw), str(out), "--memory", "1GB", "--threads", "1", "--death", "censor"])
    assert first.exit_code == 0, first.output
    counts = json.loads((out / "manifest.json").read_text())["steps"]["instances"]["counts"]
    assert f"{counts['instances_train']:,} train" in first.output
    assert "censored at death" in first.output
    assert "found finished" not in first.output
    again = run(app, ["mimic", "prepare", str(raw), str(out), "--death", "censor"])
    assert "found finished: stays, events, timeseries, instances, features" in again.output
    done = run(app, ["mimic", "benchmark-csv", str(out), str(tmp_path / "csv")])
    assert done.exit_code == 0, done.output
    assert len(list((tmp_path / "csv").glob("*/*_timeseries.csv"))) == int(done.output.split()[0])


def test_generate_says_how_many_rows(tmp_path):
    done = run(app, ["mimic", "generate", str(tmp_path / "raw"), "--scale", "0.01", "--seed", "3"])
    assert done.exit_code == 0, done.output
    assert "CHARTEVENTS" in done.output
    assert (tmp_path / "raw" / "CHARTEVENTS.csv.gz").is_file()


def test_an_error_is_one_line_on_standard_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["xcal", "mimic", "prepare", str(tmp_path / "nowhere"), str(tmp_path / "out")])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("error: raw_dir: expected the folder with the CSV files of MIMIC-III")
    assert len(said.strip().splitlines()) == 1


def test_progress_of_every_table_is_shown_on_a_terminal_only(raw, tmp_path):
    words = ["mimic", "prepare", str(raw), "--threads", "1"]
    assert "CHARTEVENTS" not in run(app, [*words, str(tmp_path / "quiet")]).output
    ours, theirs = pty.openpty()
    program = [sys.executable, "-m", "xcal"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    shown = subprocess.Popen([*program, *words, str(tmp_path / "shown")], stderr=theirs, stdout=theirs, env=environment)
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        seen += piece
    assert shown.wait() == 0
    os.close(ours)
    for table in ("CHARTEVENTS", "LABEVENTS", "OUTPUTEVENTS", "timeseries", "features"):
        assert table.encode() in seen
