"""Files are written whole or not at all, by as many writers as there are."""

import errno
import os
import stat
import subprocess
import sys
import threading
import time

import pytest

from xcal import _files
from xcal._files import check_target, check_writable, new_file, only_writer, reason, write_whole


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_file_is_replaced(tmp_path):
    path = tmp_path / "model.xcal"
    for content in (b"first", b"second"):
        write_whole(path, content)
        assert path.read_bytes() == content
    assert names(tmp_path) == ["model.xcal"]


@pytest.mark.parametrize("function", ["fsync", "replace"])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, function):
    path = tmp_path / "model.xcal"
    write_whole(path, b"old")
    monkeypatch.setattr(os, function, full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["model.xcal"]


def test_an_interrupted_block_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model.xcal"
    write_whole(path, b"old")

    def interrupted():
        with new_file(path) as part:
            part.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["model.xcal"]


def test_content_goes_to_the_disk_before_the_name_and_the_folder_after_it(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace

    def seen_fsync(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def seen_replace(*paths):
        done.append("move")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", seen_fsync)
    monkeypatch.setattr(os, "replace", seen_replace)
    write_whole(tmp_path / "file", b"content")
    assert done == ["file", "move", "folder"]


def test_permissions_are_those_of_any_new_file_or_of_the_file_replaced(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    path = tmp_path / "model.xcal"
    write_whole(path, b"a")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    path.chmod(0o600)
    write_whole(path, b"b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_a_kill_left_is_removed_when_nobody_can_be_writing_it(tmp_path):
    path = tmp_path / "model.xcal"
    old, fresh, other = (tmp_path / name for name in (".model.xcal.1.part", ".model.xcal.2.part", ".x.1.part"))
    for left in (old, fresh, other):
        left.write_bytes(b"half")
    long_ago = time.time() - 2 * 86_400
    os.utime(old, (long_ago, long_ago))
    os.utime(other, (long_ago, long_ago))
    write_whole(path, b"whole")
    assert names(tmp_path) == sorted([fresh.name, other.name, "model.xcal"])


def test_a_clock_that_jumps_does_not_remove_what_is_being_written(tmp_path, monkeypatch):
    path = tmp_path / "model.xcal"
    now = time.time
    with new_file(path) as part:
        part.write_bytes(b"slow")
        monkeypatch.setattr(time, "time", lambda: now() + 400 * 86_400)
        write_whole(path, b"quick")
        assert part.exists()
    assert path.read_bytes() == b"slow"
    assert names(tmp_path) == ["model.xcal"]


@pytest.mark.parametrize("write", [lambda path: write_whole(path, b"new"), check_target])
def test_a_folder_in_the_place_of_a_file_is_one_error(tmp_path, write):
    (tmp_path / "report").mkdir()
    with pytest.raises(IsADirectoryError, match="report: expected the name of a file to write, got a folder"):
        write(tmp_path / "report")
    assert names(tmp_path) == ["report"]
    assert names(tmp_path / "report") == []


def test_errors_name_the_file_that_was_asked_for(tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match=r"nowhere/model: expected a file that can be written, got: No such file"
    ):
        write_whole(tmp_path / "nowhere" / "model", b"new")
    (tmp_path / "file").write_bytes(b"in the way")
    with pytest.raises(NotADirectoryError, match=r"file/model: expected a file that can be written"):
        write_whole(tmp_path / "file" / "model", b"new")
    with pytest.raises(NotADirectoryError, match="file: expected a folder, got a file"):
        check_writable(tmp_path / "file")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"model: .* No space left on device \(what was there before") as caught:
        write_whole(tmp_path / "model", b"new")
    assert caught.value.errno == errno.ENOSPC
    assert reason(caught.value) == "No space left on device"


def test_errors_of_the_block_about_other_files_are_left_as_they_are(tmp_path):
    def block():
        with new_file(tmp_path / "model"):
            (tmp_path / "missing").read_bytes()

    with pytest.raises(FileNotFoundError, match=r"\[Errno 2\] No such file or directory: .*missing"):
        block()


def test_threads_that_write_one_path(tmp_path):
    path, errors = tmp_path / "model.xcal", []

    def write(k):
        try:
            for _ in range(20):
                write_whole(path, bytes([k]) * 10_000)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(set(path.read_bytes())) == 1
    assert names(tmp_path) == ["model.xcal"]


COUNT = """
import errno, sys, threading
from pathlib import Path
from xcal import _files
path, flock = Path(sys.argv[1]), sys.argv[2] == "flock"
class Unsupported(_files.FileLock):
    def acquire(self, *_, **__):
        raise OSError(errno.ENOTSUP, "Operation not supported")
if not flock:
    _files.FileLock = Unsupported
def count():
    for _ in range(25):
        with _files.only_writer(path):
            path.write_text(str(int(path.read_text()) + 1))
threads = [threading.Thread(target=count) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.parametrize("kind", ["flock", "no flock"])
def test_one_writer_at_a_time_among_threads_and_processes(tmp_path, kind):
    path = tmp_path / "number"
    path.write_text("0")
    running = [subprocess.Popen([sys.executable, "-c", COUNT, str(path), kind]) for _ in range(3)]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    assert path.read_text() == "150"


class Unsupported(_files.FileLock):
    """A lock on a file system that has none."""

    def acquire(self, *_, **__):
        raise OSError(errno.ENOTSUP, "Operation not supported")


DIE = """
import os, signal, sys
from xcal import _files
own = _files.SoftFileLock(sys.argv[1])
own.acquire()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lock_of_a_process_that_died_does_not_hold_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "FileLock", Unsupported)
    held = tmp_path / ".number.lock.held"
    assert subprocess.run([sys.executable, "-c", DIE, str(held)], check=False).returncode < 0
    assert held.exists()
    with only_writer(tmp_path / "number"):
        assert held.exists()
    assert not held.exists()


def test_a_file_system_without_flock_is_locked_by_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "FileLock", Unsupported)
    with only_writer(tmp_path / "number"):
        assert ".number.lock.held" in names(tmp_path)
    assert ".number.lock.held" not in names(tmp_path)


def test_a_folder_is_tried_and_left_as_it_was(tmp_path):
    check_writable(tmp_path / "new" / "folder")
    assert names(tmp_path / "new" / "folder") == []
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OSError, match="file"):
        check_writable(tmp_path / "file")
