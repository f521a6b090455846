"""``xcal evaluate`` and ``xcal report``: the model of a run on new rows, or on those that it was held from."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcal.cli.options import listed

if TYPE_CHECKING:  # torch takes seconds to import, and --help should not
    from xcal.cli.workflow.settings import FitSettings
    from xcal.validation import AuditResult

Run = Annotated[Path, typer.Argument(help="Folder of a run of xcal fit.")]
File = Annotated[Path, typer.Argument(help="CSV or parquet file with the columns of the run, time and event included.")]
MaybeFile = Annotated[
    Path | None, typer.Argument(help="CSV or parquet file of new rows; by default the held-out rows of the run.")
]
Out = Annotated[Path | None, typer.Option(help="Page to write; by default audit.html in the folder of the run.")]
Horizons = Annotated[str | None, typer.Option(help="Times at which risks are judged, with commas: 12,24,60.")]
By = Annotated[list[str] | None, typer.Option(help="Column of groups to judge apart; may be given several times.")]
Time = Annotated[str | None, typer.Option(help="Column of the time, if it has another name than in the run.")]
Event = Annotated[str | None, typer.Option(help="Column of the event, if it has another name than in the run.")]
EventValue = Annotated[str | None, typer.Option(help="What the event column says if it happened.")]
Resamples = Annotated[int | None, typer.Option(min=0, help="Bootstrap resamples; by default those of the run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print every number as JSON.")]


def evaluate(
    run: Run,
    file: File,
    horizons: Horizons = None,
    by: By = None,
    time: Time = None,
    event: Event = None,
    event_value: EventValue = None,
    resamples: Resamples = None,
    as_json: AsJson = False,
) -> None:
    """Measure the model of a run on new rows: calibration, discrimination, errors, with intervals.

    For example:
      xcal evaluate run new.csv
      xcal evaluate run new.csv --horizons 12,60 --json
    """
    result = _audited(run, file, horizons, by, (time, event, event_value), resamples)
    typer.echo(result.to_json() if as_json else repr(result))


def report(
    run: Run,
    file: MaybeFile = None,
    out: Out = None,
    horizons: Horizons = None,
    by: By = None,
    time: Time = None,
    event: Event = None,
    event_value: EventValue = None,
    resamples: Resamples = None,
) -> None:
    """Write the validation report of a run again, or that of its model on new rows.

    For example, with other times and by sex:
      xcal report run --horizons 12,60 --by sex

    On new rows:
      xcal report run new.csv --out new.html
    """
    from xcal._checks import fail
    from xcal._files import check_target
    from xcal.cli.workflow.run_folder import AUDIT_NUMBERS, AUDIT_PAGE

    if file is not None and out is None:
        fail("--out", "a page for the report on another file", "none: the folder of the run keeps its own")
    target = run / AUDIT_PAGE if out is None else out
    if out is not None:
        check_target(target)
    result = _audited(run, file, horizons, by, (time, event, event_value), resamples)
    result.report(target)
    if out is None:
        result.to_json(run / AUDIT_NUMBERS)
    typer.echo(result.verdict.headline)
    typer.echo(f"wrote {target}", err=True)


def _audited(
    run: Path,
    file: Path | None,
    horizons: str | None,
    by: list[str] | None,
    columns: tuple[str | None, str | None, str | None],
    resamples: int | None,
) -> "AuditResult":
    """Audit the model of a run, on a file or on the rows that it was held from."""
    from xcal.cli.workflow.run_folder import read_run
    from xcal.cli.workflow.training import audit_of, collected_warnings
    from xcal.cli.workflow.words import notes

    model, settings = read_run(run)
    times = listed("--horizons", horizons, float, "times")
    settings = _changed(settings, times, by, columns, resamples)
    with collected_warnings() as told:
        part, training = _rows(run, file, model, settings)
        result = audit_of(model, part, settings, None, training=training)
    for line in notes(told):
        typer.echo(line, err=True)
    return result


def _changed(
    settings: "FitSettings",
    times: list[float] | None,
    by: list[str] | None,
    columns: tuple[str | None, str | None, str | None],
    resamples: int | None,
) -> "FitSettings":
    from dataclasses import replace

    given: dict[str, Any] = {
        "horizons": None if times is None else tuple(times),
        "by": tuple(by) if by else None,
        "time": columns[0],
        "event": columns[1],
        "event_value": columns[2],
        "resamples": resamples,
    }
    return replace(settings, **{name: value for name, value in given.items() if value is not None})


def _rows(run: Path, file: Path | None, model: Any, settings: "FitSettings") -> tuple[Any, Any]:
    """Rows to judge by, and those trained on where they are at hand."""
    from xcal.cli.table_file import read_table_file
    from xcal.cli.workflow.parts import read_part, read_parts
    from xcal.cli.workflow.run_folder import CONFIG
    from xcal.cli.workflow.settings import merged

    if file is not None:
        return read_part(read_table_file(file, separator=settings.separator), model, settings), None
    # The files must still be those of the run: other rows would be held out of another model.
    merged(run / CONFIG, {})
    parts = read_parts(settings)
    return parts.test, parts.train
