"""The result of `xcal.audit`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcal._checks import MIN_CELL
from xcal.validation.measurements import AuditValue, Measurements


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
    """

    headline: str
    level: str
    said: tuple[Sentence, ...]
    events_needed: int | None = None

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

    @property
    def values(self) -> tuple[AuditValue, ...]:
        """Every number, in the order of the table."""
        return self.measured.values

    def __iter__(self) -> Iterator[AuditValue]:
        return iter(self.values)

    def value(self, metric: str, *, horizon: float | None = None, group: str | None = None) -> AuditValue:
        """Return one value by its name, horizon and group."""
        for value in self.values:
            if (value.metric, value.horizon, value.group) == (metric, horizon, group):
                return value
        raise KeyError(self._what_there_is(metric, horizon, group))

    def _what_there_is(self, metric: str, horizon: float | None, group: str | None) -> str:
        asked = f"no {metric!r} at horizon {horizon} in group {group}"
        there = [(value.horizon, value.group) for value in self.values if value.metric == metric]
        if not there:
            return f"{asked}; there are {', '.join(dict.fromkeys(value.metric for value in self.values))}"
        return f"{asked}; its horizons and groups are {', '.join(f'({h}, {g})' for h, g in there[:8])}"

    def to_frame(self) -> Any:
        """One line per number as a pandas DataFrame: metric, horizon, group, value, lower, upper."""
        from xcal.validation.export import to_frame

        return to_frame(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """Everything as JSON text, written whole to `path` if one is given."""
        from xcal.validation.export import to_json

        return to_json(self, path)

    def plot(self, kind: str, ax: Any = None, *, horizon: float | None = None, group: str | None = None) -> Any:
        """Draw one picture with matplotlib into `ax` (a new one by default) and give the axes back."""
        from xcal.validation.pictures import draw

        return draw(self, kind, ax, horizon=horizon, group=group)

    def report(self, path: str | Path) -> Path:
        """Write the report: one HTML file that needs no network. Written whole or not at all."""
        from xcal.validation.page import write_report

        return write_report(self, path)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from xcal.validation.export import to_html

        return to_html(self)

    def __repr__(self) -> str:
        from xcal.validation.export import to_text

        return to_text(self)
