"""What a path promises: models do not depend on their company, on the mode or on the clock."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.training.simulate import N_INPUTS, distance, same_state, simulated_rows, small_mlp
from xcal import d_calibration
from xcal.calibration.membership import SoftBins
from xcal.data import SurvivalData
from xcal.distributions import family, quantile_edges
from xcal.networks import MLP, Linear
from xcal.objectives import nll, survival_crps
from xcal.training import PathResult, TrainingConfig, fit_path
from xcal_paper.networks import PaperCNN

LOGNORMAL = family("lognormal")
SHORT = TrainingConfig(epochs=2, batch_size=50)


def dropout_mlp():
    return MLP(N_INPUTS, 2, hidden=(16, 8), dropout=0.3)


class BatchNormed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(N_INPUTS, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))

    def forward(self, x):
        return self.layers(x)


class ReadsValues(nn.Module):
    """A network that vmap refuses: it looks at its values."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(N_INPUTS, 2)

    def forward(self, x):
        raw = self.layer(x)
        return raw if float(raw.detach().sum()) > 1e9 else raw * 1.0


# 50 steps; in float64 one step's rounding is about 1e-16 and Adam multiplies it by far less than 1e7 in 50 steps.
FIFTY_STEPS = TrainingConfig(epochs=5, batch_size=40, learning_rate=1e-2)


@pytest.mark.parametrize("make", [small_mlp, dropout_mlp, BatchNormed])
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_a_model_in_a_path_equals_the_model_alone(make, optimizer):
    rows, held_out = simulated_rows(400, dtype=torch.float64), simulated_rows(150, seed=1, dtype=torch.float64)
    config = TrainingConfig(
        epochs=5, batch_size=40, learning_rate=1e-2, optimizer=optimizer, weight_decay=1e-3, clip_norm=0.5,
        schedule="cosine",
    )  # fmt: skip
    path = fit_path(make, LOGNORMAL, rows, held_out, lambdas=(0.0, 3.0, 100.0), seeds=(3, 8), config=config)
    assert path.mode == "stacked"
    for k in range(6):
        alone = fit_path(
            make, LOGNORMAL, rows, held_out, lambdas=[path.lambdas[k]], seeds=[path.seeds[k]], config=config
        )
        assert alone.mode == "sequential"
        assert alone.best_epoch[0] == path.best_epoch[k]
        assert distance(alone.state(0), path.state(k)) < 1e-9
        np.testing.assert_allclose(alone.history.total[:, 0], path.history.total[:, k], rtol=1e-9)


@pytest.mark.parametrize("make", [small_mlp, dropout_mlp])
def test_one_after_another_gives_the_same_models(make):
    rows, held_out = simulated_rows(400, dtype=torch.float64), simulated_rows(150, seed=1, dtype=torch.float64)
    results = {
        mode: fit_path(
            make, LOGNORMAL, rows, held_out, lambdas=(0.0, 10.0), seeds=(0, 1), config=FIFTY_STEPS, mode=mode
        )
        for mode in ("stacked", "sequential")
    }
    assert [r.mode for r in results.values()] == ["stacked", "sequential"]
    for k in range(4):
        assert distance(results["stacked"].state(k), results["sequential"].state(k)) < 1e-9
    np.testing.assert_allclose(
        results["stacked"].history.dcal, results["sequential"].history.dcal, rtol=1e-8, atol=1e-12
    )


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
def test_the_same_seed_gives_the_same_bits_whatever_the_user_drew_before(mode):
    rows, held_out = simulated_rows(300), simulated_rows(100, seed=1)
    arguments = {"lambdas": (0.0, 10.0), "seeds": (0, 1), "config": SHORT, "mode": mode}
    first = fit_path(dropout_mlp, LOGNORMAL, rows, held_out, **arguments)
    torch.rand(17)
    state = torch.get_rng_state()
    second = fit_path(dropout_mlp, LOGNORMAL, rows, held_out, **arguments)
    assert torch.equal(state, torch.get_rng_state())
    assert all(same_state(first.state(k), second.state(k)) for k in range(4))
    assert np.array_equal(first.history.total, second.history.total)


