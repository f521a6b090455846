"""Compilation changes speed and last places, and its absence changes nothing."""

import shutil

import numpy as np
import pytest
import torch

from tests.training.simulate import same_state, simulated_rows, small_mlp
from xcal.distributions import family
from xcal.training import TrainingConfig, fit_path

ROWS, HELD_OUT = simulated_rows(200), simulated_rows(100, seed=1)
ARGUMENTS = {"lambdas": (0.0, 5.0), "seeds": (0, 1)}


def fit(**settings):
    config = TrainingConfig(epochs=2, batch_size=50, **settings)
    return fit_path(small_mlp, family("lognormal"), ROWS, HELD_OUT, config=config, **ARGUMENTS)


@pytest.mark.ci
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore::FutureWarning:torch")
def test_compiled_models_are_the_same_to_rounding(caplog):
    plain, compiled = fit(), fit(compile=True)
    assert "not compiled" not in caplog.text
    # float32, 8 steps.
    np.testing.assert_allclose(compiled.history.objective, plain.history.objective, rtol=1e-4)


def test_without_a_compiler_a_log_line_and_the_same_bits(monkeypatch, caplog):
    def no_compiler(function, **_):
        def call(*_):
            raise RuntimeError("no C++ compiler found\nand a long story")

        return call

    plain = fit()
    monkeypatch.setattr(torch, "compile", no_compiler)
    fallen_back = fit(compile=True)
    lines = [record.message for record in caplog.records]
    assert lines == ["the loss is not compiled: RuntimeError: no C++ compiler found"]
    assert all(same_state(plain.state(k), fallen_back.state(k)) for k in range(4))
