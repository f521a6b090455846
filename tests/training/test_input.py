"""Bad input gives one error that names the argument."""

import sys

import numpy as np
import pytest
import torch

from tests.training.simulate import simulated_rows, small_mlp
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.networks import Linear
from xcal.training import TrainingConfig, fit_path
from xcal.training.rows import batch_shape, epoch_order

GOOD = simulated_rows(30)
NAN, INF = float("nan"), float("inf")


def changed(field, row, value):
    fields = {"x": GOOD.x.clone(), "time": GOOD.time.clone(), "event": GOOD.event.float(), "weights": torch.ones(30)}
    fields[field][row] = value
    return SurvivalData(**fields)


def weightless_events():
    return SurvivalData(GOOD.x, GOOD.time, GOOD.event, weights=(~GOOD.event).float())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "epochs: expected an integer of 1 or more, got 0"),
        ({"epochs": 2.5}, "epochs: expected an integer"),
        ({"batch_size": 0}, "batch_size: expected an integer of 1 or more, got 0"),
        ({"batch_size": True}, "batch_size: expected an integer"),
        ({"patience": 0}, "patience: expected an integer of 1 or more"),
        ({"checkpoint_every": -1}, "checkpoint_every: expected an integer of 1 or more"),
        ({"learning_rate": 0.0}, "learning_rate: expected a finite number above 0, got 0.0"),
        ({"learning_rate": NAN}, "learning_rate: expected a finite number above 0, got nan"),
        ({"weight_decay": -1.0}, "weight_decay: expected a finite number of 0 or more"),
        ({"clip_norm": INF}, "clip_norm: expected a finite number above 0"),
        ({"first_temperature": 0}, "first_temperature: expected a finite number above 0, got 0"),
        ({"compile": "yes"}, "compile: expected True or False, got 'yes'"),
        ({"optimizer": "sgd"}, "optimizer: expected one of 'adam', 'adamw', got 'sgd'"),
        ({"warm_up": -1}, "warm_up: expected an integer of 0 or more, got -1"),
        ({"schedule": "step"}, "schedule: expected one of 'cosine', 'linear' or None, got 'step'"),
    ],
)
def test_settings(setting, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        TrainingConfig(**setting)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"lambdas": [0.0, -1.0]}, r"lambdas: expected finite numbers, zero or larger, got -1.0 at position 1"),
        ({"lambdas": [NAN]}, "lambdas: expected finite numbers, zero or larger, got nan at position 0"),
        ({"lambdas": []}, "lambdas: expected at least one lambda"),
        ({"lambdas": 3.0}, "lambdas: expected a sequence of numbers"),
        ({"seeds": []}, "seeds: expected a sequence of at least one seed"),
        ({"seeds": 3}, "seeds: expected a sequence of at least one seed"),
        ({"seeds": [0, -2]}, r"seeds\[1\]: expected an integer from 0 to 9223372036854775807, got -2"),
        ({"mode": "both"}, "mode: expected one of 'auto', 'stacked', 'sequential', got 'both'"),
        ({"calibration_bins": 1}, "calibration_bins: expected an integer of 2 or more"),
        ({"make_network": small_mlp()}, "make_network: expected a function that makes a network"),
        ({"make_network": lambda: 3}, "make_network: expected a function that returns a torch.nn.Module, got int"),
        ({"make_network": torch.nn.Identity}, "make_network: expected a network with parameters to train"),
        ({"make_network": lambda: Linear(4, 3)}, r"make_network: expected a network with outputs \(n, 2\)"),
        (
            {"family": "lognormal"},
            r"family: expected a Family, as in xcal.distributions.family\('lognormal'\), got str",
        ),
        ({"config": {"epochs": 3}}, "config: expected a TrainingConfig, as in .*, got dict"),
        ({"penalty": "paper"}, "penalty: expected a SoftBins, got str"),
        ({"objective": "nll"}, "objective: expected a function of"),
        ({"train": (1, 2)}, r"train: expected a SurvivalData, as in SurvivalData\(x, time, event\), got tuple"),
        ({"train": changed("event", slice(None), 0.0)}, "train.event: expected at least one event"),
        ({"train": weightless_events()}, "train.event: expected at least one event"),
        (
            {"validation": SurvivalData(GOOD.x[:, :3], GOOD.time, GOOD.event)},
            r"validation.x: expected rows of shape \(4,\)",
        ),
        ({"validation": simulated_rows(9, dtype=torch.float64)}, "validation.x: expected rows of dtype torch.float32"),
    ],
)
def test_arguments(argument, message):
    arguments = {"make_network": small_mlp, "family": family("lognormal"), "train": GOOD, "validation": GOOD} | argument
    with pytest.raises(ValueError, match=f"^{message}"):
        fit_path(**arguments)


