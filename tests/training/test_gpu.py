"""On a GPU: recorded steps do what steps one by one do."""

import logging

import numpy as np
import pytest
import torch

from tests.training.simulate import N_INPUTS, distance, simulated_rows, small_mlp
from xcal.calibration import KernelFeatures
from xcal.data import SurvivalData
from xcal.distributions import family, quantile_edges
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
TRAIN, VALIDATION = simulated_rows(600), simulated_rows(200, seed=1)
EDGES = quantile_edges(TRAIN.time, TRAIN.event, 10)
FAMILIES = {"lognormal": family("lognormal"), "categorical": family("categorical", edges=EDGES)}


def fitted(name, **settings):
    kind = FAMILIES[name]
    config = TrainingConfig(epochs=4, batch_size=100, learning_rate=3e-3, schedule="cosine", clip_norm=1.0, **settings)

    def make():
        return MLP(N_INPUTS, kind.n_outputs, hidden=(16, 8))

    return fit_path(make, kind, TRAIN, VALIDATION, lambdas=(0, 10), seeds=(0, 1), config=config, device="cuda")


@pytest.mark.parametrize("name", FAMILIES)
def test_recorded_steps_equal_steps_one_by_one(name, caplog):
    with caplog.at_level(logging.WARNING):
        recorded = fitted(name)
    assert not caplog.records  # it was recorded
    plain = fitted(name, cuda_graphs=False)
    for model in range(4):
        assert distance(recorded.state(model), plain.state(model)) < 1e-4
    np.testing.assert_allclose(recorded.history.total, plain.history.total, rtol=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_gpu_agrees_with_the_cpu(name):
    kind = FAMILIES[name]
    config = TrainingConfig(epochs=2, batch_size=100)

    def make():
        return MLP(N_INPUTS, kind.n_outputs, hidden=(16, 8))

    paths = [
        fit_path(make, kind, TRAIN, VALIDATION, lambdas=(0, 10), config=config, device=device)
        for device in ("cpu", "cuda")
    ]
    np.testing.assert_allclose(paths[0].history.total, paths[1].history.total, rtol=1e-3)


def test_the_conditional_penalty_agrees_with_the_cpu_recorded_and_not():
    kind = FAMILIES["lognormal"]

    def total(device, **settings):
        config = TrainingConfig(epochs=2, batch_size=100, **settings)
        rows = (TRAIN, VALIDATION)
        options = {"lambdas": (0, 10), "seeds": (0, 1), "config": config, "conditional": KernelFeatures(32)}
        return fit_path(lambda: MLP(N_INPUTS, 2, hidden=(8,)), kind, *rows, **options, device=device).history.total

    expected = total("cpu")
    np.testing.assert_allclose(total("cuda"), expected, rtol=1e-3)
    np.testing.assert_allclose(total("cuda", cuda_graphs=False), expected, rtol=1e-3)


def test_dropout_is_recorded_drawn_anew_and_resuming_draws_the_same(tmp_path, caplog):
    def make():
        return MLP(N_INPUTS, 2, hidden=(16, 8), dropout=0.5)

    def run(progress=None, **options):
        config = TrainingConfig(epochs=6, batch_size=100, checkpoint_every=2)
        return fit_path(
            make, FAMILIES["lognormal"], TRAIN, VALIDATION, lambdas=(0, 0), seeds=(0, 1), config=config, device="cuda",
            progress=progress, **options,
        )  # fmt: skip

    def stop(report):
        if report.epoch == 4:
            raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING):
        whole = run()
    assert not any("not recorded" in record.message for record in caplog.records)
    # Lambdas of a seed share their dropout; the same lambda twice is the same model twice.
    assert distance(whole.state(0), whole.state(1)) < 1e-5
    assert distance(whole.state(0), whole.state(2)) > 1e-3
    run(stop, checkpoint=tmp_path)
    resumed = run(checkpoint=tmp_path)
    assert distance(resumed.state(0), whole.state(0)) < 1e-5


def test_a_step_that_cannot_be_recorded_is_said_and_trained(caplog):
    class Looks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(N_INPUTS, 2)

        def forward(self, x):
            raw = self.layer(x)
            return raw if float(raw.detach().sum()) > 1e9 else raw * 1.0

    config = TrainingConfig(epochs=2, batch_size=100)
    with caplog.at_level(logging.WARNING):
        path = fit_path(Looks, FAMILIES["lognormal"], TRAIN, VALIDATION, config=config, device="cuda")
    assert sum("not recorded" in record.message for record in caplog.records) == 1
    expected = fit_path(Looks, FAMILIES["lognormal"], TRAIN, VALIDATION, config=config, device="cpu")
    np.testing.assert_allclose(path.history.total, expected.history.total, rtol=1e-3)


def test_streamed_covariates(tmp_path):
    np.save(tmp_path / "x.npy", TRAIN.x.numpy())
    mapped = SurvivalData(np.load(tmp_path / "x.npy", mmap_mode="r"), TRAIN.time, TRAIN.event)
    config = TrainingConfig(epochs=3, batch_size=100)
    paths = [
        fit_path(small_mlp, FAMILIES["lognormal"], rows, VALIDATION, lambdas=(0, 10), config=config, device="cuda")
        for rows in (TRAIN, mapped)
    ]
    np.testing.assert_allclose(paths[0].history.total, paths[1].history.total, rtol=1e-5)
