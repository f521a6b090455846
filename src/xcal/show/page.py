"""A whole page: blocks as HTML, sections, controls, and the file that holds them with everything they need."""

import base64
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from xcal._checks import fail
from xcal._files import write_whole
from xcal.show.blocks import Block, Chart, Row, Selector, Spec, Stack, Varying
from xcal.show.charts import COLOURS, FONT, Drawing, colour_rules
from xcal.show.render import chart_config, to_vega

_SIGNS = {"good": "✓", "caution": "!", "bad": "✕", "unknown": "?"}
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
        drawn = [_chart_data(chart) for chart in charts]
        return Markup(_json({"config": chart_config(), "start": start, "options": options, "charts": drawn}))

    environment = Environment(
        loader=PackageLoader("xcal.show", ""), autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True
    )
    environment.filters |= {"sha256": _hash, "base64": _base64, "exactly": repr}
    return environment.get_template("page.html").render(
        page=page,
        start={name: selector.start for name, selector in selectors.items()},
        signs=_SIGNS,
        style=Markup(colour_rules() + f":root{{--font:{FONT};}}\n" + _key_rules() + _asset("page.css")),
        kind=lambda block: type(block).__name__,
        next_id=lambda: next(ids),
        place=place,
        scripts=scripts,
        data=data,
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


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")