def test_the_loop_is_the_usual_one():
    """Against ten lines of plain torch: one model, its own autograd, torch's Adam."""
    rows, held_out = simulated_rows(90, dtype=torch.float64), simulated_rows(50, seed=1, dtype=torch.float64)
    from xcal import xcal_penalty
    from xcal.training.rows import epoch_order

    config = TrainingConfig(epochs=3, batch_size=30, learning_rate=1e-2)
    path = fit_path(small_mlp, LOGNORMAL, rows, held_out, lambdas=(7.0, 0.0), seeds=(5,), config=config)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        network = small_mlp().double()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    totals, states = [], []
    for epoch in range(3):
        for batch in epoch_order(90, 30, [5], epoch)[:, 0]:
            time, event = rows.time[batch], rows.event[batch]
            dist = LOGNORMAL.distribution(network(rows.x[batch]))
            loss = nll(dist, time, event).mean() + 7 * xcal_penalty(dist.cdf(time), event)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            dist = LOGNORMAL.distribution(network(held_out.x))
            exact = d_calibration(dist.cdf(held_out.time), held_out.event, n_bins=20, p_value=None).value
            totals.append(float(nll(dist, held_out.time, held_out.event).mean()) + 7 * exact)
        states.append({name: value.clone() for name, value in network.state_dict().items()})
    np.testing.assert_allclose(path.history.total[:, 0], totals, rtol=1e-10)
    assert path.best_epoch[0] == int(np.argmin(totals))
    assert distance(path.state(0), states[path.best_epoch[0]]) < 1e-10


def test_each_model_keeps_its_own_best_epoch():
    rows, held_out = simulated_rows(60), simulated_rows(200, seed=1)
    config = TrainingConfig(epochs=40, batch_size=20, learning_rate=3e-2)
    path = fit_path(small_mlp, LOGNORMAL, rows, held_out, lambdas=(0.0, 50.0), seeds=(0, 1), config=config)
    assert np.array_equal(path.best_epoch, np.argmin(path.history.total, axis=0))
    assert np.unique(path.best_epoch).size > 1  # 60 rows are overfitted, at different epochs
    best = path.best()
    for k in range(4):
        with torch.no_grad():
            dist = LOGNORMAL.distribution(path.network(k)(held_out.x))
        exact = d_calibration(dist.cdf(held_out.time), held_out.event, n_bins=20, p_value=None).value
        # The same weights run alone: float32 rounding, which may move a row or two of 200 over an edge.
        assert best.dcal[0, k] == pytest.approx(exact, abs=2e-3)
        assert best.objective[0, k] == pytest.approx(float(nll(dist, held_out.time, held_out.event).mean()), rel=1e-5)


def test_a_large_lambda_calibrates():
    # True scales are near 0.1; the published log-normal cannot go below 0.6, so likelihood alone cannot calibrate it.
    rows, held_out = simulated_rows(2000, log_scale=-2.3), simulated_rows(1000, seed=1, log_scale=-2.3)
    published = family("lognormal-published")
    config = TrainingConfig(epochs=15, batch_size=250, learning_rate=1e-2)
    path = fit_path(small_mlp, published, rows, held_out, lambdas=(0.0, 1000.0), seeds=(0, 1, 2), config=config)
    best = path.best()
    plain, calibrated = path.lambdas == 0, path.lambdas == 1000
    assert best.dcal[0, calibrated].max() < 0.1 * best.dcal[0, plain].min()
    assert best.objective[0, plain].max() < best.objective[0, calibrated].min()


