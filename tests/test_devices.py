"""A device that this machine does not have is one error, wherever it is named."""

import sys

import numpy as np
import pytest
import torch

from tests.estimators.simulate import survival_rows
from tests.training.simulate import simulated_rows, small_mlp
from xcal import _devices
from xcal._devices import as_device, devices
from xcal.cli.app import main
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.training import TrainingConfig, fit_path
from xcal_paper import reproduce

ABSENT = ["meta", "xla", "mps", "vulkan", "toaster", "cuda:99", "cpu:-1", "", "cuda:", "CPU"]
EXPECTED = r"^device: expected a device of this machine \(cpu"


def fit(device):
    rows = simulated_rows(40)
    return fit_path(small_mlp, family("lognormal"), rows, rows, config=TrainingConfig(epochs=1), device=device)


@pytest.mark.parametrize("device", [*ABSENT, 5.5, ["cpu"], np.zeros(3)], ids=repr)
def test_a_device_that_is_not_there(device, tmp_path):
    data = survival_rows(40)
    for call in (
        lambda: fit(device),
        lambda: reproduce("gamma-censored", device=device, results=tmp_path / "r"),
        lambda: SurvivalModel(epochs=1, device=device).fit(data.x, data.y),
        lambda: SurvivalPath(epochs=1, device=device).fit(data.x, data.y),
    ):
        with pytest.raises(ValueError, match=EXPECTED):
            call()
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("device", ["meta", "mps", "cuda:99", "toaster"])
def test_the_command_line_says_it_in_one_line(device, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        sys, "argv", ["xcal", "reproduce", "gamma-censored", "--device", device, "--results", str(tmp_path)]
    )
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("error: device: expected a device of this machine (cpu")
    assert error.count("\n") == 1


def test_rows_on_a_device_that_cannot_train():
    rows = simulated_rows(40)
    with pytest.raises(ValueError, match=EXPECTED.replace("device:", "x:")):
        SurvivalData(rows.x.to("meta"), rows.time, rows.event)


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "cpu:0"])
def test_a_device_that_is_there(device):
    assert fit(device).n_models == 1


def test_the_devices_of_a_machine_with_two_gpus(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert devices() == ["cpu", "cuda:0", "cuda:1"]
    for name in ("cuda", "cuda:1", "cpu"):
        assert str(as_device(name)) == name
    for name in ("cuda:2", "xpu", "mps"):
        with pytest.raises(ValueError, match=r"expected a device of this machine \(cpu, cuda:0, cuda:1\), got"):
            as_device(name)


def test_a_gpu_without_double_precision_is_none(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("mps"))
    assert _devices.devices() == ["cpu"]
