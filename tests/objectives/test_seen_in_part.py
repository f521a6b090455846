"""The likelihood of rows that entered late and of events between two times, against R's figures, lifelines and laws."""

import math

import lifelines
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize

from tests.distributions.table import CASES, EDGES
from xcal.distributions import (
    Categorical,
    LogisticHazard,
    LogNormal,
    RecalibratedDistribution,
    Weibull,
)
from xcal.distributions.causes import CauseBins
from xcal.distributions.composed import SurvivorDistribution
from xcal.objectives import check_takes, nll, survival_crps


def exact(values):
    return torch.as_tensor(np.asarray(values, dtype=np.float64))


class TestIntervals:
    """R's survreg on the screening data, whose figures the README of the data has."""

    @pytest.mark.parametrize(
        ("law", "figures", "log_likelihood"),
        [
            ("weibull", (2.907977, 0.045758, 0.353822), -2027.1963),
            ("lognormal", (2.699820, 0.086428, 0.384724), -2026.1182),
        ],
    )
    def test_likelihood_and_its_maximum_are_those_of_r(self, real_data, law, figures, log_likelihood):
        rows = pd.read_csv(real_data("coarsened") / "coarsened" / "diabetes.csv")
        seen = np.isfinite(rows["right"]) & rows["right"].notna()
        time, lower = exact(np.where(seen, rows["right"], rows["left"])), exact(rows["left"])
        event, male = torch.as_tensor(seen.to_numpy()), exact(rows["gender"] == "male")

        def total(parameters):
            loc, scale = parameters[0] + parameters[1] * male, parameters[2].expand(male.shape)
            dist = Weibull(loc.exp(), 1 / scale) if law == "weibull" else LogNormal(loc, scale.log())
            return nll(dist, time, event, lower=lower).sum()

        assert -total(exact(figures)).item() == pytest.approx(log_likelihood, abs=5e-5)

        def value_and_slope(values):
            parameters = exact(values).requires_grad_()
            found = total(parameters)
            found.backward()
            return found.item(), parameters.grad.numpy()

        best = optimize.minimize(value_and_slope, [2.5, 0.0, 0.5], jac=True, method="BFGS")
        np.testing.assert_allclose(best.x, figures, atol=2e-6)

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_an_interval_has_the_probability_that_its_ends_leave(self, case):
        dist = case.dist
        low, high = torch.sort(torch.rand(2, 40, dist.batch_shape[-1], dtype=torch.float64) * 5, dim=0).values
        found = dist.log_between(low, high).exp()
        wanted = dist.cdf(high) - dist.cdf(low)
        some = wanted > 0
        torch.testing.assert_close(found[some], wanted[some], rtol=1e-9, atol=0)

    def test_tails_keep_their_digits(self):
        dist = Weibull(exact([1.0] * 3), exact([1.0] * 3))
        found = dist.log_between(exact([1e-12, 50.0, 400.0]), exact([2e-12, 51.0, 401.0]))
        wanted = [math.log(1e-12), -50 + math.log1p(-math.exp(-1)), -400 + math.log1p(-math.exp(-1))]
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-11)

    def test_equal_ends_are_a_known_time(self):
        dist = Weibull(exact([1.0, 2.0]), exact([1.5, 1.5]))
        time, event = exact([0.7, 0.9]), torch.tensor([True, False])
        assert torch.equal(nll(dist, time, event, lower=time), nll(dist, time, event))
        assert torch.equal(nll(dist, time, event, lower=exact([0.7, 0.1])), nll(dist, time, event))

    def test_a_narrow_interval_is_a_density_times_its_length(self):
        dist, time = Weibull(exact([2.0]), exact([1.5])), exact([1.3])
        yes = torch.tensor([True])
        found = nll(dist, time + 1e-7, yes, lower=time - 1e-7) + math.log(2e-7)
        torch.testing.assert_close(found, nll(dist, time, yes), rtol=1e-8, atol=1e-8)


