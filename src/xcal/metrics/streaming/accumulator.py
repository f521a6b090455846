"""The protocol of metrics that merge: update, merge, state_dict, load_state_dict, compute."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from xcal._checks import fail
from xcal.metrics.streaming.cells import SparseCells

State = dict[str, npt.NDArray[Any]]


class Accumulator(ABC):
    """Rows in, numbers of bounded size kept, a metric out.

    A subclass puts what it keeps into `_sums`, whole numbers that are added up, and `_cells`, counts of rows in cells
    that grow coarser when there are too many. Both give the same result in any order of rows and merges.
    """

    def __init__(self) -> None:
        self._sums: dict[str, npt.NDArray[np.int64]] = {}
        self._cells: dict[str, SparseCells] = {}

    @abstractmethod
    def compute(self) -> Any:
        """Return the metric of all rows seen so far."""

    @abstractmethod
    def _settings(self) -> tuple[Any, ...]:
        """Return what two accumulators must have in common to be merged."""

    @property
    def n(self) -> int:
        """Rows seen so far."""
        return int(self._sums["n"])

    @property
    def additive(self) -> bool:
        """Whether every array of the state has a fixed shape and merging is adding: so with fixed grids."""
        return not self._cells

    def merge(self, other: Self) -> Self:
        """Add what another accumulator with the same settings has seen."""
        if type(other) is not type(self) or _plain(other._settings()) != _plain(self._settings()):
            fail("other", f"a {type(self).__name__} with the same settings", repr(other))
        for name in self._sums:
            self._sums[name] += other._sums[name]
        for name, cells in self._cells.items():
            cells.merge(other._cells[name])
        return self

    def state_dict(self) -> State:
        """Return the state as arrays by name, to be written to a file or sent to another process."""
        state: State = {name: values.copy() for name, values in self._sums.items()}
        for name, cells in self._cells.items():
            state |= {f"{name}.{part}": values for part, values in cells.state_dict().items()}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> Self:
        """Replace the state by one from `state_dict` of an accumulator with the same settings."""
        wanted = set(self.state_dict())
        if set(state) != wanted:
            fail("state", f"the entries {', '.join(sorted(wanted))}", ", ".join(sorted(map(str, state))))
        sums: dict[str, npt.NDArray[np.int64]] = {}
        for name, values in self._sums.items():
            given = np.asarray(state[name])
            if given.shape != values.shape or given.dtype.kind not in "iu":
                fail(f"state[{name!r}]", f"whole numbers of shape {values.shape}", f"{given.dtype} {given.shape}")
            sums[name] = given.astype(np.int64)
        loaded = {
            name: cells.loaded({part: state[f"{name}.{part}"] for part in cells.state_dict()}, f"state[{name!r}]")
            for name, cells in self._cells.items()
        }
        self._sums, self._cells = sums, loaded
        return self

    def _need_rows(self) -> None:
        if self.n == 0:
            name = type(self).__name__
            raise ValueError(f"{name}: expected at least one row before compute(), got none; call update() first")

    def __repr__(self) -> str:
        return f"{type(self).__name__}: {self.n:,} rows"


def _plain(settings: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make settings comparable: arrays by their bytes."""
    return tuple(item.tobytes() if isinstance(item, np.ndarray) else item for item in settings)
