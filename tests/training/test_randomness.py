"""A fit has random numbers of its own: it disturbs nobody's, and nobody disturbs its."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.training.simulate import N_INPUTS, same_state, simulated_rows
from xcal.distributions import family
from xcal.networks import MLP
from xcal.training import TrainingConfig, fit_path
from xcal.training.stack import OwnNumbers, SeedOfRows, draws, seeded, shared_numbers

ROWS, HELD_OUT = simulated_rows(300), simulated_rows(100, seed=1)
CONFIG = TrainingConfig(epochs=3, batch_size=100)


def dropout_mlp():
    return MLP(N_INPUTS, 2, hidden=(16, 8), dropout=0.3)


def rrelu_network():
    """Its random slopes take no generator: they come from torch's own."""
    return nn.Sequential(nn.Linear(N_INPUTS, 8), nn.RReLU(), nn.Linear(8, 2))


def by_torch(function, seed):
    """Return what a function gives with torch's own generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return function()


NETWORKS = {
    "linear": lambda: nn.Linear(3, 4),
    "convolution": lambda: nn.Conv2d(1, 3, 2),
    "embedding": lambda: nn.Embedding(5, 4),
    "recurrent": lambda: nn.LSTM(3, 4, 2, dropout=0.5),
    "attention": lambda: nn.MultiheadAttention(4, 2, dropout=0.1),
    "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)),
    "own parameter": lambda: nn.ParameterList([nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.rand(2))]),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_initial_weights_are_those_of_torchs_generator_with_the_same_seed(name):
    before = torch.get_rng_state()
    made = seeded(NETWORKS[name], 7)
    assert torch.equal(before, torch.get_rng_state())
    assert same_state(by_torch(NETWORKS[name], 7).state_dict(), made.state_dict())


X = torch.linspace(-1, 1, 120).reshape(5, 4, 6)
DRAWS = {
    "dropout": lambda: functional.dropout(X, 0.3),
    "dropout of a module": lambda: nn.Dropout(0.3)(X),
    "dropout in place": lambda: functional.dropout(X.clone(), 0.3, inplace=True),
    "dropout of everything": lambda: functional.dropout(X, 1.0),
    "dropout of nothing": lambda: functional.dropout(X, 0.0),
    "dropout1d": lambda: functional.dropout1d(X, 0.3),
    "dropout1d of one row": lambda: functional.dropout1d(X[0], 0.3),
    "dropout2d": lambda: functional.dropout2d(X.reshape(5, 4, 2, 3), 0.3),
    "dropout3d": lambda: functional.dropout3d(X.reshape(5, 4, 2, 3, 1), 0.3),
    "dropout3d of one row": lambda: functional.dropout3d(X.reshape(5, 4, 2, 3), 0.3),
    "rand": lambda: torch.rand(3, 4),
    "randn in float64": lambda: torch.randn(5, dtype=torch.float64),
    "rand_like": lambda: torch.rand_like(X),
    "randn_like": lambda: torch.randn_like(X),
    "randint": lambda: torch.randint(2**31 - 1, (3,)),
    "randperm": lambda: torch.randperm(10),
    "normal": lambda: torch.normal(X, 1.0),
    "normal of a size": lambda: torch.normal(0.0, 1.0, (4,)),
    "bernoulli": lambda: torch.bernoulli(X.abs()),
    "multinomial": lambda: torch.multinomial(X.abs().flatten(), 5),
    "exponential_": lambda: X.clone().exponential_(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_own_numbers_are_those_of_torchs_generator(name):
    before = torch.get_rng_state()
    with OwnNumbers(11):
        own = DRAWS[name]()
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(own, by_torch(DRAWS[name], 11))


def test_quick_dropout_leaves_out_the_share_that_is_asked_for():
    rows, p = torch.ones(500, 400), 0.3

    def noise(seed):
        with OwnNumbers(seed, quick=True):
            return functional.dropout(rows, p)

    first, second, again = noise(11), noise(12), noise(11)
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    out = (first == 0).double()
    error = (p * (1 - p) / out.numel()) ** 0.5
    assert out.mean().item() == pytest.approx(p, abs=4 * error)
    assert (out * (second == 0)).mean().item() == pytest.approx(p * p, abs=4 * (p**2 * (1 - p**2) / out.numel()) ** 0.5)
    torch.testing.assert_close(first[first > 0].unique(), torch.tensor([1 / (1 - p)]), rtol=1e-4, atol=0)
    # Some rows of a batch, whose others are with other processes, are treated as they are with all.
    with OwnNumbers(SeedOfRows(11, 5, 500, torch.tensor([7, 3])), quick=True):
        assert torch.equal(functional.dropout(rows[:2], p), first[[7, 3]])


def test_a_generator_that_a_user_gives_is_used():
    with OwnNumbers(11):
        given = torch.rand(3, generator=torch.Generator().manual_seed(2))
    assert torch.equal(given, torch.rand(3, generator=torch.Generator().manual_seed(2)))


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (nn.Linear(6, 6), (False, False)),
        (nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)), (True, False)),
        (nn.RReLU(), (True, True)),
        (nn.AlphaDropout(0.5), (True, True)),
        (nn.GRU(6, 6, 2, dropout=0.5), (True, True)),
    ],
)
def test_who_draws_and_from_whom_is_found_out(network, expected):
    before = torch.get_rng_state()
    assert draws(lambda: network(X)) == expected
    assert torch.equal(before, torch.get_rng_state())


def test_torchs_generators_are_put_back_and_may_be_asked_for_twice():
    before = torch.get_rng_state()
    with shared_numbers(3):
        first = torch.rand(2)
        with shared_numbers(3):
            second = torch.rand(2)
    assert torch.equal(first, second)
    assert torch.equal(before, torch.get_rng_state())


def fitted(make_network, mode="stacked", **options):
    path = fit_path(
        make_network, family("lognormal"), ROWS, HELD_OUT, seeds=(0, 1), config=CONFIG, mode=mode, **options
    )
    return [path.state(k) for k in range(path.n_models)]


@pytest.mark.parametrize("make_network", [dropout_mlp, rrelu_network])
def test_a_fit_leaves_the_users_random_numbers_alone(make_network):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    fitted(make_network, "sequential")
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("mode", ["stacked", "sequential"])
def test_fits_in_two_threads_do_not_change_each_other(mode):
    alone = fitted(dropout_mlp, mode)
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda _: fitted(dropout_mlp, mode), range(4)))
    for states in together:
        assert all(same_state(a, b) for a, b in zip(alone, states, strict=True))


def test_a_fit_does_not_change_what_another_thread_draws():
    torch.manual_seed(5)
    expected = [torch.rand(3) for _ in range(2000)]
    torch.manual_seed(5)
    done = threading.Event()

    def train():
        while not done.is_set():
            fitted(dropout_mlp)

    thread = threading.Thread(target=train)
    thread.start()
    drawn = [torch.rand(3) for _ in range(2000)]
    done.set()
    thread.join()
    assert all(torch.equal(a, b) for a, b in zip(expected, drawn, strict=True))
