"""Models that have stopped cost no more steps, and change nothing for the others."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.training.simulate import N_INPUTS, same_state, simulated_rows
from xcal.distributions import family
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path
from xcal.training.loop import Steps
from xcal.training.problem import Problem
from xcal.training.stack import Stack

TRAIN, VALIDATION = simulated_rows(400), simulated_rows(200, seed=1)
EPOCHS = 25


def with_dropout():
    return MLP(N_INPUTS, 2, hidden=(16, 8), dropout=0.2)


def fitted(make=with_dropout, **options):
    config = TrainingConfig(epochs=EPOCHS, batch_size=100, learning_rate=2e-2, patience=2)
    arguments = {"lambdas": (0, 20), "seeds": (0, 1, 2), "config": config, "device": "cpu", "mode": "stacked"}
    return fit_path(make, family("lognormal"), TRAIN, VALIDATION, **(arguments | options))


def counted(monkeypatch):
    """How often each part of the stack was trained on a batch, and on the validation rows."""
    calls = {"step": [], "validation": []}
    step, sums = Steps._part, Problem._sums
    monkeypatch.setattr(Steps, "_part", lambda s, k, *rest: calls["step"].append(k) or step(s, k, *rest))
    monkeypatch.setattr(
        Problem, "_sums", lambda p, stack, part, rows: calls["validation"].append(part) or sums(p, stack, part, rows)
    )
    return calls


@pytest.mark.parametrize("threads", [1, 2])
def test_the_others_are_the_same_bits(monkeypatch, threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        short = fitted()
        with monkeypatch.context() as patch:
            patch.setattr(Stack, "parts_with", lambda stack, models: list(range(len(stack.parts))))
            long = fitted()
    finally:
        torch.set_num_threads(before)
    # Something must have stopped before something else for this to show anything.
    ended = np.isfinite(short.history.total).sum(0).reshape(3, 2).max(1)
    assert len(set(ended.tolist())) > 1
    assert all(same_state(short.state(k), long.state(k)) for k in range(short.n_models))
    for name in ("objective", "dcal", "total"):
        np.testing.assert_array_equal(getattr(short.history, name), getattr(long.history, name))
    assert short.best_epoch.tolist() == long.best_epoch.tolist()


def test_a_part_is_trained_as_long_as_one_of_its_models_is(monkeypatch):
    calls = counted(monkeypatch)
    path = fitted()
    ended = np.isfinite(path.history.total).sum(0).reshape(3, 2).max(1)  # epochs of each seed's last model
    batches = 4
    assert [calls["step"].count(seed) for seed in range(3)] == (batches * ended).tolist()
    # A part that stops in an epoch is validated at its end, as the values of that epoch are what stops it.
    assert len(calls["validation"]) == ended.sum()


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
def test_the_last_epoch_is_kept_without_a_look_at_the_validation_rows_before_it(monkeypatch, mode):
    config = TrainingConfig(epochs=3, batch_size=100, quick_dropout=True)
    best = fitted(config=config, mode=mode, lambdas=(0,))
    assert (best.best_epoch == 2).all()  # so that both keep the same
    calls = counted(monkeypatch)
    last = fitted(config=replace(config, keep="last"), mode=mode, lambdas=(0,))
    assert len(calls["validation"]) == 3
    assert (last.best_epoch == 2).all()
    assert np.isnan(last.history.total[:2]).all()
    np.testing.assert_array_equal(last.history.total[2], best.history.total[2])
    for model in range(3):
        assert same_state(last.network(model).state_dict(), best.network(model).state_dict())
