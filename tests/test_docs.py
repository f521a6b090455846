"""Every example in the README and the documentation runs and prints what it says."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "paper" / "docs").glob("*.md"))]
# These train for long: in CI only.
TRAINING = {"README.md", "estimators.md", "start-table.md"}
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=[pytest.mark.ci] if p.name in TRAINING else [], id=p.name) for p in PAGES]
)
def test_sessions(page):
    assert doctest.testfile(str(page), module_relative=False, optionflags=FLAGS).failed == 0


def test_every_benchmark_is_on_its_page():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    # measure is what the others share.
    commands = {path.stem for path in (ROOT / "benchmarks").glob("[a-z]*.py")} - {"measure"}
    assert {name for name in commands if not re.search(rf"`python -m benchmarks\.{name}[` ]", page)} == set()


def test_every_study_is_in_the_index():
    index = (ROOT / "studies" / "README.md").read_text()
    # peers is what others share.
    commands = {path.stem for path in (ROOT / "studies").glob("[a-z]*.py")} - {"peers"}
    assert {name for name in commands if f"`python -m studies.{name}`" not in index} == set()


TEXTS = [
    *PAGES,
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "src").rglob("README.md")),
    *sorted((ROOT / "studies").glob("*.md")),
]


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_that_a_page_links_to_exist(page):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)|\{download\}`[^<`]*<([^>]+)>`", page.read_text())
    files = {one or other for one, other in links if "://" not in one}
    # Pages of the gallery and of records are made when the site is built.
    made = ("gallery/", "records/", "../results/")
    assert [file for file in files if not file.startswith(made) and not (page.parent / file).is_file()] == []


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_link_that_shows_the_name_of_a_file_leads_to_that_file(page):
    links = re.findall(r"\[`([\w./-]+\.py)`\]\(([^)]+)\)", page.read_text())
    assert [link for link in links if not f"/{link[1]}".endswith(f"/{link[0]}")] == []


def test_files_that_contributing_names_exist():
    """A path starts in the root of the repository; a name alone is of a file in a folder that the same line names."""
    missing = []
    for line in (ROOT / "CONTRIBUTING.md").read_text().splitlines():
        named = re.findall(r"`([\w./-]+)`", line)
        folders = [ROOT, *(ROOT / name for name in named if (ROOT / name).is_dir())]
        files = [name for name in named if re.search(r"\.(py|md|toml|json)$", name) or name.startswith("src/")]
        missing += [name for name in files if not any((folder / name).exists() for folder in folders)]
    assert missing == []
