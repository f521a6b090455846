"""Covariates that stay in a file give the very models that covariates in memory give."""

import numpy as np
import pytest

from tests.training.simulate import same_state, simulated_rows, small_mlp
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.training import TrainingConfig, fit_path

LOGNORMAL = family("lognormal")
CONFIG = TrainingConfig(epochs=3, batch_size=64)


def mapped(folder, rows, name, weights=None):
    path = folder / f"{name}.npy"
    np.save(path, rows.x.numpy())
    return SurvivalData(np.load(path, mmap_mode="r"), rows.time, rows.event, weights)


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_the_same_bits_as_in_memory(tmp_path, seeds):
    rows, held_out = simulated_rows(300), simulated_rows(100, seed=1)
    in_memory = fit_path(small_mlp, LOGNORMAL, rows, held_out, lambdas=(0, 10), seeds=seeds, config=CONFIG)
    streamed = fit_path(
        small_mlp,
        LOGNORMAL,
        mapped(tmp_path, rows, "train"),
        mapped(tmp_path, held_out, "validation"),
        lambdas=(0, 10),
        seeds=seeds,
        config=CONFIG,
    )
    np.testing.assert_array_equal(streamed.history.total, in_memory.history.total)
    for model in range(in_memory.n_models):
        assert same_state(streamed.state(model), in_memory.state(model))


def test_rows_of_weight_zero_are_left_out(tmp_path):
    rows, held_out = simulated_rows(300), simulated_rows(100, seed=1)
    weights = (np.arange(300) % 3).astype(float)
    in_memory = fit_path(
        small_mlp, LOGNORMAL, SurvivalData(rows.x, rows.time, rows.event, weights), held_out, config=CONFIG
    )
    streamed = fit_path(small_mlp, LOGNORMAL, mapped(tmp_path, rows, "train", weights), held_out, config=CONFIG)
    assert same_state(streamed.state(0), in_memory.state(0))


def test_a_checkpoint_tells_one_file_from_another(tmp_path):
    rows, held_out = simulated_rows(300), simulated_rows(100, seed=1)
    one, other = mapped(tmp_path, rows, "one"), mapped(tmp_path, simulated_rows(300, seed=5), "other")
    fit_path(small_mlp, LOGNORMAL, one, held_out, config=CONFIG, checkpoint=tmp_path / "run")
    with pytest.raises(ValueError, match="another train"):
        fit_path(small_mlp, LOGNORMAL, other, held_out, config=CONFIG, checkpoint=tmp_path / "run")
