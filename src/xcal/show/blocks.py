"""What a page is made of: small frozen pieces that hold text and numbers, never HTML.

Text may come from users (names of models, labels of groups): it is escaped where the page is written, in one place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from xcal.show.charts import Drawing

Spec: TypeAlias = Mapping[str, Any]
Level = Literal["good", "caution", "bad", "unknown"]


@dataclass(frozen=True)
class Selector:
    """A choice that other blocks follow.

    Attributes
    ----------
    name : str
        By which blocks follow it: letters, digits and underscores.
    label : str
        What is chosen, for people.
    options : tuple of str
        Names of the choices; blocks know them by their index.
    kind : {"buttons", "list", "slider"}
        How it looks. All three work with the keyboard.
    start : int
        The option at first.
    """

    name: str
    label: str
    options: tuple[str, ...]
    kind: Literal["buttons", "list", "slider"] = "buttons"
    start: int = 0


@dataclass(frozen=True)
class Text:
    """A paragraph. `style` "reading" is how to read the picture above it, "note" is smaller, "lead" larger."""

    text: str
    style: Literal["plain", "lead", "reading", "note"] = "plain"


@dataclass(frozen=True)
class Notes:
    """A list of sentences; `title` in bold before it."""

    items: tuple[str, ...]
    title: str = ""


@dataclass(frozen=True)
class Callout:
    """The answer on top of a page: a coloured box with a word, a sentence and what follows from it.

    What is in `more` is folded away behind `more_title` until the reader asks for it.
    """

    level: Level
    word: str
    headline: str
    sentences: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    more_title: str = "More"


@dataclass(frozen=True)
class Figure:
    """One number with its name: `shown` is its text, `value` the number itself; its interval and a note beneath it."""

    label: str
    shown: str
    value: float | None = None
    interval: str = ""
    note: str = ""


@dataclass(frozen=True)
class Figures:
    """Numbers side by side."""

    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Key:
    """One line of a chart's legend: `colour` is a name of `charts.COLOURS`."""

    label: str
    colour: str
    shape: Literal["line", "dashed", "band", "point", "box"] = "line"


@dataclass(frozen=True, eq=False)
class Chart:
    """A picture, or one for every combination of the options it follows.

    Attributes
    ----------
    specs : tuple of pictures or Vega-Lite specifications
        Pictures of `xcal.show.charts`, or specifications without width, which is that of the page. With `follows` one
        for every combination of options, the last selector changing fastest; or a single one with a parameter named
        `signal`, which the page sets to the chosen index.
    alts : tuple of str
        What each shows, for those who cannot see it; as many as `specs`.
    follows : tuple of str
        Names of selectors.
    keys : tuple of Key
        Legend, written as text above the picture.
    title : str
        A line above it.
    reading : str
        One sentence beneath: how to read it.
    picks : str
        Name of a selector that a click on a mark sets, to the integer `pick` in the mark's data.
    signal : str
        See `specs`.
    """

    specs: tuple[Drawing | Spec, ...]
    alts: tuple[str, ...]
    follows: tuple[str, ...] = ()
    keys: tuple[Key, ...] = ()
    title: str = ""
    reading: str = ""
    picks: str = ""
    signal: str = ""


Cell: TypeAlias = str | tuple[str, float] | tuple[str, float, str]


@dataclass(frozen=True)
class Table:
    """Lines of text and numbers; a cell may be the text of a number, the number itself, and a line beneath.

    Without a caption the table is named by its header. `numeric` are the columns set to the right. `filterable` offers
    a field that hides lines without a text.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: tuple[int, ...] = ()
    filterable: bool = False


@dataclass(frozen=True)
class Copyable:
    """Paragraphs with a button that copies them."""

    text: str
    button: str = "Copy"


@dataclass(frozen=True)
class Download:
    """A link that saves a text file; the file is inside the page."""

    label: str
    file_name: str
    content: str
    media_type: str = "text/csv"


@dataclass(frozen=True)
class ChecklistItem:
    """One item: its number in the guideline, what it asks for, and how far and where the page answers it."""

    number: str
    asks: str
    answered: Literal["yes", "in part", "no"]
    where: str


@dataclass(frozen=True)
class Checklist:
    """Items of a guideline."""

    caption: str
    items: tuple[ChecklistItem, ...]


@dataclass(frozen=True)
class Stack:
    """Blocks beneath each other, where one block is asked for."""

    blocks: tuple["Block", ...]


@dataclass(frozen=True)
class Row:
    """Blocks side by side where there is room; `shares` are their widths."""

    blocks: tuple["Block", ...]
    shares: tuple[int, ...] = ()


@dataclass(frozen=True)
class Varying:
    """One block for every option of a selector; the page shows that of the chosen one."""

    follows: str
    blocks: tuple["Block", ...]


Block: TypeAlias = (
    Text
    | Notes
    | Callout
    | Figures
    | Chart
    | Table
    | Copyable
    | Download
    | Checklist
    | Row
    | Stack
    | Varying
    | Selector
)
