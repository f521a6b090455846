"""What a `PathResult` says about rows is what its networks say, one by one."""

import numpy as np
import pytest
import torch

from tests.training.simulate import N_INPUTS, simulated_rows, small_mlp
from xcal.data import SurvivalData
from xcal.distributions import family, quantile_edges
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path
from xcal.training.loop import train_stack
from xcal.training.rows import contents, tensor_digest

ROWS, OTHER = simulated_rows(300), simulated_rows(90, seed=1)
CONFIG = TrainingConfig(epochs=2, batch_size=100)
CATEGORICAL = family("categorical", edges=quantile_edges(ROWS.time, ROWS.event, 8))


@pytest.fixture(scope="module", params=["stacked", "sequential"])
def path(request):
    return fit_path(
        lambda: MLP(N_INPUTS, CATEGORICAL.n_outputs, hidden=(8,)),
        CATEGORICAL,
        ROWS,
        OTHER,
        lambdas=(0, 10, 100),
        seeds=(3, 4),
        config=CONFIG,
        mode=request.param,
    )


def kinds(folder):
    np.save(folder / "x.npy", OTHER.x.numpy())
    arrays = OTHER.time.numpy().astype(np.float64), OTHER.event.numpy()
    return {
        "tensors": OTHER,
        "arrays": SurvivalData(OTHER.x.numpy().astype(np.float64), *arrays),
        "a file": SurvivalData(np.load(folder / "x.npy", mmap_mode="r"), *arrays),
    }


@pytest.mark.parametrize("kind", ["tensors", "arrays", "a file"])
def test_outputs_of_all_models_are_those_of_each_network(path, kind, tmp_path, monkeypatch):
    monkeypatch.setattr("xcal.training.result._CHUNK", {"cpu": 6 * 40})  # forty rows in one go
    pieces = list(path.outputs(kinds(tmp_path)[kind]))
    assert [rows.n for _, rows in pieces] == [40, 40, 10]
    raw = torch.cat([piece for piece, _ in pieces], dim=2)
    assert path.shape == raw.shape[:2] == (2, 3)
    for name in ("x", "time", "event"):
        found = torch.cat([getattr(rows, name) for _, rows in pieces])
        assert torch.equal(found, getattr(OTHER, name))
    for model in range(path.n_models):
        with torch.no_grad():
            expected = path.network(model)(OTHER.x)
        # The same sums in another order.
        torch.testing.assert_close(raw.flatten(0, 1)[model], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("x", [OTHER.x, OTHER.x.numpy(), OTHER.x.double().numpy()], ids=["tensor", "array", "float64"])
def test_a_distribution_is_the_familys_reading_of_the_network(path, x):
    found = path.distribution(4, x)
    with torch.no_grad():
        expected = path.family.distribution(path.network(4)(OTHER.x))
    assert torch.equal(found.cdf(OTHER.time), expected.cdf(OTHER.time))
    assert not found.median.requires_grad


def test_the_family_is_kept(path):
    assert path.family is CATEGORICAL


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
def test_a_problem_is_the_same_before_and_after_training(mode, monkeypatch):
    """Weights that a target changes, and temperatures that fall, belong to the run."""
    seen = []

    def told(problem):
        tensors = [problem.edges, *contents(problem.train), *contents(problem.validation)]
        return tensor_digest(tensors), problem.penalty, problem.penalised, problem.target_dcal

    def watched(group, *arguments, **options):
        before, lambdas = told(group.problem), list(group.lambdas)
        state = train_stack(group, *arguments, **options)
        assert told(group.problem) == before
        assert group.lambdas == lambdas == [1.0]
        assert not np.array_equal(state.lambdas, group.first_lambdas)  # they did change
        seen.append(group)
        return state

    monkeypatch.setattr("xcal.training.path.train_stack", watched)
    config = TrainingConfig(epochs=3, batch_size=100, first_temperature=2.0)
    fit_path(small_mlp, family("weibull"), ROWS, OTHER, seeds=(0, 1), target_dcal=1e-3, config=config, mode=mode)
    assert len(seen) == (1 if mode == "stacked" else 2)
