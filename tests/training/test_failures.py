"""What goes wrong in one model stays in it; what interrupts a run loses nothing."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from tests.training.simulate import same_state, simulated_rows, small_mlp
from xcal.distributions import family
from xcal.networks import MLP
from xcal.objectives import nll
from xcal.training import TrainingConfig, checkpoint, fit_path
from xcal.training.checkpoint import read_tensors, write_tensors
from xcal.training.path import _load_backward
from xcal.training.result import EpochReport, Failure

LOGNORMAL = family("lognormal")
ROWS, HELD_OUT = simulated_rows(200), simulated_rows(100, seed=1)
CONFIG = TrainingConfig(epochs=6, batch_size=50, learning_rate=1e-2, checkpoint_every=2, weight_decay=1e-3)


def dropout_mlp():
    return MLP(4, 2, hidden=(8, 8), dropout=0.2)


class Spoilt:
    """The likelihood, but in its n-th training batch one model's value, or its gradient alone, is not a number."""

    def __init__(self, call, what):
        self.call, self.what, self.calls = call, what, 0

    def __call__(self, dist, time, event):
        rows = nll(dist, time, event)
        if not torch.is_grad_enabled():
            return rows
        self.calls += 1
        if self.calls != self.call or self.what is None:
            return rows
        model = torch.zeros((*rows.shape[:2], 1), dtype=torch.bool)
        model[0, 1] = True
        if self.what == "value":
            return torch.where(model, float("nan"), rows)
        # The square root has a finite value and an infinite slope at zero.
        return rows + torch.sqrt(torch.where(model, rows * 0, 1.0)) - (~model).float()


@pytest.mark.parametrize("what", ["value", "gradient"])
def test_a_loss_that_is_not_a_number_stops_its_model_alone(what, caplog):
    # 4 batches an epoch, and a call for each seed: call 21 is batch 2 of epoch 2 with the first seed.
    arguments = {"lambdas": (0.0, 5.0, 50.0), "seeds": (0, 1), "config": CONFIG}
    clean = fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, objective=Spoilt(21, None), **arguments)
    spoilt = fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, objective=Spoilt(21, what), **arguments)
    assert spoilt.failures == (Failure(model=1, epoch=2, batch=2),)
    assert "model 1: the loss was not finite in epoch 2, in batch 2" in caplog.text
    others = [0, 2, 3, 4, 5]
    assert np.array_equal(spoilt.history.total[:, others], clean.history.total[:, others])
    assert all(same_state(spoilt.state(k), clean.state(k)) for k in others)
    assert np.array_equal(spoilt.history.total[:2, 1], clean.history.total[:2, 1])
    assert np.isnan(spoilt.history.total[2:, 1]).all()
    assert spoilt.best_epoch[1] == np.argmin(clean.history.total[:2, 1])
    assert all(torch.isfinite(values).all() for values in spoilt.state(1).values())
    assert "1 failed" in repr(spoilt)


def test_a_failure_in_sequential_mode_names_the_model_of_the_path(caplog):
    # Its weight overflows float32 in the gradient.
    path = fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, lambdas=(0.0, 1e300, 1.0), config=CONFIG, mode="sequential")
    assert path.failures == (Failure(1, 0, 0),)
    assert [record.message[:8] for record in caplog.records] == ["model 1:"]
    assert np.array_equal(np.isnan(path.history.total).any(0), [False, True, False])


def test_a_model_that_fails_at_once_keeps_its_first_weights():
    path = fit_path(
        small_mlp, LOGNORMAL, ROWS, HELD_OUT, lambdas=(0.0, 1.0), objective=Spoilt(1, "value"), config=CONFIG
    )
    untrained = fit_path(
        small_mlp, LOGNORMAL, ROWS, HELD_OUT, lambdas=(0.0,), config=CONFIG, progress=interrupt_after(0)
    )
    assert path.best_epoch.tolist()[1] == -1
    assert path.failures[0] == Failure(1, 0, 0)
    assert np.isnan(path.best().total[0, 1])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        assert same_state(path.state(1), small_mlp().state_dict())
    assert untrained.interrupted


def test_an_infinite_validation_value_is_a_failure_without_a_batch():
    time = HELD_OUT.time.clone()
    time[3] = 0.0
    event = HELD_OUT.event.clone()
    event[3] = True  # the log-normal density at zero is zero
    held_out = type(HELD_OUT)(HELD_OUT.x, time, event)
    path = fit_path(small_mlp, LOGNORMAL, ROWS, held_out, lambdas=(0.0, 1.0), config=CONFIG)
    assert path.failures == (Failure(0, 0, None), Failure(1, 0, None))
    assert "on the validation rows" in str(path.failures[0])
    assert path.history.epochs == 1


