"""One process at a time: the second is told who has the folder, and a dead one is no obstacle."""

import errno
import json
import os
import signal
import subprocess
import sys

import pytest

from xcal import _files as _locks
from xcal._files import BusyError, sole_user

HOLD = """
import sys, time
from pathlib import Path
from xcal._files import sole_user
with sole_user("checkpoint", Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_and_a_file_are_kept_for_one_user(tmp_path):
    for path in (tmp_path, tmp_path / "trials.jsonl"):
        told = rf"records: expected {path} to be free, got one that process {os.getpid()} on"
        with sole_user("records", path), pytest.raises(BusyError, match=told), sole_user("records", path):
            pass
        with sole_user("records", path), sole_user("records", tmp_path / "another"):
            pass
        with sole_user("records", path):
            pass
    assert names(tmp_path) == []


def test_a_killed_process_holds_nothing_and_a_living_one_is_named(tmp_path):
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=f"process {other.pid} on .* \\(since 20"), sole_user("--out", tmp_path):
            pass
    finally:
        other.send_signal(signal.SIGKILL)
        other.wait()
        other.stdout.close()
    assert names(tmp_path) == [".user.lock"]
    # Whatever the clock says about its age.
    os.utime(tmp_path / ".user.lock", (2**40, 2**40))
    with sole_user("--out", tmp_path):
        assert json.loads((tmp_path / ".user.lock").read_text())["process"] == os.getpid()
    assert names(tmp_path) == []


def test_a_lock_file_that_says_nothing_still_locks(tmp_path):
    with sole_user("--out", tmp_path):
        for content in ("", "[" * 50_000, '{"process": 1}', "null"):
            (tmp_path / ".user.lock").write_text(content)
            with pytest.raises(BusyError, match="another process is using"), sole_user("--out", tmp_path):
                pass


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_who_cannot_write_needs_no_lock(tmp_path, monkeypatch, number):
    def denied(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", denied)
    with sole_user("checkpoint", tmp_path):
        pass


def test_a_file_system_without_locks_is_used_without(tmp_path, monkeypatch):
    def unsupported(*_, **__):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(_locks.FileLock, "acquire", unsupported)
    with sole_user("checkpoint", tmp_path), sole_user("checkpoint", tmp_path):
        pass
    assert names(tmp_path) == []


def test_a_full_disk_leaves_a_lock_without_a_name(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(type(tmp_path), "write_text", full)
    told = "another process is using"
    with sole_user("checkpoint", tmp_path), pytest.raises(BusyError, match=told), sole_user("checkpoint", tmp_path):
        pass
