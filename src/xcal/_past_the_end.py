"""What is said of times after the last one seen: nothing, unless extrapolation is asked for.

One rule for the estimators and for `Recalibrated`: a probability at such a time is NaN, and a quantile that would lie
there is infinite ("later than anybody was seen"), both with a warning.
"""

import warnings

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_HOW = "extrapolate=True, or --extrapolate, for what the model says there"


def unseen_as_nan(
    values: Floats, times: Floats, last: float, *, stacklevel: int, seen: str = "seen in training"
) -> Floats:
    """Return probabilities ``(..., times)`` with NaN after the last time seen; `seen` says where, in the warning."""
    unseen = times > last
    if not unseen.any():
        return values
    told = f"{np.count_nonzero(unseen)} of {times.size} times lie after {last:.3g}, the last one {seen}: NaN"
    warnings.warn(f"{told} ({_HOW})", UserWarning, stacklevel=stacklevel)
    return np.where(unseen, np.nan, values)


def unseen_as_inf(quantiles: Floats, last: float, *, stacklevel: int, seen: str = "seen in training") -> Floats:
    """Return quantiles with infinity in place of times after the last one seen."""
    unseen = quantiles > last
    if not unseen.any():
        return quantiles
    told = f"{np.count_nonzero(unseen)} of {quantiles.size} quantiles lie after {last:.3g}, the last time {seen}"
    warnings.warn(f"{told}: infinity ({_HOW})", UserWarning, stacklevel=stacklevel)
    return np.where(unseen, np.inf, quantiles)
