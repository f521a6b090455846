"""``xcal results-page``: tables and pictures of every record in a folder."""

from pathlib import Path

import typer

from xcal.cli.options import Results


def results_page(results: Results = Path("results")) -> None:
    """Write tables and pictures of all records in a results folder, and a README.md that lists them.

    For example:
      xcal results-page --results results
    """
    from xcal.report import write_pages

    for path in write_pages(results):
        typer.echo(path)
