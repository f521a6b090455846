"""The rendered records as pages of the site: linked from one page of tables, and not listed in the sidebar."""

import shutil
from pathlib import Path

NOT_PAGES = shutil.ignore_patterns("*.jsonl", "*.csv", ".*")


def copy_records(results: Path, pages: Path) -> None:
    """Copy tables and pictures from `results` to `pages`; `pages` is made anew."""
    shutil.rmtree(pages, ignore_errors=True)
    shutil.copytree(results, pages, ignore=NOT_PAGES)
    for page in pages.glob("*/**/*.md"):
        # An orphan has no entry in the sidebar, and Sphinx does not ask for one.
        page.write_text(f"---\norphan: true\n---\n\n{page.read_text(encoding='utf-8')}", encoding="utf-8")
