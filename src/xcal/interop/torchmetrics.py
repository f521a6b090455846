"""Metrics that merge as ``torchmetrics.Metric``: for training loops on several processes, Lightning's for instance.

Every state is an array of a fixed shape with ``dist_reduce_fx="sum"``: processes exchange a few numbers, never rows,
and all get the value over the rows of all. The states of all but D-calibration are whole numbers, so the value is the
same to the last bit on any number of processes. ``pip install "xcal[torchmetrics]"``.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import torch

from xcal._checks import fail
from xcal.calibration import DCalibration
from xcal.metrics.cells import Accumulator
from xcal.metrics.streaming import (
    StreamingBrier,
    StreamingConcordance,
    StreamingCoxICI,
    StreamingKaplanMeier,
    StreamingMeanNLL,
    StreamingObservedExpected,
    StreamingOneCalibration,
)

try:
    from torchmetrics import Metric
except ImportError as error:
    raise ImportError('xcal.interop.torchmetrics needs torchmetrics: pip install "xcal[torchmetrics]"') from error

__all__ = ["StreamingMetric"]

# Of each accumulator: the number that `compute` gives, from the accumulator and its result, and whether more is better.
_VALUES: dict[type, tuple[Callable[[Any, Any], Any], bool | None]] = {
    StreamingKaplanMeier: (lambda meter, found: found.curve.at(meter.grid), None),
    StreamingObservedExpected: (lambda _, found: [one.value for one in found.results], None),
    StreamingOneCalibration: (lambda _, found: found.result.p_value, None),
    StreamingBrier: (lambda _, found: found.score.values, False),
    StreamingCoxICI: (lambda _, found: found.index.value, False),
    StreamingConcordance: (lambda _, found: found.value, True),
    StreamingMeanNLL: (lambda _, found: found.value, False),
    DCalibration: (lambda _, found: found.value, False),
}


class StreamingMetric(Metric):
    """An accumulator of `xcal.metrics.streaming`, or `xcal.DCalibration`, as a ``torchmetrics.Metric``.

    `update` takes what the accumulator takes. `compute` gives a tensor: the value, for one-calibration the p-value, for
    Kaplan-Meier the curve at the grid. `result` gives all that the accumulator finds, with bounds and tests.

    Parameters
    ----------
    accumulator : DCalibration, StreamingConcordance, StreamingBrier, ...
        Without rows, and with fixed grids where it has times.
    **options
        Of ``torchmetrics.Metric``.

    Examples
    --------
    >>> metric = StreamingMetric(StreamingConcordance(grids=([1.0, 2.0, 3.0, 4.0], [2.0, 5.0, 8.0, 9.0])))
    >>> metric.update(time=[1, 2, 3, 4], event=[1, 0, 1, 1], risk=[9, 8, 2, 5])
    >>> metric.compute()
    tensor(0.7500, dtype=torch.float64)
    """

    full_state_update = False
    is_differentiable = False

    def __init__(self, accumulator: Accumulator | DCalibration, **options: Any) -> None:
        super().__init__(**options)
        name = type(accumulator).__name__
        if type(accumulator) not in _VALUES:
            fail("accumulator", f"one of {', '.join(kind.__name__ for kind in _VALUES)}", name)
        fixed = accumulator.additive if isinstance(accumulator, Accumulator) else accumulator.method != "km"
        if not fixed:
            fail("accumulator", "one whose state has a fixed shape: with a fixed grid, not method='km'", name)
        state = accumulator.state_dict()
        if any(values.any() for values in state.values()):
            fail("accumulator", "one without rows", repr(accumulator))
        self._empty = accumulator
        self._names = {part: part.replace(".", "_") for part in state}
        for part, own in self._names.items():
            self.add_state(own, torch.from_numpy(np.array(state[part])), dist_reduce_fx="sum")

    @property
    def higher_is_better(self) -> bool | None:  # type: ignore[override]
        """Whether a larger value is better; None where neither is."""
        return _VALUES[type(self._empty)][1]

    def update(self, *given: Any, **named: Any) -> None:
        """Add rows, as `update` of the accumulator does; without sampling weights."""
        if named.get("weights") is not None:
            fail("weights", "None: their range cannot be added up over processes", "an array")
        seen: Any = deepcopy(self._empty)
        for part, values in seen.update(*given, **named).state_dict().items():
            own = self._names[part]
            state = getattr(self, own)
            setattr(self, own, state + torch.from_numpy(np.array(values)).to(state.device))

    def _merged(self) -> Any:
        state = {part: getattr(self, own).cpu().numpy() for part, own in self._names.items()}
        return deepcopy(self._empty).load_state_dict(state).compute()

    def compute(self) -> torch.Tensor:
        """Return the value over the rows of all processes."""
        value = _VALUES[type(self._empty)][0](self._empty, self._merged())
        return torch.as_tensor(value, dtype=torch.float64, device=self.device)

    def result(self) -> Any:
        """Return the full result over the rows of all processes; every process must ask for it."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        ):
            return self._merged()
