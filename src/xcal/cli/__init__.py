"""The command line: one module per command, each importing what it runs only when it runs.

Here stand the arguments and options that several commands share, and how a list is written on the command line.
"""

import os
import sys
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Annotated, Any, TypeVar

import typer


def is_helper() -> bool:
    """Return whether torchrun started this process beside a first one, which does the talking."""
    return os.environ.get("RANK", "0").strip() not in {"", "0"} and bool(os.environ.get("MASTER_ADDR"))


_Item = TypeVar("_Item")
Separator = Annotated[
    str | None,
    typer.Option(help="What stands between the columns of a CSV file; by default the first lines tell."),
]
Decimal = Annotated[
    str | None, typer.Option(help='Mark within the numbers of a CSV file: "." (the default) or ",", as in 1,9.')
]
By = Annotated[list[str] | None, typer.Option(help="Column of groups to judge apart; may be given several times.")]
Horizons = Annotated[str | None, typer.Option(help="Times at which risks are judged, with commas: 12,24,60.")]
EventValue = Annotated[str | None, typer.Option(help='What the event column says if it happened, such as "dead".')]
Entry = Annotated[
    str | None,
    typer.Option(help="Column of the time from which a row was under observation (delayed entry), below its time."),
]
Lower = Annotated[
    str | None,
    typer.Option(help="With --upper, where events lie between two times: column of the last visit without the event."),
]
Upper = Annotated[
    str | None,
    typer.Option(help="Column of the first visit with the event; empty in rows that are censored at --lower."),
]
Cause = Annotated[
    str | None,
    typer.Option(
        help="In place of --event, where events have several causes: column of 0 for a censored row, or the number or "
        "name of the cause."
    ),
]
Causes = Annotated[str | None, typer.Option(help="Names of causes 1, 2, ... with commas: recurrence,death.")]
Person = Annotated[
    str | None,
    typer.Option(
        "--id",
        help="Where covariates change: column of the person, who has a row from --entry to --time for each stretch.",
    ),
]
Site = Annotated[
    str | None,
    typer.Option(
        help="Column of the hospital or region: each is judged, and the report says how much they differ and what to "
        "expect at a new one."
    ),
]
Landmarks = Annotated[
    str | None,
    typer.Option(
        help="Times, with commas, at which those who have come so far are judged again by their risks from there on: "
        "365,730. Horizons then count from there."
    ),
]
LastSeen = Annotated[
    str | None,
    typer.Option(
        help="For times in whole months or years: whether a patient censored in month 7 was observed through all of it "
        "(end), half of it (middle), or that is not known (unknown: intervals hold both). exact: times are exact."
    ),
]
Covariates = Annotated[
    str | None,
    typer.Option(
        help='Columns that the report asks "for whom?" about, with commas: age,sex. By default those of the model.'
    ),
]
MinCell = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Rows below which nothing is told of a group or a bin, as so few could be one person; 5 by default, 0 "
        "shows everything.",
    ),
]


def now_and_then(words: Callable[..., str]) -> Callable[..., None] | None:
    """Return a function that says now and then how far the work is; None where a bar can be drawn.

    Not more often than every 10 seconds, or as many as the variable XCAL_PROGRESS says.
    """
    if sys.stderr.isatty():
        return None
    said, seconds = monotonic(), float(os.environ.get("XCAL_PROGRESS", "") or 10.0)

    def show(*work: Any) -> None:
        nonlocal said
        if monotonic() - said >= seconds:
            said = monotonic()
            typer.echo(words(*work), err=True)

    return show


def listed(name: str, text: str | None, make: Callable[[str], _Item], kind: str) -> list[_Item] | None:
    """Read a list that is written with commas; None where the option was not given."""
    if text is None:
        return None
    items = []
    for word in filter(None, map(str.strip, text.split(","))):
        try:
            items.append(make(word))
        except ValueError:
            raise ValueError(f"{name}: expected {kind} with commas between them, got {word!r}") from None
    return items


def as_settings(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that were given, lists as settings hold them: as tuples."""
    given = {name: value for name, value in options.items() if value not in (None, [])}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