def interrupt_after(epoch, model=0):
    def progress(report):
        assert isinstance(report, EpochReport)
        if report.epoch >= epoch and model in report.models:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
def test_an_interrupt_returns_the_best_so_far(mode):
    arguments = {"lambdas": (0.0, 5.0), "seeds": (0,), "config": CONFIG, "mode": mode}
    whole = fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, **arguments)
    part = fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, progress=interrupt_after(3), **arguments)
    assert part.interrupted
    assert not whole.interrupted
    assert part.history.epochs == 3
    assert np.array_equal(part.history.total[:, 0], whole.history.total[:3, 0])
    assert part.best_epoch[0] == np.argmin(whole.history.total[:3, 0])
    if mode == "sequential":
        assert part.best_epoch[1] == -1
    assert part.network(1)(HELD_OUT.x).shape == (100, 2)


@pytest.mark.parametrize("with_safetensors", [True, False])
@pytest.mark.parametrize(("mode", "model"), [("stacked", 0), ("sequential", 1)])
def test_resuming_gives_the_same_bits(tmp_path, monkeypatch, mode, model, with_safetensors):
    if not with_safetensors:
        monkeypatch.setattr(checkpoint, "find_spec", lambda name: None)
    arguments = {
        "lambdas": (0.0, 5.0),
        "seeds": (0, 1),
        "mode": mode,
        "config": TrainingConfig(epochs=7, batch_size=50, learning_rate=1e-2, checkpoint_every=2, schedule="cosine"),
    }
    whole = fit_path(dropout_mlp, LOGNORMAL, ROWS, HELD_OUT, **arguments)
    # Interrupted after epoch 5, with the last checkpoint after epoch 4.
    part = fit_path(
        dropout_mlp, LOGNORMAL, ROWS, HELD_OUT, checkpoint=tmp_path, progress=interrupt_after(5, model), **arguments
    )
    assert part.interrupted
    seen = []
    resumed = fit_path(
        dropout_mlp, LOGNORMAL, ROWS, HELD_OUT, checkpoint=tmp_path,
        progress=lambda report: seen.append((report.epoch, int(report.models[0]))), **arguments,
    )  # fmt: skip
    assert seen[0] == (5, model)
    assert np.array_equal(resumed.history.total, whole.history.total)
    assert np.array_equal(resumed.best_epoch, whole.best_epoch)
    assert all(same_state(resumed.state(k), whole.state(k)) for k in range(4))
    assert not list(tmp_path.glob("*.part"))
    # A finished run is read, not trained again.
    again = fit_path(
        dropout_mlp, LOGNORMAL, ROWS, HELD_OUT, checkpoint=tmp_path, progress=interrupt_after(0), **arguments
    )
    assert not again.interrupted
    assert all(same_state(again.state(k), whole.state(k)) for k in range(4))


def test_failures_and_stops_survive_a_checkpoint(tmp_path):
    arguments = {"lambdas": (0.0, 5.0), "config": CONFIG, "checkpoint": tmp_path}
    first = fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, objective=Spoilt(6, "value"), **arguments)
    second = fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, objective=Spoilt(6, "value"), **arguments)
    assert first.failures == second.failures == (Failure(1, 1, 1),)
    np.testing.assert_array_equal(first.history.total, second.history.total)


def test_another_runs_checkpoint_is_refused(tmp_path):
    fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=CONFIG, checkpoint=tmp_path)
    with pytest.raises(
        ValueError, match=r"checkpoint: expected a checkpoint of the same run .* another lambdas, train"
    ):
        fit_path(small_mlp, LOGNORMAL, simulated_rows(200, seed=9), HELD_OUT, lambdas=[2.0], config=CONFIG,
                 checkpoint=tmp_path)  # fmt: skip
    (tmp_path / "path.ckpt").write_bytes(b"not a checkpoint")
    with pytest.raises(ValueError, match="checkpoint: expected a checkpoint file"):
        fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=CONFIG, checkpoint=tmp_path)
    write_tensors(tmp_path / "path.ckpt", {"weight": torch.zeros(2)})
    with pytest.raises(ValueError, match="which holds other tensors"):
        fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=CONFIG, checkpoint=tmp_path)


def test_other_time_edges_are_another_run(tmp_path):
    for edges, fine in (([0.0, 1.0, 2.0], True), ([0.0, 1.5, 2.0], False)):
        kind = family("categorical", edges=edges)
        arguments = (small_mlp, kind, ROWS, HELD_OUT)
        if fine:
            fit_path(*arguments, config=CONFIG, checkpoint=tmp_path)
        else:
            with pytest.raises(ValueError, match=r"made with another family$"):
                fit_path(*arguments, config=CONFIG, checkpoint=tmp_path)


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "path.ckpt"
    write_tensors(path, {"a": torch.arange(3)})

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_tensors(path, {"a": torch.zeros(3)})
    assert torch.equal(read_tensors(path)["a"], torch.arange(3))
    assert list(tmp_path.iterdir()) == [path]


