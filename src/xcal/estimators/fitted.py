"""Trained models: everything that a prediction needs, in arrays and torch modules."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from xcal._threads import Workers
from xcal.distributions import RecalibratedDistribution, SurvivalDistribution, mixture
from xcal.estimators.features import Floats
from xcal.estimators.scaling import Outputs, Standardizer
from xcal.recalibration import KaplanMeierRecalibration
from xcal.training import History

# Values computed at a time, rows times points of a curve: they stay in a core's cache.
_CHUNK = 1 << 16
# Features of rows that are standardised at a time: of wide rows, which may come from a file, fewer than that.
_FEATURES = 1 << 22


def in_own_memory(values: npt.NDArray[Any]) -> Tensor:
    """Copy an array to memory of torch's, which starts at a multiple of 64 bytes.

    What a matrix product rounds to may depend on where in a cache line its numbers start, and numpy starts anywhere.
    """
    return torch.from_numpy(values).clone()


class PredictingModel(ABC):
    """What an estimator predicts with: one network, or several that are averaged, with or without a map of F.

    Predictions are made in float64, from the float32 weights of training: a row's prediction does not depend on the
    rows beside it, up to rounding. The same rows give the same bits.

    Attributes
    ----------
    outputs : Outputs
        The meaning of the raw outputs.
    """

    outputs: Outputs

    @property
    @abstractmethod
    def members(self) -> "tuple[FittedModel, ...]":
        """The networks; all were trained on the same rows, with the same scaling and meaning of their outputs."""

    @property
    def recalibration(self) -> KaplanMeierRecalibration | None:
        """The map of F that was fitted after training; None without one."""
        return None

    @abstractmethod
    def raw(self, x: Floats) -> Tensor:
        """Raw outputs of rows ``(n, d)``, of shape ``(..., n, outputs)``."""

    @abstractmethod
    def read(self, raw: Tensor) -> SurvivalDistribution:
        """Turn raw outputs into the distribution of each row, in the user's unit of time."""

    def distribution(self, x: Floats) -> SurvivalDistribution:
        """Distribution of each row, in the user's unit of time."""
        return self.read(self.raw(x))

    def survival(self, x: Floats, times: Floats) -> Floats:
        """S of each row at each time, ``(n, m)``."""
        return self._curves(len(x), times, lambda part: self.distribution(x[part]), _survival)

    def survival_of(self, raw: Tensor, times: Floats) -> Floats:
        """S at each time, ``(n, m)``, of rows whose raw outputs are known already."""
        return self._curves(raw.shape[-2], times, lambda part: self.read(raw[..., part, :]), _survival)

    def cdf(self, x: Floats, times: Floats) -> Floats:
        """F of each row at each time, ``(n, m)``."""
        return self._curves(len(x), times, lambda part: self.distribution(x[part]), _cdf)

    def cdf_at_own(self, x: Floats, time: Floats) -> Floats:
        """F of each row at its observed time, ``(n,)``."""
        return self._by_parts(
            len(x), 1, lambda part: self.distribution(x[part]).cdf(torch.from_numpy(time[part])).numpy()
        )

    def quantile(self, x: Floats, levels: Floats) -> Floats:
        """Quantiles of each row, ``(n, levels)``."""
        level = torch.from_numpy(levels).unsqueeze(1)
        return self._by_parts(len(x), levels.size, lambda part: self.distribution(x[part]).quantile(level).T.numpy())

    def risk(self, x: Floats) -> Floats:
        """Risk of each row, ``(n,)``; see `Outputs.risk`."""
        return self._by_parts(
            len(x), self.outputs.grid.size, lambda part: self.outputs.risk(self.distribution(x[part])).numpy()
        )

    def _curves(
        self,
        n: int,
        times: Floats,
        distribution_of: Callable[[slice], SurvivalDistribution],
        value: Callable[[SurvivalDistribution, Tensor], Tensor],
    ) -> Floats:
        grid = torch.from_numpy(times).unsqueeze(1)

        def curves(part: slice) -> Floats:
            distribution = distribution_of(part)
            return value(distribution, grid.expand(-1, distribution.batch_shape[-1])).T.numpy()

        return self._by_parts(n, times.size, curves)

    def _by_parts(self, n: int, points: int, predict: Callable[[slice], Floats]) -> Floats:
        """Predictions of all rows, made piece by piece and by as many threads as torch may use."""
        with Workers() as workers:
            return np.concatenate(workers.map(predict, list(self._parts(n, points))))

    def _parts(self, n: int, points: int) -> Iterator[slice]:
        """Rows in pieces that fit into a cache; a discrete row also holds its bins."""
        bins = 1 if self.outputs.edges is None else self.outputs.edges.size
        step = max(1, min(_CHUNK // max(points, bins), _FEATURES // self.members[0].standardizer.mean.size))
        return (slice(start, start + step) for start in range(0, n, step))


@dataclass(frozen=True, eq=False)
class FittedModel(PredictingModel):
    """A network at its best epoch, with the scaling of its inputs and the meaning of its outputs.

    Attributes
    ----------
    standardizer : Standardizer
    outputs : Outputs
    network : Module
        In float64 and evaluation mode.
    lam : float
        Weight of the penalty.
    seed : int
        Of the initial weights, batches and dropout.
    best_epoch : int
        Epoch, from 0, whose weights these are.
    history : History
        Validation values of every epoch, ``(epochs, 1)``.
    """

    standardizer: Standardizer
    outputs: Outputs
    network: nn.Module
    lam: float
    seed: int
    best_epoch: int
    history: History

    @torch.no_grad()
    def raw(self, x: Floats) -> Tensor:
        """Raw outputs of rows ``(n, d)``."""
        result: Tensor = self.network(in_own_memory(self.standardizer(x)))
        return result

    def read(self, raw: Tensor) -> SurvivalDistribution:
        """Read the raw outputs as they are meant."""
        return self.outputs.read(raw)

    @property
    def members(self) -> "tuple[FittedModel, ...]":
        """The model itself."""
        return (self,)


@dataclass(frozen=True, eq=False)
class CombinedModel(PredictingModel):
    """Several networks in equal parts, or a map of F after one or more of them. Make it with `combined`."""

    parts: tuple[FittedModel, ...]
    fitted_map: KaplanMeierRecalibration | None = None
    outputs: Outputs = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "outputs", self.parts[0].outputs)

    @property
    def members(self) -> tuple[FittedModel, ...]:
        """The networks."""
        return self.parts

    @property
    def recalibration(self) -> KaplanMeierRecalibration | None:
        """The map of F, if there is one."""
        return self.fitted_map

    def raw(self, x: Floats) -> Tensor:
        """Raw outputs of every member, ``(members, n, outputs)``."""
        return torch.stack([member.raw(x) for member in self.parts])

    def read(self, raw: Tensor) -> SurvivalDistribution:
        """Mix the members, then map F."""
        mixed = mixture([self.outputs.read(own) for own in raw])
        if self.fitted_map is None:
            return mixed
        return RecalibratedDistribution(mixed, self.fitted_map.knots, self.fitted_map.levels)


def combined(members: Sequence[FittedModel], recalibration: KaplanMeierRecalibration | None = None) -> PredictingModel:
    """Average models and recalibrate them; one model without a map is itself."""
    if len(members) == 1 and recalibration is None:
        return members[0]
    return CombinedModel(tuple(members), recalibration)


def _survival(distribution: SurvivalDistribution, time: Tensor) -> Tensor:
    return distribution.survival(time)


def _cdf(distribution: SurvivalDistribution, time: Tensor) -> Tensor:
    return distribution.cdf(time)
