"""How results are shown: tables as Markdown, CSV and JSON, pictures of frontiers, and the pages of a results folder."""

from xcal.report.frontier_picture import draw_frontier
from xcal.report.results_page import write_pages
from xcal.report.tables import as_csv, as_json, markdown, penalties_as_json, penalties_as_text

__all__ = [
    "as_csv",
    "as_json",
    "draw_frontier",
    "markdown",
    "penalties_as_json",
    "penalties_as_text",
    "write_pages",
]
