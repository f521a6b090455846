"""Checkpoints on a bad disk, and checkpoint files of any content."""

import errno
import json
import logging
import os
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch

from tests.training.simulate import same_state, simulated_rows, small_mlp
from xcal.distributions import family
from xcal.training import TrainingConfig, checkpoint, fit_path
from xcal.training.checkpoint import read_tensors, write_tensors

LOGNORMAL = family("lognormal")
ROWS, HELD_OUT = simulated_rows(200), simulated_rows(100, seed=1)
CONFIG = TrainingConfig(epochs=6, batch_size=50, learning_rate=1e-2, checkpoint_every=1)


def fit(folder=None, **options):
    arguments = {"lambdas": (0.0, 5.0), "config": CONFIG} | options
    return fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, checkpoint=folder, **arguments)


def stop_after(epoch):
    def progress(report):
        if report.epoch >= epoch:
            raise KeyboardInterrupt

    return progress


@pytest.fixture
def disk(monkeypatch):
    """A disk that is full while `full` says so."""
    fsync, state = os.fsync, {"full": False}

    def full_at_times(handle):
        if state["full"]:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", full_at_times)
    return state


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
def test_a_full_disk_costs_one_warning_and_not_the_run(tmp_path, disk, caplog, mode):
    disk["full"] = True
    path = fit(tmp_path, mode=mode, lambdas=(5.0,) if mode == "sequential" else (0.0, 5.0))
    assert path.history.epochs == 6
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "path.ckpt could not be written after epoch 1: No space left on device. Training goes on" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_the_next_checkpoint_tries_again(tmp_path, disk, caplog):
    caplog.set_level(logging.INFO)
    full_in = {1, 2, 4}

    def progress(report):
        # Reports come after a checkpoint: this is about the next one.
        disk["full"] = report.epoch + 1 in full_in
        if report.epoch == 5:
            raise KeyboardInterrupt

    disk["full"] = True
    fit(tmp_path, progress=progress)
    messages = [record.message for record in caplog.records if record.message.startswith("checkpoint")]
    assert [("could not" in text, text.split("after epoch ")[1][0]) for text in messages] == [
        (True, "1"), (False, "3"), (True, "4"), (False, "5"),
    ]  # fmt: skip
    resumed, whole = fit(tmp_path), fit()
    np.testing.assert_array_equal(resumed.history.total, whole.history.total)
    assert all(same_state(resumed.state(k), whole.state(k)) for k in range(2))


FULL = """
import resource, sys
from tests.training.test_checkpoints import fit
# No file may be larger than this: what the operating system does is what it does on a full disk.
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
print(fit(sys.argv[1]).history.epochs)
"""


@pytest.mark.parametrize("with_safetensors", [True, False])
@pytest.mark.ci
def test_a_write_that_the_operating_system_refuses(tmp_path, with_safetensors):
    pytest.importorskip("resource")
    code = (
        FULL
        if with_safetensors
        else "from xcal.training import checkpoint\ncheckpoint.find_spec = lambda n: None\n" + FULL
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "6", done.stderr
    assert done.stderr.count("could not be written") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_said_before_the_first_epoch(tmp_path):
    (tmp_path / "file").write_text("in the way")
    epochs = []
    with pytest.raises(OSError, match=r"^checkpoint: expected a folder that can be written, got .*file: "):
        fit(tmp_path / "file", progress=epochs.append)
    assert epochs == []


def test_a_finished_run_is_read_from_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    whole = fit(tmp_path)

    def denied(_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(checkpoint, "check_writable", denied)
    np.testing.assert_array_equal(fit(tmp_path).history.total, whole.history.total)
    with pytest.raises(PermissionError, match="checkpoint: expected a folder that can be written"):
        fit(tmp_path / "other")


def without(tensors, name):
    return {key: values for key, values in tensors.items() if key != name}


def bytes_of(text):
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


RUN = (
    "epoch",
    "failures",
    "stopped",
    "best_total",
    "best_epoch",
    "lambdas",
    "best_lambdas",
    "objective",
    "dcal",
    "total",
)
NAMES = [
    *(f"run.{name}" for name in (*RUN, "fingerprint")),
    *("now.flat", "best.flat", "adam.step", "adam.exp_avg", "adam.exp_avg_sq"),
]
FORGERIES = [
    *((f"without {name}", lambda t, name=name: without(t, name)) for name in NAMES),
    *((f"larger {name}", lambda t, name=name: t | {name: torch.zeros(7, 9, 2)}) for name in NAMES),
    *((f"empty {name}", lambda t, name=name: t | {name: torch.zeros(0)}) for name in NAMES),
    *((f"bfloat16 {name}", lambda t, name=name: t | {name: t[name].bfloat16()}) for name in NAMES),
    ("one more", lambda t: t | {"now.more": torch.zeros(3)}),
    ("negative epoch", lambda t: t | {"run.epoch": torch.tensor([-3])}),
    ("huge epoch", lambda t: t | {"run.epoch": torch.tensor([2**62])}),
    ("failure of no model", lambda t: t | {"run.failures": torch.tensor([[9, 0, 0]])}),
    ("text", lambda t: t | {"run.fingerprint": bytes_of("not JSON")}),
    ("a list", lambda t: t | {"run.fingerprint": bytes_of("[1]")}),
    ("a number", lambda t: t | {"run.fingerprint": bytes_of("1")}),
    ("an object", lambda t: t | {"run.fingerprint": bytes_of("{}")}),
    ("deep", lambda t: t | {"run.fingerprint": bytes_of("[" * 100_000)}),
    ("not UTF-8", lambda t: t | {"run.fingerprint": torch.full((9,), 255, dtype=torch.uint8)}),
]


@pytest.mark.parametrize("forge", [forge for _, forge in FORGERIES], ids=[name for name, _ in FORGERIES])
def test_a_checkpoint_of_any_content_is_one_error(tmp_path, part_way, forge):
    write_tensors(tmp_path / "path.ckpt", forge(read_tensors(part_way)))
    with pytest.raises(ValueError, match=r"^checkpoint: expected .*, got .*"):
        fit(tmp_path)


@pytest.fixture(scope="module")
def part_way(tmp_path_factory):
    """The checkpoint of a run that was stopped after three epochs."""
    folder = tmp_path_factory.mktemp("run")
    assert fit(folder, progress=stop_after(3)).interrupted
    return folder / "path.ckpt"


def test_a_fingerprint_with_more_in_it_is_of_another_version(tmp_path, part_way):
    tensors = read_tensors(part_way)
    text = json.dumps(json.loads(bytes(tensors["run.fingerprint"].numpy())) | {"more": 1})
    write_tensors(tmp_path / "path.ckpt", tensors | {"run.fingerprint": bytes_of(text)})
    with pytest.raises(ValueError, match="made with another version of xcal"):
        fit(tmp_path)


def test_an_archive_that_would_grow_is_refused(tmp_path, part_way, monkeypatch):
    path = tmp_path / "path.ckpt"
    # A view of one number that looks like 40 GB.
    torch.save({"now.flat": torch.zeros(1).expand(10**10), "digest": torch.zeros(32, dtype=torch.uint8)}, path)
    with pytest.raises(ValueError, match=r"checkpoint: expected a checkpoint file, .* other things than tensors"):
        fit(tmp_path)
    torch.save({"now.flat": [1, 2]}, path)
    with pytest.raises(ValueError, match=r"checkpoint: expected a checkpoint file, .* other things than tensors"):
        fit(tmp_path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\0" * 10**7)
    with pytest.raises(ValueError, match=r"checkpoint: expected a checkpoint file, .* compressed"):
        fit(tmp_path)
