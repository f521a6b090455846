"""Old names work for one release, warn where they are used, and are deleted in time."""

import ast
import sys
from pathlib import Path
from types import ModuleType

import pytest

import xcal
from xcal._deprecation import deprecated_names, warn_new_default, warn_renamed

HELPERS = ("deprecated_names", "warn_renamed", "warn_new_default")
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


def fetch(*, size=None):
    if size is None:
        warn_new_default("size", "1", "2", removed_in="0.9.0", stacklevel=2)
    else:
        warn_renamed("size=", "length=", removed_in="0.9.0", stacklevel=2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 3}, r"^size= is now length=; the old name goes in 0\.9\.0$"),
        ({}, r"^size: the default is now 2, it was 1; write size=2 or size=1 \(this warning goes in 0\.9\.0\)$"),
    ],
)
def test_an_old_argument_and_a_new_default_warn_at_the_line_of_the_call(given, message):
    with pytest.warns(FutureWarning, match=message) as seen:
        fetch(**given)
    (warning,) = seen
    assert warning.filename == __file__
    assert "fetch(**given)" in Path(__file__).read_text(encoding="utf-8").splitlines()[warning.lineno - 1]


def calls(path):
    """The release named in each call of a function of `_deprecation` in a file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) in HELPERS:
            (removed_in,) = (word.value for word in node.keywords if word.arg == "removed_in")
            if isinstance(removed_in, ast.Constant):  # the helpers themselves hand on what they were given
                yield removed_in.value


def test_old_names_are_deleted_in_the_release_they_name():
    late = {path.name for path in SOURCES for gone in calls(path) if release(gone) <= release(xcal.__version__)}
    assert late == set()


def test_the_search_for_late_names_finds_one(tmp_path):
    page = tmp_path / "old.py"
    page.write_text(
        '__getattr__ = deprecated_names(__name__, {"a": "b.c"}, removed_in="0.2.0")\n'
        'warn_renamed("old", "new", removed_in="0.3.0", stacklevel=2)\n'
    )
    assert list(calls(page)) == ["0.2.0", "0.3.0"]
