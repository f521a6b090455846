"""The records as pages of the site: linked from one page of tables, and not listed in the sidebar."""

import shutil
from collections.abc import Callable
from pathlib import Path


def record_pages(results: Path, pages: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make tables and pictures of the records in `results`; `pages`, where they are, is made anew."""
    shutil.rmtree(pages, ignore_errors=True)
    for records in results.rglob("*.jsonl"):
        copy = pages / records.relative_to(results)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(records, copy)
    write(pages)
    for pattern in ("*.jsonl", "*.csv"):
        for file in pages.rglob(pattern):
            file.unlink()
    for page in pages.glob("*/**/*.md"):
        # An orphan has no entry in the sidebar, and Sphinx does not ask for one.
        page.write_text(f"---\norphan: true\n---\n\n{page.read_text(encoding='utf-8')}", encoding="utf-8")
