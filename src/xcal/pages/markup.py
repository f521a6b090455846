"""Blocks as HTML. All text passes `escape` here, and nowhere else is HTML written."""

import base64
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from xcal.pages.blocks import (
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
    Stack,
    Table,
    Text,
    Varying,
)

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
