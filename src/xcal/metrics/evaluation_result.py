"""What `evaluate` returns, and how it is shown."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from xcal._checks import MIN_CELL


@dataclass(frozen=True)
class Score:
    """One metric: its value, the ends of its interval (NaN without one), and a perfect model's value."""

    name: str
    value: float
    lower: float
    upper: float
    ideal: float | None


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The result of `evaluate`.

    Attributes
    ----------
    scores : tuple of Score
        What could be computed; ``evaluation["ici"]`` picks one by name.
    skipped : mapping of str to str
        What could not, and what it lacked: a prediction, independent rows, or rows of equal weight.
    n, n_events : int
        Rows, and rows with an event.
    at : float
        The time of the metrics that look at one time.
    level : float
        Coverage of the intervals.
    n_bootstrap : int
        Resamples behind those that are not by formula; 0 when there are none.
    n_clusters : int or None
        Clusters, where they were given.
    n_effective : float or None
        Where weights were given, the rows of equal weight whose mean would be as noisy (Kish).
    groups : mapping of label to Evaluation
        The same within each group; empty unless groups were given.
    """

    scores: tuple[Score, ...]
    skipped: dict[str, str]
    n: int
    n_events: int
    at: float
    level: float
    n_bootstrap: int
    n_clusters: int | None = None
    n_effective: float | None = None
    groups: Mapping[Any, "Evaluation"] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Score:
        for score in self.scores:
            if score.name == name:
                return score
        raise KeyError(f"{name!r}; there are {', '.join(score.name for score in self.scores)}")

    def to_frame(self) -> Any:
        """One line per metric, as a pandas DataFrame (pandas is imported only here)."""
        import pandas as pd

        rows = [(score.value, score.lower, score.upper, score.ideal) for score in self.scores]
        index = pd.Index([score.name for score in self.scores], name="metric")
        return pd.DataFrame(rows, columns=["value", "lower", "upper", "ideal"], index=index, dtype=float)

    @property
    def _has_intervals(self) -> bool:
        return any(not np.isnan(score.lower) for score in self.scores)

    def __repr__(self) -> str:
        share = self.n_events / self.n
        within = "" if self.n_clusters is None else f" in {self.n_clusters:,} clusters"
        weighted = "" if self.n_effective is None else f" with weights (effectively {self.n_effective:,.0f})"
        lines = [
            f"{_count(self.n, 'row')}{within}{weighted}, {_count(self.n_events, 'event')} ({share:.0%}); "
            f"single-time metrics at {self.at:.6g}",
            _line("metric", "value", f"{self.level:.0%} interval" if self._has_intervals else "", "ideal"),
        ]
        for score in self.scores:
            interval = ""
            if not np.isnan(score.lower):
                interval = f"[{score.lower:.4f}, {score.upper:.4f}]"
            ideal = "" if score.ideal is None else f"{score.ideal:g}"
            shown = f"{score.value:.2e}" if 0 < abs(score.value) < 1e-3 else f"{score.value:.4f}"
            if score.name.endswith("_p") and score.value == 0:
                shown = "< 1e-300"  # smaller than the smallest number there is
            lines.append(_line(score.name, shown, interval, ideal))
        for needed in sorted(set(self.skipped.values())):
            names = [name for name, lacks in self.skipped.items() if lacks == needed]
            lines.append(f"not computed without {needed}: {', '.join(names)}")
        for label, own in self.groups.items():
            if own.n >= MIN_CELL:
                lines += ["", f"group {label}: {own!r}"]
        if few := sum(own.n < MIN_CELL for own in self.groups.values()):
            lines += ["", f"not shown: {_count(few, 'group')} of fewer than {MIN_CELL} rows (.groups has them)"]
        return "\n".join(lines)


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"


def _line(name: str, value: str, interval: str, ideal: str) -> str:
    return f"{name:<22}{value:>10}{interval:>22}{ideal:>7}".rstrip()
