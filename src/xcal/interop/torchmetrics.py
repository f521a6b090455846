"""Metrics that merge as ``torchmetrics.Metric``: for training loops on several processes, Lightning's for instance.

Every state is an array of a fixed shape with ``dist_reduce_fx="sum"``: processes exchange a few numbers, never rows,
and all get the value over the rows of all. The states of all but D-calibration are whole numbers, so the value is the
same to the last bit on any number of processes. ``pip install "xcal[torchmetrics]"``.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import torch

from xcal._kaplan_meier import KaplanMeier
from xcal.calibration.significance import DCalibrationResult
from xcal.calibration.streaming import DCalibration
from xcal.metrics.predictions import MeanNLL
from xcal.metrics.streaming import (
    BoundedBrier,
    BoundedConcordance,
    BoundedCurve,
    BoundedOneCalibration,
    GriddedCoxICI,
    ObservedExpectedAt,
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

__all__ = [
    "BrierMetric",
    "ConcordanceMetric",
    "CoxICIMetric",
    "DCalibrationMetric",
    "KaplanMeierMetric",
    "MeanNLLMetric",
    "ObservedExpectedMetric",
    "OneCalibrationMetric",
]

Result = TypeVar("Result")


class _MergedMetric(Metric, Generic[Result]):
    """An accumulator whose state lives in tensors that torchmetrics adds up over processes.

    `compute` gives the value as a tensor, `result` all that the accumulator finds.
    """

    full_state_update = False
    is_differentiable = False

    def __init__(self, make: Callable[[], Any], options: Mapping[str, Any]) -> None:
        super().__init__(**options)
        self._make = make
        self._names = {name: name.replace(".", "_") for name in make().state_dict()}
        for name, values in make().state_dict().items():
            self.add_state(self._names[name], torch.from_numpy(np.array(values)), dist_reduce_fx="sum")

    def _add(self, *given: Any, **named: Any) -> None:
        """Add rows to the state, on its own device."""
        seen = self._make().update(*given, **named)
        for name, values in seen.state_dict().items():
            state = getattr(self, self._names[name])
            setattr(self, self._names[name], state + torch.from_numpy(np.array(values)).to(state.device))

    def _merged_state(self) -> Result:
        state = {name: getattr(self, own).cpu().numpy() for name, own in self._names.items()}
        found: Result = self._make().load_state_dict(state).compute()
        return found

    def result(self) -> Result:
        """Return the full result over the rows of all processes; every process must ask for it."""
        with self.sync_context(
            dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync, should_unsync=self._should_unsync
        ):
            return self._merged_state()

    def _tensor(self, values: Any) -> torch.Tensor:
        return torch.as_tensor(values, dtype=torch.float64, device=self.device)


class KaplanMeierMetric(_MergedMetric[BoundedCurve]):
    """Kaplan-Meier at fixed times; see `xcal.metrics.streaming.StreamingKaplanMeier`.

    Parameters
    ----------
    grid : array-like
        Increasing times. `compute` gives the curve at each of them.
    **options
        Of ``torchmetrics.Metric``; so with all classes here.

    Examples
    --------
    >>> metric = KaplanMeierMetric([1.0, 2.0, 3.0])
    >>> metric.update(time=torch.tensor([1.0, 2.0, 2.0, 3.0]), event=torch.tensor([1, 1, 0, 1]))
    >>> metric.compute()
    tensor([0.7500, 0.5000, 0.0000], dtype=torch.float64)
    """

    def __init__(self, grid: Any, **options: Any) -> None:
        super().__init__(partial(StreamingKaplanMeier, grid=grid), options)
        self._grid = np.asarray(grid, dtype=np.float64)

    def update(self, *, time: Any, event: Any) -> None:
        """Add rows."""
        self._add(time=time, event=event)

    def compute(self) -> torch.Tensor:
        """Return the curve at the grid, shape (m,)."""
        return self._tensor(self._merged_state().curve.at(self._grid))


class ObservedExpectedMetric(_MergedMetric[ObservedExpectedAt]):
    """O/E at fixed times; see `xcal.metrics.streaming.StreamingObservedExpected`.

    Examples
    --------
    >>> metric = ObservedExpectedMetric([2.0], grid=[1.0, 2.0, 3.0, 4.0])
    >>> metric.update([[0.2], [0.2], [0.3], [0.3]], time=[1, 2, 3, 4], event=[1, 0, 1, 1])
    >>> metric.compute()
    tensor(1., dtype=torch.float64)
    """

    def __init__(self, at: Any, *, grid: Any, level: float = 0.95, **options: Any) -> None:
        super().__init__(partial(StreamingObservedExpected, at, grid=grid, level=level), options)

    def update(self, probability: Any, *, time: Any, event: Any) -> None:
        """Add rows: the probability of an event by each of `at`, shape (n, m), and the outcome."""
        self._add(probability, time=time, event=event)

    def compute(self) -> torch.Tensor:
        """Return O/E at each of `at`."""
        return self._tensor([one.value for one in self._merged_state().results])


class OneCalibrationMetric(_MergedMetric[BoundedOneCalibration]):
    """P-value of one-calibration with fixed cuts; see `xcal.metrics.streaming.StreamingOneCalibration`.

    `compute` gives the p-value. With ``uses_cdf=True``, or a method that needs no curve, no grid is needed.
    """

    def __init__(
        self,
        at: float,
        *,
        cuts: Any,
        method: Any = None,
        uses_cdf: bool = False,
        grid: Any = None,
        **options: Any,
    ) -> None:
        make = partial(StreamingOneCalibration, at=at, cuts=cuts, method=method, uses_cdf=uses_cdf, grid=grid)
        if not make().additive:
            raise ValueError(f"grid: expected times of a fixed grid for the method {make().method!r}, got None")
        super().__init__(make, options)

    def update(self, probability: Any, *, time: Any, event: Any, cdf: Any = None) -> None:
        """Add rows: the probability of an event by `at`, and the outcome."""
        self._add(probability, time=time, event=event, cdf=cdf)

    def compute(self) -> torch.Tensor:
        """Return the p-value."""
        return self._tensor(self._merged_state().result.p_value)


class BrierMetric(_MergedMetric[BoundedBrier]):
    """Brier score at fixed times, given a censoring curve; see `xcal.metrics.streaming.StreamingBrier`.

    A loop passes its rows once, so the curve comes from elsewhere: from the training rows, by
    ``kaplan_meier(time=..., event=..., of="censoring")``, as in most publications.
    """

    higher_is_better = False

    def __init__(
        self, times: Any, censoring: KaplanMeier | BoundedCurve, *, left_limit: bool = True, **options: Any
    ) -> None:
        super().__init__(partial(StreamingBrier, times, censoring, left_limit=left_limit), options)

    def update(self, survival: Any, *, time: Any, event: Any) -> None:
        """Add rows: survival probabilities at `times`, shape (n, m), and the outcome."""
        self._add(survival, time=time, event=event)

    def compute(self) -> torch.Tensor:
        """Return the score at each of `times`."""
        return self._tensor(self._merged_state().score.values)


class CoxICIMetric(_MergedMetric[GriddedCoxICI]):
    """Calibration index by a Cox model on fixed grids; see `xcal.metrics.streaming.StreamingCoxICI`."""

    higher_is_better = False

    def __init__(self, at: float, *, times: Any, probabilities: Any, n_knots: int = 3, **options: Any) -> None:
        super().__init__(partial(StreamingCoxICI, at=at, n_knots=n_knots, grids=(times, probabilities)), options)

    def update(self, probability: Any, *, time: Any, event: Any) -> None:
        """Add rows: the probability of an event by `at`, and the outcome."""
        self._add(probability, time=time, event=event)

    def compute(self) -> torch.Tensor:
        """Return the index of the rows moved to the grid."""
        return self._tensor(self._merged_state().index.value)


class ConcordanceMetric(_MergedMetric[BoundedConcordance]):
    """Harrell's concordance on fixed grids; see `xcal.metrics.streaming.StreamingConcordance`.

    Quantiles of the times and of the first epoch's risks are good grids. `result` says how far the value can be off.

    Examples
    --------
    >>> metric = ConcordanceMetric(times=[1.0, 2.0, 3.0, 4.0], risks=[2.0, 5.0, 8.0, 9.0])
    >>> metric.update(time=[1, 2, 3, 4], event=[1, 0, 1, 1], risk=[9, 8, 2, 5])
    >>> metric.compute()
    tensor(0.7500, dtype=torch.float64)
    """

    higher_is_better = True

    def __init__(self, *, times: Any, risks: Any, **options: Any) -> None:
        super().__init__(partial(StreamingConcordance, grids=(times, risks)), options)

    def update(self, *, time: Any, event: Any, risk: Any) -> None:
        """Add rows: the outcome, and a risk that is larger where the event is expected sooner."""
        self._add(time=time, event=event, risk=risk)

    def compute(self) -> torch.Tensor:
        """Return the concordance."""
        return self._tensor(self._merged_state().value)


class MeanNLLMetric(_MergedMetric[MeanNLL]):
    """Mean negative log-likelihood, by exact sums; see `xcal.metrics.streaming.StreamingMeanNLL`.

    Examples
    --------
    >>> metric = MeanNLLMetric()
    >>> metric.update(torch.tensor([1.0, 2.0, 3.0]))
    >>> metric.compute()
    tensor(2., dtype=torch.float64)
    """

    higher_is_better = False

    def __init__(self, **options: Any) -> None:
        super().__init__(StreamingMeanNLL, options)

    def update(self, nll: Any) -> None:
        """Add rows: one negative log-likelihood each."""
        self._add(nll)

    def compute(self) -> torch.Tensor:
        """Return the mean."""
        return self._tensor(self._merged_state().value)


class DCalibrationMetric(_MergedMetric[DCalibrationResult]):
    """D-calibration by the "uniform" method; see `xcal.DCalibration`. Five sums per bin are exchanged.

    Examples
    --------
    >>> metric = DCalibrationMetric(n_bins=2)
    >>> metric.update(torch.tensor([0.1, 0.2, 0.3, 0.9]), torch.ones(4))
    >>> metric.compute()
    tensor(0.1250, dtype=torch.float64)
    """

    higher_is_better = False

    def __init__(self, *, n_bins: int = 10, edges: Any = None, p_value: Any = "akritas", **options: Any) -> None:
        super().__init__(partial(DCalibration, n_bins=n_bins, edges=edges, p_value=p_value), options)

    def update(self, cdf: Any, event: Any) -> None:
        """Add rows: F at the observed time, and whether the event happened."""
        self._add(cdf, event)

    def compute(self) -> torch.Tensor:
        """Return D-calibration."""
        return self._tensor(self._merged_state().value)
