"""Arguments and options that several commands share, and how a list is written on the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

_Item = TypeVar("_Item")

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
Results = Annotated[Path, typer.Option(help="Folder of the records.")]

Separator = Annotated[
    str | None,
    typer.Option(help="What stands between the columns of a CSV file; by default the first lines tell."),
]
Decimal = Annotated[
    str | None, typer.Option(help='Mark within the numbers of a CSV file: "." (the default) or ",", as in 1,9.')
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
