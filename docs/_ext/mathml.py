"""Formulas as MathML, made while the site is built: a browser shows them without a script and without a network."""

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

# What the converter does not know it passes on as it stands, and the reader would see LaTeX. Other characters that it
# takes over from the source are written as entities.
UNKNOWN = re.compile(r"\\[A-Za-z]+")
# Of all letter styles, browsers know the upright one only; a letter in another style must be a character of its own.
LOST = re.compile(r'mathvariant="(?!normal")([^"]*)"')


def to_mathml(latex: str, *, display: str) -> str:
    """Convert a formula, or fail if a part of it would be shown as LaTeX.

    Parameters
    ----------
    latex : str
        The formula without its dollar signs.
    display : {"inline", "block"}
        Within a line, or on lines of its own.
    """
    mathml = convert(latex, display=display)
    if found := UNKNOWN.search(mathml) or LOST.search(mathml):
        raise ExtensionError(f"formula: expected LaTeX that MathML can show, got {found[0]} in {latex!r}")
    return mathml


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula that stands within a line."""
    translator.body.append(to_mathml(node.astext(), display="inline"))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, with its number if it has one."""
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})</span>')
    translator.body.append(to_mathml(node.astext(), display="block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; `html_math_renderer = "mathml"` chooses it."""
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
