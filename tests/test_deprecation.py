"""Old names work for one release, warn where they are used, and are deleted in time."""

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

import xcal
from xcal._deprecation import deprecated_names

SOURCES = sorted(Path(xcal.__file__).parent.rglob("*.py"))


def release(version):
    return tuple(int(number) for number in version.split("."))


@pytest.fixture
def shop(monkeypatch):
    module = ModuleType("shop")
    module.__getattr__ = deprecated_names("shop", {"Prefix": "pathlib.PurePath"}, removed_in="0.9.0")
    monkeypatch.setitem(sys.modules, "shop", module)
    return module


def test_an_old_name_is_the_new_object_and_warns_at_the_line_that_uses_it(shop):
    from pathlib import PurePath

    with pytest.warns(
        FutureWarning, match=r"^shop\.Prefix is now pathlib\.PurePath; the old name goes in 0\.9\.0$"
    ) as seen:
        found = shop.Prefix
    assert found is PurePath
    assert [warning.filename for warning in seen] == [__file__]


def test_an_import_of_an_old_name_warns_at_its_line(shop):
    with pytest.warns(FutureWarning, match="is now pathlib") as seen:
        from shop import Prefix  # noqa: F401
    assert {warning.filename for warning in seen} == {__file__}


def test_each_use_warns(shop):
    for _ in range(2):
        with pytest.warns(FutureWarning, match="is now"):
            _ = shop.Prefix


def test_a_name_that_never_was_is_an_attribute_error(shop):
    with pytest.raises(AttributeError, match="module 'shop' has no attribute 'Suffix'"):
        _ = shop.Suffix
    assert not hasattr(shop, "__path__")


def calls(path):
    """What each call of deprecated_names in a file says: the names, and the release that drops them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "deprecated_names":
            (removed_in,) = (word.value for word in node.keywords if word.arg == "removed_in")
            yield ast.literal_eval(removed_in)


def test_old_names_are_deleted_in_the_release_they_name():
    late = {path.name for path in SOURCES for gone in calls(path) if release(gone) <= release(xcal.__version__)}
    assert late == set()


def test_the_search_for_late_names_finds_one(tmp_path):
    page = tmp_path / "old.py"
    page.write_text('__getattr__ = deprecated_names(__name__, {"a": "b.c"}, removed_in="0.2.0")\n')
    assert list(calls(page)) == ["0.2.0"]
