"""The likelihood against lifelines, torchsurv and pycox, and what the published code made of it."""

import math

import numpy as np
import pytest
import torch
from scipy import special, stats
from torch import Tensor

from xcal.distributions import MTLR, Categorical, LogLogistic, LogNormal, SurvivalDistribution, Weibull, family
from xcal.objectives import nll

RNG = np.random.default_rng(11)
N = 400
DRAWS, LIMIT = RNG.gamma(2.0, 1.5, size=N), RNG.exponential(4.0, size=N)
TIME, EVENT = np.minimum(DRAWS, LIMIT), DRAWS <= LIMIT
time, event = torch.from_numpy(TIME), torch.from_numpy(EVENT)

EDGES = torch.tensor([0.0, 0.5, 1.0, 2.0, 3.0, 5.0], dtype=torch.float64)


def rows(*values: float) -> tuple[Tensor, ...]:
    return tuple(torch.full((N,), float(v), dtype=torch.float64) for v in values)


@pytest.mark.parametrize("name", ["LogNormalFitter", "WeibullFitter", "LogLogisticFitter"])
def test_continuous_likelihoods_equal_lifelines(name: str) -> None:
    import lifelines

    fitter = getattr(lifelines, name)()
    fitter.fit(TIME, EVENT)
    dist: SurvivalDistribution
    if name == "LogNormalFitter":
        loc, scale = rows(fitter.mu_, fitter.sigma_)
        dist = LogNormal(loc, scale.log())
    elif name == "WeibullFitter":
        dist = Weibull(*rows(fitter.lambda_, fitter.rho_))
    else:
        dist = LogLogistic(*rows(fitter.alpha_, fitter.beta_))
    assert -nll(dist, time, event).sum().item() == pytest.approx(fitter.log_likelihood_, rel=1e-9)


# torchsurv scripts a function when it is imported, which torch has deprecated.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
def test_weibull_equals_torchsurv() -> None:
    from torchsurv.loss.weibull import neg_log_likelihood_weibull

    # Moderate cumulative hazards: torchsurv clamps its terms far out.
    generator = torch.Generator().manual_seed(1)
    log_params = 0.3 * torch.randn(N, 2, generator=generator, dtype=torch.float64) + torch.tensor([1.0, 0.2])
    expected = neg_log_likelihood_weibull(log_params, event, time, reduction="sum").item()
    dist = family("weibull").distribution(log_params)
    assert nll(dist, time, event).sum().item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("model", ["categorical", "mtlr"])
