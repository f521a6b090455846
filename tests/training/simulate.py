"""A small survival problem with a known answer."""

import torch

from xcal.data import SurvivalData
from xcal.networks import MLP

N_INPUTS = 4


def simulated_rows(n, seed=0, dtype=torch.float32, log_scale=-0.5):
    """Log-normal times whose location and scale depend on the covariates, censored at random (about 30 %)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, N_INPUTS, generator=generator, dtype=torch.float64)
    location = 0.5 * x[:, 0] - 0.8 * torch.tanh(x[:, 1])
    scale = torch.exp(0.3 * x[:, 2] + log_scale)
    happens = torch.exp(location + scale * torch.randn(n, generator=generator, dtype=torch.float64))
    censors = torch.exp(0.7 + torch.randn(n, generator=generator, dtype=torch.float64))
    return SurvivalData(x.to(dtype), torch.minimum(happens, censors).to(dtype), happens <= censors)


def small_mlp():
    return MLP(N_INPUTS, 2, hidden=(16, 8))


def same_state(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def distance(one, other):
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def rows_in_part(kind, n, seed=0, dtype=torch.float64):
    """Weibull times, log-scale 0.3 + 0.6 x0 - 0.4 x1 and shape 1.4, of rows that are seen in part.

    With "entry" two thirds enter late, with "intervals" an event is found at the next of yearly visits. With "causes"
    there is a second one of shape 0.7 whose log-scale is 0.6 + 0.5 x1: its hazard falls and crosses the first.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(count):
        return torch.rand(count, generator=generator, dtype=torch.float64)

    many = 4 * n if kind == "entry" else n
    x = torch.randn(many, 2, generator=generator, dtype=torch.float64)
    happens = torch.exp(0.3 + 0.6 * x[:, 0] - 0.4 * x[:, 1]) * (-torch.log(uniform(many))) ** (1 / 1.4)
    leaves, cause = 0.5 - 3 * torch.log(uniform(many)), torch.ones(many, dtype=torch.int64)
    if kind == "causes":
        other = torch.exp(0.6 + 0.5 * x[:, 1]) * (-torch.log(uniform(many))) ** (1 / 0.7)
        cause, happens = torch.where(other < happens, 2, 1), torch.minimum(other, happens)
    time, event = torch.minimum(happens, leaves), happens <= leaves
    if kind == "entry":
        entry = torch.where(uniform(many) < 1 / 3, 0.0, 1.5 * uniform(many))
        there = torch.nonzero(time > entry)[:n, 0]
        return SurvivalData(x[there].to(dtype), time[there], event[there], entry=entry[there])
    if kind == "intervals":
        first, last = 0.2 + uniform(many), 0.2 + uniform(many) + 5
        passed = torch.clamp(torch.floor(happens - first), min=-1)
        lower = torch.where(passed < 0, 0.0, first + passed)
        found = first + passed + 1 <= last
        upper = torch.where(found, first + passed + 1, torch.inf)
        lower = torch.where(found, lower, torch.clamp(first + torch.floor(last - first), max=10))
        return SurvivalData(x.to(dtype), lower=lower, upper=upper)
    if kind == "causes":
        return SurvivalData(x.to(dtype), time, cause=torch.where(event, cause, 0))
    return SurvivalData(x.to(dtype), time, event)