def test_rows_are_checked_when_they_are_made_and_never_again():
    """Training trusts them: no check of times, events or numbers runs in it."""
    checks = {"as_time", "as_event", "as_floats", "read_features"}
    calls = []

    def note(frame, kind, _):
        if kind == "call" and frame.f_code.co_name in checks:
            calls.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        rows = SurvivalData(GOOD.x, GOOD.time, GOOD.event)
        made = sorted(calls)
        fit_path(small_mlp, family("lognormal"), rows, rows, config=TrainingConfig(epochs=1))
    finally:
        sys.setprofile(None)
    assert made == ["as_event", "as_floats", "as_time", "read_features"]
    assert sorted(calls) == made


def test_arrays_are_as_good_as_tensors():
    config = TrainingConfig(epochs=2, batch_size=10)
    arrays = SurvivalData(GOOD.x.numpy(), GOOD.time.numpy().astype(np.float64), GOOD.event.numpy().astype(int))
    one = fit_path(small_mlp, family("lognormal"), GOOD, GOOD, config=config)
    other = fit_path(small_mlp, family("lognormal"), arrays, arrays, config=config, device="cpu")
    np.testing.assert_array_equal(one.history.total, other.history.total)


@pytest.mark.parametrize(("n", "batch_size"), [(10, 3), (1999, 1000), (1000, 1000), (7, 100), (5, 1)])
def test_batches_are_equal_and_leave_out_fewer_rows_than_there_are_batches(n, batch_size):
    batches, rows = batch_shape(n, batch_size)
    assert rows <= batch_size
    assert 0 <= n - batches * rows < batches
    order = epoch_order(n, batch_size, [0, 1], epoch=3)
    assert order.shape == (batches, 2, rows)
    assert order[:, 0].unique().numel() == batches * rows
    assert torch.equal(order[:, 1], epoch_order(n, batch_size, [1], epoch=3)[:, 0])


def test_rates_against_torchs_own_schedules():
    from torch.optim import SGD
    from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR

    def of(schedule):
        optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        kind = {
            "cosine": lambda: CosineAnnealingLR(optimizer, T_max=10),
            "linear": lambda: LinearLR(optimizer, start_factor=1.0, end_factor=0.0, total_iters=10),
        }[schedule]()
        rates = []
        for _ in range(10):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            kind.step()
        return rates

    for schedule in ("cosine", "linear"):
        config = TrainingConfig(epochs=10, learning_rate=0.1, schedule=schedule)
        assert [config.rate(epoch) for epoch in range(10)] == pytest.approx(of(schedule), abs=1e-12)
        # After a warm-up of four epochs the same, shifted.
        warm = TrainingConfig(epochs=14, learning_rate=0.1, schedule=schedule, warm_up=4)
        assert [warm.rate(epoch) for epoch in range(4)] == pytest.approx([0.02, 0.04, 0.06, 0.08])
        assert [warm.rate(epoch) for epoch in range(4, 14)] == pytest.approx(of(schedule), abs=1e-12)
    assert TrainingConfig(learning_rate=0.1).rate(50) == 0.1
