"""A recalibrated survival curve as an object that can be called, as scikit-survival's scorers want it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xcal._checks import as_flag
from xcal._past_the_end import unseen_as_nan
from xcal.recalibration.base import Floats

# Where the end of a recalibrated model comes from, for the warning: `Recalibrated.times_` says which of both.
SEEN = "seen in training or recalibration"


@dataclass(frozen=True, eq=False, repr=False)
class RecalibratedCurve:
    """S of one row after recalibration: call it with a time or an array of times.

    Attributes
    ----------
    x, y : ndarray of shape (m,)
        Times from 0 to the last one seen in the fit, and S at each of them, for drawing. A call asks the model again.
    """

    x: Floats
    y: Floats
    _estimator: Any = field(repr=False)
    _row: Any = field(repr=False)

    @property
    def domain(self) -> tuple[float, float]:
        """Times that the data covered; a call after them gives NaN, or extrapolates if it is asked to."""
        return float(self.x[0]), float(self.x[-1])

    def __call__(self, times: Any, *, extrapolate: bool = False) -> Any:
        """S at `times`; a number for a number, an array for an array.

        After the end it is NaN, with a warning, unless it is to `extrapolate`.
        """
        survival = self._estimator.predict_survival_function(self._row, times, extrapolate=True)[0]
        if not as_flag("extrapolate", extrapolate):
            asked = np.atleast_1d(np.asarray(times, dtype=np.float64))
            survival = unseen_as_nan(survival, asked, self.domain[1], stacklevel=3, seen=SEEN)
        return float(survival[0]) if np.ndim(times) == 0 else survival

    def __repr__(self) -> str:
        return f"RecalibratedCurve({self.x.size} points on [{self.domain[0]:g}, {self.domain[1]:g}])"
