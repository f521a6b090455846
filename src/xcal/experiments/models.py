"""What a model of a table is made of, in each variant: family, network, objective, and the time that ranks rows.

``as-published`` is what made the paper's values, ``corrected`` what its equations say; `docs/fidelity.md` lists the
differences and why they are there.
"""

from functools import partial
from math import prod

import torch
from torch import Tensor, nn

from xcal.distributions import Family, family
from xcal.distributions.base import SurvivalDistribution
from xcal.experiments.spec import ModelSpec, Variant, VariantSpec
from xcal.networks import MLP, Linear, PaperCNN, PublishedCNN, TwoTower
from xcal.objectives import nll, survival_crps
from xcal.objectives.joint import Objective
from xcal.published import published_nll, published_survival_crps, ranking_time
from xcal.training.stack import MakeNetwork


class ScaleRegression(nn.Module):
    """Accelerated failure times: the log-scale is linear in the covariates, the shape one number for all rows."""

    def __init__(self, n_inputs: int, *, intercept: bool) -> None:
        super().__init__()
        self.scale = Linear(n_inputs, 1, intercept=intercept)
        self.shape = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., n_inputs)`` to ``(..., 2)``."""
        return torch.cat([self.scale(x), self.shape.expand(*x.shape[:-1], 1)], dim=-1)


class PixelMLP(MLP):
    """Dense layers on images, pixel by pixel."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(..., channels, height, width)`` to ``(..., n_outputs)``."""
        return super().forward(x.flatten(start_dim=-3))


def make_family(model: ModelSpec, variant: Variant, edges: Tensor | None) -> Family:
    """Return the family of a model; `edges` are the time edges of the discrete ones."""
    if model.discrete:
        return family(model.distribution, edges=edges, interpolation=model.interpolation)
    return family(f"{model.distribution}-published" if variant == "as-published" else model.distribution)


def make_network(model: ModelSpec, settings: VariantSpec, shape: tuple[int, ...], n_outputs: int) -> MakeNetwork:
    """Return a function that makes a model's network; `shape` is that of the covariates of one row."""
    if model.network == "aft":
        return partial(ScaleRegression, shape[0], intercept=settings.intercept)
    # Location and scale of the log-normal have a network each.
    width = 1 if model.distribution == "lognormal" else n_outputs
    make: MakeNetwork
    if model.network == "cnn":
        channels, height, across = shape
        make = partial(
            PaperCNN,
            width,
            (channels, height, across),
            head=model.hidden,
            dropout=model.dropout,
            released_dropout=model.released_dropout,
        )
    elif model.network == "published-cnn":
        make = partial(PublishedCNN, width, head=model.hidden, dropout=model.dropout)
    elif model.network == "mlp":
        kind = MLP if len(shape) == 1 else PixelMLP
        make = partial(kind, prod(shape), width, hidden=model.hidden, dropout=model.dropout)
    else:
        make = partial(Linear, shape[0], width)
    return partial(TwoTower, make) if model.distribution == "lognormal" else make


def from_guess(make: MakeNetwork, guess: Tensor) -> nn.Module:
    """Make a network whose last biases are the raw outputs `guess`: it starts from that distribution."""
    network = make()
    heads: list[Tensor]
    if isinstance(network, ScaleRegression):
        heads = [network.scale.output.bias, network.shape]
    elif isinstance(network, TwoTower):
        heads = [_bias(network.first), _bias(network.second)]
    else:
        heads = [_bias(network)]
    with torch.no_grad():
        for head, values in zip(heads, guess.split([head.numel() for head in heads]), strict=True):
            head.copy_(values)
    return network


def _bias(network: nn.Module) -> Tensor:
    assert isinstance(network, MLP | Linear | PaperCNN | PublishedCNN)
    return network.output.bias


def make_objective(model: ModelSpec, variant: Variant) -> Objective:
    """Return what a model minimises besides the penalty."""
    if model.objective == "nll":
        return likelihood(variant)
    return published_survival_crps if variant == "as-published" else survival_crps


def likelihood(variant: Variant) -> Objective:
    """Return the negative log-likelihood that a table shows: by bin mass for discrete models."""
    return published_nll if variant == "as-published" else nll


def predicted_time(distribution: SurvivalDistribution, variant: Variant) -> Tensor:
    """Time that ranks rows in the concordance, ``(..., n)``: the median, or what the published code used."""
    return ranking_time(distribution) if variant == "as-published" else distribution.median
