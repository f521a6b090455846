"""Maps that are made of straight lines: what they share, whatever they are fitted by."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from xcal._checks import as_count, fail
from xcal.recalibration.base import Floats, Recalibration, own_log_survival, probabilities


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseRecalibration(Recalibration):
    """A map G through points, straight in between.

    Attributes
    ----------
    knots, levels : ndarray
        F and G(F) at the ends of the straight lines, both strictly increasing from 0 to 1.
    n, n_events : int
        Rows and events that G was fitted to.
    """

    knots: Floats
    levels: Floats
    n: int
    n_events: int

    def __post_init__(self) -> None:
        for name in ("knots", "levels"):
            values = np.asarray(getattr(self, name), dtype=np.float64)
            increases = values.ndim == 1 and values.size > 1 and bool((np.diff(values) > 0).all())
            if not increases or values[0] != 0 or values[-1] != 1:
                fail(name, "numbers that increase from 0 to 1", f"an array of shape {values.shape} that does not")
        if np.shape(self.knots) != np.shape(self.levels):
            fail("levels", f"{np.size(self.knots)} levels, as many as knots", np.size(self.levels))

    def cdf(self, u: Any) -> Floats:
        """Recalibrated F, G(u), for F values of any shape."""
        return np.interp(probabilities(u), self.knots, self.levels)

    def log_density(self, u: Any) -> Floats:
        """Log of the slope of G at F values of any shape: what recalibration adds to a row's log-density.

        On a knot it is the slope to the right; at 1, to the left.
        """
        log_slope = np.log(np.diff(self.levels)) - np.log(np.diff(self.knots))
        piece = np.searchsorted(self.knots[1:-1], probabilities(u), side="right")
        return np.asarray(log_slope[piece])

    def log_survival(self, u: Any, log_survival: Any = None) -> Floats:
        """``log(1 - G(u))``, -inf at u = 1.

        Parameters
        ----------
        u : array-like
            F values of any shape.
        log_survival : array-like of the same shape, optional
            The model's own ``log(1 - F)``. In the last piece 1 - G is a multiple of 1 - F, so with it the result is
            finite and exact where F is so near 1 that it rounds to 1.
        """
        values = probabilities(u)
        left = np.interp(values, self.knots, 1 - self.levels)
        with np.errstate(divide="ignore"):
            result = np.log(left)
        if log_survival is None:
            return np.asarray(result)
        own = own_log_survival(log_survival, values)
        ratio = (1 - self.levels[-2]) / (1 - self.knots[-2])
        return np.asarray(np.where(values >= self.knots[-2], np.log(ratio) + own, result))

    def quantile(self, p: Any) -> Floats:
        """Level of F that G maps to `p`: the recalibrated median is the model's quantile at ``quantile(0.5)``."""
        return np.interp(probabilities(p, "p"), self.levels, self.knots)

    def content(self) -> dict[str, Any]:
        """Everything that the map holds, as numbers and lists."""
        points = {"knots": self.knots.tolist(), "levels": self.levels.tolist()}
        return points | {"n": self.n, "n_events": self.n_events}

    @classmethod
    def of_content(cls, content: dict[str, Any]) -> Self:
        """Make the map again from what `content` gave; anything else is refused."""
        if not isinstance(content, dict) or set(content) != {"knots", "levels", "n", "n_events"}:
            fail("map", "knots, levels, n and n_events", type(content).__name__)
        points = [np.asarray(content[name], dtype=np.float64) for name in ("knots", "levels")]
        counts = [as_count(name, content[name], at_least=1) for name in ("n", "n_events")]
        return cls(points[0], points[1], counts[0], counts[1])

    def __repr__(self) -> str:
        pieces = self.knots.size - 1
        return f"{type(self).__name__}({pieces} pieces, from {self.n} rows with {self.n_events} events)"


def through_points(knots: Floats, levels: Floats) -> tuple[Floats, Floats]:
    """Knots and levels with both ends, without any that rounding, or a tie, has put on its neighbour."""
    knots, levels = np.concatenate([[0.0], knots, [1.0]]), np.concatenate([[0.0], levels, [1.0]])
    kept = [0]
    for i in range(1, knots.size - 1):
        inner = knots[kept[-1]] < knots[i] < 1 and levels[kept[-1]] < levels[i] < 1
        if inner:
            kept.append(i)
    kept.append(knots.size - 1)
    return knots[kept], levels[kept]
