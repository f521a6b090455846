"""The application and its commands. Nothing heavy may be imported here, so that ``--help`` answers at once."""

import gc
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from xcal import __version__
from xcal._imports import COMMANDS, extensions
from xcal.cli import is_helper
from xcal.cli.audit import audit
from xcal.cli.demo import demo, serve
from xcal.cli.evaluate import evaluate, predict, report
from xcal.cli.fit import fit

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

    From a table in a file to a model and its report:
      xcal fit patients.csv --time months --event died --out run
      xcal predict run new.csv --out predictions.csv

    To validate the predictions of any survival model:
      xcal audit predictions.csv --time t --event e --curves "s_*" --out report.html

    To do both on a page in the browser:
      xcal serve
    """


class _Interrupted(typer.Exit):
    """The end of a command that has said that it was interrupted."""


def _with_a_word(command: Callable[..., None]) -> Callable[..., None]:
    """Return the message of an interrupted command, and what that means if it knows; typer itself says nothing."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            command(*arguments, **options)
        except (KeyboardInterrupt, SystemError, ImportError) as error:
            interrupt = _interrupt_behind(error)
            if interrupt is None:
                raise
            _say_interrupted(str(interrupt))
            raise _Interrupted(130) from None

    return run


def _interrupt_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt that an error is, or comes from: libraries that are being imported wrap it in their own."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def _say_interrupted(more: str = "") -> None:
    if not is_helper():
        typer.echo(f"interrupted{': ' if more else ''}{more}", err=True)


for _command in (demo, fit, predict, evaluate, report, audit, serve):
    app.command(_command.__name__.replace("_", "-"))(_with_a_word(_command))
# Commands of other packages: an entry point is a function that adds them to the application.
for _extension in extensions(COMMANDS):
    _extension.load()(app, _with_a_word)


# Allocations before the garbage collector looks at what is new, and rounds before it looks at more. Of the objects that
# a command makes most are modules, which stay: with Python's numbers it walks through them for a third of the time of
# `xcal predict`, and once more at the end of the process.
_COLLECT = (50_000, 20, 50)


def main() -> None:
    """Run the application; an expected error is one line, not a traceback."""
    gc.set_threshold(*_COLLECT)
    try:
        app()
    except KeyboardInterrupt:
        _say_interrupted()
        raise SystemExit(130) from None
    except SystemExit as end:
        # Interrupted before a command had begun, typer ends without a word.
        if end.code == 130 and not isinstance(end.__context__, _Interrupted):
            _say_interrupted()
        raise
    except (ValueError, OSError, ImportError) as error:
        # What is wrong with a command or a file the first process says; that the others are gone, everyone.
        if not is_helper() or isinstance(error, ConnectionError):
            typer.secho(f"error: {error}", fg="red", err=True)
        raise SystemExit(2) from None
    finally:
        gc.freeze()  # the process ends: its memory need not be looked through
