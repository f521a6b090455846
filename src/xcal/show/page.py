"""A whole page: blocks as HTML, sections, controls, and the file that holds them with everything they need."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import fail
from xcal._files import write_whole
from xcal.show.blocks import (
    Block,
    Callout,
    Cell,
    Chart,
    Checklist,
    Copyable,
    Download,
    Figures,
    Key,
    Notes,
    Row,
    Selector,
    Spec,
    Stack,
    Table,
    Text,
    Varying,
)
from xcal.show.charts import COLOURS, FONT, Drawing, colour_rules
from xcal.show.render import chart_config, to_vega

# --- Blocks as HTML. All text passes `escape` here, and nowhere else is HTML written.


_SIGNS = {"good": "✓", "caution": "!", "bad": "✕", "unknown": "?"}


class Markup:
    """Writes blocks and collects their charts, which the page's script draws."""

    def __init__(self, selectors: dict[str, Selector]) -> None:
        self.selectors = selectors
        self.charts: list[Chart] = []
        self._labels = 0

    def write(self, block: Block) -> str:
        """Return the HTML of one block."""
        writers: dict[type, Callable[[Any], str]] = {
            Text: _text,
            Notes: _notes,
            Callout: _callout,
            Figures: _figures,
            Chart: self._chart,
            Table: self._table,
            Copyable: self._copyable,
            Download: _download,
            Checklist: self._checklist,
            Row: self._row,
            Stack: self._stack,
            Varying: self._varying,
            Selector: selector_markup,
        }
        return writers[type(block)](block)

    def _label(self, of: str) -> str:
        """Return an id that nothing else on the page has."""
        self._labels += 1
        return f"{of}-{self._labels}"

    def _chart(self, chart: Chart) -> str:
        place = len(self.charts)
        self.charts.append(chart)
        title = f'<p class="chart-title">{escape(chart.title)}</p>' if chart.title else ""
        reading = f"<figcaption>{escape(chart.reading)}</figcaption>" if chart.reading else ""
        keys = "".join(map(_key, chart.keys))
        legend = f'<ul class="keys">{keys}</ul>' if keys else ""
        picture = f'<div class="chart" data-chart="{place}"></div>'
        return f"<figure>{title}{legend}{picture}{reading}</figure>"

    def _table(self, table: Table) -> str:
        label = self._label("table")
        head = "".join(f'<th scope="col"{_side(table, k)}>{escape(text)}</th>' for k, text in enumerate(table.header))
        lines = "".join(f"<tr>{_line(table, row)}</tr>" for row in table.rows)
        field = ""
        if table.filterable:
            field = (
                f'<p class="filter"><label for="{label}-filter">Show lines with</label> '
                f'<input type="search" id="{label}-filter" data-filters="{label}" autocomplete="off"></p>'
            )
        caption = f'<p id="{label}-caption">{escape(table.caption)}</p>' if table.caption else ""
        words = escape(", ".join(filter(None, table.header)))
        name = f'aria-labelledby="{label}-caption"' if caption else f'aria-label="{words}"'
        return (
            f'{field}<div class="table">{caption}<div class="scroll" role="region" {name} tabindex="0">'
            f'<table id="{label}" {name}><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></div>'
        )

    def _checklist(self, block: Checklist) -> str:
        label = self._label("checklist")
        lines = "".join(
            f'<tr><th scope="row">{escape(item.number)}</th><td>{escape(item.asks)}</td>'
            f'<td class="answer {item.answered.replace(" ", "-")}">{item.answered}</td>'
            f"<td>{escape(item.where)}</td></tr>"
            for item in block.items
        )
        head = "".join(f'<th scope="col">{text}</th>' for text in ("Item", "Asks for", "Answered", "Where"))
        return (
            f'<div class="table checklist"><p id="{label}">{escape(block.caption)}</p>'
            f'<div class="scroll" role="region" aria-labelledby="{label}" tabindex="0">'
            f'<table aria-labelledby="{label}">'
            f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div></div>"
        )

    def _copyable(self, block: Copyable) -> str:
        label = self._label("copy")
        paragraphs = "".join(f"<p>{escape(part)}</p>" for part in block.text.split("\n\n"))
        return (
            f'<div class="copyable"><div id="{label}">{paragraphs}</div>'
            f'<button type="button" class="plain" data-copies="{label}">{escape(block.button)}</button></div>'
        )

    def _row(self, row: Row) -> str:
        shares = row.shares or (1,) * len(row.blocks)
        cells = "".join(
            f'<div class="cell share-{share}">{self.write(block)}</div>'
            for share, block in zip(shares, row.blocks, strict=True)
        )
        return f'<div class="row">{cells}</div>'

    def _stack(self, stack: Stack) -> str:
        return "".join(map(self.write, stack.blocks))

    def _varying(self, block: Varying) -> str:
        start = self.selectors[block.follows].start
        return "".join(
            f'<div data-follows="{block.follows}" data-option="{k}"{"" if k == start else " hidden"}>'
            f"{self.write(one)}</div>"
            for k, one in enumerate(block.blocks)
        )