@pytest.mark.parametrize(
    ("name", "objective"),
    # Not the CRPS of a log-logistic from random weights: it is infinite at a concentration of 1/2 or less.
    [(name, nll) for name in ("categorical", "mtlr", "weibull", "loglogistic")]
    + [(name, survival_crps) for name in ("categorical", "mtlr", "weibull", "lognormal")],
)
def test_every_family_and_objective_learns(name, objective):
    rows, held_out = simulated_rows(500), simulated_rows(300, seed=1)
    discrete = name in {"categorical", "mtlr"}
    kind = family(name, edges=quantile_edges(rows.time, rows.event, 10)) if discrete else family(name)
    config = TrainingConfig(epochs=8, batch_size=100, learning_rate=1e-2)
    path = fit_path(
        lambda: Linear(N_INPUTS, kind.n_outputs), kind, rows, held_out, lambdas=(0.0, 1.0), objective=objective,
        penalty=SoftBins("product", censored="soft"), config=config,
    )  # fmt: skip
    assert (path.history.total[-1] < path.history.total[0]).all()


def test_weights_are_repetitions_of_rows():
    """A full batch with weights 2 and 0 is the batch with rows twice and left out."""
    rows, held_out = simulated_rows(60, dtype=torch.float64), simulated_rows(50, seed=1, dtype=torch.float64)
    count = torch.tensor([2, 1, 0] * 20)
    index = torch.repeat_interleave(torch.arange(60), count)
    repeated = SurvivalData(rows.x[index], rows.time[index], rows.event[index])
    weighted = SurvivalData(rows.x, rows.time, rows.event, weights=count)
    config = TrainingConfig(epochs=20, batch_size=60, learning_rate=1e-2)
    results = [
        fit_path(small_mlp, LOGNORMAL, data, held, lambdas=(0.0, 5.0), config=config)
        for data, held in ((repeated, repeated), (weighted, weighted))
    ]
    # Only the order of the sums differs.
    assert distance(results[0].state(1), results[1].state(1)) < 1e-9
    np.testing.assert_allclose(results[0].history.total, results[1].history.total, rtol=1e-9)
    assert held_out.x.shape == (50, N_INPUTS)


def test_early_stopping_freezes_a_model_and_ends_when_all_have_stopped():
    rows, held_out = simulated_rows(60), simulated_rows(200, seed=1)
    config = TrainingConfig(epochs=300, batch_size=20, learning_rate=3e-2, patience=4)
    path = fit_path(small_mlp, LOGNORMAL, rows, held_out, lambdas=(0.0, 20.0), seeds=(0, 1), config=config)
    last = np.array([np.flatnonzero(~np.isnan(column))[-1] for column in path.history.total.T])
    assert np.array_equal(last, path.best_epoch + 4)
    assert path.history.epochs == last.max() + 1 < 300
    # Going on without it, the others' stops change nothing for a model: the epochs it shares with a free run are equal.
    free = fit_path(
        small_mlp, LOGNORMAL, rows, held_out, lambdas=(0.0, 20.0), seeds=(0, 1),
        config=TrainingConfig(epochs=path.history.epochs, batch_size=20, learning_rate=3e-2),
    )  # fmt: skip
    for k in range(4):
        assert np.array_equal(path.history.total[: last[k] + 1, k], free.history.total[: last[k] + 1, k])


def test_auto_trains_one_after_another_what_does_not_stack(caplog):
    rows, held_out = simulated_rows(100), simulated_rows(50, seed=1)
    with caplog.at_level("INFO", logger="xcal.training"):
        path = fit_path(ReadsValues, LOGNORMAL, rows, held_out, lambdas=(0.0, 1.0), config=SHORT)
    assert path.mode == "sequential"
    assert "cannot be stacked" in caplog.text
    assert not np.isnan(path.history.total).any()


