"""Which rows are trained on, which decide when to stop and what to choose, and which no model sees."""

from dataclasses import dataclass, replace
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
from xcal.validation.covariates import read_covariates

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
    """Some rows: features, outcome, what the report asks about them, and the cluster of each row.

    `labels` are the groups that it judges apart, `covariates` the columns of "for whom?"; None for those of `X`.
    `clusters` is None where the rows are independent of each other, or nobody knows.
    """

    X: Any
    y: npt.NDArray[np.void]
    labels: Any
    covariates: Any
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
    table = read_rows(Path(settings.data), settings)
    outcome = read_outcome(table, settings)
    train, validation, test = _divided(table, outcome, settings)
    to_fit = np.sort(np.concatenate([train, validation]))
    _check_enough(to_fit.size, settings)
    understanding, X = understand(table, outcome, to_fit, settings)
    whole = _part(table, X, outcome, settings)
    other = None if settings.test is None else read_rows(Path(settings.test), settings)
    held_out = _some(whole, test) if other is None else _of_file(table, other, X, settings, understanding.dates)
    fitted = [_some(whole, train), _some(whole, validation)]
    notes, (kept, chosen, held_out) = _without_repeated([*fitted, held_out], drop=settings.drop_duplicates)
    guessed = () if other is None else other.notes
    understanding = replace(understanding, notes=(*guessed, *understanding.notes, *notes))
    _check_enough(kept.n + chosen.n, settings)
    if not held_out.n_events:
        fail("held-out rows", "at least one event", f"{held_out.n} rows without one")
    # Before hours of training, what the report would refuse after them.
    read_groups(held_out.labels, None, held_out.n)
    if held_out.covariates is not None:
        read_covariates(held_out.covariates, None, (held_out.y["time"], held_out.y["event"]))
    return Parts(understanding, kept, chosen if chosen.n else None, held_out)


def _check_enough(n: int, settings: FitSettings) -> None:
    if n < FEWEST_ROWS:
        fail(settings.data, f"at least {FEWEST_ROWS} rows to train on", f"{n}")


def read_rows(path: Path, settings: FitSettings) -> TableFile:
    """Read a file that is written as that of the run."""
    return read_table_file(path, separator=settings.separator, decimal=settings.decimal)


def _without_repeated(parts: list[Part], *, drop: bool) -> tuple[list[str], list[Part]]:
    """Return how many held-out rows, the last part, repeat a row to fit on; leave such rows out if asked.

    A model knows such rows, so that they flatter it. Rows with the same features and another outcome may be the same
    patient. Where features do not tell rows apart, a few categories say, both happen by chance.
    """
    import pandas as pd

    def hashed(columns: Any) -> Any:
        return pd.util.hash_pandas_object(pd.DataFrame(columns), index=False).to_numpy()

    features = [hashed(part.X) for part in parts]
    rows = [
        hashed({"features": own, "time": part.y["time"], "event": part.y["event"]})
        for own, part in zip(features, parts, strict=True)
    ]
    known, seen = (np.concatenate(part[:-1]) for part in (rows, features))
    telling = 2 * np.unique(seen).size > np.unique(known).size
    same = np.isin(rows[-1], known)
    copies, alike = np.count_nonzero(same), np.count_nonzero(np.isin(features[-1], seen) & ~same)
    notes = []
    if drop:
        first = ~pd.Series(np.concatenate(rows)).duplicated().to_numpy()
        chosen = np.split(first, np.cumsum([part.n for part in parts])[:-1])
        parts = [_some(part, np.flatnonzero(kept)) for part, kept in zip(parts, chosen, strict=True)]
        notes.append(f"{np.count_nonzero(~first):,} rows that repeat another one are left out (--drop-duplicates)")
    of_all = f"of {parts[-1].n:,} held-out rows"
    if copies and not drop:
        why = (
            "the model knows them, and the report is too good" if telling else "with so few features perhaps by chance"
        )
        notes.append(
            f"{copies:,} {of_all} are exact copies of rows to train on (features, time and event): {why} "
            "(--drop-duplicates leaves copies out)"
        )
    if alike and telling:
        notes.append(
            f"{alike:,} {of_all} have all features of a row to train on, and another outcome: if they are rows of the "
            "same patients, keep these together (--group)"
        )
    return notes, parts


def read_new(table: TableFile, model: Any, settings: FitSettings) -> Any:
    """Read the features of a model from a new file."""
    return read_features(table, {column.name: column.kind for column in model.encoding_.columns}, settings.dates)


def read_part(table: TableFile, model: Any, settings: FitSettings) -> Part:
    """Read features and outcome of a new file."""
    return _part(table, read_new(table, model, settings), read_outcome(table, settings), settings)


def _part(table: TableFile, X: Any, outcome: Outcome, settings: FitSettings) -> Part:
    import pandas as pd

    asked = {
        option: {name: table.column(name, option).reset_index(drop=True) for name in names}
        for option, names in (("--by", settings.by), ("--covariates", settings.covariates))
    }
    labels, covariates = (pd.DataFrame(columns) if columns else None for columns in asked.values())
    clusters = (
        None if settings.group is None or settings.group not in table.names else table.labels(settings.group, "--group")
    )
    y = Surv(time=outcome.time, event=outcome.event)
    return Part(X, y, labels, covariates, clusters)


def _some(part: Part, rows: Rows) -> Part:
    def pick(frame: Any) -> Any:
        return None if frame is None else frame.iloc[rows].reset_index(drop=True)

    clusters = None if part.clusters is None else part.clusters[rows]
    return Part(pick(part.X), part.y[rows], pick(part.labels), pick(part.covariates), clusters)


def _of_file(table: TableFile, other: TableFile, X: Any, settings: FitSettings, dates: str | None) -> Part:
    """Rows of the second file, read as those of the first."""
    kinds = {name: _kind_of_values(X[name]) for name in X.columns}
    if settings.group is not None:
        groups, others = (set(one.labels(settings.group, "--group")) for one in (table, other))
        _refuse_shared(groups & others, settings.group, "in both files")
    return _part(other, read_features(other, kinds, dates), read_outcome(other, settings), settings)


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
        groups = "1 group" if len(shared) == 1 else f"{len(shared):,} groups"
        fail(f"--group {column}", "every group on one side", f"{groups} {where}")


def _by_column(table: TableFile, name: str) -> tuple[Rows, Rows, Rows]:
    """Read where each row belongs from a column of the words train, test and, if there are some, validation."""
    column = table.column(name, "--split")
    words = column.astype(str).str.strip().str.lower()
    known = words.map(_WORDS)
    bad = known.isna().to_numpy()
    if bad.any():
        row = int(np.argmax(bad))
        table.fail(name, "train, test or validation (--split)", "another word", row)
    train, validation, test = (np.flatnonzero(known == part) for part in ("train", "validation", "test"))
    for part, rows in (("train", train), ("test", test)):
        if not rows.size:
            table.fail(name, f"rows with {part!r} (--split)", "none")
    return train, validation, test
