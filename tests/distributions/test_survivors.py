"""The law of those who have come this far, of every family: laws of probability, scipy, numerical integration."""

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from tests.distributions.table import CASES, EDGES
from xcal.distributions import LogLogistic, RecalibratedDistribution, Weibull, mixture
from xcal.distributions.composed import SurvivorDistribution
from xcal.objectives import nll

AFTER = torch.tensor([0.0, 0.9, 2.2], dtype=torch.float64)
TIME = torch.tensor([0.3, 0.62, 0.95, 1.3, 2.3, 3.7], dtype=torch.float64).unsqueeze(-1)
LAWS = {case.name: case.dist for case in CASES}
LAWS["mixture"] = mixture([LAWS["weibull"], LAWS["lognormal"]])
MAP = [0, 0.1, 0.35, 0.8, 1], [0, 0.25, 0.4, 0.7, 1]
for inner in ("mixture", "mtlr-linear", "mtlr-step"):
    LAWS[f"recalibrated-{inner}"] = RecalibratedDistribution(LAWS[inner], *MAP)


def survivors(name):
    base = LAWS[name]
    return base, SurvivorDistribution(base, AFTER[-base.batch_shape[0] :])


@pytest.mark.parametrize("name", LAWS)
def test_survival_is_the_ratio(name):
    base, law = survivors(name)
    later = torch.maximum(TIME, law.after)
    ratio = base.survival(later) / base.survival(law.after)
    torch.testing.assert_close(law.survival(TIME), ratio, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(law.cdf(TIME), 1 - ratio, rtol=1e-12, atol=1e-12)
    assert law.survival(law.after).tolist() == [1.0] * law.batch_shape[0]
    # From the start nothing changes.
    torch.testing.assert_close(SurvivorDistribution(base, 0.0).log_survival(TIME), base.log_survival(TIME))


@pytest.mark.parametrize("name", LAWS)
def test_quantiles_are_those_of_the_tail(name):
    base, law = survivors(name)
    for p in (1e-6, 0.1, 0.5, 0.9, 0.999):
        found = law.quantile(p)
        assert (found >= law.after).all()
        if base.read_in_steps:
            # The end of the first bin in which F is p or more.
            assert (law.cdf(found) >= p - 1e-12).all()
            start = EDGES[torch.searchsorted(EDGES, found) - 1]
            assert ((law.cdf(start) < p) | (start <= torch.maximum(law.after, EDGES[0]))).all()
        else:
            torch.testing.assert_close(law.cdf(found), torch.full_like(found, p), rtol=1e-9, atol=0)
    log_left = torch.log(torch.tensor(0.3)).double().expand(law.batch_shape)
    torch.testing.assert_close(law.quantile_left(log_left), law.quantile(1 - torch.exp(log_left)))


@pytest.mark.parametrize("name", [name for name in LAWS if "step" not in name])
def test_density_hazard_and_draws_belong_to_the_curve(name):
    _, law = survivors(name)
    for time in (TIME + 2.5, torch.tensor([[2.9]]).double()):
        h = 1e-6
        slope = (law.cdf(time + h) - law.cdf(time - h)) / (2 * h)
        inside = (time < 4.4).squeeze(-1)
        torch.testing.assert_close(law.log_density(time).exp()[inside], slope[inside], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(law.hazard(TIME) * law.survival(TIME), law.log_density(TIME).exp())
    draws = law.sample(torch.Generator().manual_seed(0), (4000,))
    assert (draws >= law.after).all()
    np.testing.assert_allclose(law.cdf(draws).mean(0), 0.5, atol=4 * np.sqrt(1 / 12 / 4000))


@pytest.mark.parametrize("name", LAWS)
def test_means_are_areas_under_the_curve(name):
    base, law = survivors(name)
    means = base.mean
    finite = torch.isfinite(means)
    restricted = law.restricted_mean(torch.full(law.batch_shape, 3.3, dtype=torch.float64))
    breaks = base.breaks()
    # Simpson's rule between all times at which the curve may bend.
    for row in range(law.batch_shape[0]):
        bends = [float(e) for e in breaks[:, row] if 1e-9 < float(e) < 3.3]
        ends = np.unique([0.0, 3.3, *bends, *law.after.tolist()])
        times = np.linspace(ends[:-1] + 1e-12, ends[1:], 101)
        at = torch.tensor(times).flatten().unsqueeze(-1).expand(-1, law.batch_shape[0])
        curve = law.survival(at)[:, row].reshape(times.shape).numpy()
        area = integrate.simpson(curve, x=times, axis=0).sum()
        np.testing.assert_allclose(restricted[row], area, rtol=1e-7)
    if base.read_in_steps:  # an event counts at the end of its bin, where S has been low all along it
        if "recalibrated" not in name:
            torch.testing.assert_close(SurvivorDistribution(base, 0.0).mean, base.mean)
            ends = EDGES[1:] * law.bins.mass
            torch.testing.assert_close(law.mean, ends.sum(-1))
        return
    # The mean of all is that of those who go by s and that of those who are left then.
    s, reached = law.after, base.survival(law.after)
    until = base.restricted_mean(s)
    expected, later = torch.where(finite, means, 1.0), law.mean
    found = until + reached * (torch.where(finite, later, 1.0) - s)
    torch.testing.assert_close(found[finite], expected[finite], rtol=1e-7, atol=0)
    assert torch.isinf(later[~finite]).all()


def test_an_exponential_law_does_not_age_however_late():
    base = Weibull(torch.tensor([2.0, 0.01, 2.0]).double(), torch.ones(3).double())
    law = SurvivorDistribution(base, torch.tensor([1.0, 5.0, 600.0]).double())  # log S of -500 and -300
    torch.testing.assert_close(law.mean - law.after, base.mean, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(law.median - law.after, base.median, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(law.survival(law.after + base.median), torch.full((3,), 0.5).double())


@pytest.mark.parametrize("scale", [0.9, 1.02, 1.3, 4.0])
def test_a_power_tail_has_its_mean(scale):
    base = LogLogistic(*torch.tensor([[2.0], [scale]], dtype=torch.float64))
    law = SurvivorDistribution(base, torch.tensor([3.0]).double())
    if scale < 1:
        assert torch.isinf(law.mean).all()
        return
    twin = stats.fisk(c=scale, scale=2.0)
    v = twin.sf(3.0)  # mean residual life by the incomplete beta function
    beta = special.beta(1 - 1 / scale, 1 / scale) * special.betainc(1 - 1 / scale, 1 / scale, v)
    np.testing.assert_allclose(law.mean, 3.0 + 2.0 / scale * beta / v, rtol=1e-7)


def test_bins_keep_what_lies_behind():
    base, law = survivors("categorical-linear")
    assert law.bins is not None
    np.testing.assert_allclose(law.bins.mass.sum(-1), 1, rtol=1e-12)
    time = torch.tensor([3.5, 3.5, 3.5]).double()
    alone = nll(law, time, torch.ones(3).bool())
    torch.testing.assert_close(alone, nll(base, time, torch.ones(3).bool()) + base.log_survival(law.after))
    gone = SurvivorDistribution(base, 9.0)
    assert torch.isnan(gone.survival(TIME)).all()
    assert torch.isnan(gone.median).all()
    with pytest.raises(ValueError, match="base: expected a SurvivalDistribution"):
        SurvivorDistribution(3, 1.0)
