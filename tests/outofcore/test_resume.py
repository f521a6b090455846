"""An evaluation that was interrupted or killed resumes; a file that changed is noticed."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.outofcore.rows import predictions, written
from tests.outofcore.test_evaluate_folder import _small_pieces, run, same
from xcal._files import BusyError, sole_user
from xcal._workers import WorkerProcesses
from xcal.outofcore import evaluation
from xcal.outofcore import evaluation as local
from xcal.outofcore.evaluation import Progress, SideFile

__all__ = ["_small_pieces"]


@pytest.fixture
def folder(tmp_path):
    return written(tmp_path / "in", predictions(), 6)


def stopped_after(monkeypatch, pieces, error=KeyboardInterrupt):
    """Let so many pieces be counted, then stop as Ctrl-C does."""
    counted = []
    own = local.piece_state

    def count(work, piece, report=None):
        if len(counted) == pieces:
            raise error
        counted.append(piece)
        return own(work, piece, report)

    monkeypatch.setattr(local, "piece_state", count)
    return counted


@pytest.mark.parametrize("pieces", [1, 3, 9])
def test_an_interrupted_run_resumes(tmp_path, folder, monkeypatch, pieces):
    whole = run(folder, tmp_path / "whole.json")
    out = tmp_path / "m.json"
    with monkeypatch.context() as patch:
        stopped_after(patch, pieces)
        with pytest.raises(KeyboardInterrupt):
            run(folder, out)
    assert not out.exists()
    with monkeypatch.context() as patch:
        counted = stopped_after(patch, 99)
        told = []
        found = run(folder, out, say=told.append)
    total = 2 * 6  # pieces of both passes: one for each file
    assert len(counted) == total - pieces
    assert told == [f"resuming: {min(pieces, 6)} + {max(0, pieces - 6)} of 2 × 6 parts are done"]
    same(whole, found)
    assert not list(tmp_path.glob("*.resume"))


def test_after_an_error_the_rest_is_counted_once_the_file_is_right(tmp_path, folder):
    columns = predictions()
    whole = run(folder, tmp_path / "whole.json")
    good = (folder / "part-005.parquet").read_bytes()
    columns["cdf"][2999] = 2.0
    written(folder, columns, 6)
    with pytest.raises(ValueError, match=r"part-005.parquet, column 'cdf'"):
        run(folder, tmp_path / "m.json")
    (folder / "part-005.parquet").write_bytes(good)
    told = []
    found = run(folder, tmp_path / "m.json", say=told.append)
    assert "part-005.parquet has changed: starting anew" in told[0]
    same(whole, found)


@pytest.mark.parametrize("how", ["other rows", "a file more", "a file less", "other settings", "damaged"])
def test_what_does_not_belong_to_the_run_does_not_count(tmp_path, folder, monkeypatch, how):
    out, settings = tmp_path / "m.json", {}
    with monkeypatch.context() as patch:
        stopped_after(patch, 4)
        with pytest.raises(KeyboardInterrupt):
            run(folder, out)
    side = tmp_path / "m.json.resume"
    assert side.exists()
    if how == "other rows":
        written(folder, predictions(seed=5), 6)
    elif how == "a file more":
        written(tmp_path / "more", predictions(100, seed=6))
        (tmp_path / "more" / "part-000.parquet").rename(folder / "x.parquet")
    elif how == "a file less":
        (folder / "part-000.parquet").unlink()
    elif how == "other settings":
        settings = {"horizons": (0.5,)}
    else:
        side.write_bytes(side.read_bytes()[:1000])
    told = []
    found = run(folder, out, say=told.append, **settings)
    assert "starting anew" in told[0]
    same(run(folder, tmp_path / "again.json", **settings), found)


class DyingWorkers(WorkerProcesses):
    """Processes that die when two pieces are done."""

    def results(self, shared, tasks, report):
        for done, found in enumerate(super().results(shared, tasks, report)):
            yield found
            if done == 1:
                for process in self._processes.values():
                    process.kill()


@pytest.mark.ci
def test_a_dead_worker_stops_the_run_with_one_message_and_it_resumes(tmp_path, folder, monkeypatch):
    whole = run(folder, tmp_path / "whole.json")
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "WorkerProcesses", DyingWorkers)
        with pytest.raises(ChildProcessError, match=r"worker process \d+ died .* run the same command again to resume"):
            run(folder, tmp_path / "m.json", processes=2)
    told = []
    same(whole, run(folder, tmp_path / "m.json", say=told.append))
    assert told[0].startswith("resuming: ")


def test_a_second_run_with_the_same_result_is_told_who_is_at_work(tmp_path, folder):
    out = tmp_path / "m.json"
    with sole_user("out", out), pytest.raises(BusyError, match=rf"out: expected {out} to be free"):
        run(folder, out)
    run(folder, out)


SCRIPT = """
import sys, time
from xcal.outofcore import EvaluationSettings, evaluate_folder, evaluation
evaluation.PIECE_ROWS = 500
write = evaluation.SideFile.write
def slow(self, progress):
    write(self, progress)
    time.sleep(0.3)
