"""The application and its commands. Nothing heavy may be imported here, so that ``--help`` answers at once."""

import typer

from xcal import __version__
from xcal.cli.compare import compare
from xcal.cli.demo import demo
from xcal.cli.mimic import mimic
from xcal.cli.reproduce import reproduce
from xcal.cli.results_page import results_page

app = typer.Typer(
    name="xcal",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"xcal {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Survival models whose probabilities can be trusted.

    To see what xcal does, in about a minute:
      xcal demo

    To run a table of the paper again and compare it with the paper:
      xcal reproduce gamma-censored
      xcal compare gamma-censored
    """


app.command()(demo)
app.command()(reproduce)
app.command()(compare)
app.command("results-page")(results_page)
app.add_typer(mimic, name="mimic")


def main() -> None:
    """Run the application; an expected error is one line, not a traceback."""
    try:
        app()
    except (ValueError, OSError, ImportError) as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        raise SystemExit(2) from None
