"""Work in processes of this machine: every result once, and one clear error for whatever goes wrong in one of them."""

import os
import signal
import subprocess
import sys
import time

import pytest

from xcal._workers import WorkerProcesses


def work(shared, task, report):
    kind, value = task
    report(value)
    if kind == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "wrong":
        raise ValueError(f"value: expected another, got {value}")
    if kind == "odd":
        raise OddError("one", "two")
    return shared + value, os.getpid()


class OddError(Exception):
    """An error that cannot be made again from its message."""

    def __init__(self, one, two):
        super().__init__(one)


def results(tasks, count=2, report=lambda amount: None):
    with WorkerProcesses(work, count, threads=None) as workers:
        return list(workers.results(100, tasks, report))


def test_every_task_is_done_once_and_elsewhere():
    told = []
    found = results([("", value) for value in range(7)], report=told.append)
    assert sorted((number, value) for number, (value, _) in found) == [(k, 100 + k) for k in range(7)]
    assert sorted(told) == list(range(7))
    assert os.getpid() not in {process for _, (_, process) in found}


def test_processes_are_kept_for_other_work():
    tasks = [("", value) for value in range(4)]
    with WorkerProcesses(work, 2, threads=None) as workers:
        found = [list(workers.results(shared, tasks, lambda amount: None)) for shared in (100, 200)]
    for shared, made in zip((100, 200), found, strict=True):
        assert sorted(value for _, (value, _) in made) == [shared + k for k in range(4)]
    one, other = ({process for _, (_, process) in made} for made in found)
    assert len(one | other) <= 2


def test_an_error_is_raised_as_it_was_there():
    with pytest.raises(ValueError, match="value: expected another") as caught:
        results([("wrong", 3)])
    assert str(caught.value) == "value: expected another, got 3"
    assert "in work" in caught.value.__notes__[0]
    with pytest.raises(RuntimeError, match="OddError: one"):
        results([("odd", 0)], count=1)


def test_a_process_that_dies_is_one_message_and_what_was_done_counts():
    with WorkerProcesses(work, 1, threads=None) as workers:
        made = workers.results(0, [("", 1), ("die", 2), ("", 3)], lambda amount: None)
        assert next(made)[0] == 0
        with pytest.raises(
            ChildProcessError, match=r"worker process \d+ died by SIGKILL .* run the same command again"
        ):
            next(made)


def test_the_block_ends_its_processes_where_nobody_waits_for_the_rest():
    with WorkerProcesses(work, 2, threads=None) as workers:
        made = workers.results(0, [("", value) for value in range(50)], lambda amount: None)
        next(made)
        processes = list(workers._processes.values())
    assert not any(process.is_alive() for process in processes)


SLEEPER = """
import os, signal, sys, time
from xcal._workers import WorkerProcesses

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so would its child

def sleep(shared, task, report):
    report(os.getpid())
    time.sleep(600)

if __name__ == "__main__":
    with WorkerProcesses(sleep, 1, threads=None) as workers:
        list(workers.results(None, [1], lambda number: print(number, flush=True)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.ci
def test_no_process_outlives_the_first_one(tmp_path, sent):
    script = tmp_path / "sleeper.py"
    script.write_text(SLEEPER)
    command = [sys.executable, script]
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(command, **quiet, start_new_session=True) as first:
        child = int(first.stdout.readline())
        first.send_signal(sent)
        try:
            first.wait(60)
        finally:
            first.kill()
    until = time.monotonic() + 60
    while os.path.exists(f"/proc/{child}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{child}")
