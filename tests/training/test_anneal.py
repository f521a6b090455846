"""A weight that rises while the temperature falls."""

import logging

import numpy as np
import pytest
import torch

from tests.training.simulate import N_INPUTS, distance, same_state, simulated_rows, small_mlp
from xcal.calibration import Annealing, KernelFeatures, SoftBins, XCALLoss
from xcal.distributions import family, quantile_edges
from xcal.metrics import concordance_index
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path, problem
from xcal.training.loop import Steps
from xcal.training.result import RunState

TRAIN, VALIDATION = simulated_rows(300), simulated_rows(100, seed=1)
LOGNORMAL = family("lognormal")


def config(**settings):
    fixed = {"epochs": 20, "batch_size": 100, "learning_rate": 1e-2, "checkpoint_every": 3}
    return TrainingConfig(**(fixed | {"penalty_schedule": "anneal"} | settings))


def fitted(settings=None, *, make=small_mlp, **options):
    arguments = {"lambdas": (0, 50), "config": settings or config(), "device": "cpu"}
    return fit_path(make, LOGNORMAL, TRAIN, VALIDATION, **(arguments | options))


def watched_steps(monkeypatch):
    """Weights and temperature of every step, as the step sees them."""
    seen = []
    plain = Steps._part

    def step(steps, number, batch, noise):
        spec = steps.loss_of.__self__.penalty
        temperature = spec.temperature if spec.temperature is None else float(spec.temperature)
        seen.append((tuple(steps.lambdas.view(-1).tolist()), temperature))
        return plain(steps, number, batch, noise)

    monkeypatch.setattr(Steps, "_part", step)
    return seen


@pytest.mark.parametrize(
    ("settings", "rising"),
    [
        ({}, 10),
        ({"epochs": 1}, 0),
        ({"epochs": 500, "patience": 20}, 20),
        ({"epochs": 30, "patience": 20}, 15),
        ({"anneal_epochs": 3}, 3),
        ({"anneal_epochs": 0}, 0),
        ({"penalty_schedule": "constant"}, 0),
    ],
)
def test_half_of_the_epochs_or_the_patience_is_used_to_get_there(settings, rising):
    assert config(**settings).rising_epochs == rising