def test_checkpoints_say_in_plain_text_what_they_are_of(tmp_path):
    fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, lambdas=(1.0, 2.0), config=CONFIG, checkpoint=tmp_path)
    text = bytes(read_tensors(tmp_path / "path.ckpt")["run.fingerprint"].numpy()).decode()
    assert json.loads(text)["lambdas"] == [[1.0, 2.0]]


def test_a_bar_is_shown_on_request_and_on_a_terminal_only(capsys, monkeypatch):
    fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=CONFIG)
    assert capsys.readouterr().err == ""
    fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=CONFIG, progress=True)
    shown = capsys.readouterr().err
    assert "dcal=" in shown
    assert "6/6" in shown
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=CONFIG, progress=False)
    assert capsys.readouterr().err == ""


class Wider(torch.nn.Module):
    def __init__(self, act):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(4, 8), act(), torch.nn.Linear(8, 2))

    def forward(self, x):
        return self.body(x)


plain, doubled = (lambda d, t, e: 1 * nll(d, t, e)), (lambda d, t, e: 2 * nll(d, t, e))


def swapped(rows):
    return type(rows)(rows.x[:, [1, 0, 2, 3]], rows.time, rows.event)


@pytest.mark.parametrize(
    ("make", "rows", "objective", "message"),
    [
        (lambda: Wider(torch.nn.Tanh), ROWS, plain, "network"),
        (lambda: Wider(torch.nn.ReLU), swapped(ROWS), plain, "train"),
        (lambda: Wider(torch.nn.ReLU), ROWS, doubled, "objective"),
    ],
)
def test_a_checkpoint_of_a_run_that_differs_in_one_thing_is_refused(make, rows, objective, message, tmp_path):
    fit_path(
        lambda: Wider(torch.nn.ReLU), LOGNORMAL, ROWS, HELD_OUT, objective=plain, config=CONFIG, checkpoint=tmp_path
    )
    with pytest.raises(ValueError, match=f"made with another {message}$"):
        fit_path(make, LOGNORMAL, rows, HELD_OUT, objective=objective, config=CONFIG, checkpoint=tmp_path)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.95])
def test_a_flipped_bit_is_found(share, tmp_path):
    fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=CONFIG, checkpoint=tmp_path)
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    content[int(share * len(content))] ^= 1
    file.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"checkpoint: expected a checkpoint file, got .*, which cannot be read"):
        fit_path(small_mlp, LOGNORMAL, ROWS, HELD_OUT, config=CONFIG, checkpoint=tmp_path)


def test_an_interrupt_waits_while_torch_imports_its_parts(monkeypatch):
    """Cut short inside the import, sympy lacked parts, and later fits of the process failed."""
    # Where the tests run in the background of a shell, the interrupt is ignored from the start.
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    finished, before = [], signal.default_int_handler

    def importing(*_, **__):
        signal.raise_signal(signal.SIGINT)
        finished.append(True)

    monkeypatch.setattr("xcal.training.path.gradient", importing)
    try:
        with pytest.raises(KeyboardInterrupt):
            _load_backward.__wrapped__()
        assert finished == [True]
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.signal(signal.SIGINT, found)


def test_a_thread_that_gets_no_interrupts_trains_as_well():
    with ThreadPoolExecutor(1) as threads:
        threads.submit(_load_backward.__wrapped__).result()


@pytest.mark.ci
def test_a_bar_is_drawn_on_a_terminal_that_does_not_know_its_size():
    """Of the terminals of containers and of recorded sessions many do not; there tqdm alone draws nothing."""
    pty = pytest.importorskip("pty")
    code = (
        "import numpy as np, xcal\n"
        "rng = np.random.default_rng(0)\n"
        "y = rng.exponential(size=60), np.ones(60)\n"
        "model = xcal.SurvivalModel(epochs=3, random_state=0).fit(rng.normal(size=(60, 2)), y)\n"
        "xcal.audit(model, rng.normal(size=(60, 2)), y, n_bootstrap=30)\n"
    )
    here, there = pty.openpty()
    variables = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    done = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stderr=there, env=variables)
    os.close(there)
    shown = b""
    while True:
        try:
            piece = os.read(here, 4096)
        except OSError:  # how a terminal on Linux tells its end
            break
        if not piece:
            break
        shown += piece
    os.close(here)
    assert done.wait() == 0, shown.decode()
    assert b"3/3" in shown
    assert b"resampling" in shown
