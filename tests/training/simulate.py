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