def test_convolutions_are_trained_one_after_another_and_can_be_stacked():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 1, 6, 6, generator=generator)
    rows = SurvivalData(x, torch.rand(12, generator=generator) + 0.1, torch.ones(12))

    def make():
        return PaperCNN(2, image=(1, 6, 6), channels=(2, 3), head=(4,))

    results = [
        fit_path(make, LOGNORMAL, rows, rows, lambdas=(0.0, 1.0), config=TrainingConfig(epochs=2, batch_size=6), mode=m)
        for m in ("auto", "stacked")
    ]
    assert [r.mode for r in results] == ["sequential", "stacked"]
    # float32, four steps of 1e-3 each: rounding moves a step by far less than its size.
    assert distance(results[0].state(1), results[1].state(1)) < 1e-5


def test_the_state_fits_the_network_and_tied_and_frozen_parameters_stay_so():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(N_INPUTS, N_INPUTS)
            self.b = nn.Linear(N_INPUTS, N_INPUTS)
            self.b.weight = self.a.weight
            self.out = nn.Linear(N_INPUTS, 2)
            self.out.bias.requires_grad_(False)

        def forward(self, x):
            return self.out(torch.relu(self.b(torch.relu(self.a(x)))))

    rows = simulated_rows(100)
    path = fit_path(Tied, LOGNORMAL, rows, rows, lambdas=(0.0, 1.0), config=SHORT)
    state = path.state(1)
    network = Tied()
    network.load_state_dict(state)
    assert torch.equal(state["a.weight"], state["b.weight"])
    with torch.random.fork_rng():
        torch.manual_seed(0)
        fresh = Tied()
    assert torch.equal(state["out.bias"], fresh.out.bias)
    assert not torch.equal(state["a.weight"], fresh.a.weight)


def test_find_and_repr():
    rows = simulated_rows(60)
    path = fit_path(small_mlp, LOGNORMAL, rows, rows, lambdas=(0, 1), seeds=(4, 9), config=SHORT)
    assert isinstance(path, PathResult)
    assert path.find(1, 9) == 3
    assert path.find(0) == 0
    with pytest.raises(ValueError, match="lam: expected one of"):
        path.find(5)
    with pytest.raises(ValueError, match="model: expected an integer from 0 to 3"):
        path.network(4)
    assert repr(path) == "PathResult(4 models: 2 lambdas x 2 seeds, 2 epochs, stacked)"
    assert path._repr_html_().count("<tr>") == 5
    assert f"<td>{path.best().objective[0, 3]:.4g}</td>" in path._repr_html_()


@pytest.mark.parametrize("lambdas", [8, 9])
def test_many_lambdas_run_in_parts_and_stay_themselves(lambdas):
    """On a CPU eight lambdas of a seed run together; the ninth is a part of its own."""
    rows, held_out = simulated_rows(200, dtype=torch.float64), simulated_rows(100, seed=1, dtype=torch.float64)
    values = [float(k) for k in range(lambdas)]
    path = fit_path(dropout_mlp, LOGNORMAL, rows, held_out, lambdas=values, seeds=(0, 1), config=SHORT)
    for k in (0, lambdas - 1, lambdas, 2 * lambdas - 1):
        alone = fit_path(
            dropout_mlp, LOGNORMAL, rows, held_out, lambdas=[path.lambdas[k]], seeds=[path.seeds[k]], config=SHORT
        )
        assert distance(alone.state(0), path.state(k)) < 1e-9


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
def test_surrounding_autocast_changes_neither_training_nor_predictions(mode):
    rows, held_out = simulated_rows(200), simulated_rows(100, seed=1)

    def path():
        return fit_path(small_mlp, LOGNORMAL, rows, held_out, lambdas=(0.0, 10.0), config=SHORT, mode=mode)

    plain = path()
    predicted, raw = plain.distribution(1, rows.x).median, next(plain.outputs(rows))[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = path()
        assert torch.equal(inside.distribution(1, rows.x).median, predicted)
        for found, _ in inside.outputs(rows):
            assert torch.equal(found, raw)
            assert torch.is_autocast_enabled("cpu")  # what the caller does between two pieces is his
    assert same_state(plain.state(1), inside.state(1))
