"""What is said of times after the last one seen in training: nothing, unless extrapolation is asked for.

One rule: a probability at such a time is NaN, and a quantile that would lie there is infinite ("later than anybody was
seen"), both with a warning.
"""

import warnings

import numpy as np

from xcal.estimators.features import Floats
from xcal.metrics.small_cells import rounded_time

_HOW = "extrapolate=True, or --extrapolate, for what the model says there"


def unseen_as_nan(values: Floats, times: Floats, last: float, *, stacklevel: int) -> Floats:
    """Probabilities ``(..., times)`` with NaN after the last time seen."""
    unseen = times > last
    if not unseen.any():
        return values
    after = f"{rounded_time(last):g}"
    told = f"{np.count_nonzero(unseen)} of {times.size} times lie after {after}, the last one seen in training: NaN"
    warnings.warn(f"{told} ({_HOW})", UserWarning, stacklevel=stacklevel)
    return np.where(unseen, np.nan, values)


def unseen_as_inf(quantiles: Floats, last: float, *, stacklevel: int) -> Floats:
    """Quantiles with infinity in place of times after the last one seen."""
    unseen = quantiles > last
    if not unseen.any():
        return quantiles
    after = f"{rounded_time(last):g}"
    told = f"{np.count_nonzero(unseen)} of {quantiles.size} quantiles lie after {after}, the last time seen"
    warnings.warn(f"{told} in training: infinity ({_HOW})", UserWarning, stacklevel=stacklevel)
    return np.where(unseen, np.inf, quantiles)
