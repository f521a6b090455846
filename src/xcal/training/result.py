"""What training a path returns, where a run stands between two epochs, and what is shown of it."""

import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from html import escape
from importlib import import_module
from importlib.util import find_spec
from shutil import get_terminal_size
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from xcal._checks import BoolArray, as_count, fail
from xcal.calibration.penalty import full_precision
from xcal.data.features import loaded_features
from xcal.data.survival import SurvivalData
from xcal.distributions.base import Family, SurvivalDistribution
from xcal.training.problem import TrainingConfig
from xcal.training.rows import in_type
from xcal.training.stack import MakeNetwork, Stack, load_row, new_network

# Rows times models evaluated at a time; see `xcal.training.problem`.
_CHUNK = {"cpu": 1 << 14, "cuda": 1 << 21}


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
    _best: dict[str, Tensor] = field(repr=False)  # of a stack: the models at their best epochs
    _make_network: MakeNetwork = field(repr=False)

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
        flat = self._best["flat"]
        network = new_network(self._make_network, int(self.seeds[model])).to(device=flat.device, dtype=flat.dtype)
        return load_row(network, self._best, model).eval()

    @torch.no_grad()
    def distribution(self, model: int, x: Any) -> SurvivalDistribution:
        """Return the distribution that one model predicts for each row of features ``(n, ...)``, without gradient.

        `x` is an array or a tensor; it goes to the device of the models and to their type.
        """
        network = self.network(model)
        parameter = next(network.parameters())
        with full_precision(parameter.device):
            return self.family.distribution(network(torch.as_tensor(x).to(parameter)))

    @torch.no_grad()
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
        flat, seeds = self._best["flat"], list(dict.fromkeys(self.seeds.tolist()))
        stack = Stack(self._make_network, seeds, flat.shape[0] // len(seeds), flat.device, flat.dtype)
        stack.load(self._best)
        step = max(1, _CHUNK.get(flat.device.type, 1 << 14) // stack.n_models)
        for start in range(0, data.n, step):
            rows = in_type(data[start : start + step].to(flat.device), flat.dtype)
            rows = rows.replaced(x=torch.as_tensor(loaded_features(rows.x)).to(flat.dtype))
            x = rows.x.unsqueeze(0).expand(len(seeds), *rows.x.shape)
            with full_precision(flat.device):  # not around the yield: what the caller does meanwhile is his
                raw = stack.forward(x, training=False)
            yield raw, rows

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


# Weights that a target can lead to.
LAMBDA_RANGE = (1e-2, 1e5)


@dataclass(eq=False)
class RunState:
    """State of K models between two epochs. Changed by the loop alone."""

    best: dict[str, Tensor]
    best_total: Floats
    best_epoch: Integers
    stopped: BoolArray
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

    def fail(self, models: BoolArray, batches: Integers | None) -> None:
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


_log = logging.getLogger("xcal.training")


@dataclass(frozen=True, eq=False)
class EpochReport:
    """One finished epoch, as given to a `progress` callback.

    Attributes
    ----------
    epoch, epochs : int
        Epochs finished, and asked for.
    models : ndarray of int
        Indices of the models that this report is about: all of them, or one in sequential mode.
    objective, dcal, total : ndarray
        Validation values of these models in this epoch; NaN for a model that has stopped.
    best_epoch : ndarray of int
    stopped : ndarray of bool
    """

    epoch: int
    epochs: int
    models: Integers
    objective: Floats
    dcal: Floats
    total: Floats
    best_epoch: Integers
    stopped: Any


Callback = Callable[[EpochReport], None]
Progress = bool | Callback | None


def shape_of_bar() -> dict[str, int]:
    """Return the size of the terminal as tqdm takes it: it draws nothing on one that does not know its own."""
    size = get_terminal_size()
    return {"ncols": size.columns, "nrows": size.lines}


class Reporter:
    """Shows a bar, calls the user's function, or does nothing.

    Parameters
    ----------
    progress
        True shows a bar, False does not, None shows one if the standard error is a terminal; a function is called
        after every epoch.
    total
        Epochs of all runs together.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self.callback = progress if callable(progress) else None
        self.bar: Any = None
        if progress is True or (progress is None and sys.stderr.isatty()):
            if find_spec("tqdm") is None:
                _log.info("no progress bar: tqdm is not installed")
            else:
                tqdm: Any = import_module("tqdm").tqdm
                self.bar = tqdm(total=total, unit="epoch", file=sys.stderr, **shape_of_bar())

    def show(self, state: RunState, *, epochs: int, models: Integers) -> None:
        """Show the last finished epoch, and log who failed in it. An exception of the user's function goes through."""
        for failure in state.failures:
            if failure.epoch == state.epoch - 1:
                _log.warning("%s; it keeps its best epoch so far", replace(failure, model=int(models[failure.model])))
        epoch = EpochReport(
            epoch=state.epoch,
            epochs=epochs,
            models=models,
            objective=state.objective[-1],
            dcal=state.dcal[-1],
            total=state.total[-1],
            best_epoch=state.best_epoch,
            stopped=state.stopped,
        )
        if self.bar is not None:
            known = ~np.isnan(epoch.total)
            best = {
                name: f"{getattr(epoch, name)[known].min():.4g}" if known.any() else "none"
                for name in ("objective", "dcal")
            }
            self.bar.set_postfix(best, refresh=False)
            self.bar.update(1)
        if self.callback is not None:
            self.callback(epoch)

    def close(self) -> None:
        """Leave the bar as it stands."""
        if self.bar is not None:
            self.bar.close()
