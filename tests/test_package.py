"""What `python -m build` makes is whole: the two wheels, in an environment without anything else, have every file."""

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

import xcal

ROOT = Path(__file__).parents[1]
SOURCES = {"xcal": ROOT / "src" / "xcal", "xcal_paper": ROOT / "paper" / "src" / "xcal_paper"}
# A version that the repository never has: the wheel can only have it from xcal.__version__ of the copy that was built.
VERSION = "7.8.9"


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The wheels of copies of the sources, made through an sdist as a release is."""
    copy = tmp_path_factory.mktemp("source")
    skipped = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", copy / "src", ignore=skipped)
    shutil.copytree(ROOT / "paper" / "src", copy / "paper" / "src", ignore=skipped)
    for name in ("pyproject.toml", "README.md", "LICENSE", "paper/pyproject.toml"):
        shutil.copy(ROOT / name, copy / name)
    package = copy / "src" / "xcal" / "__init__.py"
    text, changed = re.subn(r'^__version__ = ".*"$', f'__version__ = "{VERSION}"', package.read_text(), flags=re.M)
    assert changed == 1
    package.write_text(text)
    # Without isolation the build uses the setuptools of this environment, and needs no network.
    for source in (copy, copy / "paper"):
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", copy / "dist", source)
    return sorted((copy / "dist").glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheels, tmp_path_factory):
    """The python of an environment that has these wheels and nothing else, not even pip."""
    home = tmp_path_factory.mktemp("environment")
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", *wheels)
    return python


def isolated(python, code, *, dependencies=False):
    """Run code there; with dependencies, the packages of this environment come after its own."""
    # A folder that is put on the path so reads no .pth file: an editable xcal in it stays out of sight.
    path = f"import sys; sys.path.append({sysconfig.get_path('purelib')!r}); " if dependencies else ""
    return run(python, "-I", "-c", path + code).strip()


@pytest.mark.ci
def test_the_wheel_is_imported_without_any_other_package(python):
    code = "import importlib.metadata as m, xcal; print(xcal.__file__, xcal.__version__, m.version('xcal'))"
    file, version, metadata = isolated(python, code).split()
    assert Path(file).is_relative_to(python.parents[1])
    assert version == metadata == VERSION


@pytest.mark.ci
@pytest.mark.parametrize(
    ("package", "some"),
    [("xcal", {"py.typed"}), ("xcal_paper", {"py.typed", "specs/paper.csv", "specs/gamma-censored.toml"})],
)
def test_every_file_of_the_package_is_installed(python, package, some):
    code = f"import importlib.util as u, pathlib; h = pathlib.Path(u.find_spec('{package}').origin).parent; "
    installed = set(isolated(python, code + "print(*(p.relative_to(h) for p in h.rglob('*')))").split())
    source = SOURCES[package]
    names = {str(path.relative_to(source)) for path in source.rglob("*") if path.is_file()}
    expected = {name for name in names if "__pycache__" not in name and not name.endswith("README.md")}
    assert some <= expected
    assert expected - installed == set()


@pytest.mark.ci
def test_the_installed_specs_are_read(python):
    code = "from xcal_paper import load_spec, table_names; print(*(load_spec(n).table for n in table_names()))"
    found = isolated(python, code, dependencies=True).split()
    assert set(found) == {path.stem for path in (SOURCES["xcal_paper"] / "specs").glob("*.toml")}


@pytest.mark.ci
def test_the_command_is_installed(python):
    script = (python.parent / "xcal").read_text()
    assert "from xcal.cli.app import main" in script
    code = "sys.argv = ['xcal', '--version']; from xcal.cli.app import main; main()"
    assert isolated(python, code, dependencies=True) == f"xcal {VERSION}"


def test_the_version_is_written_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    newest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    assert newest[1] == xcal.__version__
