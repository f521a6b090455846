"""The result of `xcal.audit`: small frozen results that the table, the pictures and the page all read."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xcal._checks import MIN_CELL
from xcal.metrics.calibration_curve import CalibrationCurve, RiskDistribution
from xcal.metrics.inputs import Integers, Vector
from xcal.metrics.net_benefit import DecisionCurve
from xcal.metrics.pit import PitHistogram, PPCurve
from xcal.metrics.spec import Key, Skipped
from xcal.validation.study import Study
from xcal.validation.table_one import TableOne

if TYPE_CHECKING:
    from xcal.validation.next_steps import Precision


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

    @property
    def key(self) -> Key:
        """Which number it is."""
        return Key(self.metric, self.horizon, self.group)


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
    at_risk: Integers
    uncensored: Vector  # Kaplan-Meier of the censoring: share not yet censored
    brier: Vector
    brier_null: Vector  # of the Kaplan-Meier curve, which knows no covariates
    by: str = "Kaplan-Meier"  # how the outcomes were estimated


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


@dataclass(frozen=True)
class Update:
    """Values at one horizon after an update of the model, each row's risk by a fit to other rows.

    `how` is "large" (an intercept on the log-odds), "slope" (intercept and slope) or "map" (a map of F).
    """

    how: str
    horizon: float
    values: tuple[AuditValue, ...]


@dataclass(frozen=True, eq=False, repr=False)
class CauseCells:
    """Events of one cause in bins of the all-cause F, and how many the model expects while rows were observed."""

    cause: str
    edges: Vector  # bins of few events are merged
    events: Vector
    expected: Vector


@dataclass(frozen=True)
class AtLandmark:
    """Rows that have come to a landmark; what was measured of them stands among the groups, under `name`."""

    at: float
    name: str
    n: int
    n_events: int | None  # None where few have, or have not, had the event


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
    # The value in every resample, for paired differences between models; not exported.
    draws: Mapping[Key, Vector] = field(default_factory=dict)
    for_whom: ForWhom | None = None  # where there are covariates
    parts: tuple[PartFound, ...] = ()  # of covariates, where a test shows that the risks are off
    ibs_range: tuple[float, float] | None = None  # first and last time of the integrated Brier score
    n_families: int = 1  # families of tests that were made, by which the verdict multiplies p-values
    censoring: CensoringTest | None = None  # where there are censored rows and horizons
    # O/E by horizon if censored rows were seen through all of their last interval, and if through half of it; only
    # where times are coarse and nobody knows.
    seen: Mapping[float, tuple[float, ...]] = field(default_factory=dict)
    sites: tuple[str, ...] = ()  # the groups that are sites, small ones put together among them
    small_sites: str = ""  # the group of these
    landmarks: tuple[AtLandmark, ...] = ()
    updates: tuple[Update, ...] = ()  # what an update of the model would change
    cells: tuple[CauseCells, ...] = ()  # of D-calibration by cause


@dataclass(frozen=True)
class Concern:
    """Something about the rows that limits trust: what it is, and what it does to which values."""

    what: str
    effect: str
    serious: bool


@dataclass(frozen=True)
class DataSummary:
    """The rows at a glance; a count of few rows is None.

    Times are to two or three digits, so that no row's own can be read off, unless all is to be shown.
    """

    n: int
    n_events: int
    last_time: float  # that a cell of rows have reached
    median_follow_up: float  # reverse Kaplan-Meier; NaN if more than half of the rows have an event first
    n_tied_times: int | None  # rows that share their time with another row
    n_past_grid: int | None  # rows whose time lies past the last time of the model's curves
    concerns: tuple[Concern, ...]
    compared_with_training: bool = False  # whether the training rows were given
    n_clusters: int | None = None  # clusters of rows that depend on each other; None if the rows are independent
    n_effective: float | None = None  # of weighted rows, how many of equal weight have means as noisy


@dataclass(frozen=True)
class Sentence:
    """A sentence of the verdict, and the group that it is about; None for all rows."""

    text: str
    group: str | None = None


@dataclass(frozen=True)
class Answer:
    """One of the four questions of a verdict in one sentence.

    `question` is "On average", "Level of risk", "All times" or "For whom", `state` the worst of its values: "right",
    "small", "unsure", "off" or "wrong"; "unknown" where nothing was measured.
    """

    question: str
    state: str
    text: str


@dataclass(frozen=True)
class Verdict:
    """The answer in plain words.

    Attributes
    ----------
    headline : str
        One sentence: can the probabilities be trusted?
    level : str
        "trust", "caution", "distrust" or "unknown".
    said : tuple of Sentence
        Where, how sure, on how many events.
    events_needed : int or None
        About how many events would tell, where these are too few.
    answers : tuple of Answer
        One sentence for each of the four questions.
    """

    headline: str
    level: str
    said: tuple[Sentence, ...]
    events_needed: int | None = None
    answers: tuple[Answer, ...] = ()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The texts of what is said."""
        return tuple(sentence.text for sentence in self.said)


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult:
    """Validation of one model on one set of rows; see `xcal.audit`.

    Attributes
    ----------
    model, library : str
        Names of the model.
    reading : tuple of str
        How the model's curves were read.
    horizons : tuple of float
        Times of the values of one time.
    groups : tuple of str
        Names of the groups, "variable = label", that were judged.
    landmarks : tuple of str
        Those of them that have come to a landmark. Their horizons count from there.
    cause : str
        The cause whose events were judged, where events have several causes; "" if all events were.
    by_cause : mapping of str to AuditResult
        The same of each cause, where the predictions are of several.
    measured : Measurements
        Values and the curves of the pictures.
    data : DataSummary
        Rows, events, follow-up and concerns.
    verdict : Verdict
        The answer in words.
    methods : str
        A paragraph for a paper, with references.
    time_unit : str
        Unit of the times, for labels; "" if not known.
    level, n_bootstrap, seed : float, int, int
        Of the intervals.
    resampled_rows : int or None
        Rows of the random part that was resampled, with intervals scaled to all rows; None if all rows were.
    min_cell : int
        Rows below which a cell was merged or its count not told; 0 or 1 if all were shown.
    table_one : TableOne or None
        What the rows are like, beside the training rows where these were given.
    study : Study or None
        What the authors say of their study.
    """

    model: str
    library: str
    reading: tuple[str, ...]
    horizons: tuple[float, ...]
    groups: tuple[str, ...]
    measured: Measurements
    data: DataSummary
    verdict: Verdict
    methods: str
    time_unit: str
    level: float
    n_bootstrap: int
    seed: int
    resampled_rows: int | None = None
    min_cell: int = MIN_CELL
    landmarks: tuple[str, ...] = ()
    table_one: TableOne | None = None
    study: Study | None = None
    cause: str = ""
    by_cause: Mapping[str, "AuditResult"] = field(default_factory=dict)

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the groups that are sites."""
        return self.measured.sites

    @property
    def values(self) -> tuple[AuditValue, ...]:
        """Every number, in the order of the table."""
        return self.measured.values

    def __iter__(self) -> Iterator[AuditValue]:
        return iter(self.values)

    @property
    def each(self) -> tuple["AuditResult", ...]:
        """The audit itself, and those of the causes."""
        return self, *self.by_cause.values()

    def value(
        self, metric: str, *, horizon: float | None = None, group: str | None = None, cause: str | None = None
    ) -> AuditValue:
        """Return one value by its name, horizon, group and cause."""
        if cause is not None and str(cause) != self.cause:
            if str(cause) not in self.by_cause:
                known = ", ".join(self.by_cause) or self.cause or "none"
                raise KeyError(f"no cause {cause!r}; there is {known}")
            return self.by_cause[str(cause)].value(metric, horizon=horizon, group=group)
        asked = Key(metric, horizon, group)
        for value in self.values:
            if value.key == asked:
                return value
        raise KeyError(self._what_there_is(metric, horizon, group))

    def _what_there_is(self, metric: str, horizon: float | None, group: str | None) -> str:
        asked = f"no {metric!r} at horizon {horizon} in group {group}"
        there = [(value.horizon, value.group) for value in self.values if value.metric == metric]
        if not there:
            return f"{asked}; there are {', '.join(dict.fromkeys(value.metric for value in self.values))}"
        return f"{asked}; its horizons and groups are {', '.join(f'({h}, {g})' for h, g in there[:8])}"

    def precision(self, **widths: float) -> "tuple[Precision, ...]":
        """Return how precisely O/E, slope, AUC and ICI are estimated, and how many events would be enough.

        Enough for intervals as wide as ``oe=0.2, slope=0.4, auc=0.1, ici=0.05``, or as is said here.
        """
        from xcal.validation.next_steps import precision

        return precision(self, widths)

    def to_frame(self) -> Any:
        """One line per number as a pandas DataFrame: metric, horizon, group, cause, value, lower, upper."""
        from xcal.validation.words import to_frame

        return to_frame(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """Everything as JSON text, written whole to `path` if one is given."""
        from xcal.validation.words import to_json

        return to_json(self, path)

    def plot(self, kind: str, ax: Any = None, *, horizon: float | None = None, group: str | None = None) -> Any:
        """Draw one picture with matplotlib into `ax` (a new one by default) and give the axes back."""
        from xcal.validation.charts import plot

        return plot(self, kind, ax, horizon=horizon, group=group)

    def report(self, path: str | Path) -> Path:
        """Write the report: one HTML file that needs no network. Written whole or not at all."""
        from xcal.show.page import write_page
        from xcal.validation.page import report_page

        return write_page(report_page(self), path)

    def export(self, folder: str | Path) -> tuple[Path, ...]:
        """Write what a paper needs, and return the files: report, JSON, numbers, methods, tables, pictures.

        Tables are a .docx file (needs ``xcal[docx]``), pictures SVG and PNG with 300 dots per inch.
        """
        from xcal.validation.export import export

        return export(self, folder)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from xcal.validation.words import to_html

        return to_html(self)

    def __repr__(self) -> str:
        from xcal.validation.words import to_text

        return to_text(self)
