"""Where a run stands between two epochs: everything that a checkpoint holds besides the weights of now."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from xcal.training.result import Failure, Floats, History, Integers

# Weights that a target can lead to.
LAMBDA_RANGE = (1e-2, 1e5)


@dataclass(eq=False)
class RunState:
    """State of K models between two epochs. Changed by the loop alone."""

    best: dict[str, Tensor]
    best_total: Floats
    best_epoch: Integers
    stopped: npt.NDArray[np.bool_]
    lambdas: Floats  # of the next epoch; they change only where a target is asked for
    best_lambdas: Floats  # of the best epoch
    epoch: int = 0  # the next one
    failures: list[Failure] = field(default_factory=list)
    objective: list[Floats] = field(default_factory=list)
    dcal: list[Floats] = field(default_factory=list)
    total: list[Floats] = field(default_factory=list)
    interrupted: bool = False

    @classmethod
    def start(cls, initial: dict[str, Tensor], lambdas: Floats) -> "RunState":
        """State before the first epoch: the best weights so far are the initial ones."""
        return cls(
            initial,
            np.full(lambdas.size, np.inf),
            np.full(lambdas.size, -1, dtype=np.int64),
            np.zeros(lambdas.size, dtype=bool),
            lambdas.copy(),
            lambdas.copy(),
        )

    def fail(self, models: npt.NDArray[np.bool_], batches: Integers | None) -> None:
        """Stop models whose loss was not finite in this epoch."""
        for model in np.flatnonzero(models):
            batch = None if batches is None else int(batches[model])
            self.failures.append(Failure(int(model), self.epoch, batch))
        self.stopped = self.stopped | models

    def record(self, objective: Floats, dcal: Floats, total: Floats) -> None:
        """Add an epoch to the history; models that did not train in it have no value."""
        for values, known in ((self.objective, objective), (self.dcal, dcal), (self.total, total)):
            values.append(np.where(self.stopped, np.nan, known))

    def choose(self, now: dict[str, Tensor], total: Floats, patience: int | None, rising: int = 0) -> None:
        """Keep the weights of models that got strictly better; stop those that have not for `patience` epochs.

        `total` has the full lambda in every epoch: the score of an epoch does not depend on the weight that it was
        trained with, so an epoch of the first `rising` ones, in which the weight was smaller, may be the best. But a
        model with a penalty is not stopped before it had `patience` epochs with its full weight: until then its
        D-calibration may grow, as the objective comes first.
        """
        better = ~self.stopped & (total < self.best_total)
        if better.any():
            rows = torch.as_tensor(better, device=now["flat"].device)
            # One assignment, so that an interruption leaves the old best or the new one, never half of each.
            self.best = {
                name: torch.where(rows.view(-1, *[1] * (values.ndim - 1)), values, self.best[name])
                for name, values in now.items()
            }
            self.best_total = np.where(better, total, self.best_total)
            self.best_epoch = np.where(better, self.epoch, self.best_epoch)
            self.best_lambdas = np.where(better, self.lambdas, self.best_lambdas)
        if patience is not None:
            last_reason = np.where(self.lambdas > 0, np.maximum(self.best_epoch, rising - 1), self.best_epoch)
            self.stopped = self.stopped | (self.epoch - last_reason >= patience)

    def raise_lambdas(self, dcal: Floats, target: float, epochs: int) -> None:
        """One step of dual ascent: lambda grows where D-calibration is above the target and shrinks where it is below.

        On the logarithm of lambda, whose right size is not known beforehand: a step is the logarithm of the ratio, held
        within a factor e, times a rate at which lambda can grow from 1 to 3000 (e^8) in a quarter of the epochs.
        """
        rate = min(1.0, 32 / epochs)
        with np.errstate(divide="ignore"):
            step = rate * np.clip(np.log(dcal / target), -1.0, 1.0)
        moved = np.clip(self.lambdas * np.exp(step), *LAMBDA_RANGE)
        self.lambdas = np.where(self.stopped | ~np.isfinite(moved), self.lambdas, moved)

    def history(self) -> History:
        """Return the epochs so far."""
        empty = np.empty((0, self.best_total.size))
        objective, dcal, total = (np.array(v) if v else empty for v in (self.objective, self.dcal, self.total))
        return History(objective, dcal, total)
