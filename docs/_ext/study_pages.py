"""The pages of studies/ as pages of the site: the index is in the sidebar, the others are linked from it."""

import shutil
from pathlib import Path


def copy_studies(studies: Path, pages: Path) -> None:
    """Copy the Markdown of `studies` to `pages`, which is made anew, with links that hold there."""
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    for page in studies.glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](../docs/", "](../")
        # An orphan has no entry in the sidebar, and Sphinx does not ask for one.
        orphan = "" if page.stem == "README" else "---\norphan: true\n---\n\n"
        (pages / page.name).write_text(orphan + text, encoding="utf-8")
