"""``xcal serve``: a page in the browser to drop a table or a saved model on."""

from importlib import import_module
from typing import Annotated

import typer

Host = Annotated[str, typer.Option(help="Address to listen on; others than this machine can reach any but this one.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")]
Most = Annotated[int, typer.Option(min=1, help="Largest file in megabytes.")]
Keep = Annotated[float, typer.Option(min=0.1, help="Minutes after which a file that nobody asks for is deleted.")]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the address.")]
NoNotice = Annotated[bool, typer.Option("--no-notice", help='Leave out "not for clinical use" in the calculator.')]


def serve(
    port: Port = 0,
    host: Host = "127.0.0.1",
    most: Most = 100,
    keep: Keep = 10.0,
    no_browser: NoBrowser = False,
    no_notice: NoNotice = False,
) -> None:
    """Open a page in the browser to drop a table or a model on.

    A table with predictions is validated (xcal audit), a table with data
    alone is trained on (xcal fit), and a saved model becomes a calculator.
    The page shows each command, to be pasted and run again. It runs on this
    machine, sends nothing, and deletes what was dropped on it.

    For example:
      xcal serve
    """
    try:
        # xcal.serve stands above the commands, which it runs.
        app, work = import_module("xcal.serve.app"), import_module("xcal.serve.work")
    except ImportError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        raise ImportError('xcal serve needs starlette and uvicorn: pip install "xcal[serve]"') from None
    limits = work.Limits(most_bytes=most << 20, keep=60 * keep)
    app.serve(host, port, limits, notice=not no_notice, browser=not no_browser, say=typer.echo)
