"""``xcal mimic``: from the raw files of MIMIC-III to the table that models are trained on."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from xcal_paper.mimic3.preparation import Prepared


mimic = typer.Typer(
    no_args_is_help=True, help="Prepare MIMIC-III for the length-of-stay task.", pretty_exceptions_enable=False
)

RawDir = Annotated[Path, typer.Argument(help="Folder with the CSV or CSV.gz files of MIMIC-III.", metavar="RAW_DIR")]
OutDir = Annotated[
    Path, typer.Argument(help="Folder to write: new, empty, or that of a run to resume.", metavar="OUT_DIR")
]
TestSubjects = Annotated[
    Path | None,
    typer.Option(
        help="List of subjects, two columns without a header: subject id, 1 for test. The public benchmark has one "
        "(mimic3benchmark/resources/testset.csv). Without it, 15 % of the subjects are drawn by --seed."
    ),
]
Seed = Annotated[int, typer.Option(help="Decides about the splits and the order of instances.")]
Death = Annotated[
    str,
    typer.Option(help="event: a death in the unit ends an ordinary stay. censor: the stay is censored at death."),
]
Discretised = Annotated[bool, typer.Option("--discretised", help="Also write 76 numbers for each hour of a stay.")]
Memory = Annotated[str, typer.Option(help="Memory to keep to, at least 1GB.")]
Threads = Annotated[int | None, typer.Option(help="Threads for reading. By default one per processor.")]


@mimic.command()
def prepare(
    raw_dir: RawDir,
    out_dir: OutDir,
    test_subjects: TestSubjects = None,
    seed: Seed = 0,
    death: Death = "event",
    discretised: Discretised = False,
    memory: Memory = "8GB",
    threads: Threads = None,
) -> None:
    """Turn the raw files of MIMIC-III into parquet folders for training.

    Six tables are read: ICUSTAYS, ADMISSIONS, PATIENTS, CHARTEVENTS,
    LABEVENTS and OUTPUTEVENTS. The steps are stays, events, timeseries,
    instances and features, each a folder of OUT_DIR; manifest.json has
    counts and checksums. You can stop the command at any time: run it
    again to resume after the last finished step.

    With the split of the public benchmark:
      xcal mimic prepare mimic-iii-1.4 los --test-subjects testset.csv

    On a small machine, with deaths as censored stays:
      xcal mimic prepare mimic-iii-1.4 los --memory 4GB --death censor

    Without access to the data, on the open demo from PhysioNet, or on
    random numbers of the same shape:
      xcal mimic prepare mimic-iii-demo los
      xcal mimic generate made-up && xcal mimic prepare made-up los
    """
    from xcal_paper.mimic3.preparation import prepare as run

    start = time.monotonic()
    try:
        with _Bars() as bars:
            prepared = run(
                raw_dir,
                out_dir,
                test_subjects=test_subjects,
                seed=seed,
                death=death,  # type: ignore[arg-type]  # checked there, with one message for both callers
                discretised=discretised,
                memory=memory,
                threads=threads,
                report=bars.report,
            )
    except KeyboardInterrupt:
        typer.secho("stopped: run the same command again to resume", fg="yellow", err=True)
        raise typer.Exit(130) from None
    _print_summary(prepared, time.monotonic() - start)


@mimic.command()
def generate(
    folder: Annotated[Path, typer.Argument(help="Folder to write; new or empty.", metavar="FOLDER")],
    scale: Annotated[float, typer.Option(help="Size, in units of the open demo (100 patients).")] = 1.0,
    seed: Annotated[int, typer.Option(help="Other numbers for another seed.")] = 0,
) -> None:
    """Write a folder of random numbers in the shape of MIMIC-III.

    No row comes from a patient. The files have the columns and the
    quirks of the real ones, for tests and for measuring how long the
    real data will take:
      xcal mimic generate made-up --scale 10
    """
    from xcal_paper.mimic3.generator import generate as run

    with _Bars() as bars:
        rows = run(folder, scale, seed, report=bars.report)
    for table, number in rows.items():
        typer.echo(f"{table:<14}{number:>14,} rows")


@mimic.command("benchmark-csv")
def benchmark_csv(
    prepared: Annotated[Path, typer.Argument(help="Folder that `prepare` has written.", metavar="OUT_DIR")],
    folder: Annotated[Path, typer.Argument(help="Folder to write.", metavar="FOLDER")],
) -> None:
    """Write the time series as CSV files of the public benchmark.

    For example, to compare with it or to train its models:
      xcal mimic benchmark-csv los los-csv
    """
    from xcal_paper.mimic3.preparation import write_benchmark_csv

    typer.echo(f"{write_benchmark_csv(prepared, folder)} time series in {folder}")


class _Bars:
    """A line of progress for each table and step, on a terminal; nothing elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> "_Bars":
        self._progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._progress.__exit__(*error)

    def report(self, doing: str, done: int, total: int | None) -> None:
        """Show how far it is."""
        amount = f"{done:,} rows" if total is None else f"{done:,} of {total:,}"
        if doing not in self._tasks:
            # A table of unknown length is finished when the next one begins.
            for task in self._progress.tasks:
                if task.total is None:
                    self._progress.update(task.id, total=1, completed=1)
            self._tasks[doing] = self._progress.add_task(doing, total=total, amount=amount)
        self._progress.update(self._tasks[doing], completed=done, total=total, amount=amount)


def _print_summary(prepared: "Prepared", seconds: float) -> None:
    for note in prepared.notes:
        typer.secho(f"note: {note}", fg="yellow", err=True)
    counts = prepared.counts
    if prepared.resumed:
        typer.echo(f"found finished: {', '.join(prepared.resumed)}")
    typer.echo(f"{counts['stays']['stays_adults']:,} stays, {counts['events']['values']:,} values")
    splits = [f"{counts['instances'][f'instances_{name}']:,} {name}" for name in ("train", "validation", "test")]
    typer.echo(f"instances: {', '.join(splits)}")
    if counts["instances"]["instances_censored"]:
        typer.echo(f"{counts['instances']['instances_censored']:,} of them are censored at death")
    typer.echo(f"{prepared.folder} in {seconds:.1f} s")
