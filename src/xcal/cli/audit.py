"""``xcal audit``: a validation report from a file of predictions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcal.cli import (
    By,
    Cause,
    Causes,
    Decimal,
    Entry,
    EventValue,
    Horizons,
    Landmarks,
    LastSeen,
    Lower,
    MinCell,
    Person,
    Separator,
    Site,
    Upper,
    listed,
    now_and_then,
)

if TYPE_CHECKING:  # numpy and pandas take a second to import, and --help should not
    from xcal import AuditResult
    from xcal.cli.table_file import TableFile

File = Annotated[Path, typer.Argument(help="CSV (.csv, .tsv, also .gz) or parquet file with one row per patient.")]
Time = Annotated[str | None, typer.Option(help="Column of the time of the event or of censoring, a number.")]
Event = Annotated[str | None, typer.Option(help="Column that says whether the event happened: 0/1 or true/false.")]
Curves = Annotated[
    str | None,
    typer.Option(help='Columns of survival probabilities, with a star for the time: "s_*" for s_12, s_24, s_60.'),
]
Incidences = Annotated[
    list[str] | None,
    typer.Option(
        help="Of events with several causes (--cause): columns of the incidence of one of them, with a star for the "
        'time, "death=d_*". For each cause once.'
    ),
]
Risk = Annotated[str | None, typer.Option(help="Column of the risk of an event by --horizon, from 0 to 1.")]
Horizon = Annotated[float | None, typer.Option(help="Time at which --risk was predicted.")]
Cdf = Annotated[str | None, typer.Option(help="Column of F, the predicted probability of an event by the row's time.")]
Clusters = Annotated[
    str | None,
    typer.Option(
        help="Column that says which rows depend on each other: the patient's number, with several rows each."
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Column of sampling weights, numbers above zero: how many each row stands for, such as 10 in a subcohort "
        "of 10 % and 1 for a case that was sampled for sure."
    ),
]
Covariates = Annotated[
    str | None,
    typer.Option(help='Columns to ask "for whom?" about, with commas: age,sex. By default all that have no other use.'),
]
Steps = Annotated[bool, typer.Option("--steps", help="Read the curves as steps; by default along straight lines.")]
Training = Annotated[Path | None, typer.Option(help="File of the training rows, with the same time and event columns.")]
Out = Annotated[Path | None, typer.Option(help="Write the report, one HTML page, to this file.")]
AsJson = Annotated[Path | None, typer.Option("--json", help="Write every number and curve to this file as JSON.")]
Export = Annotated[
    Path | None,
    typer.Option(help="Write what a paper needs into this folder: tables (.docx), pictures (SVG, PNG), numbers."),
]
Name = Annotated[str | None, typer.Option(help="Name of the model in the report.")]
Unit = Annotated[str, typer.Option("--time-unit", help='Unit of the times, such as "months".')]
Resamples = Annotated[
    int | None, typer.Option(min=0, help="Bootstrap resamples. By default 1000, and fewer of more than 10,000 rows.")
]
Censoring = Annotated[
    str,
    typer.Option(
        help="auto: correct values at horizons if censoring depends on the predicted risk or on covariates; "
        "independent: never, as in published guidelines; covariates: always."
    ),
]
StudyFile = Annotated[
    Path | None,
    typer.Option(
        "--study",
        help="study.toml: source of the data, eligibility, funding and whatever else only you know, for the report and "
        "its checklists.",
    ),
]


def _new_study(path: Path | None) -> None:
    """Write an empty study file, and end."""
    if path is not None:
        from xcal.validation.study import new_study

        typer.echo(f"wrote {new_study(path)}: fill it in, and give it by --study", err=True)
        raise typer.Exit


NewStudy = Annotated[
    Path | None,
    typer.Option("--new-study", callback=_new_study, is_eager=True, help="Write a study file to fill in, and end."),
]
Level = Annotated[float, typer.Option(help="Coverage of the intervals.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the resamples.")]


def audit(
    file: File,
    time: Time = None,
    event: Event = None,
    event_value: EventValue = None,
    cause: Cause = None,
    causes: Causes = None,
    entry: Entry = None,
    lower: Lower = None,
    upper: Upper = None,
    id: Person = None,
    curves: Curves = None,
    incidences: Incidences = None,
    risk: Risk = None,
    horizon: Horizon = None,
    cdf: Cdf = None,
    by: By = None,
    site: Site = None,
    clusters: Clusters = None,
    weights: Weights = None,
    covariates: Covariates = None,
    horizons: Horizons = None,
    landmarks: Landmarks = None,
    steps: Steps = False,
    training: Training = None,
    out: Out = None,
    as_json: AsJson = None,
    export: Export = None,
    name: Name = None,
    time_unit: Unit = "",
    resamples: Resamples = None,
    censoring: Censoring = "auto",
    last_seen: LastSeen = "auto",
    min_cell: MinCell = None,
    level: Level = 0.95,
    seed: Seed = 0,
    study: StudyFile = None,
    new_study: NewStudy = None,
    separator: Separator = None,
    decimal: Decimal = ".",
) -> None:
    r"""Validate the predictions of a survival model, and write a report.

    The file has one row per patient with the observed time, whether the
    event happened, and predictions: survival probabilities at some times
    (--curves), the risk at one time (--risk and --horizon), or the
    probability of an event by the patient's observed time (--cdf). Give
    --curves with --cdf if both are there: a few points of a curve do not
    tell the other. The rows must not be those that the model was trained on.

    For example, with columns t, e, sex, s_12, s_24 and s_60:
      xcal audit predictions.csv --time t --event e --curves "s_*" --out report.html

    By sex, at two times, with the event written as a word:
      xcal audit predictions.csv --time t --event status --event-value dead \
        --curves "s_*" --by sex --horizons 24,60 --out report.html

    By hospital, with what to expect at a new one:
      xcal audit predictions.csv --time t --event e --curves "s_*" --site hospital

    Several rows per patient, which depend on each other:
      xcal audit predictions.csv --time t --event e --curves "s_*" --clusters patient

    Events of several causes, with the incidence of each; --event-value
    judges one of them, also by --curves or --risk:
      xcal audit predictions.csv --time t --cause c --causes recurrence,death \
        --incidences "recurrence=r_*" --incidences "death=d_*" --out report.html

    Patients who came under observation some time after the start:
      xcal audit predictions.csv --time t --event e --entry t0 --curves "s_*"

    Patients whose covariates change, with a row for each stretch of time
    and the probability of the event within it:
      xcal audit predictions.csv --id patient --entry start --time stop --event e --cdf p

    Events that are known to lie between two visits:
      xcal audit predictions.csv --lower last_without --upper first_with --curves "s_*"

    Those who are still without the event after one and two years (365 and
    730 days), with their risks from there on:
      xcal audit predictions.csv --time t --event e --curves "s_*" --landmarks 365,730

    Rows with sampling weights, as in a case-cohort study:
      xcal audit predictions.csv --time t --event e --curves "s_*" --weights w

    Whether the predictions are right for all, or for some only, is asked of
    the columns that have no other use. Name them if some of these were not
    known at the start, such as the cause of death:
      xcal audit predictions.csv --time t --event e --curves "s_*" --covariates age,sex

    With what only you know about the study, for its checklists:
      xcal audit --new-study study.toml
      xcal audit predictions.csv --time t --event e --curves "s_*" --study study.toml

    The risk at five years only, with every number as JSON:
      xcal audit predictions.csv --time t --event e --risk r5 --horizon 5 --json audit.json
    """
    import xcal
    from xcal._checks import MIN_CELL, fail
    from xcal._files import check_target
    from xcal.cli.table_file import read_table_file
    from xcal.cli.training import OWN_CDF, RANKED

    check_outcome(time, event, lower, upper, cause)
    columns: dict[str, Any] = {
        "time": time,
        "event": event,
        "entry": entry,
        "lower": lower,
        "upper": upper,
        "person": id,
    }
    columns |= {"cause": cause, "event_value": None if cause is not None else event_value}
    outcome_of = {**columns, "causes": listed("--causes", causes, str, "names") or ()}
    asked = listed("--horizons", horizons, float, "times")
    kinds = {"--curves": curves, "--incidences": incidences[0] if incidences else None, "--risk": risk, "--cdf": cdf}
    _check_options(kinds, horizon, asked, steps)
    if causes is not None and cause is None:
        fail("--causes", "it with --cause, the column of the causes", "--causes alone")
    for path in (out, as_json):
        if path is not None:  # before anything is computed
            check_target(path)
    if export is not None:
        from xcal.validation.export import check_export

        check_export(export)
    written: dict[str, Any] = {"separator": separator, "decimal": decimal or "."}
    table = read_table_file(file, **written)
    if risk == RANKED[0] and risk in _of_predict(table):
        fail("--risk", f"a probability (column {risk!r} of xcal predict is none: use its curves, s_*)", repr(risk))
    if curves is not None and cdf is None and OWN_CDF in _of_predict(table):
        cdf = OWN_CDF
        typer.echo(f"note: F at the observed times is read from the column {OWN_CDF!r} of xcal predict", err=True)
    for note in table.notes:
        typer.echo(f"note: {note}", err=True)
    given: dict[str, Any] = {
        "y": table.outcome(**outcome_of).target(),
        "cause": event_value if cause is not None else None,
        "groups": {column: table.column(column, "--by") for column in by or []} or None,
        "sites": None if site is None else table.column(site, "--site"),
        "clusters": None if clusters is None else table.labels(clusters, "--clusters"),
        "weights": None if weights is None else table.weights(weights, "--weights"),
        "horizons": horizon if risk is not None else asked,
        "landmarks": listed("--landmarks", landmarks, float, "times"),
        **_predictions(table, curves, risk, cdf, steps),
        **_incidences(table, incidences, steps),
        **_covariates(
            table, covariates, (*columns.values(), risk, cdf, clusters, weights, site), curves, _patterns(incidences)
        ),
    }
    if training is not None:
        before = read_table_file(training, **written)
        known, outcome = given.get("X", given.get("covariates")), before.outcome(**outcome_of).target()
        shared = [] if known is None else [name for name in known if name in before.names]
        given["training"] = (before.frame[shared], outcome) if shared else outcome
    result = xcal.audit(
        **given,
        n_bootstrap="auto" if resamples is None else resamples,
        censoring=censoring,  # type: ignore[arg-type]  # checked by audit
        last_seen=last_seen,  # type: ignore[arg-type]
        min_cell=MIN_CELL if min_cell is None else min_cell,
        level=level,
        seed=seed,
        time_unit=time_unit,
        name=file.name if name is None else name,
        study=study,
        progress=now_and_then(_resampling_in_words),
    )
    _give(result, out, as_json, export)


def _resampling_in_words(done: int, total: int) -> str:
    return f"resampling: {100 * done // max(1, total)} %"


def _give(result: "AuditResult", out: Path | None, as_json: Path | None, export: Path | None) -> None:
    """Print the answer, and write what was asked for."""
    from xcal.validation.words import to_text

    for one in result.measured.skipped:
        if one.what == "horizon":
            typer.echo(f"note: nothing is computed at time {one.horizon:g}: {one.why}", err=True)
    typer.echo(to_text(result, next_steps=False))
    if as_json is not None:
        result.to_json(as_json)
        typer.echo(f"wrote {as_json}", err=True)
    if out is not None:
        result.report(out)
        typer.echo(f"wrote {out}", err=True)
    if export is not None:
        typer.echo(f"wrote {len(result.export(export))} files to {export}", err=True)


def check_outcome(
    time: str | None, event: str | None, lower: str | None, upper: str | None, cause: str | None = None
) -> None:
    """Check that the columns of times and events were named, or those of intervals."""
    from xcal._checks import fail

    given = {"--time": time, "--event": event, "--cause": cause, "--lower": lower, "--upper": upper}
    named = [name for name, column in given.items() if column is not None]
    if named not in (["--time", "--event"], ["--time", "--cause"], ["--lower", "--upper"]):
        expected = "both, or --cause in place of --event, or --lower and --upper in their place"
        fail("--time, --event", expected, " and ".join(named) or "none")


def _check_options(
    kinds: dict[str, str | None], horizon: float | None, horizons: list[float] | None, steps: bool
) -> None:
    """Check that the options fit together, before anything is read."""
    from xcal._checks import fail

    given = [name for name, column in kinds.items() if column is not None]
    if len(given) != 1 and given != ["--curves", "--cdf"]:
        expected = "one of them, or --curves with --cdf"
        fail("--curves, --incidences, --risk, --cdf", expected, " and ".join(given) or "none")
    if ("--risk" in given) != (horizon is not None):
        fail("--horizon", "the time of --risk, and only with it", "none" if horizon is None else f"{horizon:g}")
    whole = {"--curves", "--incidences"} & {*given}
    if horizons is not None and not whole:
        fail("--horizons", "times of --curves (the time of --risk is --horizon)", f"it beside {given[0]}")
    if steps and not whole:
        fail("--steps", "--curves", given[0])


def _covariates(
    table: "TableFile",
    covariates: str | None,
    used: tuple[str | None, ...],
    curves: str | None,
    incidences: dict[str, str],
) -> dict[str, Any]:
    """Return the columns that were named, or those that are neither outcome nor prediction, as arguments of `audit`."""
    from xcal.cli.table_file import curve_columns

    if covariates is not None:
        names = listed("--covariates", covariates, str, "columns") or []
        return {"covariates": {name: table.column(name, "--covariates") for name in names}}
    patterns = ([] if curves is None else [curves]) + list(incidences.values())
    predicted = [column for pattern in patterns for column in curve_columns(table, pattern).values()]
    rest = [name for name in table.names if name not in {*used, *predicted, *_of_predict(table)}]
    return {"X": table.frame[rest]} if rest else {}


def _of_predict(table: "TableFile") -> list[str]:
    """Name the columns of predictions in a table that `xcal predict` wrote, none in another."""
    from xcal.cli.training import OWN_CDF, QUANTILE, RANKED, SURVIVAL

    always = {*RANKED, OWN_CDF}
    if not always <= set(table.names):
        return []
    return [name for name in table.names if name in always or name.startswith((QUANTILE, SURVIVAL))]


def _filled(table: "TableFile", columns: dict[float, str]) -> dict[float, str]:
    """Leave out the last columns if they are empty throughout, with a note: curves that end there.

    `xcal predict` writes such columns for times after those that its model has seen.
    """
    kept = dict(columns)
    while len(kept) > 1 and table.frame[kept[max(kept)]].isna().all():
        ended = kept.pop(max(kept))
        typer.echo(f"note: column {ended!r} is empty: the curves are read up to {max(kept):g}", err=True)
    return kept


def _patterns(incidences: list[str] | None) -> dict[str, str]:
    """Return the patterns of the columns of each cause, by its name."""
    from xcal._checks import fail

    found = {}
    for one in incidences or []:
        name, sign, pattern = one.partition("=")
        if not (sign and name and pattern) or name in found:
            fail("--incidences", 'a cause with its columns, once for each cause, such as "death=d_*"', repr(one))
        found[name] = pattern
    return found


def _incidences(table: "TableFile", incidences: list[str] | None, steps: bool) -> dict[str, Any]:
    """Read the columns of the incidence of each cause as the arguments of `xcal.audit`."""
    import numpy as np

    from xcal._checks import fail
    from xcal.cli.table_file import curve_columns

    found: dict[str, Any] = {}
    times: list[float] = []
    for name, pattern in _patterns(incidences).items():
        columns = curve_columns(table, pattern, "--incidences")
        if found and list(columns) != times:
            fail(
                f"--incidences, {table.path}", f"the same times for every cause: {times}", f"{list(columns)} of {name}"
            )
        times = list(columns)
        found[name] = np.stack([table.shares(column, "--incidences") for column in columns.values()], axis=1)
    if not found:
        return {}
    return {"cif": found, "times": np.array(times), "interpolation": "previous" if steps else "linear"}


def _predictions(
    table: "TableFile", curves: str | None, risk: str | None, cdf: str | None, steps: bool
) -> dict[str, Any]:
    """Read the columns of predictions as the arguments of `xcal.audit`."""
    import numpy as np

    from xcal.cli.table_file import curve_columns
    from xcal.interop.predictions import ROUNDING

    if risk is not None:
        return {"risk": table.shares(risk, "--risk")}
    own = {} if cdf is None else {"cdf": table.shares(cdf, "--cdf")}
    if curves is None:
        return own
    columns = _filled(table, curve_columns(table, curves))
    survival = np.stack([table.shares(column, "--curves") for column in columns.values()], axis=1)
    rises = np.diff(survival, axis=1) > ROUNDING
    if rises.any():
        row, before = (int(place) for place in np.argwhere(rises)[0])
        left, right = list(columns.values())[before : before + 2]
        expected = "a survival curve, which never rises (for risks, write 1 - risk)"
        table.fail(right, expected, f"more than in column {left!r}", row)
    return {
        **own,
        "survival": survival,
        "times": np.array(list(columns)),
        "interpolation": "previous" if steps else "linear",
    }
