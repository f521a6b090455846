"""The loss with its gradient by formula is the loss that autograd goes through."""

from functools import wraps

import numpy as np
import pytest
import torch

from tests.training.simulate import simulated_rows, small_mlp
from xcal.calibration import xcal_penalty
from xcal.calibration.bins import bin_edges
from xcal.calibration.membership import SoftBins
from xcal.distributions import Categorical, family
from xcal.objectives import CensoredCRPS, nll, survival_crps, with_slopes
from xcal.training.path import fit_path
from xcal.training.problem import Problem, TrainingConfig, by_autograd
from xcal.training.rows import epoch_edges, epoch_order, prepared, take
from xcal_paper.published import published_nll

EDGES = torch.tensor([0.0, 0.5, 1.0, 2.0, 5.0])
FAMILIES = [
    family("lognormal"),
    family("weibull"),
    *(family(name, edges=EDGES) for name in ("categorical", "mtlr", "logistic-hazard")),
]


@wraps(nll)
def doubled(dist, time, event):
    return 2 * nll(dist, time, event)


CHANGES = {
    "as it is": {},
    "no penalty": {"penalised": False},
    "weights": {"weights": True},
    "conditional": {"row_features": True},
    "conditional, weights": {"row_features": True, "weights": True},
    "unbiased": {"penalty": SoftBins(estimator="unbiased")},
    "paper": {"penalty": SoftBins("product", censored="soft")},
    "own objective": {"objective": lambda dist, time, event: (event.float() - dist.cdf(time)) ** 2},
    "crps": {"objective": survival_crps},
    "proper crps": {"objective": CensoredCRPS.of([0.5, 1.0, 2.0, 3.0], [True, False, True, True])},
    "published": {"objective": published_nll},
    "a wrapper, which has nll's attributes": {"objective": doubled},
    "penalty alone": {"objective": lambda dist, time, event: torch.zeros_like(time)},
}


def problem_of(made, *, weights=False, row_features=False, **changes):
    data = simulated_rows(60)
    if weights:
        data = data.replaced(weights=torch.linspace(0.5, 3.0, 60))
    rows = prepared("train", data, torch.device("cpu"))
    features = torch.stack([rows.x[:, 0] > 0, rows.x[:, 1] > 0], dim=1).float() if row_features else None
    settings = {"objective": nll, "penalty": SoftBins(), "penalised": True} | changes
    edges = torch.from_numpy(bin_edges(10))
    return Problem(made, edges=edges, train=rows, validation=rows, row_features=features, **settings)


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("made", FAMILIES, ids=lambda one: type(one).__name__)
def test_same_value_and_gradient_as_autograd(made, name):
    problem = problem_of(made, **CHANGES[name])
    # Two seeds, each with rows of its own and three lambdas.
    order = torch.from_numpy(np.random.default_rng(0).permutation(60)).view(2, 30)
    batch = take(problem.train, order, row_features=problem.row_features)
    raw = torch.randn(2, 3, 30, made.n_outputs, generator=torch.Generator().manual_seed(0)).requires_grad_()
    lambdas = torch.tensor([[0.0, 1.0, 50.0]], dtype=torch.float64).expand(2, 3)
    ours, autograd = problem.loss_and_slopes(raw, batch, lambdas), by_autograd(problem.loss)(raw, batch, lambdas)
    torch.testing.assert_close(ours.value, autograd.value)
    assert not ours.value.requires_grad
    (gradient,), (expected,) = ours.gradient([raw]), autograd.gradient([raw])
    torch.testing.assert_close(gradient, expected)
    assert expected.abs().amax() > 1e-4


def test_bins_do_without_a_graph_of_their_own():
    problem = problem_of(FAMILIES[2])
    batch = take(problem.train, torch.arange(30).view(1, 30))
    raw = torch.zeros(1, 1, 30, FAMILIES[2].n_outputs, requires_grad=True)
    assert problem.loss_and_slopes(raw, batch, torch.ones(1, 1)).ends[0] is raw


def test_a_likelihood_of_a_users_own_is_what_is_trained():
    """A subclass that changes the likelihood must not be passed by for the formula of its parent."""

    class Halved(Categorical):
        def log_likelihood_and_cdf(self, time, event, *, floor=0.0):
            log_likelihood, cdf = super().log_likelihood_and_cdf(time, event, floor=floor)
            return log_likelihood / 2, cdf

    raw = torch.randn(3, 4, dtype=torch.float64)
    time, event = torch.tensor([0.2, 1.5, 4.0]), torch.tensor([True, False, True])
    own, plain = (with_slopes(nll)(kind(raw, EDGES), time, event).objective for kind in (Halved, Categorical))
    torch.testing.assert_close(2 * own, plain)


def test_random_edges_are_those_of_a_loop_of_ones_own():
    """S-cal: every batch has bins of its own, the same for all models; a plain loop over them comes to the same end."""
    rows, config = simulated_rows(90), TrainingConfig(epochs=2, batch_size=30, learning_rate=0.01)
    asked = {"penalty": SoftBins(random_edges=True), "calibration_bins": 5, "config": config, "device": "cpu"}
    path = fit_path(small_mlp, family("weibull"), rows, rows, lambdas=(0.0, 30.0), **asked)
    alone = fit_path(small_mlp, family("weibull"), rows, rows, lambdas=(30.0,), **asked)
    np.testing.assert_allclose(path.history.objective[:, 1], alone.history.objective[:, 0], rtol=1e-5)

    torch.manual_seed(0)
    network = small_mlp()
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    edges = []
    for epoch in range(2):
        drawn, batches = epoch_edges(5, 3, epoch), epoch_order(90, 30, [0], epoch)[:, 0]
        edges.extend(drawn)
        for own, batch in zip(drawn, batches, strict=True):
            dist = family("weibull").distribution(network(rows.x[batch]))
            time, event = rows.time[batch], rows.event[batch]
            loss = nll(dist, time, event).mean() + 30 * xcal_penalty(dist.cdf(time), event, edges=own)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert len({tuple(own.tolist()) for own in edges}) == 6
    with torch.no_grad():
        found = nll(family("weibull").distribution(network(rows.x)), rows.time, rows.event).mean()
    np.testing.assert_allclose(alone.history.objective[-1, 0], float(found), rtol=1e-5)
    even = fit_path(small_mlp, family("weibull"), rows, rows, lambdas=(30.0,), **asked | {"penalty": SoftBins()})
    assert abs(even.history.objective[-1, 0] - float(found)) > 1e-3
