"""Training with the conditional penalty: the loss it minimises, its modes, checkpoints, and what it is for."""

import numpy as np
import pytest
import torch

from xcal import conditional_calibration, fit_path
from xcal.calibration import KernelFeatures, SoftBins
from xcal.calibration.bins import bin_edges
from xcal.calibration.histogram import residuals
from xcal.calibration.penalties import unchecked_conditional_penalty
from xcal.data import SurvivalData
from xcal.distributions import family
from xcal.networks import Linear
from xcal.training import TrainingConfig

CONFIG = TrainingConfig(epochs=2, batch_size=100)


def rows(n, seed=0):
    """Log-normal times whose scale depends on the first covariate."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 2))
    time = np.exp(x[:, 1] + np.exp(0.5 * x[:, 0]) * rng.normal(size=n))
    return SurvivalData(torch.tensor(x, dtype=torch.float64), time=torch.tensor(time), event=torch.ones(n))


def fit(train, **changes):
    settings = {"lambdas": (0.0, 50.0), "config": CONFIG, "conditional": KernelFeatures(16), "progress": False}
    validation = changes.pop("validation", train)
    return fit_path(lambda: Linear(2, 2).double(), family("lognormal"), train, validation, **(settings | changes))


def test_one_step_on_all_rows_follows_the_gradient_of_nll_plus_lambda_times_the_penalty():
    train = rows(80)
    config = TrainingConfig(epochs=1, batch_size=80, learning_rate=1e-3)
    found = fit(train, lambdas=(7.0,), config=config)
    torch.manual_seed(0)
    network = Linear(2, 2).double()
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    d = family("lognormal").distribution(network(train.x))
    edges = torch.arange(21, dtype=torch.float64) / 20
    h = torch.tensor(KernelFeatures(16).of(train.x.numpy()))
    spec = SoftBins(estimator="unbiased")
    penalty = unchecked_conditional_penalty(d.cdf(train.time), train.event.bool(), h, edges, spec)
    (-d.log_prob(train.time).mean() + 7.0 * penalty).backward()
    adam.step()
    expected = network(train.x)
    torch.testing.assert_close(found.network(0)(train.x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_epochs_are_chosen_by_the_objective_and_lambda_times_conditional_calibration(weighted):
    train, validation = rows(300), rows(90, seed=1)
    leaves = torch.exp(torch.randn(90, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    time = torch.minimum(validation.time, leaves)
    validation = SurvivalData(validation.x, time=time, event=validation.time <= leaves)
    w = np.arange(90) % 3 + 1 if weighted else np.ones(90)
    if weighted:
        validation = validation.replaced(weights=torch.tensor(w, dtype=torch.float64))
    path = fit(train, validation=validation, mode="stacked", config=TrainingConfig(epochs=1, batch_size=100))
    h = KernelFeatures(16).of(validation.x.numpy())
    for model, lam in enumerate((0.0, 50.0)):
        d = path.distribution(model, validation.x)
        u = d.cdf(time).detach().numpy()
        r = residuals(u, validation.event.numpy().astype(bool), bin_edges(20))
        own = (w**2 * (h**2).sum(1) * (r**2).sum(1)).sum()
        k = (np.square((w[:, None] * h).T @ r).sum() - own) / (w.sum() ** 2 - (w**2).sum())
        if not weighted:
            measured = conditional_calibration(
                u, validation.event, validation.x.numpy(), features=h, n_draws=0, where=False
            )
            assert k == pytest.approx(measured.value)
        expected = path.history.objective[0, model] + lam * max(k, 0.0)
        assert path.history.total[0, model] == pytest.approx(expected, rel=1e-9)
        assert k > 0


def test_features_of_other_rows_are_refused():
    """A maker is asked about the rows to train on, and about those to validate on."""

    class OfTheTrainingRows:
        def of(self, x):
            return np.ones((300, 2))

    with pytest.raises(ValueError, match=r"conditional: expected features of shape \(90, M\)"):
        fit(rows(300), validation=rows(90, seed=1), conditional=OfTheTrainingRows())


def test_stacked_and_one_by_one_are_the_same():
    train = rows(300)
    stacked, single = (fit(train, mode=mode) for mode in ("stacked", "sequential"))
    for model in range(2):
        one, other = stacked.network(model)(train.x), single.network(model)(train.x)
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_without_lambda_it_changes_nothing():
    train = rows(200)
    one, other = (fit(train, lambdas=(0.0,), conditional=c) for c in (None, KernelFeatures(16)))
    torch.testing.assert_close(one.network(0)(train.x), other.network(0)(train.x), rtol=0, atol=0)


def test_another_seed_of_the_features_is_another_run_for_a_checkpoint(tmp_path):
    train = rows(200)
    fit(train, checkpoint=tmp_path)
    fit(train, checkpoint=tmp_path)  # resumes: finished
    with pytest.raises(ValueError, match="checkpoint"):
        fit(train, checkpoint=tmp_path, conditional=KernelFeatures(16, seed=1))


def test_it_lowers_conditional_calibration_where_the_model_could_be_right():
    """The scale depends on x, the network can say so, and the likelihood alone has not yet learnt it."""
    train, test = rows(2000), rows(2000, seed=1)
    config = TrainingConfig(epochs=20, batch_size=500, learning_rate=3e-2)
    path = fit(train, lambdas=(0.0, 100.0), config=config, conditional=KernelFeatures(64))
    values = []
    for d in (path.distribution(model, test.x) for model in range(2)):
        u = d.cdf(test.time).detach().numpy()
        values.append(conditional_calibration(u, test.event, test.x.numpy(), n_draws=0, where=False).value)
    assert values[1] < values[0] / 2


def test_fitted_features_are_the_same_functions_of_the_rows_to_validate_on():
    train, validation = rows(200), rows(60, seed=1)
    fitted = KernelFeatures(16).fit(train.x)
    path = fit(train, validation=validation, conditional=fitted, mode="stacked", config=CONFIG)
    own = fit(train, validation=validation, mode="stacked", config=CONFIG)
    # The penalty is the same, and the scale of the rows to validate on another.
    np.testing.assert_allclose(path.history.objective, own.history.objective, rtol=1e-9)
    u = path.distribution(1, validation.x).cdf(validation.time).detach().numpy()
    h = fitted.of(validation.x)
    k = conditional_calibration(u, validation.event, validation.x, features=h, n_draws=0, where=False).value
    best = path.history.total[:, 1].argmin()
    excess = path.history.total[best, 1] - path.history.objective[best, 1]
    assert excess == pytest.approx(50.0 * k, rel=1e-6)
    assert k > 0
    assert excess != pytest.approx(own.history.total[best, 1] - own.history.objective[best, 1], rel=1e-3)
