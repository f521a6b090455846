"""``torchrun ... xcal fit``: one run, said and written once, that survives a killed process."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from tests.cli.test_fit import patients, written
from xcal.cli.app import app

OPTIONS = ["--time", "months", "--event", "died", "--seeds", "1", "--lambdas", "0,10", "--resamples", "0"]
EPOCHS = 25

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def command(path, out):
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "-m", "--"]
    return [sys.executable, *launch, "xcal", "fit", str(path), "--out", str(out), "--epochs", str(EPOCHS), *OPTIONS]


def environment():
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    return {**clean, "OMP_NUM_THREADS": "1"}


def worker(launcher, rank):
    """Process number of a worker: a child of torchrun that was told this rank."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            told = (entry / "environ").read_bytes().split(b"\0")
        except (OSError, IndexError):  # it ended meanwhile
            continue
        if parent == launcher and f"RANK={rank}".encode() in told:
            return int(entry.name)
    return None


@pytest.mark.ci
def test_a_killed_process_is_replaced_and_the_run_is_that_of_one_process(tmp_path):
    path, out = written(tmp_path, patients()), tmp_path / "several"
    launched = subprocess.Popen(
        command(path, out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    end = time.monotonic() + 240
    while not list(out.glob(".training-*/path.ckpt")):
        assert launched.poll() is None, launched.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    os.kill(worker(launched.pid, 1), signal.SIGKILL)
    said, errors = launched.communicate(timeout=240)
    assert launched.returncode == 0, errors
    # The process that is left, if it was still training, says in one sentence that it is alone.
    told = [line for line in errors.splitlines() if line.startswith("error:")]
    assert len(told) <= 1
    assert all("process 0 of 2 lost the others" in line for line in told)
    assert said.count("Wrote to") == 1  # by the first process, in the second attempt
    assert not list(out.glob(".training-*"))

    alone = ["fit", str(path), "--out", str(tmp_path / "one"), "--epochs", str(EPOCHS), *OPTIONS]
    assert CliRunner().invoke(app, alone).exit_code == 0
    one, several = (pd.read_csv(tmp_path / name / "frontier.csv") for name in ("one", "several"))
    # Single precision, sums in another order, some hundred steps; a wrong batch would show in the first digits.
    np.testing.assert_allclose(several.to_numpy(dtype=float), one.to_numpy(dtype=float), rtol=0.02, atol=0.005)
