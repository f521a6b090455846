"""Threads share the work of a step; what is computed depends on how it is cut, not on who is busy."""

import math

import pytest
import torch
from torch import nn

from tests.training.simulate import N_INPUTS, same_state, simulated_rows, small_mlp
from xcal import _devices as _threads
from xcal._devices import Workers
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path
from xcal.training import problem as plan
from xcal.training.problem import Plan, planned
from xcal.training.stack import Stack

CPU = torch.device("cpu")
ROWS, HELD_OUT = simulated_rows(400), simulated_rows(150, seed=1)
LOGNORMAL = family("lognormal")


@pytest.fixture
def threads():
    """Two threads, whatever the machine has; torch's setting is put back."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield 2
    torch.set_num_threads(before)


@pytest.fixture
def everything_is_heavy(monkeypatch, threads):
    """Cut even the smallest work."""
    monkeypatch.setattr(plan, "_WORTH_A_THREAD", 1.0)


def fitted(make_network=small_mlp, lambdas=(0.0, 10.0, 100.0), seeds=(0, 1), dtype=torch.float32, **options):
    rows, held_out = (SurvivalData(part.x.to(dtype), part.time, part.event) for part in (ROWS, HELD_OUT))
    config = TrainingConfig(epochs=3, batch_size=100, **options)
    return fit_path(make_network, LOGNORMAL, rows, held_out, lambdas=lambdas, seeds=seeds, config=config)


def states(path):
    return [path.state(k) for k in range(path.n_models)]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("models", [{}, {"lambdas": (10.0,), "seeds": (0,)}], ids=["path", "lone model"])
def test_who_does_the_work_changes_no_bit(models, dropout, everything_is_heavy, monkeypatch):
    def make():
        return MLP(N_INPUTS, 2, hidden=(16, 8), dropout=dropout)

    together = fitted(make, **models)
    monkeypatch.setattr(Workers, "map", lambda self, function, items: [function(item) for item in items])
    alone = fitted(make, **models)
    assert all(same_state(a, b) for a, b in zip(states(together), states(alone), strict=True))
    assert (together.history.total == alone.history.total).all()


@pytest.mark.parametrize("models", [{}, {"lambdas": (10.0,), "seeds": (0,)}], ids=["path", "lone model"])
def test_how_the_work_is_cut_changes_rounding_only(models, everything_is_heavy, monkeypatch):
    cut = fitted(dtype=torch.float64, **models)
    monkeypatch.setattr(plan, "_WORTH_A_THREAD", 1e30)
    whole = fitted(dtype=torch.float64, **models)
    for a, b in zip(states(cut), states(whole), strict=True):
        for name in a:
            torch.testing.assert_close(a[name], b[name], rtol=1e-9, atol=1e-11)


def test_torchs_number_of_threads_is_left_as_it_was(threads):
    fitted()
    assert torch.get_num_threads() == threads
    with pytest.raises(ZeroDivisionError), Workers(1):
        1 / (torch.get_num_threads() - 1)  # one thread inside
    assert torch.get_num_threads() == threads


def test_an_error_in_a_piece_reaches_the_caller():
    with Workers(2) as pool, pytest.raises(ZeroDivisionError):
        pool.map(lambda k: 1 / k, [1, 0])


def test_results_come_in_the_order_of_the_items():
    with Workers(2) as pool:
        assert pool.map(lambda k: k * k, range(20)) == [k * k for k in range(20)]


HEAVY, LIGHT = 1e9, 1e5


@pytest.mark.parametrize(
    ("models", "work", "row_wise", "expected"),
    [
        ((1, 1), LIGHT, True, Plan()),
        ((3, 8), LIGHT, True, Plan()),
        ((1, 1), HEAVY, True, Plan(2, row_pieces=4)),
        ((1, 1), HEAVY, False, Plan(operations=2)),
        ((3, 8), HEAVY, False, Plan(2, together=4)),
        ((1, 8), HEAVY, False, Plan(2, together=2)),
        ((4, 24), HEAVY, False, Plan(2, together=8)),
    ],
)
def test_the_cut_follows_from_the_work(models, work, row_wise, expected, threads):
    assert planned(*models, work, row_wise=lambda: row_wise) == expected


@pytest.mark.parametrize(
    ("models", "work", "expected"),
    [((1, 1), LIGHT, Plan()), ((1, 1), 3e8, Plan(operations=8)), ((3, 8), HEAVY, Plan(operations=16))],
)
def test_on_many_cores_operations_are_split(models, work, expected, monkeypatch):
    monkeypatch.setattr(plan, "usable_threads", lambda: 16)
    assert planned(*models, work, row_wise=lambda: True) == expected


@pytest.mark.parametrize(
    ("content", "expected"),
    [(("250000 100000",), 2.5), (("max 100000",), math.inf), (("150000", "100000"), 1.5), (("-1", "100000"), math.inf)],
    ids=["two and a half cores", "no limit", "older kernels", "older kernels, no limit"],
)
def test_a_containers_limit_is_read(content, expected, tmp_path, monkeypatch):
    files = [tmp_path / str(k) for k in range(len(content))]
    for file, text in zip(files, content, strict=True):
        file.write_text(text + "\n")
    monkeypatch.setattr(_threads, "_LIMITS", ((str(tmp_path / "absent"),), tuple(map(str, files))))
    assert _threads._container_limit.__wrapped__() == expected


def test_a_containers_limit_counts(threads, monkeypatch):
    monkeypatch.setattr(_threads, "_container_limit", lambda: 0.5)
    assert _threads.usable_threads() == 1
    monkeypatch.setattr(_threads, "_container_limit", lambda: math.inf)
    assert _threads.usable_threads() == threads


def test_one_thread_cuts_nothing():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert planned(3, 8, HEAVY, row_wise=lambda: True) == Plan()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (small_mlp, True),
        (lambda: MLP(N_INPUTS, 2, hidden=(8,), dropout=0.5), True),
        (lambda: nn.Sequential(nn.Linear(N_INPUTS, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), False),
        (lambda: nn.Sequential(nn.Linear(N_INPUTS, 4), nn.LayerNorm(4), nn.Linear(4, 2)), True),
    ],
    ids=["dense", "dropout", "batch norm", "layer norm"],
)
def test_networks_that_mix_rows_are_told_apart(make, expected):
    stack = Stack(make, [0], 1, CPU, torch.float32)
    buffers = {name: b.clone() for name, b in stack.template.named_buffers()}
    assert stack.row_wise(ROWS.x[:8]) is expected
    assert all(torch.equal(b, buffers[name]) for name, b in stack.template.named_buffers())


def test_the_work_of_a_dense_network_is_its_weights():
    stack = Stack(lambda: MLP(N_INPUTS, 2, hidden=(16, 8)), [0], 1, CPU, torch.float32)
    assert stack.work(ROWS.x[:2]) == N_INPUTS * 16 + 16 * 8 + 8 * 2


def test_a_large_network_with_batch_norm_is_trained_whole(everything_is_heavy):
    def make():
        return nn.Sequential(nn.Linear(N_INPUTS, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))

    path = fitted(make, lambdas=(10.0,), seeds=(0,))
    assert int(path.state(0)["1.num_batches_tracked"]) == 4 * (int(path.best_epoch[0]) + 1)
