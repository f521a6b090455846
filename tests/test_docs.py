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


def test_files_that_the_readme_links_to_exist():
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", PAGES[0].read_text())
    assert len(links) > 8
    assert [link for link in links if not (ROOT / link).is_file()] == []
