import doctest
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "distributions.md"


def test_the_example_of_the_page_runs() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted >= 10
    assert result.failed == 0
