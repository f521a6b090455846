"""``xcal compare``: the records of a table beside the paper's values."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xcal.cli.options import TABLES, Death, Epochs, Penalty, Results, Variant, by_death

if TYPE_CHECKING:  # torch takes a second to import, and --help should not
    from xcal.experiments import Comparison

Table = Annotated[str, typer.Argument(help=f"One of {TABLES}, or the path of your own spec (.toml).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
EqualDcal = Annotated[
    bool,
    typer.Option(
        "--equal-dcal",
        "--headline",
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
    results: Results = Path("results"),
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
    from xcal import report
    from xcal.experiments import compare as compare_with_paper

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
    from xcal import report
    from xcal._files import write_whole

    for path, make in ((markdown, report.markdown), (csv, report.as_csv)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, make(found).encode())
            typer.echo(f"wrote {path}", err=True)


def _print_penalties(
    table: str, found: "Comparison", both: tuple[str, str], epochs: str | None, results: Path, *, as_json: bool
) -> None:
    """Print how the first of two penalties compares with the second."""
    from xcal import report
    from xcal.experiments import compare as compare_with_paper
    from xcal.experiments import compare_penalties

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
