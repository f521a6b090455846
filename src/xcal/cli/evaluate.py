"""``xcal predict``, ``evaluate`` and ``report``: the model of a run on new rows, or on those that it was held from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcal.cli import (
    By,
    Cause,
    Covariates,
    Decimal,
    Entry,
    Horizons,
    Landmarks,
    LastSeen,
    Lower,
    MinCell,
    Person,
    Separator,
    Site,
    Upper,
    as_settings,
    listed,
)

if TYPE_CHECKING:
    from xcal.cli.run_folder import FitSettings
    from xcal.outofcore import FolderEvaluation
    from xcal.validation.result import AuditResult


Run = Annotated[Path, typer.Argument(help="Folder of a run of xcal fit.")]
File = Annotated[Path, typer.Argument(help="CSV or parquet file with the columns that the model was trained on.")]
TableOut = Annotated[Path, typer.Option(help="Table to write: .csv, .csv.gz, .tsv or .parquet.")]
Times = Annotated[
    str | None,
    typer.Option(help="Times of the survival probabilities, with commas: 12,24,60. By default those of the report."),
]
Quantiles = Annotated[str | None, typer.Option(help="Shares of the quantiles, with commas: 0.25,0.75.")]
After = Annotated[
    str | None,
    typer.Option(help="Time that the patients have come to without the event, or the column with the time of each."),
]
Copy = Annotated[list[str] | None, typer.Option(help="Column to copy to the new table, an id for instance.")]
Extrapolate = Annotated[
    bool, typer.Option("--extrapolate", help="Also say something about times after the last one of the training rows.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file --out.")]


def predict(
    run: Run,
    file: File,
    out: TableOut,
    times: Times = None,
    quantiles: Quantiles = None,
    after: After = None,
    copy: Copy = None,
    extrapolate: Extrapolate = False,
    overwrite: Overwrite = False,
    separator: Separator = None,
    decimal: Decimal = None,
) -> None:
    r"""Predict with the model of a run, one line for each row of the file.

    The table has the columns risk (higher: sooner; it puts rows in order,
    and is no probability), median, s_12 and so on (the probability of no
    event until time 12), q_0.25 and so on (the time by which a quarter has
    had the event). If the file has the time column,
    time, event and cdf, the probability of an event by that time, come too:
    xcal audit can read the table. Of a run with --id, cdf is that of an
    event between the start and the end of the row. With --after all times still count from
    the start; cdf is then left out.

    For example:
      xcal predict run new.csv --out p.csv --times 12,24,60

    For patients who have come to month 24, the months that follow:
      xcal predict run new.csv --out p.csv --after 24 --times 36,84

    With quartiles, and the patient's number beside them:
      xcal predict run new.csv --out p.csv --quantiles 0.25,0.75 --copy patient
    """
    from dataclasses import replace

    from xcal._checks import as_number
    from xcal.cli.fit_run import notes
    from xcal.cli.run_folder import read_run, read_summary
    from xcal.cli.training import check_target, collected_warnings, predicted, read_rows, write_table

    model, settings = read_run(run)
    asked, shares = listed("--times", times, float, "times"), listed("--quantiles", quantiles, float, "shares")
    for time in asked or []:
        as_number("--times", time, at_least=0)
    for share in shares or []:
        as_number("--quantiles", share, above=0, below=1)
    check_target(out, file, overwrite=overwrite)
    settings = replace(settings, **as_settings({"separator": separator, "decimal": decimal}))
    table = read_rows(file, settings)
    with collected_warnings() as told:
        frame = predicted(
            model,
            table,
            settings,
            times=read_summary(run)["horizons"] if asked is None else asked,
            quantiles=shares or [],
            after=after,
            copied=copy or [],
            extrapolate=extrapolate,
        )
    for line in notes([*table.notes, *told]):
        typer.echo(line, err=True)
    write_table(frame, out)
    typer.echo(f"wrote {out}: {len(frame):,} rows with {', '.join(frame.columns)}", err=True)


RunOrFolder = Annotated[Path, typer.Argument(help="Folder of a run of xcal fit, or a folder of predictions (parquet).")]
MaybeRows = Annotated[
    Path | None,
    typer.Argument(
        help="CSV or parquet file with the columns of the run, time and event included; none for predictions."
    ),
]
MetricsOut = Annotated[Path | None, typer.Option(help="Of predictions: JSON file to write.")]
Processes = Annotated[int, typer.Option(min=1, help="Of predictions: processes of this machine.")]
Engine = Annotated[str, typer.Option(help="Of predictions: local, or ray (a cluster by RAY_ADDRESS).")]
ExactRows = Annotated[int, typer.Option(min=0, help="Of predictions: rows up to which everything is exact.")]
DCalibrationMethod = Annotated[str, typer.Option(help="Of predictions: uniform or km, how censored rows count.")]
ICIBound = Annotated[
    bool, typer.Option("--ici-bound", help="Of predictions: beyond --exact-rows read the rows once more, to bound ICI.")
]
MaybeFile = Annotated[
    Path | None, typer.Argument(help="CSV or parquet file of new rows; by default the held-out rows of the run.")
]
Out = Annotated[Path | None, typer.Option(help="Page to write; by default audit.html in the folder of the run.")]
Time = Annotated[str | None, typer.Option(help="Column of the time, if it has another name than in the run.")]
Event = Annotated[str | None, typer.Option(help="Column of the event, if it has another name than in the run.")]
EventValue = Annotated[str | None, typer.Option(help="What the event column says if it happened.")]
Resamples = Annotated[int | None, typer.Option(min=0, help="Bootstrap resamples; by default those of the run.")]
Unit = Annotated[str | None, typer.Option("--time-unit", help="Unit of the times; by default that of the run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print every number as JSON.")]


def evaluate(
    run: RunOrFolder,
    file: MaybeRows = None,
    horizons: Horizons = None,
    by: By = None,
    site: Site = None,
    landmarks: Landmarks = None,
    last_seen: LastSeen = None,
    time: Time = None,
    event: Event = None,
    event_value: EventValue = None,
    cause: Cause = None,
    entry: Entry = None,
    lower: Lower = None,
    upper: Upper = None,
    id: Person = None,
    resamples: Resamples = None,
    covariates: Covariates = None,
    time_unit: Unit = None,
    min_cell: MinCell = None,
    separator: Separator = None,
    decimal: Decimal = None,
    as_json: AsJson = False,
    out: MetricsOut = None,
    processes: Processes = 1,
    engine: Engine = "local",
    exact_rows: ExactRows = 1_000_000,
    d_calibration: DCalibrationMethod = "uniform",
    ici_bound: ICIBound = False,
) -> None:
    """Measure the model of a run on new rows: calibration, discrimination, errors, with intervals.

    For example:
      xcal evaluate run new.csv
      xcal evaluate run new.csv --horizons 12,60 --json

    Rows that came under observation late, at the time of the column t0:
      xcal evaluate run new.csv --entry t0

    Without a file: measure predictions in a folder of parquet files, of
    any size, with the columns time, event and what a model says: cdf (F at
    the row's observed time), risk (larger: sooner), nll, S_12 and so on
    (survival at time 12), weight (how often a row counts). Run the same
    command again to resume.

    For example:
      xcal evaluate predictions --out metrics.json --processes 4
      xcal evaluate predictions --out metrics.json --engine ray
    """
    if file is None:
        of_a_file = {"--by": by, "--event-value": event_value, "--resamples": resamples, "--covariates": covariates}
        of_a_file |= {"--time-unit": time_unit, "--min-cell": min_cell, "--separator": separator, "--decimal": decimal}
        of_a_file |= {"--entry": entry, "--lower": lower, "--upper": upper, "--cause": cause, "--id": id}
        of_a_file |= {"--site": site, "--landmarks": landmarks, "--last-seen": last_seen}
        if given := list(as_settings(of_a_file)):
            raise ValueError(f"{given[0]}: expected with a run and a file, got a folder alone")
        found = _folder(run, out, horizons, (time, event), (engine, processes, exact_rows, d_calibration, ici_bound))
        typer.echo(found.to_json() if as_json else repr(found))
        return
    if out is not None:
        raise ValueError(f"--out: expected with a folder of predictions, got it with the file {file} (use --json)")
    from xcal.validation.words import to_text

    result = _audited(run, file, locals())
    typer.echo(result.to_json() if as_json else to_text(result, next_steps=False))


def _folder(
    folder: Path,
    out: Path | None,
    horizons: str | None,
    columns: tuple[str | None, str | None],
    how: tuple[str, int, int, str, bool],
) -> "FolderEvaluation":
    """Evaluate a folder of predictions."""
    from xcal.cli.run_folder import CONFIG
    from xcal.outofcore import EvaluationSettings, evaluate_folder

    if (folder / CONFIG).is_file():
        raise ValueError(f"{folder} is a run of xcal fit: expected a file of new rows after it, got none")
    if folder.is_file() and folder.suffix != ".parquet":
        expected = "the folder of a run, or one of predictions in parquet files (for a table: xcal audit)"
        raise ValueError(f"{folder}: expected {expected}, got a file")
    if out is None:
        raise ValueError("--out: expected a JSON file to write, such as metrics.json, got none")
    times = listed("--horizons", horizons, float, "times")
    engine, processes, exact_rows, method, ici_bound = how
    settings = EvaluationSettings(
        time=columns[0] or "time",
        event=columns[1] or "event",
        horizons=None if times is None else tuple(sorted(set(times))),
        exact_rows=exact_rows,
        ici_bound=ici_bound,
        d_calibration_method=method,  # type: ignore[arg-type]  # checked there
        engine=engine,  # type: ignore[arg-type]  # likewise
        processes=processes,
    )
    try:
        found = evaluate_folder(folder, out, settings, say=lambda words: typer.echo(words, err=True))
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("what is finished is kept, run the same command again to resume") from interrupt
    typer.echo(f"wrote {out}", err=True)
    return found


def report(
    run: Run,
    file: MaybeFile = None,
    out: Out = None,
    horizons: Horizons = None,
    by: By = None,
    site: Site = None,
    landmarks: Landmarks = None,
    last_seen: LastSeen = None,
    time: Time = None,
    event: Event = None,
    event_value: EventValue = None,
    cause: Cause = None,
    entry: Entry = None,
    lower: Lower = None,
    upper: Upper = None,
    id: Person = None,
    resamples: Resamples = None,
    covariates: Covariates = None,
    time_unit: Unit = None,
    min_cell: MinCell = None,
    separator: Separator = None,
    decimal: Decimal = None,
) -> None:
    """Write the validation report of a run again, or that of its model on new rows.

    For example, with other times and by sex:
      xcal report run --horizons 12,60 --by sex

    On new rows, and on rows whose events lie between two visits:
      xcal report run new.csv --out new.html
      xcal report run seen.csv --lower last_without --upper first_with --out seen.html
    """
    from xcal._checks import fail
    from xcal._files import check_target
    from xcal.cli.run_folder import AUDIT_NUMBERS, AUDIT_PAGE

    if file is not None and out is None:
        fail("--out", "a page for the report on another file", "none: the folder of the run keeps its own")
    target = run / AUDIT_PAGE if out is None else out
    if out is not None:
        check_target(target)
    result = _audited(run, file, locals())
    result.report(target)
    if out is None:
        result.to_json(run / AUDIT_NUMBERS)
    typer.echo(result.verdict.headline)
    typer.echo(f"wrote {target}", err=True)


# Options of both commands that take the place of a setting of the run.
_ASKED = (
    *("time", "event", "event_value", "cause", "id", "separator", "decimal"),
    *("by", "site", "last_seen", "resamples", "time_unit", "min_cell"),
)
# Columns of a new file that tell how its rows came under observation.
_BESIDE = ("entry", "lower", "upper")


def _audited(run: Path, file: Path | None, options: dict[str, Any]) -> "AuditResult":
    """Audit the model of a run, on a file or on the rows that it was held from."""
    from dataclasses import replace

    from xcal.cli.fit_run import notes
    from xcal.cli.run_folder import read_run
    from xcal.cli.training import audit_of, collected_warnings

    model, settings = read_run(run)
    asked = {name: options[name] for name in _ASKED}
    for name in ("horizons", "landmarks"):
        asked[name] = listed(f"--{name}", options[name], float, "times")
    asked["covariates"] = listed("--covariates", options["covariates"], str, "columns")
    beside = {name: options[name] for name in _BESIDE}
    _check_beside(file, beside)
    settings = replace(settings, **as_settings(asked))
    with collected_warnings() as told:
        part, training = _rows(run, file, model, settings, beside, options["site"])
        result = audit_of(model, part, settings, None, training=training)
    for line in notes(told):
        typer.echo(line, err=True)
    return result


def _check_beside(file: Path | None, beside: dict[str, str | None]) -> None:
    """Check that columns of entry and of intervals were named for a file, both ends if any."""
    from xcal._checks import fail

    named = [f"--{name}" for name, column in beside.items() if column is not None]
    if named and file is None:
        fail(named[0], "it with a file of new rows", "the rows of the run alone")
    if (beside["lower"] is None) != (beside["upper"] is None):
        fail("--lower, --upper", "both ends of every interval", named[-1])


def _rows(
    run: Path,
    file: Path | None,
    model: Any,
    settings: "FitSettings",
    beside: dict[str, str | None],
    site: str | None,
) -> tuple[Any, Any]:
    """Rows to judge by, and those trained on where they are at hand; a site that was asked for must be there."""
    import warnings

    from xcal.cli.run_folder import CONFIG, merged
    from xcal.cli.training import read_part, read_parts, read_rows

    if file is not None:
        table = read_rows(file, settings)
        for note in table.notes:
            warnings.warn(note, stacklevel=2)
        if site is not None:
            table.column(site, "--site")
        return read_part(table, model, settings, beside), None
    # The files must still be those of the run: other rows would be held out of another model.
    merged(run / CONFIG, {})
    parts = read_parts(settings)
    return parts.test, parts.train
