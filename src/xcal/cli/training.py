"""From the rows of a file to a trained path: which rows are trained on, which judge; what is predicted for a file."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from xcal._checks import as_number, fail
from xcal._files import new_file
from xcal.cli.run_folder import FitSettings
from xcal.cli.table_file import PARQUET, TableFile, is_number, is_parquet, read_table_file
from xcal.cli.understanding import Understanding, read_features, understand
from xcal.data.surv import Outcome
from xcal.data.survival import SurvivalData
from xcal.estimators import SurvivalModel, SurvivalPath
from xcal.estimators.inputs import feature_kind
from xcal.estimators.settings import DEFAULTS
from xcal.metrics.rows import along_rows, since
from xcal.training.result import Progress
from xcal.validation import audit
from xcal.validation.arguments import first_rows, read_covariates, read_groups, read_landmarks, read_outcome, read_sites
from xcal.validation.result import AuditResult

# --- Which rows are trained on, which decide when to stop and what to choose, and which no model sees.


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

    `labels` are the groups that it judges apart, `sites` where the rows come from, `covariates` the columns of "for
    whom?"; None for those of `X`. `clusters` is None where the rows are independent of each other, or nobody knows.
    """

    X: Any
    y: npt.NDArray[np.void]
    labels: Any
    sites: Any
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
    outcome = table.outcome(**settings.outcome)
    if settings.site is not None:
        table.column(settings.site, "--site")
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
    held = read_outcome(held_out.y, name="held-out rows", people=True)
    if held.id is not None:
        if settings.horizons is not None:
            fail("--horizons", "none beside --id: risks by then depend on later rows of a person", settings.horizons)
        people = along_rows(np.zeros(held.n), held)
        first_rows(people, groups=held_out.labels, sites=held_out.sites, clusters=held_out.clusters)
    labels = read_groups(held_out.labels, None, held_out.n)
    read_landmarks(settings.landmarks, held, labels)
    if settings.site is not None:
        read_sites(held_out.sites, None, held)
    if held_out.covariates is not None:
        read_covariates(held_out.covariates, None, held)
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


def read_part(table: TableFile, model: Any, settings: FitSettings, beside: Mapping[str, str | None]) -> Part:
    """Read features and outcome of a new file; `beside` are columns of entry and of intervals, by name."""
    named: dict[str, Any] = {name: column for name, column in beside.items() if column is not None}
    if "lower" in named:  # in place of the times and events of the run
        named |= dict.fromkeys(("time", "event", "event_value", "cause"))
    outcome = table.outcome(**(settings.outcome | named))
    return _part(table, read_new(table, model, settings), outcome, settings)


def _part(table: TableFile, X: Any, outcome: Outcome, settings: FitSettings) -> Part:
    import pandas as pd

    asked = {
        option: {name: table.column(name, option).reset_index(drop=True) for name in names}
        for option, names in (("--by", settings.by), ("--covariates", settings.covariates))
    }
    site = None if settings.site not in table.names else table.column(settings.site, "--site").reset_index(drop=True)
    labels, covariates = (pd.DataFrame(columns) if columns else None for columns in asked.values())
    clusters = (
        None if settings.group is None or settings.group not in table.names else table.labels(settings.group, "--group")
    )
    return Part(X, outcome.target(), labels, site, covariates, clusters)


def _some(part: Part, rows: Rows) -> Part:
    def pick(frame: Any) -> Any:
        return None if frame is None else frame.iloc[rows].reset_index(drop=True)

    clusters = None if part.clusters is None else part.clusters[rows]
    return Part(pick(part.X), part.y[rows], pick(part.labels), pick(part.sites), pick(part.covariates), clusters)


def _of_file(table: TableFile, other: TableFile, X: Any, settings: FitSettings, dates: str | None) -> Part:
    """Rows of the second file, read as those of the first."""
    kinds = {name: feature_kind(X[name]) for name in X.columns}
    if settings.group is not None:
        groups, others = (set(one.labels(settings.group, "--group")) for one in (table, other))
        _refuse_shared(groups & others, settings.group, "in both files")
    return _part(other, read_features(other, kinds, dates), other.outcome(**settings.outcome), settings)


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
    own = None if groups is None else groups[rows]
    data = SurvivalData.trusted(rows[:, None].astype(np.float64), None, None, groups=own)
    data = data.with_outcome(outcome.take(rows))
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


