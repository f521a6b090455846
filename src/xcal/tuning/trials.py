"""The record of each trial: one line of JSON with a checksum, written once."""

import json
import math
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from xcal._checks import fail
from xcal._record_lines import Corrupt, add_lines, as_line, check_place, read_lines


@dataclass(frozen=True)
class Trial:
    """What one setting gave.

    Attributes
    ----------
    search : str
        Hash of everything that decides the trials of a search: estimator, space, rows, score, folds, seed, batch.
    number : int
        From 0, in the order in which they were chosen.
    params : dict
        The settings that were tried.
    score : float or None
        Mean over the folds; None if it failed.
    scores, lambdas : tuple of float
        Score of each fold, and the weight that ``select()`` chose there.
    seconds : float
    failure : str
        Why there is no score; empty if there is one.
    versions : dict
    written : str
        Date and time, UTC.
    """

    search: str
    number: int
    params: dict[str, Any]
    score: float | None
    scores: tuple[float, ...] = ()
    lambdas: tuple[float, ...] = ()
    seconds: float = 0.0
    failure: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    written: str = ""

    @property
    def key(self) -> tuple[str, int]:
        """What tells the trials of one file apart."""
        return (self.search, self.number)

    def line(self) -> str:
        """Return the trial as one line that carries its own checksum."""
        return as_line(asdict(self))


_NAMES = {one.name for one in fields(Trial)}


def _trial(content: dict[str, Any]) -> Trial:
    """Read a trial; the checksum of a forged line can be right, so that every value is looked at."""
    if set(content) != _NAMES:
        raise ValueError("the record of another version")
    right = {
        "search": isinstance(content["search"], str),
        "number": isinstance(content["number"], int) and 0 <= content["number"] < 2**31,
        "params": isinstance(content["params"], dict),
        "score": content["score"] is None or _is_number(content["score"]),
        "scores": _are_numbers(content["scores"]),
        "lambdas": _are_numbers(content["lambdas"]),
        "seconds": _is_number(content["seconds"]),
        "failure": isinstance(content["failure"], str) and bool(content["failure"]) == (content["score"] is None),
        "versions": isinstance(content["versions"], dict),
        "written": isinstance(content["written"], str),
    }
    for name, good in right.items():
        if not good:
            raise ValueError(f"a value of the wrong kind for {name!r}")
    return Trial(**content | {name: tuple(content[name]) for name in ("scores", "lambdas")})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(map(_is_number, values))


@dataclass(frozen=True)
class TrialFile:
    """The trials of one or more searches, in a file or, without a path, nowhere."""

    path: Path | None

    def read(self, search: str) -> tuple[dict[int, Trial], list[Corrupt]]:
        """Return the trials of a search by number, and the lines of the file that cannot be read."""
        if self.path is None:
            return {}, []
        found, corrupt = read_lines(self.path, _trial, lambda trial: trial.key)
        return {trial.number: trial for trial in found.values() if trial.search == search}, corrupt

    def check_place(self) -> None:
        """Find out before the first trial whether they can be written."""
        if self.path is not None:
            if self.path.is_dir():
                fail("records", "the name of a file", f"the folder {self.path}")
            check_place(self.path, "records")

    def add(self, trial: Trial) -> None:
        """Write one more trial."""
        if self.path is not None:
            add_lines(self.path, _trial, [trial], "records")


def same_params(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two trials have the same settings, one of them read from a file, in which tuples are lists."""
    return bool(json.loads(json.dumps(one)) == json.loads(json.dumps(other)))
