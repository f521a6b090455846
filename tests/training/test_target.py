"""A target for D-calibration instead of a weight."""

import numpy as np
import pytest
import torch

from tests.training.simulate import N_INPUTS, same_state, simulated_rows
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path

LOGNORMAL = family("lognormal")


def make_network():
    return MLP(N_INPUTS, 2, hidden=(16,))


def exponential_rows(n, seed):
    """Exponential times: no log-normal is right for them, so likelihood alone leaves D-calibration above the floor."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, N_INPUTS, generator=generator)
    happens = -torch.rand(n, generator=generator).log() * torch.exp(x[:, 0])
    censors = -torch.rand(n, generator=generator).log() * 3
    return SurvivalData(x, torch.minimum(happens, censors), happens <= censors)


@pytest.fixture(scope="module")
def data():
    return exponential_rows(4000, seed=0), exponential_rows(4000, seed=1)


CONFIG = TrainingConfig(epochs=40, batch_size=500, learning_rate=1e-2)


def test_the_target_is_met_at_the_least_cost_in_objective(data):
    free = fit_path(make_network, LOGNORMAL, *data, config=CONFIG)
    target = float(free.best().dcal[0, 0]) / 4
    held = fit_path(make_network, LOGNORMAL, *data, config=CONFIG, target_dcal=target)
    assert free.best().dcal[0, 0] > target
    assert held.best().dcal[0, 0] <= target
    # Among the epochs at or below the target, the kept one has the lowest objective.
    feasible = held.history.dcal[:, 0] <= target
    assert held.history.objective[held.best_epoch[0], 0] == held.history.objective[feasible, 0].min()
    assert held.lambdas[0] > 1
    # A fixed weight ten times smaller does not get there: the weight that was found is about right.
    smaller = fit_path(make_network, LOGNORMAL, *data, lambdas=[held.lambdas[0] / 10], config=CONFIG)
    assert smaller.best().dcal[0, 0] > target


def test_an_easy_target_costs_nothing(data):
    easy = fit_path(make_network, LOGNORMAL, *data, config=CONFIG, target_dcal=0.5)
    free = fit_path(make_network, LOGNORMAL, *data, config=CONFIG)
    assert easy.lambdas[0] < 1
    assert abs(easy.best().objective[0, 0] - free.best().objective[0, 0]) < 0.005


def test_out_of_reach_the_lowest_dcal_is_kept(data):
    path = fit_path(make_network, LOGNORMAL, *data, config=TrainingConfig(epochs=5, batch_size=500), target_dcal=1e-9)
    assert path.best_epoch[0] == np.argmin(path.history.dcal[:, 0])


def test_seeds_have_weights_of_their_own(data):
    path = fit_path(make_network, LOGNORMAL, *data, seeds=(0, 1), config=CONFIG, target_dcal=2e-3)
    assert path.n_models == 2
    assert path.mode == "stacked"
    assert path.lambdas[0] != path.lambdas[1]


def test_resuming_goes_on_with_the_same_weights(data, tmp_path):
    def stop(report):
        if report.epoch == 7:
            raise KeyboardInterrupt

    config = TrainingConfig(epochs=12, batch_size=1000, checkpoint_every=3)
    whole = fit_path(make_network, LOGNORMAL, *data, config=config, target_dcal=1e-3)
    fit_path(make_network, LOGNORMAL, *data, config=config, target_dcal=1e-3, checkpoint=tmp_path, progress=stop)
    resumed = fit_path(make_network, LOGNORMAL, *data, config=config, target_dcal=1e-3, checkpoint=tmp_path)
    assert resumed.lambdas == whole.lambdas
    assert same_state(resumed.state(0), whole.state(0))


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan"), True, "low"])
def test_a_target_that_is_none(target):
    rows = simulated_rows(50)
    with pytest.raises(ValueError, match="target_dcal: expected a finite number above 0"):
        fit_path(make_network, LOGNORMAL, rows, rows, target_dcal=target)


def test_target_and_lambdas():
    rows = simulated_rows(50)
    with pytest.raises(ValueError, match="lambdas: expected none beside target_dcal"):
        fit_path(make_network, LOGNORMAL, rows, rows, lambdas=(1.0,), target_dcal=0.1)


def test_patience_does_not_stop_the_search(data):
    config = TrainingConfig(epochs=40, batch_size=500, learning_rate=1e-2, patience=2)
    path = fit_path(make_network, LOGNORMAL, *data, config=config, target_dcal=1e-3)
    assert path.history.epochs == 40
    assert np.isfinite(path.history.total).all()
