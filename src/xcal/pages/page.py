"""A whole page: sections, controls, and the file that holds them with everything they need."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import fail
from xcal._files import write_whole
from xcal.pages.blocks import Block, Chart, Row, Selector, Stack, Varying
from xcal.pages.markup import Markup, selector_markup
from xcal.pages.theme import COLOURS, FONT, chart_config, colour_rules

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
        "specs": [{**spec, "description": alt} for spec, alt in zip(chart.specs, chart.alts, strict=True)],
        "follows": chart.follows,
        "picks": chart.picks,
        "signal": chart.signal,
    }


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
    return files("xcal.pages").joinpath(name).read_text(encoding="utf-8")


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