def test_the_weight_rises_in_equal_steps_and_the_temperature_falls_by_equal_factors():
    schedule = Annealing(epochs=8, first_temperature=3.0, last_temperature=0.2)
    weights = [schedule.weight(epoch) for epoch in range(12)]
    assert weights == pytest.approx([*np.arange(8) / 8, 1, 1, 1, 1])
    temperatures = np.array([schedule.temperature(epoch) for epoch in range(12)])
    assert temperatures[:9] == pytest.approx(np.geomspace(3.0, 0.2, 9))
    assert (temperatures[8:] == 0.2).all()
    # It never rises, and without epochs both are at their end.
    assert Annealing(4, 0.1, 0.5).temperature(0) == 0.5
    assert (Annealing(0).weight(0), Annealing(0).temperature(0)) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": -1}, "epochs: expected an integer of 0 or more"),
        ({"epochs": 2, "first_temperature": 0}, "first_temperature: expected a finite number above 0"),
        ({"epochs": 2, "last_temperature": float("nan")}, "last_temperature: expected a finite number above 0"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Annealing(**arguments)


def test_every_step_has_the_weight_and_the_temperature_of_its_epoch(monkeypatch):
    seen = watched_steps(monkeypatch)
    path = fitted(lambdas=(0, 50, 200))
    schedule = Annealing(epochs=10)
    expected = [
        ((0.0, 50 * schedule.weight(epoch), 200 * schedule.weight(epoch)), schedule.temperature(epoch))
        for epoch in range(20)
        for _ in range(3)  # batches
    ]
    # Products of Python's floats on both sides: the same numbers.
    assert seen == expected
    assert path.lambdas.tolist() == [0, 50, 200]


def test_epochs_are_scored_with_the_full_weight_from_the_start():
    history = fitted().history
    assert history.total == pytest.approx(history.objective + np.array([0.0, 50.0]) * history.dcal)


def test_a_lambda_of_zero_is_trained_as_without_a_schedule():
    """Bit for bit, its early stop included."""
    for patience in (None, 2):
        plain = fitted(config(penalty_schedule="constant", patience=patience))
        annealed = fitted(config(patience=patience))
        assert same_state(annealed.state(0), plain.state(0))
        assert annealed.best_epoch[0] == plain.best_epoch[0]
        np.testing.assert_array_equal(annealed.history.total[: plain.history.epochs, 0], plain.history.total[:, 0])
        assert distance(annealed.state(1), plain.state(1)) > 1e-4


def test_no_epochs_of_annealing_are_a_constant_penalty_at_its_last_temperature():
    at_end = fitted(config(penalty_schedule="constant"))
    assert same_state(fitted(config(anneal_epochs=0)).state(1), at_end.state(1))


def test_the_last_temperature_is_that_of_a_penalty_that_was_given(monkeypatch):
    seen = watched_steps(monkeypatch)
    fitted(config(first_temperature=1.0), penalty=SoftBins(temperature=0.25))
    assert (seen[0][1], seen[-1][1]) == (1.0, 0.25)


def test_a_penalty_without_temperature_has_a_rising_weight(monkeypatch):
    seen = watched_steps(monkeypatch)
    fitted(penalty=SoftBins("product", censored="soft"))
    assert seen[0] == ((0.0, 0.0), None)
    assert seen[-1] == ((0.0, 50.0), None)


def test_a_target_moves_the_weight_and_the_schedule_the_temperature(monkeypatch):
    seen = watched_steps(monkeypatch)
    rows, more = simulated_rows(2000), simulated_rows(1000, seed=1)
    path = fit_path(
        small_mlp,
        LOGNORMAL,
        rows,
        more,
        config=config(epochs=40, batch_size=500),
        target_dcal=3e-3,
        device="cpu",
    )
    assert (seen[0], seen[-1][1]) == (((1.0,), 2.0), 0.5)
    assert path.best().dcal[0, 0] <= 3e-3


def test_the_conditional_penalty_is_annealed_too():
    path = fitted(config(epochs=6), conditional=KernelFeatures(n_features=8, seed=0))
    plain = fitted(config(epochs=6, penalty_schedule="constant"), conditional=KernelFeatures(n_features=8, seed=0))
    assert same_state(path.state(0), plain.state(0))
    assert distance(path.state(1), plain.state(1)) > 1e-4


def test_patience_counts_from_the_first_epoch_with_the_full_weight():
    """Totals that never improve after the first epoch: lambda 0 stops by them, a penalised model later."""
    state = RunState.start({"flat": torch.zeros(2, 1)}, np.array([0.0, 10.0]))
    stopped_at = {}
    for epoch in range(12):
        state.choose({"flat": torch.zeros(2, 1)}, np.full(2, 1.0 + epoch), 3, rising=5)
        for model in np.flatnonzero(state.stopped):
            stopped_at.setdefault(int(model), epoch)
        state.epoch += 1
    # The penalised one has had epochs 5, 6 and 7 with its full weight.
    assert stopped_at == {0: 3, 1: 7}
    assert state.best_epoch.tolist() == [0, 0]


def test_a_network_that_a_large_weight_holds_at_its_start_leaves_it():
    """From random weights: calibrated either way, but with a constant weight it tells rows apart far less."""
    rows, more, new = simulated_rows(1500), simulated_rows(700, seed=1), simulated_rows(1000, seed=2)
    categorical = family("categorical", edges=quantile_edges(rows.time, rows.event, 20), interpolation="linear")
    found = {}
    for schedule in ("constant", "anneal"):
        path = fit_path(
            lambda: MLP(N_INPUTS, categorical.n_outputs, hidden=(32, 16)),
            categorical,
            rows,
            more,
            lambdas=(3000,),
            config=config(epochs=100, batch_size=500, learning_rate=3e-3, penalty_schedule=schedule),
            dcal_floor=2e-3,  # of so few rows
            device="cpu",
        )
        median = path.distribution(0, new.x).median
        found[schedule] = concordance_index(time=new.time, event=new.event, predicted_time=median).value
        assert (path.best().dcal < 2e-3).all()
    assert found["anneal"] > found["constant"] + 0.05


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
@pytest.mark.parametrize("stop_at", [5, 14])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, mode, stop_at):
    def stop(report):
        if report.epoch == stop_at and report.models[-1] == 1:
            raise KeyboardInterrupt

    assert fitted(checkpoint=tmp_path, progress=stop, mode=mode).interrupted
    resumed, whole = fitted(checkpoint=tmp_path, mode=mode), fitted(mode=mode)
    assert same_state(resumed.state(1), whole.state(1))
    np.testing.assert_array_equal(resumed.history.total, whole.history.total)


