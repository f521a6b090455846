"""Pages: what they are made of, small frozen pieces that hold text and numbers, and the file that shows them."""

import base64
import contextlib
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from xcal._checks import fail
from xcal._files import cache_folder, write_whole
from xcal.show.charts import COLOURS, FONT, Drawing, colour_rules
from xcal.show.render import chart_config, to_vega

# --- What a page is made of: small frozen pieces that hold text and numbers, never HTML.
# Text may come from users (names of models, labels of groups): it is escaped where the page is written, in one place.


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
class Answers:
    """Questions with an answer of one sentence each: question, level, sentence.

    A question that is the short name of a section leads to it.
    """

    items: tuple[tuple[str, Level, str], ...]


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
    """One item: its number in the guideline, what it asks for, who answers it, and where."""

    number: str
    asks: str
    answered: Literal["audit", "audit and study file", "study file", "in part", "open"]
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
    | Answers
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


# --- A whole page: blocks as HTML, sections, controls, and the file that holds them with everything they need.


_SIGNS = {"good": "✓", "caution": "!", "bad": "✕", "unknown": "?"}


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Section:
    """A part of the page; `short` is its name in the list of contents ("": not listed).

    One that is `folded` shows its heading until the reader opens it, a link leads to it, or the page is printed.
    """

    heading: str
    blocks: tuple[Block, ...]
    short: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Page:
    """One page.

    Attributes
    ----------
    title, subtitle : str
        The heading, and a line beneath it.
    sections : tuple of Section
    selectors : tuple of Selector
        Controls in the bar that stays in view. A selector can also be a block of a section.
    top : tuple of blocks
        What stands before the list of contents.
    footer : str
        The last line.
    """

    title: str
    sections: tuple[Section, ...]
    subtitle: str = ""
    selectors: tuple[Selector, ...] = ()
    top: tuple[Block, ...] = ()
    footer: str = ""


def write_page(page: Page, path: str | Path) -> Path:
    """Write the page as one HTML file that needs no network; whole or not at all."""
    target = Path(path)
    content = render_page(page).encode("utf-8")
    target.parent.mkdir(parents=True, exist_ok=True)
    write_whole(target, content)
    return target


