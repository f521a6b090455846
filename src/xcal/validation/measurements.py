"""Numbers and curves of an audit: small frozen results that the table, the pictures and the page all read."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from xcal.metrics.inputs import Vector

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AuditValue:
    """One number: which metric, at which horizon (None: over all times), in which group (None: all rows).

    `lower` and `upper` are the ends of the interval, NaN where there is none. The name of a group is
    "variable = label".
    """

    metric: str
    horizon: float | None
    group: str | None
    value: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False, repr=False)
class CalibrationCurve:
    """Observed against predicted risk at one horizon, smooth with a pointwise band, and in groups of equal size."""

    horizon: float
    group: str | None
    predicted: Vector  # (100,) places of the smooth curve, increasing
    observed: Vector  # the smooth curve there; NaN where it cannot be fitted
    lower: Vector  # pointwise band of it, NaN without resamples
    upper: Vector
    point_predicted: Vector  # (k,) mean risk of each risk group
    point_observed: Vector  # 1 - Kaplan-Meier of it at the horizon
    point_lower: Vector
    point_upper: Vector
    point_rows: Counts
    risk_edges: Vector  # (b + 1,) histogram of the risks, drawn beneath
    risk_counts: Counts  # (b,)


@dataclass(frozen=True, eq=False, repr=False)
class DecisionCurve:
    """Net benefit at one horizon for every threshold; that of treating nobody is zero."""

    horizon: float
    threshold: Vector
    model: Vector
    lower: Vector  # interval of `model`, NaN without resamples
    upper: Vector
    treat_all: Vector


@dataclass(frozen=True, eq=False, repr=False)
class RiskDistribution:
    """Predicted risks at one horizon, by what had happened by then: shares of rows in each bin of risk."""

    horizon: float
    edges: Vector  # (b + 1,)
    with_event: Vector  # (b,) shares that sum to 1 over rows with an event by the horizon
    without_event: Vector  # the same over rows seen event-free at the horizon
    censored: Vector  # the same over rows censored before it: their outcome is not known
    n_with_event: int
    n_without_event: int
    n_censored: int


@dataclass(frozen=True, eq=False, repr=False)
class PitHistogram:
    """Histogram of F at the own times, as D-calibration sees it, by one estimator; a perfect model is flat."""

    method: str  # "uniform", "km" or "ipcw"
    group: str | None
    edges: Vector  # (b + 1,)
    mass: Vector  # (b,)
    lower: Vector  # per bin, the range in which a perfect model's mass lies in 95 % of samples of this size
    upper: Vector


@dataclass(frozen=True, eq=False, repr=False)
class PPCurve:
    """Probability-probability plot: the distribution of F at the own times (Kaplan-Meier) against the diagonal."""

    predicted: Vector  # grid of probabilities, 0 to 1
    observed: Vector  # share of rows with F up to there
    lower: Vector  # simultaneous band of `observed`
    upper: Vector


@dataclass(frozen=True, eq=False, repr=False)
class OverTime:
    """Curves over time: outcomes, the average prediction, who is still under observation, and the Brier score."""

    times: Vector
    observed: Vector  # 1 - Kaplan-Meier
    observed_lower: Vector
    observed_upper: Vector
    predicted: Vector  # mean predicted risk; NaN where the model says nothing
    at_risk: Counts
    uncensored: Vector  # Kaplan-Meier of the censoring: share not yet censored
    brier: Vector
    brier_null: Vector  # of the Kaplan-Meier curve, which knows no covariates


@dataclass(frozen=True, eq=False, repr=False)
class Measurements:
    """Everything that was measured about one model."""

    values: tuple[AuditValue, ...]
    calibration: tuple[CalibrationCurve, ...]
    decision: tuple[DecisionCurve, ...]
    risks: tuple[RiskDistribution, ...]
    pit: tuple[PitHistogram, ...]
    pp: PPCurve | None
    over_time: OverTime
    skipped: tuple[tuple[str, str], ...]  # (metric or group, why it was not computed)
