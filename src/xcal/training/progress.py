"""What is shown while a path is trained."""

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from shutil import get_terminal_size
from typing import Any

import numpy as np

from xcal.training.result import Floats, Integers
from xcal.training.state import RunState

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