def render_page(page: Page) -> str:
    """Return the text of the page.

    `page.html` and `blocks.html` are its templates, which escape all text. Its scripts are named by their hashes in the
    content security policy, so that nothing else can run, nor anything be loaded: Vega interprets the charts'
    expressions instead of compiling them, which the policy would forbid. Styles may be inline, as Vega's tooltips and
    pictures set their own.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    selectors = {selector.name: selector for selector in _selectors(page)}
    charts: list[Chart] = []
    ids = count(1)

    def place(chart: Chart) -> int:
        charts.append(chart)
        return len(charts) - 1

    def scripts() -> list[Markup]:
        """Return the scripts; a page without charts needs no Vega."""
        _check_charts(charts, selectors)
        return [Markup(text) for text in ([_vega()] if charts else []) + [_asset("page.js")]]

    def data() -> Markup:
        start = {name: selector.start for name, selector in selectors.items()}
        options = {name: selector.options for name, selector in selectors.items()}
        drawn: list[dict[str, Any]] = []
        for chart in charts:
            own = _chart_data(chart)
            # A picture that stands on the page twice is written once.
            same = (k for k, other in enumerate(drawn) if other["specs"] == own["specs"])
            drawn.append(own | {"specs": next(same, own["specs"])})
        return Markup(_json({"config": chart_config(), "start": start, "options": options, "charts": drawn}))

    environment = Environment(
        loader=PackageLoader("xcal.show", ""), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters |= {"sha256": _hash, "base64": _base64, "exactly": repr}
    return environment.get_template("page.html").render(
        page=page,
        start={name: selector.start for name, selector in selectors.items()},
        signs=_SIGNS,
        parts={section.short: number for number, section in enumerate(page.sections) if section.short},
        style=Markup(style()),
        kind=lambda block: type(block).__name__,
        next_id=lambda: next(ids),
        place=place,
        scripts=scripts,
        data=data,
    )


def style() -> str:
    """Return the look of a page: colours, font, signs of legends, and the rest."""
    return colour_rules() + f":root{{--font:{FONT};}}\n" + _key_rules() + _asset("page.css")


def _selectors(page: Page) -> tuple[Selector, ...]:
    """Every selector of the page, in the bar or in a section; each name once."""
    inside = [block for section in page.sections for block in _flat(section.blocks) if isinstance(block, Selector)]
    found = (*page.selectors, *inside)
    names = [selector.name for selector in found]
    for selector in found:
        if not _NAME.fullmatch(selector.name) or names.count(selector.name) > 1:
            fail("selectors", "names of letters, digits and underscores, each once", repr(selector.name))
        if not 0 <= selector.start < len(selector.options):
            fail(f"selector {selector.name}", f"a start among its {len(selector.options)} options", selector.start)
    return found


def _flat(blocks: Sequence[Block]) -> Iterator[Block]:
    for block in blocks:
        yield block
        if isinstance(block, Row | Stack | Varying):
            yield from _flat(block.blocks)


def _check_charts(charts: Sequence[Chart], selectors: Mapping[str, Selector]) -> None:
    for chart in charts:
        for name in (*chart.follows, *((chart.picks,) if chart.picks else ())):
            if name not in selectors:
                fail("chart", f"a selector of the page ({', '.join(selectors) or 'it has none'})", repr(name))
        wanted = 1 if chart.signal else math.prod(len(selectors[name].options) for name in chart.follows)
        if len(chart.specs) != wanted or len(chart.alts) != wanted:
            fail("chart", f"{wanted} specifications and texts", f"{len(chart.specs)} and {len(chart.alts)}")


def _chart_data(chart: Chart) -> dict[str, Any]:
    specs = [{**_spec(one), "description": alt} for one, alt in zip(chart.specs, chart.alts, strict=True)]
    return {
        "specs": [one | {"datasets": _by_column(one["datasets"])} if "datasets" in one else one for one in specs],
        "follows": chart.follows,
        "picks": chart.picks,
        "signal": chart.signal,
    }


def _spec(picture: Drawing | Spec) -> Spec:
    return picture if isinstance(picture, Mapping) else to_vega(picture)


def _by_column(tables: Mapping[str, Sequence[Spec]]) -> Spec:
    """Write the names of columns once and not in every row: much shorter. `page.js` reads it."""
    return {name: {key: [row[key] for row in rows] for key in rows[0]} if rows else {} for name, rows in tables.items()}


def _json(value: Any) -> str:
    """JSON that may stand in a script element: no character in it can end the element."""
    text = json.dumps(_plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _plain(value: Any) -> Any:
    """Python's own types of numbers and lists; what is not finite becomes null, which Vega leaves out."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _key_rules() -> str:
    """One rule per colour for the signs of legends."""
    names = (name.replace("_", "-") for name in COLOURS)
    return "".join(f".keys i.{name}{{color:var(--{name})}}\n" for name in names)


def _asset(name: str) -> str:
    return files("xcal.show").joinpath(name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which takes seconds to make: it is kept among the user's caches.

    What stands there after the first line must have the digest that the line tells. A folder that cannot be read or
    written costs the time alone.
    """
    kept = None
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # nobody without a home has caches
        kept = cache_folder() / f"vega-{version('vl-convert-python')}.js"
        told, _, script = kept.read_bytes().decode("utf-8").partition("\n")
        if told == f"//{_hash(script)}":
            return script
    import vl_convert

    # A carriage return would be read as a line feed, and the hash of the policy would not fit.
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub knows no defaults
    script = bundle.replace("\r\n", "\n").replace("\r", "\n")
    if re.search(r"</script|<!--", script, flags=re.IGNORECASE):
        fail("vl_convert", "a bundle that can stand in a page", "one with an end of a script or a comment in it")
    if kept is not None:
        with contextlib.suppress(OSError):
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_whole(kept, f"//{_hash(script)}\n{script}".encode())
    return script


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
