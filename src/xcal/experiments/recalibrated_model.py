"""A model after recalibration: its F, its likelihood by the chain rule and its ranking, row by row."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal.distributions._bins import Bins
from xcal.distributions.base import SurvivalDistribution
from xcal.experiments.models import predicted_time
from xcal.experiments.spec import Variant
from xcal.published import FLOOR, counted_as_event
from xcal.recalibration import KaplanMeierRecalibration

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RecalibratedRows:
    """One value per row: F at its observed time, negative log-likelihood by bin mass and density, predicted time."""

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
