"""``xcal reproduce`` and ``xcal compare``: the paper's tables, run again and put beside the paper."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:  # torch takes a second to import, and --help should not
    from xcal.experiments.runner import Summary

_TABLES = (
    "gamma-censored, gamma-uncensored, mnist-censored, mnist-uncensored, mnist-censored-code, mnist-uncensored-code, "
    "mnist-dense, glioma, gamma-choice, jensen-slack"
)

Table = Annotated[str, typer.Argument(help=f"One of {_TABLES}, or the path of a spec of your own (.toml).")]
Tables = Annotated[
    list[str],
    typer.Argument(help=f"One or more of {_TABLES}, or paths of specs of your own (.toml).", metavar="TABLE"),
]
Variant = Annotated[
    str | None,
    typer.Option(help="as-published: what made the paper's figures; corrected: what its equations say."),
]
Penalty = Annotated[
    str | None,
    typer.Option(
        help="paper, ours or annealed (ours, its temperature falling). By default the paper's with as-published, and "
        "ours with corrected."
    ),
]
Epochs = Annotated[int | None, typer.Option(help="Other epochs than the table's: a trial, kept apart.")]
Results = Annotated[Path, typer.Option(help="Folder of the records.")]


def reproduce(
    tables: Tables,
    rows: Annotated[str | None, typer.Option(help="Only these rows, with commas: categorical-ni,mtlr-i")] = None,
    lambdas: Annotated[str | None, typer.Option(help="Only these lambdas of the table, with commas: 0,10,100")] = None,
    seeds: Annotated[str | None, typer.Option(help="These seeds instead of the table's, with commas: 0,1,2")] = None,
    variant: Variant = None,
    penalty: Penalty = None,
    epochs: Epochs = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by default the GPU if there is one.")] = None,
    results: Results = Path("results"),
    data: Annotated[Path | None, typer.Option(help="Folder of the data files; by default $XCAL_DATA.")] = None,
) -> None:
    """Train and measure what is missing of the paper's tables.

    Records are written group by group, so a run can be stopped at any time: run the same command again to resume. A
    group is trained whole: where one of its records is missing the others are trained again too, and stay as they were.

    A look, in a minute or two on a laptop:
      xcal reproduce gamma-censored --rows mtlr-i --lambdas 0,10 --seeds 0 --epochs 2
      xcal compare gamma-censored --epochs 2
    Whole tables, on a GPU, and the same with our penalty:
      xcal reproduce gamma-censored gamma-uncensored
      xcal reproduce gamma-censored gamma-uncensored --penalty ours
      xcal reproduce gamma-censored --variant corrected
    """
    from xcal.experiments.runner import chosen_variant
    from xcal.experiments.runner import reproduce as run
    from xcal.experiments.spec import load_spec

    chosen: dict[str, Any] = {
        "rows": _words(rows),
        "lambdas": None if lambdas is None else [_number("lambdas", text) for text in _words(lambdas) or []],
        "seeds": None if seeds is None else [_whole("seeds", text) for text in _words(seeds) or []],
    }
    for table in tables:  # what is wrong with the last one should show before the first one is trained
        spec = load_spec(table)
        spec.narrowed(**chosen, epochs=epochs)
        chosen_variant(spec, variant, penalty)
    for table in tables:
        _tell(
            run(
                table,
                **chosen,
                variant=variant,  # type: ignore[arg-type]  # checked there, with one message for both doors
                penalty=penalty,  # type: ignore[arg-type]  # likewise
                epochs=epochs,
                device=device,
                results=results,
                data_dir=data,
            )
        )


def _tell(summary: "Summary") -> None:
    """Say what was done, and stop after an interruption."""
    for line in summary.corrupt:
        typer.secho(f"corrupt record: {line}", fg="yellow", err=True)
    if summary.other_data:
        typer.secho(f"{summary.other_data} records were made on other rows and were replaced", fg="yellow", err=True)
    beside = f" ({summary.trained_beside} of them trained again beside new ones)" if summary.trained_beside else ""
    typer.echo(
        f"{summary.path}: {summary.trained} runs trained in {summary.seconds:.0f} s, "
        f"{summary.kept} were there already{beside}"
    )
    if summary.interrupted:
        typer.secho(
            f"stopped: {summary.missing} runs are missing; run the same command again to resume", fg="yellow", err=True
        )
        raise typer.Exit(130)


def compare(
    table: Table,
    variant: Variant = None,
    penalty: Penalty = None,
    epochs: Epochs = None,
    results: Results = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print score and cells (or the headline) as JSON.")] = False,
    headline: Annotated[
        bool,
        typer.Option(
            "--headline", help="Print how our penalty (or --penalty) fares against the paper's at equal D-cal."
        ),
    ] = False,
    markdown: Annotated[Path | None, typer.Option(help="Write the table as Markdown.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write one line a cell as CSV.")] = None,
    picture: Annotated[Path | None, typer.Option(help="Draw the frontier of every model (png, svg or pdf).")] = None,
    of: Annotated[str, typer.Option(help="What the picture sets against D-cal: concordance, nll, dcal_within")] = (
        "concordance"
    ),
) -> None:
    """Put the records of a table beside the paper's figures.

    A cell is matched if NLL is within .05 or 3 of our standard deviations, concordance within .02, D-cal within a
    factor of 2 or 1e-4; better or worse beyond that. The score is the share of cells that are matched or better.

    For example:
      xcal compare gamma-censored
      xcal compare gamma-censored --json
      xcal compare gamma-censored --markdown gamma.md --csv gamma.csv --picture gamma.png
      xcal compare gamma-censored --headline
      xcal compare mnist-dense --headline --penalty annealed
      xcal compare gamma-censored --picture within.png --of dcal_within
    The picture shows every penalty that has records, unless --penalty is given.
    """
    from xcal.experiments.comparison import compare as put_beside
    from xcal.experiments.render import as_csv
    from xcal.experiments.render import as_json as to_json
    from xcal.experiments.render import markdown as to_markdown

    found = put_beside(table, variant=variant, penalty=penalty, epochs=epochs, results=results)
    for line in found.corrupt:
        typer.secho(f"corrupt record: {line}", fg="yellow", err=True)
    if not found.records:
        _no_records(found.spec.table, found.variant, found.penalty, epochs, results)
    for path, make in ((markdown, to_markdown), (csv, as_csv)):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(make(found), encoding="utf-8")
            typer.echo(f"wrote {path}", err=True)
    if picture is not None:
        from xcal.experiments.frontier import draw_frontier

        draw_frontier(table, picture, of=of, variant=variant, penalty=penalty, epochs=epochs, results=results)
        typer.echo(f"wrote {picture}", err=True)
    if headline:
        import json

        from xcal.experiments.headline import headline as find

        for kind in ("paper", penalty or "ours") if found.spec.kind == "path" else ():
            if not put_beside(table, variant=found.variant, penalty=kind, epochs=epochs, results=results).records:
                _no_records(found.spec.table, found.variant, kind, epochs, results)
        lead = find(table, variant=variant, penalty=penalty or "ours", epochs=epochs, results=results)
        typer.echo(json.dumps(lead.as_dict(), indent=1) if as_json else str(lead))
    elif as_json:
        typer.echo(to_json(found))
    elif markdown is None and csv is None and picture is None:
        typer.echo(to_markdown(found))


def results_page(results: Results = Path("results")) -> None:
    """Render every record below the results folder: tables, pictures, and README.md that lists them.

    Example:
      xcal results-page --results results
    """
    from xcal.experiments.pages import write_pages

    for path in write_pages(results):
        typer.echo(path)


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{name}: expected numbers with commas between them, got {text!r}") from None


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}: expected whole numbers with commas between them, got {text!r}") from None


def _no_records(table: str, variant: str, penalty: str, epochs: int | None, results: Path) -> None:
    """Say what to run, or which records there are."""
    trials = sorted((results / table / "trial").glob("*.jsonl"))
    asked = f"{table}, {variant}, penalty {penalty}" + ("" if epochs is None else f", {epochs} epochs")
    trial = "" if epochs is None else f" --epochs {epochs}"
    hint = f"xcal reproduce {table} --variant {variant} --penalty {penalty}{trial} makes them"
    if trials and epochs is None:
        hint += f"; {trials[0].parent} holds trials with other epochs, which --epochs shows"
    raise ValueError(f"results: expected records of {asked} in {results}, got none ({hint})")