def selector_markup(selector: Selector) -> str:
    """Return the HTML of a control."""
    label = escape(selector.label)
    if selector.kind == "list":
        options = "".join(
            f'<option value="{k}"{" selected" if k == selector.start else ""}>{escape(option)}</option>'
            for k, option in enumerate(selector.options)
        )
        return (
            f'<label class="choice"><span>{label}</span> <select data-selects="{selector.name}" autocomplete="off">'
            f"{options}</select></label>"
        )
    if selector.kind == "slider":
        return (
            f'<label class="choice slider"><span>{label}</span> '
            f'<input type="range" min="0" max="{len(selector.options) - 1}" step="1" value="{selector.start}" '
            f'data-selects="{selector.name}" aria-valuetext="{escape(selector.options[selector.start])}" '
            f'autocomplete="off"> <output>{escape(selector.options[selector.start])}</output></label>'
        )
    buttons = "".join(
        f'<label><input type="radio" name="{selector.name}" value="{k}" data-selects="{selector.name}" '
        f'autocomplete="off"{" checked" if k == selector.start else ""}><span>{escape(option)}</span></label>'
        for k, option in enumerate(selector.options)
    )
    return f'<fieldset class="choice"><legend>{label}</legend><div class="buttons">{buttons}</div></fieldset>'


def _text(block: Text) -> str:
    return f'<p class="{block.style}">{escape(block.text)}</p>'


def _notes(block: Notes) -> str:
    title = f"<h3>{escape(block.title)}</h3>" if block.title else ""
    return f"{title}<ul>{''.join(f'<li>{escape(item)}</li>' for item in block.items)}</ul>"


def _callout(block: Callout) -> str:
    sentences, more = (
        "".join(f"<li>{escape(sentence)}</li>" for sentence in some) for some in (block.sentences, block.more)
    )
    folded = f"<details><summary>{escape(block.more_title)}</summary><ul>{more}</ul></details>" if more else ""
    return (
        f'<div class="callout {block.level}"><p class="word"><span aria-hidden="true">{_SIGNS[block.level]}</span> '
        f'{escape(block.word)}</p><p class="headline">{escape(block.headline)}</p><ul>{sentences}</ul>{folded}</div>'
    )


def _figures(block: Figures) -> str:
    tiles = "".join(
        f"<div><dt>{escape(one.label)}</dt><dd><strong>{_number(one.shown, one.value)}</strong>"
        f"{f'<b>{escape(one.interval)}</b>' if one.interval else ''}"
        f"{f'<small>{escape(one.note)}</small>' if one.note else ''}</dd></div>"
        for one in block.figures
    )
    return f'<dl class="figures">{tiles}</dl>'


def _number(shown: str, value: float | None) -> str:
    return escape(shown) if value is None else f'<data value="{value!r}">{escape(shown)}</data>'


def _key(key: Key) -> str:
    return f'<li><i class="{key.shape} {key.colour.replace("_", "-")}" aria-hidden="true"></i>{escape(key.label)}</li>'


def _side(table: Table, column: int) -> str:
    return ' class="number"' if column in table.numeric else ""


def _line(table: Table, row: Sequence[Cell]) -> str:
    cells = []
    for k, cell in enumerate(row):
        text = escape(cell) if isinstance(cell, str) else _number(cell[0], cell[1])
        if not isinstance(cell, str) and len(cell) == 3 and cell[2]:
            text += f"<small>{escape(cell[2])}</small>"
        cells.append(f'<th scope="row">{text}</th>' if k == 0 else f"<td{_side(table, k)}>{text}</td>")
    return "".join(cells)


