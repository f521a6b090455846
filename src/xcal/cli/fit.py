"""``xcal fit``: from a table in a file to a calibrated model, its frontier and its report."""

from pathlib import Path
from typing import Annotated

import typer

from xcal.cli import (
    Cause,
    Causes,
    Covariates,
    Decimal,
    Entry,
    EventValue,
    Landmarks,
    LastSeen,
    Lower,
    MinCell,
    Person,
    Separator,
    Site,
    Upper,
    as_settings,
    is_helper,
    listed,
    now_and_then,
)

File = Annotated[
    Path | None, typer.Argument(help="CSV (.csv, .tsv, also .gz) or parquet file with one row per patient.")
]
Time = Annotated[str | None, typer.Option(help="Column of the time of the event or of censoring, a number.")]
Event = Annotated[str | None, typer.Option(help="Column that says whether the event happened: 0/1 or true/false.")]
Out = Annotated[Path, typer.Option(help="Folder for the model and its reports.")]
Config = Annotated[Path | None, typer.Option(help="config.toml of a run, to run it again; other options change it.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the run in the folder --out.")]
Test = Annotated[Path | None, typer.Option(help="File of the rows to hold out, with the same columns.")]
Split = Annotated[str | None, typer.Option(help="Column that says train, test or validation.")]
Group = Annotated[
    str | None, typer.Option(help="Column whose rows stay on one side, the patient's number for instance.")
]
TestFraction = Annotated[float | None, typer.Option(help="Share of the rows to hold out, .25 by default.")]
Drop = Annotated[list[str] | None, typer.Option(help="Column not to learn from; may be given several times.")]
Dates = Annotated[str | None, typer.Option(help="How dates such as 1.2.2024 are read: day-first or month-first.")]
DropDuplicates = Annotated[
    bool, typer.Option("--drop-duplicates", help="Leave out rows that repeat another one: features, time and event.")
]
Keep = Annotated[
    list[str] | None, typer.Option(help="Column to learn from even if it looks like an id or like the outcome.")
]
By = Annotated[list[str] | None, typer.Option(help="Column of groups that the report judges apart.")]
Distribution = Annotated[
    str | None,
    typer.Option(help="mtlr (the default), categorical, logistic-hazard, lognormal, weibull or loglogistic."),
]
Lambdas = Annotated[str | None, typer.Option(help="Weights of the calibration penalty, with commas: 0,10,100.")]
Seeds = Annotated[int | None, typer.Option(help="Models for each lambda, 3 by default; they are averaged.")]
Trains = Annotated[
    str | None, typer.Option(help="when_needed: larger lambdas only if the smallest is off, the default; or always.")
]
Epochs = Annotated[int | None, typer.Option(help="Largest number of passes over the rows, 500 by default.")]
Horizons = Annotated[str | None, typer.Option(help="Times at which the report judges risks, with commas: 12,24,60.")]
Unit = Annotated[str | None, typer.Option("--time-unit", help='Unit of the times, such as "months".')]
Resamples = Annotated[int | None, typer.Option(help="Bootstrap resamples of the report; by default 1000 or fewer.")]
Seed = Annotated[int | None, typer.Option(help="Seed of split, training and resamples, 0 by default.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the summary as JSON, and nothing else, to the output.")]


def fit(
    file: File = None,
    time: Time = None,
    event: Event = None,
    out: Out = Path("run"),
    event_value: EventValue = None,
    cause: Cause = None,
    causes: Causes = None,
    entry: Entry = None,
    lower: Lower = None,
    upper: Upper = None,
    id: Person = None,
    config: Config = None,
    overwrite: Overwrite = False,
    test: Test = None,
    split: Split = None,
    group: Group = None,
    test_fraction: TestFraction = None,
    drop: Drop = None,
    keep: Keep = None,
    drop_duplicates: DropDuplicates = False,
    by: By = None,
    site: Site = None,
    covariates: Covariates = None,
    distribution: Distribution = None,
    lambdas: Lambdas = None,
    seeds: Seeds = None,
    path: Trains = None,
    epochs: Epochs = None,
    horizons: Horizons = None,
    landmarks: Landmarks = None,
    last_seen: LastSeen = None,
    time_unit: Unit = None,
    resamples: Resamples = None,
    min_cell: MinCell = None,
    seed: Seed = None,
    separator: Separator = None,
    decimal: Decimal = None,
    dates: Dates = None,
    as_json: AsJson = False,
) -> None:
    r"""Train a calibrated survival model on a table, and report on rows that it has not seen.

    Says what it understands of the columns, holds rows out, trains models,
    recalibrates or trains with the calibration penalty if rows show a need,
    and leaves in the folder --out: the model, the frontier, a validation
    report (audit.html), a summary and a config file.

    For example:
      xcal fit patients.csv --time months --event died --out run

    Several rows per patient, the event written as a word, a report by sex:
      xcal fit visits.parquet --time t --event status --event-value dead \
        --group patient --by sex --time-unit months --out run

    Events of several causes, and patients who came under observation late:
      xcal fit patients.csv --time years --cause status --causes recurrence,death \
        --entry seen_from --out run

    Events that are known to lie between two visits:
      xcal fit visits.csv --lower last_without --upper first_with --out run

    The same run again, to the same bits:
      xcal fit --config run/config.toml --out again

    On four processes, which train together:
      torchrun --nproc-per-node 4 --max-restarts 3 -m -- \
        xcal fit patients.csv --time months --event died --out run
    """
    import json

    from xcal.cli.fit_run import epochs_in_words, fit_run, take_part
    from xcal.cli.run_folder import SETTINGS, merged
    from xcal.validation.words import as_plain

    weights, times = listed("--lambdas", lambdas, float, "numbers"), listed("--horizons", horizons, float, "times")
    reached = listed("--landmarks", landmarks, float, "times")
    # Every option has the name of its setting, but the file.
    options = locals() | {
        "data": None if file is None else str(file.resolve()),
        "test": None if test is None else str(test.resolve()),
        "covariates": listed("--covariates", covariates, str, "columns"),
        "causes": listed("--causes", causes, str, "names"),
        "lambdas": None if weights is None else tuple(weights),
        "horizons": None if times is None else tuple(times),
        "landmarks": None if reached is None else tuple(reached),
        "drop_duplicates": drop_duplicates or None,
    }
    settings = merged(config, as_settings({name: options[name] for name in SETTINGS}))

    def say(text: str) -> None:
        # Machines read the output; people still see what happens.
        typer.echo(text, err=as_json)

    if is_helper():
        take_part(settings, out)
        return
    # A bar where one can be drawn; lines where the messages go to a file.
    summary = fit_run(settings, out, say=say, overwrite=overwrite, progress=now_and_then(epochs_in_words))
    if as_json:
        typer.echo(json.dumps(as_plain(summary), indent=2, ensure_ascii=False))
