"""One self-contained HTML page: text, tables and interactive pictures, without a network.

The engine knows nothing of what it shows. A `Page` has sections of blocks; pictures are Vega-Lite specifications in
plain dictionaries; a `Selector` (buttons, a list, a slider, or a click on a point of a picture) moves every block that
follows it.
"""

from xcal.pages.blocks import (
    Block,
    Callout,
    Chart,
    Checklist,
    ChecklistItem,
    Copyable,
    Download,
    Figure,
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
from xcal.pages.page import Page, Section, render_page, write_page

__all__ = [
    "Block",
    "Callout",
    "Chart",
    "Checklist",
    "ChecklistItem",
    "Copyable",
    "Download",
    "Figure",
    "Figures",
    "Key",
    "Notes",
    "Page",
    "Row",
    "Section",
    "Selector",
    "Stack",
    "Table",
    "Text",
    "Varying",
    "render_page",
    "write_page",
]
