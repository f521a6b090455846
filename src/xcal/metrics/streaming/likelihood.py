"""Mean negative log-likelihood over chunks, processes or files."""

from fractions import Fraction
from typing import Any, Self

import numpy as np

from xcal.metrics.likelihood import MeanNLL, as_nll
from xcal.metrics.streaming.accumulator import Accumulator
from xcal.metrics.streaming.sums import EXPONENTS, as_fraction, float_sums


class StreamingMeanNLL(Accumulator):
    """Accumulate the mean negative log-likelihood; see `mean_nll`. Sums are exact, whatever the order of the rows.

    Examples
    --------
    >>> StreamingMeanNLL().update([1.0, 2.0]).merge(StreamingMeanNLL().update([3.0])).compute()
    MeanNLL(value=2.0, standard_error=0.5773502691896257, n=3)
    """

    def __init__(self) -> None:
        super().__init__()
        self._sums |= {"n": np.zeros((), np.int64), "impossible": np.zeros((), np.int64)}
        self._sums |= {name: np.zeros((2, EXPONENTS), np.int64) for name in ("values", "squares")}

    def _settings(self) -> tuple[Any, ...]:
        return ()

    def update(self, nll: Any) -> Self:
        """Add rows: one negative log-likelihood each; infinity where the model held the row to be impossible."""
        if np.size(nll) == 0:
            return self
        values = as_nll(nll)
        # A square past the largest float is as good as impossible: the standard error is then not known.
        possible = np.abs(values) < 1e150
        self._sums["n"] += values.size
        self._sums["impossible"] += np.count_nonzero(~possible)
        self._sums["values"] += float_sums(values[possible])
        self._sums["squares"] += float_sums(np.square(values[possible]))
        return self

    def compute(self) -> MeanNLL:
        """Return the mean of all rows seen so far, and its standard error."""
        self._need_rows()
        n = self.n
        if self._sums["impossible"] > 0:
            return MeanNLL(float("inf"), float("nan"), n)
        total = as_fraction(self._sums["values"])
        if n == 1:
            return MeanNLL(float(total), float("nan"), 1)
        # In whole numbers, so that nothing is lost where the mean is large beside the spread.
        spread = max(Fraction(0), as_fraction(self._sums["squares"]) - total**2 / n) / (n - 1)
        return MeanNLL(float(total / n), float(np.sqrt(float(spread / n))), n)
