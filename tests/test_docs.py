"""Every example in the README and the documentation runs and prints what it says."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_sessions(page):
    assert doctest.testfile(str(page), module_relative=False, optionflags=FLAGS).failed == 0


def test_the_training_loop_of_the_readme():
    (code,) = re.findall(r"^```python\n(.*?)^```", PAGES[0].read_text(), flags=re.DOTALL | re.MULTILINE)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["loss"].isfinite()
