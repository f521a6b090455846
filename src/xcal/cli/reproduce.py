"""``xcal reproduce``: train and measure what is missing of the paper's tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcal.cli.options import TABLES, Death, Epochs, Penalty, Results, Variant, by_death, listed

if TYPE_CHECKING:  # torch takes a second to import, and --help should not
    from xcal.experiments import Summary

Tables = Annotated[
    list[str],
    typer.Argument(help=f"One or more of {TABLES}, or paths of your own specs (.toml).", metavar="TABLE"),
]
Models = Annotated[
    str | None,
    typer.Option(
        "--models", "--rows", help="Only these models (rows of the paper's table), with commas: categorical-ni,mtlr-i"
    ),
]
Lambdas = Annotated[str | None, typer.Option(help="Only these lambdas of the table, with commas: 0,10,100")]
Seeds = Annotated[str | None, typer.Option(help="These seeds instead of the table's, with commas: 0,1,2")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda. By default the GPU if there is one.")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data files. By default $XCAL_DATA. For mimic-los, the folder that xcal mimic prepare has "
        "made; the records of its demo have a folder of their own."
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        help='local, or ray: jobs run as tasks of a Ray cluster, this machine or RAY_ADDRESS (pip install "xcal[ray]").'
    ),
]
Processes = Annotated[
    int,
    typer.Option(
        min=1,
        help="Train so many jobs at a time, of all tables, in processes that share the GPU or this machine's cores.",
    ),
]


def reproduce(
    tables: Tables,
    models: Models = None,
    lambdas: Lambdas = None,
    seeds: Seeds = None,
    variant: Variant = None,
    penalty: Penalty = None,
    epochs: Epochs = None,
    device: Device = None,
    results: Results = Path("results"),
    data: Data = None,
    death: Death = None,
    engine: Engine = "local",
    processes: Processes = 1,
) -> None:
    """Train and measure what is missing of the paper's tables.

    A run is one model with one lambda and one seed. Runs are trained in
    jobs, and the records of a job are written when it is finished. You can
    stop the command at any time: run it again to resume. If one record of
    a job is missing, the whole job is trained again, and only the missing
    record is written.

    A first look, in a minute or two on a laptop:
      xcal reproduce gamma-censored --models mtlr-i --seeds 0 --epochs 2
      xcal compare gamma-censored --epochs 2

    Whole tables, on a GPU; then with our penalty; then as corrected:
      xcal reproduce gamma-censored gamma-uncensored
      xcal reproduce gamma-censored gamma-uncensored --penalty ours
      xcal reproduce gamma-censored --variant corrected

    A trial that the table names: the epochs of the paper's appendix:
      xcal reproduce gamma-censored --epochs appendix

    The length of stay, from a folder of xcal mimic prepare:
      xcal reproduce mimic-los --data los
      xcal reproduce mimic-los --data los-censored --death censor

    Six jobs at a time, on one GPU or on the cores of this machine:
      xcal reproduce gamma-censored gamma-uncensored --processes 6

    On all machines of a Ray cluster, or all cores of this one:
      xcal reproduce gamma-censored --engine ray
    """
    from xcal.experiments import load_spec
    from xcal.experiments.runner import Manner, reproduce_tables
    from xcal.experiments.table_runs import Request

    chosen: dict[str, Any] = {
        "models": listed("models", models, str, "names"),
        "lambdas": listed("lambdas", lambdas, float, "numbers"),
        "seeds": listed("seeds", seeds, int, "whole numbers"),
    }
    tables = [by_death(table, death) for table in tables]
    for table in tables:  # a mistake in the last table should show before the first one is trained
        spec = load_spec(table)
        spec.narrowed(**chosen, epochs=epochs)
        spec.chosen_variant(variant, penalty)
    requests = [
        Request(
            table,
            **chosen,
            variant=variant,  # type: ignore[arg-type]  # checked there, with one message for both callers
            penalty=penalty,  # type: ignore[arg-type]  # likewise
            epochs=epochs,
            results=results,
            data_dir=data,
        )
        for table in tables
    ]
    manner = Manner(device, engine=engine, processes=processes)  # type: ignore[arg-type]  # likewise
    interrupted = False
    for summary in reproduce_tables(requests, manner):
        _print_summary(summary)
        interrupted |= summary.interrupted
    if interrupted:
        raise typer.Exit(130)


def _print_summary(summary: "Summary") -> None:
    for line in summary.corrupt:
        typer.secho(f"corrupt record: {line}", fg="yellow", err=True)
    if summary.other_data:
        typer.secho(f"{summary.other_data} records were made on other data and were replaced", fg="yellow", err=True)
    beside = f" ({summary.trained_beside} of them were trained again, in one job with a missing run)"
    typer.echo(
        f"{summary.path}: {summary.trained} runs trained in {summary.seconds:.0f} s, "
        f"{summary.kept} were there already{beside if summary.trained_beside else ''}"
    )
    for sentence in summary.elsewhere:
        typer.secho(f"left out: {sentence}", fg="yellow", err=True)
    if summary.interrupted:
        typer.secho(
            f"stopped: {summary.missing} runs are missing; run the same command again to resume", fg="yellow", err=True
        )
