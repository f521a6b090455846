"""What the loaders return beside `xcal.data.SurvivalData`: a data set in three splits."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal.data import SurvivalData

IntArray = npt.NDArray[np.int64]
Array32 = npt.NDArray[np.float32]
Array64 = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalDataset:
    """A data set that comes in three splits.

    Beside `SurvivalData`, because the splits belong to the data set: others have published results on them.

    Attributes
    ----------
    name : str
    train, validation, test : SurvivalData

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
    train: SurvivalData
    validation: SurvivalData
    test: SurvivalData

    @property
    def splits(self) -> dict[str, SurvivalData]:
        """The three splits by name, in the order train, validation, test."""
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One name for each column of `x`; empty for images."""
        return tuple(self.train.feature_names)

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.train.x.shape[1:])
        censored = sum(int(np.sum(~split.event)) for split in self.splits.values())
        sizes = f"train {len(self.train)} rows, validation {len(self.validation)}, test {len(self.test)}"
        return f"SurvivalDataset({self.name}: {sizes}; {shape} features; {censored} censored)"