# --- A path trained on the rows of a run, and what it says about rows that it has not seen.


# Values that the summary shows of a model, by their names in an audit.
SUMMARISED = (
    *("harrell", "ibs", "d_calibration", "d_calibration_floor", "d_calibration_p"),
    *("cause_calibration", "cause_calibration_floor", "cause_calibration_p"),
)
# Concordance above which a column that knows the outcome is likelier than a model that good.
TOO_GOOD = 0.95


@dataclass(frozen=True, eq=False)
class Trained:
    """A fitted path, the model that it chose, and whether training was cut short."""

    path: SurvivalPath
    model: SurvivalModel
    interrupted: bool
    notes: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name the chosen model: its weight, and whether it is recalibrated."""
        return name_of(self.model)


@dataclass(frozen=True, eq=False)
class Judged:
    """Audit of the chosen model on rows that no model saw, and the values of lambda 0 there if that is another."""

    audit: AuditResult
    plain: dict[str, float] | None
    notes: tuple[str, ...]


def _which(model: SurvivalModel) -> tuple[float, bool]:
    """Return which model of a path it is: its weight, and whether it is recalibrated."""
    return float(model.xcal_lambda), model.fitted_.recalibration is not None


def name_of(model: SurvivalModel) -> str:
    """Name a model of a path."""
    lam, recalibrated = _which(model)
    return f"lambda {lam:g}" + (", recalibrated" if recalibrated else "")


def train(parts: Parts, settings: FitSettings, progress: Progress, checkpoint: Path | None = None) -> Trained:
    """Fit a path and let it choose; an interrupt after the first epoch keeps the best weights so far.

    The state of training is kept in the folder `checkpoint`, if there is one.
    """
    path = SurvivalPath(
        settings.lambdas,
        settings.seeds,
        path=settings.path,
        distribution=settings.distribution,
        epochs=settings.epochs,
        encode="auto",
        random_state=settings.seed,
        distributed="auto",
        progress=progress,
    )
    held = None if parts.validation is None else (parts.validation.X, parts.validation.y)
    clusters = None if parts.validation is None else known_clusters(parts.validation)
    interrupted = False
    with collected_warnings() as notes:
        try:
            path.fit(
                *(parts.train.X, parts.train.y),
                validation_data=held,
                validation_clusters=clusters,
                checkpoint=checkpoint,
            )
        except KeyboardInterrupt:
            if not hasattr(path, "frontier_"):
                raise
            interrupted = True
    # A bar, and other processes, are for the one who trains, not for the one who loads the model.
    path.progress = path.distributed = None
    return Trained(path, path.select(), interrupted, tuple(notes))


def known_clusters(part: Part) -> Any:
    """Return the clusters of rows; None where all rows are of one, from which nobody can tell noise from error."""
    return None if part.clusters is None or np.unique(part.clusters).size < 2 else part.clusters


def judge(trained: Trained, parts: Parts, settings: FitSettings, progress: bool | None) -> Judged:
    """Audit the chosen model on the held-out rows, and measure lambda 0 beside it."""
    with collected_warnings() as notes:
        test = parts.test
        result = audit_of(trained.model, test, settings, progress, training=parts.train)
        plain = trained.path.model(min(trained.path.frontier_["lambda"]))
        others = None
        if _which(plain) != _which(trained.model):
            # The horizons do not matter to these values; those of the report are known to be good. Clusters and
            # training rows do: floor, test and censoring weights of two models side by side are the same.
            at = replace(
                settings, horizons=tuple(result.horizons) or None, resamples=0, by=(), site=None, landmarks=None
            )
            plainly = replace(test, labels=None, sites=None)
            others = summary_values(audit_of(plain, plainly, at, False, training=parts.train))
    concordance = summary_values(result).get("harrell", 0.0)
    if concordance > TOO_GOOD:
        notes.append(
            f"concordance {concordance:.3f} is rarely reached by what is known at the start: look for columns that "
            "were filled in later, and leave them out (--drop)"
        )
    return Judged(result, others, tuple(notes))


def audit_of(
    model: SurvivalModel,
    part: Part,
    settings: FitSettings,
    progress: bool | None,
    *,
    training: Part | None = None,
) -> AuditResult:
    """Audit a model on some rows by the settings of a run; rows of one group are a cluster."""
    clusters = known_clusters(part)
    if settings.group is not None and clusters is None:
        got = "no such column" if part.clusters is None else "one value of it"
        warnings.warn(
            f"these rows have {got}, {settings.group!r} (--group): intervals and tests take them for independent",
            stacklevel=2,
        )
    sites = part.sites if part.sites is not None and part.sites.nunique(dropna=False) > 1 else None
    if settings.site is not None and sites is None:
        got = "no such column" if part.sites is None else "one value of it"
        warnings.warn(f"these rows have {got}, {settings.site!r} (--site): no sites are compared", stacklevel=2)
    return audit(
        model,
        part.X,
        part.y,
        horizons=settings.horizons,
        groups=part.labels,
        sites=sites,
        landmarks=settings.landmarks,
        last_seen=settings.last_seen,  # type: ignore[arg-type]  # checked by the settings
        covariates=part.covariates,
        clusters=clusters,
        training=None if training is None else (training.X, training.y),
        n_bootstrap="auto" if settings.resamples is None else settings.resamples,
        min_cell=settings.min_cell,
        seed=settings.seed,
        time_unit=settings.time_unit,
        name=f"xcal {model.distribution} ({name_of(model)})",
        progress=progress,
    )


def summary_values(result: AuditResult) -> dict[str, float]:
    """Return the few numbers of an audit that a summary shows."""
    known = {value.metric: value.value for value in result if value.horizon is None and value.group is None}
    return {name: known[name] for name in SUMMARISED if name in known}


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Gather warnings as sentences, each once, to be shown in their place."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield told
        finally:
            not_for_people = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)
            told += dict.fromkeys(str(one.message) for one in caught if not issubclass(one.category, not_for_people))


# --- Predictions of a run's model for the rows of a file, as a table.


# Names of the columns, with the time or the share after the last two.
RANKED, OWN_CDF, SURVIVAL, QUANTILE, INCIDENCE = ("risk", "median"), "cdf", "s_", "q_", "f_"
# How a text begins that a spreadsheet takes for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Ends of names of tables that can be written.
_FORMS = (".csv", ".csv.gz", ".tsv", ".tsv.gz", *PARQUET)


def predicted(
    model: SurvivalModel,
    table: TableFile,
    settings: FitSettings,
    *,
    times: Sequence[float],
    quantiles: Sequence[float],
    after: str | None,
    copied: Sequence[str],
    extrapolate: bool,
) -> Any:
    """Make a data frame with one line for each row of the file, in its order; `xcal predict` says its columns."""
    import pandas as pd

    X = read_new(table, model, settings)
    found: dict[str, Any] = {name: table.column(name, "--copy").to_numpy() for name in copied}
    seen = (settings.id, settings.entry, settings.lower, settings.upper)
    for name in (*seen, settings.time, settings.event, settings.cause):
        if name is not None and name in table.names:
            found.setdefault(name, table.frame[name].to_numpy())
    how: dict[str, Any] = {"after": _reached(table, after), "extrapolate": extrapolate}
    if after is not None:
        found["after"] = how["after"]
    ranked = model.predict(X), model.predict_median(X, **how)
    found |= dict(zip(RANKED, ranked, strict=True))
    if times:
        survival = model.predict_survival_function(X, np.array(times), **how)
        found |= {f"{SURVIVAL}{time:g}": survival[:, k] for k, time in enumerate(times)}
        for number, cause in enumerate(model.causes_):
            curves = model.predict_cumulative_incidence(X, np.array(times), cause=number + 1, **how)
            found |= {f"{INCIDENCE}{cause}_{time:g}": curves[:, k] for k, time in enumerate(times)}
    if quantiles:
        at = model.predict_quantile(X, np.array(quantiles), **how)
        found |= {f"{QUANTILE}{share:g}": at[:, k] for k, share in enumerate(quantiles)}
    # Beside curves of those who have come this far an F from the start would be misread.
    if settings.time is not None and settings.time in table.names and after is None:
        found[OWN_CDF] = _own_cdf(model, X, table, settings)
    return pd.DataFrame(found)


def _reached(table: TableFile, after: str | None) -> Any:
    """Time that rows have come to: a number for all, or a column."""
    if after is None:
        return None
    if after not in table.names and is_number(after):
        return as_number("--after", float(after), at_least=0)
    return table.times(after, "--after")


def _own_cdf(model: SurvivalModel, X: Any, table: TableFile, settings: FitSettings) -> Any:
    """F at the observed time of each row whose time is known; empty elsewhere.

    Where covariates change, the probability of the event between the start and the end of the row.
    """
    from xcal.interop import read_model

    columns = {str(settings.time): "--time"}
    if settings.id is not None and settings.entry in table.names:
        columns[str(settings.entry)] = "--entry"
    known = table.frame[list(columns)].notna().all(axis=1).to_numpy()
    values = np.full(table.n, np.nan)
    if not known.any():
        return values
    rows, ends = np.flatnonzero(known), []
    for column, option in columns.items():
        # Zero in place of an empty cell, for the check only: errors name the line of the file.
        filled = table.frame[column].where(known, 0).infer_objects()
        time = TableFile(table.path, table.frame.assign(**{column: filled}), table.lines).times(column, option)[rows]
        read = read_model(model, X.iloc[rows].reset_index(drop=True), time=time, event=np.ones(rows.size, dtype=bool))
        assert read.cdf is not None
        ends.append(read.cdf)
    values[rows] = ends[0] if len(ends) == 1 else since(*ends)
    return values


def check_target(path: Path, source: Path, *, overwrite: bool) -> None:
    """Check before any work that the table can be written."""
    if path.resolve() == source.resolve():
        fail("--out", "another file than the one to read", str(path))
    if not path.name.lower().endswith(_FORMS):
        fail("--out", f"a name that ends in {', '.join(_FORMS[:-1])} or {_FORMS[-1]}", str(path))
    if path.exists() and not overwrite:
        fail("--out", "a new file, or --overwrite to replace it", f"{path}, which exists")
    path.resolve().parent.mkdir(parents=True, exist_ok=True)


def write_table(frame: Any, path: Path) -> None:
    """Write a CSV file (packed, if its name ends in .gz) or a parquet file, whole or not at all.

    Texts of a CSV file that a spreadsheet would take for a formula get a quote before them.
    """
    with new_file(path) as part:
        if is_parquet(path):
            try:
                frame.to_parquet(part, index=False)
            except ImportError as error:
                raise ImportError('parquet files need pyarrow: pip install "xcal[parquet]"') from error
        else:
            # A packed file without a date inside: the same numbers give the same bytes.
            packed = {"method": "gzip", "mtime": 0} if path.suffix.lower() == ".gz" else None
            separator = "\t" if ".tsv" in path.suffixes else ","
            without_formulas(frame).to_csv(part, index=False, sep=separator, compression=packed)


def without_formulas(frame: Any) -> Any:
    """Put a quote before texts, and names of columns, that a spreadsheet would run; numbers stay as they are.

    Examples
    --------
    >>> import pandas as pd
    >>> without_formulas(pd.DataFrame({"id": ["=1+2", "-7", "A-7"]}))["id"].tolist()
    ["'=1+2", '-7', 'A-7']
    """

    def quoted(cell: Any) -> Any:
        formula = isinstance(cell, str) and cell.startswith(_FORMULA) and not is_number(cell)
        return f"'{cell}" if formula else cell

    changed = {name: column.map(quoted) for name, column in frame.items() if column.dtype.kind == "O"}
    return frame.assign(**changed).rename(columns=quoted)
