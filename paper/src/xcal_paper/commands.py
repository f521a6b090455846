"""The commands ``xcal reproduce``, ``xcal compare`` and ``xcal results-page``.

Nothing heavy is imported here, so that ``--help`` answers at once.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcal.cli import listed
from xcal_paper.mimic3.command import mimic

if TYPE_CHECKING:
    from xcal_paper.comparison import Comparison
    from xcal_paper.runner import Summary

# Written out, and held to the specs by a test: to read the specs takes a second, and --help should not.
TABLES = (
    "gamma-censored, gamma-uncensored, mnist-censored, mnist-uncensored, mnist-censored-code, mnist-uncensored-code, "
    "mnist-dense, glioma, mimic-los, mimic-los-death-censored, gamma-choice, jensen-slack"
)

Variant = Annotated[
    str | None,
    typer.Option(
        help="as-published: what made the paper's values; corrected: what the paper's equations say. By default that "
        "of the table."
    ),
]
Penalty = Annotated[
    str | None,
    typer.Option(
        help="paper; ours; annealed (ours with a temperature that falls during training); ramped (it falls in the "
        "first half, while the weight rises). By default paper with as-published, and ours with corrected."
    ),
]
Epochs = Annotated[
    str | None,
    typer.Option(
        help="Another number of epochs than the table's, or the name of one of its trials, as in --epochs appendix. A "
        "trial has its own file of records."
    ),
]
Death = Annotated[
    str | None,
    typer.Option(
        help="For mimic-los: event (as in the paper) or censor, a death in the unit as a censored stay. mimic-los with "
        "censor is the table mimic-los-death-censored."
    ),
]
# Where the repository keeps its records.
RECORDS = Path("paper/results")
Results = Annotated[
    Path, typer.Option(help="Folder of the records. By default that of the repository, seen from its root.")
]

Tables = Annotated[
    list[str],
    typer.Argument(help=f"One or more of {TABLES}, or paths of your own specs (.toml).", metavar="TABLE"),
]
Models = Annotated[
    str | None,
    typer.Option(help="Only these models (rows of the paper's table), with commas: categorical-ni,mtlr-i"),
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


def by_death(table: str, death: str | None) -> str:
    """Return the table for a treatment of deaths; other tables than mimic-los have none."""
    tables = {"event": "mimic-los", "censor": "mimic-los-death-censored"}
    if death is None:
        return table
    if death not in tables:
        raise ValueError(f"death: expected event or censor, got {death!r}")
    if table not in tables.values():
        raise ValueError(f"death: expected nothing for {table}, which has no deaths in the unit, got {death!r}")
    return tables[death]


def reproduce(
    tables: Tables,
    models: Models = None,
    lambdas: Lambdas = None,
    seeds: Seeds = None,
    variant: Variant = None,
    penalty: Penalty = None,
    epochs: Epochs = None,
    device: Device = None,
    results: Results = RECORDS,
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
    from xcal_paper.runner import Manner, Request, reproduce_tables
    from xcal_paper.spec import load_spec

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


# ----------------------------------------------------------------------------------------------------------------------
# ``xcal compare``: the records of a table beside the paper's values.


Table = Annotated[str, typer.Argument(help=f"One of {TABLES}, or the path of your own spec (.toml).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
EqualDcal = Annotated[
    bool,
    typer.Option(
        "--equal-dcal",
        help="Compare our penalty (or the one that --penalty names) with the paper's penalty (or the one that "
        "--against names) at equal D-cal.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        help="With --equal-dcal: the penalty to compare with, paper, ours, annealed or ramped. By default paper."
    ),
]
Markdown = Annotated[Path | None, typer.Option(help="Write the table to this file as Markdown.")]
Csv = Annotated[Path | None, typer.Option(help="Write the table to this file as CSV, one line per cell.")]
Picture = Annotated[Path | None, typer.Option(help="Draw the frontier of every model to this file (png, svg or pdf).")]
Part = Annotated[
    str,
    typer.Option(help="For mimic-los: demo, records of the open demo; other, of other data of the shape of MIMIC-III."),
]
Of = Annotated[str, typer.Option(help="What the picture shows on its vertical axis: concordance, nll or dcal_within.")]


def compare(
    table: Table,
    variant: Variant = None,
    penalty: Penalty = None,
    epochs: Epochs = None,
    results: Results = RECORDS,
    as_json: AsJson = False,
    equal_dcal: EqualDcal = False,
    against: Against = None,
    markdown: Markdown = None,
    csv: Csv = None,
    picture: Picture = None,
    of: Of = "concordance",
    death: Death = None,
    part: Part = "",
) -> None:
    """Compare the records of a table with the paper's values.

    A cell of the table is matched, better or worse. An NLL is matched
    within .05 or 3 of our standard deviations, a concordance within .02, a
    D-cal within a factor of 2 or within 1e-4. An NLL whose standard
    deviation exceeds half the paper's value is not settled and does not
    count. The score is the share of cells that are matched or better.
    A picture shows every penalty that has records, unless --penalty is
    given.

    For example:
      xcal compare gamma-censored
      xcal compare gamma-censored --json
      xcal compare gamma-censored --markdown gamma.md --csv gamma.csv
      xcal compare gamma-censored --picture gamma.png
      xcal compare gamma-censored --picture within.png --of dcal_within
      xcal compare gamma-censored --equal-dcal
      xcal compare mnist-dense --equal-dcal --penalty annealed
      xcal compare mnist-dense --equal-dcal --penalty ramped --against ours
      xcal compare gamma-uncensored --epochs appendix
      xcal compare mimic-los --part demo --epochs 20
    """
    from xcal_paper import report
    from xcal_paper.comparison import compare as compare_with_paper

    table = by_death(table, death)
    if equal_dcal and part:
        raise ValueError(
            f"part: expected nothing with --equal-dcal, which compares penalties on the paper's data, got {part!r}"
        )
    if against is not None and not equal_dcal:
        raise ValueError(f"--against: expected with --equal-dcal, which compares two penalties, got {against!r} alone")
    found = compare_with_paper(table, variant=variant, penalty=penalty, epochs=epochs, results=results, part=part)
    for line in found.corrupt:
        typer.secho(f"corrupt record: {line}", fg="yellow", err=True)
    _check_records(found, epochs, results)
    _write_files(found, markdown, csv)
    if picture is not None:
        report.draw_frontier(
            table, picture, of=of, variant=variant, penalty=penalty, epochs=epochs, results=results, part=part
        )
        typer.echo(f"wrote {picture}", err=True)
    if equal_dcal:
        _print_penalties(table, found, (penalty or "ours", against or "paper"), epochs, results, as_json=as_json)
    elif as_json:
        typer.echo(report.as_json(found))
    elif markdown is None and csv is None and picture is None:
        typer.echo(report.markdown(found))


def _write_files(found: "Comparison", markdown: Path | None, csv: Path | None) -> None:
    from xcal._files import write_whole
    from xcal_paper import report

    for path, make in ((markdown, report.markdown), (csv, report.as_csv)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, make(found).encode())
            typer.echo(f"wrote {path}", err=True)


def _print_penalties(
    table: str, found: "Comparison", both: tuple[str, str], epochs: str | None, results: Path, *, as_json: bool
) -> None:
    """Print how the first of two penalties compares with the second."""
    from xcal_paper import report
    from xcal_paper.comparison import compare as compare_with_paper
    from xcal_paper.comparison import compare_penalties

    penalty, against = both
    penalties = compare_penalties(
        table, variant=found.variant, penalty=penalty, against=against, epochs=epochs, results=results
    )
    for needed in both:
        records = compare_with_paper(table, variant=found.variant, penalty=needed, epochs=epochs, results=results)
        _check_records(records, epochs, results)
    typer.echo(report.penalties_as_json(penalties) if as_json else report.penalties_as_text(penalties))


def _check_records(found: "Comparison", epochs: str | None, results: Path) -> None:
    """Without records, say which command makes them and which others there are."""
    if found.records:
        return
    table = found.spec.table
    trials = sorted((results / table / found.part / "trial").glob("*.jsonl"))
    asked = f"{table}, {found.variant}, penalty {found.penalty}" + ("" if epochs is None else f", {epochs} epochs")
    trial = "" if epochs is None else f" --epochs {epochs}"
    hint = f"xcal reproduce {table} --variant {found.variant} --penalty {found.penalty}{trial} makes them"
    if trials and epochs is None:
        hint += f"; {trials[0].parent} holds trials with other epochs, which --epochs shows"
    demo = sorted((results / table / "demo").rglob("*.jsonl"))
    if demo and not found.part:
        hint += f"; {demo[0].parent} holds records of the demo, which --part demo shows"
    raise ValueError(f"results: expected records of {asked} in {results}, got none ({hint})")


# ----------------------------------------------------------------------------------------------------------------------
# ``xcal results-page``: tables and pictures of every record in a folder.


def results_page(results: Results = RECORDS) -> None:
    """Write tables and pictures of all records in a results folder, and a README.md that lists them.

    For example:
      xcal results-page --results results
    """
    from xcal_paper.report import write_pages

    for path in write_pages(results):
        typer.echo(path)


_PANEL = "The X-CAL paper"


def add_commands(app: typer.Typer, with_a_word: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Add the commands of this package to those of xcal; the entry point in the group ``xcal.commands``.

    Parameters
    ----------
    app
        The application.
    with_a_word
        Wraps a command, so that it says that it was interrupted.
    """
    for command in (reproduce, compare, results_page):
        app.command(command.__name__.replace("_", "-"), rich_help_panel=_PANEL)(with_a_word(command))
    app.add_typer(mimic, name="mimic", rich_help_panel=_PANEL)
