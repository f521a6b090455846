"""A temperature that falls while a model is trained."""

import logging
from itertools import pairwise

import pytest
import torch

from tests.training.simulate import N_INPUTS, distance, same_state, simulated_rows, small_mlp
from xcal.calibration import SoftBins
from xcal.distributions import family
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path, problem
from xcal.training.loop import Steps

TRAIN, VALIDATION = simulated_rows(300), simulated_rows(100, seed=1)
LOGNORMAL = family("lognormal")


def fitted(first, *, epochs=20, last=0.1, make=small_mlp, **options):
    config = TrainingConfig(
        epochs=epochs, batch_size=100, learning_rate=1e-2, first_temperature=first, checkpoint_every=3
    )
    arguments = {"lambdas": (0, 50), "penalty": SoftBins(temperature=last), "config": config, "device": "cpu"}
    return fit_path(make, LOGNORMAL, TRAIN, VALIDATION, **(arguments | options))


def test_it_falls_by_equal_factors_from_the_first_to_that_of_the_penalty():
    config = TrainingConfig(epochs=30, first_temperature=2.0)
    found = [config.temperature(epoch, 0.1) for epoch in range(30)]
    assert (found[0], found[-1]) == (2.0, pytest.approx(0.1))
    steps = sorted(set(found), reverse=True)
    assert len(steps) == 10
    assert [found.count(step) for step in steps] == [3] * 10
    for one, other in pairwise(steps):
        assert other / one == pytest.approx(20 ** (-1 / 9))
    # With few epochs it takes fewer steps, and ends where it should all the same.
    few = TrainingConfig(epochs=3, first_temperature=2.0)
    assert [few.temperature(epoch, 0.1) for epoch in range(3)] == pytest.approx([2.0, 0.2**0.5, 0.1])
    assert TrainingConfig(epochs=1, first_temperature=2.0).temperature(0, 0.1) == 0.1
    assert TrainingConfig(epochs=1).temperature(0, 0.1) == 0.1


def test_the_penalty_is_given_the_temperature_of_the_epoch(monkeypatch):
    seen = []
    plain = problem.penalty_and_slope

    def watched(cdf, event, edges, spec, weights):
        seen.append(float(spec.temperature))
        return plain(cdf, event, edges, spec, weights)

    monkeypatch.setattr(problem, "penalty_and_slope", watched)
    path = fitted(2.0)
    assert seen == sorted(seen, reverse=True)
    assert (seen[0], seen[-1]) == (2.0, pytest.approx(0.1))
    assert len(set(seen)) == 10
    assert path.history.dcal.shape == (20, 2)


def test_a_temperature_that_stays_is_no_other_training():
    assert same_state(fitted(0.1).state(1), fitted(None).state(1))


def test_it_changes_the_penalised_model_only():
    falling, fixed = fitted(2.0), fitted(None)
    assert same_state(falling.state(0), fixed.state(0))
    assert distance(falling.state(1), fixed.state(1)) > 1e-3


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
def test_a_resumed_run_goes_on_at_its_temperature(tmp_path, mode):
    def stop(report):
        if report.epoch == 11 and report.models[-1] == 1:
            raise KeyboardInterrupt

    assert fitted(2.0, checkpoint=tmp_path, progress=stop, mode=mode).interrupted
    resumed, whole = fitted(2.0, checkpoint=tmp_path, mode=mode), fitted(2.0, mode=mode)
    assert same_state(resumed.state(1), whole.state(1))


def test_a_penalty_without_temperature_is_refused():
    with pytest.raises(ValueError, match=r"config.first_temperature: expected None: the penalty has none, got 2.0"):
        fitted(2.0, penalty=SoftBins("product", censored="soft"))


def test_a_temperature_that_would_rise_is_refused():
    with pytest.raises(ValueError, match=r"config.first_temperature: expected 0.1 or more, .* got 0.05"):
        fitted(0.05)


def test_a_loss_that_changes_is_not_compiled_and_that_is_said(caplog):
    config = TrainingConfig(epochs=2, batch_size=100, first_temperature=2.0, compile=True)
    with caplog.at_level(logging.WARNING):
        fitted(2.0, config=config)
    assert [r.message for r in caplog.records] == ["the loss is not compiled: its temperature changes"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_recorded_step_reads_the_temperature_and_is_recorded_once(caplog, monkeypatch):
    made = []
    plain_recording = Steps._recorded
    monkeypatch.setattr(Steps, "_recorded", lambda steps: made.append(1) or plain_recording(steps))

    def make():
        return MLP(N_INPUTS, 2, hidden=(16, 8))

    with caplog.at_level(logging.WARNING):
        recorded = fitted(2.0, make=make, device="cuda")
    assert not caplog.records
    assert len(made) == 1
    plain = TrainingConfig(epochs=20, batch_size=100, learning_rate=1e-2, first_temperature=2.0, cuda_graphs=False)
    assert distance(recorded.state(1), fitted(2.0, make=make, device="cuda", config=plain).state(1)) < 1e-3