evaluation.SideFile.write = slow
if __name__ == "__main__":
    settings = EvaluationSettings(checkpoint_seconds=0, progress=False, processes=2)
    evaluate_folder(sys.argv[1], sys.argv[2], settings)
"""


def children(pid):
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=120):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")
@pytest.mark.ci
def test_a_killed_run_resumes_and_leaves_no_process(tmp_path, folder):
    whole = run(folder, tmp_path / "whole.json")
    out, script = tmp_path / "m.json", tmp_path / "evaluate.py"
    script.write_text(SCRIPT)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, str(script), str(folder), str(out)], env=environment) as process:
        wait_for(lambda: (tmp_path / "m.json.resume").exists() or process.poll() is not None)
        workers = children(process.pid)
        process.send_signal(signal.SIGKILL)
    assert len(workers) >= 2
    wait_for(lambda: not any(map(alive, workers)))
    assert not out.exists()
    told = []
    found = run(folder, out, say=told.append)
    assert told[0].startswith("resuming: ")
    same(whole, found)


def test_a_full_disk_is_one_error_and_the_earlier_metrics_stay(tmp_path, folder, monkeypatch):
    out = tmp_path / "m.json"
    out.write_text("earlier")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match=r"m\.json\.resume.*No space left on device") as caught:
            run(folder, out)
    assert "\n" not in str(caught.value)
    assert out.read_text() == "earlier"
    same(run(folder, out), run(folder, tmp_path / "whole.json"))


def test_a_folder_in_the_place_of_the_metrics_is_an_error_before_any_work(tmp_path, folder, monkeypatch):
    counted = stopped_after(monkeypatch, 99)
    with pytest.raises(IsADirectoryError, match="expected the name of a file to write, got a folder"):
        run(folder, tmp_path)
    assert counted == []


FORGED = {
    "no header of settings": {"finished": [[0], [], []]},
    "no pieces": {"settings": {"pieces": 2}},
    "a list": [1, 2],
    "pieces that are lists": {"settings": {"pieces": 2}, "finished": [[[0]], [], []]},
    "one pass": {"settings": {"pieces": 2}, "finished": [[0]]},
    "pieces that there are not": {"settings": {"pieces": 2}, "finished": [[0, 2], [], []]},
    "sums of no pieces": {"settings": {"pieces": 2}, "finished": [[], [], []]},
    "pieces without sums": {"settings": {"pieces": 2}, "finished": [[0], [1], []]},
}


@pytest.mark.parametrize("header", FORGED.values(), ids=FORGED)
def test_forged_progress_does_not_count(tmp_path, header):
    side = SideFile(tmp_path / "m.json.resume", {"pieces": 2}, seconds=0)
    with side.path.open("wb") as file:
        np.savez(file, **{"header": np.array(json.dumps(header)), "0/n": np.array(3)})
    assert side.read() == (Progress(), "it cannot be read")
    good = Progress([{0}, set(), set()], [{"n": np.array(3)}, None, None])
    side.write(good)
    assert side.read()[0].finished == good.finished


def test_an_archive_that_says_it_is_encrypted_does_not_count(tmp_path):
    side = SideFile(tmp_path / "m.json.resume", {"pieces": 2}, seconds=0)
    side.write(Progress([{0}, set(), set()], [{"n": np.array(3)}, None, None]))
    content = bytearray(side.path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 0x40  # a flag in the directory of the archive
    content[6] |= 0x40
    side.path.write_bytes(content)
    assert side.read() == (Progress(), "it cannot be read")