def _download(block: Download) -> str:
    content = base64.b64encode(block.content.encode()).decode("ascii")
    return (
        f'<p class="download"><a class="plain" download="{escape(block.file_name)}" '
        f'href="data:{block.media_type};charset=utf-8;base64,{content}">{escape(block.label)}</a></p>'
    )


# --- A whole page: sections, controls, and the file that holds them with everything they need.


_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Section:
    """A part of the page; `short` is its name in the list of contents ("": not listed)."""

    heading: str
    blocks: tuple[Block, ...]
    short: str = ""


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

    Its scripts are named by their hashes in the content security policy, so that nothing else can run, nor anything be
    loaded: Vega interprets the charts' expressions instead of compiling them, which the policy would forbid. Styles may
    be inline, as Vega's tooltips and pictures set their own.
    """
    selectors = _selectors(page)
    markup = Markup({selector.name: selector for selector in selectors})
    top = "".join(map(markup.write, page.top))
    sections = "".join(_section(k, section, markup) for k, section in enumerate(page.sections))
    _check_charts(markup.charts, markup.selectors)
    script = _asset("page.js")
    # Only a page with charts carries Vega.
    scripts = [_vega(), script] if markup.charts else [script]
    data = _json(
        {
            "config": chart_config(),
            "start": {selector.name: selector.start for selector in selectors},
            "options": {selector.name: selector.options for selector in selectors},
            "charts": [_chart_data(chart) for chart in markup.charts],
        }
    )
    return _document(page, top, sections, data, scripts)


def _document(page: Page, top: str, sections: str, data: str, scripts: Sequence[str]) -> str:
    style = colour_rules() + f":root{{--font:{FONT};}}\n" + _key_rules() + _asset("page.css")
    hashes = " ".join(f"'sha256-{_hash(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    controls = "".join(map(selector_markup, page.selectors))
    links = "".join(
        f'<li><a href="#part-{k}">{escape(section.short)}</a></li>'
        for k, section in enumerate(page.sections)
        if section.short
    )
    contents = f'<nav aria-label="Contents"><ul class="contents">{links}</ul></nav>' if links else ""
    subtitle = f'<p class="subtitle">{escape(page.subtitle)}</p>' if page.subtitle else ""
    tail = "".join(f'<script type="module">{script}</script>\n' for script in scripts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<title>{escape(page.title)}</title>\n<link rel="icon" href="data:,">\n<style>\n{style}</style>\n</head>\n'
        f'<body>\n<a class="skip" href="#main">Skip to the content</a>\n<header><h1>{escape(page.title)}</h1>{subtitle}'
        f'</header>\n<div class="bar">{controls}<button type="button" class="plain" id="theme" '
        'aria-label="Light or dark">◐</button></div>\n'
        f'<p class="unseen" id="said" role="status"></p>\n<main id="main" aria-busy="true">\n'
        "<noscript><p>The pictures of this page need JavaScript. The tables do not.</p></noscript>\n"
        f"{top}{contents}\n{sections}</main>\n<footer>{escape(page.footer)}</footer>\n"
        f'<script type="application/json" id="page-data">{data}</script>\n{tail}</body>\n</html>\n'
    )


def _section(place: int, section: Section, markup: Markup) -> str:
    blocks = "".join(map(markup.write, section.blocks))
    return (
        f'<section id="part-{place}" aria-labelledby="heading-{place}"><h2 id="heading-{place}">'
        f"{escape(section.heading)}</h2>{blocks}</section>\n"
    )


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
    return {
        "specs": [{**_spec(one), "description": alt} for one, alt in zip(chart.specs, chart.alts, strict=True)],
        "follows": chart.follows,
        "picks": chart.picks,
        "signal": chart.signal,
    }


def _spec(picture: Drawing | Spec) -> Spec:
    return picture if isinstance(picture, Mapping) else to_vega(picture)


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


def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    # A carriage return would be read as a line feed, and the hash of the policy would not fit.
    bundle: str = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # its stub knows no defaults
    script = bundle.replace("\r\n", "\n").replace("\r", "\n")
    if re.search(r"</script|<!--", script, flags=re.IGNORECASE):
        fail("vl_convert", "a bundle that can stand in a page", "one with an end of a script or a comment in it")
    return script


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
