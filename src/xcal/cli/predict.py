"""``xcal predict``: predictions of a run's model for the rows of a new file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from xcal.cli.options import Decimal, Separator, listed

Run = Annotated[Path, typer.Argument(help="Folder of a run of xcal fit.")]
File = Annotated[Path, typer.Argument(help="CSV or parquet file with the columns that the model was trained on.")]
Out = Annotated[Path, typer.Option(help="Table to write: .csv, .csv.gz, .tsv or .parquet.")]
Times = Annotated[
    str | None,
    typer.Option(help="Times of the survival probabilities, with commas: 12,24,60. By default those of the report."),
]
Quantiles = Annotated[str | None, typer.Option(help="Shares of the quantiles, with commas: 0.25,0.75.")]
Copy = Annotated[list[str] | None, typer.Option(help="Column to copy to the new table, an id for instance.")]
Extrapolate = Annotated[
    bool, typer.Option("--extrapolate", help="Also say something about times after the last one of the training rows.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file --out.")]


def predict(
    run: Run,
    file: File,
    out: Out,
    times: Times = None,
    quantiles: Quantiles = None,
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
    xcal audit can read the table.

    For example:
      xcal predict run new.csv --out p.csv --times 12,24,60

    With quartiles, and the patient's number beside them:
      xcal predict run new.csv --out p.csv --quantiles 0.25,0.75 --copy patient
    """
    from dataclasses import replace

    from xcal._checks import as_number
    from xcal.cli.workflow.parts import read_rows
    from xcal.cli.workflow.predictions import check_target, default_times, predicted, write_table
    from xcal.cli.workflow.run_folder import read_run, read_summary
    from xcal.cli.workflow.training import collected_warnings
    from xcal.cli.workflow.words import notes

    model, settings = read_run(run)
    asked, shares = listed("--times", times, float, "times"), listed("--quantiles", quantiles, float, "shares")
    for time in asked or []:
        as_number("--times", time, at_least=0)
    for share in shares or []:
        as_number("--quantiles", share, above=0, below=1)
    check_target(out, file, overwrite=overwrite)
    given: dict[str, Any] = {"separator": separator, "decimal": decimal}
    settings = replace(settings, **{name: mark for name, mark in given.items() if mark is not None})
    table = read_rows(file, settings)
    with collected_warnings() as told:
        frame = predicted(
            model,
            table,
            settings,
            times=default_times(read_summary(run)) if asked is None else asked,
            quantiles=shares or [],
            copied=copy or [],
            extrapolate=extrapolate,
        )
    for line in notes([*table.notes, *told]):
        typer.echo(line, err=True)
    write_table(frame, out)
    typer.echo(f"wrote {out}: {len(frame):,} rows with {', '.join(frame.columns)}", err=True)
