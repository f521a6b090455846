"""What every map of F does, and the one check of what it is fitted to."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import BoolArray, as_event, as_numpy, as_probability, check_rows, fail

Floats = npt.NDArray[np.float64]
# Digits to which F values are told apart by a map. Nearer ones are ties, as are those of rows that are alike but for
# rounding: a map that rises between them would turn the rounding of F, 1e-16, into differences that can be seen.
DIGITS = 8


class Recalibration(ABC):
    """An increasing map G of [0, 1] onto itself: the recalibrated model has ``F'(t | x) = G(F(t | x))``.

    Attributes
    ----------
    n, n_events : int
        Rows and events that G was fitted to.
    """

    n: int
    n_events: int

    @abstractmethod
    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""

    @abstractmethod
    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`: the recalibrated median is the model's quantile at ``quantile(0.5)``."""

    @abstractmethod
    def log_density(self, u: Any) -> Floats:
        """Log of the slope of G at F values of any shape: what recalibration adds to a row's log-density."""

    @abstractmethod
    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1, unless the model's own ``log(1 - F)`` is given and tells more."""

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Everything that the map holds, as numbers and lists: what a file keeps of it."""


def held_out_rows(cdf: Any, event: Any) -> tuple[Floats, BoolArray]:
    """Check F at the observed times of rows that a map is fitted to: at least one of them must have had the event.

    F is rounded to `DIGITS`; what lies nearer to 0 or 1 than that, but not on it, stays apart from it.
    """
    check_rows({"cdf": cdf, "event": event})
    given = as_probability("cdf", cdf).astype(np.float64)
    happened = as_event(event, given.size)
    if not happened.any():
        fail("event", "at least one event", "none: every row is censored")
    least = 10.0**-DIGITS
    inside = np.clip(np.round(given, DIGITS), least, 1 - least)
    return np.where((given > 0) & (given < 1), inside, given), happened


def probabilities(values: Any, name: str = "u") -> Floats:
    """Probabilities of any shape."""
    array = as_numpy(name, values).astype(np.float64)
    bad = ~((array >= 0) & (array <= 1))
    if bad.any():
        place = np.unravel_index(int(np.argmax(bad)), array.shape)
        fail(name, "values in [0, 1]", array[place], tuple(int(i) for i in place) if array.ndim != 1 else int(place[0]))
    return array


def own_log_survival(values: Any, u: Floats) -> Floats:
    """Check the model's own ``log(1 - F)``, given beside its F."""
    own = as_numpy("log_survival", values).astype(np.float64)
    if own.shape != u.shape:
        fail("log_survival", f"shape {u.shape}, as the F values have", own.shape)
    return own
