"""What the default rule of a path judges its candidates by: what the penalty asked for."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from xcal.charts.words import p_in_words


@dataclass(frozen=True)
class JudgedBy:
    """A column of the candidates, whose test and error have columns beside it.

    Attributes
    ----------
    name : str
        The column; ``<name>_p`` and ``<name>_gap_se`` are those of the test and the error.
    words : str
        What it is called in a sentence.
    floor : str or None
        Column of what a perfect model scores; None where that is zero.
    """

    name: str
    words: str
    floor: str | None

    def excess(self, lines: Any) -> Any:
        """Value above what a perfect model scores, of one candidate or of several."""
        return lines[self.name] if self.floor is None else lines[self.name] - lines[self.floor]

    def described(self, line: "pd.Series[Any]") -> str:
        """Return what a candidate scores."""
        perfect = 0.0 if self.floor is None else line[self.floor]
        score = f"{self.words} {line[self.name]:.2g}, a perfect model scores {perfect:.2g}"
        return f"{score}, {p_in_words(line[f'{self.name}_p'])}"


def judged_by(table: pd.DataFrame) -> JudgedBy:
    """Read it off a table of candidates: that of models trained for calibration given the covariates has its test."""
    if "conditional_p" in table:
        return JudgedBy("conditional", "conditional calibration", None)
    return JudgedBy("dcal", "D-calibration", "dcal_floor")
