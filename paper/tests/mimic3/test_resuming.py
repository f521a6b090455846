"""A run that is stopped anywhere and started again writes the same bytes as one that was not."""

import hashlib
import json
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from paper.tests.mimic3.conftest import manifest_of
from xcal_paper.mimic3 import prepare

# What is reported while each table is read and each step is done.
MOMENTS = ["CHARTEVENTS", "LABEVENTS", "OUTPUTEVENTS", "events", "timeseries", "instances", "statistics", "features"]
MOMENTS.append("discretised")
STEPS = ["stays", "events", "timeseries", "instances", "features", "discretised"]

# Imports once, and then a child for each moment: it is killed there, and the next one resumes.
KILLED = """
import json, os, pathlib, signal, sys
import duckdb, pyarrow.parquet
from xcal_paper.mimic3 import prepare
raw, out, *moments = sys.argv[1:]
for moment in moments:
    def report(doing, done, total):
        if doing == moment:
            os.kill(os.getpid(), signal.SIGKILL)
    child = os.fork()
    if child == 0:
        prepare(raw, out, discretised=True, threads=1, report=report)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    manifest = json.loads(pathlib.Path(out, "manifest.json").read_text())
    names = sorted(name for name in os.listdir(out) if not name.startswith("."))
    print(json.dumps([os.waitstatus_to_exitcode(status), manifest["finished"], list(manifest["steps"]), names]))
"""


class StoppedError(Exception):
    """Raised in the middle of a run."""


def prepared(raw, out, **settings):
    return prepare(raw, out, discretised=True, **{"threads": 1} | settings)


@pytest.fixture(scope="module")
def whole(made_up, tmp_path_factory):
    """The manifest, with all checksums, of a run that was not stopped."""
    out = tmp_path_factory.mktemp("whole") / "los"
    assert prepared(made_up, out).resumed == ()
    return manifest_of(out)


def names_in(out):
    return {entry.name for entry in out.iterdir() if not entry.name.startswith(".")}


def check_unfinished(out):
    """Only finished steps have their folder, and each of them is in the manifest."""
    manifest = manifest_of(out)
    assert manifest["finished"] is False
    assert names_in(out) == {"manifest.json", *manifest["steps"]}


def test_stopped_by_an_error_at_every_step_and_resumed(made_up, whole, tmp_path):
    out = tmp_path / "los"
    for moment in MOMENTS:

        def report(doing, done, total, moment=moment):
            if doing == moment:
                raise StoppedError

        with pytest.raises(StoppedError):
            prepared(made_up, out, report=report)
        check_unfinished(out)
    done = list(manifest_of(out)["steps"])
    assert done == STEPS[:-1]
    assert prepared(made_up, out).resumed == tuple(done)
    assert manifest_of(out) == whole
    assert names_in(out) == {"manifest.json", *STEPS}
    assert not (out / ".work").exists()


@pytest.mark.ci
def test_killed_at_every_step_and_resumed(made_up, whole, tmp_path):
    out = tmp_path / "los"
    words = [sys.executable, "-c", KILLED, str(made_up), str(out), *MOMENTS]
    lines = subprocess.run(words, check=True, capture_output=True, text=True).stdout.splitlines()
    assert len(lines) == len(MOMENTS)
    for line in lines:
        code, finished, steps, names = json.loads(line)
        assert code == -signal.SIGKILL
        assert not finished
        assert names == sorted(["manifest.json", *steps])
    assert prepared(made_up, out).resumed == tuple(STEPS[:-1])
    assert manifest_of(out) == whole


def test_a_table_that_was_read_is_not_read_again(made_up, whole, tmp_path):
    out = tmp_path / "los"

    def stop(doing, done, total):
        if doing == "LABEVENTS":
            raise StoppedError

    with pytest.raises(StoppedError):
        prepared(made_up, out, report=stop)
    seen = set()
    prepared(made_up, out, report=lambda doing, done, total: seen.add(doing))
    assert "CHARTEVENTS" not in seen
    assert "LABEVENTS" in seen
    assert manifest_of(out) == whole


def test_a_finished_run_does_nothing_more(made_up, whole, tmp_path):
    out = tmp_path / "los"
    prepared(made_up, out)
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")}
    assert prepared(made_up, out).resumed == tuple(STEPS)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet")} == before


def test_a_lost_file_makes_its_step_and_all_later_ones_run_again(made_up, whole, tmp_path):
    out = tmp_path / "los"
    prepared(made_up, out)
    next((out / "timeseries").glob("*/*.parquet")).unlink()
    assert prepared(made_up, out).resumed == ("stays", "events")
    assert manifest_of(out) == whole


def test_threads_and_memory_change_nothing(made_up, whole, tmp_path):
    prepared(made_up, tmp_path / "los", threads=3, memory="1GB")
    assert manifest_of(tmp_path / "los") == whole


def test_checksums_and_rows_are_those_of_the_files(made_up, whole, tmp_path):
    out = tmp_path / "los"
    prepared(made_up, out)
    written = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    entries = {name: entry for step in whole["steps"].values() for name, entry in step["files"].items()}
    assert written == {*entries, "manifest.json", ".manifest.json.lock"}
    for name, entry in entries.items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == entry["sha256"]
        if name.endswith(".parquet"):
            assert pq.ParquetFile(out / name).read(columns=["stay_id"]).num_rows == entry["rows"]


def test_another_seed_gives_other_splits(made_up, whole, tmp_path):
    prepared(made_up, tmp_path / "los", seed=1)
    other = manifest_of(tmp_path / "los")
    assert other["steps"]["stays"]["files"] != whole["steps"]["stays"]["files"]
