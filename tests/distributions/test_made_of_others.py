"""Mixtures and recalibrated distributions: the laws of every distribution, against scipy."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats

from tests.distributions.table import CASES, EDGES
from xcal.distributions import Categorical, LogNormal, RecalibratedDistribution, Weibull, mixture
from xcal.distributions.composed import Mixture
from xcal.recalibration import KaplanMeierRecalibration

BY_NAME = {case.name: case for case in CASES}
TIME = torch.tensor([0.3, 0.62, 0.9, 1.3, 2.2, 3.7], dtype=torch.float64).unsqueeze(-1)
KNOTS, LEVELS = [0.0, 0.1, 0.35, 0.8, 1.0], [0.0, 0.25, 0.4, 0.7, 1.0]


def mixed():
    """Two rows of three Weibull components each, and the twins of each row."""
    scales, shapes = (
        torch.tensor([[1.0, 2.5], [0.7, 1.2], [3.0, 0.4]]).double(),
        torch.tensor([[1.0, 1.7]] * 3).double(),
    )
    dist = mixture([Weibull(scale, shape) for scale, shape in zip(scales, shapes, strict=True)])
    twins = [
        [stats.weibull_min(c=float(k), scale=float(s)) for s, k in zip(ss, ks, strict=True)]
        for ss, ks in zip(scales.T, shapes.T, strict=True)
    ]
    return dist, twins


def mean_of(twins, method, values):
    return np.stack([np.mean([getattr(t, method)(values[:, 0]) for t in row], axis=0) for row in twins], axis=-1)


def test_a_mixture_has_the_mean_of_everything():
    dist, twins = mixed()
    time = TIME.numpy()
    assert isinstance(dist, Mixture)
    assert dist.batch_shape == (2,)
    assert "batch_shape=(2,)" in repr(dist)
    np.testing.assert_allclose(dist.cdf(TIME), mean_of(twins, "cdf", time), rtol=1e-12)
    np.testing.assert_allclose(dist.survival(TIME), mean_of(twins, "sf", time), rtol=1e-12)
    np.testing.assert_allclose(dist.log_survival(TIME), np.log(mean_of(twins, "sf", time)), rtol=1e-10)
    np.testing.assert_allclose(dist.log_density(TIME), np.log(mean_of(twins, "pdf", time)), rtol=1e-10)
    np.testing.assert_allclose(dist.hazard(TIME), mean_of(twins, "pdf", time) / mean_of(twins, "sf", time), rtol=1e-10)
    np.testing.assert_allclose(dist.mean, [np.mean([t.mean() for t in row]) for row in twins], rtol=1e-10)
    # Far out the logarithm is exact where S itself has no digits left; the slowest component decides.
    far = torch.tensor([2000.0, 2000.0], dtype=torch.float64)
    expected = [max(t.logsf(2000.0) for t in row) - np.log(3) for row in twins]
    np.testing.assert_allclose(dist.log_survival(far), expected, rtol=1e-10)
    assert torch.equal(dist.cdf(torch.zeros(2).double()), torch.zeros(2).double())


@pytest.mark.parametrize("p", [1e-6, 0.03, 0.5, 0.99, 1 - 1e-9])
def test_quantiles_of_a_mixture(p):
    dist, twins = mixed()
    expected = [
        optimize.brentq(lambda z, row=row: np.mean([t.cdf(z) for t in row]) - p, 1e-12, 500, xtol=1e-14, rtol=1e-14)
        for row in twins
    ]
    np.testing.assert_allclose(dist.quantile(p), expected, rtol=1e-8)


def test_gradients_of_a_mixture():
    scale = torch.tensor([1.0, 2.5], dtype=torch.float64, requires_grad=True)

    def made(s):
        return mixture([Weibull(s, torch.ones(2).double()), LogNormal(s, torch.zeros(2).double())])

    for method in ("cdf", "log_survival", "log_prob", "hazard"):
        assert torch.autograd.gradcheck(lambda s, method=method: getattr(made(s), method)(TIME), scale)
    assert torch.autograd.gradcheck(lambda s: made(s).quantile(0.3), scale)


@pytest.mark.parametrize("interpolation", ["linear", "step"])
def test_a_mixture_of_bins_is_a_categorical(interpolation):
    logits = torch.randn(3, 4, EDGES.numel() - 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = [Categorical(row, EDGES, interpolation) for row in logits]
    dist = mixture(parts)
    assert isinstance(dist, Categorical)
    torch.testing.assert_close(dist.cdf(TIME), torch.stack([part.cdf(TIME) for part in parts]).mean(0))
    torch.testing.assert_close(dist.log_mass.exp(), torch.stack([part.log_mass.exp() for part in parts]).mean(0))
    assert mixture(parts[:1]) is parts[0]
    with pytest.raises(ValueError, match=r"components\[1\]: expected the time bins of the first"):
        mixture([parts[0], Categorical(logits[0], EDGES + 1, interpolation)])
    with pytest.raises(ValueError, match="components: expected at least one distribution"):
        mixture([])
    with pytest.raises(ValueError, match=r"components\[0\]: expected a continuous distribution"):
        Mixture(parts)


@pytest.mark.parametrize("name", ["weibull", "lognormal", "categorical-linear", "mtlr-step", "logistic-hazard-linear"])
def test_a_recalibrated_distribution_is_the_map_of_f(name):
    case = BY_NAME[name]
    dist = RecalibratedDistribution(case.dist, KNOTS, LEVELS)
    time = TIME.expand(-1, case.n)
    twin = np.stack([t.cdf(time[:, 0].numpy()) for t in case.twins], axis=-1)
    expected = np.interp(twin, KNOTS, LEVELS)
    np.testing.assert_allclose(dist.cdf(time), expected, rtol=1e-10)
    np.testing.assert_allclose(dist.survival(time), 1 - expected, rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(dist.log_survival(time).exp(), 1 - expected, rtol=1e-9, atol=1e-13)
    assert dist.read_in_steps == case.dist.read_in_steps
    draws = dist.sample(torch.Generator().manual_seed(0), (20_000,))
    if case.smooth:
        for row in range(case.n):
            assert stats.kstest(dist.cdf(draws)[:, row].numpy(), "uniform").pvalue > 1e-3
        h = 1e-6
        slope = (dist.cdf(time + h) - dist.cdf(time - h)) / (2 * h)
        torch.testing.assert_close(dist.log_density(time).exp(), slope, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(dist.quantile(dist.cdf(time)), time, rtol=1e-9, atol=0)
        torch.testing.assert_close(dist.hazard(time), slope / dist.survival(time), rtol=1e-6, atol=1e-9)
    else:
        end = EDGES[1:].unsqueeze(-1).expand(-1, case.n)
        mass = torch.diff(dist.cdf(end), dim=0, prepend=torch.zeros(1, case.n).double())
        torch.testing.assert_close(dist.log_prob(end).exp(), mass)
    # A bin keeps what lies after the last edge for rows that have outlived it.
    late = torch.full((case.n,), 9.0, dtype=torch.float64)
    assert dist.log_censored(late).isfinite().all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: mixed()[0],
        lambda: RecalibratedDistribution(BY_NAME["weibull"].dist, KNOTS, LEVELS),
        lambda: RecalibratedDistribution(BY_NAME["mtlr-linear"].dist, KNOTS, LEVELS),
    ],
    ids=["mixture", "weibull", "mtlr"],
)
def test_integrals(make):
    dist = make()
    n = dist.batch_shape[-1]
    for at in (0.9,):
        time = torch.full((n,), at, dtype=torch.float64)
        for row in range(n):

            def square(z, method, row=row):
                return float(getattr(dist, method)(torch.full((n,), z).double())[row]) ** 2

            knots = dist.breaks()[:, row].tolist() + EDGES.tolist()
            below = integrate.quad(
                square, 0, at, args=("cdf",), points=[k for k in knots if k < at] or None, limit=500
            )[0]
            assert float(dist.squared_cdf_below(time)[row]) == pytest.approx(below, rel=1e-6, abs=1e-9)
            above = integrate.quad(
                square, at, 60.0, args=("survival",), points=[k for k in knots if at < k < 60], limit=500
            )[0]
            assert float(dist.squared_survival_above(time)[row]) == pytest.approx(above, rel=1e-5, abs=1e-7)


def test_the_mean_of_a_recalibrated_distribution():
    case = BY_NAME["weibull"]
    dist = RecalibratedDistribution(case.dist, KNOTS, LEVELS)
    for row, twin in enumerate(case.twins):
        knots = [float(twin.ppf(k)) for k in KNOTS[1:-1]]
        ends = [0.0, *knots, np.inf]
        expected = sum(
            integrate.quad(lambda z, twin=twin: 1 - np.interp(twin.cdf(z), KNOTS, LEVELS), a, b, limit=200)[0]
            for a, b in pairwise(ends)
        )
        assert float(dist.mean[row]) == pytest.approx(expected, rel=1e-6)


def test_a_fitted_map_is_the_same_map():
    rng = np.random.default_rng(0)
    fitted = KaplanMeierRecalibration.fit(rng.beta(2, 1, 500), rng.random(500) < 0.7)
    base = BY_NAME["lognormal"].dist
    dist = RecalibratedDistribution(base, fitted.knots, fitted.levels)
    time = TIME.expand(-1, 3)
    u = base.cdf(time).numpy()
    np.testing.assert_allclose(dist.cdf(time), fitted.cdf(u), rtol=1e-12)
    density = base.log_density(time).numpy() + fitted.log_density(u)
    np.testing.assert_allclose(dist.log_density(time), density, rtol=1e-10)
    np.testing.assert_allclose(
        dist.log_survival(time), fitted.log_survival(u, base.log_survival(time)), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(
    ("knots", "levels", "message"),
    [
        ([0.0, 0.5, 0.9], [0.0, 0.5, 1.0], "knots: expected numbers that increase from 0 to 1"),
        ([0.0, 0.5, 1.0], [0.0, 0.0, 1.0], "levels: expected numbers that increase from 0 to 1"),
        ([0.0, 0.5, 1.0], [0.0, 1.0], "levels: expected 3 numbers"),
    ],
)
def test_a_map_that_is_none(knots, levels, message):
    with pytest.raises(ValueError, match=message):
        RecalibratedDistribution(BY_NAME["weibull"].dist, knots, levels)
