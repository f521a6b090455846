"""A survival curve as an object that can be called, as scikit-survival's scorers want it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xcal._past_the_end import unseen_as_nan
from xcal.estimators.features import Floats
from xcal.estimators.fitted import PredictingModel
from xcal.estimators.inputs import read_times


@dataclass(frozen=True, eq=False, repr=False)
class SurvivalCurve:
    """S of one row: call it with a time or an array of times.

    Attributes
    ----------
    x, y : ndarray of shape (m,)
        Times from 0 to the last observed one, and S at each of them, for drawing. A call does not read these points but
        the distribution itself.
    """

    x: Floats
    y: Floats
    _raw: Tensor = field(repr=False)
    _model: PredictingModel = field(repr=False)

    @property
    def domain(self) -> tuple[float, float]:
        """Times that the data covered; a call after them gives NaN, or extrapolates if it is asked to."""
        return float(self.x[0]), float(self.x[-1])

    def __call__(self, times: Any, *, extrapolate: bool = False) -> Any:
        """S at `times`; a number for a number, an array for an array.

        After the last time seen in training it is NaN, with a warning, unless it is to `extrapolate`.
        """
        asked = read_times(times)
        raw = self._raw.unsqueeze(-2)
        distribution = self._model.read(raw.expand(*raw.shape[:-2], asked.size, -1))
        survival = distribution.survival(torch.from_numpy(asked)).numpy()
        if not extrapolate:
            survival = unseen_as_nan(survival, asked, self.domain[1], stacklevel=3)
        return float(survival[0]) if np.ndim(times) == 0 else survival

    def __repr__(self) -> str:
        return f"SurvivalCurve({self.x.size} points on [{self.domain[0]:g}, {self.domain[1]:g}])"
