"""What training a path returns."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from xcal._checks import as_count, fail
from xcal.calibration.penalty import full_precision
from xcal.data import SurvivalData
from xcal.distributions.base import SurvivalDistribution
from xcal.distributions.family_base import Family
from xcal.training.config import TrainingConfig
from xcal.training.trained import Trained

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
        objective + lambda times the amount by which dcal exceeds ``dcal_floor`` (0 unless given), or with a conditional
        penalty times conditional calibration, if that is above zero. Each model chooses its best epoch by it.
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
        Epoch, from 0, with the lowest validation total; -1 for a model that finished none and has its initial weights.
    history : History
    mode : {"stacked", "sequential"}
        How the models were trained.
    failures : tuple of Failure
        Models whose loss became NaN or infinite. They keep their best epoch before that.
    interrupted : bool
        Whether training was interrupted from the keyboard.
    config : TrainingConfig
    family : Family
        What turns the networks' outputs into distributions.

    Examples
    --------
    >>> from xcal.distributions import family
    >>> from xcal.networks import Linear
    >>> from xcal.training import fit_path
    >>> x = torch.linspace(-1, 1, 40).unsqueeze(1)
    >>> rows = SurvivalData(x, time=torch.exp(x[:, 0]), event=torch.ones(40))
    >>> config = TrainingConfig(epochs=2, batch_size=20)
    >>> path = fit_path(lambda: Linear(1, 2), family("lognormal"), rows, rows, lambdas=(0.0, 10.0), config=config)
    >>> path.distribution(path.find(10.0), rows.x).median.shape
    torch.Size([40])
    """

    lambdas: Floats
    seeds: Integers
    best_epoch: Integers
    history: History
    mode: Literal["stacked", "sequential"]
    failures: tuple[Failure, ...]
    interrupted: bool
    config: TrainingConfig
    family: Family
    _trained: Trained = field(repr=False)

    @property
    def n_models(self) -> int:
        """Number of models, K."""
        return self.lambdas.size

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of seeds and of lambdas, S and L; with a target each seed has a lambda of its own."""
        n_seeds = np.unique(self.seeds).size
        return n_seeds, self.n_models // n_seeds

    def find(self, lam: float, seed: int | None = None) -> int:
        """Index of the model with this lambda, and this seed if there are several."""
        found = np.flatnonzero((self.lambdas == lam) & ((seed is None) | (self.seeds == seed)))
        if found.size == 0:
            fail("lam", f"one of {sorted(set(self.lambdas.tolist()))} with a seed of the path", f"{lam}, seed {seed}")
        return int(found[0])

    def network(self, model: int) -> nn.Module:
        """Return a network with the weights of one model at its best epoch, in evaluation mode."""
        model = as_count("model", model, at_least=0, below=self.n_models)
        return self._trained.network(model, int(self.seeds[model]))

    @torch.no_grad()
    def distribution(self, model: int, x: Any) -> SurvivalDistribution:
        """Return the distribution that one model predicts for each row of features ``(n, ...)``, without gradient.

        `x` is an array or a tensor; it goes to the device of the models and to their type.
        """
        network = self.network(model)
        parameter = next(network.parameters())
        with full_precision(parameter.device):
            return self.family.distribution(network(torch.as_tensor(x).to(parameter)))

    def outputs(self, data: SurvivalData) -> Iterator[tuple[Tensor, SurvivalData]]:
        """Raw outputs of all models at once, some rows at a time.

        Parameters
        ----------
        data : SurvivalData
            Any rows; features in a file are read piece by piece.

        Yields
        ------
        raw : Tensor of shape (S, L, b, n_outputs)
            For S seeds and L lambdas; ``path.family.distribution(raw)`` is of shape (S, L, b). Without gradient.
        rows : SurvivalData
            The b rows that they belong to, on the device of the models and in their type.
        """
        return self._trained.outputs(data, list(dict.fromkeys(self.seeds.tolist())))

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

    def _repr_html_(self) -> str:
        """Return the models as a table, each at its best epoch, for a notebook."""
        best = self.best()
        lines = zip(self.lambdas, self.seeds, self.best_epoch, best.objective[0], best.dcal[0], strict=True)
        rows = "".join(
            f"<tr><td>{lam:g}</td><td>{seed}</td><td>{epoch}</td><td>{objective:.4g}</td><td>{dcal:.3g}</td></tr>"
            for lam, seed, epoch, objective, dcal in lines
        )
        head = "".join(f"<th>{name}</th>" for name in ("lambda", "seed", "best epoch", "objective", "D-calibration"))
        return f"<p>{escape(repr(self))}, on the validation rows</p><table><tr>{head}</tr>{rows}</table>"

    def __repr__(self) -> str:
        lambdas, seeds = np.unique(self.lambdas).size, np.unique(self.seeds).size
        ended = ", interrupted" if self.interrupted else ""
        failed = f", {len(self.failures)} failed" if self.failures else ""
        return (
            f"PathResult({self.n_models} models: {lambdas} lambdas x {seeds} seeds, {self.history.epochs} epochs, "
            f"{self.mode}{failed}{ended})"
        )
