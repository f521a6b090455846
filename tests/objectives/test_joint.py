"""An objective says itself whether it gives F with its value; whatever it says, the same thing is trained."""

from dataclasses import dataclass
from functools import partial, wraps

import numpy as np
import pytest
import torch

from tests.training.simulate import distance, simulated_rows, small_mlp
from xcal.distributions import family
from xcal.objectives import gives_cdf, nll, survival_crps, with_cdf
from xcal.training import TrainingConfig, fit_path
from xcal.training.checkpoint import settings_digest
from xcal_paper.published import published_nll

ROWS, HELD_OUT = (simulated_rows(n, seed=n, dtype=torch.float64) for n in (200, 100))
CONFIG = TrainingConfig(epochs=3, batch_size=50, learning_rate=1e-2)
CATEGORICAL = family("categorical", edges=[0.0, 0.5, 1.0])
LOGNORMAL = family("lognormal")


def squared(dist, time, event):
    """A user's own objective: squared distance of F from 1 for an event, from 0 for a censored row."""
    return (event.to(time.dtype) - dist.cdf(time)).square()


def declared(calls):
    """The same objective with a declaration that counts its calls."""

    def together(dist, time, event):
        calls.append(time.shape)
        cdf = dist.cdf(time)
        return (event.to(time.dtype) - cdf).square(), cdf

    @gives_cdf(together)
    def own(dist, time, event):
        raise AssertionError("asked alone although it gives F as well")

    return own


def train(objective, kind=LOGNORMAL):
    return fit_path(small_mlp, kind, ROWS, HELD_OUT, lambdas=(0.0, 5.0), seeds=(1,), objective=objective, config=CONFIG)


def assert_same_models(one, other):
    # Twelve steps in float64: rounding of 1e-16 grows by far less than 1e6.
    assert max(distance(one.state(k), other.state(k)) for k in range(2)) < 1e-10
    np.testing.assert_allclose(one.history.total, other.history.total, rtol=1e-9)


def test_an_objective_with_the_declaration_trains_the_same_models_and_is_asked_once():
    calls = []
    assert_same_models(train(declared(calls)), train(squared))
    assert len(calls) >= 3 * 4


def test_a_partial_of_an_objective_is_an_objective_of_its_own():
    """Its arguments count: the joint function of `nll` knows nothing of them."""

    def plain(dist, time, event):
        return nll(dist, time, event, density=True)

    discrete = train(partial(nll, density=True), CATEGORICAL)
    assert_same_models(discrete, train(plain, CATEGORICAL))
    without = train(nll, CATEGORICAL)
    assert not np.allclose(discrete.history.total, without.history.total)


def test_published_likelihood_trains_the_same_models_by_every_name():
    def plain(dist, time, event):
        return nll(dist, time, event, as_published=True)

    trained = train(published_nll, CATEGORICAL)
    assert_same_models(trained, train(partial(nll, as_published=True), CATEGORICAL))
    assert_same_models(trained, train(plain, CATEGORICAL))
    assert not np.allclose(trained.history.total, train(nll, CATEGORICAL).history.total)


@pytest.mark.parametrize("objective", [nll, published_nll])
def test_the_likelihoods_declare_their_joint_function(objective):
    dist = CATEGORICAL.distribution(torch.randn(20, 2, generator=torch.Generator().manual_seed(0)).double())
    time, event = torch.linspace(0.01, 1.5, 20).double(), torch.arange(20) % 2 == 0
    together = with_cdf(objective)
    assert together.__name__ != "one_after_the_other"
    rows, cdf = together(dist, time, event)
    torch.testing.assert_close(rows, objective(dist, time, event))
    torch.testing.assert_close(cdf, dist.cdf(time))


def test_a_function_that_wraps_an_objective_does_not_inherit_its_declaration():
    """`functools.wraps` copies attributes; what the wrapper returns is what must be trained."""

    @wraps(nll)
    def doubled(dist, time, event):
        return 2 * nll(dist, time, event)

    dist = LOGNORMAL.distribution(torch.zeros(3, 2))
    time, event = torch.tensor([0.5, 1.0, 2.0]), torch.tensor([True, False, True])
    rows, cdf = with_cdf(doubled)(dist, time, event)
    assert torch.equal(rows, 2 * nll(dist, time, event))
    assert torch.equal(cdf, dist.cdf(time))


def test_an_object_can_declare_it_too():
    class Weighted:
        def __init__(self, factor):
            self.factor = factor

        def __call__(self, dist, time, event):
            return self.factor * nll(dist, time, event)

    def together(dist, time, event):
        log_likelihood, cdf = dist.log_likelihood_and_cdf(time, event)
        return -3.0 * log_likelihood, cdf

    objective = gives_cdf(together)(Weighted(3.0))
    assert isinstance(objective, Weighted)
    assert with_cdf(objective) is together
    assert_same_models(train(objective, CATEGORICAL), train(Weighted(3.0), CATEGORICAL))


def test_survival_crps_declares_nothing_and_gives_both():
    dist = LOGNORMAL.distribution(torch.zeros(2, 2))
    time, event = torch.tensor([0.5, 2.0]), torch.tensor([True, False])
    rows, cdf = with_cdf(survival_crps)(dist, time, event)
    assert torch.equal(rows, survival_crps(dist, time, event))
    assert torch.equal(cdf, dist.cdf(time))


@dataclass(frozen=True)
class Frozen:
    factor: float = 1.0

    def __call__(self, dist, time, event):
        return nll(dist, time, event)


def test_what_cannot_hold_a_declaration_is_refused():
    with pytest.raises(ValueError, match="objective: expected a function, or an object that takes attributes"):
        gives_cdf(lambda dist, time, event: (time, time))(Frozen())
    with pytest.raises(ValueError, match="together: expected a function of a distribution, times and events, got int"):
        gives_cdf(3)


def test_runs_with_different_joint_functions_do_not_share_a_checkpoint():
    def with_factor(factor):
        @gives_cdf(lambda dist, time, event: (factor * time, time))
        def objective(dist, time, event):
            return squared(dist, time, event)

        return objective

    one, same, other = (settings_digest("objective", with_factor(factor)) for factor in (1.0, 1.0, 2.0))
    assert one == same
    assert one != other
