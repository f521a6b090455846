"""What training a path returns."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from torch import Tensor, nn

from xcal._checks import as_count, fail
from xcal.training.config import TrainingConfig
from xcal.training.stack import MakeNetwork, load_row, new_network

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Failure:
    """A model that stopped because its loss was no longer a number.

    Attributes
    ----------
    model, epoch : int
        Counted from 0.
    batch : int or None
        Batch of that epoch whose loss or gradient was not finite; None if it was the value on the validation rows.
    """

    model: int
    epoch: int
    batch: int | None

    def __str__(self) -> str:
        where = "on the validation rows" if self.batch is None else f"in batch {self.batch}"
        return f"model {self.model}: the loss was not finite in epoch {self.epoch}, {where}"


@dataclass(frozen=True, eq=False)
class History:
    """Validation values by epoch and model, ``(epochs, K)`` each; NaN after a model has stopped.

    Attributes
    ----------
    objective : ndarray
        Mean objective.
    dcal : ndarray
        Exact D-calibration (uniform estimator).
    total : ndarray
        objective + lambda x what dcal exceeds ``dcal_floor`` (0 unless it was given), by which each model chooses its
        best epoch.
    """

    objective: Floats
    dcal: Floats
    total: Floats

    @property
    def epochs(self) -> int:
        """Epochs that were finished."""
        return len(self.total)


@dataclass(frozen=True, eq=False)
class PathResult:
    """K trained models, each at its own best epoch, ordered by seed and then by lambda.

    Attributes
    ----------
    lambdas, seeds : ndarray of shape (K,)
    best_epoch : ndarray of shape (K,)
        Epoch, from 0, with the lowest validation total; -1 for a model that finished none and has its first weights.
    history : History
    mode : {"stacked", "sequential"}
        How the models were trained.
    failures : tuple of Failure
        Models whose loss became NaN or infinite. They keep their best epoch before that.
    interrupted : bool
        Whether training was interrupted from the keyboard.
    config : TrainingConfig
    """

    lambdas: Floats
    seeds: Integers
    best_epoch: Integers
    history: History
    mode: Literal["stacked", "sequential"]
    failures: tuple[Failure, ...]
    interrupted: bool
    config: TrainingConfig
    _best: dict[str, Tensor] = field(repr=False)
    _make_network: MakeNetwork = field(repr=False)

    @property
    def n_models(self) -> int:
        """Number of models, K."""
        return self.lambdas.size

    def find(self, lam: float, seed: int | None = None) -> int:
        """Index of the model with this lambda, and this seed if there are several."""
        found = np.flatnonzero((self.lambdas == lam) & ((seed is None) | (self.seeds == seed)))
        if found.size == 0:
            fail("lam", f"one of {sorted(set(self.lambdas.tolist()))} with a seed of the path", f"{lam}, seed {seed}")
        return int(found[0])

    def network(self, model: int) -> nn.Module:
        """Return a network with the weights of one model at its best epoch, in evaluation mode."""
        model = as_count("model", model, at_least=0, below=self.n_models)
        flat = self._best["flat"]
        network = new_network(self._make_network, int(self.seeds[model])).to(device=flat.device, dtype=flat.dtype)
        return load_row(network, self._best, model).eval()

    def state(self, model: int) -> dict[str, Any]:
        """State dict of one model at its best epoch, for ``load_state_dict`` of the same architecture."""
        return self.network(model).state_dict()

    def best(self) -> History:
        """Return the validation values of each model at its best epoch, ``(1, K)``; NaN where there is none."""
        columns = np.arange(self.n_models)

        def pick(values: Floats) -> Floats:
            chosen = np.full((1, self.n_models), np.nan)
            known = self.best_epoch >= 0
            chosen[0, known] = values[self.best_epoch[known], columns[known]]
            return chosen

        return History(pick(self.history.objective), pick(self.history.dcal), pick(self.history.total))

    def __repr__(self) -> str:
        lambdas, seeds = np.unique(self.lambdas).size, np.unique(self.seeds).size
        ended = ", interrupted" if self.interrupted else ""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return (
            f"PathResult({self.n_models} models: {lambdas} lambdas x {seeds} seeds, {self.history.epochs} epochs, "
            f"{self.mode}{failed}{ended})"
        )
