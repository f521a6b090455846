"""Which rows are trained on, which decide when to stop and what to choose, and which no model sees."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import fail
from xcal.cli.table_file import TableFile, read_table_file
from xcal.cli.workflow.columns import read_features
from xcal.cli.workflow.settings import FitSettings
from xcal.cli.workflow.understanding import Outcome, Understanding, read_outcome, understand
from xcal.data import Surv, SurvivalData
from xcal.estimators.settings import DEFAULTS
from xcal.validation.checks import read_groups

Rows = npt.NDArray[np.int64]

# What a cell of the split column may say.
_WORDS = {
    "train": "train",
    "training": "train",
    "validation": "validation",
    "valid": "validation",
    "val": "validation",
    "test": "test",
    "testing": "test",
}
# Rows below which a network with a penalty over 20 bins has nothing to learn from.
FEWEST_ROWS = 30


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows: features, outcome, labels of the groups that the report judges, and the cluster of each row.

    `clusters` is None where the rows are independent of each other, or nobody knows.
    """

    X: Any
    y: npt.NDArray[np.void]
    labels: Any
    clusters: npt.NDArray[np.str_] | None

    @property
    def n(self) -> int:
        """Number of rows."""
        return len(self.y)

    @property
    def n_events(self) -> int:
        """Number of events."""
        return int(np.count_nonzero(self.y["event"]))


@dataclass(frozen=True, eq=False)
class Parts:
    """The rows of a run. Without `validation` the path holds out some of `train` itself."""

    understanding: Understanding
    train: Part
    validation: Part | None
    test: Part


def read_parts(settings: FitSettings) -> Parts:
    """Read the files of a run, say what is in them, and divide the rows."""
    table = read_table_file(Path(settings.data), separator=settings.separator)
    outcome = read_outcome(table, settings)
    train, validation, test = _divided(table, outcome, settings)
    to_fit = np.sort(np.concatenate([train, validation]))
    if to_fit.size < FEWEST_ROWS:
        fail(settings.data, f"at least {FEWEST_ROWS} rows to train on", f"{to_fit.size}")
    understanding, X = understand(table, outcome, to_fit, settings)
    whole = _part(table, X, outcome, settings)
    held_out = _some(whole, test) if settings.test is None else _of_file(table, X, settings)
    if not held_out.n_events:
        fail("held-out rows", "at least one event", f"{held_out.n} rows without one")
    read_groups(held_out.labels, None, held_out.n)  # before hours of training, what the report would refuse after them
    return Parts(understanding, _some(whole, train), _some(whole, validation) if validation.size else None, held_out)


def read_new(table: TableFile, model: Any) -> Any:
    """Read the features of a model from a new file."""
    return read_features(table, {column.name: column.kind for column in model.encoding_.columns})


def read_part(table: TableFile, model: Any, settings: FitSettings) -> Part:
    """Read features and outcome of a new file."""
    return _part(table, read_new(table, model), read_outcome(table, settings), settings)


def _part(table: TableFile, X: Any, outcome: Outcome, settings: FitSettings) -> Part:
    import pandas as pd

    labels = {name: table.column(name, "--by").reset_index(drop=True) for name in settings.by}
    clusters = (
        None if settings.group is None or settings.group not in table.names else table.labels(settings.group, "--group")
    )
    y = Surv(time=outcome.time, event=outcome.event)
    return Part(X, y, pd.DataFrame(labels) if labels else None, clusters)


def _some(part: Part, rows: Rows) -> Part:
    def pick(frame: Any) -> Any:
        return None if frame is None else frame.iloc[rows].reset_index(drop=True)

    return Part(pick(part.X), part.y[rows], pick(part.labels), None if part.clusters is None else part.clusters[rows])


def _of_file(table: TableFile, X: Any, settings: FitSettings) -> Part:
    """Rows of the second file, read as those of the first."""
    assert settings.test is not None
    other = read_table_file(Path(settings.test), separator=settings.separator)
    kinds = {name: _kind_of_values(X[name]) for name in X.columns}
    if settings.group is not None:
        groups, others = (set(one.labels(settings.group, "--group")) for one in (table, other))
        _refuse_shared(groups & others, settings.group, "in both files")
    return _part(other, read_features(other, kinds), read_outcome(other, settings), settings)


def _kind_of_values(values: Any) -> Any:
    return {"f": "number", "M": "date"}.get(values.dtype.kind, "category")


def _divided(table: TableFile, outcome: Outcome, settings: FitSettings) -> tuple[Rows, Rows, Rows]:
    """Row numbers to train on, to validate on (none: the path takes its own) and to test on (none: another file)."""
    none = np.empty(0, dtype=np.int64)
    groups = None if settings.group is None else table.labels(settings.group, "--group")
    everything = np.arange(table.n)
    if settings.split is not None:
        train, validation, test = _by_column(table, settings.split)
        if groups is not None:
            _refuse_shared({*groups[test]} & {*groups[train], *groups[validation]}, str(settings.group), "in two parts")
    elif settings.test is not None:
        train, validation, test = everything, none, none
    else:
        share = settings.test_fraction
        train, test = _at_random(outcome, everything, groups, (1 - share, share), settings.seed)
        validation = none
    if groups is not None and not validation.size:
        share = DEFAULTS.validation_fraction
        train, validation = _at_random(outcome, train, groups, (1 - share, share), settings.seed)
    return train, validation, test


def _at_random(outcome: Outcome, rows: Rows, groups: Any, shares: tuple[float, float], seed: int) -> tuple[Rows, Rows]:
    """Divide rows in two: by event, or by whole groups."""
    data = SurvivalData(
        rows[:, None].astype(np.float64),
        time=outcome.time[rows],
        event=outcome.event[rows],
        groups=None if groups is None else groups[rows],
    )
    first, second = data.split(shares, seed=seed, whole_groups=groups is not None)
    # Two parts, which mypy cannot count.
    return tuple(np.asarray(part.x)[:, 0].astype(np.int64) for part in (first, second))  # type: ignore[return-value]


def _refuse_shared(shared: set[Any], column: str, where: str) -> None:
    if shared:
        fail(f"--group {column}", "every group on one side", f"{str(min(shared))!r} and {len(shared) - 1} more {where}")


def _by_column(table: TableFile, name: str) -> tuple[Rows, Rows, Rows]:
    """Read where each row belongs from a column of the words train, test and, if there are some, validation."""
    column = table.column(name, "--split")
    words = column.astype(str).str.strip().str.lower()
    known = words.map(_WORDS)
    bad = known.isna().to_numpy()
    if bad.any():
        row = int(np.argmax(bad))
        table.fail(name, "train, test or validation (--split)", repr(column.iloc[row]), row)
    train, validation, test = (np.flatnonzero(known == part) for part in ("train", "validation", "test"))
    for part, rows in (("train", train), ("test", test)):
        if not rows.size:
            table.fail(name, f"rows with {part!r} (--split)", "none")
    return train, validation, test
