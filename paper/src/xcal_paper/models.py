"""What a model of a table is made of, in each variant: family, network, objective, and the time that ranks rows.

``as-published`` is what made the paper's values, ``corrected`` what its equations say; `paper/docs/fidelity.md` lists
the differences and why they are there. Below, the model after recalibration.
"""

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from xcal.data import SurvivalData
from xcal.distributions import Family, family
from xcal.distributions._bins import Bins
from xcal.distributions.base import SurvivalDistribution
from xcal.networks import MLP, Linear, TwoTower
from xcal.objectives import CensoredCRPS, Objective, nll, survival_crps
from xcal.recalibration import KaplanMeierRecalibration
from xcal.training.stack import MakeNetwork
from xcal_paper.networks import PaperCNN, PublishedCNN
from xcal_paper.published import FLOOR, counted_as_event, published_nll, published_survival_crps, ranking_time
from xcal_paper.spec import ModelSpec, Variant, VariantSpec

# Modules that these had before; a fingerprint of a run knows them by it (`xcal.training.checkpoint`).
FORMER_MODULES = dict.fromkeys(
    ("ScaleRegression", "PixelMLP", "make_family", "make_network", "from_guess", "make_objective", "likelihood"),
    "xcal.experiments.models",
)


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


def make_objective(model: ModelSpec, variant: Variant, train: SurvivalData) -> Objective:
    """Return what a model minimises besides the penalty."""
    if model.objective == "nll":
        return likelihood(variant)
    if model.objective == "censored-crps":
        return CensoredCRPS.of(train.time, train.event)
    return published_survival_crps if variant == "as-published" else survival_crps


def likelihood(variant: Variant) -> Objective:
    """Return the negative log-likelihood that a table shows: by bin mass for discrete models."""
    return published_nll if variant == "as-published" else nll


def predicted_time(distribution: SurvivalDistribution, variant: Variant) -> Tensor:
    """Time that ranks rows in the concordance, ``(..., n)``: the median, or what the published code used."""
    return ranking_time(distribution) if variant == "as-published" else distribution.median


# ----------------------------------------------------------------------------------------------------------------------
# A model after recalibration: its F, its likelihood by the chain rule and its ranking, row by row.


Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RecalibratedRows:
    """One value per row: F at its observed time, negative log-likelihood by mass and by density, and predicted time."""

    cdf: Floats
    nll: Floats
    nll_density: Floats
    predicted_time: Floats


def recalibrated_rows(
    recalibration: KaplanMeierRecalibration,
    distribution: SurvivalDistribution,
    time: Tensor,
    event: Tensor,
    variant: Variant,
) -> RecalibratedRows:
    """Recalibrate the distribution of one run, of shape (n,).

    With F' = G(F), an event's density is f g(F), a bin's mass G(F_end) - G(F_start), and a censored row's survival
    1 - G(F). The `variant` decides the form of the likelihood and the ranking, as it does without recalibration.
    """
    cdf = _numpy(distribution.cdf(time))
    own = recalibration.log_survival(cdf, _numpy(distribution.log_survival(time)))
    density = _numpy(distribution.log_density(time)) + recalibration.log_density(cdf)
    mass, survival = density, own
    if distribution.bins is not None:
        edges, bin_mass = _numpy(distribution.bins.edges), _bin_masses(recalibration, distribution.bins)
        with np.errstate(divide="ignore"):
            logs = np.log(bin_mass)
        index = np.clip(np.searchsorted(edges, _numpy(time)) - 1, 0, bin_mass.shape[1] - 1)
        mass = np.take_along_axis(logs, index[:, None], axis=1)[:, 0]
        if distribution.read_in_steps:
            # F jumps, so there is no slope to multiply: the bin's mass over its width.
            density = mass - np.log(np.diff(edges))[index]
        # As without recalibration: a row past the last edge tells that it outlived every earlier bin.
        survival = np.where(np.isneginf(own), logs[:, -1], own)
    happened = event.cpu().numpy()
    if variant == "as-published":
        counted = counted_as_event(distribution, time, event).cpu().numpy()
        likelihood = np.where(counted, mass, np.log(np.exp(own) + FLOOR))
    else:
        likelihood = np.where(happened, mass, survival)
    ranking = _ranking(recalibration, distribution, variant)
    return RecalibratedRows(recalibration.cdf(cdf), -likelihood, -np.where(happened, density, survival), ranking)


def _bin_masses(recalibration: KaplanMeierRecalibration, bins: Bins) -> Floats:
    """Masses of all bins after recalibration, (n, K)."""
    ends = _numpy(bins.log_mass.double().exp().cumsum(-1)).clip(0.0, 1.0)
    ends[:, -1] = 1.0
    return np.diff(recalibration.cdf(ends), prepend=0.0, axis=1)


def _ranking(recalibration: KaplanMeierRecalibration, distribution: SurvivalDistribution, variant: Variant) -> Floats:
    """Rank by the same rule as without recalibration: the recalibrated median, or the mean over bin mid-points.

    The published log-normal is ranked by its mode, which has no simple form after recalibration; its order is kept.
    """
    if variant == "as-published":
        if distribution.bins is not None:
            edges = _numpy(distribution.bins.edges)
            ranking: Floats = _bin_masses(recalibration, distribution.bins) @ ((edges[1:] + edges[:-1]) / 2)
            return ranking
        return np.asarray(_numpy(predicted_time(distribution, variant)))
    return np.asarray(_numpy(distribution.quantile(float(recalibration.quantile(0.5)))))


def _numpy(values: Tensor) -> Any:
    return values.detach().cpu().to(torch.float64).numpy()
