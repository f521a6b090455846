"""What the loaders return: rows with features, times and events, split or whole."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, fail
from xcal.data._arguments import check_count, check_seed

IntArray = npt.NDArray[np.int64]
Array32 = npt.NDArray[np.float32]
Array64 = npt.NDArray[np.float64]


def _summary(x: npt.NDArray[Any], event: BoolArray) -> str:
    shape = " x ".join(str(size) for size in x.shape[1:])
    return f"{len(event)} rows of {shape} features, {int(np.sum(~event))} censored"


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalSplit:
    """Some rows of a data set.

    Attributes
    ----------
    x : ndarray of float32, shape (n, ...)
        Features.
    time : ndarray of float64, shape (n,)
        Time of the event, or of censoring.
    event : ndarray of bool, shape (n,)
        True where the event happened.
    label : ndarray of int64, shape (n,), or None
        A group that the model does not see (the digit of an MNIST image), for figures within groups.
    mean : ndarray of float64, shape (n,), or None
        Simulated data only: the true mean of each row's failure time.
    """

    x: Array32
    time: Array64
    event: BoolArray
    label: IntArray | None = None
    mean: Array64 | None = None

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        return f"SurvivalSplit({_summary(self.x, self.event)})"


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalDataset:
    """A data set in three splits.

    Attributes
    ----------
    name : str
    feature_names : tuple of str
        One name a column of `x`; empty for images.
    train, validation, test : SurvivalSplit

    Examples
    --------
    >>> from xcal.datasets import load_gamma
    >>> data = load_gamma(censored=False, n=(60, 30, 30), seed=0)
    >>> data
    SurvivalDataset(gamma, uncensored: train 60 rows, validation 30, test 30; 32 features; 0 censored)
    >>> data.train.x.shape, data.train.time.shape, data.train.event.dtype
    ((60, 32), (60,), dtype('bool'))
    """

    name: str
    feature_names: tuple[str, ...]
    train: SurvivalSplit
    validation: SurvivalSplit
    test: SurvivalSplit

    @property
    def splits(self) -> dict[str, SurvivalSplit]:
        """The three splits by name, in the order train, validation, test."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.train.x.shape[1:])
        censored = sum(int(np.sum(~split.event)) for split in self.splits.values())
        sizes = f"train {len(self.train)} rows, validation {len(self.validation)}, test {len(self.test)}"
        return f"SurvivalDataset({self.name}: {sizes}; {shape} features; {censored} censored)"


@dataclass(frozen=True, eq=False)
class Fold:
    """Row numbers of one fold: `train` and `test` are disjoint, sorted, and together all rows."""

    train: IntArray
    test: IntArray


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalTable:
    """A whole table, not split.

    Attributes
    ----------
    name : str
    feature_names : tuple of str
        One name a column of `x`.
    x : ndarray of float32, shape (n, d)
    time : ndarray of float64, shape (n,)
    event : ndarray of bool, shape (n,)
        True where the event happened.

    Examples
    --------
    >>> import numpy as np
    >>> event = np.array([True, False] * 10)
    >>> table = SurvivalTable("toy", ("x0",), np.zeros((20, 1), np.float32), np.arange(1.0, 21.0), event)
    >>> table
    SurvivalTable(toy: 20 rows of 1 features, 10 censored)
    >>> [int(table.event[fold.test].sum()) for fold in table.folds(5, seed=0)]
    [2, 2, 2, 2, 2]
    """

    name: str
    feature_names: tuple[str, ...]
    x: Array32
    time: Array64
    event: BoolArray

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        return f"SurvivalTable({self.name}: {_summary(self.x, self.event)})"

    def folds(self, k: int, seed: int) -> tuple[Fold, ...]:
        """Split the rows into `k` folds, each with its share of events.

        Parameters
        ----------
        k : int
            Number of folds, from 2 to the number of rows.
        seed : int
            The same seed gives the same folds.

        Returns
        -------
        tuple of Fold
            Each row is in exactly one `test`. The sizes of any two folds differ by at most one row, and so do their
            numbers of events.
        """
        n = len(self)
        if check_count("k", k, 2) > n:
            fail("k", f"at most {n}, the number of rows", k)
        rng = np.random.default_rng(check_seed("seed", seed))
        shuffled = rng.permutation(n)
        # Events first, then censored rows, each in random order, dealt like cards to the k folds in turn.
        order = np.concatenate([shuffled[self.event[shuffled]], shuffled[~self.event[shuffled]]])
        fold_of = np.empty(n, dtype=np.int64)
        fold_of[order] = np.arange(n) % k
        return tuple(Fold(np.flatnonzero(fold_of != i), np.flatnonzero(fold_of == i)) for i in range(k))
