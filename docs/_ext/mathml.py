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


# Brackets that grow with what they hold: browsers size them better than a fixed \Big does.
GROWING = ((re.compile(r"\\[Bb]ig(?=[(\[])"), r"\\left"), (re.compile(r"\\[Bb]ig(?=[)\]])"), r"\\right"))
# What the converter leaves to the typesetter: space around a named function, a sign that is no difference, "is drawn
# from". Each is (what it writes, what a browser needs).
THIN_SPACE = '<mspace width="0.167em"/>'
CORRECTIONS = (
    (re.compile(r"<mo>(max|min)</mo>"), r"<mi>\1</mi>"),
    (re.compile(r"(<mi>[a-z]{2,}</mi>)(?=<m(?:i|n|row|sub|sup)\b)"), rf"\1{THIN_SPACE}"),
    (re.compile(r"(</m(?:i|n)>)(?=<mi>[a-z]{2,}</mi>)"), rf"\1{THIN_SPACE}"),
    (
        re.compile(r"(<mo\b[^>]*>[^<)\]]*(?<!&#x00029;)(?<!&#x0005D;)</mo>)<mo>&#x02212;</mo>"),
        r'\1<mo form="prefix">&#x02212;</mo>',
    ),
    (re.compile(r"<mi>&#x0007E;</mi>"), "<mo>&#x0223C;</mo>"),
    (re.compile(r"<mo>&#x0221E;</mo>"), "<mi>&#x0221E;</mi>"),
)


def to_mathml(latex: str, *, display: str) -> str:
    """Convert a formula, or fail if a part of it would be shown as LaTeX.

    Parameters
    ----------
    latex : str
        The formula without its dollar signs.
    display : {"inline", "block"}
        Within a line, or on lines of its own.
    """
    for fixed, growing in GROWING:
        latex = fixed.sub(growing, latex)
    mathml = convert(latex, display=display)
    for written, needed in CORRECTIONS:
        mathml = written.sub(needed, mathml)
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
