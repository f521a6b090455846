"""Numbers and curves of an audit: small frozen results that the table, the pictures and the page all read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from xcal.metrics.calibration_curve import CalibrationCurve
from xcal.metrics.inputs import Vector
from xcal.metrics.net_benefit import DecisionCurve
from xcal.metrics.pit_histogram import PitHistogram
from xcal.metrics.pp_curve import PPCurve
from xcal.metrics.risk_distribution import RiskDistribution

# The curves of single metrics are those of `xcal.metrics`; they stand here too, for those who read measurements.
__all__ = [
    "AuditValue",
    "CalibrationCurve",
    "CovariatePart",
    "DecisionCurve",
    "ForWhom",
    "Measurements",
    "OverTime",
    "PPCurve",
    "PartFound",
    "PitHistogram",
    "RiskDistribution",
    "WorstSubgroup",
]

Counts = npt.NDArray[np.int64]
AuditKey = tuple[str, float | None, str | None]  # metric, horizon, group


@dataclass(frozen=True)
class Skipped:
    """Something that was not computed, and why.

    Attributes
    ----------
    what : str
        Name of a metric; "horizon" for everything of one horizon, "group" for a whole group.
    why : str
        The reason, in words.
    horizon, group
        Where; None for all.
    interval : bool
        Whether the value is there and only its interval is missing.
    """

    what: str
    why: str
    horizon: float | None = None
    group: str | None = None
    interval: bool = False


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


@dataclass(frozen=True)
class CensoringTest:
    """Whether censoring depends on what is known of the rows.

    Attributes
    ----------
    p_value : float
        Of the strongest dependence, corrected for the number of variables asked about.
    on : tuple of str
        Variables on which it depends, the strongest first; empty if none was found.
    corrected : bool
        Whether values at horizons were corrected by a model of the censoring.
    uncorrected : tuple of AuditValue
        Values at horizons as they are without the correction, where there is one.
    """

    p_value: float
    on: tuple[str, ...]
    corrected: bool
    uncorrected: tuple[AuditValue, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class OverTime:
    """Curves over time: outcomes, the average prediction, who is still under observation, and the Brier score."""

    times: Vector
    observed: Vector  # 1 - Kaplan-Meier, or corrected for censoring that depends on covariates
    observed_lower: Vector
    observed_upper: Vector
    predicted: Vector  # mean predicted risk; NaN where the model says nothing
    at_risk: Counts
    uncensored: Vector  # Kaplan-Meier of the censoring: share not yet censored
    brier: Vector
    brier_null: Vector  # of the Kaplan-Meier curve, which knows no covariates


@dataclass(frozen=True)
class CovariatePart:
    """Rows with some values of one covariate: the mean of F at their events, 1/2 if the model is right for them.

    A censored row counts with the mean of what lies above its F. `lower` and `upper` are the ends of the interval.
    """

    column: str
    name: str
    n: int
    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class PartFound:
    """Rows with some values of one covariate for which the risks are not right on average.

    `p_value` is corrected for all tests of this kind; value, lower and upper are O/E and its interval. Where the
    horizon is None, O/E is the number of events over the whole follow-up for each that the model expects by then.
    `n_events` is None where few rows have, or have not, had the event.
    """

    name: str
    horizon: float | None
    n: int
    n_events: int | None
    value: float
    lower: float
    upper: float
    p_value: float


@dataclass(frozen=True, eq=False, repr=False)
class WorstSubgroup:
    """The subgroup that is most off: searched on one half of the rows, tested on the other.

    `error` is the root mean square deviation of the bins of F beyond noise, as a share of what a bin should hold.
    `mass` and `mass_error` are the share of F in each bin and its standard error, bins of few rows merged. All three
    are of its rows that were not searched, `n_tested` of all its `n` rows.
    """

    rule: str
    finding: str
    n: int
    n_tested: int
    p_value: float
    error: float
    edges: Vector
    mass: Vector
    mass_error: Vector


@dataclass(frozen=True, eq=False, repr=False)
class ForWhom:
    """Calibration given the covariates (`xcal.conditional_calibration`), and where it is worst."""

    value: float
    noise: float
    floor: float
    p_value: float
    columns: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]  # (column, why it cannot be used)
    parts: tuple[CovariatePart, ...]
    subgroup: WorstSubgroup | None


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
    skipped: tuple[Skipped, ...]
    # (metric, horizon, group) to its value in every resample, for paired differences between models; not exported.
    draws: Mapping[AuditKey, Vector] = field(default_factory=dict)
    for_whom: ForWhom | None = None  # where there are covariates
    parts: tuple[PartFound, ...] = ()  # of covariates, where a test shows that the risks are off
    ibs_range: tuple[float, float] | None = None  # first and last time of the integrated Brier score
    n_families: int = 1  # families of tests that were made, by which the verdict multiplies p-values
    censoring: CensoringTest | None = None  # where there are censored rows and horizons
    # O/E by horizon if censored rows were seen through all of their last interval, and if through half of it; only
    # where times are coarse and nobody knows.
    seen: Mapping[float, tuple[float, ...]] = field(default_factory=dict)