class TestEntry:
    """Rows that would not be there, had they had the event before."""

    @pytest.mark.parametrize("name", ["WeibullFitter", "LogNormalFitter"])
    def test_lifelines(self, real_data, name):
        rows = pd.read_csv(real_data("coarsened") / "coarsened" / "myeloma.csv")
        rows = rows[rows["futime"] > rows["entry"]]
        time, event, entry = rows["futime"] / 365, rows["death"] == 1, rows["entry"] / 365
        fitter = getattr(lifelines, name)().fit(time, event, entry=entry)
        n = len(rows)
        if name == "WeibullFitter":
            dist = Weibull(exact([fitter.lambda_] * n), exact([fitter.rho_] * n))
        else:
            dist = LogNormal(exact([fitter.mu_] * n), exact([math.log(fitter.sigma_)] * n))
        found = nll(dist, exact(time), torch.as_tensor(event.to_numpy()), entry=exact(entry))
        assert -found.sum().item() == pytest.approx(fitter.log_likelihood_, rel=1e-9)

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_it_is_the_likelihood_of_those_who_came_that_far(self, case):
        """As `SurvivorDistribution` has it; 0 where a law read in steps has both times in one bin, or nothing left."""
        shape = (60, case.n)
        dist = case.make(*(one.expand(60, *one.shape) for one in case.parameters))
        entry, time = torch.sort(torch.rand(2, *shape, dtype=torch.float64) * 4.4, dim=0).values
        yes = torch.rand(shape) < 0.6
        dist_of_all = SurvivorDistribution(dist, entry)
        for density in (False, True):
            wanted = nll(dist_of_all, time, yes, density=density)
            found = nll(dist, time, yes, entry=entry, density=density)
            same_step = (torch.isposinf(wanted) & yes) | torch.isnan(wanted)
            assert (found[same_step] == 0).all()
            torch.testing.assert_close(found[~same_step], wanted[~same_step], rtol=1e-9, atol=1e-12)

    def test_entry_at_zero_changes_nothing(self):
        for dist in (Categorical(torch.randn(3, 5), EDGES.float()), Weibull(torch.ones(3), torch.ones(3))):
            time, yes = torch.tensor([0.7, 1.3, 9.0]), torch.tensor([True, False, True])
            assert torch.equal(nll(dist, time, yes, entry=torch.zeros(3)), nll(dist, time, yes))

    def test_stretches_of_one_person_are_one_person(self):
        """The likelihood of rows whose covariates change is a sum over stretches: as one row where nothing changes."""
        torch.manual_seed(0)
        logits = torch.randn(1, 4, dtype=torch.float64)
        for reading in ("linear", "step"):
            dist = LogisticHazard(logits, EDGES, reading)
            whole = nll(dist, exact([2.9]), torch.tensor([True]))
            # Ends at edges, as a model in steps has them.
            parts = [(0.0, 0.5, False), (0.5, 1.75, False), (1.75, 2.9, True)]
            pieces = [nll(dist, exact([b]), torch.tensor([yes]), entry=exact([a])) for a, b, yes in parts]
            torch.testing.assert_close(sum(pieces), whole, rtol=1e-12, atol=0)

    def test_of_a_cause(self):
        torch.manual_seed(1)
        dist = CauseBins(torch.randn(4, 2, 5, dtype=torch.float64), EDGES)
        time, entry, cause = exact([1.2, 0.8, 2.0, 4.0]), exact([0.3, 0.6, 0.0, 3.9]), torch.tensor([1, 2, 0, 2])
        found = nll(dist, time, cause, entry=entry, density=True)
        # Density of the cause over what is left at entry, by differences of the incidence.
        rise = (dist.cumulative_incidence(time + 1e-7) - dist.cumulative_incidence(time - 1e-7)) / 2e-7
        own = rise.gather(-1, (cause.clamp(min=1) - 1).unsqueeze(-1)).squeeze(-1)
        wanted = torch.where(cause > 0, own, dist.survival(time)) / dist.survival(entry)
        torch.testing.assert_close(found, -wanted.log(), rtol=1e-7, atol=0)

    def test_a_map_of_f(self):
        base = Categorical(torch.randn(3, 5, dtype=torch.float64), EDGES)
        dist = RecalibratedDistribution(base, [0.0, 0.3, 1.0], [0.0, 0.5, 1.0])
        time, entry, yes = exact([1.7, 1.2, 3.2]), exact([1.1, 0.3, 3.1]), torch.tensor([True, False, True])
        wanted = nll(SurvivorDistribution(dist, entry), time, yes)
        torch.testing.assert_close(nll(dist, time, yes, entry=entry), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_gradients_are_those_of_differences(case):
    """Of rows of every kind at once, and finite where a branch that is not taken has none."""
    parameters = [one.detach().clone().requires_grad_() for one in case.parameters]
    n = case.n
    time = exact(np.linspace(0.3, 4.0, n))
    lower, entry = torch.where(torch.arange(n) % 3 == 0, time, 0.6 * time), 0.4 * time
    yes = torch.arange(n) % 4 < 2
    entry = torch.where(torch.arange(n) % 5 == 0, 0.0, entry)

    def total(*given):
        return nll(case.make(*given), time, yes, lower=lower, entry=entry).sum()

    assert torch.autograd.gradcheck(total, parameters, atol=1e-6)


def test_what_is_refused():
    dist, time, yes = Weibull(torch.ones(2), torch.ones(2)), torch.ones(2), torch.tensor([True, False])
    with pytest.raises(ValueError, match=r"entry: expected a floating-point tensor, got torch.int64"):
        nll(dist, time, yes, entry=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"lower: expected shape \(2,\)"):
        nll(dist, time, yes, lower=torch.zeros(3))
    with pytest.raises(ValueError, match="entry, lower: expected None with as_published"):
        nll(dist, time, yes, entry=torch.zeros(2), as_published=True)
    causes = CauseBins(torch.randn(2, 2, 5), EDGES.float())
    with pytest.raises(ValueError, match="lower: expected None beside causes"):
        nll(causes, time, torch.tensor([1, 0]), lower=torch.zeros(2))
    with pytest.raises(ValueError, match=r"objective: expected one that takes entry by name.*, got survival_crps"):
        check_takes(survival_crps, ["entry"])
