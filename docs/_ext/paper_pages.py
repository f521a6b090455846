"""The pages of paper/docs as pages of the site."""

import shutil
from pathlib import Path


def copy_paper(sources: Path, pages: Path) -> None:
    """Copy the Markdown of `sources` to `pages`, which is made anew, with links that hold there."""
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    for page in sources.glob("*.md"):
        text = page.read_text(encoding="utf-8").replace("](../../docs/", "](../").replace("../results/", "../records/")
        (pages / page.name).write_text(text, encoding="utf-8")