def test_discrete_likelihoods_equal_pycox(model: str) -> None:
    """Pycox adds a last bin for 'later' itself, in which nothing is observed; ours is the grid's last."""
    from pycox.models import loss

    n_bins = EDGES.numel() - 1
    phi = torch.randn(N, n_bins - 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    index = torch.bucketize(time, EDGES[1:-1])
    rows_in = index < n_bins - 1
    if model == "categorical":
        dist: SurvivalDistribution = Categorical(torch.cat([phi, torch.zeros(N, 1)], dim=-1), EDGES, "step")
        oracle = loss.nll_pmf
    else:
        dist = MTLR(phi, EDGES, "step")
        oracle = loss.nll_mtlr
    expected = oracle(phi[rows_in], index[rows_in], event[rows_in].double(), reduction="none", epsilon=0.0)
    assert rows_in.sum() > 300
    torch.testing.assert_close(nll(dist, time, event)[rows_in], expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_density_divides_the_mass_of_events_by_the_bin_width(interpolation: str) -> None:
    logits = torch.randn(N, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    dist = Categorical(logits, EDGES, interpolation)
    width = EDGES.diff()[torch.bucketize(time, EDGES[1:-1])]
    gap = nll(dist, time, event, density=True) - nll(dist, time, event)
    torch.testing.assert_close(gap, torch.where(event, width.log(), 0.0), rtol=1e-10, atol=1e-12)


def test_density_makes_discrete_and_continuous_models_comparable() -> None:
    """A fine grid of exponential masses has the exponential's likelihood; the bin masses themselves do not."""
    edges = torch.linspace(0, 40, 4001, dtype=torch.float64)
    mass = torch.exp(-edges[:-1]) - torch.exp(-edges[1:])
    dist = Categorical(mass.log().expand(N, -1), edges, "linear")
    exact = nll(Weibull(*rows(1.0, 1.0)), time, event)
    torch.testing.assert_close(nll(dist, time, event, density=True), exact, rtol=0, atol=6e-3)
    assert (nll(dist, time, event) - exact)[event].mean() > 4


def test_density_changes_nothing_for_a_continuous_model() -> None:
    dist = Weibull(*rows(2.0, 1.3))
    assert torch.equal(nll(dist, time, event, density=True), nll(dist, time, event))


@pytest.mark.parametrize("interpolation", ["step", "linear"])
def test_published_likelihood(interpolation: str) -> None:
    """log(1 - F + 1e-4) for censored rows; steps: a censored row of the last bin is an event."""
    logits = torch.randn(N, 5, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    dist = Categorical(logits, EDGES, interpolation)
    mass = torch.softmax(logits, dim=-1).numpy()
    k = np.searchsorted(EDGES.numpy()[1:-1], TIME, side="left")
    own = mass[np.arange(N), k]
    earlier = np.where(np.arange(5) < k[:, None], mass, 0).sum(-1)
    ratio = np.clip((TIME - EDGES.numpy()[k]) / np.diff(EDGES.numpy())[k], 0, 1)
    cdf = earlier + (own if interpolation == "step" else own * ratio)
    counted = EVENT | ((k == 4) & (interpolation == "step"))
    assert (counted != EVENT).sum() > 5 or interpolation == "linear"
    expected = -np.where(counted, np.log(own), np.log(1 - cdf + 1e-4))
    np.testing.assert_allclose(nll(dist, time, event, as_published=True).numpy(), expected, rtol=1e-9)


def test_published_likelihood_of_a_continuous_model() -> None:
    """Density and cdf at t + 1e-4, and log(1 - F + 1e-4) for censored rows."""
    raw = torch.tensor([0.4, -1.3], dtype=torch.float64).expand(N, 2)
    twin = stats.weibull_min(c=1 + special.expit(-1.3), scale=1 + np.exp(0.4))
    expected = -np.where(EVENT, twin.logpdf(TIME + 1e-4), np.log(twin.sf(TIME + 1e-4) + 1e-4))
    got = nll(family("weibull-published").distribution(raw), time, event, as_published=True)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10)


def test_corrected_and_published_differ_where_the_floor_hides_the_tail() -> None:
    # The conventions' example: log S = -45.6 was reported as log(1e-4) = -9.2.
    dist = Weibull(torch.tensor([1.0]), torch.tensor([1.0]))
    at, censored = torch.tensor([45.6]), torch.tensor([False])
    assert nll(dist, at, censored).item() == pytest.approx(45.6)
    assert nll(dist, at, censored, as_published=True).item() == pytest.approx(-math.log(1e-4), rel=1e-5)


def test_times_on_the_ends() -> None:
    zero, yes, no = torch.zeros(1), torch.tensor([True]), torch.tensor([False])
    one = torch.ones(1)
    assert nll(LogNormal(zero, zero), zero, yes).item() == math.inf
    assert nll(Weibull(one, 2 * one), zero, yes).item() == math.inf
    assert nll(Weibull(2 * one, one), zero, yes).item() == pytest.approx(math.log(2.0))
    for dist in (LogNormal(zero, zero), Weibull(one, 2 * one), LogLogistic(one, one)):
        assert nll(dist, zero, no).item() == 0.0
        assert nll(dist, torch.tensor([math.nan]), no).isnan().all()


def test_a_mixed_batch_has_finite_gradients_on_and_off_the_grid() -> None:
    """Zero, on the last edge, after it; events and censored: no branch that is not taken leaks a NaN."""
    at = torch.tensor([0.0, 0.0, 1e-3, 5.0, 5.0, 7.0, 7.0, 1e6])
    seen = torch.tensor([False, True, True, True, False, True, False, False])
    for interpolation in ("step", "linear"):
        logits = torch.randn(8, 5, generator=torch.Generator().manual_seed(5), requires_grad=True)
        # Anomaly mode refuses a NaN anywhere in the backward pass, also one that a later mask would hide.
        with torch.autograd.set_detect_anomaly(True):
            loss = nll(Categorical(logits, EDGES, interpolation), at, seen)
            assert loss.isfinite().all()
            assert torch.autograd.grad(loss.sum(), logits)[0].isfinite().all()


def test_models_and_rows() -> None:
    raw = torch.randn(3, N, 2, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    together = nll(family("lognormal").distribution(raw), time, event)
    assert together.shape == (3, N)
    alone = torch.stack([nll(family("lognormal").distribution(r), time, event) for r in raw])
    torch.testing.assert_close(together, alone)


@pytest.mark.ci
def test_compiles() -> None:
    logits = torch.randn(N, 5, generator=torch.Generator().manual_seed(7), dtype=torch.float64)

    def loss(logits: Tensor) -> Tensor:
        return nll(Categorical(logits, EDGES, "linear"), time, event, density=True)

    torch.compiler.reset()
    compiled = torch.compile(loss, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits), loss(logits))


@pytest.mark.parametrize(
    ("at", "seen", "message"),
    [
        (
            torch.ones(3),
            torch.ones(3, dtype=torch.bool),
            r"time: expected shape \(2,\), one value for each row of the distribution, got \(3,\)",
        ),
        (torch.ones(2), torch.ones(3, dtype=torch.bool), r"event: expected shape \(2,\), one value .*, got \(3,\)"),
        # A column of times would make a table of every row against every other.
        (torch.ones(2, 1), torch.ones(2, dtype=torch.bool), r"time: expected shape \(2,\), .*squeeze.*, got \(2, 1\)"),
        (torch.ones(2), torch.ones(2, 1, dtype=torch.bool), r"event: expected shape \(2,\), .*squeeze.*, got \(2, 1\)"),
        (torch.ones(2), torch.ones(2), "event: expected a boolean tensor, .* got torch.float32"),
        (torch.ones(2), [True, False], "event: expected a boolean tensor, .* got list"),
        (torch.tensor([1, 2]), torch.ones(2, dtype=torch.bool), "time: expected a floating-point tensor"),
        (np.ones(2), torch.ones(2, dtype=torch.bool), "time: expected a floating-point tensor, got ndarray"),
    ],
)
def test_bad_rows(at: object, seen: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        nll(Weibull(torch.ones(2), torch.ones(2)), at, seen)


def test_bad_options() -> None:
    seen = torch.ones(2, dtype=torch.bool)
    with pytest.raises(ValueError, match="dist: expected a SurvivalDistribution, got Tensor"):
        nll(torch.ones(2), torch.ones(2), seen)
    with pytest.raises(ValueError, match="density: expected False with as_published"):
        nll(Weibull(torch.ones(2), torch.ones(2)), torch.ones(2), seen, density=True, as_published=True)