@pytest.mark.parametrize("other", [{"penalty_schedule": "constant"}, {"anneal_epochs": 4}])
def test_a_checkpoint_of_another_schedule_is_refused(tmp_path, other):
    fitted(checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"checkpoint: expected a checkpoint of the same run .* another config"):
        fitted(config(**other), checkpoint=tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"penalty_schedule": "rise"}, "penalty_schedule: expected one of 'constant', 'anneal', got 'rise'"),
        ({"penalty_schedule": "constant", "anneal_epochs": 2}, "anneal_epochs: expected None without penalty_schedule"),
        ({"anneal_epochs": -1}, "anneal_epochs: expected an integer of 0 or more"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        config(**settings)


def test_a_start_below_the_end_and_a_tensor_are_refused():
    with pytest.raises(ValueError, match=r"config.first_temperature: expected 0.5 or more, .* got 0.05"):
        fitted(config(first_temperature=0.05))
    with pytest.raises(ValueError, match=r"penalty.temperature: expected a number"):
        fitted(penalty=SoftBins(temperature=torch.tensor(0.5)))


def test_a_loss_that_changes_is_not_compiled_and_that_is_said(caplog):
    with caplog.at_level(logging.WARNING):
        fitted(config(epochs=2, compile=True))
    assert [r.message for r in caplog.records] == ["the loss is not compiled: its temperature changes"]


@pytest.mark.parametrize("spec", [{}, {"estimator": "unbiased"}, {"membership": "partition", "censored": "soft"}])
@pytest.mark.parametrize("n", [50, 40_000])
def test_a_temperature_in_a_tensor_is_the_same_number(spec, n):
    """The same operations on the same numbers, in one block and in several: equal bits, value and gradient."""
    u = torch.rand(n, generator=torch.Generator().manual_seed(0))
    event = torch.rand(n, generator=torch.Generator().manual_seed(1)) < 0.6
    edges = torch.linspace(0, 1, 21)
    found = []
    for temperature in (0.35, torch.tensor(0.35, dtype=torch.float64)):
        values = u.clone().requires_grad_()
        value = problem.unchecked_penalty(values, event, edges, SoftBins(temperature=temperature, **spec), None)
        value.backward()
        found.append((value.detach(), values.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])


def test_a_loop_of_one_s_own_can_anneal_too():
    """`XCALLoss` with `Annealing`: the value follows the temperature, and a wrong one is refused."""
    u, event = torch.rand(500, generator=torch.Generator().manual_seed(0)), torch.ones(500)
    penalty, schedule = XCALLoss(), Annealing(epochs=4)
    for epoch in (0, 2, 4):
        penalty.set_temperature(schedule.temperature(epoch))
        assert penalty(u, event) == XCALLoss(temperature=schedule.temperature(epoch))(u, event)
    with pytest.raises(ValueError, match="temperature: expected a finite number above 0"):
        penalty.set_temperature(0)
    with pytest.raises(ValueError, match="temperature: expected None, as only membership='partition' uses it"):
        XCALLoss.paper().set_temperature(1.0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_recorded_step_reads_weight_and_temperature_and_is_recorded_once(caplog, monkeypatch):
    made = []
    plain = Steps._recorded
    monkeypatch.setattr(Steps, "_recorded", lambda steps: made.append(1) or plain(steps))

    def make():
        return MLP(N_INPUTS, 2, hidden=(16, 8))

    with caplog.at_level(logging.WARNING):
        recorded = fitted(make=make, device="cuda")
    assert not caplog.records
    assert len(made) == 1
    stepwise = fitted(config(cuda_graphs=False), make=make, device="cuda")
    assert distance(recorded.state(1), stepwise.state(1)) < 1e-3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_the_kernels_read_a_temperature_in_memory():
    u = torch.rand(3, 5000, generator=torch.Generator().manual_seed(0)).cuda()
    event = (torch.rand(5000, generator=torch.Generator().manual_seed(1)) < 0.6).cuda()
    edges = torch.linspace(0, 1, 21).cuda()
    found = []
    for temperature in (0.35, torch.tensor(0.35, dtype=torch.float64, device="cuda")):
        values = u.clone().requires_grad_()
        value = problem.unchecked_penalty(values, event, edges, SoftBins(temperature=temperature), None)
        value.sum().backward()
        found.append((value.detach(), values.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
