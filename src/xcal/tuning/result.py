"""What a search found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from xcal.tuning.scoring import ScoreName
from xcal.tuning.trials import Trial


@dataclass(frozen=True, eq=False, repr=False)
class TuningResult:
    """The result of `tune`.

    Attributes
    ----------
    best_params : dict
        Settings with the lowest score.
    best_score : float
        Their score, the mean over the folds. As it is the lowest of many it is a little too good: judge the estimator
        on fresh rows.
    best_estimator : estimator
        Fitted with these settings on all rows; of a path, ``select()`` gives the model.
    trials : DataFrame
        One line per trial: number, the settings, score, score_sd (standard deviation over the folds), seconds, failure.
    score : {"ibs", "nll"}
        What was minimised.
    records : Path or None
        File of the trials.
    corrupt : tuple of str
        Lines of that file that could not be read, and whose trials were made again.
    """

    best_params: dict[str, Any]
    best_score: float
    best_estimator: Any
    trials: pd.DataFrame
    score: ScoreName
    records: Path | None
    corrupt: tuple[str, ...] = ()

    def __repr__(self) -> str:
        failed = int((self.trials["failure"] != "").sum())
        settings = ", ".join(f"{name}={_short(value)}" for name, value in self.best_params.items())
        told = f"{len(self.trials)} trials" + (f", {failed} of them failed" if failed else "")
        return f"TuningResult(best {self.score} {self.best_score:.4g} with {settings}; {told})"


def frame_of(trials: list[Trial]) -> pd.DataFrame:
    """Put the trials into a table, one line each."""
    return pd.DataFrame(
        [
            {
                "number": trial.number,
                **trial.params,
                "score": np.nan if trial.score is None else trial.score,
                "score_sd": float(np.std(trial.scores, ddof=1)) if len(trial.scores) > 1 else np.nan,
                "seconds": trial.seconds,
                "failure": trial.failure,
            }
            for trial in trials
        ]
    )


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else repr(value)
